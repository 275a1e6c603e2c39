//! Serves the page, and answers its requests.

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
use bailiwick_cli::check::{
    Connection, ListedTool, ServerInfo, Session, State as ConnectionState, member,
};
use bailiwick_ui::{MCP_VIEW, PERMISSION_PROMPT, SANDBOX, SANDBOX_POLICY};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::PATIENCE;
use super::callers::{Callers, page, script};

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
    configuration: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    method: String,
    params: Map<String, Value>,
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
            Ok(_) => Ok(state(&session).await),
            Err(refused) => Err(refused),
        },
        "connect" => connect(&session, &body).await,
        "request" => request(&session, &body).await,
        "reply" => reply(&session, &body).await,
        "intent" => intent(&body),
        "events" => events(&session, &body).await,
        "checks" => match read::<Nothing>(&body) {
            Ok(_) => Ok(json!(session.checks(PATIENCE).await)),
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

/// How the connection is, and what the server says of itself.
async fn state(session: &Session) -> Value {
    let connection = session.connection().await;
    let mut state = json!({
        "target": session.target().to_string(),
        "revision": connection.revision.as_str(),
        "configuration": connection.configuration,
    });
    let more = match session.state().await {
        ConnectionState::Ready(connected) => {
            json!({"status": "ready", "facts": facts(connected.info())})
        }
        ConnectionState::Ended(connected, error) => json!({
            "status": "ended", "reason": error.to_string(), "facts": facts(connected.info()),
        }),
        ConnectionState::Failed(error) => json!({"status": "failed", "reason": error.to_string()}),
        _ => json!({"status": "connecting"}),
    };
    if let (Value::Object(state), Value::Object(more)) = (&mut state, more) {
        state.extend(more);
    }
    state
}

/// What the page shows of a server.
fn facts(info: &ServerInfo) -> Value {
    let any = |has: fn(&ListedTool) -> bool| info.tools.iter().any(has);
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

async fn connect(session: &Session, body: &[u8]) -> Answer {
    let wanted: Connect = read(body)?;
    let revision = wanted.revision.parse();
    let revision = revision.map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}")))?;
    let connection = Connection {
        revision,
        configuration: wanted.configuration,
    };
    session.connect(connection, PATIENCE).await;
    Ok(state(session).await)
}

async fn request(session: &Session, body: &[u8]) -> Answer {
    let asked: Ask = read(body)?;
    let server = session.connected().await.map_err(|error| gone(&error))?;
    let response = server.request(&asked.method, asked.params).await;
    response.map_err(|error| gone(&error))
}

async fn reply(session: &Session, body: &[u8]) -> Answer {
    let reply: Reply = read(body)?;
    let server = session.connected().await.map_err(|error| gone(&error))?;
    server.reply(&reply.id, &reply.result);
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
    let entries = timeout(POLL, session.messages_after(asked.after)).await;
    Ok(json!(entries.unwrap_or_default()))
}
