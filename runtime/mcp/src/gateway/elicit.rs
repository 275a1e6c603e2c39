//! Elicitation: permission questions, and requests of third-party servers, for the user of a client.
//!
//! Connections of trust [`Agent`](super::Trust::Agent) are never asked, since the agent could answer itself. Stateful
//! clients are sent `elicitation/create`. Stateless clients get the form as an input-required result with sealed state
//! that identifies the call, and send the call again with the answer. The broker owns the questions: it joins equal
//! ones and applies limits.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CancelledNotificationParam, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    RequestId, RequestStateCodec, SealOptions, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::form::{FormKind, FormResponse, form, read};
use super::forward::{ClientCall, ForwardedRequest};
use bailiwick::effect::ContentHash;
use bailiwick::permission::Question;

/// Key of a permission question in an input-required result.
const PERMISSION: &str = "permission";
/// Key of a request of a third-party server in an input-required result.
const SERVER: &str = "server";
/// How long a request of a third-party server waits for a stateless client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of suspended calls.
const MAX_SUSPENDED: usize = 256;

/// Sealed state that a stateless client sends back: the number of the suspended call, and its digest.
type SealedState = (u64, ContentHash);

/// A call that waits until its client sends it again.
#[derive(Debug)]
pub(super) struct SuspendedCall {
    pub(super) pending: PendingInput,
    pub(super) running: ClientCall,
    /// Removes the call when its question or request ends.
    _expiry: AbortOnDropHandle<()>,
}

/// What a call waits for.
#[derive(Debug)]
pub(super) enum PendingInput {
    /// A permission question.
    Question(Box<Question>),
    /// A request of the call's server.
    Request(ForwardedRequest),
}

impl PendingInput {
    /// Key in an input-required result.
    fn key(&self) -> &'static str {
        match self {
            Self::Question(_) => PERMISSION,
            Self::Request(_) => SERVER,
        }
    }

    fn input(&self) -> Option<InputRequest> {
        let params = match self {
            Self::Question(question) => form(question, FormKind::Call)?,
            Self::Request(request) => request.params()?,
        };
        Some(InputRequest::Elicitation(ElicitRequest::new(params)))
    }

    /// How long it waits.
    fn timeout(&self) -> Duration {
        match self {
            Self::Question(question) => question.expires_at.saturating_sub(question.asked_at),
            Self::Request(_) => REQUEST_TIMEOUT,
        }
    }
}

/// Suspended calls of stateless clients.
#[derive(Debug, Default)]
pub(super) struct SuspendedCalls {
    codec: OnceLock<RequestStateCodec>,
    calls: Arc<Mutex<HashMap<u64, SuspendedCall>>>,
}

impl SuspendedCalls {
    /// The codec that seals state.
    ///
    /// # Errors
    /// The error of the system if it has no random bytes for a key.
    pub(super) fn codec(&self) -> Result<&RequestStateCodec, getrandom::Error> {
        if let Some(codec) = self.codec.get() {
            return Ok(codec);
        }
        let mut key = [0; RequestStateCodec::MIN_KEY_LENGTH];
        getrandom::fill(&mut key)?;
        Ok(self
            .codec
            .get_or_init(|| RequestStateCodec::new_unchecked(key)))
    }

    /// Suspends a call and returns its input-required result; `None` if that fails, such as if too many calls are suspended.
    ///
    /// Its result does not count as a job of the worker, since the client may never send the call again.
    pub(super) fn suspend(
        &self,
        call: ContentHash,
        pending: PendingInput,
        mut running: ClientCall,
    ) -> Option<InputRequiredResult> {
        let (key, input) = (pending.key(), pending.input()?);
        let id = getrandom::u64().ok()?;
        let sealed: SealedState = (id, call);
        let timeout = pending.timeout();
        let seal = SealOptions::new().ttl(timeout);
        let codec = self.codec().ok()?;
        let state = codec.seal_json_with(&sealed, &seal).ok()?;
        let mut calls = self.calls.lock();
        if calls.len() >= MAX_SUSPENDED {
            return None;
        }
        running.call.take_hold();
        let suspended = Arc::downgrade(&self.calls);
        let expiry = tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            let calls = suspended.upgrade();
            let expired = calls.and_then(|calls| calls.lock().remove(&id));
            drop(expired);
        });
        let call = SuspendedCall {
            pending,
            running,
            _expiry: AbortOnDropHandle::new(expiry),
        };
        calls.insert(id, call);
        let requests = InputRequests::from([(key.to_owned(), input)]);
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Takes the suspended call that a stateless client resumes, with its answer, if the client `may_answer` what the
    /// call waits for.
    ///
    /// State that is invalid, expired or of another call is an error.
    pub(super) fn resume(
        &self,
        call: ContentHash,
        state: &str,
        responses: Option<&InputResponses>,
        may_answer: impl Fn(&PendingInput) -> bool,
    ) -> Result<(SuspendedCall, ElicitationAction, Value), ErrorData> {
        let mismatch = || {
            let reason = "requestState is not that of an open question about this call; make the call without it";
            ErrorData::invalid_params(reason, Some(json!({"field": "/requestState"})))
        };
        let codec = self.codec().map_err(|_| mismatch())?;
        let (id, sealed): SealedState = codec.open_json(state).map_err(|_| mismatch())?;
        if sealed != call {
            return Err(mismatch());
        }
        let mut calls = self.calls.lock();
        let call = calls.get(&id);
        let call = call.filter(|call| may_answer(&call.pending));
        let key = call.ok_or_else(mismatch)?.pending.key();
        let Some(answer) = responses.and_then(|responses| responses.get(key)) else {
            let reason = format!("inputResponses lacks the answer to `{key}`");
            return Err(ErrorData::invalid_params(reason, None));
        };
        let action = answer.get("action").cloned().unwrap_or_default();
        let action: ElicitationAction = serde_json::from_value(action)
            .map_err(|_| ErrorData::invalid_params("the answer has no valid `action`", None))?;
        let content = answer.get("content").cloned().unwrap_or_default();
        let resumed = calls.remove(&id).ok_or_else(mismatch)?;
        Ok((resumed, action, content))
    }
}

