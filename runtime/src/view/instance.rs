//! One app as the rest of the runtime sees it: what it is, how it fares, and a way to ask it something.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ractor::ActorRef;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::actor::ViewMsg;
use super::app::AppInfo;
use super::host::{DisplayMode, ModelContext, ViewEvent, ViewHost};
use super::protocol::NoResponse;
use super::tools::ListedTools;
use super::wire::{Fields, REFUSED, RpcError};
use super::{ViewLimits, ViewState, tools};
use crate::error::{CallError, Code};
use crate::rate::Bucket;
use crate::upstream::{Fingerprint, OfferedTool, ServerTool, SizeCounter, Upstreams};
use crate::worker::Worker;

/// The most parts in which a list of tools comes.
const MAX_PAGES: usize = 50;

/// How many times the tools that an app may offer it may list.
const MAX_LISTED_FACTOR: usize = 4;

/// The server that an app is a page of; none for a page of this runtime.
pub(super) type Source = Option<(Upstreams, String)>;

/// One app, for as long as somebody has to do with it.
pub(super) struct Instance {
    /// `app_` and the name that its host gave it.
    pub(super) name: Arc<str>,
    /// The same in scopes: with a mark that no other app has, so that a grant for this one is none for the next.
    pub(super) label: String,
    pub(super) worker: Worker,
    pub(super) host: Arc<dyn ViewHost>,
    pub(super) source: Source,
    pub(super) modes: Vec<DisplayMode>,
    pub(super) limits: ViewLimits,
    /// What it may still want of people.
    pub(super) request_limiter: Bucket,
    pub(super) state: watch::Sender<ViewState>,
    pub(super) pinned: AtomicBool,
    pub(super) app: OnceLock<AppInfo>,
    pub(super) actor: OnceLock<ActorRef<ViewMsg>>,
    pub(super) ids: AtomicU64,
    pub(super) page_state: Mutex<PageState>,
}

/// What an app said last.
#[derive(Default)]
pub(super) struct PageState {
    pub(super) context: Option<ModelContext>,
    pub(super) mode: DisplayMode,
    /// Every tool that it listed.
    seen: Vec<ServerTool>,
    /// The form of each that is offered.
    offered: BTreeMap<Arc<str>, Fingerprint>,
}

impl PageState {
    pub(super) fn new(mode: DisplayMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }
}

/// Takes a request back whose answer nobody waits for.
struct CancelOnDrop<'i>(&'i Instance, Option<u64>);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1 {
            self.0.post(ViewMsg::Cancel(id));
        }
    }
}

impl Instance {
    pub(super) fn page_state(&self) -> MutexGuard<'_, PageState> {
        // Nothing that can panic runs under the lock.
        self.page_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a message; false if there is nobody to read it.
    pub(super) fn post(&self, msg: ViewMsg) -> bool {
        let actor = self.actor.get();
        actor.is_some_and(|actor| actor.send_message(msg).is_ok())
    }

    /// Passes on what the guest said, and waits until it was looked at; false once nobody does.
    pub(super) async fn deliver(&self, text: String) -> bool {
        let (done, handled) = oneshot::channel();
        self.post(ViewMsg::Message(text, done)) && handled.await.is_ok()
    }

