//! A protected MCP server with its authorization server, which can misbehave.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Form, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

/// Where a server echoes the token that it received.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Echo {
    /// Into headers and ids, after a handshake.
    Headers,
    /// Into names of tools, in the revision that has headers for arguments.
    Names,
}

/// How the two servers deviate from correct behavior.
#[derive(Clone, Default)]
pub(crate) struct Behavior {
    /// Members of the resource's metadata.
    pub(crate) resource: Option<Value>,
    /// Members of the authorization server's metadata.
    pub(crate) issuer: Option<Value>,
    /// The advertised URL of the resource metadata.
    pub(crate) pointer: Option<String>,
    /// The lifetime of tokens, in seconds.
    pub(crate) expires: Option<u64>,
    /// The audience of tokens.
    pub(crate) audience: Option<String>,
    /// Every token is rejected.
    pub(crate) rejects_all: bool,
    /// Token requests are redirected there.
    pub(crate) redirect: Option<String>,
    /// No token is required.
    pub(crate) open: bool,
    /// Where the server echoes the token.
    pub(crate) echo: Option<Echo>,
    /// Rejections have no challenge.
    pub(crate) omits_challenge: bool,
    /// Refresh tokens are rejected.
    pub(crate) rejects_refresh: bool,
}

/// The requests that the two servers received.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) authorized: Vec<HashMap<String, String>>,
    pub(crate) tokens: Vec<HashMap<String, String>>,
    pub(crate) registered: Vec<Value>,
    /// The methods of rejected messages.
    pub(crate) refused: Vec<String>,
    pub(crate) secrets: Vec<String>,
    codes: HashMap<String, HashMap<String, String>>,
    valid: HashMap<String, (String, String)>,
    /// Where the server has echoed the token.
    pub(crate) echoed: BTreeSet<&'static str>,
}

#[derive(Clone)]
pub(crate) struct OAuthServer {
    /// `http://127.0.0.1:PORT`, or the origin of the certificate.
    pub(crate) origin: String,
    behavior: Arc<Mutex<Behavior>>,
    seen: Arc<Mutex<Seen>>,
    echoed: Arc<Notify>,
}

impl OAuthServer {
    pub(crate) async fn new(behavior: Behavior) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let server = Self::at(origin, behavior);
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// Waits until the server has echoed the token there.
    pub(crate) async fn has_echoed(&self, place: &str) {
        while !self.seen().echoed.contains(place) {
            self.echoed.notified().await;
        }
    }

    fn note_echo(&self, place: &'static str) {
        self.seen().echoed.insert(place);
        self.echoed.notify_one();
    }

    pub(crate) fn at(origin: String, behavior: Behavior) -> Self {
        Self {
            origin,
            behavior: Arc::new(Mutex::new(behavior)),
            seen: Arc::default(),
            echoed: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn behavior(&self) -> Behavior {
        self.behavior.lock().unwrap().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.behavior.lock().unwrap());
    }

    /// Invalidates all tokens.
    pub(crate) fn revoke(&self) {
        self.seen().valid.clear();
    }

    pub(crate) fn router(&self) -> Router {
        Router::new()
            .route("/mcp", post(mcp).get(events).delete(ended))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(issuer))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(self.clone())
    }

    fn secret(&self, kind: &str) -> String {
        let mut seen = self.seen();
        let secret = format!("{kind}-s3cr3t-{}", seen.secrets.len());
        seen.secrets.push(secret.clone());
        secret
    }

    /// The scopes of a request with a valid token.
    fn authorized_scopes(&self, headers: &HeaderMap) -> Option<String> {
        if self.behavior().open {
            return Some(String::new());
        }
        let token = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let token = token.strip_prefix("Bearer ")?;
        let (audience, scopes) = self.seen().valid.get(token)?.clone();
        (audience == self.url() && !self.behavior().rejects_all).then_some(scopes)
    }
}

fn merged(mut base: Value, other: Option<&Value>) -> Json<Value> {
    for (key, value) in other.into_iter().filter_map(Value::as_object).flatten() {
        base[key] = value.clone();
    }
    Json(base)
}

async fn resource(State(server): State<OAuthServer>) -> Json<Value> {
    let servers = [&server.origin];
    let base = json!({"resource": server.url(), "authorization_servers": servers, "scopes_supported": ["read", "write"]});
    merged(base, server.behavior().resource.as_ref())
}

async fn issuer(State(server): State<OAuthServer>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", server.origin);
    let base = json!({
        "issuer": server.origin,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        "authorization_response_iss_parameter_supported": true,
    });
    merged(base, server.behavior().issuer.as_ref())
}

async fn register(
    State(server): State<OAuthServer>,
    Json(body): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let made = json!({"client_id": "host-1", "redirect_uris": body["redirect_uris"]});
    server.seen().registered.push(body);
    (StatusCode::CREATED, Json(made))
}

/// The consent page; it consents at once.
async fn authorize(
    State(server): State<OAuthServer>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    let code = server.secret("code");
    let iss = &server.origin;
    let back = [("code", &code), ("state", &asked["state"]), ("iss", iss)];
    let back: Vec<_> = back
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let location = format!("{}?{}", asked["redirect_uri"], back.join("&"));
    let mut seen = server.seen();
    seen.authorized.push(asked.clone());
    seen.codes.insert(code, asked);
    (StatusCode::FOUND, [(header::LOCATION, location)]).into_response()
}

