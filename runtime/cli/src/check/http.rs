//! The Streamable HTTP transport.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{Inbox, ServerError};
use super::transport::MAX_MESSAGE;

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for sending a notification or response.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of quoted characters of an unexpected answer.
const MAX_QUOTED: usize = 200;

/// The result of the handshake.
#[derive(Default)]
struct Negotiated {
    session: Option<HeaderValue>,
    revision: Option<String>,
}

struct Connection {
    client: Client,
    url: Url,
    bearer: Option<String>,
    negotiated: Mutex<Negotiated>,
    inbox: Arc<Inbox>,
}

/// The answer to a POST request.
struct Answer {
    status: StatusCode,
    /// The status, the content type, and the start of an error's body.
    text: String,
}

/// Prepares a connection; the first message opens it.
pub(super) fn open(
    url: &Url,
    bearer: Option<&str>,
    mut to_send: mpsc::Receiver<Value>,
    inbox: Arc<Inbox>,
) -> Result<JoinSet<()>, ServerError> {
    let client = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .build()
        .map_err(|error| ServerError::Http {
            status: None,
            reason: error_chain(&error),
        })?;
    let connection = Arc::new(Connection {
        client,
        url: url.clone(),
        bearer: bearer.map(str::to_owned),
        negotiated: Mutex::default(),
        inbox,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut posts = JoinSet::new();
        while let Some(message) = to_send.recv().await {
            if message.get("id").is_some() && message.get("method").is_some() {
                let connection = Arc::clone(&connection);
                posts.spawn(async move { connection.request(message).await });
                while posts.try_join_next().is_some() {}
            } else {
                // Later messages may depend on it.
                connection.post_notification(&message).await;
            }
        }
        connection.end_session().await;
    });
    Ok(tasks)
}

impl Connection {
    /// Sends a request and forwards the messages of the answer. Without a response, the request has failed.
    async fn request(&self, message: Value) {
        let (status, reason) = match self.post(&message).await {
            Ok(answer) => (
                Some(answer.status.as_u16()),
                format!("{} without a response to the request", answer.text),
            ),
            Err(reason) => (None, reason),
        };
        let id = message.get("id").cloned().unwrap_or_default();
        self.inbox.on_failure(&id, status, &reason);
    }

    /// Sends a notification or a response.
    async fn post_notification(&self, message: &Value) {
        let text = match timeout(ACCEPT_TIMEOUT, self.post(message)).await {
            Ok(Ok(answer)) if answer.status.is_success() => return,
            Ok(answer) => answer.map_or_else(|reason| reason, |answer| answer.text),
            Err(_) => "the server did not answer in time".to_owned(),
        };
        let method = message.get("method").and_then(Value::as_str);
        let fault = format!("`{}` was not accepted", method.unwrap_or("a response"));
        self.inbox.log().invalid(text, fault);
    }

    /// Posts a message and forwards the messages of the answer.
    async fn post(&self, message: &Value) -> Result<Answer, String> {
        let request = self
            .headers(self.client.post(self.url.clone()), message)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(message.to_string());
        let mut response = request.send().await.map_err(|error| error_chain(&error))?;
        self.note_session(&response);
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        if kind == "text/event-stream" {
            self.read_events(&mut response).await?;
            return Ok(Answer {
                status,
                text: format!("the server answered HTTP {status} and a stream"),
            });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| error_chain(&error))?
        {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_MESSAGE {
                return Err(format!("the answer has more than {MAX_MESSAGE} bytes"));
            }
        }
        if kind == "application/json" {
            self.forward(&body);
        }
        let mut text = format!("the server answered HTTP {status}");
        if !kind.is_empty() {
            text += &format!(" and {kind}");
        }
        if !status.is_success() && !body.trim_ascii().is_empty() {
            let body = String::from_utf8_lossy(&body);
            let quoted: String = body.trim().chars().take(MAX_QUOTED).collect();
            text += &format!(" (`{quoted}`)");
        }
        Ok(Answer { status, text })
    }

