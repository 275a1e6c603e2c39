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
use super::guest::Guest;
use super::host::{DisplayMode, ModelContext, ViewHost, ViewNews};
use super::talk::Unanswered;
use super::tools::Sorted;
use super::wire::{Fault, Fields, REFUSED};
use super::{ViewLimits, ViewState, tools};
use crate::error::{CallError, Code};
use crate::rate::RateLimiter;
use crate::upstream::{Fingerprint, Offer, ServerTool, Upstreams, Weight};
use crate::worker::Worker;

/// The most parts in which a list of tools comes.
const MOST_PAGES: usize = 50;

/// How many times the tools that an app may offer it may list.
const FAR_MORE: usize = 4;

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
    pub(super) wishes: RateLimiter,
    pub(super) state: watch::Sender<ViewState>,
    pub(super) pinned: AtomicBool,
    pub(super) guest: OnceLock<Guest>,
    pub(super) actor: OnceLock<ActorRef<ViewMsg>>,
    pub(super) ids: AtomicU64,
    pub(super) said: Mutex<Said>,
}

/// What an app said last.
#[derive(Default)]
pub(super) struct Said {
    pub(super) context: Option<ModelContext>,
    pub(super) mode: DisplayMode,
    /// Every tool that it listed.
    seen: Vec<ServerTool>,
    /// The form of each that is offered.
    offered: BTreeMap<Arc<str>, Fingerprint>,
}

impl Said {
    pub(super) fn new(mode: DisplayMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }
}

/// Takes a request back whose answer nobody waits for.
struct Open<'i>(&'i Instance, Option<u64>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.1 {
            self.0.post(ViewMsg::Forget(id));
        }
    }
}

impl Instance {
    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        // Nothing that can panic runs under the lock.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a message; false if there is nobody to read it.
    pub(super) fn post(&self, msg: ViewMsg) -> bool {
        let actor = self.actor.get();
        actor.is_some_and(|actor| actor.send_message(msg).is_ok())
    }

    /// Passes on what the guest said, and waits until it was looked at; false once nobody does.
    pub(super) async fn heard(&self, text: String) -> bool {
        let (done, looked) = oneshot::channel();
        self.post(ViewMsg::Heard(text, done)) && looked.await.is_ok()
    }

    /// What the guest answers, within `limit`.
    pub(super) async fn ask(
        &self,
        method: &'static str,
        params: Value,
        limit: Duration,
    ) -> Result<Fields, Unanswered> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (port, answer) = oneshot::channel();
        let mut open = Open(self, Some(id));
        if !self.post(ViewMsg::Ask(id, method, params, port)) {
            return Err(Unanswered::Closed);
        }
        let answered = timeout(limit, answer).await;
        if answered.is_ok() {
            open.1 = None;
        }
        match answered {
            Ok(answered) => answered.unwrap_or(Err(Unanswered::Closed)),
            Err(_) => Err(Unanswered::Late),
        }
    }

    /// What the guest lists now, looked at on a thread that nobody waits for.
    pub(super) async fn listed(self: &Arc<Self>) -> Result<Sorted, Unanswered> {
        let listed = self.list().await?;
        let instance = Arc::clone(self);
        let sorted = tokio::task::spawn_blocking(move || {
            let tools: Vec<_> = listed.into_iter().filter_map(tools::read).collect();
            tools::sorted(&instance, &tools)
        });
        Ok(sorted.await.unwrap_or_default())
    }

    /// What the guest lists now as its tools, all parts of it within the limit of one call. What is far more than may be
    /// offered is no list, and not looked at.
    async fn list(&self) -> Result<Vec<Value>, Unanswered> {
        let pages = async {
            let mut found = Vec::new();
            let mut weight = Weight::up_to(self.limits.message);
            let mut params = json!({});
            for _ in 0..MOST_PAGES {
                let mut page = self.ask("tools/list", params, self.limits.call).await?;
                let Some(Value::Array(tools)) = page.remove("tools") else {
                    break;
                };
                let most = self.limits.tools.saturating_mul(FAR_MORE);
                if found.len() + tools.len() > most || !tools.iter().all(|it| weight.takes(it)) {
                    let fault = Fault::new(REFUSED, "it lists far more tools than it may have");
                    return Err(Unanswered::Fault(fault));
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
        listed.unwrap_or(Err(Unanswered::Late))
    }

    /// Offers to the agent what the guest listed.
    pub(super) fn offer(self: &Arc<Self>, listed: Sorted) {
        let Sorted { seen, offers } = listed;
        let forms = offers.iter();
        let forms = forms.map(|offer| (Arc::clone(&offer.tool), offer.form));
        self.said().offered = forms.collect();
        let entries = offers.iter().map(|offer| tools::entry(self, offer));
        self.worker
            .apps()
            .set_tools(&self.name, &self.label, entries);
        self.said().seen = seen;
        self.host.heard(ViewNews::Tools);
    }

    pub(super) fn seen(&self) -> Vec<ServerTool> {
        self.said().seen.clone()
    }

    /// Whether a tool is offered in that very form.
    pub(super) fn still_offers(&self, offer: &Offer) -> bool {
        self.said().offered.get(&offer.tool) == Some(&offer.form)
    }

    /// What it means for a caller that the guest gave no answer.
    pub(super) fn failed(&self, why: Unanswered) -> CallError {
        let name = &self.name;
        let gone = |how: &str, state: &str| {
            let error = CallError::new(Code::ServerGone, format!("the app `{name}` {how}"));
            error.with("state", state)
        };
        match why {
            Unanswered::Fault(fault) => {
                let message = format!("the app `{name}` says that it failed: {}", fault.message);
                CallError::new(Code::ServerFailed, message)
            }
            Unanswered::Early => gone("is not ready yet", "starting"),
            Unanswered::Suspended => gone("is suspended; its person does not see it", "suspended"),
            Unanswered::Closed => gone("was closed", "closed"),
            Unanswered::Busy => {
                let message = format!("too much is asked of the app `{name}` at once");
                CallError::new(Code::Busy, message).with("retry_after_ms", 100)
            }
            Unanswered::Late => {
                let message = format!("the app `{name}` did not answer in time");
                CallError::new(Code::Deadline, message)
            }
        }
    }

    /// Takes down how the app fares; once closed it stays so.
    pub(super) fn fares(&self, now: ViewState) {
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
        self.said().offered.clear();
        self.worker.apps().remove(&self.name, &self.label);
        let ended = self.state.send_if_modified(|state| {
            let open = *state != ViewState::Closed;
            *state = ViewState::Closed;
            open
        });
        if ended {
            self.host.heard(ViewNews::Closed);
        }
    }
}
