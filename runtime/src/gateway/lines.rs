//! Bytes in, one message a line out and back: stdio, sockets and in-process pipes.
//!
//! Lines are read here and not by the SDK's own transport, so that a line that is too long or no message gets an
//! answer, a notification before the handshake does not end the connection, and results are decorated on their way.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, NumberOrString,
    ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};

use super::decorate::decorate;
use super::unique;

/// How many requests of one client may wait for their answers.
const MAX_OPEN: usize = 256;
/// The longest message a client may send, in bytes.
pub(super) const MAX_LINE: usize = 16 << 20;

/// One message a line, both ways.
pub(super) struct Lines<R, W> {
    reader: BufReader<R>,
    /// What of the present line was read; kept here, since reading may be cancelled between two pieces.
    line: Vec<u8>,
    /// The present line is too long, and the rest of it is dropped.
    dropping: bool,
    /// A request that begins an era was seen; notifications before it are not for us.
    begun: bool,
    writer: Arc<Mutex<W>>,
    limit: usize,
    /// Whether the client can still say something.
    speaks: watch::Sender<bool>,
    /// Requests whose answers were not written yet.
    open: Arc<Open>,
}

/// The ids of requests under way. There is a bound, so that a client that sends without reading fills no memory.
#[derive(Debug, Default)]
struct Open(std::sync::Mutex<HashSet<NumberOrString>>);

impl Open {
    fn ids(&self) -> MutexGuard<'_, HashSet<NumberOrString>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a request unless there are too many.
    fn begin(&self, id: &NumberOrString) -> bool {
        let mut ids = self.ids();
        let room = ids.len() < MAX_OPEN;
        if room {
            ids.insert(id.clone());
        }
        room
    }

    /// The request was answered, or nobody waits for its answer.
    fn end(&self, id: Option<&NumberOrString>) {
        if let Some(id) = id {
            self.ids().remove(id);
        }
    }
}

enum Read {
    Line,
    TooLong,
    End,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(reader: R, writer: W, limit: usize, speaks: watch::Sender<bool>) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            dropping: false,
            begun: false,
            writer: Arc::new(Mutex::new(writer)),
            limit,
            speaks,
            open: Arc::default(),
        }
    }

    /// Reads up to the next line end. May be cancelled at any await without losing a byte.
    async fn read(&mut self) -> io::Result<Read> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                // The last line may lack its end.
                let whole = self.line.is_empty() || self.dropping;
                return Ok(if whole { Read::End } else { Read::Line });
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            let too_long = !self.dropping && self.line.len() + taken > self.limit;
            if too_long {
                self.line.clear();
                self.dropping = true;
            } else if !self.dropping {
                self.line
                    .extend_from_slice(available.get(..taken).unwrap_or_default());
            }
            self.reader.consume(taken);
            match (end, too_long) {
                (_, true) => {
                    self.dropping = end.is_none();
                    return Ok(Read::TooLong);
                }
                (Some(_), false) if self.dropping => self.dropping = false,
                (Some(_), false) => return Ok(Read::Line),
                (None, false) => {}
            }
        }
    }

    /// Answers what is no message at all; a client that cannot be written to will be noticed by the next read.
    async fn refuse(&mut self, id: Option<NumberOrString>, code: ErrorCode, message: String) {
        let error = ErrorData::new(code, message, None);
        let text = serde_json::to_vec(&TxJsonRpcMessage::<RoleServer>::error(error, id));
        if let Ok(text) = text {
            let _ = write(&self.writer, text).await;
        }
    }

    /// The message of the present line; none if it was answered here or needs no answer.
    async fn understood(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        let message = serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(text);
        let message = message.ok().filter(|_| unique::refused(text).is_none());
        let (id, code, reason) = match message {
            None => diagnose(text),
            Some(JsonRpcMessage::Request(request)) if !self.open.begin(&request.id) => {
                let reason = format!("at most {MAX_OPEN} requests may wait for their answers");
                (Some(request.id), ErrorCode::INVALID_REQUEST, reason)
            }
            Some(message) => return self.expected(message),
        };
        self.refuse(id, code, reason).await;
        None
    }

    /// Lets a message through unless it comes before any request did.
    fn expected(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        match message {
            JsonRpcMessage::Request(ref request) => {
                // A probe opens no era: what follows it may still be a handshake.
                self.begun |= !matches!(
                    request.request,
                    ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)
                );
                Some(message)
            }
            JsonRpcMessage::Notification(ref notification) => {
                // A cancelled request gets no answer.
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                {
                    self.open.end(cancelled.params.request_id.as_ref());
                }
                self.begun.then_some(message)
            }
            other => self.begun.then_some(other),
        }
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (writer, open) = (Arc::clone(&self.writer), Arc::clone(&self.open));
        async move {
            let written = write(&writer, encoded(&message)?).await;
            match &message {
                JsonRpcMessage::Response(response) => open.end(Some(&response.id)),
                JsonRpcMessage::Error(error) => open.end(error.id.as_ref()),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            match self.read().await {
                Ok(Read::Line) => {
                    if let Some(message) = self.understood().await {
                        return Some(message);
                    }
                }
                Ok(Read::TooLong) => {
                    let reason = format!("a message has at most {} bytes", self.limit);
                    self.refuse(None, ErrorCode::INVALID_REQUEST, reason).await;
                }
                Ok(Read::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "the client cannot be read from");
                    break;
                }
            }
        }
        self.speaks.send_replace(false);
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.writer.lock().await.shutdown().await
    }
}

