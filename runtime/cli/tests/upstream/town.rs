//! A protected MCP server with its authorisation server, which can misbehave.

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

/// Where a server puts what it is told.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Echo {
    /// Into headers and ids, after a handshake.
    Headers,
    /// Into names of tools, in the revision that has headers for arguments.
    Names,
}

/// What the two servers do otherwise than they should.
#[derive(Clone, Default)]
pub(crate) struct Ways {
    /// Members of the resource's metadata.
    pub(crate) resource: Option<Value>,
    /// Members of the authorisation server's metadata.
    pub(crate) issuer: Option<Value>,
    /// Where the metadata of the resource is said to be.
    pub(crate) pointer: Option<String>,
    /// How long tokens last, in seconds.
    pub(crate) expires: Option<u64>,
    /// Whom tokens are for.
    pub(crate) audience: Option<String>,
    /// Nobody is let in, whatever they bring.
    pub(crate) nobody: bool,
    /// What is asked for a token leads there.
    pub(crate) leads: Option<String>,
    /// Everybody is let in.
    pub(crate) open: bool,
    /// Where the server puts what it is told.
    pub(crate) echo: Option<Echo>,
    /// Whoever is not let in is not told how they would be.
    pub(crate) mute: bool,
    /// Refresh tokens are refused.
    pub(crate) forgets: bool,
}

/// What was asked of the two servers.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) authorized: Vec<HashMap<String, String>>,
    pub(crate) tokens: Vec<HashMap<String, String>>,
    pub(crate) registered: Vec<Value>,
    /// The messages that came while nobody was let in, by their methods.
    pub(crate) refused: Vec<String>,
    pub(crate) secrets: Vec<String>,
    codes: HashMap<String, HashMap<String, String>>,
    valid: HashMap<String, (String, String)>,
    /// Where the server put what it was told.
    pub(crate) echoed: BTreeSet<&'static str>,
}

#[derive(Clone)]
pub(crate) struct Town {
    /// `http://127.0.0.1:PORT`, or what the certificate is for.
    pub(crate) origin: String,
    ways: Arc<Mutex<Ways>>,
    seen: Arc<Mutex<Seen>>,
}

impl Town {
    pub(crate) async fn new(ways: Ways) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let town = Self::at(origin, ways);
        let router = town.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        town
    }

    pub(crate) fn at(origin: String, ways: Ways) -> Self {
        Self {
            origin,
            ways: Arc::new(Mutex::new(ways)),
            seen: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.origin)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) fn ways(&self) -> Ways {
        self.ways.lock().unwrap().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Ways)) {
        change(&mut self.ways.lock().unwrap());
    }

    /// No token that was given counts any more.
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

    /// The scopes of a request that is let in.
    fn lets_in(&self, headers: &HeaderMap) -> Option<String> {
        if self.ways().open {
            return Some(String::new());
        }
        let token = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let token = token.strip_prefix("Bearer ")?;
        let (audience, scopes) = self.seen().valid.get(token)?.clone();
        (audience == self.url() && !self.ways().nobody).then_some(scopes)
    }
}

fn merged(mut base: Value, other: Option<&Value>) -> Json<Value> {
    for (key, value) in other.into_iter().filter_map(Value::as_object).flatten() {
        base[key] = value.clone();
    }
    Json(base)
}

async fn resource(State(town): State<Town>) -> Json<Value> {
    let servers = [&town.origin];
    let base = json!({"resource": town.url(), "authorization_servers": servers, "scopes_supported": ["read", "write"]});
    merged(base, town.ways().resource.as_ref())
}

async fn issuer(State(town): State<Town>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", town.origin);
    let base = json!({
        "issuer": town.origin,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        "authorization_response_iss_parameter_supported": true,
    });
    merged(base, town.ways().issuer.as_ref())
}

async fn register(State(town): State<Town>, Json(body): Json<Value>) -> (StatusCode, Json<Value>) {
    let made = json!({"client_id": "host-1", "redirect_uris": body["redirect_uris"]});
    town.seen().registered.push(body);
    (StatusCode::CREATED, Json(made))
}

