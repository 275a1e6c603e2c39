//! Transport of one message a line: stdio, sockets and in-process pipes.
//!
//! rmcp polls [`LineTransport::receive`] beside other futures and drops it whenever one of these is ready first. So whatever it
//! has begun is kept in [`LineTransport`], and what it waits for can be waited for again: the next byte, a place for a refusal,
//! the answers that are still to come.
//!
//! The requests of a batch are handled like others; their answers wait for one another and go out as one array.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::decorate::decorate;
use super::message::{self, IdScanner, Parsed, RejectedMessage};
use super::outgoing::OutgoingQueue;
use super::requests::{Batch, EndedRequest, OpenRequests, RequestRefusal};

/// The longest message a client may send, in bytes.
pub(super) const MAX_LINE: usize = 16 << 20;

/// A message of so many bytes is parsed by a thread that may block.
pub(super) const LONG_MESSAGE: usize = 64 << 10;

/// How long the next answer may take once the client has ended its input. It is longer than a call may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);

/// How long the answers to withdrawn requests may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

/// One message a line, both ways.
pub(super) struct LineTransport<R> {
    reader: BufReader<R>,
    /// The bytes of the present line that were read.
    line: Vec<u8>,
    /// What is known of the present line, which is too long and dropped.
    dropped: Option<IdScanner>,
    /// The last line, while another thread parses it.
    parse_task: Option<JoinHandle<Parsed>>,
    /// What is left of the last batch.
    queue: VecDeque<RxJsonRpcMessage<RoleServer>>,
    /// The refusal of the last line, until there is a place for it.
    refusal: Option<Vec<u8>>,
    /// Nothing more is read.
    ended: bool,
    /// A request that begins an era was seen; notifications before it are ignored.
    session_started: bool,
    outgoing: OutgoingQueue,
    limit: usize,
    /// Whether the client can still say something.
    input_open: watch::Sender<bool>,
    /// Cancelled when the connection is to end.
    stop: CancellationToken,
    open: OpenRequests,
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
    ) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Vec::new(),
            dropped: None,
            parse_task: None,
            queue: VecDeque::new(),
            refusal: None,
            ended: false,
            session_started: false,
            outgoing,
            limit,
            input_open,
            stop,
            open: OpenRequests::default(),
        }
    }

    /// Reads up to the next line end. May be cancelled at any await without losing a byte.
    async fn read_line(&mut self) -> io::Result<LineRead> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                // The last line may lack its end.
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

    /// The next line, or the end if nobody reads the answers any more or the connection is to end.
    async fn next_line(&mut self) -> io::Result<LineRead> {
        let (outgoing, stop) = (self.outgoing.clone(), self.stop.clone());
        tokio::select! {
            biased;
            () = outgoing.closed() => Ok(LineRead::End),
            () = stop.cancelled() => Ok(LineRead::End),
            read = self.read_line() => read,
        }
    }

    /// What a client is told of a message that is not handled. The id of a request that is still open is left out: its answer is
    /// still to come.
    fn encode_error(&self, RejectedMessage { id, error }: RejectedMessage) -> Option<Vec<u8>> {
        tracing::debug!(error = %error.message, "refused a message");
        let id = id.filter(|id| !self.open.is_open(id));
        let error = TxJsonRpcMessage::<RoleServer>::error(*error, id);
        serde_json::to_vec(&error).ok()
    }

    /// Parses the present line; what it says if that took no other thread.
    fn parse(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let line = std::mem::take(&mut self.line);
        let batches = self.open.batches();
        if line.len() >= LONG_MESSAGE {
            let parse = move || message::read(line.trim_ascii(), batches);
            self.parse_task = Some(tokio::task::spawn_blocking(parse));
            return None;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        self.accept(message::read(text, batches))
    }

    /// The first message of the last line; none if all are refused or ignored.
    fn accept(&mut self, parsed: Parsed) -> Option<RxJsonRpcMessage<RoleServer>> {
        let Parsed { messages, is_batch } = parsed;
        let batch = is_batch.then(Batch::default);
        for message in messages {
            match (self.admit(message, batch.as_ref()), &batch) {
                (Ok(message), _) => self.queue.extend(message),
                (Err(rejected), None) => self.refusal = self.encode_error(rejected),
                (Err(rejected), Some(batch)) => {
                    if let Some(refusal) = self.encode_error(rejected) {
                        batch.add(refusal);
                    }
                }
            }
        }
        if let Some(batch) = batch {
            self.refusal = batch.whole();
        }
        self.queue.pop_front()
    }

    /// A message that is handled; none if it is ignored.
    fn admit(
        &mut self,
        message: message::Message,
        batch: Option<&Batch>,
    ) -> Result<Option<RxJsonRpcMessage<RoleServer>>, RejectedMessage> {
        let mut message = message?;
        if let JsonRpcMessage::Request(request) = &mut message {
            self.open.begin(request, batch).map_err(|refusal| {
                let id = (refusal == RequestRefusal::TooMany).then(|| request.id.clone());
                RejectedMessage::new(id, refusal.error())
            })?;
            // A probe opens no era: what follows it may still be a handshake.
            self.session_started |= !matches!(
                request.request,
                ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)
            );
        }
        let passes = self.open.on_message(&message) && self.session_started || is_request(&message);
        Ok(passes.then_some(message))
    }

    /// Waits until the open requests were answered. They are withdrawn if the connection is to end, if nobody reads the
    /// answers, or if no answer comes for long.
    async fn drain(&mut self) {
        self.open.stop_listening();
        let waited = async {
            tokio::select! {
                () = self.open.all_answered() => true,
                () = self.stop.cancelled() => false,
                () = self.outgoing.closed() => false,
                () = tokio::time::sleep(DRAIN_TIMEOUT) => false,
            }
        };
        if !waited.await {
            self.open.stop_all();
            // What is not answered by then is answered when the transport is closed.
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, self.open.all_answered()).await;
        }
    }
}

