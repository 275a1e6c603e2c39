//! Tests of OAuth sign-in to servers.

use super::oauth_server::{Behavior, Echo, OAuthServer, parameters};
use bailiwick::audit::{AuditSink, Head, Record};
use bailiwick::requests::{BoxFuture, ServerRequests, SignIn, SignInAnswer};
use bailiwick::{Code, MemoryAudit, Policy, Runtime, Worker};
use bailiwick_mcp::upstream::{
    LoopbackRedirect, OAuth, ServerSpec, ServerState, SpecError, TokenStore, Upstreams,
};
use bailiwick_test_support::upstream::{TestRuntime, allow_once, code, test_runtime, text};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const LANDING: &str = "http://127.0.0.1:9/back";

/// What a person does with an address: where their browser ends.
type Browser = Arc<dyn Fn(String) -> Option<String> + Send + Sync>;

/// A host that allows a limited number of sign-ins and records each request.
#[derive(Clone)]
struct Person {
    asked: Arc<Mutex<Vec<SignIn>>>,
    times: usize,
    browser: Browser,
}

impl Person {
    fn new(browser: impl Fn(String) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            asked: Arc::default(),
            times: usize::MAX,
            browser: Arc::new(browser),
        }
    }

    fn willing() -> Self {
        Self::new(Some)
    }

    fn asked(&self) -> Vec<SignIn> {
        self.asked.lock().unwrap().clone()
    }
}

impl ServerRequests for Person {
    fn sign_in(&self, request: SignIn) -> BoxFuture<'_, SignInAnswer> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.clone());
            if self.asked().len() > self.times {
                return SignInAnswer::Declined;
            }
            let back = (self.browser)(led(&request.url).await);
            back.map_or(SignInAnswer::Declined, SignInAnswer::Completed)
        })
    }
}

/// Where a browser is led that opens an address.
async fn led(url: &str) -> String {
    let head = opened(url).await;
    let mut lines = head.lines();
    let location = lines.find_map(|line| line.strip_prefix("location: "));
    location.unwrap().to_owned()
}

async fn opened(url: &str) -> String {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let mut server = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    server.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    server.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn signed(server: &OAuthServer, oauth: OAuth, person: &Person) -> Upstreams {
    let builder = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
    let builder = builder.oauth(oauth).requests(person.clone());
    let upstreams = builder.start().await.unwrap();
    let settled = [ServerState::Ready, ServerState::GivenUp];
    tokio::select! {
        _ = upstreams.reached("remote", settled[0]) => {}
        _ = upstreams.reached("remote", settled[1]) => {}
    }
    upstreams
}

async fn state(server: &OAuthServer, person: &Person) -> ServerState {
    let upstreams = signed(server, OAuth::new(LANDING), person).await;
    upstreams.state("remote").unwrap()
}

async fn used(server: &OAuthServer, person: &Person) -> (TestRuntime, Worker) {
    let upstreams = signed(server, OAuth::new(LANDING), person).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    (stage, worker)
}

/// The audit records of sign-ins.
async fn sign_in_records(stage: &TestRuntime) -> Vec<Value> {
    let lines = stage.lines().await;
    let events = lines.into_iter().map(|line| line["event"].clone());
    let records = events.filter(|event| event["step"] == "signed_in");
    records.collect()
}

/// Nobody is let in, and nobody was asked for their name.
async fn unasked(behavior: Behavior) {
    unasked_by(OAuth::new(LANDING), behavior).await;
}

async fn unasked_by(oauth: OAuth, behavior: Behavior) {
    let (server, person) = (OAuthServer::new(behavior).await, Person::willing());
    let upstreams = Upstreams::builder()
        .server(ServerSpec::http("remote", server.url()))
        .oauth(oauth)
        .requests(person.clone())
        .start()
        .await
        .unwrap();
    let left = [ServerState::Waiting, ServerState::GivenUp];
    tokio::select! {
        _ = upstreams.reached("remote", left[0]) => {}
        _ = upstreams.reached("remote", left[1]) => {}
    }
    assert_eq!(person.asked(), []);
    assert!(server.seen().tokens.is_empty());
}

#[tokio::test]
async fn sign_in_makes_the_tools_available() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let (_stage, worker) = used(&server, &person).await;
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    let asked = person.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].server.as_str(), asked[0].more), ("remote", false));
    assert_eq!(
        (&asked[0].address, &asked[0].issuer),
        (&server.url(), &server.origin)
    );
    assert_eq!(format!("http://{}", asked[0].opens), server.origin);
    assert_eq!(asked[0].scopes, ["read"]);
    let seen = server.seen();
    let authorized = &seen.authorized[0];
    assert_eq!(authorized["resource"], server.url());
    assert_eq!(authorized["redirect_uri"], LANDING);
    assert_eq!(authorized["code_challenge_method"], "S256");
    assert_eq!(seen.tokens.len(), 1);
    assert_eq!(seen.tokens[0]["resource"], server.url());
    assert_eq!(seen.registered[0]["token_endpoint_auth_method"], "none");
}

