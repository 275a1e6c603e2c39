//! Actor of a view: moves messages between the page, the host and the protocol state.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ViewState;
use super::app::ToolUpdate;
use super::channel::{ByteBudget, QueuedMessage};
use super::instance::Instance;
use super::protocol::{Action, NoResponse, ViewProtocol};
use super::request::AppRequest;
use super::serve::serve;
use super::tools::ListedTools;
use super::wire::{self, Fields, Id, REFUSED, RpcError};

/// Receives the response of the page to a request.
pub(super) type ResponseSender = oneshot::Sender<Result<Fields, NoResponse>>;

/// A message to the actor of a view.
pub(super) enum ViewMsg {
    /// A message of the page; the sender is notified once it is handled, which limits the rate of the page.
    Message(String, oneshot::Sender<()>),
    /// A request to the page.
    Request(u64, &'static str, Value, ResponseSender),
    /// The teardown request to the page.
    Teardown(u64, ResponseSender),
    /// The response to this request is no longer awaited.
    Cancel(u64),
    /// The result of the page's request with this number.
    Served(u64, Result<Value, RpcError>),
    /// An update of the call that the page was opened for.
    Update(ToolUpdate),
    /// A change of the host context.
    Context(Fields),
    /// The tools of the page, or why they could not be listed.
    Listed(Result<ListedTools, NoResponse>),
    /// The pause between two refreshes of the tools is over.
    PauseOver,
    /// The page was hidden or is visible again.
    Suspend(bool, oneshot::Sender<()>),
    /// Closes the view.
    Close,
}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for ViewMsg {}

/// The actor of one view.
pub(super) struct ViewActor;

pub(super) struct ActorArguments {
    pub(super) instance: Arc<Instance>,
    pub(super) protocol: ViewProtocol<ResponseSender>,
    pub(super) out: mpsc::Sender<QueuedMessage>,
    pub(super) budget: ByteBudget,
}

pub(super) struct ActorState {
    instance: Arc<Instance>,
    protocol: ViewProtocol<ResponseSender>,
    out: mpsc::Sender<QueuedMessage>,
    budget: ByteBudget,
    began: Instant,
    me: ActorRef<ViewMsg>,
    /// Tasks that serve requests of the page, and whether they outlive the view.
    serving: HashMap<u64, (AbortHandle, bool)>,
    closed: bool,
}

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for ViewActor {
    type Msg = ViewMsg;
    type State = ActorState;
    type Arguments = ActorArguments;

    async fn pre_start(
        &self,
        me: ActorRef<ViewMsg>,
        beginning: ActorArguments,
    ) -> Result<ActorState, ActorProcessingErr> {
        let ActorArguments {
            instance,
            protocol,
            out,
            budget,
        } = beginning;
        // The actor is started once.
        let _ = instance.actor.set(me.clone());
        Ok(ActorState {
            instance,
            protocol,
            out,
            budget,
            began: Instant::now(),
            me,
            serving: HashMap::new(),
            closed: false,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<ViewMsg>,
        msg: ViewMsg,
        state: &mut ActorState,
    ) -> Result<(), ActorProcessingErr> {
        if !state.closed {
            state.handle(msg);
        }
        if state.closed {
            state.close();
            me.stop(None);
        } else {
            state.note_state();
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<ViewMsg>,
        state: &mut ActorState,
    ) -> Result<(), ActorProcessingErr> {
        state.close();
        Ok(())
    }
}

impl ActorState {
    fn handle(&mut self, msg: ViewMsg) {
        let protocol = &mut self.protocol;
        match msg {
            ViewMsg::Message(text, handled) => {
                self.instance.host.on_message(true, &text);
                let actions = protocol.on_message(&text, self.began.elapsed());
                self.run(actions);
                // The receiver may be gone.
                let _ = handled.send(());
            }
            ViewMsg::Request(id, method, params, sender) => {
                let action = protocol.request(id, method, params, sender);
                self.run([action]);
            }
            ViewMsg::Teardown(id, sender) => {
                let action = protocol.teardown(id, sender);
                self.run([action]);
            }
            ViewMsg::Cancel(id) => {
                let action = protocol.cancel(id);
                self.run(action);
            }
            ViewMsg::Served(number, result) => {
                self.serving.remove(&number);
                let action = protocol.served(number, result);
                self.run(action);
            }
            // Partial arguments are superseded by the next part.
            ViewMsg::Update(ToolUpdate::Partial(_))
                if self.out.capacity() * 2 < self.out.max_capacity() => {}
            ViewMsg::Update(update) => {
                let actions = protocol.update(update);
                self.run(actions);
            }
            ViewMsg::Context(changes) => {
                let action = protocol.change_context(changes);
                self.run(action);
            }
            ViewMsg::Listed(tools) => {
                let missed = matches!(tools, Err(NoResponse::Suspended));
                // If the page does not answer, its previous tools stay offered.
                if let Ok(tools) = tools {
                    self.instance.offer(tools);
                }
                let actions = protocol.listed(missed);
                self.run(actions);
            }
            ViewMsg::PauseOver => {
                let actions = protocol.pause_over();
                self.run(actions);
            }
            ViewMsg::Suspend(suspended, done) => {
                let actions = protocol.suspend(suspended);
                self.run(actions);
                self.note_state();
                // The receiver may be gone.
                let _ = done.send(());
            }
            ViewMsg::Close => self.closed = true,
        }
    }

    fn note_state(&self) {
        let state = match (self.protocol.is_ready(), self.protocol.is_suspended()) {
            (false, _) => ViewState::Starting,
            (true, true) => ViewState::Suspended,
            (true, false) => ViewState::Mounted,
        };
        self.instance.set_state(state);
    }

    fn run(&mut self, actions: impl IntoIterator<Item = Action<ResponseSender>>) {
        for action in actions {
            match action {
                Action::Send(message) => self.send(&message),
                Action::Serve(number, request) => self.serve(number, request),
                Action::Cancel(number) => {
                    if let Some((task, _)) = self.serving.remove(&number) {
                        task.abort();
                    }
                }
                // The receiver may be gone.
                Action::Respond(sender, result) => drop(sender.send(result)),
                Action::Event(event) => self.instance.host.on_event(event),
                Action::Context(context) => self.instance.page_state().context = Some(context),
                Action::AppInfo(info) => {
                    // A page is initialized once.
                    let _ = self.instance.app.set(info);
                }
                Action::List => self.list(),
                Action::Pause => {
                    self.me
                        .send_after(self.instance.limits.pause, || ViewMsg::PauseOver);
                }
            }
        }
    }

    /// Sends a message to the page. If the queue is full, the page is not reading, and the view is closed.
    fn send(&mut self, message: &Value) {
        let mut text = message.to_string();
        if text.len() > self.instance.limits.message {
            let id = message
                .get("id")
                .filter(|_| message.get("method").is_none());
            let Some(id) = id.and_then(Id::read) else {
                return;
            };
            let error = RpcError::new(REFUSED, "the answer is larger than a message may be");
            text = wire::response(&id, Err(error)).to_string();
        }
        self.instance.host.on_message(false, &text);
        let sent = self.budget.try_reserve(&text);
        let sent = sent.map(|permit| self.out.try_send((text, permit)));
        if !matches!(sent, Some(Ok(()))) {
            self.closed = true;
        }
    }

    fn serve(&mut self, number: u64, request: AppRequest) {
        let outlives_view = matches!(request, AppRequest::Tool { .. });
        let instance = Arc::clone(&self.instance);
        let task = tokio::spawn(async move {
            let result = serve(&instance, request).await;
            // A closed view ignores it.
            instance.post(ViewMsg::Served(number, result));
        });
        self.serving
            .insert(number, (task.abort_handle(), outlives_view));
    }

    fn list(&self) {
        let instance = Arc::clone(&self.instance);
        tokio::spawn(async move {
            let tools = instance.listed_tools().await;
            instance.post(ViewMsg::Listed(tools));
        });
    }

    /// Fails all pending requests. Tool calls of the page continue unless they wait for a person, because their effects
    /// have begun; the audit records their results.
    fn close(&mut self) {
        for sender in self.protocol.close() {
            // The receiver may be gone.
            let _ = sender.send(Err(NoResponse::Closed));
        }
        for (_, (task, outlives_view)) in self.serving.drain() {
            if !outlives_view {
                task.abort();
            }
        }
        self.instance.end();
    }
}
