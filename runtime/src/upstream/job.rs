//! Carries one call out at its server: rounds of questions, tasks, grants and previews included.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, GetTaskParams,
    InputRequest, InputRequests, InputResponses, JsonObject, RequestMetaObject, ServerResult, Task,
    TaskPayload, UpdateTaskParams,
};
use rmcp::service::{PeerRequestOptions, ServiceError};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::answer;
use super::callers::Caller;
use super::classify::{Offer, marked, marked_value};
use super::client::capabilities;
use super::failure::ServerFailure;
use super::scopes::requested;
use super::sent::{Pending, Sent};
use super::server::{Live, Server};
use crate::call::Progress;
use crate::capability::{CallPermit, Interrupt};
use crate::error::{CallError, Code};
use crate::scope::Verb;
use crate::tool::{RemoteContext, RemoteFuture, RemoteJob, RemoteReply};

/// How often a server may ask for more before it answers.
const MOST_ROUNDS: usize = 10;
/// How often a task is looked at.
const POLL: (u64, u64) = (50, 5_000);
/// The longest token of a server's preview, in bytes.
const LONGEST_TOKEN: usize = 512;

/// One call of one tool.
#[derive(Debug)]
pub(super) struct Errand {
    server: Arc<Server>,
    offer: Arc<Offer>,
    arguments: JsonObject,
    /// What the server asked for, once it did; granted by the time the call is carried again.
    asked: Mutex<Option<Vec<String>>>,
    /// It was handed to the server: from then on nobody here knows what it came to but by the server's word.
    begun: AtomicBool,
}

/// A call that can be sent as it is.
struct Ready {
    /// Its place among the calls under way.
    _place: OwnedSemaphorePermit,
    live: Arc<Live>,
    params: CallToolRequestParams,
    preview: bool,
    /// The server asked for more before, and was granted it.
    replayed: bool,
    progress: Option<Progress>,
    caller: Arc<Caller>,
}

impl RemoteJob for Errand {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        let server = self.server.spec.name.as_str().into();
        (server, Arc::clone(&self.offer.tool))
    }

    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        tied: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        let ready = self.ready(permit, tied, context)?;
        self.begun.store(false, Ordering::Relaxed);
        Ok(Box::pin(async move {
            self.run(ready).await.map_err(|halt| self.told(halt))
        }))
    }

    fn mutates(&self) -> bool {
        self.offer.verb != Verb::Read
    }
}

impl Errand {
    pub(super) fn new(server: &Arc<Server>, offer: &Arc<Offer>, arguments: JsonObject) -> Self {
        Self {
            server: Arc::clone(server),
            offer: Arc::clone(offer),
            arguments,
            asked: Mutex::default(),
            begun: AtomicBool::new(false),
        }
    }

    /// Says of a failure that the effect may have happened all the same, unless the server itself says that it failed.
    fn told(&self, halt: Interrupt) -> Interrupt {
        let unknown = |error: &CallError| {
            let begun = self.begun.load(Ordering::Relaxed);
            begun && self.mutates() && error.code() != Code::ServerFailed
        };
        match halt {
            Interrupt::Failed(error) if unknown(&error) => error.with("begun", true).into(),
            other => other,
        }
    }

    fn ready(
        &self,
        permit: &CallPermit,
        tied: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<Ready, CallError> {
        let place = self.server.place()?;
        if !self.server.still_offers(&self.offer) {
            let message = "the tool changed meanwhile; a person must approve it again";
            return Err(CallError::new(Code::UnknownTool, message));
        }
        let granted = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.take()
        };
        Ok(Ready {
            _place: place,
            live: self.server.live()?,
            preview: permit.is_preview(),
            replayed: granted.is_some(),
            params: self.params(permit.is_preview(), tied, granted)?,
            progress: permit.progress(),
            caller: Caller::new(context),
        })
    }

    async fn run(&self, ready: Ready) -> Result<RemoteReply, Interrupt> {
        let entered = ready.live.line.callers.enter(Arc::clone(&ready.caller));
        let result = self.answered(&ready).await;
        entered.answered();
        let result = result?;
        if result.is_error == Some(true) {
            let wanted = if ready.replayed {
                None
            } else {
                self.wanted(&result)
            };
            return Err(wanted.unwrap_or_else(|| answer::failure(&result).into()));
        }
        let preview = ready.preview.then(|| shown(&result)).transpose()?;
        let most = self.server.bounds.result_bytes;
        let reply = answer::reply(&result, &self.offer, most).await?;
        Ok(RemoteReply { reply, preview })
    }