#[tokio::test]
async fn protected_resource_metadata_is_found_at_its_well_known_url() {
    let without_challenge = || Behavior {
        omits_challenge: true,
        ..Behavior::default()
    };
    let (server, person) = (
        OAuthServer::new(without_challenge()).await,
        Person::willing(),
    );
    let (_stage, worker) = used(&server, &person).await;
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    assert_eq!(person.asked().len(), 1);
    assert_eq!(person.asked()[0].issuer, server.origin);
    // A token that is rejected without a challenge is refreshed, too.
    server.revoke();
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    assert_eq!(person.asked().len(), 1);
    // This server is not trusted more than one that names its authorization server.
    let elsewhere = Some(json!({"authorization_servers": ["https://10.0.0.1"]}));
    unasked(Behavior {
        resource: elsewhere,
        ..without_challenge()
    })
    .await;
    let (server, person) = (
        OAuthServer::new(without_challenge()).await,
        Person::new(|_| None),
    );
    assert_eq!(state(&server, &person).await, ServerState::GivenUp);
    assert_eq!(person.asked().len(), 1);
    // And it is asked nothing twice.
    assert_eq!(server.seen().refused, ["server/discover"]);
}

#[tokio::test]
async fn preregistered_and_metadata_clients_are_not_registered_again() {
    let documents = Some(json!({"client_id_metadata_document_supported": true}));
    let behavior = || Behavior {
        issuer: documents.clone(),
        ..Behavior::default()
    };
    let document = "https://host.example/client.json";
    for (oauth, client) in [
        (
            OAuth::new(LANDING).client_id_metadata_url(document),
            document,
        ),
        (
            OAuth::new(LANDING).preregistered_client("remote", "mine", None),
            "mine",
        ),
    ] {
        let (server, person) = (OAuthServer::new(behavior()).await, Person::willing());
        let upstreams = signed(&server, oauth, &person).await;
        assert_eq!(upstreams.state("remote"), Some(ServerState::Ready));
        assert_eq!(server.seen().authorized[0]["client_id"], client);
        assert!(server.seen().registered.is_empty());
    }
}

#[tokio::test]
async fn server_cannot_choose_an_unexpected_authorisation_server() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let oauth = OAuth::new(LANDING).preregistered_client("remote", "mine", Some("s".into()));
    let upstreams = signed(
        &server,
        oauth.clone().issuer("remote", &server.origin),
        &person,
    )
    .await;
    assert_eq!(upstreams.state("remote"), Some(ServerState::Ready));
    unasked_by(
        oauth.issuer("remote", "https://as.example"),
        Behavior::default(),
    )
    .await;
}

#[tokio::test]
async fn client_secret_is_sent_only_to_the_configured_issuer() {
    let start = |url: &str, oauth: OAuth| {
        let oauth = oauth.preregistered_client("remote", "mine", Some("s".into()));
        let builder = Upstreams::builder().server(ServerSpec::http("remote", url));
        builder.oauth(oauth).start()
    };
    let (elsewhere, here) = ("https://server.example/mcp", "http://127.0.0.1:9/mcp");
    let refused = start(elsewhere, OAuth::new(LANDING)).await;
    assert!(matches!(refused, Err(SpecError::Issuer(name)) if name == "remote"));
    let oauth = OAuth::new(LANDING).issuer("remote", "https://as.example");
    assert!(start(elsewhere, oauth).await.is_ok());
    assert!(start(here, OAuth::new(LANDING)).await.is_ok());
}

