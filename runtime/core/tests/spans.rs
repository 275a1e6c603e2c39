//! Tests of tracing: one span per call, and events of its questions. Alone in its process, since subscribers are cached globally.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use bailiwick::config::Namespace;
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::{
    Answer, CallError, Code, Policy, ReadTool, Reply, Runtime, Scope, Scripted, ToolSet, ToolSpec,
    Verb, WorkerSpec,
};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records the fields of all spans and events.
#[derive(Clone, Default)]
struct Seen {
    spans: Arc<Mutex<Vec<String>>>,
    events: Arc<Mutex<Vec<EventFields>>>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut spans = self.spans.lock().unwrap();
        spans.push(format!("{field}={value:?}"));
    }
}

/// The fields of an event.
#[derive(Clone, Default)]
struct EventFields(BTreeMap<&'static str, String>);

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
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

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        self.events.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A tool that needs to read a path, but does not.
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

    fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text("looked", Value::Null))
    }
}

#[tokio::test]
async fn call_span_has_worker_tool_origin_and_verdict() {
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
    assert!(worker.call("look", json!({ "path": "/r/a" })).await.is_ok());
    let denied = worker
        .call("look", json!({ "path": "/r/b" }))
        .await
        .unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let fields = seen.spans.lock().unwrap().clone();
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

impl EventFields {
    /// The name and the outcome of an event; the outcome may be empty.
    fn step(&self) -> (&str, &str) {
        let of = |key| self.0.get(key).map(String::as_str);
        let how = ["verdict", "decision", "code"].into_iter().find_map(of);
        (of("message").unwrap(), how.unwrap_or_default())
    }
}

fn steps(events: &[EventFields]) -> Vec<(&str, &str)> {
    events.iter().map(EventFields::step).collect()
}

/// The events of one call of `look`, which a person answers if `a` is looked at.
async fn traced(path: &str, answer: Answer) -> Vec<EventFields> {
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(seen.clone());
    let root = tempfile::tempdir().unwrap();
    let builder = Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().reader(Look))
        .approver(Scripted::new().rule(move |_| Some(answer.clone())));
    let (runtime, _) = builder.build().await.unwrap();
    let policy = Policy::new().ask("read:file:/r/a").allow("read:file:/r/b");
    let spec = WorkerSpec::new("main").policy(policy);
    let worker = runtime.spawn(spec).await.unwrap();
    // The end is an event, too.
    let _ = worker
        .call("look", json!({ "path": format!("/r/{path}") }))
        .await;
    let events = seen.events.lock().unwrap().clone();
    for EventFields(fields) in &events {
        assert_eq!(fields["worker"], worker.id().to_string(), "{fields:?}");
        assert_eq!(fields["agent"], "main", "{fields:?}");
        assert_eq!((&*fields["tool"], &*fields["call"]), ("look", "c0"));
        let asked = ["blocked", "shown", "answered"].contains(&&*fields["message"]);
        let question = fields.get("question").map(String::as_str);
        assert_eq!(question, asked.then_some("q1"), "{fields:?}");
    }
    events
}

#[tokio::test]
async fn approved_call_traces_question_answer_and_retry() {
    assert_eq!(
        steps(&traced("a", Answer::ONCE).await),
        [
            ("checked", "ask"),
            ("blocked", ""),
            ("shown", ""),
            ("answered", "Granted"),
            ("continued", ""),
            ("checked", "allow"),
            ("retried", ""),
            ("ended", "OK"),
        ]
    );
}

#[tokio::test]
async fn denied_call_is_traced_without_retry() {
    assert_eq!(
        steps(&traced("a", Answer::DENY).await),
        [
            ("checked", "ask"),
            ("blocked", ""),
            ("shown", ""),
            ("answered", "Denied"),
            ("ended", "PERMISSION_DENIED"),
        ]
    );
}

#[tokio::test]
async fn call_without_a_question_traces_check_and_end() {
    let allowed = traced("b", Answer::DENY).await;
    assert_eq!(steps(&allowed), [("checked", "allow"), ("ended", "OK")]);
    let denied = traced("c", Answer::ONCE).await;
    let expected = [("checked", "deny"), ("ended", "PERMISSION_DENIED")];
    assert_eq!(steps(&denied), expected);
}
