//! A minimal actor, and ractor actors that do nothing, as baselines.

use ractor::{
    Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};

/// A task with a request channel and oneshot responses: the minimal cost of an actor.
#[derive(Debug)]
pub struct MinimalActor<I, O> {
    mailbox: mpsc::Sender<(I, oneshot::Sender<O>)>,
}

impl<I, O> Clone for MinimalActor<I, O> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
        }
    }
}

impl<I: Send + 'static, O: Send + 'static> MinimalActor<I, O> {
    /// Spawns the task. Must be called within a tokio runtime.
    pub fn start(mut handle: impl FnMut(I) -> O + Send + 'static) -> Self {
        let (mailbox, mut requests) = mpsc::channel::<(I, oneshot::Sender<O>)>(64);
        tokio::spawn(async move {
            while let Some((input, port)) = requests.recv().await {
                drop(port.send(handle(input)));
            }
        });
        Self { mailbox }
    }

    /// Sends a request; returns `None` if the task has ended.
    pub async fn call(&self, input: I) -> Option<O> {
        let (port, answer) = oneshot::channel();
        self.mailbox.send((input, port)).await.ok()?;
        answer.await.ok()
    }
}

/// A number and the port to return it to.
#[derive(Debug)]
pub struct Msg(pub u64, pub RpcReplyPort<u64>);

/// The number at which an [`EchoActor`] panics.
pub const PANIC: u64 = u64::MAX;

/// A ractor actor that returns numbers.
#[derive(Debug)]
pub struct EchoActor;

impl Actor for EchoActor {
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
        assert!(number != PANIC, "measured");
        // The caller may have ended.
        let _ = port.send(number);
        Ok(())
    }
}

/// A supervisor that does not stop when a child ends.
#[derive(Debug)]
struct Supervisor;

impl Actor for Supervisor {
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

/// Spawns [`EchoActor`]s under a supervisor.
#[derive(Debug)]
pub struct LinkedActors {
    supervisor: ActorCell,
}

impl LinkedActors {
    /// Starts the supervisor.
    ///
    /// # Errors
    /// If ractor fails to spawn the actor.
    pub async fn start() -> Result<Self, SpawnErr> {
        let (supervisor, _) = Actor::spawn(None, Supervisor, ()).await?;
        Ok(Self {
            supervisor: supervisor.get_cell(),
        })
    }

    /// Spawns an actor.
    ///
    /// # Errors
    /// If ractor fails to spawn the actor.
    pub async fn spawn(&self) -> Result<(ActorRef<Msg>, JoinHandle<()>), SpawnErr> {
        Actor::spawn_linked(None, EchoActor, (), self.supervisor.clone()).await
    }

    /// Stops `actors`, and waits until each has ended.
    ///
    /// # Errors
    /// If an actor panicked.
    pub async fn stop(actors: Vec<(ActorRef<Msg>, JoinHandle<()>)>) -> Result<(), JoinError> {
        for (actor, task) in actors {
            actor.stop(None);
            task.await?;
        }
        Ok(())
    }
}
