//! Shared state of one view, and requests to its page.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use ractor::ActorRef;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::actor::ViewMsg;
use super::app::AppInfo;
use super::host::{DisplayMode, ModelContext, ViewEvent, ViewHost};
use super::protocol::NoResponse;
use super::wire::{Fields, REFUSED, RpcError};
use super::{ViewLimits, ViewState, tools};
use crate::rate::RateLimiter;
use crate::upstream::{ListedTool, OfferedTool, ServerTool, SizeCounter, Upstreams};
use bailiwick::worker::Worker;
use bailiwick::{CallError, Code};

/// The largest number of pages in a list of tools.
const MAX_PAGES: usize = 50;

/// A page may list this many times the number of tools that it may offer.
const MAX_LISTED_FACTOR: usize = 4;

/// The server that the page belongs to; `None` for a page of this runtime.
pub(super) type Source = Option<(Upstreams, String)>;

/// The shared state of one view.
pub(super) struct Instance {
    /// `app_` and the name given by the host.
    pub(super) name: Arc<str>,
    /// The name in scopes, with a mark that is unique to this view.
    pub(super) label: String,
    pub(super) worker: Worker,
    pub(super) host: Arc<dyn ViewHost>,
    pub(super) source: Source,
    pub(super) modes: Vec<DisplayMode>,
    pub(super) limits: ViewLimits,
    /// Limits requests to people.
    pub(super) request_limiter: RateLimiter,
    pub(super) state: watch::Sender<ViewState>,
    pub(super) pinned: AtomicBool,
    pub(super) app: OnceLock<AppInfo>,
    pub(super) actor: OnceLock<ActorRef<ViewMsg>>,
    pub(super) ids: AtomicU64,
    pub(super) page_state: Mutex<PageState>,
    /// Notified when the page reports that its tools have changed.
    pub(super) tools_changed: Notify,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The latest state reported by the page.
#[derive(Default)]
pub(super) struct PageState {
    pub(super) context: Option<ModelContext>,
    pub(super) mode: DisplayMode,
    listed: Vec<ListedTool>,
}

impl PageState {
    pub(super) fn new(mode: DisplayMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }
}

/// Cancels a request to the page when it is dropped.
struct CancelOnDrop<'i>(&'i Instance, Option<u64>);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1 {
            self.0.post(ViewMsg::Cancel(id));
        }
    }
}

impl Instance {
    /// Sends a message to the actor; false if the actor has ended.
    pub(super) fn post(&self, msg: ViewMsg) -> bool {
        let actor = self.actor.get();
        actor.is_some_and(|actor| actor.send_message(msg).is_ok())
    }

    /// Delivers a message of the page and waits until it is handled; false if the view is closed.
    pub(super) async fn deliver(&self, text: String) -> bool {
        let (done, handled) = oneshot::channel();
        self.post(ViewMsg::Message(text, done)) && handled.await.is_ok()
    }

    /// Sends a request to the page and waits for the response, at most for `limit`.
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
            Err(_) => Err(NoResponse::TimedOut),
        }
    }

    /// Lists the tools of the page after each change, with a pause in between, until the view is closed.
    pub(super) async fn refresh_tools(self: Arc<Self>) {
        let reached = async |state: ViewState| {
            // The sender is in `self`.
            let _ = self.state.subscribe().wait_for(|now| *now == state).await;
        };
        let refreshes = async {
            loop {
                self.tools_changed.notified().await;
                // A suspended page is asked once it is resumed.
                reached(ViewState::Mounted).await;
                match self.listed_tools().await {
                    Ok(tools) => {
                        self.post(ViewMsg::Listed(tools));
                    }
                    Err(NoResponse::Suspended) => self.tools_changed.notify_one(),
                    // The previous tools stay offered.
                    Err(_) => {}
                }
                sleep(self.limits.pause).await;
            }
        };
        tokio::select! {
            () = reached(ViewState::Closed) => {}
            () = refreshes => {}
        }
    }

    /// Lists and classifies the tools of the page. Classification runs on the blocking pool.
    async fn listed_tools(self: &Arc<Self>) -> Result<Vec<ListedTool>, NoResponse> {
        let listed = self.list_tools().await?;
        let instance = Arc::clone(self);
        let sorted = tokio::task::spawn_blocking(move || {
            let tools: Vec<_> = listed.into_iter().filter_map(tools::read).collect();
            tools::classify_tools(&instance, &tools)
        });
        Ok(sorted.await.unwrap_or_default())
    }

    /// Lists the tools of the page, all pages within the timeout of one call. A list far beyond the limit is an error.
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
        listed.unwrap_or(Err(NoResponse::TimedOut))
    }

    /// Offers the listed tools to the agent.
    pub(super) fn offer(self: &Arc<Self>, listed: Vec<ListedTool>) {
        {
            // Whoever sees the listed tools can call them.
            let mut state = self.page_state.lock();
            state.listed = listed;
            let offers = state.listed.iter().filter_map(|it| it.offer().ok());
            let entries = offers.map(|offer| tools::entry(self, offer));
            let apps = self.worker.apps();
            apps.set_tools(&self.name, &self.label, entries);
        }
        self.host.on_event(ViewEvent::ToolsChanged);
    }

    pub(super) fn tools(&self) -> Vec<ServerTool> {
        let state = self.page_state.lock();
        state
            .listed
            .iter()
            .map(ListedTool::to_server_tool)
            .collect()
    }

    /// Whether this definition of the tool is still offered.
    pub(super) fn still_offers(&self, offer: &OfferedTool) -> bool {
        let state = self.page_state.lock();
        let mut offers = state.listed.iter().filter_map(|it| it.offer().ok());
        offers.any(|now| now.is_same(offer))
    }

    /// Converts a missing response into a call error.
    pub(super) fn call_error(&self, why: NoResponse) -> CallError {
        let name = &self.name;
        let unavailable = |how: &str, state: &str| {
            let error = CallError::new(Code::ServerGone, format!("the app `{name}` {how}"));
            error.with("state", state)
        };
        match why {
            NoResponse::Error(error) => {
                let message = format!("the app `{name}` reported an error: {}", error.message);
                CallError::new(Code::ServerFailed, message)
            }
            NoResponse::NotReady => unavailable("is not ready yet", "starting"),
            NoResponse::Suspended => {
                unavailable("is suspended; its person does not see it", "suspended")
            }
            NoResponse::Closed => unavailable("was closed", "closed"),
            NoResponse::Busy => {
                let message = format!("too many requests to the app `{name}` at once");
                CallError::new(Code::Busy, message).with("retry_after_ms", 100)
            }
            NoResponse::TimedOut => {
                let message = format!("the app `{name}` did not answer in time");
                CallError::new(Code::Deadline, message)
            }
        }
    }

    /// Sets the state, unless the view is closed.
    pub(super) fn set_state(&self, now: ViewState) {
        self.state.send_if_modified(|state| {
            let other = *state != now && *state != ViewState::Closed;
            if other {
                *state = now;
            }
            other
        });
    }

    /// Closes the view: removes its tools and then notifies the host once.
    pub(super) fn end(&self) {
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
