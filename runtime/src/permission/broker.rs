//! Requests of workers and the word of people in, rulings out: the actor that owns every question and grant.

use std::sync::Arc;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr};

use super::desk::{Answered, AskPort, BrokerConfig, Desk};
use super::grants::{Claimant, GrantView, Redeemed};
use super::{Answer, Approver, AuthorityError, NewGrant, Question, Request};
use crate::audit::Audit;
use crate::capability::Gate;
use crate::error::{CallError, Code};
use crate::id::{GrantId, QuestionId, WorkerId};
use crate::scope::Scope;

/// What the broker is told and asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// A call wants to use grants.
    Redeem(Claimant, Arc<[Scope]>, RpcReplyPort<Option<Redeemed>>),
    /// A call needs a person's word.
    Ask(Box<Request>, Claimant, AskPort),
    /// A person answers.
    Answer(QuestionId, Answer, RpcReplyPort<Result<(), AuthorityError>>),
    /// The approver answers.
    Decided(QuestionId, Answer),
    /// A person wants to see what is open.
    Questions(RpcReplyPort<Vec<Question>>),
    /// A person wants to see what is granted.
    Grants(RpcReplyPort<Vec<GrantView>>),
    /// A person grants.
    Grant(NewGrant, RpcReplyPort<Result<GrantId, AuthorityError>>),
    /// A person takes a grant back.
    Revoke(GrantId, RpcReplyPort<Option<Arc<Gate>>>),
    /// A worker is no more.
    ForgetWorker(WorkerId, RpcReplyPort<Vec<Arc<Gate>>>),
    /// A session is over.
    EndSession(Box<str>, RpcReplyPort<Vec<Arc<Gate>>>),
    /// A person hears a worker again.
    Unblock(WorkerId, RpcReplyPort<()>),
    /// Time has gone by.
    Tick,
}

struct BrokerActor;

/// What the actor starts from.
struct Start {
    config: BrokerConfig,
    audit: Audit,
    approver: Arc<dyn Approver>,
}

impl Actor for BrokerActor {
    type Msg = Message;
    type State = Desk;
    type Arguments = Start;

    async fn pre_start(
        &self,
        me: ActorRef<Message>,
        start: Start,
    ) -> Result<Desk, ActorProcessingErr> {
        me.send_interval(start.config.tick, || Message::Tick);
        let approver = start.approver;
        let show = Box::new(move |question| {
            tokio::spawn(decide(Arc::clone(&approver), question, me.clone())).abort_handle()
        });
        Ok(Desk::new(&start.config, start.audit, show))
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        desk: &mut Desk,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Redeem(claimant, needs, port) => tell(port, desk.redeem(&claimant, &needs)),
            Message::Ask(request, claimant, port) => desk.ask(*request, claimant, port),
            Message::Answer(id, answer, port) => tell(port, desk.answer(id, answer)),
            Message::Decided(id, answer) => desk.decide(id, answer),
            Message::Questions(port) => tell(port, desk.questions()),
            Message::Grants(port) => tell(port, desk.grants()),
            Message::Grant(new, port) => tell(port, desk.grant(new)),
            Message::Revoke(id, port) => tell(port, desk.revoke(id)),
            Message::ForgetWorker(worker, port) => tell(port, desk.forget_worker(worker)),
            Message::EndSession(session, port) => tell(port, desk.end_session(&session)),
            Message::Unblock(worker, port) => tell(port, desk.unblock(worker)),
            Message::Tick => desk.tick(),
        }
        Ok(())
    }
}

fn tell<T: Send + 'static>(port: RpcReplyPort<T>, reply: T) {
    // Whoever asked may have gone meanwhile.
    let _ = port.send(reply);
}

/// Lets the approver decide; if it panics, that is a no.
async fn decide(approver: Arc<dyn Approver>, question: Question, broker: ActorRef<Message>) {
    let mut reply = Reply {
        broker,
        id: question.id,
        answer: Answer::Deny {
            note: Some("nobody could be asked".to_owned()),
        },
    };
    reply.answer = approver.decide(&question).await;
}

