//! The time until a worker answers again after its actor was killed, compared with a ractor actor that its supervisor
//! restarts.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::Worker;
use bailiwick::monitor::EventKind;
use bailiwick::tool::ToolName;
use bailiwick_benches::{
    Benchmark, EchoActor, Msg, NOOP, NoopArgs, Target, brief, build_runtime, multi_thread,
    run_task, spawn_and_call,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::mpsc;

/// Each actor is killed once, since a worker whose actor dies often is revoked.
const BATCH: u32 = 64;

/// Restarts a child that ends, and sends a reference to the new one.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = mpsc::UnboundedSender<ActorRef<Msg>>;
    type Arguments = Self::State;

    async fn pre_start(
        &self,
        me: ActorRef<()>,
        children: Self::State,
    ) -> Result<Self::State, ActorProcessingErr> {
        start_child(&me, &children).await?;
        Ok(children)
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<()>,
        event: SupervisionEvent,
        children: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if matches!(event, SupervisionEvent::ActorTerminated(..)) {
            start_child(&me, children).await?;
        }
        Ok(())
    }
}

async fn start_child(
    supervisor: &ActorRef<()>,
    children: &mpsc::UnboundedSender<ActorRef<Msg>>,
) -> Result<(), ActorProcessingErr> {
    let (child, _) = Actor::spawn_linked(None, EchoActor, (), supervisor.get_cell()).await?;
    Ok(children.send(child)?)
}

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 8192)).unwrap();
    let (sender, children) = mpsc::unbounded_channel();
    tokio
        .block_on(Actor::spawn(None, Supervisor, sender))
        .unwrap();
    let children = Arc::new(tokio::sync::Mutex::new(children));
    let workers = Mutex::new(Vec::new());
    let renew = || {
        let old: Vec<Worker> = std::mem::take(&mut *workers.lock().unwrap());
        let (runtime, spec) = (runtime.clone(), spec.clone());
        let new = run_task(&tokio, async move {
            for worker in old {
                worker.revoke().await;
            }
            let mut new = Vec::new();
            for _ in 0..if brief() { 1 } else { BATCH } {
                new.push(spawn_and_call(&runtime, spec.clone()).await.unwrap());
            }
            runtime.flush_audit().await.unwrap();
            new
        });
        *workers.lock().unwrap() = new;
    };
    renew();
    Benchmark::new(
        "kill an actor and call its replacement",
        Duration::from_secs(4),
    )
    .case("ractor actor", Target::None, BATCH, |n| {
        let children = Arc::clone(&children);
        run_task(&tokio, async move {
            let mut children = children.lock().await;
            let mut child = children.recv().await.unwrap();
            for number in 0..u64::from(n) {
                child.kill();
                child = children.recv().await.unwrap();
                child.call(|port| Msg(number, port), None).await.unwrap();
            }
            // Leave a new child in the channel for the next batch.
            child.kill();
        });
    })
    .case_then(
        "worker",
        Target::Times(2.0),
        BATCH,
        |n| {
            let (runtime, workers) = (runtime.clone(), workers.lock().unwrap().clone());
            run_task(&tokio, async move {
                let noop = ToolName::new(NOOP);
                let mut events = runtime.events();
                for worker in workers.iter().take(n as usize) {
                    worker.kill_actor();
                    while events.recv().await.unwrap().kind != EventKind::WorkerRestarted {}
                    worker.call_typed(&noop, NoopArgs {}).await.unwrap();
                }
            });
        },
        renew,
    )
    .run();
}