#[tokio::test]
async fn sign_in_requires_consent() {
    let server = OAuthServer::new(Behavior::default()).await;
    let no = Person::new(|_| None);
    assert_eq!(state(&server, &no).await, ServerState::GivenUp);
    assert_eq!(no.asked().len(), 1);
    assert!(server.seen().tokens.is_empty());
    // A host without support for sign-in is not asked.
    let nobody = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
    let nobody = nobody.requests(no.clone()).start().await.unwrap();
    assert_ne!(nobody.state("remote"), Some(ServerState::Ready));
    assert_eq!(no.asked().len(), 1);
}

#[tokio::test]
async fn declined_sign_in_is_asked_again_on_retry() {
    let server = OAuthServer::new(Behavior::default()).await;
    let second = Arc::new(Mutex::new(false));
    let later = Arc::clone(&second);
    let person = Person::new(move |url| later.lock().unwrap().then_some(url));
    let upstreams = signed(&server, OAuth::new(LANDING), &person).await;
    assert_eq!(upstreams.state("remote"), Some(ServerState::GivenUp));
    *second.lock().unwrap() = true;
    upstreams.retry("remote");
    assert!(upstreams.reached("remote", ServerState::Ready).await);
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test]
async fn authorisation_response_must_match_its_request() {
    let with = |key: &'static str, value: Option<&'static str>| {
        Person::new(move |url: String| {
            let (at, _) = url.split_once('?').unwrap();
            let mut all = parameters(&url);
            all.remove(key);
            all.extend(value.map(|value| (key.to_owned(), value.to_owned())));
            let all: Vec<_> = all
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            Some(format!("{at}?{}", all.join("&")))
        })
    };
    for (person, allowed) in [
        (with("nothing", Some("else")), true),
        (with("state", Some("another")), false),
        (with("state", None), false),
        (with("iss", Some("https://evil.example")), false),
        (with("iss", None), false),
        (with("error", Some("access_denied")), false),
        (with("code", Some("made-up")), false),
    ] {
        let server = OAuthServer::new(Behavior::default()).await;
        let ready = state(&server, &person).await == ServerState::Ready;
        assert_eq!(ready, allowed);
        let exchanged = server
            .seen()
            .tokens
            .iter()
            .filter(|asked| asked["code"] != "made-up")
            .count();
        assert_eq!(exchanged, usize::from(allowed));
        // A code that makes no token may be the network's fault: they are asked once more.
        let made_up = server.seen().tokens.len() - exchanged;
        assert_eq!(person.asked().len(), made_up.max(1));
        assert!(made_up <= 2);
    }
}

#[tokio::test]
async fn server_redirects_are_not_followed() {
    let behavior = Behavior::default();
    for elsewhere in [
        json!({"authorization_servers": ["https://10.0.0.1"]}),
        json!({"authorization_servers": ["http://169.254.169.254"]}),
        json!({"authorization_servers": ["http://example.com"]}),
        json!({"authorization_servers": ["file:///etc"]}),
        json!({"resource": "https://evil.example/mcp"}),
    ] {
        let resource = Some(elsewhere);
        unasked(Behavior {
            resource,
            ..behavior.clone()
        })
        .await;
    }
    for elsewhere in [
        json!({"issuer": "https://evil.example"}),
        json!({"token_endpoint": "http://169.254.169.254/token"}),
        json!({"token_endpoint": "http://example.com/token"}),
        json!({"authorization_endpoint": "http://example.com/authorize"}),
        json!({"authorization_endpoint": "javascript:alert(1)"}),
        json!({"registration_endpoint": "https://10.0.0.1/register"}),
        json!({"code_challenge_methods_supported": ["plain"]}),
        json!({"code_challenge_methods_supported": null}),
        json!({"padding": "x".repeat(300 << 10)}),
    ] {
        let issuer = Some(elsewhere);
        unasked(Behavior {
            issuer,
            ..behavior.clone()
        })
        .await;
    }
}

