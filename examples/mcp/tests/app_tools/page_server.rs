//! Tests of the page server: authorization and message forwarding.

use bailiwick::{Policy, Runtime, WorkerSpec};
use bailiwick_mcp::view::{DenyView, View, ViewHost, ViewSpec, ViewState};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use reqwest::{Client, StatusCode};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message, http};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::TIMEOUT;
use crate::scenario::page_server::{self, PageServer};

type Socket = WebSocketStream<TcpStream>;

/// How many messages go each way, and how many of them wait at most: a view holds few hundreds.
const MANY: u64 = 1000;
const AT_ONCE: u64 = 100;

/// A page, its view and the server to it; they end with the runtime.
pub(crate) async fn opened(host: impl ViewHost, html: &str) -> (Runtime, View, PageServer) {
    let (runtime, _people) = Runtime::builder().build().await.unwrap();
    let spec = WorkerSpec::new("guide").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let opened = View::open(&worker, ViewSpec::new("page"), host).await;
    let (view, link) = opened.unwrap();
    let server = page_server::serve(link, html.to_owned()).await.unwrap();
    (runtime, view, server)
}

/// What a page knows of its server.
struct Page {
    authority: String,
    token: String,
}

impl Page {
    fn of(server: &PageServer) -> Self {
        let known = server.url.strip_prefix("http://").unwrap();
        let (authority, token) = known.split_once("/#").unwrap();
        Self {
            authority: authority.to_owned(),
            token: token.to_owned(),
        }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// What a browser asks by; these headers stand in place of its own, and those without a value are left out.
    async fn asks(&self, other: &[(http::HeaderName, Option<&str>)]) -> Result<Socket, Error> {
        let address = format!("ws://{}/api/guest", self.authority);
        let mut request = address.into_client_request()?;
        let headers = request.headers_mut();
        let shown = format!("bailiwick, {}", self.token);
        let (origin, shown) = (self.origin().parse().unwrap(), shown.parse().unwrap());
        headers.insert(ORIGIN, origin);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, shown);
        for (name, value) in other {
            match value {
                Some(value) => headers.insert(name, value.parse().unwrap()),
                None => headers.remove(name),
            };
        }
        let stream = TcpStream::connect(&self.authority).await?;
        let (socket, answer) = client_async(request, stream).await?;
        // The token is not repeated.
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "bailiwick");
        Ok(socket)
    }

    async fn socket(&self) -> Socket {
        self.asks(&[]).await.unwrap()
    }

    async fn refused(&self, other: &[(http::HeaderName, Option<&str>)]) -> StatusCode {
        match self.asks(other).await {
            Err(Error::Http(answer)) => answer.status(),
            other => panic!("no answer of HTTP: {other:?}"),
        }
    }
}

fn ping(id: u64) -> Message {
    let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    Message::text(ping.to_string())
}

/// The id of the next answer.
async fn answered(socket: &mut Socket) -> Value {
    let message = socket.next().await.unwrap().unwrap();
    let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
    message.get("id").unwrap().clone()
}

/// Waits for the end of a view.
async fn closed(view: &View) {
    let closed = view.reached(ViewState::Closed);
    assert!(tokio::time::timeout(TIMEOUT, closed).await.unwrap());
}

/// Waits for the end of a socket that nothing comes from any more but that.
async fn ended(mut socket: Socket) {
    let ended = async {
        while let Some(Ok(message)) = socket.next().await {
            assert!(message.is_close(), "{message:?}");
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.unwrap();
}

#[tokio::test]
async fn view_content_requires_token_host_and_origin() {
    let (_runtime, _view, server) = opened(DenyView, "<p>A page</p>").await;
    let page = Page::of(&server);
    let request = || Client::new().post(format!("{}/api/page", page.origin()));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(request()).await, StatusCode::UNAUTHORIZED);
    let wrong = request().bearer_auth("wrong");
    assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED);
    let trusted = || request().bearer_auth(&page.token);
    for (name, value) in [(ORIGIN, "http://evil.test"), (HOST, "evil.test")] {
        let elsewhere = trusted().header(name, value);
        assert_eq!(status(elsewhere).await, StatusCode::FORBIDDEN, "{value}");
    }
    let shown = trusted().send().await.unwrap();
    assert_eq!(shown.text().await.unwrap(), "<p>A page</p>");
}

