//! Calls in, one span each with who, what and the verdict out.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use bailiwick::{Code, Policy};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::{at, stage};

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

#[tokio::test]
async fn a_call_is_one_span_that_names_worker_tool_origin_and_verdict() {
    let seen = Seen::default();
    let _guard = tracing::subscriber::set_default(seen.clone());
    let stage = stage(|builder| builder).await;
    let worker = stage.worker(Policy::new().allow("read:file:/r/a")).await;
    assert!(worker.call("echo", at("a")).await.is_ok());
    assert_eq!(
        worker.call("echo", at("b")).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    let fields = seen.0.lock().unwrap().clone();
    for expected in [
        "worker=main",
        "tool=echo",
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