    /// Adds the headers of the transport.
    fn headers(&self, mut request: RequestBuilder, message: &Value) -> RequestBuilder {
        if let Some(bearer) = &self.bearer {
            request = request.bearer_auth(bearer);
        }
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let meta = message.pointer("/params/_meta");
        let stateless = meta.and_then(|meta| meta.get(PROTOCOL_VERSION)?.as_str());
        if let Some(revision) = stateless {
            let method = text("/method").unwrap_or_default();
            request = request
                .header("MCP-Protocol-Version", revision)
                .header("Mcp-Method", method);
            let name = match method {
                "tools/call" | "prompts/get" => text("/params/name"),
                "resources/read" => text("/params/uri"),
                _ => None,
            };
            return match name {
                Some(name) => request.header("Mcp-Name", name),
                None => request,
            };
        }
        let negotiated = self.negotiated();
        if let Some(session) = &negotiated.session {
            request = request.header("Mcp-Session-Id", session);
        }
        match &negotiated.revision {
            Some(revision) => request.header("MCP-Protocol-Version", revision),
            None => request,
        }
    }

    fn note_session(&self, response: &Response) {
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.negotiated().session = Some(session.clone());
        }
    }

    async fn read_events(&self, response: &mut Response) -> Result<(), String> {
        let mut events = Events::default();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| error_chain(&error))?
        {
            for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                if let Some(data) = events.read(part)? {
                    self.forward(&data);
                }
            }
        }
        Ok(())
    }

    fn forward(&self, text: &[u8]) {
        if text.trim_ascii().is_empty() {
            return;
        }
        let message: Value = match serde_json::from_slice(text) {
            Ok(message) => message,
            Err(error) => return self.inbox.on_invalid(text, &error),
        };
        let revision = message.pointer("/result/protocolVersion");
        if let Some(revision) = revision.and_then(Value::as_str) {
            self.negotiated().revision = Some(revision.to_owned());
        }
        self.inbox.on_message(message);
    }

    /// Ends the session, if any. Servers may not support that.
    async fn end_session(&self) {
        if self.negotiated().session.is_some() {
            let request = self.headers(self.client.delete(self.url.clone()), &Value::Null);
            let _ = request.send().await;
        }
    }

    fn negotiated(&self) -> MutexGuard<'_, Negotiated> {
        self.negotiated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A parser of server-sent events.
#[derive(Default)]
struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    /// Reads a part of a line, including its line break; returns the data of a completed event.
    fn read(&mut self, part: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if self.line.len() + self.data.len() + part.len() > MAX_MESSAGE {
            return Err(format!("an event has more than {MAX_MESSAGE} bytes"));
        }
        self.line.extend_from_slice(part);
        let Some(line) = self.line.strip_suffix(b"\n") else {
            return Ok(None);
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let complete = line.is_empty();
        if let Some(data) = line.strip_prefix(b"data:") {
            self.data.extend_from_slice(data);
            self.data.push(b'\n');
        }
        self.line.clear();
        Ok(complete.then(|| std::mem::take(&mut self.data)))
    }
}

/// An error with its causes, which reqwest leaves out of its message.
fn error_chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_can_be_split_anywhere() {
        let text =
            b": comment\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nid: 1\ndata:{}\n\n";
        for size in 1..text.len() {
            let mut events = Events::default();
            let mut found = Vec::new();
            for chunk in text.chunks(size) {
                for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                    found.extend(events.read(part).unwrap());
                }
            }
            let expected = [b" {\"a\":\n 1}\n".to_vec(), b"{}\n".to_vec()];
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn event_size_is_bounded() {
        let part = vec![b'x'; MAX_MESSAGE / 2];
        let mut events = Events::default();
        assert_eq!(events.read(&part), Ok(None));
        assert_eq!(events.read(&part), Ok(None));
        assert!(events.read(b"x").is_err());
    }
}
