//! What a host says of a page that it is about to show in, whether it can be shown and what the page is told out.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::ViewError;
use super::host::{DisplayMode, ViewCapabilities};
use super::instance::Source;
use crate::rate::Rate;
use crate::upstream::Upstreams;

/// The longest name of an app, in bytes.
const MAX_NAME_BYTES: usize = 16;

/// What one view may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewLimits {
    /// How many tools an app may offer.
    pub tools: usize,
    /// How long it may take to answer.
    pub call: Duration,
    /// The longest message, in bytes, either way.
    pub message: usize,
    /// How many of its requests are served at one time.
    pub requests: usize,
    /// How often it may want something of people ([`ViewRequest`](crate::ViewRequest)); its host is not asked what comes sooner.
    pub request_rate: Rate,
    /// How long its list of tools is not looked at again.
    pub pause: Duration,
    /// How long people may take to answer what it wants.
    pub answer_timeout: Duration,
    /// How long it may take to put its things away.
    pub teardown: Duration,
}

impl Default for ViewLimits {
    fn default() -> Self {
        Self {
            tools: 50,
            call: Duration::from_secs(30),
            message: 10 << 20,
            requests: 32,
            // Eight at once, and one more each two seconds.
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

/// A page that is about to be shown.
///
/// ```
/// use bailiwick::{DisplayMode, ViewSpec};
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
    /// A page of this runtime, called `name` (`[a-z0-9]{1,16}`) beside the other views of its worker: it may call the
    /// runtime's own tools.
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

    /// Says that it is a page of another server: it may call that server's tools, and no others. The runtime must have
    /// been built with these [`servers`](crate::RuntimeBuilder::servers).
    ///
    /// A sandbox of the browser does not keep the page from the network: no policy of a page blocks WebRTC, so it can send
    /// what it reads elsewhere. Questions about its calls say so; show no page of a server that you would not give the data.
    #[must_use]
    pub fn of_server(mut self, upstreams: &Upstreams, server: impl Into<String>) -> Self {
        self.source = Some((upstreams.clone(), server.into()));
        self
    }

    /// Sets what the page knows of its surroundings: `theme`, `locale`, `styles` and the like.
    #[must_use]
    pub fn context(mut self, context: Map<String, Value>) -> Self {
        self.context = context;
        self
    }

    /// Sets the modes that the host can show it in, the first to begin with.
    #[must_use]
    pub fn modes(mut self, modes: impl IntoIterator<Item = DisplayMode>) -> Self {
        self.modes = modes.into_iter().collect();
        self
    }

    /// Offers its tools behind the two tools `list_app_tools` and `call_app_tool`, so that what a model is offered stays
    /// the same while pages come and go. A call is judged and recorded by the name of the tool it is for.
    #[must_use]
    pub fn behind_two_tools(mut self) -> Self {
        self.indirect = true;
        self
    }

    /// Sets what it may cost.
    #[must_use]
    pub fn limits(mut self, limits: ViewLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets what the page is told of its host.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.host = (name.into(), version.into());
        self
    }

    pub(super) fn check(&self) -> Result<(), ViewError> {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let name = &self.name;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(plain) {
            return Err(ViewError::Name(crate::escape(name).into()));
        }
        Ok(())
    }

    /// The mode that it is shown in at first.
    pub(super) fn mode(&self) -> DisplayMode {
        self.modes.first().copied().unwrap_or_default()
    }

    /// What the page is told of its host when they meet.
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
