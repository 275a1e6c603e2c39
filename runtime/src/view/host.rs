//! What an app asks of its host in, what a person or a rule of the host says out; without a host every answer is no.

use std::future::ready;

use serde_json::Value;

use crate::upstream::BoxFuture;

/// How much of the screen an app has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisplayMode {
    /// A part of the conversation.
    #[default]
    Inline,
    /// All of it.
    Fullscreen,
    /// A small part of it that stays.
    Pip,
}

impl DisplayMode {
    pub(super) fn read(text: &str) -> Option<Self> {
        [Self::Inline, Self::Fullscreen, Self::Pip]
            .into_iter()
            .find(|mode| mode.as_str() == text)
    }

    /// As MCP Apps writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Fullscreen => "fullscreen",
            Self::Pip => "pip",
        }
    }
}

/// What an app tells the model of itself. All of it is a stranger's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelContext {
    /// Blocks of content, as they came.
    pub content: Vec<Value>,
    /// The same for programs.
    pub structured: Option<Value>,
}

impl ModelContext {
    /// Its text, with what deceives written out.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self
            .content
            .iter()
            .filter_map(|block| block.get("text")?.as_str());
        let texts: Vec<_> = texts.map(crate::escape_lines).collect();
        texts.join("\n")
    }
}

/// What an app may want done by somebody outside. Contents are as they came from the app: show them as text of a stranger.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ViewRequest {
    /// To open an address, `http` or `https`, in the person's browser. The host opens it.
    Link(String),
    /// To say this in the conversation. The host says it.
    Message(Vec<Value>),
    /// To save these files. The host saves them.
    Download(Vec<Value>),
    /// To be shown in this mode from now on; only what the host has is asked for.
    Mode(DisplayMode),
    /// Not to be suspended.
    Pin,
}

/// What an app tells its host, without an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ViewEvent {
    /// It has introduced itself and may be used.
    Ready,
    /// [`View::model_context`](crate::View::model_context) is another.
    ModelContextChanged,
    /// Its tools are others.
    ToolsChanged,
    /// It wants that many pixels of width and height.
    Size(Option<f64>, Option<f64>),
    /// It wants to be closed.
    CloseRequested,
    /// An entry for a log, as it came.
    Log(Value),
    /// It was closed.
    Closed,
}

/// What of [`ViewRequest`] a host answers at all; the rest is refused without asking it, and apps are told so beforehand. It is
/// asked for every mode that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own"
)]
#[non_exhaustive]
pub struct ViewCapabilities {
    /// Links.
    pub links: bool,
    /// Messages.
    pub messages: bool,
    /// Downloads.
    pub downloads: bool,
    /// Being pinned.
    pub pins: bool,
}

impl ViewCapabilities {
    /// Everything: the host asks its person each time.
    pub const ALL: Self = Self {
        links: true,
        messages: true,
        downloads: true,
        pins: true,
    };
}

/// The host of one app: what a page of a stranger wants of people, and what it tells. Implemented by hosts; [`DenyView`]
/// says no to all.
pub trait ViewHost: Send + Sync + 'static {
    /// What this host answers at all.
    fn capabilities(&self) -> ViewCapabilities {
        ViewCapabilities::default()
    }

    /// Whether a person wants that, or a rule of theirs. The host does it itself before it says yes. What comes sooner than
    /// [`ViewLimits::wishes`](crate::ViewLimits::wishes) allows is refused without asking it.
    fn on_request(&self, _request: ViewRequest) -> BoxFuture<'_, bool> {
        Box::pin(ready(false))
    }

    /// Hears something that needs no answer. It must not block.
    fn on_event(&self, _event: ViewEvent) {}

    /// Hears every message of the app before anything is done with it, and every message to it, as text. It must not block.
    fn on_message(&self, _from_app: bool, _message: &str) {}
}

/// Says no to everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyView;

impl ViewHost for DenyView {}
