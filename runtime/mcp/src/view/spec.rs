//! Configuration of views.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::ViewError;
use super::host::{DisplayMode, ViewCapabilities};
use super::instance::Source;
use crate::rate::Rate;
use crate::upstream::Upstreams;

/// The longest name of an app, in bytes.
const MAX_NAME_BYTES: usize = 16;

/// The limits of one view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewLimits {
    /// The largest number of offered tools.
    pub tools: usize,
    /// How long a page may take to answer a request.
    pub call: Duration,
    /// The longest message in either direction, in bytes.
    pub message: usize,
    /// The largest number of concurrent requests of the page.
    pub requests: usize,
    /// The rate of requests to people ([`ViewRequest`](crate::view::ViewRequest)); the host is not asked beyond it.
    pub request_rate: Rate,
    /// The shortest interval between refreshes of the tools.
    pub pause: Duration,
    /// How long people may take to answer a request.
    pub answer_timeout: Duration,
    /// How long the page may take to tear down.
    pub teardown: Duration,
}

impl Default for ViewLimits {
    fn default() -> Self {
        Self {
            tools: 50,
            call: Duration::from_secs(30),
            message: 10 << 20,
            requests: 32,
            // A burst of eight, and one more every two seconds.
            request_rate: Rate {
                calls: 8,
                per: Duration::from_secs(16),
            },
            pause: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(600),
            teardown: Duration::from_secs(1),
        }
    }
}

/// The configuration of a view.
///
/// ```
/// use bailiwick_mcp::view::{DisplayMode, ViewSpec};
/// let files = ViewSpec::new("files").modes([DisplayMode::Inline, DisplayMode::Fullscreen]);
/// # drop(files);
/// ```
#[derive(Clone, Debug)]
pub struct ViewSpec {
    pub(super) name: String,
    pub(super) source: Source,
    context: Map<String, Value>,
    pub(super) modes: Vec<DisplayMode>,
    pub(super) indirect: bool,
    pub(super) limits: ViewLimits,
    host: (String, String),
}

impl ViewSpec {
    /// A page of this runtime, named `name` (`[a-z0-9]{1,16}`) among the views of its worker. It may call the runtime's
    /// own tools.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            source: None,
            context: Map::new(),
            modes: vec![DisplayMode::Inline],
            indirect: false,
            limits: ViewLimits::default(),
            host: ("bailiwick".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        }
    }

    /// Sets the server that the page belongs to. It may call the tools of that server only. The runtime must have been
    /// built with these [`servers`](bailiwick::RuntimeBuilder::servers).
    ///
    /// A browser sandbox does not block all network access of the page: no page policy blocks WebRTC, so the page can
    /// send what it reads elsewhere. Questions about its calls say so. Do not show pages of servers that you would not
    /// give the data to.
    #[must_use]
    pub fn of_server(mut self, upstreams: &Upstreams, server: impl Into<String>) -> Self {
        self.source = Some((upstreams.clone(), server.into()));
        self
    }

    /// Sets the host context of the page: `theme`, `locale`, `styles` and the like.
    #[must_use]
    pub fn context(mut self, context: Map<String, Value>) -> Self {
        self.context = context;
        self
    }

    /// Sets the supported display modes, the initial one first.
    #[must_use]
    pub fn modes(mut self, modes: impl IntoIterator<Item = DisplayMode>) -> Self {
        self.modes = modes.into_iter().collect();
        self
    }

    /// Offers the page's tools through `list_app_tools` and `call_app_tool`, so that the tools of a model do not change
    /// while pages come and go. Calls are judged and recorded by the name of the called tool.
    #[must_use]
    pub fn behind_two_tools(mut self) -> Self {
        self.indirect = true;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: ViewLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the host name and version that the page sees.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.host = (name.into(), version.into());
        self
    }

    pub(super) fn check(&self) -> Result<(), ViewError> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name = &self.name;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
            return Err(ViewError::Name(bailiwick::text::escape(name).into()));
        }
        Ok(())
    }

    /// The initial display mode.
    pub(super) fn mode(&self) -> DisplayMode {
        self.modes.first().copied().unwrap_or_default()
    }

    /// The host part of the `ui/initialize` result.
    pub(super) fn initialize_result(&self, capabilities: ViewCapabilities) -> Map<String, Value> {
        let blocks = json!({"text": {}, "image": {}, "structuredContent": {}});
        let mut host_capabilities = json!({
            "logging": {},
            "serverTools": {},
            "serverResources": {},
            "updateModelContext": blocks,
        });
        let offered = [
            ("message", capabilities.messages, blocks),
            ("openLinks", capabilities.links, json!({})),
            ("downloadFile", capabilities.downloads, json!({})),
        ];
        if let Value::Object(host_capabilities) = &mut host_capabilities {
            let offered = offered.into_iter().filter(|(_, answered, _)| *answered);
            host_capabilities.extend(offered.map(|(name, _, value)| (name.to_owned(), value)));
        }
        let (name, version) = &self.host;
        Map::from_iter([
            (
                "hostInfo".to_owned(),
                json!({"name": name, "version": version}),
            ),
            ("hostCapabilities".to_owned(), host_capabilities),
        ])
    }

    pub(super) fn host_context(&self) -> Map<String, Value> {
        let modes: Vec<_> = self.modes.iter().map(|mode| mode.as_str()).collect();
        let mut context = self.context.clone();
        context.insert("displayMode".into(), self.mode().as_str().into());
        context.insert("availableDisplayModes".into(), modes.into());
        context
    }
}
