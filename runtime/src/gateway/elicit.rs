//! Puts what a call waits for to the person behind its client: permission questions, and requests of third-party servers.
//!
//! A connection of trust [`Agent`](super::Trust::Agent) is never asked this way: behind an agent's own client stands the
//! agent. Clients with a handshake are sent `elicitation/create`; stateless ones get the form as their result, with a
//! sealed note of which call it is about, and send the call again with the answer. The question itself is the broker's:
//! equal ones are joined, limits and refusals count, and it is answered once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CancelledNotificationParam, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    RequestId, RequestStateCodec, SealOptions, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, RoleServer, ServiceError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::form::{FormKind, FormResponse, form, read};
use super::forward::{ForwardedRequest, RunningCall};
use super::meta::RequestOptions;
use crate::effect::ContentHash;
use crate::permission::Question;
use crate::pipeline::canonical;

/// The key of a question of this server in an input-required result.
const PERMISSION: &str = "permission";
/// The key of what a third-party server asks in an input-required result.
const SERVER: &str = "server";
/// How long a request of a third-party server waits for a stateless client.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// How many calls are kept at once.
const MAX_SUSPENDED: usize = 256;

/// The call that a question is about, in all that its answer counts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallIdentity<'a> {
    /// Names the worker among those of all runtimes of this process.
    pub(super) worker: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    /// What else came with it: a policy, a token, whether it only shows what it would do.
    pub(super) options: &'a RequestOptions,
}

impl CallIdentity<'_> {
    fn digest(self) -> ContentHash {
        let RequestOptions {
            preview,
            policy,
            origin,
            preview_token,
            confirm,
            // A call that brings grants asks nobody.
            granted: _,
            ignored_grants: _,
            uses_extensions: _,
        } = self.options;
        let whole = json!([
            self.worker,
            self.tool,
            canonical(self.arguments),
            preview,
            policy.as_ref().map(canonical),
            origin,
            preview_token,
            confirm,
        ]);
        ContentHash::of(whole.to_string().as_bytes())
    }
}

/// What a stateless client gets to bring back, sealed.
#[derive(Debug, Serialize, Deserialize)]
struct SealedState {
    id: u64,
    call: ContentHash,
}

/// A call that waits for its client to come back.
#[derive(Debug)]
struct SuspendedCall {
    pending: PendingInput,
    running: RunningCall,
    /// When what it waits for has ended.
    expires_at: Instant,
}

/// What a call waits for.
#[derive(Debug)]
pub(super) enum PendingInput {
    /// A person's permission.
    Question(Box<Question>),
    /// What the server of the call asked for.
    Request(ForwardedRequest),
}

impl PendingInput {
    /// Its key in an input-required result.
    fn key(&self) -> &'static str {
        match self {
            Self::Question(_) => PERMISSION,
            Self::Request(_) => SERVER,
        }
    }

    fn input(&self) -> Option<InputRequest> {
        match self {
            Self::Question(question) => {
                let asked = form(question, FormKind::Call)?;
                Some(InputRequest::Elicitation(ElicitRequest::new(asked)))
            }
            Self::Request(request) => request.input(),
        }
    }

    /// How long it waits.
    fn timeout(&self) -> Duration {
        match self {
            Self::Question(question) => question.expires_at.saturating_sub(question.asked_at),
            Self::Request(_) => REQUEST_TIMEOUT,
        }
    }
}

/// A call that its client came back to, with the answer to what it waits for.
pub(super) struct ResumedCall {
    pub(super) running: RunningCall,
    pub(super) pending: PendingInput,
    pub(super) action: ElicitationAction,
    pub(super) content: Value,
}

/// Keeps calls that wait for stateless clients.
#[derive(Debug, Default)]
pub(super) struct SuspendedCalls {
    codec: OnceLock<RequestStateCodec>,
    calls: Mutex<HashMap<u64, SuspendedCall>>,
}

impl SuspendedCalls {
    /// What seals notes.
    ///
    /// # Errors
    /// The system's, if it gives no random bits for a key.
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

    /// Keeps a call and makes what it waits for the result; none if too many are kept.
    pub(super) fn suspend(
        &self,
        call: CallIdentity<'_>,
        pending: PendingInput,
        running: RunningCall,
    ) -> Option<InputRequiredResult> {
        let (key, input) = (pending.key(), pending.input()?);
        let id = u64::from_le_bytes(random_bytes()?);
        let sealed = SealedState {
            id,
            call: call.digest(),
        };
        let timeout = pending.timeout();
        let seal = SealOptions::new().ttl(timeout);
        let codec = self.codec().ok()?;
        let state = codec.seal_json_with(&sealed, &seal).ok()?;
        let mut calls = self.lock();
        let now = Instant::now();
        calls.retain(|_, call| now < call.expires_at);
        if calls.len() >= MAX_SUSPENDED {
            return None;
        }
        let call = SuspendedCall {
            pending,
            running,
            expires_at: now.checked_add(timeout)?,
        };
        calls.insert(id, call);
        let requests = InputRequests::from([(key.to_owned(), input)]);
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// The call that a stateless client comes back to, and the answer it brings. It can come back once, and only to what it
    /// `may_answer`.
    ///
    /// An answer to another question, one that was tampered with and one that comes too late are errors.
    pub(super) fn resume(
        &self,
        call: CallIdentity<'_>,
        state: &str,
        responses: Option<&InputResponses>,
        may_answer: impl Fn(&PendingInput) -> bool,
    ) -> Result<ResumedCall, ErrorData> {
        let mismatch = || {
            let reason = "requestState is not that of an open question about this call; make the call without it";
            ErrorData::invalid_params(reason, Some(json!({"field": "/requestState"})))
        };
        let codec = self.codec().map_err(|_| mismatch())?;
        let sealed: SealedState = codec.open_json(state).map_err(|_| mismatch())?;
        if sealed.call != call.digest() {
            return Err(mismatch());
        }
        let mut calls = self.lock();
        let call = calls.get(&sealed.id);
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
        let SuspendedCall {
            running, pending, ..
        } = calls.remove(&sealed.id).ok_or_else(mismatch)?;
        Ok(ResumedCall {
            running,
            pending,
            action,
            content,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, SuspendedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn random_bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// A form that a client shows. Dropping it before it is answered cancels the request.
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
        // Without a runtime there is no connection either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.notify_cancelled(cancelled).await });
        }
    }
}

/// What the person behind a client with a handshake answers. Dropping the future takes the question back.
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

/// What the person behind a client with a handshake answers; nothing if they cannot be asked, or send the form away.
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
