//! Transport with one message per line: stdio, sockets and in-process pipes.
//!
//! rmcp polls [`LineTransport::receive`] in a `select!` and drops the future when another branch is ready. So all
//! progress is kept in [`LineTransport`], and every wait can be repeated: for the next byte, for queue space, and for
//! the remaining answers.
//!
//! The requests of a batch are handled like others; their answers are collected and sent as one array.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, JsonRpcMessage, NumberOrString, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decorate::Decorator;
use super::direct::DirectRequests;
use super::message::{self, IdScanner, Parsed, RejectedMessage};
use super::outgoing::{OutgoingQueue, QueuePermit};
use super::requests::{Batch, OpenRequests};

/// Maximum size of a message, in bytes.
pub(super) const MAX_LINE: usize = 16 << 20;

/// Messages of at least this size are parsed on a blocking thread.
pub(super) const LONG_MESSAGE: usize = 64 << 10;

/// Bytes that are read at once: as many as a pipe holds.
const READ_BUFFER: usize = 64 << 10;

/// How long to wait for the next answer after the end of input; longer than a call of a file tool may take. Commands and
/// questions that take longer are cancelled.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);

/// How long to wait for the answers to cancelled requests.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

/// Transport with one message per line.
pub(super) struct LineTransport<R> {
    reader: BufReader<R>,
    /// Bytes of the current line.
    line: Vec<u8>,
    /// Scanner for the id of the current line, which is too long and not stored.
    dropped: Option<IdScanner>,
    /// The last line, if a blocking thread parses it.
    parse_task: Option<JoinHandle<Parsed>>,
    /// Accepted messages of the last line.
    queue: VecDeque<RxJsonRpcMessage<RoleServer>>,
    /// Rejection of the last line, until there is queue space.
    rejection: Option<Vec<u8>>,
    /// No more input is read.
    ended: bool,
    /// A request that starts a session was seen; notifications before it are ignored.
    session_started: bool,
    outgoing: OutgoingQueue,
    limit: usize,
    /// Whether the client may send more input.
    input_open: watch::Sender<bool>,
    /// Cancelled when the connection must end.
    stop: CancellationToken,
    open: OpenRequests,
    /// When the wait for the answers to cancelled requests ends. When the server sends a notification, rmcp drops the future of
    /// `receive` and calls `receive` again, which must not restart the timeouts.
    cancelled_until: Option<Instant>,
    direct: Option<DirectRequests>,
    decorator: Decorator,
}

enum LineRead {
    Line,
    TooLong(IdScanner),
    End,
}

