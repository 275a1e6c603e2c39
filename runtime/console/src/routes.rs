//! HTTP routes of the console.

use crate::error::ApiError;
use crate::request::{
    AnswerRequest, AskAgainRequest, BatchAnswerRequest, GrantRequest, HolderBody, NarrowRequest,
    RemainingRequest, RevokeQuery, RevokeRequest, TemplatePreview, TemplateRequest,
};
use crate::state::{ConsoleState, SourceState};
use crate::{READ_TIMEOUT, activity, history, page, request, response};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use bailiwick::permission::{
    Answer, AuthorityError, Decision, GrantHolder, GrantsRevoked, NewGrant, Question,
    QuestionState, Template,
};
use bailiwick::scope::Coverage;
use bailiwick_http::{RequestGuard, Token, authorize, read_all};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Maximum request body, in bytes.
const MAX_BODY: usize = 256 << 10;
/// How long a long-polling request waits for a new version.
const POLL_TIMEOUT: Duration = Duration::from_secs(25);

pub(super) type ApiResult = Result<Response, ApiError>;
pub(super) type AppState = State<Arc<ConsoleState>>;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(&self).unwrap_or_else(|_| self.code.into_response());
        *response.status_mut() = self.status;
        response
    }
}

/// Builds the router: the page needs a matching `Host` header, the API also needs the secret.
pub(super) fn router(console: Arc<ConsoleState>, host_names: &[String], token: Token) -> Router {
    let page_guard = RequestGuard::same_origin(host_names, None);
    let api_guard = RequestGuard::same_origin(host_names, Some(token));
    let api = Router::new()
        .route("/api/state", get(state))
        .route("/api/events/{after}", get(events))
        .route("/api/question/{question}", get(question_state))
        .route("/api/review/{question}", get(review))
        .route("/api/arguments/{question}", get(arguments))
        .route("/api/remaining", post(remaining))
        .route("/api/answer", post(answer))
        .route("/api/answer-batch", post(answer_batch))
        .route("/api/ask-again", post(ask_again))
        .route("/api/revoke", post(revoke))
        .route("/api/revoke-where", post(revoke_where))
        .route("/api/narrow", post(narrow))
        .route("/api/grant", post(grant))
        .route("/api/template-rules", post(template_rules))
        .route("/api/grant-template", post(grant_template))
        .route("/api/suggestions", post(history::suggestions))
        .route("/api/activity", post(activity::activity))
        .route("/api/call/{call}", get(activity::call))
        .route("/api/agent/{worker}", get(activity::agent))
        .route("/api/pause", post(activity::pause))
        .route("/api/would-allow", post(activity::would_allow))
        .route("/api/stop-worker", post(activity::stop_worker))
        .route("/api/preview-undo", post(activity::preview_undo))
        .route("/api/undo", post(activity::undo))
        .route("/api/history", post(history::history))
        .route("/api/history/export", post(history::export))
        .layer(middleware::from_fn(buffer_body))
        .layer(middleware::from_fn_with_state(
            Arc::new(api_guard),
            authorize,
        ));
    let page_routes = Router::new()
        .route("/", get(page::questions))
        .route("/activity", get(page::activity))
        .route("/permissions", get(page::permissions))
        .layer(middleware::from_fn_with_state(
            Arc::new(page_guard),
            authorize,
        ));
    api.merge(page_routes)
        .layer(middleware::from_fn(page::add_security_headers))
        .with_state(console)
}

/// Reads the whole body before the handler runs.
async fn buffer_body(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        let kind = head.headers.get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/json") {
            return ApiError::media().into_response();
        }
    }
    let refusal = match tokio::time::timeout(READ_TIMEOUT, read_all(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err((status, message))) => ApiError::body(status, message),
        Err(_) => {
            let message = "the body did not come in time".to_owned();
            ApiError::body(StatusCode::REQUEST_TIMEOUT, message)
        }
    };
    // The rest of the body is unread, so the connection cannot be reused.
    ([(header::CONNECTION, "close")], refusal).into_response()
}

