//! Requests of the page in, a person's word passed on and what came of it out.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};

use super::faults::Fault;
use super::office::{Desk, Office};
use super::wire::{
    self, Applied, AskedAgain, Given, Looked, Narrowed, Revoked, Said, SaidOfEach, Swept,
};
use super::{READING, back, page, show};
use crate::gateway::{Callers, Connection, Token, body};
use crate::permission::{
    Answer, AuthorityError, Decision, GrantsRevoked, NewGrant, Question, QuestionState, Template,
    not_batchable,
};
use crate::scope::Coverage;

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 256 << 10;
/// How long a page waits for something new before it asks again.
const WAITING: Duration = Duration::from_secs(25);

pub(super) type Served = Result<Response, Fault>;
pub(super) type Here = State<Arc<Office>>;

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = answered(&self).unwrap_or_else(|_| self.code.into_response());
        *response.status_mut() = self.status;
        response
    }
}

/// The page for whoever calls this console by its own name, and everything else for whoever knows its secret, too.
pub(super) fn router(office: Arc<Office>, hosts: &[String], token: Token) -> Router {
    let strangers = Callers {
        origins: hosts.iter().map(|host| format!("http://{host}")).collect(),
        hosts: hosts.to_vec(),
        token: None,
    };
    let people = Callers {
        token: Some(token),
        ..strangers.clone()
    };
    let api = Router::new()
        .route("/api/state", get(state))
        .route("/api/events/{after}", get(events))
        .route("/api/question/{question}", get(standing))
        .route("/api/review/{question}", get(review))
        .route("/api/arguments/{question}", get(arguments))
        .route("/api/answer", post(answer))
        .route("/api/answer-batch", post(answer_batch))
        .route("/api/ask-again", post(ask_again))
        .route("/api/revoke", post(revoke))
        .route("/api/revoke-where", post(revoke_where))
        .route("/api/narrow", post(narrow))
        .route("/api/grant", post(grant))
        .route("/api/template-rules", post(template_rules))
        .route("/api/grant-template", post(grant_template))
        .route("/api/suggestions", post(back::suggestions))
        .route("/api/history", post(back::history))
        .route("/api/history/export", post(back::export))
        .layer(middleware::from_fn(read))
        .layer(middleware::from_fn_with_state(Arc::new(people), heard));
    let shown = Router::new()
        .route("/", get(page::page))
        .route("/permission-prompt.js", get(page::prompt))
        .layer(middleware::from_fn_with_state(Arc::new(strangers), heard));
    api.merge(shown)
        .layer(middleware::from_fn(page::guarded))
        .with_state(office)
}

