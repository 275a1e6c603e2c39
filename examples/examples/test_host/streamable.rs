//! The address of a Streamable HTTP server in, a connection to it out. A message is a POST; its answer is JSON or a stream of events.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::link::{Incoming, Link, understood};

/// The largest answer that is read.
const MOST_BYTES: usize = 64 << 20;
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// What a handshake came to.
#[derive(Default)]
struct Meeting {
    session: Option<String>,
    revision: Option<String>,
}

struct Post {
    client: Client,
    url: String,
    bearer: Option<String>,
    meeting: Mutex<Meeting>,
    received: mpsc::Sender<Incoming>,
}

/// Connects nobody yet: the first message does.
pub(crate) fn open(url: &str, bearer: Option<&str>) -> Link {
    let (mut link, mut sent, received) = Link::new();
    let post = Arc::new(Post {
        client: Client::new(),
        url: url.to_owned(),
        bearer: bearer.map(str::to_owned),
        meeting: Mutex::default(),
        received,
    });
    link.tasks.spawn(async move {
        let mut posts = JoinSet::new();
        while let Some(message) = sent.recv().await {
            let post = Arc::clone(&post);
            posts.spawn(async move { post.message(message).await });
            while posts.try_join_next().is_some() {}
        }
        post.leave().await;
    });
    link
}

impl Post {
    async fn message(&self, message: Value) {
        let id = message.get("id").cloned().unwrap_or_default();
        if let Err(reason) = self.posted(&message).await {
            self.tell(Incoming::Failed { id, reason }).await;
        }
    }

    async fn posted(&self, message: &Value) -> Result<(), String> {
        let request = self
            .stamped(self.client.post(&self.url), message)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(message.to_string());
        let mut response = request.send().await.map_err(|error| told(&error))?;
        self.note_session(&response);
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/event-stream") {
            return self.events(&mut response).await;
        }
        let is_json = kind.starts_with("application/json");
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| told(&error))? {
            body.extend_from_slice(&piece);
            if body.len() > MOST_BYTES {
                return Err("the answer is too long".to_owned());
            }
        }
        if is_json {
            self.heard(&body).await;
        } else if !status.is_success() {
            let text = String::from_utf8_lossy(&body);
            return Err(format!("the server answered {status} {}", text.trim()));
        }
        Ok(())
    }

    /// What the transport wants said outside of the message.
    fn stamped(&self, mut request: RequestBuilder, message: &Value) -> RequestBuilder {
        if let Some(bearer) = &self.bearer {
            request = request.bearer_auth(bearer);
        }
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let stateless = message.pointer("/params/_meta");
        let stateless = stateless.and_then(|meta| meta.get(VERSION)?.as_str());
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
        let meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &meeting.session {
            request = request.header("Mcp-Session-Id", session);
        }
        match &meeting.revision {
            Some(revision) => request.header("MCP-Protocol-Version", revision),
            None => request,
        }
    }

    fn note_session(&self, response: &Response) {
        let session = response.headers().get("mcp-session-id");
        if let Some(session) = session.and_then(|session| session.to_str().ok()) {
            let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
            meeting.session = Some(session.to_owned());
        }
    }

    async fn events(&self, response: &mut Response) -> Result<(), String> {
        let mut text = Vec::new();
        let mut data: Vec<u8> = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| told(&error))? {
            text.extend_from_slice(&piece);
            if text.len() + data.len() > MOST_BYTES {
                return Err("an event is too long".to_owned());
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let line = line.trim_ascii_end();
                if let Some(more) = line.strip_prefix(b"data:") {
                    data.extend_from_slice(more);
                    data.push(b'\n');
                } else if line.is_empty() {
                    self.heard(&std::mem::take(&mut data)).await;
                }
            }
        }
        self.heard(&data).await;
        Ok(())
    }

    async fn heard(&self, text: &[u8]) {
        if text.trim_ascii().is_empty() {
            return;
        }
        let incoming = understood(text);
        if let Incoming::Message(message) = &incoming {
            let revision = message.pointer("/result/protocolVersion");
            if let Some(revision) = revision.and_then(Value::as_str) {
                let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
                meeting.revision = Some(revision.to_owned());
            }
        }
        self.tell(incoming).await;
    }

    async fn tell(&self, incoming: Incoming) {
        // Nobody listens any more if it fails.
        let _ = self.received.send(incoming).await;
    }

    /// Ends the session, if there is one; a server may refuse that.
    async fn leave(&self) {
        let has_session = {
            let meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
            meeting.session.is_some()
        };
        if has_session {
            let request = self.stamped(self.client.delete(&self.url), &Value::Null);
            let _ = request.send().await;
        }
    }
}

/// An error with its causes: reqwest's own words leave them out.
fn told(error: &reqwest::Error) -> String {
    let mut told = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        told.push_str(": ");
        told.push_str(&inner.to_string());
        cause = inner.source();
    }
    told
}
