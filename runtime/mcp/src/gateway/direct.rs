//! Requests that are answered without rmcp's service loop: `ping` and `tools/call` of a session with a handshake.
//!
//! Calls are handled by the same code as in the loop. It takes less time, since rmcp tries one type of message after
//! another until one fits, and sends three messages between tasks per request. A request with other members is decoded by
//! rmcp and then handled here; all other messages go through rmcp.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientRequest, ErrorData,
    GetExtensions, GetMeta, JsonObject, JsonRpcMessage, JsonRpcRequest, JsonRpcVersion2_0,
    NumberOrString, PingRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{CallAnswer, DoneCall};
use super::convert::{self, CallFailure};
use super::line_transport::{encode, end, end_batched, send};
use super::outgoing::OutgoingQueue;
use super::requests::OpenRequests;
use super::service::{GatewayService, panicked};

/// How long a large result that cannot be sent counts as a job of its worker. A client that does not read its answers
/// delays other clients of the worker by no more.
const HOLD_TIMEOUT: Duration = Duration::from_secs(1);

/// A request with only the members that most clients send.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    jsonrpc: JsonRpcVersion2_0,
    id: NumberOrString,
    method: Method,
    params: Option<Params>,
}

#[derive(Clone, Copy, Deserialize)]
enum Method {
    #[serde(rename = "ping")]
    Ping,
    #[serde(rename = "tools/call")]
    Call,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Option<JsonObject>,
    name: Option<String>,
    arguments: Option<JsonObject>,
}

/// Decodes a `ping` or a `tools/call` without members that few clients send. `None` if rmcp must decode the text.
///
/// The result is the same as that of rmcp, which first builds all values and then tries one form after another.
pub(super) fn decode(text: &[u8]) -> Option<RxJsonRpcMessage<RoleServer>> {
    let Envelope {
        jsonrpc,
        id,
        method,
        params,
    } = serde_json::from_slice(text).ok()?;
    let Params {
        meta,
        name,
        arguments,
    } = params.unwrap_or_default();
    let mut request = match (method, name, arguments) {
        (Method::Ping, None, None) => ClientRequest::PingRequest(PingRequest::default()),
        (Method::Call, Some(name), arguments) => {
            let mut params = CallToolRequestParams::new(name);
            params.arguments = arguments;
            ClientRequest::CallToolRequest(CallToolRequest::new(params))
        }
        _ => return None,
    };
    if let Some(meta) = meta {
        request
            .extensions_mut()
            .insert(RequestMetaObject::from(meta));
    }
    Some(JsonRpcMessage::Request(JsonRpcRequest {
        jsonrpc,
        id,
        request,
    }))
}

/// The requests of a connection that are handled outside rmcp's service loop. Dropping it aborts them.
pub(super) struct DirectRequests {
    service: GatewayService,
    running: JoinSet<()>,
    /// The connection began with a stateless request, after which rmcp rejects requests without their metadata.
    needs_metadata: bool,
}

impl DirectRequests {
    pub(super) fn new(service: GatewayService) -> Self {
        Self {
            service,
            running: JoinSet::new(),
            needs_metadata: false,
        }
    }

