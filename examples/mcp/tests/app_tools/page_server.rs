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

/// The number of messages in each direction, and the maximum number in flight. A view queues a few hundred.
const MANY: u64 = 1000;
const AT_ONCE: u64 = 100;

/// Opens a view and serves its page. Both end with the runtime.
pub(crate) async fn open_page(host: impl ViewHost, html: &str) -> (Runtime, View, PageServer) {
    let (runtime, _people) = Runtime::builder().build().await.unwrap();
    let spec = WorkerSpec::new("guide").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let result = View::open(&worker, ViewSpec::new("page"), host).await;
    let (view, link) = result.unwrap();
    let server = page_server::serve(link, html.to_owned()).await.unwrap();
    (runtime, view, server)
}

/// The address of a page server, and its token.
struct Page {
    authority: String,
    token: String,
}

impl Page {
    fn of(server: &PageServer) -> Self {
        let address = server.url.strip_prefix("http://").unwrap();
        let (authority, token) = address.split_once("/#").unwrap();
        Self {
            authority: authority.to_owned(),
            token: token.to_owned(),
        }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.authority)
    }

    /// Opens a WebSocket like a browser. `overrides` replace the headers of a browser; `None` removes a header.
    async fn connect(
        &self,
        overrides: &[(http::HeaderName, Option<&str>)],
    ) -> Result<Socket, Error> {
        let address = format!("ws://{}/api/guest", self.authority);
        let mut request = address.into_client_request()?;
        let headers = request.headers_mut();
        let protocols = format!("bailiwick, {}", self.token);
        let (origin, protocols) = (self.origin().parse().unwrap(), protocols.parse().unwrap());
        headers.insert(ORIGIN, origin);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
        for (name, value) in overrides {
            match value {
                Some(value) => headers.insert(name, value.parse().unwrap()),
                None => headers.remove(name),
            };
        }
        let stream = TcpStream::connect(&self.authority).await?;
        let (socket, response) = client_async(request, stream).await?;
        // The response does not repeat the token.
        assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "bailiwick");
        Ok(socket)
    }

    async fn socket(&self) -> Socket {
        self.connect(&[]).await.unwrap()
    }

    async fn rejection(&self, overrides: &[(http::HeaderName, Option<&str>)]) -> StatusCode {
        match self.connect(overrides).await {
            Err(Error::Http(response)) => response.status(),
            other => panic!("no HTTP response: {other:?}"),
        }
    }
}

fn ping(id: u64) -> Message {
    let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    Message::text(ping.to_string())
}

/// The id of the next response.
async fn response_id(socket: &mut Socket) -> Value {
    let message = socket.next().await.unwrap().unwrap();
    let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
    message.get("id").unwrap().clone()
}

/// Waits until the view is closed.
async fn wait_for_close(view: &View) {
    let closed = view.reached(ViewState::Closed);
    assert!(tokio::time::timeout(TIMEOUT, closed).await.unwrap());
}

/// Waits until the socket ends. The server may send only a close frame before that.
async fn wait_for_end(mut socket: Socket) {
    let ended = async {
        while let Some(Ok(message)) = socket.next().await {
            assert!(message.is_close(), "{message:?}");
        }
    };
    tokio::time::timeout(TIMEOUT, ended).await.unwrap();
}

#[tokio::test]
async fn view_content_requires_token_host_and_origin() {
    let (_runtime, _view, server) = open_page(DenyView, "<p>A page</p>").await;
    let page = Page::of(&server);
    let request = || Client::new().post(format!("{}/api/page", page.origin()));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(request()).await, StatusCode::UNAUTHORIZED);
    let wrong = request().bearer_auth("wrong");
    assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED);
    let trusted = || request().bearer_auth(&page.token);
    for (name, value) in [(ORIGIN, "http://evil.test"), (HOST, "evil.test")] {
        let foreign = trusted().header(name, value);
        assert_eq!(status(foreign).await, StatusCode::FORBIDDEN, "{value}");
    }
    let response = trusted().send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "<p>A page</p>");
}