/// Tells the broker the answer when dropped, also while a panic unwinds.
struct Reply {
    broker: ActorRef<Message>,
    id: QuestionId,
    answer: Answer,
}

impl Drop for Reply {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::DENY);
        // A broker that is gone has told everyone who waited.
        let _ = self.broker.cast(Message::Decided(self.id, answer));
    }
}

/// The way to the broker; clones share it. Once the broker is gone, every call returns an error at once.
#[derive(Clone, Debug)]
pub(crate) struct Broker(ActorRef<Message>);

impl Broker {
    /// Starts the broker.
    pub(crate) async fn start(
        config: BrokerConfig,
        audit: Audit,
        approver: Arc<dyn Approver>,
    ) -> Result<Self, SpawnErr> {
        let start = Start {
            config,
            audit,
            approver,
        };
        let (actor, _) = Actor::spawn(None, BrokerActor, start).await?;
        Ok(Self(actor))
    }

    /// Spends one use of each grant needed, if live grants cover all `needs`.
    pub(crate) async fn redeem(
        &self,
        claimant: Claimant,
        needs: Arc<[Scope]>,
    ) -> Result<Option<Redeemed>, CallError> {
        self.call(|port| Message::Redeem(claimant, needs, port))
            .await
            .ok_or_else(closed)
    }

    /// Asks a person and waits for the ruling. Dropping the future withdraws the question.
    pub(crate) async fn ask(
        &self,
        request: Request,
        claimant: Claimant,
    ) -> Result<Answered, CallError> {
        self.call(|port| Message::Ask(Box::new(request), claimant, port))
            .await
            .ok_or_else(closed)?
    }

    pub(crate) async fn answer(
        &self,
        id: QuestionId,
        answer: Answer,
    ) -> Result<(), AuthorityError> {
        self.call(|port| Message::Answer(id, answer, port))
            .await
            .ok_or(AuthorityError::Closed)?
    }

    pub(crate) async fn open_questions(&self) -> Vec<Question> {
        self.call(Message::Questions).await.unwrap_or_default()
    }

    pub(crate) async fn grants(&self) -> Vec<GrantView> {
        self.call(Message::Grants).await.unwrap_or_default()
    }

    pub(crate) async fn grant(&self, new: NewGrant) -> Result<GrantId, AuthorityError> {
        self.call(|port| Message::Grant(new, port))
            .await
            .ok_or(AuthorityError::Closed)?
    }

    /// Takes a grant back and returns once no effect that used it is under way.
    pub(crate) async fn revoke_grant(&self, id: GrantId) -> Result<(), AuthorityError> {
        let gate = self
            .call(|port| Message::Revoke(id, port))
            .await
            .ok_or(AuthorityError::Closed)?
            .ok_or(AuthorityError::NoGrant)?;
        gate.idle().await;
        Ok(())
    }

    /// Cancels a worker's questions and ends its grants; returns once no effect that used them is under way.
    pub(crate) async fn forget_worker(&self, worker: WorkerId) {
        let gates = self.call(|port| Message::ForgetWorker(worker, port)).await;
        idle(gates).await;
    }

    pub(crate) async fn end_session(&self, session: &str) {
        let gates = self
            .call(|port| Message::EndSession(session.into(), port))
            .await;
        idle(gates).await;
    }

    pub(crate) async fn unblock(&self, worker: WorkerId) {
        self.call(|port| Message::Unblock(worker, port)).await;
    }

    /// Ends the broker; everyone who waits gets an error.
    pub(crate) fn stop(&self) {
        self.0.stop(None);
    }

    async fn call<T: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<T>) -> Message,
    ) -> Option<T> {
        match self.0.call(message, None).await {
            Ok(CallResult::Success(reply)) => Some(reply),
            Ok(CallResult::SenderError | CallResult::Timeout) | Err(_) => None,
        }
    }
}

async fn idle(gates: Option<Vec<Arc<Gate>>>) {
    for gate in gates.into_iter().flatten() {
        gate.idle().await;
    }
}

fn closed() -> CallError {
    CallError::new(Code::Cancelled, "the runtime is shut down")
}