#[tokio::test]
async fn authorisation_endpoint_must_belong_to_the_issuer() {
    let honest = OAuthServer::new(Behavior::default()).await;
    let at = |path: &str| format!("{}{path}", honest.origin);
    for elsewhere in [
        json!({"authorization_endpoint": at("/authorize")}),
        json!({"token_endpoint": at("/token")}),
        json!({"registration_endpoint": at("/register")}),
    ] {
        let issuer = Some(elsewhere);
        let server = OAuthServer::new(Behavior::default()).await;
        server.change(|behavior| behavior.issuer.clone_from(&issuer));
        unasked(Behavior {
            issuer,
            ..Behavior::default()
        })
        .await;
        // The host has configured this issuer.
        let person = Person::new(|_| None);
        let oauth = OAuth::new(LANDING).issuer("remote", &server.origin);
        signed(&server, oauth, &person).await;
        assert_eq!(person.asked().len(), 1);
    }
    assert!(honest.seen().tokens.is_empty());
}

#[tokio::test]
async fn authorisation_request_contains_only_host_values() {
    for (query, allowed) in [
        ("tenant=1", true),
        ("scope=admin", false),
        ("Scope=admin", false),
        ("redirect_uri=https://evil.example", false),
        ("client_id=x", false),
        ("state=x", false),
        ("code%5Fchallenge=x", false),
        ("tenant=1&response_type=token", false),
        ("request_uri=x", false),
    ] {
        for named in [false, true] {
            let (server, person) = (
                OAuthServer::new(Behavior::default()).await,
                Person::new(|_| None),
            );
            let endpoint = format!("{}/authorize?{query}", server.origin);
            let issuer = Some(json!({"authorization_endpoint": endpoint}));
            server.change(|behavior| behavior.issuer = issuer);
            let oauth = OAuth::new(LANDING);
            let oauth = match named {
                true => oauth.issuer("remote", &server.origin),
                false => oauth,
            };
            let builder = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
            let builder = builder.oauth(oauth).requests(person.clone());
            let upstreams = builder.start().await.unwrap();
            let left = [ServerState::Waiting, ServerState::GivenUp];
            tokio::select! {
                _ = upstreams.reached("remote", left[0]) => {}
                _ = upstreams.reached("remote", left[1]) => {}
            }
            assert_eq!(person.asked().len(), usize::from(allowed), "{query}");
        }
    }
}

#[tokio::test]
async fn token_requests_do_not_follow_redirects() {
    let other = OAuthServer::new(Behavior::default()).await;
    let redirect = Some(format!("{}/token", other.origin));
    let (server, person) = (
        OAuthServer::new(Behavior {
            redirect,
            ..Behavior::default()
        })
        .await,
        Person::willing(),
    );
    let builder = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
    let builder = builder.oauth(OAuth::new(LANDING)).requests(person.clone());
    let upstreams = builder.start().await.unwrap();
    assert!(upstreams.reached("remote", ServerState::GivenUp).await);
    assert_eq!(server.seen().tokens.len(), 2);
    assert!(other.seen().tokens.is_empty());
}

#[tokio::test]
async fn sign_in_is_retried_after_a_network_failure() {
    let forged = Arc::new(Mutex::new(true));
    let first = Arc::clone(&forged);
    let person = Person::new(move |url: String| {
        let made_up = std::mem::replace(&mut *first.lock().unwrap(), false);
        Some(if made_up {
            url.replace("code=", "code=not-")
        } else {
            url
        })
    });
    let server = OAuthServer::new(Behavior::default()).await;
    assert_eq!(state(&server, &person).await, ServerState::Ready);
    assert_eq!(person.asked().len(), 2);
    assert!(!*forged.lock().unwrap());
}

#[tokio::test]
async fn server_that_rejects_every_token_is_not_retried() {
    let other = Some("https://other.example/mcp".to_owned());
    for behavior in [
        Behavior {
            audience: other,
            ..Behavior::default()
        },
        Behavior {
            rejects_all: true,
            ..Behavior::default()
        },
    ] {
        let (server, person) = (OAuthServer::new(behavior).await, Person::willing());
        assert_eq!(state(&server, &person).await, ServerState::GivenUp);
        assert_eq!(person.asked().len(), 1);
    }
}