#[tokio::test]
async fn socket_requires_token_host_and_origin() {
    let (_runtime, _view, server) = open_page(DenyView, "").await;
    let page = Page::of(&server);
    for (name, value) in [
        (ORIGIN, None),
        (ORIGIN, Some("http://evil.test")),
        (ORIGIN, Some("null")),
        (HOST, Some("evil.test")),
    ] {
        let rejection = page.rejection(&[(name, value)]).await;
        assert_eq!(rejection, StatusCode::FORBIDDEN, "{value:?}");
    }
    let token = &page.token;
    for protocols in [
        "bailiwick",
        "bailiwick, ",
        "bailiwick, wrong",
        token,
        &format!("bailiwick, {token}0"),
        &format!("bailiwick, {}", &token.replace(['0', '1', '2', '3'], "4")),
        &format!("other, {token}"),
    ] {
        let headers = [(SEC_WEBSOCKET_PROTOCOL, Some(protocols))];
        let rejection = page.rejection(&headers).await;
        assert_eq!(rejection, StatusCode::UNAUTHORIZED, "{headers:?}");
    }
    // A WebSocket request must have the token in the subprotocol header.
    let bearer = format!("Bearer {token}");
    let in_authorization = [
        (SEC_WEBSOCKET_PROTOCOL, None),
        (AUTHORIZATION, Some(&*bearer)),
    ];
    assert_eq!(
        page.rejection(&in_authorization).await,
        StatusCode::UNAUTHORIZED
    );

    let mut socket = page.socket().await;
    assert_eq!(page.rejection(&[]).await, StatusCode::CONFLICT);
    socket.send(ping(1)).await.unwrap();
    assert_eq!(response_id(&mut socket).await, 1);
}

#[tokio::test]
async fn messages_are_forwarded_in_order() {
    let (_runtime, _view, server) = open_page(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    for id in 0..MANY {
        socket.send(ping(id)).await.unwrap();
        if let Some(first) = id.checked_sub(AT_ONCE) {
            assert_eq!(response_id(&mut socket).await, first);
        }
    }
    for id in MANY - AT_ONCE..MANY {
        assert_eq!(response_id(&mut socket).await, id);
    }
}

#[tokio::test]
async fn closing_the_view_closes_the_socket() {
    let (_runtime, view, server) = open_page(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(response_id(&mut socket).await, 1);
    view.close().await;
    wait_for_end(socket).await;
}

#[tokio::test]
async fn dropping_the_server_closes_the_view_and_the_socket() {
    let (_runtime, view, server) = open_page(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(response_id(&mut socket).await, 1);
    drop(server);
    wait_for_close(&view).await;
    wait_for_end(socket).await;
}

/// Checks that `last` closes the socket and the view, and that no other socket can connect.
async fn ends_with(last: Message) {
    let (_runtime, view, server) = open_page(DenyView, "").await;
    let page = Page::of(&server);
    let mut socket = page.socket().await;
    socket.send(ping(1)).await.unwrap();
    assert_eq!(response_id(&mut socket).await, 1);
    // Sending fails if the server rejects the message before it has received all of it.
    let _ = socket.send(last).await;
    wait_for_close(&view).await;
    assert_eq!(page.rejection(&[]).await, StatusCode::CONFLICT);
    wait_for_end(socket).await;
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
    let (_runtime, _view, server) = open_page(DenyView, "").await;
    let mut socket = Page::of(&server).socket().await;
    let long = json!({"x": "x".repeat(10 << 20)});
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": long});
    socket.send(Message::text(long.to_string())).await.unwrap();
    assert_eq!(response_id(&mut socket).await, 1);
}

#[tokio::test]
async fn messages_for_a_page_that_does_not_read_are_bounded() {
    let (_runtime, view, server) = open_page(DenyView, "").await;
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
    assert_eq!(response_id(&mut socket).await, 1);
    assert!(view.reached(ViewState::Mounted).await);
    // Far more than the view and the connection can buffer.
    let long = Map::from_iter([("locale".to_owned(), json!("x".repeat(9 << 20)))]);
    for _ in 0..32 {
        view.change_context(long.clone());
    }
    wait_for_close(&view).await;
}
