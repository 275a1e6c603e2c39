//! Calls: tool name, arguments and metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::effect::{ExcludedChange, PreviewToken};
use crate::id::ToolName;
use crate::requests::CallRequests;
use crate::text::{abbreviated, escape};

/// Who wrote a message. It is set by the entry point that received it, never read from the message.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A person, through the host's own user interface.
    Human,
    /// The host or the runtime, for example when a worker ends.
    Host,
    /// A model, which can only narrow its authority.
    #[default]
    Model,
    /// A live app in an iframe: untrusted, with less authority than the model that it serves.
    View,
}

/// Whether a mutating call is previewed or applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Mode {
    Preview,
    Apply,
}

/// A tool call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The tool.
    pub tool: ToolName,
    /// The arguments, not validated yet.
    pub arguments: Value,
    /// Metadata of the host.
    pub meta: CallMeta,
}

impl Call {
    /// Creates a model's call without metadata.
    #[must_use]
    pub fn new(tool: &str, arguments: Value) -> Self {
        Self {
            tool: ToolName::new(tool),
            arguments,
            meta: CallMeta::default(),
        }
    }

    /// Sets the metadata.
    #[must_use]
    pub fn meta(mut self, meta: CallMeta) -> Self {
        self.meta = meta;
        self
    }
}

/// Progress counter of a call. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    done: AtomicU64,
    message: Mutex<Option<Box<str>>>,
}

/// Maximum length of a progress message, in characters.
const MAX_PROGRESS_MESSAGE: usize = 200;

impl Progress {
    /// Returns how many units of work are done; the total is unknown.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    #[doc(hidden)]
    pub fn step(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the latest message that describes the progress, in one line without control characters.
    #[must_use]
    pub fn message(&self) -> Option<Box<str>> {
        self.0.message.lock().clone()
    }

    pub(crate) fn set_message(&self, text: &str) {
        let shown = abbreviated(&escape(text), MAX_PROGRESS_MESSAGE).into();
        *self.0.message.lock() = Some(shown);
    }
}

/// How a call that requires approval is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asks {
    /// It waits for the answer of the approver.
    #[default]
    Wait,
    /// Like [`Asks::Wait`], with a separate question for each call. For calls that may be abandoned: an answer to an
    /// equal call must not carry them out.
    WaitAlone,
    /// It is rejected with `SCOPE_REQUIRED`, as without an approver. Live grants still apply.
    Refuse,
}

/// Metadata that a host adds to a call; a model's `_meta` is never copied into it.
#[derive(Clone, Debug, Default)]
pub struct CallMeta {
    /// Who wrote the call.
    pub origin: Origin,
    /// A policy for this call alone; it can only narrow. Its limits apply to the call: the budget limits its cost,
    /// `ttl_ms` its duration, and `min_interval_ms` the time since the previous call.
    pub policy: Option<Value>,
    /// The preview that this call applies; it is refused with `STALE_PREVIEW` if the files have changed.
    pub preview_token: Option<PreviewToken>,
    /// Parts of the change that are not applied, for tools that can divide their changes, such as `edit_file` and
    /// `apply_batch`.
    pub excluded: Vec<ExcludedChange>,
    /// Time limit of the call, without the time spent waiting for people; at most the runtime's limit, which is the default.
    pub deadline: Option<Duration>,
    /// Reports the progress of the call.
    pub progress: Option<Progress>,
    /// How the call is handled if it requires approval.
    pub asks: Asks,
    /// Whether a person must confirm the changes of this call in a separate question, regardless of policies and live
    /// grants. Required for calls of [`Origin::View`] that change something.
    pub confirm: bool,
    /// Answers requests of a third-party server within this call, if `UpstreamsBuilder::forward_requests` is set.
    pub requests: Option<CallRequests>,
}
