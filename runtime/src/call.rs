//! Calls: tool name, arguments and metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effect::PreviewToken;
use crate::id::ToolName;

/// Who wrote a message. It is set by the type of the door it came through, never read from the message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A person, through the host's own user interface.
    Human,
    /// The host or the runtime by itself, such as when a worker ends.
    Host,
    /// A model. What it writes may narrow its authority and never widen it.
    #[default]
    Model,
    /// A live app in an iframe: untrusted, with a lower ceiling than the model it serves.
    View,
}

/// One tool call as it reaches a worker.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which tool.
    pub tool: ToolName,
    /// Its arguments, not yet checked against its schema.
    pub arguments: Value,
    /// What the host adds to the call.
    pub meta: CallMeta,
}

impl Call {
    /// A call from a model without metadata.
    #[must_use]
    pub fn new(tool: &str, arguments: Value) -> Self {
        Self {
            tool: ToolName::new(tool),
            arguments,
            meta: CallMeta::default(),
        }
    }

    /// Sets what the host adds.
    #[must_use]
    pub fn meta(mut self, meta: CallMeta) -> Self {
        self.meta = meta;
        self
    }
}

/// Counts the pieces of work that a call has done. Clones share the count, so whoever keeps one sees how far the call is.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// How many pieces are done; how many there will be is not known.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn step(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What becomes of a call that a person must allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asks {
    /// It waits for the answer of whoever the runtime asks.
    #[default]
    Wait,
    /// Like that, but by a question of its own: for calls that may be made and then left, so that an answer to an equal
    /// one does not carry them out.
    WaitAlone,
    /// It is refused with `SCOPE_REQUIRED`, as if there were nobody to ask. What was granted before counts all the same.
    Refuse,
}

/// What a host adds to a call; a model's own `_meta` never becomes this.
#[derive(Clone, Debug, Default)]
pub struct CallMeta {
    /// Who wrote the call.
    pub origin: Origin,
    /// One more policy layer for this call alone; it can only narrow. Its limits hold for the one call: a budget for what
    /// this call costs, `ttl_ms` for how long it works, `min_interval_ms` since the call before.
    pub policy: Option<Value>,
    /// The preview this call carries out; it is refused with `STALE_PREVIEW` if the files changed since.
    pub preview_token: Option<PreviewToken>,
    /// How long the work may take, waiting for people not counted; the runtime's limit if absent or longer.
    pub deadline: Option<Duration>,
    /// Counts the work as it is done, for whoever wants to watch.
    pub progress: Option<Progress>,
    /// Whether people may be asked for what the call lacks.
    pub asks: Asks,
    /// Whether a person must allow every change of this very call, by a question of its own: what policies allow and
    /// what was granted before is not enough. A call of [`Origin::View`] changes something only so.
    pub confirm: bool,
    /// Who answers what a third-party server asks within this call, if
    /// [`UpstreamsBuilder::forward_requests`](crate::UpstreamsBuilder::forward_requests) says so.
    #[cfg(feature = "mcp")]
    pub requests: Option<crate::CallRequests>,
}