    /// What the guest answers, within `limit`.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: Value,
        limit: Duration,
    ) -> Result<Fields, NoResponse> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let mut pending = CancelOnDrop(self, Some(id));
        if !self.post(ViewMsg::Request(id, method, params, sender)) {
            return Err(NoResponse::Closed);
        }
        let answered = timeout(limit, answer).await;
        if answered.is_ok() {
            pending.1 = None;
        }
        match answered {
            Ok(answered) => answered.unwrap_or(Err(NoResponse::Closed)),
            Err(_) => Err(NoResponse::Late),
        }
    }

    /// What the guest lists now, looked at on a thread that nobody waits for.
    pub(super) async fn listed_tools(self: &Arc<Self>) -> Result<ListedTools, NoResponse> {
        let listed = self.list_tools().await?;
        let instance = Arc::clone(self);
        let sorted = tokio::task::spawn_blocking(move || {
            let tools: Vec<_> = listed.into_iter().filter_map(tools::read).collect();
            tools::classify_tools(&instance, &tools)
        });
        Ok(sorted.await.unwrap_or_default())
    }

    /// What the guest lists now as its tools, all parts of it within the limit of one call. What is far more than may be
    /// offered is no list, and not looked at.
    async fn list_tools(&self) -> Result<Vec<Value>, NoResponse> {
        let pages = async {
            let mut found = Vec::new();
            let mut size = SizeCounter::with_limit(self.limits.message);
            let mut params = json!({});
            for _ in 0..MAX_PAGES {
                let mut page = self.request("tools/list", params, self.limits.call).await?;
                let Some(Value::Array(tools)) = page.remove("tools") else {
                    break;
                };
                let limit = self.limits.tools.saturating_mul(MAX_LISTED_FACTOR);
                if found.len() + tools.len() > limit || !tools.iter().all(|it| size.add(it)) {
                    let error = RpcError::new(REFUSED, "it lists far more tools than it may have");
                    return Err(NoResponse::Error(error));
                }
                let empty = tools.is_empty();
                found.extend(tools);
                let full = found.len() > self.limits.tools || empty;
                let Some(Value::String(cursor)) = page.remove("nextCursor").filter(|_| !full)
                else {
                    break;
                };
                params = json!({ "cursor": cursor });
            }
            Ok(found)
        };
        let listed = timeout(self.limits.call, pages).await;
        listed.unwrap_or(Err(NoResponse::Late))
    }

    /// Offers to the agent what the guest listed.
    pub(super) fn offer(self: &Arc<Self>, listed: ListedTools) {
        let ListedTools { seen, offers } = listed;
        let fingerprints = offers.iter();
        let fingerprints = fingerprints.map(|offer| (Arc::clone(&offer.tool), offer.fingerprint));
        self.page_state().offered = fingerprints.collect();
        let entries = offers.iter().map(|offer| tools::entry(self, offer));
        self.worker.apps().put(&self.name, &self.label, entries);
        self.page_state().seen = seen;
        self.host.on_event(ViewEvent::ToolsChanged);
    }

    pub(super) fn tools(&self) -> Vec<ServerTool> {
        self.page_state().seen.clone()
    }

    /// Whether a tool is offered in that very form.
    pub(super) fn still_offers(&self, offer: &OfferedTool) -> bool {
        self.page_state().offered.get(&offer.tool) == Some(&offer.fingerprint)
    }

    /// What it means for a caller that the guest gave no answer.
    pub(super) fn call_error(&self, why: NoResponse) -> CallError {
        let name = &self.name;
        let gone = |how: &str, state: &str| {
            let error = CallError::new(Code::ServerGone, format!("the app `{name}` {how}"));
            error.with("state", state)
        };
        match why {
            NoResponse::Error(error) => {
                let message = format!("the app `{name}` says that it failed: {}", error.message);
                CallError::new(Code::ServerFailed, message)
            }
            NoResponse::Early => gone("is not ready yet", "starting"),
            NoResponse::Suspended => gone("is suspended; its person does not see it", "suspended"),
            NoResponse::Closed => gone("was closed", "closed"),
            NoResponse::Busy => {
                let message = format!("too much is asked of the app `{name}` at once");
                CallError::new(Code::Busy, message).with("retry_after_ms", 100)
            }
            NoResponse::Late => {
                let message = format!("the app `{name}` did not answer in time");
                CallError::new(Code::Deadline, message)
            }
        }
    }

    /// Takes down how the app fares; once closed it stays so.
    pub(super) fn set_state(&self, now: ViewState) {
        self.state.send_if_modified(|state| {
            let other = *state != now && *state != ViewState::Closed;
            if other {
                *state = now;
            }
            other
        });
    }

    /// The app is no more: its tools go, and its host is told once. Whoever hears of it finds them gone.
    pub(super) fn end(&self) {
        self.page_state().offered.clear();
        self.worker.apps().remove(&self.name, &self.label);
        let ended = self.state.send_if_modified(|state| {
            let open = *state != ViewState::Closed;
            *state = ViewState::Closed;
            open
        });
        if ended {
            self.host.on_event(ViewEvent::Closed);
        }
    }
}
