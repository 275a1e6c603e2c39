//! A page that somebody looks at in, what it and an agent's worker have to do with each other out: the host half of MCP Apps.
//!
//! A view speaks JSON-RPC over a [`GuestLink`], whatever carries its texts to the page. What the page calls goes through
//! the worker's pipeline as a view's; what it offers is offered to the worker's agent as `app_NAME__TOOL`, and needs
//! `read:mcp:app_NAME:TOOL` if it says that it only reads, `write:` otherwise. Both end with the view, and nothing of
//! them is kept: a grant for one view is none for another, whatever their names.

mod actor;
mod asks;
mod guest;
mod host;
mod instance;
mod link;
mod lists;
mod serve;
mod spec;
mod talk;
mod tools;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ractor::Actor;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::error::CallError;
use crate::rate::RateLimiter;
use crate::upstream::{OF_APPS, ServerTool};
use crate::worker::Worker;
use actor::{Beginning, ViewActor, ViewMsg};
use guest::Told;
use instance::Instance;
use link::{Room, keep};
use talk::Talk;

pub use host::{DenyView, DisplayMode, ModelContext, ViewAnswers, ViewHost, ViewNews, ViewWish};
pub use link::{GuestEar, GuestLink};
pub use spec::{ViewLimits, ViewSpec};

/// How many random bytes stand for an app in scopes.
const MARK: usize = 8;

/// How a view fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewState {
    /// The page has not introduced itself yet.
    Starting,
    /// It may be used.
    Mounted,
    /// It is out of sight: it is asked for nothing, and answered nothing.
    Suspended,
    /// It is no more.
    Closed,
}