/// Cancels an elicitation request if it is dropped before the answer.
struct CancelGuard {
    peer: Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let why = Some("the answer is not needed any more".to_owned());
        let cancelled = CancelledNotificationParam::new(Some(id), why);
        let peer = self.peer.clone();
        // Without a tokio runtime there is no connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.notify_cancelled(cancelled).await });
        }
    }
}

/// Sends an elicitation request to a stateful client. Dropping the future cancels the request.
pub(super) async fn elicit(
    context: &RequestContext<RoleServer>,
    params: ElicitRequestParams,
) -> Result<ElicitResult, ServiceError> {
    let peer = context.peer.clone();
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let options = PeerRequestOptions::no_options();
    let handle = peer.send_cancellable_request(request, options).await?;
    let mut guard = CancelGuard {
        id: Some(handle.id.clone()),
        peer,
    };
    let answered = handle.await_response().await;
    guard.id = None;
    match answered? {
        ClientResult::ElicitResult(result) => Ok(result),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// Asks a question of the user of a stateful client.
pub(super) async fn ask_question(
    context: &RequestContext<RoleServer>,
    question: &Question,
) -> FormResponse {
    let Some(form) = form(question, FormKind::Connection) else {
        return FormResponse::Dismissed;
    };
    match elicit(context, form).await {
        Ok(answer) => read(
            question,
            FormKind::Connection,
            &answer.action,
            &answer.content.unwrap_or_default(),
        ),
        Err(error) => {
            tracing::warn!(%error, "the person behind a client could not be asked");
            FormResponse::Dismissed
        }
    }
}

#[cfg(test)]
mod tests {
    use bailiwick::call::{Asks, Call, CallMeta, Mode};
    use bailiwick::fixtures;
    use bailiwick::monitor::EventKind;
    use bailiwick::permission::{Answer, Deferred};
    use bailiwick::worker::{Admission, RunningCall};
    use bailiwick::{Policy, Reply, Runtime, ToolSet, ToolSpec, WorkerSpec};
    use tokio::time::timeout;

    use super::super::forward::ClientCallEvent;
    use super::*;

    fn client_call(call: RunningCall) -> ClientCall {
        ClientCall {
            call,
            requests: None,
            progress: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn suspended_call_ends_with_its_question() {
        let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
        let running = client_call(RunningCall::without_questions(async move {
            let _alive = alive;
            std::future::pending().await
        }));
        let question = fixtures::question(fixtures::request(1, 1, &["write:file:/r/x"]));
        let pending = PendingInput::Question(Box::new(question));
        let limit = pending.timeout() * 2;
        let suspended = SuspendedCalls::default();
        let call = ContentHash::of(b"call");
        assert!(suspended.suspend(call, pending, running).is_some());
        let dropped = timeout(limit, dropped).await;
        assert!(dropped.expect("the call is kept").is_err());
    }

    #[tokio::test]
    async fn large_results_of_suspended_calls_do_not_delay_other_calls() {
        let spec = ToolSpec::new("look", "Look", "Returns a long text.");
        let tools = ToolSet::new().read_function(
            spec,
            |path: &Value, _| {
                let path = path["path"]
                    .as_str()
                    .map(|path| format!("read:file:/repo/{path}"));
                Ok(path.into_iter().map(|need| need.parse().unwrap()).collect())
            },
            |_, _| Ok(Reply::text("x".repeat(1 << 20), ())),
        );
        let bounds = Admission {
            jobs: 1,
            ..Admission::default()
        };
        let root = tempfile::tempdir().unwrap();
        let builder = Runtime::builder().root("repo", root.path()).tools(tools);
        let builder = builder.approver(Deferred).admission(bounds);
        let (runtime, grants) = builder.build().await.unwrap();
        let policy = Policy::ask_for_everything().allow("read:file:/repo/allowed");
        let worker = runtime.spawn(WorkerSpec::new("main").policy(policy));
        let worker = worker.await.unwrap();
        let call = |path: &str, asks| {
            let meta = CallMeta {
                asks,
                ..CallMeta::default()
            };
            Call::new("look", json!({ "path": path })).meta(meta)
        };
        let asking = worker.start_call(call("asked", Asks::WaitAlone), Mode::Apply);
        let mut asking = client_call(asking);
        let Ok(ClientCallEvent::Input(pending)) = asking.next().await else {
            panic!("the call asks nothing");
        };
        let PendingInput::Question(question) = &pending else {
            panic!("{pending:?} is not a question");
        };
        let id = question.id;
        let suspended = SuspendedCalls::default();
        let suspending = suspended.suspend(ContentHash::of(b"call"), pending, asking);
        assert!(suspending.is_some());
        let mut events = runtime.events();
        grants.answer(id, Answer::ONCE).await.unwrap();
        while !matches!(
            events.recv().await.unwrap().kind,
            EventKind::CallEnded { .. }
        ) {}
        let other = worker.submit(call("allowed", Asks::Refuse)).await;
        assert!(other.is_ok(), "{other:?}");
        runtime.shutdown().await;
    }
}
