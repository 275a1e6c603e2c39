//! Runtimes and tools for benchmarks.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use bailiwick::audit::{AuditEvent, Step};
use bailiwick::config::{Config, Namespace, RootConfig};
use bailiwick::policy::Authority;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit, ToolName};
use bailiwick::{
    BuildError, CallError, Origin, Policy, ReadTool, Reply, Runtime, Scope, ToolSet, ToolSpec,
    Verb, VirtualPath, Worker, WorkerSpec,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The name of the tool that does nothing.
pub const NOOP: &str = "noop";

/// A tool that does nothing. It needs a scope, so that calls are authorized.
#[derive(Debug)]
pub struct Noop {
    output: Arc<()>,
}

impl Default for Noop {
    fn default() -> Self {
        Self {
            output: Arc::new(()),
        }
    }
}

/// No arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct NoopArgs {}

impl ReadTool for Noop {
    type Args = NoopArgs;
    type Output = ();
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(NOOP, "Nothing", "Does nothing.")
    }

    fn prepare(&self, _: NoopArgs, names: &Namespace) -> Result<Prepared<()>, CallError> {
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, names.path("/r/src/main.rs")?)],
            job: (),
        })
    }

    fn read_now(&self, (): &(), permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        Some(self.read(&(), permit))
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply {
            content: Vec::new(),
            output: self.output.clone(),
        })
    }
}

/// Builds a runtime with `root` mounted at `/r`, and the spec of a worker.
///
/// # Errors
/// [`BuildError`]
pub async fn build_runtime(root: &Path, audit: usize) -> Result<(Runtime, WorkerSpec), BuildError> {
    let tools: ToolSet = bailiwick_fs::tools().reader(Noop::default());
    let builder = Runtime::builder()
        .root("r", root)
        .tools(tools)
        .audit_capacity(audit);
    let (runtime, _) = builder.build().await?;
    Ok((runtime, WorkerSpec::new("bench").policy(policy())))
}

/// Spawns a worker and calls it, which starts its actor.
///
/// # Errors
/// If the worker cannot be started or the call fails.
pub async fn spawn_and_call(
    runtime: &Runtime,
    spec: WorkerSpec,
) -> Result<Worker, Box<dyn std::error::Error>> {
    let worker = runtime.spawn(spec).await?;
    worker.call_typed(&ToolName::new(NOOP), NoopArgs {}).await?;
    Ok(worker)
}

/// The policy of the worker.
fn policy() -> Policy {
    Policy::new()
        .allow("read:file:/r/src")
        .deny_glob("**/.env")
        .deny_glob("**/secrets/**")
}

/// The authority of that worker, and what the tool that does nothing needs.
///
/// # Errors
/// None, since both are valid.
pub fn authority_and_need() -> Result<(Authority, Scope), Box<dyn std::error::Error>> {
    let root = RootConfig::new(VirtualPath::parse("/r", None)?);
    let host = Authority::configured(&Config::new().root(root))?;
    let worker = host.narrow(&host.admit(&policy(), Origin::Host)?);
    let file = VirtualPath::parse("/r/src/main.rs", None)?;
    Ok((worker, Scope::file(Verb::Read, file)))
}

/// A single-threaded tokio runtime.
///
/// # Errors
/// If tokio cannot create the runtime.
pub fn current_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// A text of 2,000 lines, of which the one in the middle ends with `changed`.
#[must_use]
pub fn edited_text(changed: &str) -> String {
    let line = |number| match number {
        1_000 => format!("the line that changes: {changed}\n"),
        _ => format!("line {number} of a text, as long as many\n"),
    };
    (0..2_000).map(line).collect()
}

/// An event like that of a no-op call, without worker and call.
#[must_use]
pub fn audit_event() -> AuditEvent {
    let needs = [Scope::file(Verb::Read, VirtualPath::top())];
    AuditEvent {
        worker: None,
        agent: "worker".into(),
        call: None,
        tool: Some(ToolName::new(NOOP)),
        origin: Origin::Host,
        step: Step::Finished {
            code: None,
            bytes: 0,
            allowed: Some(needs.into()),
        },
    }
}

/// A tokio runtime with two threads.
///
/// # Errors
/// If tokio cannot create the runtime.
pub fn multi_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Runs `future` as a spawned task, since the root future of a runtime has a different polling cost.
///
/// # Panics
/// If the task panics.
#[expect(clippy::expect_used, reason = "benchmarks panic on failure")]
pub fn run_task<T: Send + 'static>(
    tokio: &tokio::runtime::Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    tokio
        .block_on(tokio.spawn(future))
        .expect("the task does not panic")
}