    /// What goes to the server. Nothing of it but the arguments is the model's.
    fn params(
        &self,
        preview: bool,
        tied: Option<String>,
        granted: Option<Vec<String>>,
    ) -> Result<CallToolRequestParams, CallError> {
        let mut meta = RequestMetaObject::default();
        if preview {
            let refused = |why| Err(CallError::new(Code::InvalidArguments, why));
            if !self.mutates() {
                return refused("this tool only reads; call it");
            }
            if !self.offer.preview {
                return refused(
                    "the server of this tool has no previews; it would carry the call out",
                );
            }
            meta.0.0.insert("preview".into(), true.into());
        }
        if let Some(tied) = tied {
            meta.0.0.insert("preview_token".into(), tied.into());
        }
        if let Some(granted) = granted {
            meta.0.0.insert("granted_scopes".into(), granted.into());
        }
        let mut params = CallToolRequestParams::new(self.offer.tool.to_string());
        params.arguments = Some(self.arguments.clone());
        params.meta = Some(meta);
        Ok(params)
    }

    /// What the server asks for to carry the call out, as needs of this runtime; the same is sent back once it is granted.
    fn wanted(&self, result: &CallToolResult) -> Option<Interrupt> {
        let is_tool = |resource: &str| self.server.has_tool(resource);
        let (texts, needs) = requested(result.meta.as_ref()?, &self.server.label, is_tool)?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = Some(texts);
        Some(Interrupt::Needs(needs))
    }