#[tokio::test]
async fn socket_requires_token_host_and_origin() {
    let (_runtime, _view, server) = opened(DenyView, "").await;
    let page = Page::of(&server);
    for (name, value) in [
        (ORIGIN, None),
        (ORIGIN, Some("http://evil.test")),
        (ORIGIN, Some("null")),
        (HOST, Some("evil.test")),
    ] {
        let refused = page.refused(&[(name, value)]).await;
        assert_eq!(refused, StatusCode::FORBIDDEN, "{value:?}");
    }
    let token = &page.token;
    for shown in [
        "bailiwick",
        "bailiwick, ",
        "bailiwick, wrong",
        token,
        &format!("bailiwick, {token}0"),
        &format!("bailiwick, {}", &token.replace(['0', '1', '2', '3'], "4")),
        &format!("other, {token}"),
    ] {
        let shown = [(SEC_WEBSOCKET_PROTOCOL, Some(shown))];
        let refused = page.refused(&shown).await;
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "{shown:?}");
    }
    // Where a request shows it is not where a socket does.
    let bearer = format!("Bearer {token}");
    let elsewhere = [
        (SEC_WEBSOCKET_PROTOCOL, None),
        (AUTHORIZATION, Some(&*bearer)),
    ];
    assert_eq!(page.refused(&elsewhere).await, StatusCode::UNAUTHORIZED);

    let mut socket = page.socket().await;
    assert_eq!(page.refused(&[]).await, StatusCode::CONFLICT);
    socket.send(ping(1)).await.unwrap();
    assert_eq!(answered(&mut socket).await, 1);
}

#[tokio::test]
async fn messages_are_forwarded_in_order() {
    let (_runtime, _view, server) = opened(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    for id in 0..MANY {
        socket.send(ping(id)).await.unwrap();
        if let Some(first) = id.checked_sub(AT_ONCE) {
            assert_eq!(answered(&mut socket).await, first);
        }
    }
    for id in MANY - AT_ONCE..MANY {
        assert_eq!(answered(&mut socket).await, id);
    }
}

#[tokio::test]
async fn closing_the_view_closes_the_socket() {
    let (_runtime, view, server) = opened(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(answered(&mut socket).await, 1);
    view.close().await;
    ended(socket).await;
}

#[tokio::test]
async fn dropping_the_server_closes_the_view_and_the_socket() {
    let (_runtime, view, server) = opened(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(answered(&mut socket).await, 1);
    drop(server);
    closed(&view).await;
    ended(socket).await;
}

/// The view ends with its socket, and no other comes in its place.
async fn ends_with(last: Message) {
    let (_runtime, view, server) = opened(DenyView, "").await;
    let page = Page::of(&server);
    let mut socket = page.socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(answered(&mut socket).await, 1);
    // What is refused while it is on its way cannot be sent to its end.
    let _ = socket.send(last).await;
    closed(&view).await;
    assert_eq!(page.refused(&[]).await, StatusCode::CONFLICT);
    ended(socket).await;
}

#[tokio::test]
async fn closing_the_socket_closes_the_view() {
    ends_with(Message::Close(None)).await;
}

#[tokio::test]
async fn oversized_message_closes_the_socket() {
    ends_with(Message::text("x".repeat((11 << 20) + 1))).await;
}

#[tokio::test]
async fn binary_message_closes_the_socket() {
    ends_with(Message::binary(b"{}".as_slice())).await;
}

#[tokio::test]
async fn largest_message_is_forwarded() {
    let (_runtime, _view, server) = opened(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    let long = json!({"x": "x".repeat(10 << 20)});
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": long});
    socket.send(Message::text(long.to_string())).await.unwrap();
    assert_eq!(answered(&mut socket).await, 1);
}

#[tokio::test]
async fn messages_for_a_page_that_does_not_read_are_bounded() {
    let (_runtime, view, server) = opened(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "ui/initialize", "params": {}}),
        json!({"jsonrpc": "2.0", "method": "ui/notifications/initialized"}),
    ] {
        socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }
    assert_eq!(answered(&mut socket).await, 1);
    assert!(view.reached(ViewState::Mounted).await);
    // Far more than a view holds, and what lies between it and the page.
    let long = Map::from_iter([("locale".to_owned(), json!("x".repeat(9 << 20)))]);
    for _ in 0..32 {
        view.change_context(long.clone());
        // Whoever would take it all in has the time to.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    closed(&view).await;
}
