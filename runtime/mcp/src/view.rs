//! Host side of MCP Apps: shows pages beside an agent's worker.
//!
//! A view exchanges JSON-RPC messages with its page over a [`ViewChannel`], independent of the transport. Calls of the
//! page go through the worker's pipeline with origin `View`. Tools of the page are offered to the worker's agent as
//! `app_NAME__TOOL`; they need `read:mcp:app_NAME:TOOL` if they are annotated as read-only, and `write:` otherwise.
//! Both end with the view: a grant for one view never applies to another, even of the same name.

mod actor;
mod app;
mod channel;
mod host;
mod instance;
mod protocol;
mod request;
mod serve;
mod spec;
mod tools;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ractor::Actor;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::rate::RateLimiter;
use crate::upstream::{APP_PREFIX, ServerTool};
use actor::{ActorState, ViewActor, ViewMsg};
use app::ToolUpdate;
use bailiwick::CallError;
use bailiwick::tool::RemoteServers as _;
use bailiwick::worker::Worker;
use channel::{ByteBudget, run_channel};
use instance::Instance;
use protocol::{TEARDOWN, ViewProtocol};

pub use channel::{ViewChannel, ViewSender};
pub use host::{
    DenyView, DisplayMode, ModelContext, ViewCapabilities, ViewEvent, ViewHost, ViewRequest,
};
pub use spec::{ViewLimits, ViewSpec};

/// The number of random bytes in the mark, the suffix that makes a view's name in scopes unique.
const MARK: usize = 8;

/// The state of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViewState {
    /// The page is not initialized yet.
    Starting,
    /// The page is ready.
    Mounted,
    /// The page is hidden: it receives no requests, and its requests are rejected.
    Suspended,
    /// The view is closed.
    Closed,
}

/// Why a view cannot be opened or suspended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The name is too long, or would make tool names ambiguous.
    #[error("`{0}` cannot name an app; use [a-z0-9]{{1,16}}")]
    Name(String),
    /// The worker has another view of that name.
    #[error("the worker already has a view `{0}`")]
    Taken(String),
    /// The runtime was not built with these servers, or the server is unknown.
    #[error("unknown server `{0}`")]
    Server(String),
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// The operating system has no random bytes.
    #[error("cannot get random bytes from the operating system")]
    Random(#[source] std::io::Error),
    /// The actor did not start.
    #[error("the view did not start")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The host pinned the view.
    #[error("the view is pinned")]
    Pinned,
}

/// A page that is shown beside a worker's agent. Clones are cheap.
///
/// A view lives until it is closed, its [`ViewChannel`] is dropped, or its worker ends.
#[derive(Clone, Debug)]
pub struct View {
    instance: Arc<Instance>,
}

impl View {
    /// Opens a view beside the agent of `worker`. Returns the view, and the channel to connect to the page.
    ///
    /// # Errors
    /// [`ViewError`]
    pub async fn open(
        worker: &Worker,
        spec: ViewSpec,
        host: impl ViewHost,
    ) -> Result<(Self, ViewChannel), ViewError> {
        spec.check()?;
        let supervisor = worker.supervisor().filter(|_| !worker.status().revoked);
        let supervisor = supervisor.ok_or(ViewError::Ended)?;
        if let Some((upstreams, server)) = &spec.source
            && !(worker.is_offered(upstreams.table()) && upstreams.label(server).is_some())
        {
            return Err(ViewError::Server(bailiwick::text::escape(server).into()));
        }
        let mut mark = [0; MARK];
        getrandom::fill(&mut mark).map_err(|error| ViewError::Random(error.into()))?;
        let mark: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        let name: Arc<str> = format!("{APP_PREFIX}{}", spec.name).into();
        let label = format!("{name}~{mark}");
        if !worker.apps().register(&name, &label, spec.indirect) {
            return Err(ViewError::Taken(spec.name));
        }
        let limits = spec.limits;
        let (initialize_result, context) = (
            spec.initialize_result(host.capabilities()),
            spec.host_context(),
        );
        let page_state = instance::PageState::new(spec.mode());
        let instance = Arc::new(Instance {
            label,
            name,
            worker: worker.clone(),
            host: Arc::new(host),
            source: spec.source,
            modes: spec.modes,
            limits,
            request_limiter: RateLimiter::new(&limits.request_rate),
            state: watch::Sender::new(ViewState::Starting),
            pinned: AtomicBool::new(false),
            app: OnceLock::new(),
            actor: OnceLock::new(),
            ids: AtomicU64::new(1),
            page_state: page_state.into(),
            tools_changed: Notify::new(),
        });
        let (out, rx) = mpsc::channel(channel::MAX_QUEUED);
        let (sender, incoming) = mpsc::channel(channel::MAX_QUEUED);
        let outgoing = out.clone();
        let protocol = ViewProtocol::new(limits, initialize_result, context);
        let state = ActorState::new(&instance, protocol, out);
        let started = Actor::spawn_linked(None, ViewActor, state, supervisor).await;
        if let Err(error) = started {
            instance.end();
            return Err(ViewError::Start(Box::new(error)));
        }
        tokio::spawn(Arc::clone(&instance).refresh_tools());
        tokio::spawn(run_channel(Arc::clone(&instance), incoming, outgoing));
        let sender = ViewSender {
            tx: sender,
            budget: ByteBudget::of(channel::INCOMING_MESSAGES, limits.message),
        };
        Ok((Self { instance }, ViewChannel { sender, rx }))
    }