async fn token(
    State(server): State<OAuthServer>,
    Form(asked): Form<HashMap<String, String>>,
) -> Response {
    server.seen().tokens.push(asked.clone());
    let behavior = server.behavior();
    if let Some(location) = behavior.redirect {
        return (
            StatusCode::TEMPORARY_REDIRECT,
            [(header::LOCATION, location)],
        )
            .into_response();
    }
    let refused =
        |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": why}))).into_response();
    let scope = if asked["grant_type"] == "refresh_token" {
        if behavior.rejects_refresh || !server.seen().secrets.contains(&asked["refresh_token"]) {
            return refused("invalid_grant");
        }
        asked.get("scope").cloned().unwrap_or_default()
    } else {
        let Some(code) = server.seen().codes.remove(&asked["code"]) else {
            return refused("invalid_grant");
        };
        let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(&asked["code_verifier"]));
        let same = ["redirect_uri", "client_id", "resource"];
        let same = same.iter().all(|key| code.get(*key) == asked.get(*key));
        if code["code_challenge_method"] != "S256" || code["code_challenge"] != proof || !same {
            return refused("invalid_grant");
        }
        code.get("scope").cloned().unwrap_or_default()
    };
    let audience = behavior
        .audience
        .unwrap_or_else(|| asked["resource"].clone());
    let (access, refresh) = (server.secret("access"), server.secret("refresh"));
    server
        .seen()
        .valid
        .insert(access.clone(), (audience, scope.clone()));
    let answer = json!({
        "access_token": access, "token_type": "Bearer", "refresh_token": refresh,
        "expires_in": behavior.expires.unwrap_or(3600), "scope": scope, "id_token": server.secret("id"),
    });
    Json(answer).into_response()
}

/// Rejects a request, and echoes its token.
fn challenge(
    server: &OAuthServer,
    status: StatusCode,
    more: &str,
    headers: &HeaderMap,
) -> Response {
    let authorization = headers.get(header::AUTHORIZATION);
    let authorization = authorization
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let pointer = server
        .behavior()
        .pointer
        .unwrap_or_else(|| format!("{}/.well-known/oauth-protected-resource/mcp", server.origin));
    let challenge = format!(
        "Bearer resource_metadata=\"{pointer}\", {more}, error_description=\"not {authorization}\""
    );
    (
        status,
        [(header::WWW_AUTHENTICATE, challenge)],
        authorization.to_owned(),
    )
        .into_response()
}

/// The token of a request, as one word.
fn echoed_token(headers: &HeaderMap) -> String {
    let authorization = headers.get(header::AUTHORIZATION);
    let authorization = authorization
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    authorization.replace(' ', "-")
}

/// An event stream without a message, which ends.
async fn events(State(server): State<OAuthServer>, headers: HeaderMap) -> Response {
    if server.behavior().echo != Some(Echo::Headers) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    server.note_echo("event");
    let token = echoed_token(&headers);
    let events = format!("id: {token}\ndata: {token}\n\n");
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}

async fn ended(State(server): State<OAuthServer>) -> StatusCode {
    server.note_echo("session");
    StatusCode::INTERNAL_SERVER_ERROR
}

/// A response that echoes the token, and where it does.
fn echoed(echo: Echo, asked: &Value, headers: &HeaderMap) -> Option<(&'static str, Response)> {
    let token = echoed_token(headers);
    let info = json!({"name": "server", "version": "1"});
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": token}}});
    let plain = json!({"name": "look", "inputSchema": {"type": "object"}});
    let fresh = json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    let answered = |result: &Value| json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    Some(match (echo, asked["method"].as_str()?) {
        (Echo::Headers, "initialize") => {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info,
            });
            let session = [("mcp-session-id", token)];
            (
                "greeting",
                (session, Json(answered(&result))).into_response(),
            )
        }
        (Echo::Names, "server/discover") => {
            let known = json!({
                "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                "serverInfo": info,
            });
            let Json(known) = merged(fresh, Some(&known));
            ("greeting", Json(answered(&known)).into_response())
        }
        (Echo::Names, "tools/list") => {
            let tools = json!({"tools": [plain, {"name": token, "inputSchema": schema}]});
            let Json(listed) = merged(fresh, Some(&tools));
            ("tool", Json(answered(&listed)).into_response())
        }
        (_, "tools/call") => {
            let kind = [(header::CONTENT_TYPE, format!("text/{token}"))];
            ("type", (kind, "{}").into_response())
        }
        _ => return None,
    })
}

async fn mcp(
    State(server): State<OAuthServer>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> Response {
    let Some(scopes) = server.authorized_scopes(&headers) else {
        let method = asked["method"].as_str().unwrap().to_owned();
        server.seen().refused.push(method);
        if server.behavior().omits_challenge {
            return (StatusCode::UNAUTHORIZED, "go away").into_response();
        }
        return challenge(
            &server,
            StatusCode::UNAUTHORIZED,
            "scope=\"read\"",
            &headers,
        );
    };
    let behavior = server.behavior();
    if let Some(echo) = behavior.echo
        && let Some((place, answer)) = echoed(echo, &asked, &headers)
    {
        server.note_echo(place);
        return answer;
    }
    let tool = asked.pointer("/params/name").and_then(Value::as_str);
    if tool == Some("change") && !scopes.split(' ').any(|scope| scope == "write") {
        let more = "error=\"insufficient_scope\", scope=\"write\"";
        return challenge(&server, StatusCode::FORBIDDEN, more, &headers);
    }
    let known = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let result = match asked["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "server", "version": "1"},
        }),
        "tools/list" => json!({"tools": [known("look"), known("change")]}),
        "tools/call" => json!({"content": [{"type": "text", "text": tool}]}),
        _ if asked.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        _ => {
            let error = json!({"code": -32601, "message": "unknown"});
            return Json(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
                .into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).into_response()
}

/// The parameters of an address.
pub(crate) fn parameters(url: &str) -> BTreeMap<String, String> {
    let (_, query) = url.split_once('?').unwrap();
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