/// The page on which a person would say yes.
async fn authorize(
    State(town): State<Town>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response {
    let code = town.secret("code");
    let iss = &town.origin;
    let back = [("code", &code), ("state", &asked["state"]), ("iss", iss)];
    let back: Vec<_> = back
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let location = format!("{}?{}", asked["redirect_uri"], back.join("&"));
    let mut seen = town.seen();
    seen.authorized.push(asked.clone());
    seen.codes.insert(code, asked);
    (StatusCode::FOUND, [(header::LOCATION, location)]).into_response()
}

async fn token(State(town): State<Town>, Form(asked): Form<HashMap<String, String>>) -> Response {
    town.seen().tokens.push(asked.clone());
    let ways = town.ways();
    if let Some(leads) = ways.leads {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, leads)]).into_response();
    }
    let refused =
        |why: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": why}))).into_response();
    let scope = if asked["grant_type"] == "refresh_token" {
        if ways.forgets || !town.seen().secrets.contains(&asked["refresh_token"]) {
            return refused("invalid_grant");
        }
        asked.get("scope").cloned().unwrap_or_default()
    } else {
        let Some(code) = town.seen().codes.remove(&asked["code"]) else {
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
    let audience = ways.audience.unwrap_or_else(|| asked["resource"].clone());
    let (access, refresh) = (town.secret("access"), town.secret("refresh"));
    town.seen()
        .valid
        .insert(access.clone(), (audience, scope.clone()));
    let answer = json!({
        "access_token": access, "token_type": "Bearer", "refresh_token": refresh,
        "expires_in": ways.expires.unwrap_or(3600), "scope": scope, "id_token": town.secret("id"),
    });
    Json(answer).into_response()
}

/// Refuses, and says back what it was told: it is no friend.
fn challenge(town: &Town, status: StatusCode, more: &str, headers: &HeaderMap) -> Response {
    let told = headers.get(header::AUTHORIZATION);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    let pointer = town
        .ways()
        .pointer
        .unwrap_or_else(|| format!("{}/.well-known/oauth-protected-resource/mcp", town.origin));
    let said =
        format!("Bearer resource_metadata=\"{pointer}\", {more}, error_description=\"not {told}\"");
    (status, [(header::WWW_AUTHENTICATE, said)], told.to_owned()).into_response()
}

/// What a server is told that nobody else is to know.
fn told(headers: &HeaderMap) -> String {
    let told = headers.get(header::AUTHORIZATION);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    told.replace(' ', "-")
}

/// Events of which none is a message, and the end of them.
async fn events(State(town): State<Town>, headers: HeaderMap) -> Response {
    if town.ways().echo != Some(Echo::Headers) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    town.seen().echoed.insert("event");
    let told = told(&headers);
    let events = format!("id: {told}\ndata: {told}\n\n");
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}

async fn ended(State(town): State<Town>) -> StatusCode {
    town.seen().echoed.insert("session");
    StatusCode::INTERNAL_SERVER_ERROR
}

/// An answer that says what the server was told, and where.
fn echoed(echo: Echo, asked: &Value, headers: &HeaderMap) -> Option<(&'static str, Response)> {
    let told = told(headers);
    let info = json!({"name": "town", "version": "1"});
    let schema =
        json!({"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": told}}});
    let plain = json!({"name": "look", "inputSchema": {"type": "object"}});
    let fresh = json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"});
    let answered = |result: &Value| json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
    Some(match (echo, asked["method"].as_str()?) {
        (Echo::Headers, "initialize") => {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info,
            });
            let session = [("mcp-session-id", told)];
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
            let tools = json!({"tools": [plain, {"name": told, "inputSchema": schema}]});
            let Json(listed) = merged(fresh, Some(&tools));
            ("tool", Json(answered(&listed)).into_response())
        }
        (_, "tools/call") => {
            let kind = [(header::CONTENT_TYPE, format!("text/{told}"))];
            ("type", (kind, "{}").into_response())
        }
        _ => return None,
    })
}

async fn mcp(State(town): State<Town>, headers: HeaderMap, Json(asked): Json<Value>) -> Response {
    let Some(scopes) = town.lets_in(&headers) else {
        let method = asked["method"].as_str().unwrap().to_owned();
        town.seen().refused.push(method);
        if town.ways().mute {
            return (StatusCode::UNAUTHORIZED, "go away").into_response();
        }
        return challenge(&town, StatusCode::UNAUTHORIZED, "scope=\"read\"", &headers);
    };
    let ways = town.ways();
    if let Some(echo) = ways.echo
        && let Some((place, answer)) = echoed(echo, &asked, &headers)
    {
        town.seen().echoed.insert(place);
        return answer;
    }
    let tool = asked.pointer("/params/name").and_then(Value::as_str);
    if tool == Some("change") && !scopes.split(' ').any(|scope| scope == "write") {
        let more = "error=\"insufficient_scope\", scope=\"write\"";
        return challenge(&town, StatusCode::FORBIDDEN, more, &headers);
    }
    let known = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let result = match asked["method"].as_str().unwrap() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "town", "version": "1"},
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
