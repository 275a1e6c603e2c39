//! A function in, the barest actor that runs it out; and the actors of ractor that do nothing.

use ractor::{
    Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A task behind a channel that answers by another: what any actor costs at least.
#[derive(Debug)]
pub struct Floor<I, O> {
    mailbox: mpsc::Sender<(I, oneshot::Sender<O>)>,
}

impl<I, O> Clone for Floor<I, O> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
        }
    }
}

impl<I: Send + 'static, O: Send + 'static> Floor<I, O> {
    /// Starts it; to be called within a tokio runtime.
    pub fn start(mut handle: impl FnMut(I) -> O + Send + 'static) -> Self {
        let (mailbox, mut mail) = mpsc::channel::<(I, oneshot::Sender<O>)>(64);
        tokio::spawn(async move {
            while let Some((input, port)) = mail.recv().await {
                drop(port.send(handle(input)));
            }
        });
        Self { mailbox }
    }

    /// Asks it; none if it is gone.
    pub async fn call(&self, input: I) -> Option<O> {
        let (port, answer) = oneshot::channel();
        self.mailbox.send((input, port)).await.ok()?;
        answer.await.ok()
    }
}

/// A number, and where it is to be sent back.
#[derive(Debug)]
pub struct Msg(pub u64, pub RpcReplyPort<u64>);

/// An actor of ractor that sends numbers back.
#[derive(Debug)]
pub struct Idle;

impl Actor for Idle {
    type Msg = Msg;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Msg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Msg>,
        Msg(number, port): Msg,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        // A caller that is gone needs no answer.
        let _ = port.send(number);
        Ok(())
    }
}

/// A supervisor that survives the end of those beneath it, which by default it would not.
#[derive(Debug)]
struct Calm;

impl Actor for Calm {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// Starts [`Idle`] actors under a supervisor.
#[derive(Debug)]
pub struct Linked {
    supervisor: ActorCell,
}

impl Linked {
    /// Starts the supervisor.
    ///
    /// # Errors
    /// ractor's.
    pub async fn start() -> Result<Self, SpawnErr> {
        let (supervisor, _) = Actor::spawn(None, Calm, ()).await?;
        Ok(Self {
            supervisor: supervisor.get_cell(),
        })
    }

    /// Starts one more.
    ///
    /// # Errors
    /// ractor's.
    pub async fn spawn(&self) -> Result<(ActorRef<Msg>, JoinHandle<()>), SpawnErr> {
        Actor::spawn_linked(None, Idle, (), self.supervisor.clone()).await
    }
}
