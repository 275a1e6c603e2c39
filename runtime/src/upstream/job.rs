//! A judged call in, what its server makes of it out: rounds of questions, tasks, grants and previews included.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams,
    CancelledNotification, CancelledNotificationParam, ClientRequest, GetTaskParams, InputRequest,
    InputRequests, InputResponses, JsonObject, ProgressToken, RequestId, RequestMetaObject,
    ServerResult, Task, TaskPayload, UpdateTaskParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::answer;
use super::classify::{Offer, marked, marked_value};
use super::scopes::requested;
use super::server::Server;
use crate::call::Progress;
use crate::capability::{CallPermit, Halt};
use crate::error::{CallError, Code};
use crate::scope::Verb;
use crate::tool::{Carried, Carrying, RemoteJob};

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
}

/// A call that can be sent as it is.
struct Ready {
    /// Its place among the calls under way.
    _place: OwnedSemaphorePermit,
    peer: Arc<Peer<RoleClient>>,
    params: CallToolRequestParams,
    preview: bool,
    /// The server asked for more before, and was granted it.
    replayed: bool,
    progress: Option<Progress>,
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
    ) -> Result<Carrying, CallError> {
        let ready = self.ready(permit, tied)?;
        Ok(Box::pin(async move { self.run(ready).await }))
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
        }
    }

    fn ready(&self, permit: &CallPermit, tied: Option<String>) -> Result<Ready, CallError> {
        let busy = |_| {
            let error = CallError::new(Code::Busy, "too many calls of this server are under way");
            error.with("retry_after_ms", 100)
        };
        let places = Arc::clone(&self.server.places);
        let place = places.try_acquire_owned().map_err(busy)?;
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
            peer: self.server.peer()?,
            preview: permit.is_preview(),
            replayed: granted.is_some(),
            params: self.params(permit.is_preview(), tied, granted)?,
            progress: permit.progress(),
        })
    }

    async fn run(&self, ready: Ready) -> Result<Carried, Halt> {
        let progress = ready.progress.as_ref();
        let result = self.answered(&ready.peer, ready.params, progress).await?;
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
        Ok(Carried { reply, preview })
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
    fn wanted(&self, result: &CallToolResult) -> Option<Halt> {
        let is_tool = |resource: &str| self.server.has_tool(resource);
        let (texts, needs) = requested(result.meta.as_ref()?, &self.server.label, is_tool)?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = Some(texts);
        Some(Halt::Needs(needs))
    }

    /// The last answer, after as many rounds as the server needs.
    async fn answered(
        &self,
        peer: &Peer<RoleClient>,
        mut params: CallToolRequestParams,
        progress: Option<&Progress>,
    ) -> Result<CallToolResult, CallError> {
        for _ in 0..MOST_ROUNDS {
            match self.sent(peer, params.clone(), progress).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                ServerResult::InputRequiredResult(more) => {
                    let requests = more.input_requests.unwrap_or_default();
                    if requests.is_empty() {
                        // The server wants no more than time.
                        tokio::time::sleep(Duration::from_millis(POLL.0)).await;
                    }
                    let responses = self.responses(requests).await?;
                    params.input_responses = (!responses.is_empty()).then_some(responses);
                    params.request_state = more.request_state;
                }
                ServerResult::CreateTaskResult(made) => return self.task(peer, made.task).await,
                _ => return Err(fault("the server's answer is none to a call")),
            }
        }
        Err(fault("the server asks on and on"))
    }

    async fn sent(
        &self,
        peer: &Peer<RoleClient>,
        params: CallToolRequestParams,
        progress: Option<&Progress>,
    ) -> Result<ServerResult, CallError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options();
        let handle = peer.send_cancellable_request(request, options).await;
        let handle = handle.map_err(|error| self.broke(&error))?;
        let mut sent = Sent {
            server: &self.server,
            peer,
            token: handle.progress_token.clone(),
            open: Some(handle.id.clone()),
        };
        if let Some(progress) = progress {
            let token = sent.token.clone();
            self.server.progress.insert(token, progress.clone());
        }
        let answered = handle.await_response().await;
        sent.open = None;
        answered.map_err(|error| self.broke(&error))
    }

    /// What it means for the call that the connection failed it.
    fn broke(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => answer::failed(&error.message),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                self.server.broken.notify_waiters();
                let gone = self.server.gone();
                if self.mutates() {
                    gone.with("begun", true)
                } else {
                    gone
                }
            }
            _ => fault("the server's answer is none to a call"),
        }
    }

    /// What the host says to what the server asks within a call.
    async fn responses(&self, requests: InputRequests) -> Result<InputResponses, CallError> {
        let mut responses = InputResponses::new();
        let hearing = &self.server.hearing;
        for (key, request) in requests {
            let said = match request {
                InputRequest::Elicitation(request) => hearing
                    .elicit(request.params)
                    .await
                    .map(serde_json::to_value),
                InputRequest::CreateMessage(request) => hearing
                    .sample(request.params)
                    .await
                    .map(serde_json::to_value),
                InputRequest::ListRoots(_) => hearing.roots().map(serde_json::to_value),
                _ => return Err(fault("the server asks for what nobody knows")),
            };
            let refused = |error: rmcp::ErrorData| {
                let message = format!(
                    "the server asked for what it is not given: {}",
                    error.message
                );
                CallError::new(Code::ServerFailed, message)
            };
            let said: Result<Value, _> = said.map_err(refused)?;
            responses.insert(key, said.map_err(|_| fault("the answer is no JSON"))?);
        }
        Ok(responses)
    }

    /// Looks at a task until it ends; whoever gives up takes it back.
    async fn task(&self, peer: &Peer<RoleClient>, task: Task) -> Result<CallToolResult, CallError> {
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
                    let responses = self.responses(input_requests).await?;
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
                    return Err(answer::failed(&said(&error)));
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
fn said(error: &impl serde::Serialize) -> String {
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
        return Err(CallError::new(Code::ServerFault, message).with("begun", true));
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

/// A request under way; whoever drops it before it is answered tells the server.
struct Sent<'s> {
    server: &'s Server,
    peer: &'s Peer<RoleClient>,
    token: ProgressToken,
    open: Option<RequestId>,
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.server.progress.remove(&self.token);
        let Some(id) = self.open.take() else { return };
        let params = CancelledNotificationParam::new(Some(id), Some("nobody waits".to_owned()));
        let cancelled = CancelledNotification::new(params);
        let peer = self.peer.clone();
        // Without a runtime there is no connection either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.send_notification(cancelled.into()).await });
        }
    }
}

/// A task under way; whoever drops it before its end takes it back.
struct Pending<'s> {
    peer: &'s Peer<RoleClient>,
    task: Option<String>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let peer = self.peer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.cancel_task(CancelTaskParams::new(task)).await });
        }
    }
}
