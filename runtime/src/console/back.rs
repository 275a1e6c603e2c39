//! Requests to look back in, what the record tells and which rule it suggests out.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse as _;
use serde_json::json;

use super::faults::Fault;
use super::office::Office;
use super::record;
use super::routes::{Here, Served, answered, of_run};
use super::wire::{self, Often, Past};
use crate::permission::{GrantHolder, History, Lifetime, Suggestion};

/// A rule for what a person allowed often, if there is one that was not suggested before.
pub(super) async fn suggestions(State(office): Here, body: Bytes) -> Served {
    let often: Often = wire::read(&body)?;
    let desk = of_run(&office, &often.run)?;
    let Some(record) = desk.source.record.clone() else {
        return answered(&json!({ "suggestion": null }));
    };
    let (history, _) = past(record).await?;
    let live = desk.grants().grants().await?;
    let mut kept = desk.kept();
    let found = desk.grants().suggestions(&history).into_iter().find(|one| {
        let spared = live
            .iter()
            .any(|grant| grant.pattern.covers_pattern(&one.pattern));
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
        "run": often.run, "agent": found.agent, "pattern": found.pattern, "spares": found.spares,
        "holder": holder, "lifetime": Lifetime::Session,
    } }))
}

fn key(suggestion: &Suggestion) -> String {
    format!("{} {}", suggestion.agent, suggestion.pattern)
}

/// Reads a record where that may block.
async fn past(record: record::ConsoleRecord) -> Result<(History, record::Chain), Fault> {
    let reading = tokio::task::spawn_blocking(move || record.read());
    let read = reading
        .await
        .map_err(|_| Fault::internal("the record was not read"))?;
    read.map_err(|error| Fault::unreadable(&error))
}

/// The record that a request is about.
fn recorded(office: &Office, past: &Past) -> Result<record::ConsoleRecord, Fault> {
    let desk = match &past.source {
        Some(run) => of_run(office, run)?,
        None => {
            let mut desks = office.desks().into_iter();
            let found = desks.find(|desk| desk.source.record.is_some());
            found.ok_or_else(|| Fault::missing("NO_RECORD"))?
        }
    };
    let record = desk.source.record.clone();
    record.ok_or_else(|| Fault::missing("NO_RECORD"))
}

pub(super) async fn history(State(office): Here, body: Bytes) -> Served {
    let wanted: Past = wire::read(&body)?;
    let (history, chain) = past(recorded(&office, &wanted)?).await?;
    answered(&record::shown(&history, chain, &wanted))
}

pub(super) async fn export(State(office): Here, body: Bytes) -> Served {
    let wanted: Past = wire::read(&body)?;
    let (history, _) = past(recorded(&office, &wanted)?).await?;
    let lines = history.export(&wanted.filter());
    let lines = lines.map_err(|_| Fault::internal("an entry has no JSON"))?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"history.jsonl\"",
        ),
    ];
    Ok((headers, lines).into_response())
}
