//! Messages in, words to a guest and answers to those who wait for it out. `handle` moves them; the talk decides.

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

/// Who waits for an answer of the guest.
pub(super) type ResponseSender = oneshot::Sender<Result<Fields, NoResponse>>;

/// What reaches a view.
pub(super) enum ViewMsg {
    /// The guest said this; who read it waits until it was looked at, and the guest with it.
    Message(String, oneshot::Sender<()>),
    /// Something is asked of the guest.
    Request(u64, &'static str, Value, ResponseSender),
    /// The guest shall put its things away.
    Teardown(u64, ResponseSender),
    /// Nobody waits for that answer any more.
    Cancel(u64),
    /// The request of the guest that has this number is answered.
    Served(u64, Result<Value, RpcError>),
    /// News of the call that the guest was opened for.
    Update(ToolUpdate),
    /// The guest's surroundings are others.
    Context(Fields),
    /// What the guest offers, or why it did not say.
    Listed(Result<ListedTools, NoResponse>),
    /// The pause between two looks at the list is over.
    PauseOver,
    /// It is out of sight, or in sight again.
    Suspend(bool, oneshot::Sender<()>),
    /// It is no more.
    Close,
}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for ViewMsg {}

/// The actor that stands for one app.
pub(super) struct ViewActor;

/// What it begins with.
pub(super) struct ActorArguments {
    pub(super) instance: Arc<Instance>,
    pub(super) protocol: ViewProtocol<ResponseSender>,
    pub(super) out: mpsc::Sender<QueuedMessage>,
    pub(super) budget: ByteBudget,
}

/// What it has at hand.
pub(super) struct ActorState {
    instance: Arc<Instance>,
    protocol: ViewProtocol<ResponseSender>,
    out: mpsc::Sender<QueuedMessage>,
    budget: ByteBudget,
    began: Instant,
    me: ActorRef<ViewMsg>,
    /// Requests of the guest under way, and whether they outlive it.
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
        // It is started once.
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
                // Whoever carries the guest's words may be gone.
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
            // Of what is still being written, the next part says all that this one does.
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
                // Of a guest that says nothing is offered what it said before.
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
                // Whoever asked may have given up.
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
                Action::Serve(number, ask) => self.serve(number, ask),
                Action::Cancel(number) => {
                    if let Some((task, _)) = self.serving.remove(&number) {
                        task.abort();
                    }
                }
                // Whoever waited may have given up.
                Action::Respond(sender, result) => drop(sender.send(result)),
                Action::Event(event) => self.instance.host.on_event(event),
                Action::Context(context) => self.instance.page_state().context = Some(context),
                Action::AppInfo(info) => {
                    // It introduces itself once.
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

    /// A guest that does not read what it is told is one that nobody can talk to: it is over.
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

    fn serve(&mut self, number: u64, ask: AppRequest) {
        let lasting = matches!(ask, AppRequest::Tool { .. });
        let instance = Arc::clone(&self.instance);
        let task = tokio::spawn(async move {
            let result = serve(&instance, ask).await;
            // Of an app that is gone nobody wants to know.
            instance.post(ViewMsg::Served(number, result));
        });
        self.serving.insert(number, (task.abort_handle(), lasting));
    }

    fn list(&self) {
        let instance = Arc::clone(&self.instance);
        tokio::spawn(async move {
            let tools = instance.listed_tools().await;
            instance.post(ViewMsg::Listed(tools));
        });
    }

    /// Answers all who wait. A call of a tool that the guest made goes on, unless it waits for people: what it began at a
    /// server is not half done because somebody looks away, and how it ended is in the audit.
    fn close(&mut self) {
        for sender in self.protocol.close() {
            // Whoever waited may have given up.
            let _ = sender.send(Err(NoResponse::Closed));
        }
        for (_, (task, lasting)) in self.serving.drain() {
            if !lasting {
                task.abort();
            }
        }
        self.instance.end();
    }
}
