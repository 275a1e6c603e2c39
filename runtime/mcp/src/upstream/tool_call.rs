//! Runs tool calls at servers, with input rounds, tasks, requested scopes and previews.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams,
    CancelledNotification, CancelledNotificationParam, ClientRequest, GetTaskParams, InputRequest,
    InputRequests, InputResponses, JsonObject, ProgressToken, RequestId, RequestMetaObject,
    ServerResult, Task, TaskPayload, UpdateTaskParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::active_calls::ActiveCall;
use super::classify::{OfferedTool, has_flag, meta_value};
use super::client::client_capabilities;
use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::scopes::requested_scopes;
use super::server::{Connection, Server};
use super::tool_result;
use bailiwick::call::Progress;
use bailiwick::scope::Verb;
use bailiwick::tool::{CallPermit, Interrupt, RemoteContext, RemoteFuture, RemoteJob, RemoteReply};
use bailiwick::{CallError, Code};

/// The largest number of input rounds per call.
const MAX_ROUNDS: usize = 10;
/// The shortest and the longest poll interval of tasks, in milliseconds.
const POLL: (u64, u64) = (50, 5_000);
/// The longest preview token, in bytes.
const MAX_TOKEN_BYTES: usize = 512;

/// A call of a tool.
#[derive(Debug)]
pub(super) struct ToolCall {
    server: Arc<Server>,
    offer: Arc<OfferedTool>,
    arguments: JsonObject,
    /// The scopes that the server requested. They are granted before the call is repeated.
    requested: Mutex<Option<Vec<String>>>,
    /// Whether the call was sent to the server, so that its effect is unknown after a failure.
    begun: AtomicBool,
}

/// A call that is ready to be sent.
struct PreparedCall {
    _slot: OwnedSemaphorePermit,
    connection: Arc<Connection>,
    params: CallToolRequestParams,
    preview: bool,
    /// Whether this repeats the call after the requested scopes were granted.
    replayed: bool,
    progress: Option<Progress>,
    active: Arc<ActiveCall>,
}

impl RemoteJob for ToolCall {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        let server = self.server.spec.name.as_str().into();
        (server, Arc::clone(&self.offer.tool))
    }

    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        preview_token: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        let call = self.prepare(permit, preview_token, context)?;
        self.begun.store(false, Ordering::Relaxed);
        Ok(Box::pin(async move {
            self.run(call)
                .await
                .map_err(|interrupt| self.mark_begun(interrupt))
        }))
    }

    fn mutates(&self) -> bool {
        self.offer.verb != Verb::Read
    }
}

impl ToolCall {
    pub(super) fn new(
        server: &Arc<Server>,
        offer: &Arc<OfferedTool>,
        arguments: JsonObject,
    ) -> Self {
        Self {
            server: Arc::clone(server),
            offer: Arc::clone(offer),
            arguments,
            requested: Mutex::default(),
            begun: AtomicBool::new(false),
        }
    }

    /// Marks an error as possibly having had an effect, unless the server itself reported the failure.
    fn mark_begun(&self, interrupt: Interrupt) -> Interrupt {
        let unknown = |error: &CallError| {
            let begun = self.begun.load(Ordering::Relaxed);
            begun && self.mutates() && error.code() != Code::ServerFailed
        };
        match interrupt {
            Interrupt::Failed(error) if unknown(&error) => error.with("begun", true).into(),
            other => other,
        }
    }