fn is_request(message: &RxJsonRpcMessage<RoleServer>) -> bool {
    matches!(message, JsonRpcMessage::Request(_))
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, open) = (self.outgoing.clone(), self.open.clone());
        async move {
            if open.is_batched(&message) {
                let text = encode(&message);
                let Some(EndedRequest { is_expected, batch }) = open.end(&message) else {
                    return Ok(());
                };
                // Answers that wait for one another hold no places meanwhile.
                let whole = batch.and_then(|batch| batch.end(text.ok().filter(|_| is_expected)));
                let Some(whole) = whole else {
                    return Ok(());
                };
                let permit = outgoing.reserve(whole.len()).await?;
                return outgoing.send(whole, permit);
            }
            let reserved = match encode(&message) {
                Ok(text) => outgoing
                    .reserve(text.len())
                    .await
                    .map(|permit| (text, permit)),
                Err(error) => Err(error),
            };
            // The id is free before the client can have read the answer.
            let is_expected = open.end(&message).is_none_or(|ended| ended.is_expected);
            match reserved? {
                (text, permit) if is_expected => outgoing.send(text, permit),
                _ => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &self.refusal {
                let permit = self.outgoing.reserve_for_refusal(refusal.len()).await;
                if let (Some(refusal), Ok(permit)) = (self.refusal.take(), permit)
                    && self.outgoing.send(refusal, permit).is_err()
                {
                    self.ended = true;
                }
            }
            if let Some(message) = self.queue.pop_front() {
                return Some(message);
            }
            if let Some(parse_task) = &mut self.parse_task {
                let parsed = parse_task.await;
                self.parse_task = None;
                // It neither panics nor is aborted but with the whole process.
                if let Ok(parsed) = parsed
                    && let Some(message) = self.accept(parsed)
                {
                    return Some(message);
                }
                continue;
            }
            if self.ended {
                self.input_open.send_replace(false);
                self.drain().await;
                return None;
            }
            match self.next_line().await {
                Ok(LineRead::Line) => {
                    if let Some(message) = self.parse() {
                        return Some(message);
                    }
                }
                Ok(LineRead::TooLong(ids)) => {
                    self.refusal = self.encode_error(RejectedMessage::too_long(&ids, self.limit));
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
        for (id, EndedRequest { is_expected, batch }) in self.open.take_all() {
            let reason = "the connection ended before the request did";
            let error = ErrorData::internal_error(reason, None);
            let error = TxJsonRpcMessage::<RoleServer>::error(error, Some(id));
            let text = is_expected
                .then(|| serde_json::to_vec(&error))
                .transpose()?;
            let text = match batch {
                Some(batch) => batch.end(text),
                None => text,
            };
            let Some(text) = text else {
                continue;
            };
            let permit = self.outgoing.reserve_for_refusal(text.len());
            let permit = tokio::time::timeout(CANCEL_TIMEOUT, permit).await;
            self.outgoing
                .send(text, permit.map_err(io::Error::from)??)?;
        }
        Ok(())
    }
}

/// A message as it goes out, decorated if it is of a kind that can be.
fn encode(message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;
    use serde_json::{Value, json};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    use super::super::outgoing::WriterTask;
    use super::super::requests::MAX_OPEN;

    /// A transport, and the task that writes what it sends.
    fn lines<R: AsyncRead + Send + Unpin>(
        input: R,
        output: DuplexStream,
        limit: usize,
    ) -> (LineTransport<R>, WriterTask) {
        let (outgoing, writer_task) = OutgoingQueue::new(output);
        let (input_open, stop) = (watch::Sender::new(true), CancellationToken::new());
        let lines = LineTransport::new(input, outgoing, limit, input_open, stop);
        (lines, writer_task)
    }

    /// What comes through of `input`, and what is answered to the rest.
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

    #[tokio::test(start_paused = true)]
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

    /// Polls once, as a select does whose other branch is ready.
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
    async fn requests_beyond_the_bound_are_refused_until_others_are_answered() {
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
        let mut came = [
            read(&mut far).await,
            read(&mut far).await,
            read(&mut far).await,
        ];
        came.sort_by_key(|message| message["id"].as_u64());
        assert!(came[0].get("id").is_none() && came[0]["error"].is_object());
        assert_eq!(came[1]["result"], serde_json::json!({}));
        assert_eq!(came[2]["id"], MAX_OPEN);
        assert_eq!(came[2]["error"]["data"]["code"], "BUSY");
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_in_use_is_refused_without_it_until_its_answer_even_if_cancelled() {
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
        // The answer to what was cancelled is dropped, and frees the id.
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
    async fn no_refusal_is_lost_if_reading_is_interrupted_and_nobody_reads_them() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":1,"a":1}}"#;
        let refusals = 20_000;
        let input = format!("{line}\n").repeat(refusals);
        let (near, far) = duplex(64);
        let (mut lines, writer_task) = lines(input.as_bytes(), near, 1000);
        for _ in 0..refusals {
            assert!(dropped(lines.receive()).await.is_none());
        }
        // It stopped reading, so what waits to be written is bounded.
        assert!(lines.reader.get_ref().len() > input.len() / 3);
        let reading = tokio::spawn(async move {
            let mut far = BufReader::new(far).lines();
            let mut came = 0;
            while far.next_line().await.unwrap().is_some() {
                came += 1;
            }
            came
        });
        assert!(lines.receive().await.is_none());
        drop(lines);
        writer_task.wait().await;
        assert_eq!(reading.await.unwrap(), refusals);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_answered_when_the_connection_ends_gets_an_error() {
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
    async fn a_line_that_is_too_long_is_answered_by_its_id_and_dropped_whole() {
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
    async fn a_notification_before_a_request_that_opens_an_era_is_passed_over() {
        let early = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let input = format!("{early}\n{PING}\n{early}\n{list}\n{early}\n");
        let (through, answers) = exchange(input.as_bytes(), 1000).await;
        assert_eq!((through.len(), answers.len()), (3, 0));
    }
}