#[tokio::test]
async fn expired_token_is_refreshed() {
    let expires = Some(1);
    let (server, person) = (
        OAuthServer::new(Behavior {
            expires,
            ..Behavior::default()
        })
        .await,
        Person::willing(),
    );
    let (_stage, worker) = used(&server, &person).await;
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    let renewals = |server: &OAuthServer| {
        let seen = server.seen();
        let renewals = seen
            .tokens
            .iter()
            .filter(|asked| asked["grant_type"] == "refresh_token");
        renewals
            .map(|asked| asked["resource"].clone())
            .collect::<Vec<_>>()
    };
    assert!(!renewals(&server).is_empty());
    assert!(
        renewals(&server)
            .iter()
            .all(|resource| *resource == server.url())
    );
    assert_eq!(person.asked().len(), 1);
}

#[tokio::test]
async fn revoked_token_is_refreshed_or_sign_in_is_repeated() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let (stage, worker) = used(&server, &person).await;
    server.revoke();
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    assert_eq!(person.asked().len(), 1);
    server.revoke();
    server.change(|behavior| behavior.rejects_refresh = true);
    assert_eq!(
        code(worker.call("remote__look", json!({})).await),
        Code::ServerGone
    );
    // They signed in a moment ago: one who wants it tried again is asked, and nobody else.
    assert!(
        stage
            .upstreams
            .reached("remote", ServerState::GivenUp)
            .await
    );
    assert_eq!(person.asked().len(), 1);
    stage.upstreams.retry("remote");
    assert!(stage.upstreams.reached("remote", ServerState::Ready).await);
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test]
async fn call_that_needs_more_scopes_waits_for_consent() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let (stage, worker) = used(&server, &person).await;
    assert_eq!(
        text(worker.call("remote__change", json!({})).await),
        "change"
    );
    let asked = person.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!((asked[0].more, asked[0].tool.as_deref()), (false, None));
    assert_eq!(
        (asked[1].more, asked[1].tool.as_deref()),
        (true, Some("change"))
    );
    assert_eq!(asked[1].scopes, ["read", "write"]);
    let record = |scopes: &[&str], tool: Option<&str>| {
        let mut record = json!({"step": "signed_in", "agent": "", "origin": "human", "server": "remote",
            "issuer": server.origin, "scopes": scopes, "allowed": true, "by": "person"});
        if let Some(tool) = tool {
            record["tool_there"] = tool.into();
        }
        record
    };
    let expected = [
        record(&["read"], None),
        record(&["read", "write"], Some("change")),
    ];
    assert_eq!(sign_in_records(&stage).await, expected);
    assert_eq!(
        text(worker.call("remote__change", json!({})).await),
        "change"
    );
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test]
async fn missing_consent_for_more_scopes_fails_only_that_call() {
    let server = OAuthServer::new(Behavior::default()).await;
    let person = Person {
        times: 1,
        ..Person::willing()
    };
    let (stage, worker) = used(&server, &person).await;
    for _ in 0..3 {
        let refused = worker.call("remote__change", json!({})).await.unwrap_err();
        assert_eq!(refused.code(), Code::ServerFailed);
        assert!(
            refused.message().contains("than a person allowed"),
            "{refused}"
        );
    }
    assert_eq!(person.asked().len(), 2);
    let sign_ins = sign_in_records(&stage).await;
    assert_eq!(sign_ins.len(), 2);
    assert_eq!(
        [&sign_ins[1]["allowed"], &sign_ins[1]["by"]],
        [&json!(false), &json!("person")]
    );
    assert_eq!(stage.upstreams.state("remote"), Some(ServerState::Ready));
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
}