    /// The last answer, after as many rounds as the server needs.
    async fn answered(&self, ready: &Ready) -> Result<CallToolResult, CallError> {
        let mut params = ready.params.clone();
        for _ in 0..MOST_ROUNDS {
            match self.sent(ready, params.clone()).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(more) => {
                    let requests = more.input_requests.unwrap_or_default();
                    if requests.is_empty() {
                        // The server wants no more than time.
                        tokio::time::sleep(Duration::from_millis(POLL.0)).await;
                    }
                    let responses = self.responses(ready, requests).await?;
                    params.input_responses = (!responses.is_empty()).then_some(responses);
                    params.request_state = more.request_state;
                }
                ServerResult::CreateTaskResult(made) => return self.task(ready, made.task).await,
                _ => return Err(fault("the server's answer is none to a call")),
            }
        }
        Err(fault("the server asks on and on"))
    }

    async fn sent(
        &self,
        ready: &Ready,
        params: CallToolRequestParams,
    ) -> Result<ServerResult, CallError> {
        let live = &ready.live;
        let peer = &live.peer;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        let info = peer.peer_info();
        if info.is_some_and(|info| !info.protocol_version.has_initialize()) {
            // Without a handshake each request says what its own client supports.
            let answers = self.server.hearing.answers_within(&ready.caller);
            let mut meta = RequestMetaObject::default();
            meta.set_client_capabilities(capabilities(answers));
            options.meta = Some(meta);
        }
        let handle = peer.send_cancellable_request(request, options).await;
        let handle = handle.map_err(|error| self.broke(&error))?;
        self.begun.store(true, Ordering::Relaxed);
        let mut sent = Sent {
            line: &live.line,
            peer,
            token: handle.progress_token.clone(),
            open: Some(handle.id.clone()),
        };
        if let Some(progress) = &ready.progress {
            let token = sent.token.clone();
            live.line.progress.insert(token, progress.clone());
        }
        let answered = tokio::select! {
            biased;
            answered = handle.await_response() => answered.map_err(|error| self.broke(&error)),
            why = live.line.ended() => Err(self.lost(&why)),
        };
        sent.open = None;
        answered
    }

    /// What it means for the call that the connection failed it.
    fn broke(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => answer::failed(&error.message),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                // It may be this call's misfortune alone: whether the server is there shows when it is asked for its tools.
                self.server.changed.notify_one();
                self.server.gone()
            }
            _ => fault("the server's answer is none to a call"),
        }
    }

    fn lost(&self, why: &ServerFailure) -> CallError {
        let name = &self.server.spec.name;
        let message = format!("the connection to the server `{name}` was lost: {why}; try later");
        CallError::new(Code::ServerGone, message)
    }

    /// What the host says to what the server asks within a call; nobody is asked for a server that went.
    async fn responses(
        &self,
        ready: &Ready,
        requests: InputRequests,
    ) -> Result<InputResponses, CallError> {
        tokio::select! {
            biased;
            why = ready.live.line.ended() => Err(self.lost(&why)),
            said = self.said(requests, &ready.caller) => said,
        }
    }

    async fn said(
        &self,
        requests: InputRequests,
        caller: &Arc<Caller>,
    ) -> Result<InputResponses, CallError> {
        let mut responses = InputResponses::new();
        let hearing = &self.server.hearing;
        for (key, request) in requests {
            let said = match (caller.count(), request) {
                (Err(error), _) => Err(error),
                (Ok(()), InputRequest::Elicitation(request)) => hearing
                    .elicit(request.params, Some(caller))
                    .await
                    .map(serde_json::to_value),
                (Ok(()), InputRequest::CreateMessage(request)) => hearing
                    .sample(request.params, Some(caller))
                    .await
                    .map(serde_json::to_value),
                (Ok(()), InputRequest::ListRoots(_)) => hearing
                    .roots(std::slice::from_ref(caller))
                    .map(serde_json::to_value),
                _ => return Err(fault("the server asks for what nobody knows")),
            };
            let refused = |error: rmcp::ErrorData| {
                let message = format!(
                    "the server asked for what it is not given: {}",
                    error.message
                );
                let error = CallError::new(Code::ServerFailed, message);
                // This is no word of the server's on how far it came.
                if self.mutates() {
                    error.with("begun", true)
                } else {
                    error
                }
            };
            let said: Result<Value, _> = said.map_err(refused)?;
            responses.insert(key, said.map_err(|_| fault("the answer is no JSON"))?);
        }
        Ok(responses)
    }

    /// Looks at a task until it ends; whoever gives up takes it back.
    async fn task(&self, ready: &Ready, task: Task) -> Result<CallToolResult, CallError> {
        let peer = &ready.live.peer;
        let mut pending = Pending {
            peer,
            task: Some(task.task_id.clone()),
        };
        let mut wait = task.poll_interval_ms;
        loop {
            let pause = wait.unwrap_or(POLL.0 * 4).clamp(POLL.0, POLL.1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let looked = peer
                .get_task(GetTaskParams::new(task.task_id.clone()))
                .await;
            let now = looked.map_err(|error| self.broke(&error))?.task;
            wait = now.task.poll_interval_ms;
            match now.payload {
                TaskPayload::Working => {}
                TaskPayload::InputRequired { input_requests } => {
                    let responses = self.responses(ready, input_requests).await?;
                    let update = UpdateTaskParams::new(task.task_id.clone(), responses);
                    let updated = peer.update_task(update).await;
                    updated.map_err(|error| self.broke(&error))?;
                }
                TaskPayload::Completed { result } => {
                    pending.task = None;
                    let result = serde_json::from_value(Value::Object(result));
                    return result.map_err(|_| fault("the result of the task is none of a call"));
                }
                TaskPayload::Failed { error } => {
                    pending.task = None;
                    return Err(answer::failed(&reason(&error)));
                }
                _ => {
                    pending.task = None;
                    return Err(CallError::new(Code::Cancelled, "the server ended the task"));
                }
            }
        }
    }
}

/// The message of a task's error.
fn reason(error: &impl serde::Serialize) -> String {
    let error = serde_json::to_value(error).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str);
    message.unwrap_or_default().to_owned()
}

fn fault(why: &str) -> CallError {
    CallError::new(Code::ServerFault, why)
}

/// What stands for a preview at its server. A server that does not say that it previewed may have carried the call out.
fn shown(result: &CallToolResult) -> Result<String, CallError> {
    let meta = result.meta.as_ref();
    if !meta.is_some_and(|meta| marked(meta, "preview")) {
        let message =
            "the server does not say that it only previewed; it may have carried the call out";
        return Err(fault(message));
    }
    let token = meta.and_then(|meta| marked_value(meta, "preview_token"));
    let token = token.and_then(Value::as_str).unwrap_or_default();
    if token.is_empty() || token.len() > LONGEST_TOKEN {
        let message =
            "the server's preview has no token of a fitting length, so no call can be tied to it";
        return Err(fault(message));
    }
    Ok(token.to_owned())
}
