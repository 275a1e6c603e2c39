//! HTTP handlers for the history, its export and suggested rules.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse as _;
use serde_json::json;

use crate::audit::{self, ChainStatus};
use crate::error::ApiError;
use crate::request::{self, HistoryQuery, SuggestionQuery};
use crate::routes::{ApiResult, AppState, json_response, source_of_run};
use crate::state::{ConsoleState, SourceState, lock};
use bailiwick::permission::{GrantHolder, History, Lifetime, Suggestion};

/// Suggests a rule for calls that a person allowed often, each rule at most once.
pub(super) async fn suggestions(State(console): AppState, body: Bytes) -> ApiResult {
    let query: SuggestionQuery = request::parse(&body)?;
    let source = source_of_run(&console, &query.run)?;
    let (_, worker) = request::worker(&query.worker)
        .filter(|(run, _)| *run == source.run.nonce)
        .ok_or_else(|| ApiError::missing("NO_WORKER"))?;
    if source.config.audit.is_none() {
        return json_response(&json!({ "suggestion": null }));
    }
    let grants = Arc::clone(&source.config.grants);
    let rules = with_history(&source, false, move |history, _| {
        grants.suggestions(history)
    })
    .await?;
    let live = source.grants().grants().await?;
    let mut stats = source.stats();
    let found = rules.into_iter().find(|one| {
        let is_granted = live
            .iter()
            .any(|grant| grant.pattern.includes(&one.pattern));
        one.agent == query.agent && !is_granted && !stats.suggested.contains(&key(one))
    });
    let Some(found) = found else {
        return json_response(&json!({ "suggestion": null }));
    };
    stats.note_suggestion(key(&found));
    drop(stats);
    // The suggestion always has the shortest lifetime, whatever the earlier grants had.
    let holder = GrantHolder::Session {
        session: query.session,
        worker,
    };
    json_response(&json!({ "suggestion": {
        "run": query.run, "agent": found.agent, "spares": found.spares, "covers": source.grants().covers(&found.pattern),
        "pattern": found.pattern.pattern(), "reach": found.pattern.reach(), "operations": found.pattern.operations(),
        "holder": holder, "lifetime": Lifetime::Session,
    } }))
}

fn key(suggestion: &Suggestion) -> String {
    format!("{} {}", suggestion.agent, suggestion.pattern)
}

/// Reads the rest of a source's audit log on a blocking thread and passes the history to `f`.
async fn with_history<T: Send + 'static>(
    source: &SourceState,
    restart: bool,
    f: impl FnOnce(&History, ChainStatus) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let audit = source.config.audit.clone();
    let audit = audit.ok_or_else(|| ApiError::missing("NO_RECORD"))?;
    let reader = Arc::clone(&source.reader);
    let task = tokio::task::spawn_blocking(move || {
        let mut reader = lock(&reader);
        let (history, chain) = audit.read(&mut reader, restart)?;
        Ok(f(history, chain))
    });
    let result = task
        .await
        .map_err(|_| ApiError::internal("the record was not read"))?;
    result.map_err(|error: std::io::Error| ApiError::unreadable(&error))
}

/// The source whose audit log a request selects.
fn audited_source(
    console: &ConsoleState,
    query: &HistoryQuery,
) -> Result<Arc<SourceState>, ApiError> {
    match &query.source {
        Some(run) => source_of_run(console, run),
        None => {
            let mut sources = console.sources().into_iter();
            let found = sources.find(|source| source.config.audit.is_some());
            found.ok_or_else(|| ApiError::missing("NO_RECORD"))
        }
    }
}

pub(super) async fn history(State(console): AppState, body: Bytes) -> ApiResult {
    let query: HistoryQuery = request::parse(&body)?;
    let source = audited_source(&console, &query)?;
    let anew = query.anew;
    let shown = move |history: &History, chain| audit::page(history, chain, &query);
    json_response(&with_history(&source, anew, shown).await?)
}

pub(super) async fn export(State(console): AppState, body: Bytes) -> ApiResult {
    let query: HistoryQuery = request::parse(&body)?;
    let source = audited_source(&console, &query)?;
    let lines = with_history(&source, false, move |history, _| {
        history.export(&query.filter())
    });
    let lines = lines
        .await?
        .map_err(|_| ApiError::internal("an entry has no JSON"))?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"history.jsonl\"",
        ),
    ];
    Ok((headers, lines).into_response())
}