#[tokio::test]
async fn history_has_sign_ins() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let (stage, worker) = used(&server, &person).await;
    assert_eq!(
        text(worker.call("remote__change", json!({})).await),
        "change"
    );
    stage.runtime.flush_audit().await.unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for record in stage.audit.records() {
        writeln!(file, "{}", record.line()).unwrap();
    }
    let output = std::process::Command::new(crate::PROGRAM)
        .args(["history", "--server", "remote"])
        .arg(file.path())
        .output();
    let history = String::from_utf8(output.unwrap().stdout).unwrap();
    let issuer = &server.origin;
    for expected in [
        format!(
            "granted by a person  -            signed in to the server remote at {issuer}, for read\n"
        ),
        format!("at {issuer}, for read write; requested by its tool change\n"),
    ] {
        assert!(history.contains(&expected), "{history}");
    }
}

/// An audit sink that accepts records until it is full.
#[derive(Clone)]
struct Filling(MemoryAudit, Arc<AtomicBool>);

impl AuditSink for Filling {
    fn head(&self) -> Head {
        self.0.head()
    }

    fn keep(&mut self, records: &[Record]) -> std::io::Result<()> {
        if self.1.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.keep(records)
    }
}

#[tokio::test]
async fn consent_requires_an_audit_record() {
    for full in [false, true] {
        let (server, person) = (
            OAuthServer::new(Behavior::default()).await,
            Person::willing(),
        );
        let audit = Filling(MemoryAudit::new(100), Arc::default());
        let builder = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
        // The person is there after the runtime, and the disk is full before they are.
        let waits = Arc::new(Notify::new());
        let late = Late(person.clone(), Arc::clone(&waits));
        let upstreams = builder.oauth(OAuth::new(LANDING)).requests(late);
        let upstreams = upstreams.start().await.unwrap();
        let builder = Runtime::builder().servers(&upstreams).audit(audit.clone());
        let (_runtime, _grants) = builder.build().await.unwrap();
        audit.1.store(full, Ordering::Relaxed);
        waits.notify_one();
        let ended = if full {
            ServerState::GivenUp
        } else {
            ServerState::Ready
        };
        assert!(upstreams.reached("remote", ended).await);
        assert_eq!(person.asked().len(), 1);
        assert_eq!(server.seen().tokens.is_empty(), full);
    }
}

/// A person who takes their time.
struct Late(Person, Arc<Notify>);

impl ServerRequests for Late {
    fn sign_in(&self, request: SignIn) -> BoxFuture<'_, SignInAnswer> {
        Box::pin(async move {
            self.1.notified().await;
            self.0.sign_in(request).await
        })
    }
}

/// What is kept, by server.
#[derive(Clone, Default)]
struct Keychain(Arc<Mutex<HashMap<String, String>>>);

impl TokenStore for Keychain {
    fn load(&self, server: String) -> BoxFuture<'_, Option<String>> {
        let kept = self.0.lock().unwrap().get(&server).cloned();
        Box::pin(std::future::ready(kept))
    }

    fn save(&self, server: String, kept: Option<String>) -> BoxFuture<'_, ()> {
        let mut all = self.0.lock().unwrap();
        match kept {
            Some(kept) => all.insert(server, kept),
            None => all.remove(&server),
        };
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn stored_credentials_work_only_for_the_same_url() {
    let (server, person) = (
        OAuthServer::new(Behavior::default()).await,
        Person::willing(),
    );
    let keychain = Keychain::default();
    let oauth = || OAuth::new(LANDING).store(keychain.clone());
    let first = signed(&server, oauth(), &person).await;
    let label = first.label("remote").unwrap().to_owned();
    assert_eq!(
        keychain.0.lock().unwrap().keys().collect::<Vec<_>>(),
        [&label]
    );
    first.shutdown().await;
    let second = signed(&server, oauth(), &person).await;
    assert_eq!(second.state("remote"), Some(ServerState::Ready));
    second.shutdown().await;
    // The token was revoked meanwhile, what renews it not.
    server.revoke();
    let third = signed(&server, oauth(), &person).await;
    assert_eq!(third.state("remote"), Some(ServerState::Ready));
    assert_eq!(person.asked().len(), 1);
    let other = OAuthServer::new(Behavior::default()).await;
    let fourth = signed(&other, oauth(), &person).await;
    assert_eq!(fourth.state("remote"), Some(ServerState::Ready));
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test]
async fn stored_credentials_are_separate_for_each_server() {
    let keychain = Keychain::default();
    let servers = [
        OAuthServer::new(Behavior::default()).await,
        OAuthServer::new(Behavior::default()).await,
    ];
    let person = Person::willing();
    let names = ["north", "south"];
    let start = async || {
        let specs = names.iter().zip(&servers);
        let specs = specs.map(|(name, server)| ServerSpec::http(*name, server.url()));
        let builder = Upstreams::builder().servers(specs);
        let builder = builder.oauth(OAuth::new(LANDING).store(keychain.clone()));
        let upstreams = builder.requests(person.clone()).start().await.unwrap();
        for name in names {
            assert!(upstreams.reached(name, ServerState::Ready).await);
        }
        upstreams
    };
    let asked = || {
        let mut asked: Vec<_> = person.asked().into_iter().map(|it| it.server).collect();
        asked.sort();
        asked
    };
    let first = start().await;
    assert_eq!(asked(), names);
    let labels = names.map(|name| first.label(name).unwrap().to_owned());
    first.shutdown().await;
    let kept = keychain.0.lock().unwrap().clone();
    assert_eq!(kept.len(), labels.len());
    for (label, (own, other)) in labels.iter().zip([(0, 1), (1, 0)]) {
        let kept = &kept[label];
        assert!(kept.contains(&servers[own].origin), "{kept}");
        assert!(!kept.contains(&servers[other].origin), "{kept}");
    }
    // One that the host forgets asks again, and the other is let in as before.
    keychain.0.lock().unwrap().remove(&labels[0]);
    start().await.shutdown().await;
    assert_eq!(asked(), ["north", "north", "south"]);
    start().await.shutdown().await;
    assert_eq!(person.asked().len(), 3);
}