/// A message as it goes out, decorated if it is of a kind that can be.
fn encoded(message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
    let plain = match message {
        JsonRpcMessage::Response(response) => !matches!(
            response.result,
            ServerResult::InitializeResult(_)
                | ServerResult::DiscoverResult(_)
                | ServerResult::ListToolsResult(_)
                | ServerResult::ListResourcesResult(_)
        ),
        _ => true,
    };
    if plain {
        return Ok(serde_json::to_vec(message)?);
    }
    let mut value = serde_json::to_value(message)?;
    decorate(&mut value);
    Ok(serde_json::to_vec(&value)?)
}

async fn write<W: AsyncWrite + Unpin>(writer: &Mutex<W>, mut text: Vec<u8>) -> io::Result<()> {
    text.push(b'\n');
    let mut writer = writer.lock().await;
    writer.write_all(&text).await?;
    writer.flush().await
}

/// Why a line is no message, and the id to answer to if it has one.
fn diagnose(text: &[u8]) -> (Option<NumberOrString>, ErrorCode, String) {
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) => {
            return (None, ErrorCode::PARSE_ERROR, format!("no JSON: {error}"));
        }
    };
    let Value::Object(object) = value else {
        let reason = "a message is one JSON object; batches are not served";
        return (None, ErrorCode::INVALID_REQUEST, reason.to_owned());
    };
    let id = object
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    if let Some(error) = unique::refused(text) {
        return (id, error.code, error.message.into_owned());
    }
    let reason = match (object.get("jsonrpc"), object.get("method")) {
        (Some(Value::String(version)), _) if version != "2.0" => "`jsonrpc` must be \"2.0\"",
        (None, _) => "`jsonrpc` must be \"2.0\"",
        (_, None) => "a request has a `method`",
        (_, Some(Value::String(_))) if object.contains_key("id") && id.is_none() => {
            "`id` must be a string or an integer"
        }
        (_, Some(Value::String(_))) => "`params` must be an object",
        (_, Some(_)) => "`method` must be a string",
    };
    (id, ErrorCode::INVALID_REQUEST, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// What comes through of `input`, and what is answered to the rest.
    async fn exchange(input: &[u8], limit: usize) -> (Vec<String>, Vec<Value>) {
        let (near, far) = duplex(1 << 20);
        let mut lines = Lines::new(input, near, limit, watch::Sender::new(true));
        let mut through = Vec::new();
        while let Some(message) = lines.receive().await {
            through.push(serde_json::to_string(&message).unwrap());
        }
        lines.close().await.unwrap();
        drop(lines);
        let mut answers = Vec::new();
        let mut far = BufReader::new(far).lines();
        while let Some(line) = far.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (through, answers)
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_line_is_read() {
        for (bad, code, id) in [
            ("{", -32700, Value::Null),
            ("[]", -32600, Value::Null),
            ("7", -32600, Value::Null),
            (r#"{"id":5,"method":"ping"}"#, -32600, 5.into()),
            (
                r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#,
                -32600,
                5.into(),
            ),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, -32600, "a".into()),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                -32600,
                Value::Null,
            ),
            (r#"{"jsonrpc":"2.0","id":2,"method":7}"#, -32600, 2.into()),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{"policy":{"read_only":true,"read_only":false}}}}"#,
                -32602,
                3.into(),
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"_meta":{"policy":{}},"_meta":{}}}"#,
                -32602,
                4.into(),
            ),
        ] {
            let (through, answers) = exchange(format!("{bad}\n\n{PING}\n").as_bytes(), 1000).await;
            assert_eq!(through.len(), 1, "{bad}");
            assert_eq!(answers.len(), 1, "{bad}");
            assert_eq!(answers[0]["error"]["code"], code, "{bad}");
            assert_eq!(
                answers[0].get("id").cloned().unwrap_or_default(),
                id,
                "{bad}"
            );
        }
    }

    #[tokio::test]
    async fn requests_beyond_the_bound_are_refused_until_others_end() {
        let many: String = (0..=MAX_OPEN)
            .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n"))
            .collect();
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}"#;
        let (through, answers) = exchange(format!("{many}{cancel}\n{PING}").as_bytes(), 1000).await;
        assert_eq!(through.len(), MAX_OPEN + 2, "the last line lacks its end");
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["id"], MAX_OPEN);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_and_dropped_whole() {
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#,
            "x".repeat(20_000)
        );
        let (through, answers) = exchange(format!("{long}\n{PING}\n").as_bytes(), 1000).await;
        assert_eq!((through.len(), answers.len()), (1, 1));
        assert_eq!(answers[0]["error"]["code"], -32600);
        let (through, answers) = exchange(format!("{long}\n{PING}\n").as_bytes(), 30_000).await;
        assert_eq!((through.len(), answers.len()), (2, 0));
    }

    #[tokio::test]
    async fn a_notification_before_a_request_that_opens_an_era_is_passed_over() {
        let early =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let input = format!("{early}\n{PING}\n{early}\n{list}\n{early}\n");
        let (through, answers) = exchange(input.as_bytes(), 1000).await;
        assert_eq!((through.len(), answers.len()), (3, 0));
    }
}
