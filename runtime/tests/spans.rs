//! Calls in, one span each with who, what and the verdict out. Alone in its process: tracing remembers for all of it
//! who listens.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use bailiwick::{
    CallError, Code, Halt, Namespace, Policy, Prepared, ReadPermit, ReadTool, Reply, Runtime,
    Scope, ToolSet, ToolSpec, Verb, WorkerSpec,
};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the fields of every span called `call`.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl Subscriber for Seen {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bailiwick")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A tool that needs to read a path, and does not.
struct Look;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Target {
    path: String,
}

impl ReadTool for Look {
    type Args = Target;
    type Output = Value;
    type Job = ();

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("look", "Look", "Looks.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<()>, CallError> {
        let needs = vec![Scope::file(Verb::Read, names.path(&args.path)?)];
        Ok(Prepared { needs, job: () })
    }

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Halt> {
        Ok(Reply::text("looked", Value::Null))
    }
}

#[tokio::test]
async fn a_call_is_one_span_that_names_worker_tool_origin_and_verdict() {
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(seen.clone());
    let root = tempfile::tempdir().unwrap();
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(Look));
    let (runtime, _) = builder.build().await.unwrap();
    let policy = Policy::new().allow("read:file:/r/a");
    let worker = runtime
        .spawn(WorkerSpec::new("main").policy(policy))
        .await
        .unwrap();
    assert!(worker.call("look", json!({ "path": "a" })).await.is_ok());
    let denied = worker
        .call("look", json!({ "path": "b" }))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let fields = seen.0.lock().unwrap().clone();
    for expected in [
        "worker=main",
        "tool=look",
        "origin=Model",
        "verdict=\"allow\"",
        "verdict=\"deny\"",
    ] {
        assert!(
            fields.iter().any(|field| field == expected),
            "{expected} is not in {fields:?}"
        );
    }
}
