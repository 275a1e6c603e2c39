//! Messages in, words to a guest and answers to those who wait for it out. `handle` moves them; the talk decides.

use std::collections::HashMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ViewState;
use super::asks::Ask;
use super::guest::Told;
use super::instance::Instance;
use super::link::{Room, Waiting};
use super::serve::serve;
use super::talk::{Act, Talk, Unanswered};
use super::tools::Sorted;
use super::wire::{self, Fault, Fields, Id, REFUSED};

/// Who waits for an answer of the guest.
pub(super) type Port = oneshot::Sender<Result<Fields, Unanswered>>;

/// What reaches a view.
pub(super) enum ViewMsg {
    /// The guest said this; who read it waits until it was looked at, and the guest with it.
    Heard(String, oneshot::Sender<()>),
    /// Something is asked of the guest.
    Ask(u64, &'static str, Value, Port),
    /// The guest shall put its things away.
    Part(u64, Port),
    /// Nobody waits for that answer any more.
    Forget(u64),
    /// The request of the guest that has this number is answered.
    Served(u64, Result<Value, Fault>),
    /// News of the call that the guest was opened for.
    Tell(Told),
    /// The guest's surroundings are others.
    Context(Fields),
    /// What the guest offers, or why it did not say.
    Listed(Result<Sorted, Unanswered>),
    /// The pause between two looks at the list is over.
    Rested,
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
pub(super) struct Beginning {
    pub(super) instance: Arc<Instance>,
    pub(super) talk: Talk<Port>,
    pub(super) out: mpsc::Sender<Waiting>,
    pub(super) room: Room,
}

/// What it has at hand.
pub(super) struct Desk {
    instance: Arc<Instance>,
    talk: Talk<Port>,
    out: mpsc::Sender<Waiting>,
    room: Room,
    began: Instant,
    me: ActorRef<ViewMsg>,
    /// Requests of the guest under way, and whether they outlive it.
    serving: HashMap<u64, (AbortHandle, bool)>,
    over: bool,
}

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for ViewActor {
    type Msg = ViewMsg;
    type State = Desk;
    type Arguments = Beginning;

    async fn pre_start(
        &self,
        me: ActorRef<ViewMsg>,
        beginning: Beginning,
    ) -> Result<Desk, ActorProcessingErr> {
        let Beginning {
            instance,
            talk,
            out,
            room,
        } = beginning;
        // It is started once.
        let _ = instance.actor.set(me.clone());
        Ok(Desk {
            instance,
            talk,
            out,
            room,
            began: Instant::now(),
            me,
            serving: HashMap::new(),
            over: false,
        })
    }

    async fn handle(
        &self,
        me: ActorRef<ViewMsg>,
        msg: ViewMsg,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        if !desk.over {
            desk.take(msg);
        }
        if desk.over {
            desk.close();
            me.stop(None);
        } else {
            desk.note_state();
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<ViewMsg>,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        desk.close();
        Ok(())
    }
}

impl Desk {
    fn take(&mut self, msg: ViewMsg) {
        let talk = &mut self.talk;
        match msg {
            ViewMsg::Heard(text, looked) => {
                self.instance.host.overheard(true, &text);
                let acts = talk.hear(&text, self.began.elapsed());
                self.act(acts);
                // Whoever carries the guest's words may be gone.
                let _ = looked.send(());
            }
            ViewMsg::Ask(id, method, params, port) => {
                let act = talk.ask(id, method, params, port);
                self.act([act]);
            }
            ViewMsg::Part(id, port) => {
                let act = talk.part(id, port);
                self.act([act]);
            }
            ViewMsg::Forget(id) => {
                let act = talk.forget(id);
                self.act(act);
            }
            ViewMsg::Served(number, result) => {
                self.serving.remove(&number);
                let act = talk.served(number, result);
                self.act(act);
            }
            // Of what is still being written, the next part says all that this one does.
            ViewMsg::Tell(Told::Partial(_))
                if self.out.capacity() * 2 < self.out.max_capacity() => {}
            ViewMsg::Tell(told) => {
                let acts = talk.tell(told);
                self.act(acts);
            }
            ViewMsg::Context(changes) => {
                let act = talk.change_context(changes);
                self.act(act);
            }
            ViewMsg::Listed(tools) => {
                let missed = matches!(tools, Err(Unanswered::Suspended));
                // Of a guest that says nothing is offered what it said before.
                if let Ok(tools) = tools {
                    self.instance.offer(tools);
                }
                let acts = talk.listed(missed);
                self.act(acts);
            }
            ViewMsg::Rested => {
                let acts = talk.rested();
                self.act(acts);
            }
            ViewMsg::Suspend(suspended, done) => {
                let acts = talk.suspend(suspended);
                self.act(acts);
                self.note_state();
                // Whoever asked may have given up.
                let _ = done.send(());
            }
            ViewMsg::Close => self.over = true,
        }
    }

    fn note_state(&self) {
        let state = match (self.talk.is_ready(), self.talk.is_suspended()) {
            (false, _) => ViewState::Starting,
            (true, true) => ViewState::Suspended,
            (true, false) => ViewState::Mounted,
        };
        self.instance.fares(state);
    }

    fn act(&mut self, acts: impl IntoIterator<Item = Act<Port>>) {
        for act in acts {
            match act {
                Act::Send(message) => self.send(&message),
                Act::Serve(number, ask) => self.serve(number, ask),
                Act::Withdraw(number) => {
                    if let Some((task, _)) = self.serving.remove(&number) {
                        task.abort();
                    }
                }
                // Whoever waited may have given up.
                Act::Tell(port, result) => drop(port.send(result)),
                Act::News(news) => self.instance.host.heard(news),
                Act::Context(context) => self.instance.said().context = Some(context),
                Act::Known(guest) => {
                    // It introduces itself once.
                    let _ = self.instance.guest.set(guest);
                }
                Act::List => self.list(),
                Act::Rest => {
                    self.me
                        .send_after(self.instance.limits.pause, || ViewMsg::Rested);
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
            let fault = Fault::new(REFUSED, "the answer is larger than a message may be");
            text = wire::answer(&id, Err(fault)).to_string();
        }
        self.instance.host.overheard(false, &text);
        let sent = self.room.take(&text);
        let sent = sent.map(|room| self.out.try_send((text, room)));
        if !matches!(sent, Some(Ok(()))) {
            self.over = true;
        }
    }

    fn serve(&mut self, number: u64, ask: Ask) {
        let lasting = matches!(ask, Ask::Tool { .. });
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
            let tools = instance.listed().await;
            instance.post(ViewMsg::Listed(tools));
        });
    }

    /// Answers all who wait. A call of a tool that the guest made goes on, unless it waits for people: what it began at a
    /// server is not half done because somebody looks away, and how it ended is in the audit.
    fn close(&mut self) {
        for port in self.talk.close() {
            // Whoever waited may have given up.
            let _ = port.send(Err(Unanswered::Closed));
        }
        for (_, (task, lasting)) in self.serving.drain() {
            if !lasting {
                task.abort();
            }
        }
        self.instance.end();
    }
}