/// Why there is no view, or it stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The name would make those of its tools ambiguous, or too long.
    #[error("`{0}` cannot name an app; use [a-z0-9]{{1,16}}")]
    Name(String),
    /// Another view of the worker has the name.
    #[error("the worker has a view `{0}` already")]
    Taken(String),
    /// The runtime was not built with these servers, or none of them has the name.
    #[error("the runtime has no such server `{0}`")]
    Server(String),
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// The system gives no random bits.
    #[error("the system gives no random bits")]
    Random(#[source] getrandom::Error),
    /// The actor did not start.
    #[error("the view did not start")]
    Start(#[source] ractor::SpawnErr),
    /// It was pinned by its host's own word.
    #[error("the view is pinned")]
    Pinned,
}

/// One page that somebody looks at beside a worker's agent; cloning it is cheap.
///
/// It lives until it is closed, its [`GuestLink`] is dropped, or its worker ends.
#[derive(Clone)]
pub struct View {
    instance: Arc<Instance>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("name", &self.instance.name)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Shows a page beside this worker's agent: the view, and the end of it that whatever carries its messages to the
    /// page has.
    ///
    /// # Errors
    /// [`ViewError`]
    pub async fn open_view(
        &self,
        spec: ViewSpec,
        host: impl ViewHost,
    ) -> Result<(View, GuestLink), ViewError> {
        spec.check()?;
        let supervisor = self.supervisor().filter(|_| !self.status().revoked);
        let supervisor = supervisor.ok_or(ViewError::Ended)?;
        if let Some((upstreams, server)) = &spec.source
            && !(self.is_offered(upstreams.table()) && upstreams.label(server).is_some())
        {
            return Err(ViewError::Server(crate::escape(server).into()));
        }
        let mut mark = [0; MARK];
        getrandom::fill(&mut mark).map_err(ViewError::Random)?;
        let mark: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        let name: Arc<str> = format!("{OF_APPS}{}", spec.name).into();
        let label = format!("{name}~{mark}");
        if !self.apps().register(&name, &label, spec.indirect) {
            return Err(ViewError::Taken(spec.name));
        }
        let limits = spec.limits;
        let (greeting, context) = (spec.greeting(host.answers()), spec.surroundings());
        let said = instance::Said::new(spec.mode());
        let instance = Arc::new(Instance {
            label,
            name,
            worker: self.clone(),
            host: Arc::new(host),
            source: spec.source,
            modes: spec.modes,
            limits,
            wishes: RateLimiter::new(&limits.wishes),
            state: watch::Sender::new(ViewState::Starting),
            pinned: AtomicBool::new(false),
            guest: OnceLock::new(),
            actor: OnceLock::new(),
            ids: AtomicU64::new(1),
            said: said.into(),
        });
        let (out, said) = mpsc::channel(link::WAITING);
        let (ear, heard) = mpsc::channel(link::WAITING);
        let carried = out.clone();
        let beginning = Beginning {
            instance: Arc::clone(&instance),
            talk: Talk::new(limits, greeting, context),
            out,
            room: Room::of(link::TOLD, limits.message),
        };
        let started = Actor::spawn_linked(None, ViewActor, beginning, supervisor).await;
        if let Err(error) = started {
            instance.end();
            return Err(ViewError::Start(error));
        }
        tokio::spawn(keep(Arc::clone(&instance), heard, carried));
        let ear = GuestEar {
            way: ear,
            room: Room::of(link::HEARD, limits.message),
        };
        Ok((View { instance }, GuestLink { ear, said }))
    }
}

impl View {
    /// What stands before the names of its tools, and in policies: `app_NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.instance.name
    }

    /// The same in the scopes of grants, with a mark that no other view has.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.instance.label
    }

    /// What the page says that it is: a name and a version, as text of a stranger.
    #[must_use]
    pub fn app(&self) -> Option<(&str, &str)> {
        let guest = self.instance.guest.get();
        guest.map(|guest| (&*guest.name, &*guest.version))
    }

    /// How it fares.
    #[must_use]
    pub fn state(&self) -> ViewState {
        *self.instance.state.borrow()
    }

    /// Waits until it fares so; false if it was closed before.
    pub async fn reached(&self, wanted: ViewState) -> bool {
        let mut now = self.instance.state.subscribe();
        let is_end = |now: &ViewState| *now == wanted || *now == ViewState::Closed;
        let reached = now.wait_for(is_end).await;
        reached.is_ok_and(|now| *now == wanted)
    }

    /// Every tool that the page listed, those that are not offered included. They are offered as long as it lives.
    #[must_use]
    pub fn tools(&self) -> Vec<ServerTool> {
        self.instance.seen()
    }

    /// What the page wants the model to know, in place of what it wanted before.
    #[must_use]
    pub fn model_context(&self) -> Option<ModelContext> {
        self.instance.said().context.clone()
    }

    /// Tells the page what the call that it was opened for is about, as far as the model has written it.
    pub fn tool_input_partial(&self, arguments: Map<String, Value>) {
        self.tell(Told::Partial(with("arguments", arguments)));
    }

    /// Tells the page the arguments of the call that it was opened for.
    pub fn tool_input(&self, arguments: Map<String, Value>) {
        self.tell(Told::Input(with("arguments", arguments)));
    }

    /// Tells the page what that call came to, as MCP's `tools/call` answers; after its arguments, and not before.
    pub fn tool_result(&self, result: Map<String, Value>) {
        self.tell(Told::Result(result.into()));
    }

    /// Tells the page that nothing comes of that call.
    pub fn tool_cancelled(&self, reason: &str) {
        self.tell(Told::Cancelled(with("reason", reason)));
    }

    fn tell(&self, told: Told) {
        // A view that is closed has nobody to tell.
        self.instance.post(ViewMsg::Tell(told));
    }

    /// Tells the page what of its surroundings is another.
    pub fn change_context(&self, changes: Map<String, Value>) {
        // A view that is closed has nobody to tell.
        self.instance.post(ViewMsg::Context(changes));
    }

    /// Asks the page for its tools, as they stand on the wire. The agent's are [`Worker::tools`].
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_list_tools(&self) -> Result<Value, CallError> {
        let limit = self.instance.limits.call;
        let listed = self.instance.ask("tools/list", json!({}), limit).await;
        listed
            .map(Value::Object)
            .map_err(|why| self.instance.failed(why))
    }

    /// Calls a tool of the page for the person, by the name it has there; what it answers is as it stands on the wire,
    /// and a stranger's. An agent calls it by its worker, where it is judged.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_call_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, CallError> {
        let params = json!({"name": name, "arguments": arguments});
        let limit = self.instance.limits.call;
        let called = self.instance.ask("tools/call", params, limit).await;
        called
            .map(Value::Object)
            .map_err(|why| self.instance.failed(why))
    }

    /// Whether its host agreed not to suspend it.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.instance.pinned.load(Ordering::Acquire)
    }

    /// Says that the page is out of sight: calls of its tools fail with `SERVER_GONE` until [`View::resume`], and what it
    /// asks is refused. What is under way goes on.
    ///
    /// # Errors
    /// [`ViewError::Pinned`]
    pub async fn suspend(&self) -> Result<(), ViewError> {
        if self.is_pinned() {
            return Err(ViewError::Pinned);
        }
        self.set_suspended(true).await;
        Ok(())
    }

    /// Says that the page is in sight again.
    pub async fn resume(&self) {
        self.set_suspended(false).await;
    }

    async fn set_suspended(&self, suspended: bool) {
        let (done, answer) = oneshot::channel();
        if self.instance.post(ViewMsg::Suspend(suspended, done)) {
            // It may be closed meanwhile.
            let _ = answer.await;
        }
    }

    /// Lets the page put its things away for a moment, and closes it. Calls of its tools under way fail with
    /// `SERVER_GONE`; calls that it made of its server's tools go on to their end, but for those that wait for a person.
    pub async fn close(&self) {
        let id = self.instance.ids.fetch_add(1, Ordering::Relaxed);
        let (port, answer) = oneshot::channel();
        if self.instance.post(ViewMsg::Part(id, port)) {
            // Whatever it answers, it goes.
            let _ = timeout(self.instance.limits.parting, answer).await;
        }
        self.instance.post(ViewMsg::Close);
        self.reached(ViewState::Closed).await;
    }
}

fn with(key: &str, value: impl Into<Value>) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value.into())]))
}