    /// The prefix of its tools, and its name in policies: `app_NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.instance.name
    }

    /// The name in the scopes of grants, with a mark that is unique to this view.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.instance.label
    }

    /// The name and version that the page reports; both are untrusted.
    #[must_use]
    pub fn app(&self) -> Option<(&str, &str)> {
        let app = self.instance.app.get();
        app.map(|app| (&*app.name, &*app.version))
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> ViewState {
        *self.instance.state.borrow()
    }

    /// Waits until the view is in this state; false if it was closed before.
    pub async fn reached(&self, state: ViewState) -> bool {
        let mut now = self.instance.state.subscribe();
        let is_end = |now: &ViewState| *now == state || *now == ViewState::Closed;
        let reached = now.wait_for(is_end).await;
        reached.is_ok_and(|now| *now == state)
    }

    /// All tools that the page listed, including withheld tools. They are offered until the view is closed.
    #[must_use]
    pub fn tools(&self) -> Vec<ServerTool> {
        self.instance.tools()
    }

    /// The latest context that the page provided for the model.
    #[must_use]
    pub fn model_context(&self) -> Option<ModelContext> {
        self.instance.page_state.lock().context.clone()
    }

    /// Sends the partial arguments of the call that the page was opened for.
    pub fn tool_input_partial(&self, arguments: Map<String, Value>) {
        self.send_update(ToolUpdate::Partial(with("arguments", arguments)));
    }

    /// Sends the arguments of the call that the page was opened for.
    pub fn tool_input(&self, arguments: Map<String, Value>) {
        self.send_update(ToolUpdate::Input(with("arguments", arguments)));
    }

    /// Sends the result of that call, in the form of MCP's `tools/call`. It is sent after the arguments.
    pub fn tool_result(&self, result: Map<String, Value>) {
        self.send_update(ToolUpdate::Result(result.into()));
    }

    /// Tells the page that the call was cancelled.
    pub fn tool_cancelled(&self, reason: &str) {
        self.send_update(ToolUpdate::Cancelled(with("reason", reason)));
    }

    fn send_update(&self, update: ToolUpdate) {
        // A closed view ignores it.
        self.instance.post(ViewMsg::Update(update));
    }

    /// Sends changes of the host context to the page.
    pub fn change_context(&self, changes: Map<String, Value>) {
        // A closed view ignores it.
        self.instance.post(ViewMsg::Context(changes));
    }

    /// Requests the tools of the page, in wire form. [`Worker::tools`] lists the tools for the agent.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_list_tools(&self) -> Result<Value, CallError> {
        self.request("tools/list", json!({})).await
    }

    /// Calls a tool of the page on behalf of the person, by its name at the page. The result is in wire form and
    /// untrusted. Agents call the tool through their worker, where the call is judged.
    ///
    /// # Errors
    /// [`CallError`]
    pub async fn send_call_tool(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, CallError> {
        let params = json!({"name": name, "arguments": arguments});
        self.request("tools/call", params).await
    }

    async fn request(&self, method: &'static str, params: Value) -> Result<Value, CallError> {
        let instance = &self.instance;
        let answer = instance.request(method, params, instance.limits.call).await;
        answer
            .map(Value::Object)
            .map_err(|why| instance.call_error(why))
    }

    /// Whether the host pinned the view, so that it cannot be suspended.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.instance.pinned.load(Ordering::Acquire)
    }

    /// Suspends the view because its page is hidden: calls of its tools fail with `SERVER_GONE` until [`View::resume`],
    /// and its requests are rejected. Calls in progress continue.
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

    /// Resumes the view because its page is visible again.
    pub async fn resume(&self) {
        self.set_suspended(false).await;
    }

    async fn set_suspended(&self, suspended: bool) {
        let (done, answer) = oneshot::channel();
        if self.instance.post(ViewMsg::Suspend(suspended, done)) {
            // The view may be closed meanwhile.
            let _ = answer.await;
        }
    }

    /// Asks the page to tear down, for a limited time, and closes the view. Calls of its tools fail with `SERVER_GONE`.
    /// Calls that it made of its server's tools continue, except those that wait for a person.
    pub async fn close(&self) {
        let limit = self.instance.limits.teardown;
        // The answer of the page is ignored.
        let _ = self.instance.request(TEARDOWN, json!({}), limit).await;
        self.instance.post(ViewMsg::Close);
        self.reached(ViewState::Closed).await;
    }
}

fn with(key: &str, value: impl Into<Value>) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value.into())]))
}