pub(super) fn json_response(value: &impl Serialize) -> ApiResult {
    let text = serde_json::to_vec(value).map_err(|_| ApiError::internal("no JSON"))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn source(
    console: &ConsoleState,
    run: u64,
    code: &'static str,
) -> Result<Arc<SourceState>, ApiError> {
    console.source(run).ok_or_else(|| ApiError::missing(code))
}

pub(super) fn source_of_run(
    console: &ConsoleState,
    run: &str,
) -> Result<Arc<SourceState>, ApiError> {
    let run = request::run(run).ok_or_else(|| ApiError::missing("NO_RUN"))?;
    source(console, run, "NO_RUN")
}

async fn state(State(console): AppState) -> ApiResult {
    json_response(&console.state().await)
}

/// Waits for a version other than the one the page has.
async fn events(State(console): AppState, Path(after): Path<u64>) -> ApiResult {
    let mut version = console.version();
    let newer = version.wait_for(|version| *version != after);
    tokio::select! {
        // An error means that the console was dropped.
        _ = newer => {}
        () = tokio::time::sleep(POLL_TIMEOUT) => {}
        () = console.stop.cancelled() => {}
    }
    let version = *console.version().borrow();
    json_response(&json!({ "version": version }))
}

async fn question_state(State(console): AppState, Path(question): Path<String>) -> ApiResult {
    let none = || ApiError::missing("NO_QUESTION");
    let (run, id) = request::question(&question).ok_or_else(none)?;
    // The question is of a run that has ended, so it can only have expired.
    let Some(source) = console.source(run) else {
        let expired = QuestionState::Settled(Decision::Expired);
        return json_response(&question_status(&question, expired, &[]));
    };
    let status = source.grants().question_status(id).await.ok_or_else(none)?;
    json_response(&question_status(&question, status.state, &status.granted))
}

fn question_status(question: &str, state: QuestionState, granted: &[Coverage]) -> Value {
    let status = bailiwick::permission::BlockStatus::from(state);
    let granted: Vec<String> = granted.iter().map(Coverage::sentence).collect();
    json!({ "question": question, "status": status, "granted": granted })
}

async fn review(State(console): AppState, Path(question): Path<String>) -> ApiResult {
    json_response(&response::review(
        &open_question(&console, &question).await?,
    ))
}

async fn arguments(State(console): AppState, Path(question): Path<String>) -> ApiResult {
    json_response(&response::arguments(
        &open_question(&console, &question).await?,
    ))
}

/// What remains of the call of a question without what a person has excluded so far.
async fn remaining(State(console): AppState, body: Bytes) -> ApiResult {
    let RemainingRequest { question, left_out } = request::parse(&body)?;
    let rest = open_question(&console, &question).await?.request;
    let rest = rest.without(&left_out).map_err(AuthorityError::from)?;
    json_response(&response::remaining(&rest))
}

async fn open_question(console: &ConsoleState, question: &str) -> Result<Question, ApiError> {
    let none = || ApiError::missing("NO_QUESTION");
    let (run, id) = request::question(question).ok_or_else(none)?;
    let source = source(console, run, "NO_QUESTION")?;
    source.grants().question(id).await?.ok_or_else(none)
}

async fn answer(State(console): AppState, body: Bytes) -> ApiResult {
    let results = submit_answer(&console, request::parse(&body)?, false).await;
    console.notify();
    json_response(&results?)
}

async fn answer_batch(State(console): AppState, body: Bytes) -> ApiResult {
    let BatchAnswerRequest { answers } = request::parse(&body)?;
    let mut results = Vec::new();
    for request in answers {
        let question = request.question.clone();
        results.push(match submit_answer(&console, request, true).await {
            Ok(status) => status,
            Err(fault) => {
                json!({ "question": question, "code": fault.code, "message": fault.message })
            }
        });
    }
    console.notify();
    json_response(&json!({ "answers": results }))
}

/// Submits a person's answer. With `together`, it may deny any question, and allow exactly the one call of a question that is
/// batchable. Repeating an answer returns the state of the question.
async fn submit_answer(
    console: &ConsoleState,
    request: AnswerRequest,
    together: bool,
) -> Result<Value, ApiError> {
    let AnswerRequest {
        question,
        session,
        answer,
    } = request;
    let answer = answer.into_answer()?;
    let (run, id) = request::question(&question).ok_or_else(|| ApiError::missing("NO_QUESTION"))?;
    let Some(source) = console.source(run) else {
        let expired = QuestionState::Settled(Decision::Expired);
        return Ok(question_status(&question, expired, &[]));
    };
    let open = source.grants().question(id).await?;
    let allows = matches!(answer, Answer::Allow { .. });
    if let Some(open) = open.as_ref().filter(|_| together && allows) {
        if let Some(not_batchable) = open.request.not_batchable() {
            return Err(AuthorityError::NotTogether(not_batchable).into());
        }
        if answer != Answer::ONCE {
            return Err(AuthorityError::DoesNotFit.into());
        }
    }
    let results = source
        .grants()
        .continue_with_permission(&session, &question, answer)
        .await;
    let (state, granted) = results?;
    let own = if allows {
        Decision::Granted
    } else {
        Decision::Denied
    };
    if open.is_some() && state == QuestionState::Settled(own) {
        source.stats().note_answer(id);
    }
    Ok(question_status(&question, state, &granted))
}

async fn ask_again(State(console): AppState, body: Bytes) -> ApiResult {
    let AskAgainRequest { run, refusal } = request::parse(&body)?;
    let source = source_of_run(&console, &run)?;
    if !source.grants().ask_again(refusal).await? {
        return Err(ApiError::missing("NO_REFUSAL"));
    }
    console.notify();
    json_response(&json!({}))
}

fn revoke_result(revoked: GrantsRevoked) -> Value {
    json!({ "revoked": revoked.grants, "unfinished": revoked.unfinished })
}

async fn revoke(State(console): AppState, body: Bytes) -> ApiResult {
    let RevokeRequest { grants } = request::parse(&body)?;
    let mut results = Vec::new();
    for grant in grants {
        results.push(match revoke_one(&console, &grant).await {
            Ok(GrantsRevoked { unfinished, .. }) => {
                json!({ "grant": grant, "revoked": 1, "unfinished": unfinished })
            }
            Err(fault) => json!({ "grant": grant, "code": fault.code, "message": fault.message }),
        });
    }
    console.notify();
    json_response(&json!({ "grants": results }))
}

async fn revoke_one(console: &ConsoleState, grant: &str) -> Result<GrantsRevoked, ApiError> {
    let (run, id) = request::grant(grant).ok_or_else(|| ApiError::missing("NO_GRANT"))?;
    let source = source(console, run, "NO_GRANT")?;
    Ok(source.grants().revoke(id).await?)
}

async fn revoke_where(State(console): AppState, body: Bytes) -> ApiResult {
    let filter = request::parse::<RevokeQuery>(&body)?.into_filter()?;
    let mut all = GrantsRevoked::default();
    let mut fault = None;
    for source in console.sources() {
        match source.grants().revoke_where(filter.clone()).await {
            Ok(revoked) => {
                all.grants += revoked.grants;
                all.unfinished += revoked.unfinished;
            }
            // Its grants ended with the runtime.
            Err(AuthorityError::Closed) => {}
            // The other sources are still processed.
            Err(error) => fault = Some(error),
        }
    }
    console.notify();
    match fault {
        Some(error) => Err(error.into()),
        None => json_response(&revoke_result(all)),
    }
}

async fn narrow(State(console): AppState, body: Bytes) -> ApiResult {
    let narrowed: NarrowRequest = request::parse(&body)?;
    let (run, id) = request::grant(&narrowed.grant).ok_or_else(|| ApiError::missing("NO_GRANT"))?;
    let source = source(&console, run, "NO_GRANT")?;
    let revoked = source.grants().narrow(id, narrowed.narrowing()).await?;
    console.notify();
    json_response(&revoke_result(revoked))
}

async fn grant(State(console): AppState, body: Bytes) -> ApiResult {
    let (source, new) = new_grant(&console, request::parse(&body)?).await?;
    let id = source.grants().grant(new).await?;
    console.notify();
    json_response(&json!({ "grants": [response::grant_name(source.run, id)] }))
}

/// The grant that a request describes, and its runtime.
pub(super) async fn new_grant(
    console: &ConsoleState,
    granted: GrantRequest,
) -> Result<(Arc<SourceState>, NewGrant), ApiError> {
    let source = source_of_run(console, &granted.run)?;
    let pattern = granted.coverage()?;
    let holder = holder(&source, granted.holder, granted.future_agent).await?;
    let new = NewGrant {
        pattern,
        holder,
        lifetime: granted.lifetime,
        descendants: granted.descendants,
    };
    Ok((source, new))
}

/// The holder of a new grant; an unknown agent only if `future` is set.
async fn holder(
    source: &SourceState,
    body: HolderBody,
    future: bool,
) -> Result<GrantHolder, ApiError> {
    let holder = GrantHolder::from(body);
    match &holder {
        GrantHolder::Agent(agent) if !future => {
            let known = source.grants().agents().await?;
            known
                .contains(agent)
                .then(|| holder.clone())
                .ok_or_else(|| ApiError::unknown_agent(agent))
        }
        _ => Ok(holder),
    }
}

fn template<'d>(source: &'d SourceState, name: &str) -> Result<&'d Template, ApiError> {
    let mut templates = source.config.templates.iter();
    let found = templates.find(|template| template.name() == name);
    found.ok_or_else(|| ApiError::missing("NO_TEMPLATE"))
}

async fn template_rules(State(console): AppState, body: Bytes) -> ApiResult {
    let request: TemplatePreview = request::parse(&body)?;
    let source = source_of_run(&console, &request.run)?;
    let rules = template(&source, &request.template)?.rules(&request.roots);
    let rules = rules.map_err(|error| ApiError::from(AuthorityError::from(error)))?;
    let rules = rules.into_iter().map(|pattern| {
        let covers = source.grants().covers(&pattern.clone().into());
        json!({ "pattern": pattern, "covers": covers })
    });
    json_response(&json!({ "rules": rules.collect::<Value>() }))
}

async fn grant_template(State(console): AppState, body: Bytes) -> ApiResult {
    let request: TemplateRequest = request::parse(&body)?;
    let source = source_of_run(&console, &request.run)?;
    let template = template(&source, &request.template)?;
    let holder = holder(&source, request.holder, request.future_agent).await?;
    let granted = source
        .grants()
        .apply(template, &request.roots, &holder, request.lifetime)
        .await?;
    console.notify();
    let names = granted
        .into_iter()
        .map(|id| response::grant_name(source.run, id));
    json_response(&json!({ "grants": names.collect::<Vec<_>>() }))
}
