//! Requests of the page in, answers out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bailiwick::IntentTemplate;
use bailiwick_ui::{MCP_VIEW, PERMISSION_PROMPT, SANDBOX, SANDBOX_POLICY};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::callers::{Callers, page, script};
use super::connect::Connection;
use super::session::Session;

/// What the page's own policy cannot say, as it stands in the page.
const PAGE: &str = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'";
const MOST_BYTES: usize = 16 << 20;
/// How long a request for new entries of the log waits for one.
const POLL: Duration = Duration::from_secs(25);

/// The page, and what it asks for.
pub(crate) fn router(session: Arc<Session>, address: SocketAddr, token: &str) -> Router {
    let callers = Callers::new(address, token);
    let api = Router::new().route("/api/{what}", post(answer));
    let api = callers.trusted(api.with_state(session));
    let all = Router::new()
        .route("/", get(|| async { page(bailiwick_ui::TEST_HOST, PAGE) }))
        .route("/sandbox", get(|| async { page(SANDBOX, SANDBOX_POLICY) }))
        .route("/mcp-view.js", get(|| async { script(MCP_VIEW) }))
        .route(
            "/permission-prompt.js",
            get(|| async { script(PERMISSION_PROMPT) }),
        )
        .merge(api)
        .layer(DefaultBodyLimit::max(MOST_BYTES));
    callers.local(all)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    after: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Connect {
    revision: String,
    configuration: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    method: String,
    params: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    id: Value,
    result: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Intent {
    template: String,
    arguments: Value,
}

type Answer = Result<Value, (StatusCode, String)>;

async fn answer(
    State(session): State<Arc<Session>>,
    Path(what): Path<String>,
    body: Bytes,
) -> Response {
    let answer = match what.as_str() {
        "state" => match read::<Nothing>(&body) {
            Ok(_) => Ok(session.told().await),
            Err(refused) => Err(refused),
        },
        "connect" => connect(&session, &body).await,
        "request" => request(&session, &body).await,
        "reply" => reply(&session, &body).await,
        "intent" => intent(&body),
        "events" => events(&session, &body).await,
        "checks" => match read::<Nothing>(&body) {
            Ok(_) => Ok(json!(session.checks().await)),
            Err(refused) => Err(refused),
        },
        _ => Err((StatusCode::NOT_FOUND, "there is no such request".to_owned())),
    };
    let (status, value) = match answer {
        Ok(value) => (StatusCode::OK, value),
        Err((status, reason)) => (status, json!({"message": reason})),
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, value.to_string()).into_response()
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

fn gone(reason: &impl ToString) -> (StatusCode, String) {
    (StatusCode::BAD_GATEWAY, reason.to_string())
}

async fn connect(session: &Session, body: &[u8]) -> Answer {
    let wanted: Connect = read(body)?;
    let era = wanted.revision.parse();
    let era = era.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}")))?;
    let configuration = wanted.configuration;
    if configuration.as_ref().is_some_and(|said| !said.is_object()) {
        let reason = "`configuration` must be an object".to_owned();
        return Err((StatusCode::BAD_REQUEST, reason));
    }
    let connection = Connection { era, configuration };
    session.connect(connection).await;
    Ok(session.told().await)
}

async fn request(session: &Session, body: &[u8]) -> Answer {
    let asked: Ask = read(body)?;
    if !asked.params.is_object() {
        let reason = "`params` must be an object".to_owned();
        return Err((StatusCode::BAD_REQUEST, reason));
    }
    let server = session.server().await.map_err(|reason| gone(&reason))?;
    let response = server.client.request(&asked.method, asked.params).await;
    response.map_err(|reason| gone(&reason))
}

async fn reply(session: &Session, body: &[u8]) -> Answer {
    let reply: Reply = read(body)?;
    let server = session.server().await.map_err(|reason| gone(&reason))?;
    server.client.reply(&reply.id, &reply.result);
    Ok(json!({}))
}

fn intent(body: &[u8]) -> Answer {
    let asked: Intent = read(body)?;
    Ok(match IntentTemplate::parse(&asked.template) {
        Ok(template) => json!({"sentence": template.render(&asked.arguments)}),
        Err(error) => json!({"fault": error.to_string()}),
    })
}

async fn events(session: &Session, body: &[u8]) -> Answer {
    let asked: After = read(body)?;
    let entries = timeout(POLL, session.wire.after(asked.after)).await;
    Ok(json!(entries.unwrap_or_default()))
}