#[tokio::test]
async fn registration_survives_a_failure_at_another_authorisation_server() {
    let no_entry = Some(json!({"registration_endpoint": null}));
    let other = OAuthServer::new(Behavior {
        issuer: no_entry,
        ..Behavior::default()
    })
    .await;
    let server = OAuthServer::new(Behavior::default()).await;
    let closing = server.clone();
    let person = Person::new(move |url| {
        closing.change(|behavior| behavior.open = false);
        Some(url)
    });
    let (stage, worker) = used(&server, &person).await;
    // It names another that does not let this host register.
    server.revoke();
    server.change(|behavior| {
        behavior.rejects_refresh = true;
        behavior.resource = Some(json!({"authorization_servers": [other.origin]}));
    });
    let gone = worker.call("remote__look", json!({})).await;
    assert_eq!(code(gone), Code::ServerGone);
    assert!(
        stage
            .upstreams
            .reached("remote", ServerState::GivenUp)
            .await
    );
    assert_eq!(person.asked().len(), 1);
    // It lets everybody in, and wants more of those who are, until a person signs in.
    server.change(|behavior| behavior.open = true);
    stage.upstreams.retry("remote");
    assert!(stage.upstreams.reached("remote", ServerState::Ready).await);
    assert_eq!(
        text(worker.call("remote__change", json!({})).await),
        "change"
    );
    let asked = person.asked();
    let [_, more] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!((more.more, &more.issuer), (true, &server.origin));
    assert!(more.url.starts_with(&server.origin), "{}", more.url);
    assert!(other.seen().authorized.is_empty());
}

/// Everything that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What every thread of every test logs.
static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
});

