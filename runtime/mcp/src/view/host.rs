//! The host's interface to a view: requests, events and capabilities.

use std::future::ready;

use serde_json::Value;

use bailiwick::requests::BoxFuture;

/// How a page is displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisplayMode {
    /// Inline in the conversation.
    #[default]
    Inline,
    /// Full screen.
    Fullscreen,
    /// Picture-in-picture.
    Pip,
}

impl DisplayMode {
    pub(super) fn read(text: &str) -> Option<Self> {
        [Self::Inline, Self::Fullscreen, Self::Pip]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }

    /// The name in MCP Apps.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Fullscreen => "fullscreen",
            Self::Pip => "pip",
        }
    }
}

/// Context that a page provides for the model. It is untrusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelContext {
    /// Content blocks, as received.
    pub content: Vec<Value>,
    /// Structured content.
    pub structured: Option<Value>,
}

impl ModelContext {
    /// The text of the content, with deceptive characters escaped.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self
            .content
            .iter()
            .filter_map(|block| block.get("text")?.as_str());
        let texts: Vec<_> = texts.map(bailiwick::text::escape_lines).collect();
        texts.join("\n")
    }
}

/// A request of a page to its host. Contents are untrusted and as received.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ViewRequest {
    /// Open an `http` or `https` URL in the person's browser.
    Link(String),
    /// Send this message in the conversation.
    Message(Vec<Value>),
    /// Save these files.
    Download(Vec<Value>),
    /// Change the display mode. Only modes of the host are requested.
    Mode(DisplayMode),
    /// Pin the view, so that it is not suspended.
    Pin,
}

/// An event of a view.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ViewEvent {
    /// The page is initialized.
    Ready,
    /// [`View::model_context`](crate::view::View::model_context) has changed.
    ModelContextChanged,
    /// The tools of the page have changed.
    ToolsChanged,
    /// The page requests this width and height, in pixels.
    Size(Option<f64>, Option<f64>),
    /// The page requests to be closed.
    CloseRequested,
    /// A log message, as received.
    Log(Value),
    /// The view was closed.
    Closed,
}

/// The kinds of [`ViewRequest`] that a host supports. Other requests are rejected without asking the host, and are not
/// declared to pages. Display modes of the host are always requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the capabilities are independent"
)]
#[non_exhaustive]
pub struct ViewCapabilities {
    /// Links.
    pub links: bool,
    /// Messages.
    pub messages: bool,
    /// Downloads.
    pub downloads: bool,
    /// Pinning.
    pub pins: bool,
}

impl ViewCapabilities {
    /// All requests; the host asks a person each time.
    pub const ALL: Self = Self {
        links: true,
        messages: true,
        downloads: true,
        pins: true,
    };
}

/// The host of a view, which handles requests and events of its page. [`DenyView`] denies all requests.
pub trait ViewHost: Send + Sync + 'static {
    /// The supported requests.
    fn capabilities(&self) -> ViewCapabilities {
        ViewCapabilities::default()
    }

    /// Handles a request by asking a person or by a rule, carries it out, and returns whether it did. Requests beyond
    /// [`ViewLimits::request_rate`](crate::view::ViewLimits::request_rate) are rejected without calling this.
    fn on_request(&self, _request: ViewRequest) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Handles an event. Must not block.
    fn on_event(&self, _event: ViewEvent) {}

    /// Observes every message from the page before it is handled, and every message to it, as text. Must not block.
    fn on_message(&self, _from_app: bool, _message: &str) {}
}

/// Denies all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyView;

impl ViewHost for DenyView {}