    fn prepare(
        &self,
        permit: &CallPermit,
        preview_token: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<PreparedCall, CallError> {
        let slot = self.server.call_slot()?;
        if !self.server.still_offers(&self.offer) {
            let message = "the tool changed meanwhile; a person must approve it again";
            return Err(CallError::new(Code::UnknownTool, message));
        }
        let granted = self.requested.lock().take();
        Ok(PreparedCall {
            _slot: slot,
            connection: self.server.connection()?,
            preview: permit.is_preview(),
            replayed: granted.is_some(),
            params: self.params(permit.is_preview(), preview_token, granted)?,
            progress: permit.progress(),
            active: ActiveCall::new(context),
        })
    }

    async fn run(&self, call: PreparedCall) -> Result<RemoteReply, Interrupt> {
        let guard = call
            .connection
            .state
            .active_calls
            .begin(Arc::clone(&call.active));
        let result = self.complete_rounds(&call).await;
        guard.answered();
        let result = result?;
        if result.is_error == Some(true) {
            let interrupt = if call.replayed {
                None
            } else {
                self.requested_needs(&result)
            };
            return Err(interrupt.unwrap_or_else(|| tool_result::failure(&result).into()));
        }
        let preview = call
            .preview
            .then(|| extract_preview_token(&result))
            .transpose()?;
        let limit = self.server.bounds.result_bytes;
        let reply = tool_result::reply(&result, &self.offer, limit).await?;
        Ok(RemoteReply { reply, preview })
    }

    /// The parameters of the request. Only the arguments come from the model.
    fn params(
        &self,
        preview: bool,
        preview_token: Option<String>,
        granted: Option<Vec<String>>,
    ) -> Result<CallToolRequestParams, CallError> {
        let mut meta = RequestMetaObject::default();
        if preview {
            let refused = |why| Err(CallError::new(Code::InvalidArguments, why));
            if !self.mutates() {
                return refused(
                    "this tool changes nothing, so it has no preview; call it without one",
                );
            }
            if !self.offer.preview {
                return refused(
                    "the server of this tool has no previews; it would carry the call out",
                );
            }
            meta.0.0.insert("preview".into(), true.into());
        }
        if let Some(preview_token) = preview_token {
            meta.0
                .0
                .insert("preview_token".into(), preview_token.into());
        }
        if let Some(granted) = granted {
            meta.0.0.insert("granted_scopes".into(), granted.into());
        }
        let mut params = CallToolRequestParams::new(self.offer.tool.to_string());
        params.arguments = Some(self.arguments.clone());
        params.meta = Some(meta);
        Ok(params)
    }

    /// Interrupts the call with the needs that the server requests, and stores the scopes to send back once they are
    /// granted.
    fn requested_needs(&self, result: &CallToolResult) -> Option<Interrupt> {
        let is_tool = |resource: &str| self.server.has_tool(resource);
        let (texts, needs) = requested_scopes(result.meta.as_ref()?, &self.server.label, is_tool)?;
        *self.requested.lock() = Some(texts);
        Some(Interrupt::Needs(needs))
    }

    /// Runs input rounds until the server returns a result.
    async fn complete_rounds(&self, call: &PreparedCall) -> Result<CallToolResult, CallError> {
        let mut params = call.params.clone();
        for _ in 0..MAX_ROUNDS {
            match self.send(call, params.clone()).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(more) => {
                    let requests = more.input_requests.unwrap_or_default();
                    if requests.is_empty() {
                        // The server needs no input, only more time.
                        tokio::time::sleep(Duration::from_millis(POLL.0)).await;
                    }
                    let responses = self.responses(call, requests).await?;
                    params.input_responses = (!responses.is_empty()).then_some(responses);
                    params.request_state = more.request_state;
                }
                ServerResult::CreateTaskResult(created) => {
                    return self.wait_for_task(call, created.task).await;
                }
                _ => return Err(fault("the server's response is not that of a call")),
            }
        }
        Err(fault("the server exceeded the limit of input rounds"))
    }

