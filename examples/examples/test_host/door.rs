//! Requests of the page in, answers out; whoever else asks is turned away before anything is looked at.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bailiwick::IntentTemplate;
use bailiwick_ui::{MCP_VIEW, PERMISSION_PROMPT, SANDBOX, SANDBOX_POLICY};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::connect::Connection;
use super::session::Session;

/// What the page's own policy cannot say, as it stands in the page.
const PAGE: &str = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'";
const MOST_BYTES: usize = 16 << 20;
/// How long a request for new entries of the log waits for one.
const POLL: Duration = Duration::from_secs(25);

/// Who may ask.
struct Callers {
    hosts: [String; 2],
    bearer: String,
}

/// The page, and what it asks for.
pub(crate) fn router(session: Arc<Session>, address: SocketAddr, token: &str) -> Router {
    let port = address.port();
    let callers = Arc::new(Callers {
        hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
        bearer: format!("Bearer {token}"),
    });
    let api = Router::new()
        .route("/api/{what}", post(answer))
        .layer(from_fn_with_state(Arc::clone(&callers), bearer))
        .with_state(session);
    Router::new()
        .route("/", get(|| async { page(bailiwick_ui::TEST_HOST, PAGE) }))
        .route("/sandbox", get(|| async { page(SANDBOX, SANDBOX_POLICY) }))
        .route("/mcp-view.js", get(|| async { script(MCP_VIEW) }))
        .route(
            "/permission-prompt.js",
            get(|| async { script(PERMISSION_PROMPT) }),
        )
        .merge(api)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(from_fn_with_state(callers, known))
}

fn page(text: &'static str, policy: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, text).into_response()
}

fn script(text: &'static str) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, text).into_response()
}

fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

/// Turns away who calls this host by a name of others, or comes from a page of others.
async fn known(State(callers): State<Arc<Callers>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let host = single(headers, &header::HOST);
    let own = |name: &[u8]| callers.hosts.iter().any(|host| host.as_bytes() == name);
    let mut answer = if !host.is_some_and(own) {
        (StatusCode::FORBIDDEN, "this Host is not served").into_response()
    } else if headers.contains_key(header::ORIGIN)
        && !single(headers, &header::ORIGIN)
            .and_then(|origin| origin.strip_prefix(b"http://"))
            .is_some_and(own)
    {
        (StatusCode::FORBIDDEN, "this Origin is not served").into_response()
    } else {
        next.run(request).await
    };
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Turns away who does not know the token.
async fn bearer(State(callers): State<Arc<Callers>>, request: Request, next: Next) -> Response {
    let given = single(request.headers(), &header::AUTHORIZATION).unwrap_or_default();
    let wanted = callers.bearer.as_bytes();
    let differ = given
        .iter()
        .zip(wanted)
        .fold(0, |all, (a, b)| all | (a ^ b));
    if given.len() != wanted.len() || differ != 0 {
        let reason = "the token of this page is required";
        return (StatusCode::UNAUTHORIZED, reason).into_response();
    }
    next.run(request).await
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
