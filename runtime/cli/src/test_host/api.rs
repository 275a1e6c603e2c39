//! The page's HTTP routes and JSON API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bailiwick::intent::IntentTemplate;
use bailiwick_http::{RequestGuard, Token, authorize, read_all};
use bailiwick_ui::{MCP_VIEW, PERMISSION_PROMPT, SANDBOX, SANDBOX_POLICY, TEST_HOST};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::TIMEOUT;
use super::session::{ConnectionState, Session};
use crate::check::{Connection, ListedTool, ServerInfo, member};

/// The directives that a policy in a `<meta>` element cannot contain.
const PAGE_POLICY: &str =
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'";
/// The maximum size of a request, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The timeout for the body of a request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request for log entries waits for a new one.
const POLL_TIMEOUT: Duration = Duration::from_secs(25);

/// The routes of the page, which need a matching `Host` header, and of its API, which also needs the secret.
pub(super) fn router(session: Arc<Session>, host_names: &[String], token: Token) -> Router {
    let page_guard = RequestGuard::same_origin(host_names, None);
    let api_guard = RequestGuard::same_origin(host_names, Some(token));
    let api = Router::new()
        .route("/api/{method}", post(handle))
        .layer(from_fn_with_state(Arc::new(api_guard), authorize))
        .with_state(session);
    Router::new()
        .route("/", get(|| async { page(TEST_HOST, PAGE_POLICY) }))
        .route("/sandbox", get(|| async { page(SANDBOX, SANDBOX_POLICY) }))
        .route("/mcp-view.js", get(|| async { script(MCP_VIEW) }))
        .route(
            "/permission-prompt.js",
            get(|| async { script(PERMISSION_PROMPT) }),
        )
        .layer(from_fn_with_state(Arc::new(page_guard), authorize))
        .merge(api)
        .layer(from_fn(add_headers))
}

/// Adds headers to every response.
async fn add_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn page(text: &'static str, policy: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    (headers, text)
}

fn script(text: &'static str) -> ([(HeaderName, &'static str); 1], &'static str) {
    let kind = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, text)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Empty {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsRequest {
    after: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectRequest {
    revision: String,
    configuration: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct McpRequest {
    method: String,
    params: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyRequest {
    id: Value,
    result: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntentRequest {
    template: String,
    arguments: Value,
}

type ApiResult = Result<Value, (StatusCode, String)>;

async fn handle(
    State(session): State<Arc<Session>>,
    Path(method): Path<String>,
    body: Body,
) -> Response {
    let (status, value) = match respond(&session, &method, body).await {
        Ok(value) => (StatusCode::OK, value),
        Err((status, reason)) => (status, json!({"message": reason})),
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    (status, json, value.to_string()).into_response()
}

async fn respond(session: &Session, method: &str, body: Body) -> ApiResult {
    let body = timeout(READ_TIMEOUT, read_all(body, MAX_BYTES)).await;
    let body: Bytes = body.map_err(|_| {
        let reason = "the body did not arrive in time".to_owned();
        (StatusCode::REQUEST_TIMEOUT, reason)
    })??;
    match method {
        "state" => {
            read::<Empty>(&body)?;
            Ok(state(session).await)
        }
        "connect" => connect(session, &body).await,
        "request" => request(session, &body).await,
        "reply" => reply(session, &body).await,
        "intent" => intent(&body),
        "events" => events(session, &body).await,
        "checks" => {
            read::<Empty>(&body)?;
            Ok(checks(session).await)
        }
        _ => Err((StatusCode::NOT_FOUND, "unknown API method".to_owned())),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

fn bad_gateway(reason: &impl ToString) -> (StatusCode, String) {
    (StatusCode::BAD_GATEWAY, reason.to_string())
}

/// The state of the connection, and the data of the server.
async fn state(session: &Session) -> Value {
    let (connection, current) = session.state().await;
    let mut state = json!({
        "target": session.target().to_string(),
        "revision": connection.revision.as_str(),
        "configuration": connection.configuration,
    });
    let more = match current {
        ConnectionState::Connected(connected) => match connected.ended() {
            None => json!({"status": "ready", "facts": server_facts(connected.info())}),
            Some(error) => json!({
                "status": "ended", "reason": error.to_string(), "facts": server_facts(connected.info()),
            }),
        },
        ConnectionState::Failed(error) => {
            let mut reason = error.to_string();
            if let Some(line) = session.last_stderr() {
                reason += &format!("; its standard error ends with `{line}`");
            }
            json!({"status": "failed", "reason": reason})
        }
        ConnectionState::Connecting => json!({"status": "connecting"}),
    };
    if let (Value::Object(state), Value::Object(more)) = (&mut state, more) {
        state.extend(more);
    }
    state
}

/// The data of a server that the page shows.
fn server_facts(info: &ServerInfo) -> Value {
    let any = |predicate: fn(&ListedTool) -> bool| info.tools.iter().any(predicate);
    let badges = [
        (
            "apps",
            !info.apps.is_empty() || any(|tool| tool.ui.is_some()),
        ),
        ("intent templates", any(|tool| tool.intent.is_some())),
        ("preview", any(|tool| tool.preview)),
        ("policy", info.policy),
        ("configuration", info.config_schema.is_some()),
        ("dashdash", member(&info.greeting, "dashdash").is_some()),
    ];
    let badges = badges.map(|(name, on)| json!({"name": name, "on": on}));
    let mut facts = json!(info);
    if let Value::Object(facts) = &mut facts {
        facts.insert("badges".to_owned(), json!(badges));
    }
    facts
}

/// Runs all checks; without a connection, the only one is that it failed.
async fn checks(session: &Session) -> Value {
    match session.connected().await {
        Ok(server) => json!(server.checks(TIMEOUT).await),
        Err(error) => {
            let detail = bailiwick::text::escape(&error.to_string()).into_owned();
            json!([{"check": "connect", "outcome": "fail", "detail": detail}])
        }
    }
}

async fn connect(session: &Session, body: &[u8]) -> ApiResult {
    let request: ConnectRequest = read(body)?;
    let revision = request.revision.parse();
    let revision = revision.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}")))?;
    let connection = Connection {
        revision,
        configuration: request.configuration,
    };
    session.connect(connection, TIMEOUT).await;
    Ok(state(session).await)
}

async fn request(session: &Session, body: &[u8]) -> ApiResult {
    let request: McpRequest = read(body)?;
    let server = session
        .connected()
        .await
        .map_err(|error| bad_gateway(&error))?;
    let response = server.request(&request.method, request.params).await;
    response.map_err(|error| bad_gateway(&error))
}

async fn reply(session: &Session, body: &[u8]) -> ApiResult {
    let reply: ReplyRequest = read(body)?;
    let server = session
        .connected()
        .await
        .map_err(|error| bad_gateway(&error))?;
    server.reply(&reply.id, &reply.result);
    Ok(json!({}))
}

fn intent(body: &[u8]) -> ApiResult {
    let request: IntentRequest = read(body)?;
    Ok(match IntentTemplate::parse(&request.template) {
        Ok(template) => json!({"sentence": template.render(&request.arguments)}),
        Err(error) => json!({"fault": error.to_string()}),
    })
}

async fn events(session: &Session, body: &[u8]) -> ApiResult {
    let request: EventsRequest = read(body)?;
    let entries = timeout(POLL_TIMEOUT, session.messages_after(request.after)).await;
    Ok(json!(entries.unwrap_or_default()))
}