    /// Begins to handle a request, or returns the message if rmcp must handle it.
    pub(super) fn begin(
        &mut self,
        message: RxJsonRpcMessage<RoleServer>,
        outgoing: &OutgoingQueue,
        open: &OpenRequests,
    ) -> Option<RxJsonRpcMessage<RoleServer>> {
        let JsonRpcMessage::Request(JsonRpcRequest {
            jsonrpc,
            id,
            request,
        }) = message
        else {
            return Some(message);
        };
        // rmcp forbids requests to the client while it handles a request that names a stateless revision.
        let is_stateless = request.get_meta().protocol_version().is_some();
        let is_probe = matches!(request, ClientRequest::DiscoverRequest(_));
        self.needs_metadata |= is_stateless && !is_probe && self.service.peer().is_none();
        let is_direct = !is_stateless && !self.needs_metadata;
        match (request, self.service.peer().filter(|_| is_direct)) {
            (ClientRequest::PingRequest(_), Some(_)) => self.answer_ping(id, outgoing, open),
            (ClientRequest::CallToolRequest(call), Some(peer)) => {
                let mut context = RequestContext::new(id, peer.clone());
                context.extensions = call.extensions;
                context.meta = context.extensions.remove().unwrap_or_default();
                let service = self.service.clone();
                let (outgoing, open) = (outgoing.clone(), open.clone());
                let handling = handle_call(service, call.params, context, outgoing, open);
                // A task moves its future several times, and this one has several kilobytes.
                self.spawn(Box::pin(handling));
            }
            (request, _) => {
                return Some(JsonRpcMessage::Request(JsonRpcRequest {
                    jsonrpc,
                    id,
                    request,
                }));
            }
        }
        None
    }

    fn answer_ping(&mut self, id: NumberOrString, outgoing: &OutgoingQueue, open: &OpenRequests) {
        let answer = JsonRpcMessage::response(ServerResult::empty(()), id);
        let mut sending = Box::pin(send(answer, outgoing.clone(), open.clone()));
        // It waits only if the queue is full.
        if sending.as_mut().now_or_never().is_none() {
            self.spawn(async move { drop(sending.await) });
        }
    }

    /// Spawns the handling of a request, which sends its answer. The connection ends if the client no longer reads, so
    /// errors of sending are ignored.
    fn spawn(&mut self, handling: impl Future<Output = ()> + Send + 'static) {
        while self.running.try_join_next().is_some() {}
        self.running.spawn(handling);
    }
}

/// Makes a tool call and sends its answer.
async fn handle_call(
    service: GatewayService,
    call: CallToolRequestParams,
    context: RequestContext<RoleServer>,
    outgoing: OutgoingQueue,
    open: OpenRequests,
) {
    let id = context.id.clone();
    let handled = async {
        let answer = service.call(call, context).await;
        let _ = answer_call(id.clone(), answer, &outgoing, &open).await;
    };
    // A tool may panic, also while its output is encoded. Nothing was sent then, and the id is still in use.
    if AssertUnwindSafe(handled).catch_unwind().await.is_err() {
        let failed = JsonRpcMessage::error(panicked(), Some(id));
        let _ = send(failed, outgoing, open).await;
    }
}

/// Sends the answer to a tool call.
async fn answer_call(
    id: NumberOrString,
    answer: Result<CallAnswer, ErrorData>,
    outgoing: &OutgoingQueue,
    open: &OpenRequests,
) -> io::Result<()> {
    let answer = match answer {
        Ok(CallAnswer::Done(call)) if convert::is_plain(&call.done) => {
            return answer_plain(id, call, outgoing, open).await;
        }
        Ok(answer) => answer.into_response(),
        Err(error) => Err(error),
    };
    send(message(id, answer), outgoing.clone(), open.clone()).await
}

/// Sends a plain result, which is encoded when there is queue space for it; in a batch, at once.
async fn answer_plain(
    id: NumberOrString,
    mut call: DoneCall,
    outgoing: &OutgoingQueue,
    open: &OpenRequests,
) -> io::Result<()> {
    let encode_result = |call: DoneCall| match convert::encode_plain(&id, &call.done) {
        Ok(text) => Ok(text),
        Err(error) => encode(&message(
            id.clone(),
            CallFailure::from(error).into_response(),
        )),
    };
    if open.is_batched(&id) {
        return end_batched(&id, encode_result(call), outgoing, open).await;
    }
    let expected = convert::encoded_size(&call.done);
    let mut reserving = pin!(outgoing.reserve(expected));
    let permit = match timeout(HOLD_TIMEOUT, reserving.as_mut()).await {
        Ok(permit) => permit,
        Err(_) => {
            call.hold = None;
            reserving.await
        }
    };
    let (mut permit, text) = (permit?, encode_result(call));
    if let Ok(text) = &text
        && text.len() > expected
    {
        // Calls that keep some space while they wait for more could wait for each other.
        drop(permit);
        permit = outgoing.reserve(text.len()).await?;
    }
    end(&id, text, permit, outgoing, open)
}

