//! Actor of a view: moves messages between the page, the host and the protocol state.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::ViewState;
use super::app::ToolUpdate;
use super::channel::{ByteBudget, OUTGOING_MESSAGES, QueuedMessage};
use super::instance::Instance;
use super::protocol::{Action, NoResponse, ViewProtocol};
use super::request::AppRequest;
use super::serve::serve;
use super::wire::{self, Fields, Id, REFUSED, RpcError};
use crate::upstream::ListedTool;

/// Receives the response of the page to a request.
pub(super) type ResponseSender = oneshot::Sender<Result<Fields, NoResponse>>;

/// A message to the actor of a view.
pub(super) enum ViewMsg {
    /// A message of the page; the sender is notified once it is handled, which limits the rate of the page.
    Message(String, oneshot::Sender<()>),
    /// A request to the page.
    Request(u64, &'static str, Value, ResponseSender),
    /// The response to this request is no longer awaited.
    Cancel(u64),
    /// The result of the page's request with this number.
    Served(u64, Result<Value, RpcError>),
    /// An update of the call that the page was opened for.
    Update(ToolUpdate),
    /// A change of the host context.
    Context(Fields),
    /// The tools of the page.
    Listed(Vec<ListedTool>),
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

pub(super) struct ActorState {
    instance: Arc<Instance>,
    protocol: ViewProtocol<ResponseSender>,
    out: mpsc::Sender<QueuedMessage>,
    budget: ByteBudget,
    /// Tasks that serve requests of the page, and whether they outlive the view.
    serving: HashMap<u64, (AbortHandle, bool)>,
    closed: bool,
}

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for ViewActor {
    type Msg = ViewMsg;
    type State = ActorState;
    type Arguments = ActorState;

    async fn pre_start(
        &self,
        me: ActorRef<ViewMsg>,
        state: ActorState,
    ) -> Result<ActorState, ActorProcessingErr> {
        // The actor is started once.
        let _ = state.instance.actor.set(me);
        Ok(state)
    }

    async fn handle(
        &self,
        me: ActorRef<ViewMsg>,
        msg: ViewMsg,
        state: &mut ActorState,
    ) -> Result<(), ActorProcessingErr> {
        let handled = if state.closed {
            None
        } else {
            state.handle(msg)
        };
        if state.closed {
            state.close();
            me.stop(None);
        } else {
            state.note_state();
        }
        if let Some(handled) = handled {
            // The receiver may be gone.
            let _ = handled.send(());
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
    pub(super) fn new(
        instance: &Arc<Instance>,
        protocol: ViewProtocol<ResponseSender>,
        out: mpsc::Sender<QueuedMessage>,
    ) -> Self {
        Self {
            instance: Arc::clone(instance),
            protocol,
            out,
            budget: ByteBudget::of(OUTGOING_MESSAGES, instance.limits.message),
            serving: HashMap::new(),
            closed: false,
        }
    }

    /// Handles a message. Returns the sender to notify once the new state is visible.
    fn handle(&mut self, msg: ViewMsg) -> Option<oneshot::Sender<()>> {
        let protocol = &mut self.protocol;
        let (actions, handled) = match msg {
            ViewMsg::Message(text, handled) => {
                self.instance.host.on_message(true, &text);
                (protocol.on_message(&text), Some(handled))
            }
            ViewMsg::Request(id, method, params, sender) => {
                (vec![protocol.request(id, method, params, sender)], None)
            }
            ViewMsg::Cancel(id) => (Vec::from_iter(protocol.cancel(id)), None),
            ViewMsg::Served(number, result) => {
                self.serving.remove(&number);
                (Vec::from_iter(protocol.served(number, result)), None)
            }
            // Partial arguments are superseded by the next part.
            ViewMsg::Update(ToolUpdate::Partial(_))
                if self.out.capacity() * 2 < self.out.max_capacity() =>
            {
                return None;
            }
            ViewMsg::Update(update) => (protocol.update(update), None),
            ViewMsg::Context(changes) => (Vec::from_iter(protocol.change_context(changes)), None),
            ViewMsg::Listed(tools) => {
                self.instance.offer(tools);
                return None;
            }
            ViewMsg::Suspend(suspended, handled) => {
                protocol.suspend(suspended);
                return Some(handled);
            }
            ViewMsg::Close => {
                self.closed = true;
                return None;
            }
        };
        self.run(actions);
        handled
    }

    fn note_state(&self) {
        let state = match (self.protocol.is_ready(), self.protocol.is_suspended()) {
            (false, _) => ViewState::Starting,
            (true, true) => ViewState::Suspended,
            (true, false) => ViewState::Mounted,
        };
        self.instance.set_state(state);
    }

    fn run(&mut self, actions: Vec<Action<ResponseSender>>) {
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
                Action::Context(context) => self.instance.page_state.lock().context = Some(context),
                Action::AppInfo(info) => {
                    // A page is initialized once.
                    let _ = self.instance.app.set(info);
                }
                Action::List => self.instance.tools_changed.notify_one(),
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