/// Lets a request through if its sender may speak; nothing else of it is looked at before.
async fn heard(State(callers): State<Arc<Callers>>, request: Request, next: Next) -> Response {
    match callers.check(request.uri(), request.headers()) {
        Ok(()) => {
            // Whoever has loaded the page is known only by what it asks for with the secret.
            if callers.token.is_some() {
                Connection::authorise(&request);
            }
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Hands a request on with its whole body.
async fn read(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        let kind = head.headers.get(header::CONTENT_TYPE);
        if kind.is_none_or(|kind| kind != "application/json") {
            return Fault::media().into_response();
        }
    }
    let refusal = match tokio::time::timeout(READING, body::whole(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err((status, message))) => Fault::body(status, message),
        Err(_) => {
            let message = "the body did not come in time".to_owned();
            Fault::body(StatusCode::REQUEST_TIMEOUT, message)
        }
    };
    // The rest of the body is not read, so nothing else can follow on this connection.
    ([(header::CONNECTION, "close")], refusal).into_response()
}

pub(super) fn answered(value: &impl Serialize) -> Served {
    let text = serde_json::to_vec(value).map_err(|_| Fault::internal("no JSON"))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

fn desk(office: &Office, run: u64, code: &'static str) -> Result<Arc<Desk>, Fault> {
    office.desk(run).ok_or_else(|| Fault::missing(code))
}

pub(super) fn of_run(office: &Office, run: &str) -> Result<Arc<Desk>, Fault> {
    let run = wire::run(run).ok_or_else(|| Fault::missing("NO_RUN"))?;
    desk(office, run, "NO_RUN")
}

async fn state(State(office): Here) -> Served {
    answered(&office.state().await)
}

/// Waits for something newer than what the page has seen.
async fn events(State(office): Here, Path(after): Path<u64>) -> Served {
    let mut version = office.version();
    let newer = version.wait_for(|version| *version != after);
    tokio::select! {
        // A console that is gone tells nobody.
        _ = newer => {}
        () = tokio::time::sleep(WAITING) => {}
        () = office.stop.cancelled() => {}
    }
    let version = *office.version().borrow();
    answered(&json!({ "version": version }))
}

async fn standing(State(office): Here, Path(question): Path<String>) -> Served {
    let none = || Fault::missing("NO_QUESTION");
    let (run, id) = wire::question(&question).ok_or_else(none)?;
    // The host of another run cannot say more than that its questions are over.
    let Some(desk) = office.desk(run) else {
        let expired = QuestionState::Settled(Decision::Expired);
        return answered(&stands(&question, expired, &[]));
    };
    let standing = desk
        .grants()
        .broker()
        .question_status(id)
        .await
        .ok_or_else(none)?;
    answered(&stands(&question, standing.state, &standing.granted))
}

fn stands(question: &str, state: QuestionState, granted: &[Coverage]) -> Value {
    let status = crate::permission::BlockStatus::from(state);
    let granted: Vec<String> = granted.iter().map(Coverage::sentence).collect();
    json!({ "question": question, "status": status, "granted": granted })
}

async fn review(State(office): Here, Path(question): Path<String>) -> Served {
    answered(&show::review(&open_question(&office, &question).await?))
}

async fn arguments(State(office): Here, Path(question): Path<String>) -> Served {
    answered(&show::arguments(&open_question(&office, &question).await?))
}

async fn open_question(office: &Office, question: &str) -> Result<Question, Fault> {
    let none = || Fault::missing("NO_QUESTION");
    let (run, id) = wire::question(question).ok_or_else(none)?;
    let desk = desk(office, run, "NO_QUESTION")?;
    desk.grants().question(id).await?.ok_or_else(none)
}

async fn answer(State(office): Here, body: Bytes) -> Served {
    let told = say(&office, wire::read(&body)?, false).await;
    office.renewed();
    answered(&told?)
}

async fn answer_batch(State(office): Here, body: Bytes) -> Served {
    let SaidOfEach { answers } = wire::read(&body)?;
    let mut told = Vec::new();
    for said in answers {
        let question = said.question.clone();
        told.push(match say(&office, said, true).await {
            Ok(stands) => stands,
            Err(fault) => {
                json!({ "question": question, "code": fault.code, "message": fault.message })
            }
        });
    }
    office.renewed();
    answered(&json!({ "answers": told }))
}

/// Passes a person's word on; of what is answered together, only on what can stand in a batch. Said again, it says how
/// the question stands.
async fn say(office: &Office, said: Said, together: bool) -> Result<Value, Fault> {
    let Said {
        question,
        session,
        answer,
    } = said;
    let answer = answer.meant()?;
    let (run, id) = wire::question(&question).ok_or_else(|| Fault::missing("NO_QUESTION"))?;
    let Some(desk) = office.desk(run) else {
        let expired = QuestionState::Settled(Decision::Expired);
        return Ok(stands(&question, expired, &[]));
    };
    let open = desk.grants().question(id).await?;
    let not_batchable = open.as_ref().and_then(|open| not_batchable(&open.request));
    if let Some(not_batchable) = not_batchable.filter(|_| together) {
        return Err(AuthorityError::NotTogether(not_batchable).into());
    }
    let allows = matches!(answer, Answer::Allow { .. });
    let told = desk
        .grants()
        .continue_with_permission(&session, &question, answer)
        .await;
    let (state, granted) = told?;
    let own = if allows {
        Decision::Granted
    } else {
        Decision::Denied
    };
    if open.is_some() && state == QuestionState::Settled(own) {
        desk.kept().count(&session, allows);
    }
    Ok(stands(&question, state, &granted))
}

async fn ask_again(State(office): Here, body: Bytes) -> Served {
    let AskedAgain { run, refusal } = wire::read(&body)?;
    let desk = of_run(&office, &run)?;
    if !desk.grants().ask_again(refusal).await? {
        return Err(Fault::missing("NO_REFUSAL"));
    }
    office.renewed();
    answered(&json!({}))
}

fn came_to(revoked: GrantsRevoked) -> Value {
    json!({ "revoked": revoked.grants, "unfinished": revoked.unfinished })
}

async fn revoke(State(office): Here, body: Bytes) -> Served {
    let Revoked { grants } = wire::read(&body)?;
    let mut told = Vec::new();
    for grant in grants {
        told.push(match revoke_one(&office, &grant).await {
            Ok(GrantsRevoked { unfinished, .. }) => {
                json!({ "grant": grant, "revoked": 1, "unfinished": unfinished })
            }
            Err(fault) => json!({ "grant": grant, "code": fault.code, "message": fault.message }),
        });
    }
    office.renewed();
    answered(&json!({ "grants": told }))
}

async fn revoke_one(office: &Office, grant: &str) -> Result<GrantsRevoked, Fault> {
    let (run, id) = wire::grant(grant).ok_or_else(|| Fault::missing("NO_GRANT"))?;
    let desk = desk(office, run, "NO_GRANT")?;
    Ok(desk.grants().revoke(id).await?)
}

async fn revoke_where(State(office): Here, body: Bytes) -> Served {
    let filter = wire::read::<Swept>(&body)?.meant()?;
    let mut all = GrantsRevoked::default();
    let mut fault = None;
    for desk in office.desks() {
        match desk.grants().revoke_where(filter.clone()).await {
            Ok(revoked) => {
                all.grants += revoked.grants;
                all.unfinished += revoked.unfinished;
            }
            // Its grants are gone with it.
            Err(AuthorityError::Closed) => {}
            // The others are taken back all the same.
            Err(error) => fault = Some(error),
        }
    }
    office.renewed();
    match fault {
        Some(error) => Err(error.into()),
        None => answered(&came_to(all)),
    }
}

async fn narrow(State(office): Here, body: Bytes) -> Served {
    let narrowed: Narrowed = wire::read(&body)?;
    let (run, id) = wire::grant(&narrowed.grant).ok_or_else(|| Fault::missing("NO_GRANT"))?;
    let desk = desk(&office, run, "NO_GRANT")?;
    let came = desk.grants().narrow(id, narrowed.change()).await?;
    office.renewed();
    answered(&came_to(came))
}

async fn grant(State(office): Here, body: Bytes) -> Served {
    let given: Given = wire::read(&body)?;
    let desk = of_run(&office, &given.run)?;
    let new = NewGrant {
        pattern: given.covered()?,
        holder: given.holder.into(),
        lifetime: given.lifetime,
        descendants: given.descendants,
    };
    let id = desk.grants().grant(new).await?;
    office.renewed();
    answered(&json!({ "grants": [show::grant_name(desk.run, id)] }))
}

fn template<'d>(desk: &'d Desk, name: &str) -> Result<&'d Template, Fault> {
    let mut templates = desk.source.templates.iter();
    let found = templates.find(|template| template.name() == name);
    found.ok_or_else(|| Fault::missing("NO_TEMPLATE"))
}

async fn template_rules(State(office): Here, body: Bytes) -> Served {
    let looked: Looked = wire::read(&body)?;
    let desk = of_run(&office, &looked.run)?;
    let rules = template(&desk, &looked.template)?.rules(&looked.roots);
    let rules = rules.map_err(|error| Fault::from(AuthorityError::from(error)))?;
    answered(&json!({ "rules": rules }))
}

async fn grant_template(State(office): Here, body: Bytes) -> Served {
    let applied: Applied = wire::read(&body)?;
    let desk = of_run(&office, &applied.run)?;
    let template = template(&desk, &applied.template)?;
    let holder = applied.holder.into();
    let given = desk
        .grants()
        .apply(template, &applied.roots, &holder, applied.lifetime)
        .await?;
    office.renewed();
    let names = given.into_iter().map(|id| show::grant_name(desk.run, id));
    answered(&json!({ "grants": names.collect::<Vec<_>>() }))
}