impl<R: AsyncRead + Send + Unpin> LineTransport<R> {
    pub(super) fn new(
        reader: R,
        outgoing: OutgoingQueue,
        limit: usize,
        input_open: watch::Sender<bool>,
        stop: CancellationToken,
        direct: Option<DirectRequests>,
        decorator: Decorator,
    ) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_BUFFER, reader),
            line: Vec::new(),
            dropped: None,
            parse_task: None,
            queue: VecDeque::new(),
            rejection: None,
            ended: false,
            session_started: false,
            outgoing,
            limit,
            input_open,
            stop,
            open: OpenRequests::default(),
            cancelled_until: None,
            direct,
            decorator,
        }
    }

    /// Reads up to the next line end. Cancel safe.
    async fn read_line(&mut self) -> io::Result<LineRead> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                // The last line may have no line end.
                return Ok(match self.dropped.take() {
                    Some(ids) => LineRead::TooLong(ids),
                    None if self.line.is_empty() => LineRead::End,
                    None => LineRead::Line,
                });
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            if self.dropped.is_none() && self.line.len() + taken > self.limit {
                let mut ids = IdScanner::default();
                ids.feed(&std::mem::take(&mut self.line));
                self.dropped = Some(ids);
            }
            let read = available.get(..taken).unwrap_or_default();
            match &mut self.dropped {
                Some(ids) => ids.feed(read),
                None => self.line.extend_from_slice(read),
            }
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(self
                    .dropped
                    .take()
                    .map_or(LineRead::Line, LineRead::TooLong));
            }
        }
    }

    /// The next line; the end if the client no longer reads answers or the connection must end.
    async fn next_line(&mut self) -> io::Result<LineRead> {
        let (outgoing, stop) = (self.outgoing.clone(), self.stop.clone());
        tokio::select! {
            biased;
            () = outgoing.closed() => Ok(LineRead::End),
            () = stop.cancelled() => Ok(LineRead::End),
            read = self.read_line() => read,
        }
    }

    /// The id of a rejected message. That of an open request is omitted, since its answer is still pending.
    fn answerable_id(&self, rejected: &RejectedMessage) -> Option<NumberOrString> {
        let id = rejected.id.as_ref().filter(|id| !self.open.is_open(id));
        id.cloned()
    }

    /// The error for a rejected message.
    fn encode_error(&self, mut rejected: RejectedMessage) -> Vec<u8> {
        tracing::debug!(error = %rejected.error.message, "refused a message");
        rejected.id = self.answerable_id(&rejected);
        rejected.encode()
    }

    /// Parses the current line, on a blocking thread if it is long.
    fn parse(&mut self) {
        let line = std::mem::take(&mut self.line);
        let (batches, direct) = (self.open.batches(), self.direct.is_some());
        if line.len() >= LONG_MESSAGE {
            let parse = move || message::read(line.trim_ascii(), batches, direct);
            self.parse_task = Some(tokio::task::spawn_blocking(parse));
        } else if !line.trim_ascii().is_empty() {
            self.accept(message::read(line.trim_ascii(), batches, direct));
        }
    }

    /// Queues the accepted messages of the last line, and the rejection of the others.
    fn accept(&mut self, parsed: Parsed) {
        let Parsed { messages, is_batch } = parsed;
        let batch = is_batch.then(|| Batch::new(&self.open));
        for message in messages {
            match (self.admit(message, batch.as_ref()), &batch) {
                (Ok(message), _) => self.queue.extend(message),
                (Err(rejected), None) => self.rejection = Some(self.encode_error(rejected)),
                (Err(rejected), Some(batch)) => {
                    let id = self.answerable_id(&rejected);
                    batch.add(id, self.encode_error(rejected));
                }
            }
        }
        if let Some(mut answers) = batch.and_then(|batch| batch.whole()) {
            self.rejection = answers.take_array();
        }
    }

    /// A message to handle; `None` if it is ignored.
    fn admit(
        &mut self,
        message: message::Message,
        batch: Option<&Batch>,
    ) -> Result<Option<RxJsonRpcMessage<RoleServer>>, RejectedMessage> {
        let mut message = message?;
        if let JsonRpcMessage::Request(request) = &mut message {
            self.open.begin(request, batch)?;
            // Probes do not start a session, so a handshake may still follow.
            self.session_started |= !matches!(
                request.request,
                ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)
            );
        }
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let passes = self.open.on_message(&message) && self.session_started || is_request;
        Ok(passes.then_some(message))
    }

    /// Waits for the answers to open requests. Cancels them if the connection must end, the client no longer reads, or
    /// no answer comes in time.
    async fn drain(&mut self) {
        self.open.stop_listening();
        let all_answered = self.cancelled_until.is_none() && self.next_answers().await;
        if !all_answered {
            self.open.stop_all();
            let until = Instant::now() + CANCEL_TIMEOUT;
            let until = *self.cancelled_until.get_or_insert(until);
            // Requests that remain are answered when the transport closes.
            let _ = tokio::time::timeout_at(until, self.open.all_answered()).await;
        }
    }

    /// Waits until all requests are answered; false if they must be cancelled.
    async fn next_answers(&mut self) -> bool {
        loop {
            let until = self.open.last_release() + DRAIN_TIMEOUT;
            tokio::select! {
                answered = self.open.next_answered() => {
                    if !answered {
                        return true;
                    }
                }
                () = self.stop.cancelled() => return false,
                () = self.outgoing.closed() => return false,
                () = tokio::time::sleep_until(until) => {
                    if self.open.last_release() + DRAIN_TIMEOUT <= until {
                        return false;
                    }
                }
            }
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, open) = (self.outgoing.clone(), self.open.clone());
        let decorator = self.decorator.clone();
        async move {
            let text = encode_decorated(&decorator, &message);
            let id = open.answered(&message);
            drop(message);
            send_encoded(id, text, outgoing, open).await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(rejection) = &self.rejection {
                // A client that reads no rejections must not prevent the end.
                let permit = tokio::select! {
                    biased;
                    permit = self.outgoing.reserve_for_rejection(rejection.len()) => permit.ok(),
                    () = self.stop.cancelled() => None,
                };
                match (self.rejection.take(), permit) {
                    (Some(rejection), Some(permit)) => {
                        self.ended |= self.outgoing.send(rejection, permit).is_err();
                    }
                    _ => self.ended = true,
                }
            }
            if let Some(message) = self.queue.pop_front() {
                let rest = match &mut self.direct {
                    Some(direct) => direct.begin(message, &self.outgoing, &self.open),
                    None => Some(message),
                };
                match rest {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            if let Some(parse_task) = &mut self.parse_task {
                let parsed = parse_task.await;
                self.parse_task = None;
                // The task does not panic and is never aborted.
                if let Ok(parsed) = parsed {
                    self.accept(parsed);
                }
                continue;
            }
            if self.ended {
                self.input_open.send_replace(false);
                self.drain().await;
                return None;
            }
            match self.next_line().await {
                Ok(LineRead::Line) => self.parse(),
                Ok(LineRead::TooLong(ids)) => {
                    let rejected = RejectedMessage::too_long(&ids, self.limit);
                    self.rejection = Some(self.encode_error(rejected));
                }
                Ok(LineRead::End) => self.ended = true,
                Err(error) => {
                    tracing::warn!(%error, "the client cannot be read from");
                    self.ended = true;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        for (id, request) in self.open.take_all() {
            let reason = "the connection ended before the request did";
            let error = ErrorData::internal_error(reason, None);
            let error = RejectedMessage::new(Some(id.clone()), error).encode();
            let Some(text) = request.fail(id, error) else {
                continue;
            };
            let permit = self.outgoing.reserve_for_rejection(text.len());
            let permit = tokio::time::timeout(CANCEL_TIMEOUT, permit).await;
            self.outgoing
                .send(text, permit.map_err(io::Error::from)??)?;
        }
        Ok(())
    }
}

/// Serializes a message, and adds its extension data if it is of a kind that has some.
fn encode_decorated(
    decorator: &Decorator,
    message: &TxJsonRpcMessage<RoleServer>,
) -> io::Result<Vec<u8>> {
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
        return encode(message);
    }
    Ok(decorator.encode(serde_json::to_value(message)?)?)
}

/// Serializes a message that has no extension data.
pub(super) fn encode(message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(message)?)
}

/// Sends a message that has no extension data. If it answers a request that was cancelled or has been answered, it is not
/// sent.
pub(super) fn send(
    message: TxJsonRpcMessage<RoleServer>,
    outgoing: OutgoingQueue,
    open: OpenRequests,
) -> impl Future<Output = io::Result<()>> {
    let text = encode(&message);
    let id = open.answered(&message);
    // A long answer that waits for queue space must not be kept twice.
    drop(message);
    send_encoded(id, text, outgoing, open)
}

/// Sends a message; `id` is that of the request that it answers.
async fn send_encoded(
    id: Option<NumberOrString>,
    text: io::Result<Vec<u8>>,
    outgoing: OutgoingQueue,
    open: OpenRequests,
) -> io::Result<()> {
    if let Some(id) = id.as_ref().filter(|id| open.is_batched(id)) {
        return end_batched(id, text, &outgoing, &open).await;
    }
    let bytes = text.as_ref().map_or(0, Vec::len);
    let permit = outgoing.reserve(bytes).await?;
    match id {
        Some(id) => end(&id, text, permit, &outgoing, &open),
        None => outgoing.send(text?, permit),
    }
}

/// Collects the answer to a request of a batch, and sends the array of answers once none is pending.
pub(super) async fn end_batched(
    id: &NumberOrString,
    text: io::Result<Vec<u8>>,
    outgoing: &OutgoingQueue,
    open: &OpenRequests,
) -> io::Result<()> {
    // Collected answers occupy no queue space; those of a finished batch wait for it together.
    let Some(mut answers) = open.end_batched(id, text.ok()) else {
        return Ok(());
    };
    let Some(text) = answers.take_array() else {
        return Ok(());
    };
    let permit = outgoing.reserve(text.len()).await?;
    outgoing.send(text, permit)
}

/// Sends the answer to a request that is not in a batch.
pub(super) fn end(
    id: &NumberOrString,
    text: io::Result<Vec<u8>>,
    permit: QueuePermit,
    outgoing: &OutgoingQueue,
    open: &OpenRequests,
) -> io::Result<()> {
    // The id is released before the client can read the answer.
    match open.end_id(id) {
        Some(request) if !request.cancelled => outgoing.send(text?, permit),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;
    use serde_json::{Value, json};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    use super::super::outgoing::WriterTask;
    use super::super::requests::{MAX_COLLECTED_BYTES, MAX_OPEN};

    /// A transport, and the task that writes its output.
    fn lines<R: AsyncRead + Send + Unpin>(
        input: R,
        output: DuplexStream,
        limit: usize,
    ) -> (LineTransport<R>, WriterTask) {
        let (outgoing, writer_task) = OutgoingQueue::new(output);
        let (input_open, stop) = (watch::Sender::new(true), CancellationToken::new());
        let lines = LineTransport::new(
            input,
            outgoing,
            limit,
            input_open,
            stop,
            None,
            Decorator::default(),
        );
        (lines, writer_task)
    }

    /// The accepted messages of `input`, and the answers to the others.
    async fn exchange(input: &[u8], limit: usize) -> (Vec<String>, Vec<Value>) {
        let (near, far) = duplex(1 << 20);
        let (mut lines, writer_task) = lines(input, near, limit);
        let mut through = Vec::new();
        while let Some(message) = lines.receive().await {
            through.push(serde_json::to_string(&message).unwrap());
        }
        drop(lines);
        writer_task.wait().await;
        let mut answers = Vec::new();
        let mut far = BufReader::new(far).lines();
        while let Some(line) = far.next_line().await.unwrap() {
            answers.push(serde_json::from_str(&line).unwrap());
        }
        (through, answers)
    }

    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    /// Repeats the wait for the last answers after each `part`, as rmcp does after each notification, until it ends.
    async fn drain_in_parts<R: AsyncRead + Send + Unpin>(
        lines: &mut LineTransport<R>,
        part: Duration,
        mut after: impl FnMut(Duration),
    ) -> Duration {
        let begun = Instant::now();
        while tokio::time::timeout(part, lines.receive()).await.is_err() {
            after(begun.elapsed());
            assert!(begun.elapsed() < 10 * DRAIN_TIMEOUT);
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_receive_does_not_restart_the_drain_timeout() {
        for part in [Duration::from_secs(1), DRAIN_TIMEOUT / 2] {
            let (near, _far) = duplex(1 << 20);
            let (mut lines, _writer_task) = lines(PING.as_bytes(), near, MAX_LINE);
            assert!(lines.receive().await.is_some());
            let time = drain_in_parts(&mut lines, part, |_| {}).await;
            assert!(time >= DRAIN_TIMEOUT);
            assert!(time <= DRAIN_TIMEOUT + CANCEL_TIMEOUT + part);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answer_extends_the_drain_timeout_across_repeated_receives() {
        let (near, _far) = duplex(1 << 20);
        let input = format!("{PING}\n{}", PING.replace(":1,", ":2,"));
        let (mut lines, _writer_task) = lines(input.as_bytes(), near, MAX_LINE);
        assert!(lines.receive().await.is_some() && lines.receive().await.is_some());
        let (open, part) = (lines.open.clone(), DRAIN_TIMEOUT / 2);
        // The first request is answered while no wait runs.
        let answer = |elapsed| {
            if elapsed == part {
                open.end_id(&NumberOrString::Number(1));
            }
        };
        let time = drain_in_parts(&mut lines, part, answer).await;
        assert!(time >= part + DRAIN_TIMEOUT);
        assert!(time <= part + DRAIN_TIMEOUT + CANCEL_TIMEOUT + part);
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_message_is_answered_and_the_next_line_is_read() {
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

    /// Polls once and drops the future, like a `select!` whose other branch is ready.
    async fn dropped<F: Future>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }

    fn answer(id: i64) -> TxJsonRpcMessage<RoleServer> {
        JsonRpcMessage::response(ServerResult::empty(()), NumberOrString::Number(id))
    }

    async fn read(far: &mut tokio::io::Lines<BufReader<DuplexStream>>) -> Value {
        serde_json::from_str(&far.next_line().await.unwrap().unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_are_rejected() {
        let request =
            |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/list\"}}\n");
        let many: String = (0..=MAX_OPEN).map(request).collect();
        let (near, far) = duplex(1 << 20);
        let mut far = BufReader::new(far).lines();
        let (mut client, server) = duplex(1 << 20);
        let (mut lines, _writer_task) = lines(server, near, 1000);
        client.write_all(many.as_bytes()).await.unwrap();
        client.write_all(request(0).as_bytes()).await.unwrap();
        for _ in 0..MAX_OPEN {
            assert!(lines.receive().await.is_some());
        }
        assert!(dropped(lines.receive()).await.is_none());
        lines.send(answer(0)).await.unwrap();
        client.write_all(request(1000).as_bytes()).await.unwrap();
        assert!(lines.receive().await.is_some());
        let mut received = [
            read(&mut far).await,
            read(&mut far).await,
            read(&mut far).await,
        ];
        received.sort_by_key(|message| message["id"].as_u64());
        assert!(received[0].get("id").is_none() && received[0]["error"].is_object());
        assert_eq!(received[1]["result"], serde_json::json!({}));
        assert_eq!(received[2]["id"], MAX_OPEN);
        assert_eq!(received[2]["error"]["data"]["code"], "BUSY");
    }

    #[tokio::test(start_paused = true)]
    async fn unsent_answers_of_batches_count_as_open_requests() {
        let (near, _far) = duplex(1 << 20);
        let (_client, server) = duplex(64);
        let (mut lines, _writer_task) = lines(server, near, 1000);
        let space = lines.outgoing.reserve(1 << 20).await.unwrap();
        let batch = || message::read(format!("[{PING}]").as_bytes(), true, true);
        let mut unsent = Vec::new();
        for _ in 0..MAX_OPEN {
            lines.accept(batch());
            assert!(lines.queue.pop_front().is_some());
            let mut sent = Box::pin(lines.send(answer(1)));
            assert!(dropped(sent.as_mut()).await.is_none());
            unsent.push(sent);
        }
        lines.accept(batch());
        assert!(lines.queue.is_empty() && lines.rejection.is_some());
        drop(space);
        for sent in unsent {
            sent.await.unwrap();
        }
        lines.accept(batch());
        assert!(lines.queue.pop_front().is_some());
    }

    /// A batch of pings with these ids.
    fn batch(ids: std::ops::Range<i64>) -> Parsed {
        let pings: Vec<_> = ids
            .map(|id| PING.replace(":1,", &format!(":{id},")))
            .collect();
        message::read(format!("[{}]", pings.join(",")).as_bytes(), true, true)
    }

    #[tokio::test(start_paused = true)]
    async fn collected_answers_count_as_open_requests_until_their_batch_is_sent() {
        let (near, _far) = duplex(1 << 20);
        let (_client, server) = duplex(64);
        let (mut lines, _writer_task) = lines(server, near, 1000);
        let firsts = [0, 100, 200];
        for first in firsts {
            lines.accept(batch(first..first + 100));
            for id in first + 1..first + 100 {
                lines.send(answer(id)).await.unwrap();
            }
        }
        // 44 requests of the last batch were rejected.
        assert_eq!(lines.queue.len(), MAX_OPEN);
        lines.queue.clear();
        lines.accept(batch(300..301));
        assert!(lines.queue.is_empty() && lines.rejection.is_some());
        for first in firsts {
            lines.send(answer(first)).await.unwrap();
        }
        lines.accept(batch(300..400));
        assert_eq!(lines.queue.len(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn collected_answers_beyond_the_byte_limit_are_replaced_by_errors() {
        let (near, far) = duplex(64 << 20);
        let (_client, server) = duplex(64);
        let (mut lines, _writer_task) = lines(server, near, 1000);
        let mut far = BufReader::new(far).lines();
        let text = "x".repeat(1 << 20);
        let long = |id| {
            let error = ErrorData::internal_error(text.clone(), None);
            JsonRpcMessage::error(error, Some(NumberOrString::Number(id)))
        };
        // All batches of the connection share the limit.
        lines.accept(batch(0..12));
        lines.accept(batch(12..24));
        for id in (1..12).chain(13..24) {
            lines.send(long(id)).await.unwrap();
        }
        let mut kept = 0;
        for (last, others) in [(0, 1..12), (12, 13..24)] {
            lines.send(answer(last)).await.unwrap();
            let Value::Array(answers) = read(&mut far).await else {
                panic!("the answers are an array");
            };
            assert_eq!(answers.len(), 12);
            for (answer, id) in answers.iter().zip(others) {
                assert_eq!(answer["id"], id);
                let is_kept = answer["error"]["message"] == *text;
                kept += usize::from(is_kept);
                assert!(is_kept || answer["error"]["data"]["code"] == "TOO_LARGE");
            }
        }
        assert_eq!(kept, 15);
        // The sent answers count no longer.
        lines.accept(batch(0..10));
        for id in 0..10 {
            lines.send(long(id)).await.unwrap();
        }
        let answers = read(&mut far).await;
        assert!((0..10).all(|at| answers[at]["error"]["message"] == *text));
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_in_a_batch_count_toward_the_byte_limit() {
        let (near, far) = duplex(1 << 20);
        let (_client, server) = duplex(64);
        let (mut lines, _writer_task) = lines(server, near, 1000);
        let mut far = BufReader::new(far).lines();
        let key = "k".repeat(MAX_COLLECTED_BYTES);
        let twice = format!(r#"{{"jsonrpc":"2.0","id":2,"{key}":1,"{key}":1}}"#);
        lines.accept(message::read(
            format!("[{twice},{PING}]").as_bytes(),
            true,
            true,
        ));
        lines.send(answer(1)).await.unwrap();
        let answers = read(&mut far).await;
        assert_eq!(answers[0]["id"], 2);
        assert_eq!(answers[0]["error"]["data"]["code"], "TOO_LARGE");
        assert_eq!(answers[1]["id"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_a_batch_that_wait_for_space_are_sent_before_the_end() {
        let (near, far) = duplex(1 << 20);
        let (mut lines, writer_task) = lines(&b""[..], near, 1000);
        let space = lines.outgoing.reserve(1 << 20).await.unwrap();
        lines.accept(message::read(format!("[{PING}]").as_bytes(), true, true));
        assert!(lines.receive().await.is_some());
        let mut sent = Box::pin(lines.send(answer(1)));
        assert!(dropped(sent.as_mut()).await.is_none());
        {
            let mut end = Box::pin(lines.receive());
            assert!(dropped(end.as_mut()).await.is_none());
            drop(space);
            sent.await.unwrap();
            assert!(end.await.is_none());
        }
        drop(lines);
        writer_task.wait().await;
        assert_eq!(read(&mut BufReader::new(far).lines()).await[0]["id"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_after_the_end_of_input_extends_the_wait() {
        let input = format!("{PING}\n{}\n", PING.replace(r#""id":1"#, r#""id":2"#));
        let (near, _far) = duplex(1 << 20);
        let (mut lines, _writer_task) = lines(input.as_bytes(), near, 1000);
        for _ in 0..2 {
            assert!(lines.receive().await.is_some());
        }
        let sent = [lines.send(answer(1)), lines.send(answer(2))];
        let pause = DRAIN_TIMEOUT - Duration::from_secs(5);
        tokio::spawn(async move {
            for sent in sent {
                tokio::time::sleep(pause).await;
                sent.await.unwrap();
            }
        });
        let began = tokio::time::Instant::now();
        assert!(lines.receive().await.is_none());
        assert_eq!(began.elapsed().as_secs(), 2 * pause.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_whose_client_does_not_read_rejections_can_be_stopped() {
        let input = "{\n".repeat(20_000);
        let (near, _far) = duplex(64);
        let (mut lines, _writer_task) = lines(input.as_bytes(), near, 1000);
        assert!(dropped(lines.receive()).await.is_none());
        while lines.rejection.is_none() {
            tokio::task::yield_now().await;
            assert!(dropped(lines.receive()).await.is_none());
        }
        lines.stop.cancel();
        let end = tokio::time::timeout(DRAIN_TIMEOUT, lines.receive()).await;
        assert!(end.is_ok_and(|message| message.is_none()));
    }

    #[tokio::test(start_paused = true)]
    async fn duplicate_id_is_rejected_until_the_response_even_if_cancelled() {
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let broken = r#"{"jsonrpc":"2.0","id":1,"method":7}"#;
        let input = format!("{list}\n{list}\n{broken}\n{cancel}\n{list}\n");
        let (near, far) = duplex(1 << 20);
        let (mut client, server) = duplex(1 << 20);
        let mut far = BufReader::new(far).lines();
        let (mut lines, _writer_task) = lines(server, near, 1000);
        client.write_all(input.as_bytes()).await.unwrap();
        assert!(lines.receive().await.is_some());
        assert!(dropped(lines.receive()).await.is_none());
        for _ in 0..3 {
            let refused = read(&mut far).await;
            assert!(refused.get("id").is_none(), "{refused}");
            assert_eq!(refused["error"]["code"], -32600, "{refused}");
        }
        // The answer to a cancelled request is dropped and releases the id.
        lines.send(answer(1)).await.unwrap();
        client.write_all(list.as_bytes()).await.unwrap();
        client.write_all(b"\n").await.unwrap();
        assert!(lines.receive().await.is_some());
        lines.send(answer(1)).await.unwrap();
        assert_eq!(read(&mut far).await["id"], 1);
        drop((client, lines));
        assert_eq!(far.next_line().await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rejection_is_lost_while_the_client_does_not_read() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":1,"a":1}}"#;
        let rejections = 20_000;
        let input = format!("{line}\n").repeat(rejections);
        let (near, far) = duplex(64);
        let (mut lines, writer_task) = lines(input.as_bytes(), near, 1000);
        for _ in 0..rejections {
            assert!(dropped(lines.receive()).await.is_none());
        }
        // Reading has stopped, so the output queue is bounded.
        assert!(lines.reader.get_ref().len() > input.len() / 3);
        let reading = tokio::spawn(async move {
            let mut far = BufReader::new(far).lines();
            let mut received = 0;
            while far.next_line().await.unwrap().is_some() {
                received += 1;
            }
            received
        });
        assert!(lines.receive().await.is_none());
        drop(lines);
        writer_task.wait().await;
        assert_eq!(reading.await.unwrap(), rejections);
    }

    #[tokio::test(start_paused = true)]
    async fn open_requests_get_an_error_when_the_connection_closes() {
        let (near, far) = duplex(1 << 20);
        let (mut lines, writer_task) = lines(PING.as_bytes(), near, 1000);
        assert!(lines.receive().await.is_some());
        assert!(lines.receive().await.is_none());
        lines.close().await.unwrap();
        drop(lines);
        writer_task.wait().await;
        let mut far = BufReader::new(far).lines();
        let last = read(&mut far).await;
        assert_eq!(last["id"], 1);
        assert_eq!(last["error"]["code"], -32603);
    }

    #[tokio::test(start_paused = true)]
    async fn too_long_line_is_answered_by_its_id() {
        let name = "x".repeat(20_000);
        for (long, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{name}"}}"#),
                json!(2),
            ),
            (
                format!(r#"{{"method":"{name}","jsonrpc":"2.0","id":2}}"#),
                json!(2),
            ),
            (
                format!(r#"{{"method":"{name}","jsonrpc":"2.0","params":{{"id":2}}}}"#),
                Value::Null,
            ),
        ] {
            let input = format!("{long}\n{PING}\n");
            let (through, answers) = exchange(input.as_bytes(), 1000).await;
            assert_eq!((through.len(), answers.len()), (1, 1));
            assert_eq!(answers[0]["error"]["code"], -32600);
            assert_eq!(
                answers[0].get("id").cloned().unwrap_or_default(),
                id,
                "{answers:?}"
            );
            let (through, answers) = exchange(long.as_bytes(), 1000).await;
            assert_eq!((through.len(), answers.len()), (0, 1));
        }
        let fits = format!(r#"{{"method":"{name}","jsonrpc":"2.0","id":2}}"#);
        let input = format!("{fits}\n{PING}\n");
        let (through, answers) = exchange(input.as_bytes(), 30_000).await;
        assert_eq!((through.len(), answers.len()), (2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn notification_before_the_handshake_is_ignored() {
        let early = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let input = format!("{early}\n{PING}\n{early}\n{list}\n{early}\n");
        let (through, answers) = exchange(input.as_bytes(), 1000).await;
        assert_eq!((through.len(), answers.len()), (3, 0));
    }
}