#[tokio::test]
async fn server_responses_are_not_logged() {
    const CONFIGURED: &str = "configured-s3cr3t";
    let log = LazyLock::force(&LOG);
    for (echo, places) in [
        (
            Echo::Headers,
            ["event", "greeting", "session", "type"].as_slice(),
        ),
        (Echo::Names, &["greeting", "tool", "type"]),
    ] {
        for configured in [false, true] {
            let server = OAuthServer::new(Behavior {
                echo: Some(echo),
                open: configured,
                ..Behavior::default()
            })
            .await;
            let mut spec = ServerSpec::http("remote", server.url());
            if configured {
                spec = spec.header("Authorization", format!("Bearer {CONFIGURED}"));
            }
            let builder = Upstreams::builder().server(spec);
            let builder = builder
                .oauth(OAuth::new(LANDING))
                .requests(Person::willing());
            let upstreams = builder.start().await.unwrap();
            assert!(upstreams.reached("remote", ServerState::Ready).await);
            let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
            let worker = stage.worker(Policy::new()).await;
            let failed = worker.call("remote__look", json!({})).await.unwrap_err();
            if echo == Echo::Headers {
                server.has_echoed("event").await;
            }
            stage.upstreams.shutdown().await;
            let echoed: Vec<_> = server.seen().echoed.iter().copied().collect();
            assert_eq!(echoed, places);
            let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            assert!(!logged.is_empty(), "it logs at all");
            let mut secrets = server.seen().secrets.clone();
            secrets.push(CONFIGURED.to_owned());
            let lines = logged.lines().chain([failed.message()]);
            for line in lines {
                let secret = secrets.iter().find(|secret| line.contains(*secret));
                assert_eq!(secret, None, "{line}");
            }
        }
    }
}

#[tokio::test]
async fn codes_and_tokens_are_not_exposed() {
    let log = LazyLock::force(&LOG);
    let server = OAuthServer::new(Behavior::default()).await;
    let person = Person {
        times: 1,
        ..Person::willing()
    };
    let (stage, worker) = used(&server, &person).await;
    assert_eq!(text(worker.call("remote__look", json!({})).await), "look");
    let refused = worker.call("remote__change", json!({})).await.unwrap_err();
    // A server that echoes the token in every refusal.
    server.change(|behavior| behavior.rejects_all = true);
    let gone = worker.call("remote__look", json!({})).await.unwrap_err();
    assert!(
        stage
            .upstreams
            .reached("remote", ServerState::GivenUp)
            .await
    );
    let audit = stage.lines().await;
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("nobody is signed in"), "it logs at all");
    let texts = format!(
        "{logged}{refused:?}{gone:?}{refused}{gone}{audit:?}{:?}{:?}",
        stage.upstreams,
        person.asked()
    );
    let secrets = server.seen().secrets.clone();
    assert!(secrets.iter().any(|secret| secret.starts_with("access")));
    for secret in secrets {
        assert!(!texts.contains(&secret), "{secret} is exposed: {texts}");
    }
}

#[tokio::test]
async fn browser_is_redirected_to_loopback() {
    struct Host(LoopbackRedirect);
    impl ServerRequests for Host {
        fn sign_in(&self, request: SignIn) -> BoxFuture<'_, SignInAnswer> {
            Box::pin(async move {
                let browser = async {
                    let back = led(&request.url).await;
                    let (at, _) = back.split_once('?').unwrap();
                    let host = at.strip_prefix("http://").unwrap();
                    let (host, _) = host.split_once('/').unwrap();
                    // An idle connection does not block others.
                    let _silent = TcpStream::connect(host).await.unwrap();
                    let strange = opened(&format!("{at}?code=x&state=y")).await;
                    assert!(strange.starts_with("HTTP/1.1 404"), "{strange}");
                    let page = opened(&back).await;
                    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
                };
                tokio::join!(self.0.wait_for_callback(&request), browser).0
            })
        }
    }
    let server = OAuthServer::new(Behavior::default()).await;
    let redirect = LoopbackRedirect::bind().await.unwrap();
    let oauth = OAuth::new(redirect.redirect_uri());
    let builder = Upstreams::builder().server(ServerSpec::http("remote", server.url()));
    let upstreams = builder
        .oauth(oauth)
        .requests(Host(redirect))
        .start()
        .await
        .unwrap();
    assert!(upstreams.reached("remote", ServerState::Ready).await);
}

#[tokio::test]
async fn redirect_uris_must_be_safe() {
    for (redirect_uri, safe) in [
        (LANDING, true),
        ("https://host.example/back", true),
        ("com.example.host:/back", true),
        ("http://host.example/back", false),
        ("https://host.example/back#x", false),
        ("back", false),
    ] {
        let builder = Upstreams::builder().oauth(OAuth::new(redirect_uri));
        let started = builder.start().await.map(|_| ());
        let rejected = Err(SpecError::RedirectUri(redirect_uri.to_owned()));
        assert_eq!(started, if safe { Ok(()) } else { rejected });
    }
}