/// The message with the answer to a call of a session with a handshake, which knows no result types.
fn message(
    id: NumberOrString,
    answer: Result<CallToolResponse, ErrorData>,
) -> TxJsonRpcMessage<RoleServer> {
    match answer {
        Ok(CallToolResponse::Complete(mut result)) => {
            result.result_type = None;
            JsonRpcMessage::response(ServerResult::CallToolResult(result), id)
        }
        Ok(response) => JsonRpcMessage::response(ServerResult::from(response), id),
        Err(error) => JsonRpcMessage::error(error, Some(id)),
    }
}

#[cfg(test)]
mod tests {
    use bailiwick::config::Namespace;
    use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
    use bailiwick::worker::Done;
    use bailiwick::{CallError, ReadTool, Reply, Runtime, ToolSet, ToolSpec, WorkerSpec};
    use serde_json::{Value, json};
    use tokio::io::duplex;

    use super::*;

    /// Returns a short text with structured content of this many bytes.
    struct Structured(usize);

    impl ReadTool for Structured {
        type Args = Value;
        type Output = Value;
        type Job = ();

        fn spec(&self) -> ToolSpec {
            ToolSpec::new("structured", "Structured", "Returns structured content.")
        }

        fn prepare(&self, _: Value, _: &Namespace) -> Result<Prepared<()>, CallError> {
            Ok(Prepared {
                needs: Vec::new(),
                job: (),
            })
        }

        fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
            Ok(Reply::text("ok", json!({ "text": "x".repeat(self.0) })))
        }
    }

    #[tokio::test]
    async fn structured_content_of_queued_answers_is_counted() {
        let bytes = 600_000;
        let tools = ToolSet::new().reader(Structured(bytes));
        let (runtime, _) = Runtime::builder().tools(tools).build().await.unwrap();
        let worker = runtime.spawn(WorkerSpec::new("one")).await.unwrap();
        let outcome = worker.call("structured", json!({})).await.unwrap();
        let (near, _far) = duplex(64);
        let (outgoing, _writer_task) = OutgoingQueue::new(near);
        let open = OpenRequests::default();
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let Some(JsonRpcMessage::Request(mut request)) = decode(ping.as_bytes()) else {
            panic!("{ping} is a request");
        };
        open.begin(&mut request, None).unwrap();
        let call = DoneCall {
            done: Box::new(Done::Outcome(outcome)),
            links: convert::ResultLinks::ALL,
            hold: None,
        };
        let id = NumberOrString::Number(1);
        answer_plain(id, call, &outgoing, &open).await.unwrap();
        let has_space = |bytes| outgoing.reserve(bytes).now_or_never().is_some();
        // The answer is longer by its envelope.
        assert!(!has_space((1 << 20) - bytes));
        assert!(has_space((1 << 20) - bytes - 1_000));
        runtime.shutdown().await;
    }

    #[test]
    fn common_requests_are_decoded_as_rmcp_decodes_them() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"a":1}}}"#,
            r#"{"method":"tools/call","params":{"name":"t"},"jsonrpc":"2.0","id":"a"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":[1,2.5]},"_meta":{"progressToken":1}}}"#,
        ] {
            let direct = decode(text.as_bytes()).unwrap();
            let by_rmcp: RxJsonRpcMessage<RoleServer> = serde_json::from_str(text).unwrap();
            assert_eq!(format!("{direct:?}"), format!("{by_rmcp:?}"));
            // This form has the metadata.
            let values = [&direct, &by_rmcp].map(|it| serde_json::to_value(it).unwrap());
            assert_eq!(values[0], values[1]);
        }
    }
}
