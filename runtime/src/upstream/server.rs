//! One server as the rest of the runtime sees it, whichever connection it has: its tools, its state, its calls under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use rmcp::model::{ProgressToken, Tool};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, Semaphore, watch};

use super::classify::{Offer, Unoffered, offers};
use super::pins::{Fingerprint, Pins, Seen};
use super::requests::Hearing;
use super::spec::ServerSpec;
use super::{Bounds, ServerState, ServerTool};
use crate::call::Progress;
use crate::effect::PreviewToken;
use crate::error::{CallError, Code};

/// How many previews of one server are remembered.
const MOST_PREVIEWS: usize = 256;

/// One server; it outlives its connections.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    /// Its name in scopes.
    pub(super) label: Arc<str>,
    pub(super) bounds: Bounds,
    pub(super) hearing: Hearing,
    /// How people sign in, if they do.
    #[cfg(feature = "oauth")]
    pub(super) account: Option<Arc<super::auth::Account>>,
    /// Calls under way.
    pub(super) places: Semaphore,
    /// Who hears of progress.
    pub(super) progress: DashMap<ProgressToken, Progress>,
    /// Its list of tools may be another.
    pub(super) changed: Notify,
    /// Its connection is of no use any more.
    pub(super) broken: Notify,
    /// A person wants it tried again now.
    pub(super) retry: Notify,
    pub(super) state: watch::Sender<ServerState>,
    peer: ArcSwapOption<Peer<RoleClient>>,
    tools: Mutex<Tools>,
    previews: Mutex<VecDeque<(PreviewToken, String)>>,
}

#[derive(Debug, Default)]
struct Tools {
    pins: Pins,
    listed: Vec<Tool>,
    offers: BTreeMap<Arc<str>, Arc<Offer>>,
    seen: Vec<ServerTool>,
}

impl Server {
    pub(super) fn new(spec: ServerSpec, bounds: Bounds, hearing: Hearing) -> Self {
        let tools = Tools {
            pins: Pins::new(spec.approved.clone()),
            ..Tools::default()
        };
        Self {
            label: spec.label().into(),
            hearing,
            #[cfg(feature = "oauth")]
            account: None,
            bounds,
            places: Semaphore::new(bounds.calls),
            progress: DashMap::new(),
            changed: Notify::new(),
            broken: Notify::new(),
            retry: Notify::new(),
            state: watch::Sender::new(ServerState::Starting),
            peer: ArcSwapOption::empty(),
            tools: Mutex::new(tools),
            previews: Mutex::default(),
            spec,
        }
    }

    fn tools(&self) -> MutexGuard<'_, Tools> {
        // Nothing that can panic runs under the lock.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connected(&self, peer: Peer<RoleClient>) {
        self.peer.store(Some(Arc::new(peer)));
        #[cfg(feature = "oauth")]
        if let Some(account) = &self.account {
            account.set_live(true);
        }
        self.state.send_replace(ServerState::Ready);
    }

    pub(super) fn parted(&self, state: ServerState) {
        self.peer.store(None);
        #[cfg(feature = "oauth")]
        if let Some(account) = &self.account {
            account.set_live(false);
        }
        self.state.send_replace(state);
    }

    /// Its connection, or the answer that there is none.
    pub(super) fn peer(&self) -> Result<Arc<Peer<RoleClient>>, CallError> {
        self.peer.load_full().ok_or_else(|| self.gone())
    }

    pub(super) fn gone(&self) -> CallError {
        let name = &self.spec.name;
        let message = format!("the server `{name}` is not there; it is started again, try later");
        CallError::new(Code::ServerGone, message)
    }

    /// Takes up what the server lists now.
    pub(super) fn list(&self, listed: Vec<Tool>) {
        let mut tools = self.tools();
        tools.listed = listed;
        self.sort(&mut tools);
    }

    /// A person saw this form of a tool and approves it; false if the server lists another.
    pub(super) fn approve(&self, tool: &str, form: Fingerprint) -> bool {
        let mut tools = self.tools();
        let mut listed = tools.listed.iter();
        let listed = listed.any(|it| it.name == tool && Fingerprint::of(it) == form);
        if listed {
            tools.pins.approve(tool, form);
            self.sort(&mut tools);
        }
        listed
    }

    /// Divides what is listed into what is offered and what is withheld.
    fn sort(&self, tools: &mut Tools) {
        let Tools {
            pins,
            listed,
            offers: offered,
            seen,
        } = tools;
        offered.clear();
        seen.clear();
        for (tool, (form, offer)) in listed.iter().zip(offers(listed, &self.spec, &self.label)) {
            let pinned = |offer: Offer| match pins.see(&tool.name, form, self.bounds.pins()) {
                Seen::Approved => Ok(offer),
                Seen::Changed => Err(Unoffered::Changed),
                Seen::TooMany => Err(Unoffered::TooMany),
            };
            let offer = offer.and_then(pinned);
            seen.push(ServerTool {
                tool: tool.name.to_string(),
                description: tool.description.as_deref().unwrap_or_default().to_owned(),
                fingerprint: form,
                offered: offer
                    .as_ref()
                    .map(|offer| (offer.name.to_string(), offer.verb))
                    .map_err(|why| *why),
            });
            if let Ok(offer) = offer {
                offered.insert(Arc::clone(&offer.tool), Arc::new(offer));
            }
        }
    }

    pub(super) fn seen(&self) -> Vec<ServerTool> {
        self.tools().seen.clone()
    }

    pub(super) fn offers(&self) -> Vec<Arc<Offer>> {
        self.tools().offers.values().cloned().collect()
    }

    /// Whether a tool is offered in that very form.
    pub(super) fn still_offers(&self, offer: &Offer) -> bool {
        let tools = self.tools();
        let now = tools.offers.get(&offer.tool);
        now.is_some_and(|now| now.form == offer.form)
    }

    /// Whether one of its tools has the name of that kind of resource: a scope of the one would read as the other's.
    pub(super) fn has_tool(&self, resource: &str) -> bool {
        self.tools().listed.iter().any(|tool| tool.name == resource)
    }

    pub(super) fn remember(&self, token: PreviewToken, theirs: String) {
        let mut previews = self.previews();
        if previews.len() >= MOST_PREVIEWS {
            previews.pop_front();
        }
        previews.push_back((token, theirs));
    }

    /// What the server called the preview that `token` stands for.
    pub(super) fn preview(&self, token: PreviewToken) -> Option<String> {
        let previews = self.previews();
        let mut newest = previews.iter().rev();
        let found = newest.find(|(ours, _)| *ours == token);
        found.map(|(_, theirs)| theirs.clone())
    }

    fn previews(&self) -> MutexGuard<'_, VecDeque<(PreviewToken, String)>> {
        self.previews.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