    async fn send(
        &self,
        call: &PreparedCall,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, CallError> {
        let connection = &call.connection;
        let peer = &connection.peer;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        let info = peer.peer_info();
        if info.is_some_and(|info| !info.protocol_version.has_initialize()) {
            // Without a handshake, each request declares the capabilities of its client.
            let capabilities = self.server.handler.capabilities_within(&call.active);
            let mut meta = RequestMetaObject::default();
            meta.set_client_capabilities(client_capabilities(capabilities));
            options.meta = Some(meta);
        }
        let handle = peer.send_cancellable_request(request, options).await;
        let handle = handle.map_err(|error| self.call_error(&error))?;
        self.begun.store(true, Ordering::Relaxed);
        let mut guard = CancelRequestOnDrop {
            state: &connection.state,
            peer,
            token: handle.progress_token.clone(),
            request: Some(handle.id.clone()),
        };
        if let Some(progress) = &call.progress {
            let token = guard.token.clone();
            connection.state.progress.insert(token, progress.clone());
        }
        let response = tokio::select! {
            biased;
            response = handle.await_response() => response.map_err(|error| self.call_error(&error)),
            why = connection.state.ended() => Err(self.connection_lost(&why)),
        };
        guard.request = None;
        response
    }

    /// Converts a failed request into a call error.
    fn call_error(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => tool_result::failed(&error.message),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                // The failure may be specific to this call, so listing the tools checks the connection.
                self.server.changed.notify_one();
                self.server.unavailable()
            }
            _ => fault("the server's response is not that of a call"),
        }
    }

    fn connection_lost(&self, why: &ServerFailure) -> CallError {
        let name = &self.server.spec.name;
        let message = format!("the connection to the server `{name}` was lost: {why}; try later");
        CallError::new(Code::ServerGone, message)
    }

    /// Answers the requests of the server within the call, unless the connection ends.
    async fn responses(
        &self,
        call: &PreparedCall,
        requests: InputRequests,
    ) -> Result<InputResponses, CallError> {
        let answers = async {
            let mut responses = InputResponses::new();
            for (key, request) in requests {
                responses.insert(key, self.answer(request, &call.active).await?);
            }
            Ok(responses)
        };
        tokio::select! {
            biased;
            why = call.connection.state.ended() => Err(self.connection_lost(&why)),
            answers = answers => answers,
        }
    }

    async fn answer(
        &self,
        request: InputRequest,
        active: &Arc<ActiveCall>,
    ) -> Result<Value, CallError> {
        let handler = &self.server.handler;
        let answer = match (active.count_request(), request) {
            (Err(error), _) => Err(error),
            (Ok(()), InputRequest::Elicitation(request)) => handler
                .elicit(request.params, Some(active))
                .await
                .map(serde_json::to_value),
            (Ok(()), InputRequest::CreateMessage(request)) => handler
                .sample(request.params, Some(active))
                .await
                .map(serde_json::to_value),
            (Ok(()), InputRequest::ListRoots(_)) => handler
                .roots(std::slice::from_ref(active))
                .map(serde_json::to_value),
            _ => return Err(fault("the server sent an unsupported input request")),
        };
        let answer = answer.map_err(|error| {
            let message = error.message;
            let message = format!("a request of the server was rejected: {message}");
            let error = CallError::new(Code::ServerFailed, message);
            // This error was not reported by the server, so the effect is unknown.
            if self.mutates() {
                error.with("begun", true)
            } else {
                error
            }
        })?;
        answer.map_err(|_| fault("the answer cannot be written as JSON"))
    }

    /// Polls a task until it ends; dropping the future cancels the task.
    async fn wait_for_task(
        &self,
        call: &PreparedCall,
        task: Task,
    ) -> Result<CallToolResult, CallError> {
        let peer = &call.connection.peer;
        let mut pending = CancelTaskOnDrop {
            peer,
            task: Some(task.task_id.clone()),
        };
        let mut wait = task.poll_interval_ms;
        loop {
            let pause = wait.unwrap_or(POLL.0 * 4).clamp(POLL.0, POLL.1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let polled = peer
                .get_task(GetTaskParams::new(task.task_id.clone()))
                .await;
            let current = polled.map_err(|error| self.call_error(&error))?.task;
            wait = current.task.poll_interval_ms;
            match current.payload {
                TaskPayload::Working => {}
                TaskPayload::InputRequired { input_requests } => {
                    let responses = self.responses(call, input_requests).await?;
                    let update = UpdateTaskParams::new(task.task_id.clone(), responses);
                    let updated = peer.update_task(update).await;
                    updated.map_err(|error| self.call_error(&error))?;
                }
                TaskPayload::Completed { result } => {
                    pending.task = None;
                    let result = serde_json::from_value(Value::Object(result));
                    return result.map_err(|_| fault("the result of the task is none of a call"));
                }
                TaskPayload::Failed { error } => {
                    pending.task = None;
                    let message = error.get("message").and_then(Value::as_str);
                    return Err(tool_result::failed(message.unwrap_or_default()));
                }
                _ => {
                    pending.task = None;
                    return Err(CallError::new(Code::Cancelled, "the server ended the task"));
                }
            }
        }
    }
}

/// A pending request; it is cancelled if this is dropped before the response.
struct CancelRequestOnDrop<'s> {
    state: &'s ConnectionState,
    peer: &'s Peer<RoleClient>,
    token: ProgressToken,
    request: Option<RequestId>,
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        self.state.progress.remove(&self.token);
        let Some(id) = self.request.take() else {
            return;
        };
        let params = CancelledNotificationParam::new(Some(id), Some("nobody waits".to_owned()));
        let cancelled = CancelledNotification::new(params);
        let peer = self.peer.clone();
        // The connection ended with the runtime, if that has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.send_notification(cancelled.into()).await });
        }
    }
}

/// A pending task; it is cancelled if this is dropped before its end.
struct CancelTaskOnDrop<'s> {
    peer: &'s Peer<RoleClient>,
    task: Option<String>,
}

impl Drop for CancelTaskOnDrop<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let peer = self.peer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.cancel_task(CancelTaskParams::new(task)).await });
        }
    }
}

fn fault(why: &str) -> CallError {
    CallError::new(Code::ServerFault, why)
}

/// Returns the preview token. A result that is not marked as a preview may be of a call that was carried out.
fn extract_preview_token(result: &CallToolResult) -> Result<String, CallError> {
    let meta = result.meta.as_ref();
    if !meta.is_some_and(|meta| has_flag(meta, "preview")) {
        let message =
            "the server does not say that it only previewed; it may have carried the call out";
        return Err(fault(message));
    }
    let token = meta.and_then(|meta| meta_value(meta, "preview_token"));
    let token = token.and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
        let message =
            "the server's preview has no token of a fitting length, so no call can be tied to it";
        return Err(fault(message));
    }
    Ok(token.to_owned())
}
