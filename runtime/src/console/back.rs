//! Requests to look back in, what the record tells and which rule it suggests out.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse as _;
use serde_json::json;

use super::faults::Fault;
use super::office::{Desk, Office, locked};
use super::record::{self, Chain};
use super::routes::{Here, Served, answered, of_run};
use super::wire::{self, Often, Past};
use crate::permission::{GrantHolder, History, Lifetime, Suggestion};

/// A rule for what a person allowed often, if there is one that was not suggested before.
pub(super) async fn suggestions(State(office): Here, body: Bytes) -> Served {
    let often: Often = wire::read(&body)?;
    let desk = of_run(&office, &often.run)?;
    if desk.source.record.is_none() {
        return answered(&json!({ "suggestion": null }));
    }
    let people = Arc::clone(&desk.source.grants);
    let rules = looked(&desk, false, move |history, _| people.suggestions(history)).await?;
    let live = desk.grants().grants().await?;
    let mut kept = desk.kept();
    let found = rules.into_iter().find(|one| {
        let spared = live
            .iter()
            .any(|grant| grant.pattern.includes(&one.pattern));
        one.agent == often.agent && !spared && !kept.suggested.contains(&key(one))
    });
    let Some(found) = found else {
        return answered(&json!({ "suggestion": null }));
    };
    kept.suggested.insert(key(&found));
    drop(kept);
    // However long it was allowed before: a person who is offered a rule gets the narrowest.
    let holder = GrantHolder::Session {
        session: often.session,
        worker: often.worker,
    };
    answered(&json!({ "suggestion": {
        "run": often.run, "agent": found.agent, "spares": found.spares, "covers": found.pattern.sentence(),
        "pattern": found.pattern.pattern(), "reach": found.pattern.reach(), "operations": found.pattern.operations(),
        "holder": holder, "lifetime": Lifetime::Session,
    } }))
}

fn key(suggestion: &Suggestion) -> String {
    format!("{} {}", suggestion.agent, suggestion.pattern)
}

/// Reads the record of a desk on where that may block, and looks at it.
async fn looked<T: Send + 'static>(
    desk: &Desk,
    anew: bool,
    look: impl FnOnce(&History, Chain) -> T + Send + 'static,
) -> Result<T, Fault> {
    let record = desk.source.record.clone();
    let record = record.ok_or_else(|| Fault::missing("NO_RECORD"))?;
    let reading = Arc::clone(&desk.reading);
    let looking = tokio::task::spawn_blocking(move || {
        let mut reading = locked(&reading);
        let (history, chain) = record.read(&mut reading, anew)?;
        Ok(look(history, chain))
    });
    let looked = looking
        .await
        .map_err(|_| Fault::internal("the record was not read"))?;
    looked.map_err(|error: std::io::Error| Fault::unreadable(&error))
}

/// The source whose record a request is about.
fn recorded(office: &Office, past: &Past) -> Result<Arc<Desk>, Fault> {
    match &past.source {
        Some(run) => of_run(office, run),
        None => {
            let mut desks = office.desks().into_iter();
            let found = desks.find(|desk| desk.source.record.is_some());
            found.ok_or_else(|| Fault::missing("NO_RECORD"))
        }
    }
}

pub(super) async fn history(State(office): Here, body: Bytes) -> Served {
    let wanted: Past = wire::read(&body)?;
    let desk = recorded(&office, &wanted)?;
    let anew = wanted.anew;
    let shown = move |history: &History, chain| record::shown(history, chain, &wanted);
    answered(&looked(&desk, anew, shown).await?)
}

pub(super) async fn export(State(office): Here, body: Bytes) -> Served {
    let wanted: Past = wire::read(&body)?;
    let desk = recorded(&office, &wanted)?;
    let lines = looked(&desk, false, move |history, _| {
        history.export(&wanted.filter())
    });
    let lines = lines
        .await?
        .map_err(|_| Fault::internal("an entry has no JSON"))?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"history.jsonl\"",
        ),
    ];
    Ok((headers, lines).into_response())
}
