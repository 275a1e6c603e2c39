//! The time until a worker answers after a tool has panicked or its actor was killed, compared with a ractor actor that its
//! supervisor restarts.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "benchmarks panic on failure, and some code here panics to be measured"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::config::Namespace;
use bailiwick::monitor::EventKind;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, ToolName};
use bailiwick::{
    CallError, Code, Policy, ReadTool, Reply, Runtime, ToolSet, ToolSpec, Worker, WorkerSpec,
};
use bailiwick_benches::{
    Benchmark, EchoActor, Msg, NOOP, Noop, NoopArgs, PANIC, Target, brief, build_runtime,
    multi_thread, run_task, spawn_and_call,
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
        if matches!(
            event,
            SupervisionEvent::ActorTerminated(..) | SupervisionEvent::ActorFailed(..)
        ) {
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

/// A tool that panics.
struct Panicking {
    name: &'static str,
    /// Whether it panics in the actor of its worker, not on a thread for tools.
    in_actor: bool,
}

impl ReadTool for Panicking {
    type Args = NoopArgs;
    type Output = ();
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(self.name, "Panic", "Panics.")
    }

    fn prepare(&self, _: NoopArgs, _: &Namespace) -> Result<Prepared<()>, CallError> {
        Ok(Prepared {
            needs: Vec::new(),
            job: (),
        })
    }

    fn read_now(&self, (): &(), permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        self.in_actor.then(|| self.read(&(), permit))
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        panic!("measured")
    }
}

const IN_ACTOR: &str = "panic_in_actor";
const ON_THREAD: &str = "panic_on_thread";

/// Receives references to the children of a supervisor.
type Children = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<ActorRef<Msg>>>>;

fn start_supervisor(tokio: &tokio::runtime::Runtime) -> Children {
    let (sender, children) = mpsc::unbounded_channel();
    tokio
        .block_on(Actor::spawn(None, Supervisor, sender))
        .unwrap();
    Arc::new(tokio::sync::Mutex::new(children))
}

/// How a child ends.
#[derive(Clone, Copy)]
enum End {
    Panic,
    Kill,
}

/// Ends a child `n` times, and calls the child that its supervisor starts in its place.
async fn call_replacements(children: Children, n: u32, end: End) {
    let mut children = children.lock().await;
    let mut child = children.recv().await.unwrap();
    for number in 0..u64::from(n) {
        match end {
            End::Panic => {
                let panicked = child.call(|port| Msg(PANIC, port), None).await;
                assert!(!panicked.is_ok_and(|answer| answer.is_success()));
            }
            End::Kill => child.kill(),
        }
        child = children.recv().await.unwrap();
        child.call(|port| Msg(number, port), None).await.unwrap();
    }
    // Leave a new child in the channel for the next batch.
    child.kill();
}

fn main() {
    // Panics are measured without the time that it takes to print them.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"measured") {
            print(info);
        }
    }));
    after_panic();
    after_kill();
}

fn after_panic() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let children = start_supervisor(&tokio);
    let (runtime, worker) = tokio.block_on(async {
        let panicking = |name, in_actor| Panicking { name, in_actor };
        let tools = ToolSet::new()
            .reader(Noop::default())
            .reader(panicking(IN_ACTOR, true))
            .reader(panicking(ON_THREAD, false));
        let builder = Runtime::builder().root("r", root.path()).tools(tools);
        let (runtime, _grants) = builder.build().await.unwrap();
        let worker = WorkerSpec::new("bench").policy(Policy::new());
        let worker = spawn_and_call(&runtime, worker).await.unwrap();
        (runtime, worker)
    });
    let panic_and_call = |tool, n| {
        let worker = worker.clone();
        run_task(&tokio, async move {
            let [panicking, noop] = [tool, NOOP].map(ToolName::new);
            for _ in 0..n {
                let panicked = worker.call_typed(&panicking, NoopArgs {}).await;
                assert_eq!(panicked.unwrap_err().code(), Code::Internal);
                worker.call_typed(&noop, NoopArgs {}).await.unwrap();
            }
        });
    };
    let flush_audit = || tokio.block_on(runtime.flush_audit()).unwrap();
    Benchmark::new("call after a panic", Duration::from_secs(4))
        .case("ractor actor", Target::None, BATCH, |n| {
            run_task(
                &tokio,
                call_replacements(Arc::clone(&children), n, End::Panic),
            );
        })
        .case_then(
            "worker, the tool panics in the actor",
            Target::Times(2.0),
            BATCH,
            |n| panic_and_call(IN_ACTOR, n),
            flush_audit,
        )
        .case_then(
            "worker, the tool panics on its thread",
            Target::None,
            BATCH,
            |n| panic_and_call(ON_THREAD, n),
            flush_audit,
        )
        .run();
}

fn after_kill() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 8192)).unwrap();
    let children = start_supervisor(&tokio);
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
        run_task(
            &tokio,
            call_replacements(Arc::clone(&children), n, End::Kill),
        );
    })
    .case_then(
        "worker",
        Target::None,
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
