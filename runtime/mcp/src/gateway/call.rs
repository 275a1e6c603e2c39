//! Handles `tools/call`.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorCode,
    ErrorData, InputResponses, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::backend::Backend;
use super::convert::{self, CallFailure};
use super::elicit::{self, PendingInput};
use super::form::{FormKind, FormResponse, read};
use super::forward::{self, ClientCall, ClientCallEvent, Forwarder};
use super::meta::RequestOptions;
use super::progress::with_progress;
use super::requests::{is_initialized, request_cancelled};
use super::worker_request::WorkerRequest;
use super::{Gateway, RefusalHints, Trust, apps, client_roots};
use bailiwick::call::{Asks, Call, CallMeta, Mode, Origin, Progress};
use bailiwick::effect::ContentHash;
use bailiwick::json::canonical;
use bailiwick::permission::{DecidedBy, GrantAuthority, Question};
use bailiwick::policy::Verdict;
use bailiwick::requests::{CallRequests, RequestCapabilities};
use bailiwick::scope::Scope;
use bailiwick::worker::{Done, ResultHold, RunningCall};
use bailiwick::{CallError, Code};

/// A tool call of a client.
#[derive(Clone, Debug)]
struct ToolCall {
    backend: Arc<Backend>,
    tool: String,
    /// Null once the call has started, unless a stateless client may resume it.
    arguments: Value,
    options: RequestOptions,
    links: convert::ResultLinks,
    /// Counts progress if the client sent a progress token.
    progress: Option<Progress>,
    hints: Option<Arc<RefusalHints>>,
    /// Whether the client may name the roots.
    client_roots: bool,
    is_stateless: bool,
    /// Whether the user of the client may be asked for what the call lacks.
    may_ask: bool,
    /// Whether the client supports tasks.
    supports_tasks: bool,
    /// Identifies the client in requests of servers.
    client_id: Arc<()>,
    /// The requests of servers that the client answers within the call.
    request_capabilities: RequestCapabilities,
}

/// The answer to a call.
pub(super) enum CallAnswer {
    /// The call has ended, and its result is not converted yet.
    Done(DoneCall),
    /// In rmcp's form.
    Response(Box<CallToolResponse>),
}

/// A call that has ended.
pub(super) struct DoneCall {
    pub(super) done: Box<Done>,
    pub(super) links: convert::ResultLinks,
    /// While it is kept, a large result counts as a job of the worker.
    pub(super) hold: Option<Arc<ResultHold>>,
}

impl<T: Into<CallToolResponse>> From<T> for CallAnswer {
    fn from(response: T) -> Self {
        Self::Response(Box::new(response.into()))
    }
}

impl CallAnswer {
    /// The answer in rmcp's form.
    pub(super) fn into_response(self) -> Result<CallToolResponse, ErrorData> {
        match self {
            Self::Done(DoneCall { done, links, .. }) => {
                let result = convert::done(&done, links).map_err(CallFailure::from);
                result.map_or_else(CallFailure::into_response, |result| Ok(result.into()))
            }
            Self::Response(response) => Ok(*response),
        }
    }
}

impl Gateway {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallAnswer, ErrorData> {
        // A task moves its future several times, and this one has several kilobytes.
        let answer = Box::pin(self.handle_call(request, &context)).await;
        answer.or_else(CallFailure::into_response)
    }

    async fn handle_call(
        &self,
        mut request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallAnswer, CallFailure> {
        if let Err(wait) = self.session.rate_limiter.take() {
            let backend = self.backend().await?;
            return Err(backend
                .worker()
                .reject_rate_limited(&request.name, Origin::Model, wait)
                .into());
        }
        let options = RequestOptions::read(&context.meta, self.state.trust)?;
        if let Some(required) = self.roots_required(&request, context).await? {
            return Ok(required.into());
        }
        let capabilities = context.client_capabilities().unwrap_or_default();
        let mut worker_request = WorkerRequest {
            gateway: self,
            backend: self.backend().await?,
            options,
            views: apps::shows_views(&capabilities),
        };
        if worker_request.views {
            request = worker_request.commit_request(request)?;
            let answer = worker_request.call_view_tool(&request, context);
            if let Some(answer) = answer.await? {
                return Ok(answer.into());
            }
        }
        if worker_request.worker().is_app_only(&request.name) {
            if !worker_request.views {
                let origin = worker_request.options.origin;
                let error = worker_request
                    .worker()
                    .reject_unknown_tool(&request.name, origin);
                return Err(error.into());
            }
            // The client hides app-only tools from models, so the call is treated as a call of a view. The gateway cannot
            // check that.
            worker_request.options.origin = Origin::View;
        }
        let (state, responses) = (request.request_state.take(), request.input_responses.take());
        let mut call = self.new_tool_call(request, worker_request, &capabilities, context);
        let resumed = match state {
            Some(state) => Some(self.resume_call(&call, &state, responses.as_ref()).await?),
            None => None,
        };
        // A resumed call counts its progress for the request that started it.
        let progress = match &resumed {
            Some(running) => running.progress.clone(),
            None => call.progress.clone(),
        };
        let running = self.run_call(&mut call, context, resumed);
        let ended = tokio::select! {
            biased;
            ended = with_progress(context, progress, running) => ended,
            // Dropping the call cancels it, unless its effect has begun.
            () = request_cancelled(context) => return Err(cancelled().into()),
        };
        let answer = ended.after_progress().await;
        let answer = answer.or_else(CallFailure::into_response);
        self.log(context, &call.tool, &answer).await;
        Ok(answer?)
    }

    fn new_tool_call(
        &self,
        request: CallToolRequestParams,
        worker_request: WorkerRequest<'_>,
        capabilities: &ClientCapabilities,
        context: &RequestContext<RoleServer>,
    ) -> ToolCall {
        let WorkerRequest {
            backend,
            options,
            views,
            ..
        } = worker_request;
        let version = context.protocol_version();
        let links = version.is_some_and(|version| version >= ProtocolVersion::V_2025_06_18);
        let is_stateless = is_stateless(context);
        // A stateful client must be initialized before it is sent requests.
        let is_ready = is_stateless || is_initialized(context);
        let request_capabilities = is_ready.then(|| forward::request_capabilities(capabilities));
        let request_capabilities = request_capabilities.unwrap_or_default();
        let progress = context.meta.get_progress_token();
        ToolCall {
            tool: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            links: convert::ResultLinks {
                supported: links,
                review: links && (views || self.state.always_link_review),
                artifacts: views || options.uses_extensions || self.state.trust == Trust::Host,
            },
            may_ask: self.state.ask_client
                && options.granted.is_empty()
                && self.state.trust != Trust::Agent
                && backend.grants.is_some()
                && request_capabilities.forms,
            options,
            backend,
            progress: progress.map(|_| Progress::default()),
            hints: self.state.refusal_hints.clone(),
            client_roots: self.state.client_roots,
            is_stateless,
            supports_tasks: is_stateless && capabilities.supports_tasks(),
            client_id: Arc::clone(&self.session.client_id),
            request_capabilities,
        }
    }

    async fn run_call(
        &self,
        call: &mut ToolCall,
        context: &RequestContext<RoleServer>,
        resumed: Option<ClientCall>,
    ) -> Result<CallAnswer, CallFailure> {
        if !call.options.ignored_grants.is_empty() {
            let worker = call.backend.worker();
            worker.audit_ignored_grants(&call.to_call(Asks::Refuse), &call.options.ignored_grants);
        }
        // A resumed call continues; it is not started again.
        if let Some(running) = resumed {
            return self.run_asking(call, running, context).await;
        }
        let may_be_task = call.may_be_task();
        // A call whose needs are all allowed may become a task. It may still need approval for needs that it finds
        // while it runs.
        let asks_client = call.may_ask && !(may_be_task && call.is_allowed().await);
        let asks = match asks_client {
            true if call.is_stateless => Asks::WaitAlone,
            true => Asks::Wait,
            false => self.state.asks_without_elicitation,
        };
        if may_be_task && !asks_client {
            let owner = call.backend.name.clone();
            let mut call = call.clone();
            let task = tokio::spawn(async move { call.run_as_task(asks).await });
            let task = AbortOnDropHandle::new(task);
            return Ok(self.state.tasks.answer(&owner, task).await?.into());
        }
        let running = call.start(asks, asks_client);
        self.run_asking(call, running, context).await
    }

    /// Runs a call and asks its questions one by one. A stateless client gets the question as its result.
    async fn run_asking(
        &self,
        call: &ToolCall,
        mut running: ClientCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallAnswer, CallFailure> {
        let mut forwarded = None;
        let mut event = running.next().await;
        loop {
            let pending = match event.map_err(|error| call.with_hint(error))? {
                ClientCallEvent::End(done) => {
                    return Ok(CallAnswer::Done(DoneCall {
                        done,
                        links: call.links,
                        hold: running.call.take_hold(),
                    }));
                }
                ClientCallEvent::Input(pending) => pending,
            };
            if call.is_stateless {
                let suspended = &self.state.suspended;
                let suspended = suspended.suspend(call.digest(), pending, running);
                let full = || {
                    let error = CallError::new(Code::Busy, "too many questions are open");
                    error.with("retry_after_ms", 1000)
                };
                return Ok(suspended.ok_or_else(full)?.into());
            }
            event = match pending {
                PendingInput::Question(question) => tokio::select! {
                    biased;
                    event = running.next() => event,
                    answered = Box::pin(self.ask(&question, call, context)) => {
                        answered?;
                        running.next().await
                    }
                    () = self.session.input_closed() => {
                        let message = "the client has disconnected, so nobody can be asked";
                        return Err(CallError::new(Code::Cancelled, message).into());
                    }
                },
                PendingInput::Request(request) => {
                    let forwarded = forwarded.get_or_insert_with(FuturesUnordered::new);
                    forwarded.push(request.ask(context, &self.session.asking));
                    self.next_event(&mut running, forwarded).await
                }
            };
        }
    }

    /// The next event of a call while the client answers requests of servers.
    async fn next_event<F: Future<Output = ()>>(
        &self,
        running: &mut ClientCall,
        forwarded: &mut FuturesUnordered<F>,
    ) -> Result<ClientCallEvent, CallError> {
        loop {
            tokio::select! {
                biased;
                event = running.next() => return event,
                Some(()) = forwarded.next() => {}
                // The client has disconnected, which cancels the requests.
                () = self.session.input_closed(), if !forwarded.is_empty() => forwarded.clear(),
            }
        }
    }

    /// Asks the user of a stateful client a question, one at a time, unless the question is no longer open.
    async fn ask(
        &self,
        question: &Question,
        call: &ToolCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), CallError> {
        let grants = call.grants(question)?;
        let _lock = self.session.asking.lock().await;
        if let Ok(Some(_)) = grants.question(question.id).await {
            let response = elicit::ask_question(context, question).await;
            submit_answer(grants, question, response).await?;
        }
        Ok(())
    }

    /// The suspended call that a stateless client resumes, after its question was answered.
    async fn resume_call(
        &self,
        call: &ToolCall,
        state: &str,
        responses: Option<&InputResponses>,
    ) -> Result<ClientCall, CallFailure> {
        let may_answer = |pending: &PendingInput| match pending {
            PendingInput::Question(_) => call.is_stateless && call.may_ask,
            PendingInput::Request(_) => call.is_stateless && call.answers_requests(),
        };
        let suspended = &self.state.suspended;
        let (resumed, action, content) =
            suspended.resume(call.digest(), state, responses, may_answer)?;
        match resumed.pending {
            PendingInput::Request(request) => request.answer(&action, content),
            PendingInput::Question(question) => {
                let response = read(&question, FormKind::Call, &action, &content);
                // Without an answer the call is dropped, which cancels its question.
                submit_answer(call.grants(&question)?, &question, response).await?;
            }
        }
        Ok(resumed.running)
    }
}

pub(super) fn cancelled() -> ErrorData {
    let reason = "the call was cancelled";
    ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None)
}

/// Submits an answer to the broker. If the answer is invalid, the question ends as decided by the client; if it cannot
/// be applied, as decided by the host. Neither counts as a denial by a person.
async fn submit_answer(
    grants: &GrantAuthority,
    question: &Question,
    response: FormResponse,
) -> Result<(), CallError> {
    match response {
        FormResponse::Dismissed => return Err(no_response(question)),
        FormResponse::Unusable => {
            tracing::warn!(question = %question.id, "a client sent an answer that cannot be used");
            grants.refuse_unusable(question.id, DecidedBy::Client);
        }
        FormResponse::Answer(answer) => {
            if let Err(error) = grants.answer(question.id, answer).await {
                tracing::warn!(%error, question = %question.id, "an answer had no effect");
                grants.refuse_unusable(question.id, DecidedBy::Host);
            }
        }
    }
    Ok(())
}

/// The user gave no answer, which is not a denial.
fn no_response(question: &Question) -> CallError {
    let message = "the user of the client did not answer";
    CallError::new(Code::ScopeRequired, message).requesting(question.request.needs.clone())
}

impl ToolCall {
    /// Identifies the call by everything that it depends on, including options in `_meta`, such as a policy or preview
    /// token. An answer is valid for the same call only.
    fn digest(&self) -> ContentHash {
        let RequestOptions {
            preview,
            policy,
            origin,
            preview_token,
            confirm,
            // No question is asked about a call with grants.
            granted: _,
            ignored_grants: _,
            uses_extensions: _,
        } = &self.options;
        let identity = json!([
            self.backend.name,
            self.tool,
            canonical(self.arguments.clone()),
            preview,
            policy.clone().map(canonical),
            origin,
            preview_token,
            confirm,
        ]);
        ContentHash::of(identity.to_string().as_bytes())
    }

    fn to_call(&self, asks: Asks) -> Call {
        self.with_arguments(self.arguments.clone(), asks)
    }

    fn with_arguments(&self, arguments: Value, asks: Asks) -> Call {
        Call::new(&self.tool, arguments).meta(CallMeta {
            preview_token: self.options.preview_token,
            progress: self.progress.clone(),
            asks,
            confirm: self.options.confirm,
            ..self.options.call_meta()
        })
    }

    /// Whether to preview the call; calls that only read are always run.
    fn mode(&self) -> Mode {
        if self.options.preview && self.backend.worker().mutates(&self.tool) {
            Mode::Preview
        } else {
            Mode::Apply
        }
    }

    /// Whether the policy allows all needs of the call, without following links.
    async fn is_allowed(&self) -> bool {
        let call = self.to_call(Asks::Refuse);
        let explained = self.backend.worker().explain_later(&call).await;
        explained.is_ok_and(|needs| needs.iter().all(|need| need.verdict == Verdict::Allow))
    }

    /// The authority that answers a question about the call.
    fn grants(&self, question: &Question) -> Result<&Arc<GrantAuthority>, CallError> {
        let grants = self.backend.grants.as_ref();
        grants.ok_or_else(|| no_response(question))
    }

    /// Appends a hint on what the user can do to the error of a denied call.
    fn with_hint(&self, error: CallError) -> CallError {
        if self.client_roots
            && error.code() == Code::PermissionDenied
            && self.backend.worker().has_no_root()
        {
            return error.and(client_roots::HINT);
        }
        let Some(hints) = &self.hints else {
            return error;
        };
        let outside = |scope: &Scope| {
            let open = self.backend.worker().open_folders();
            let path = scope.path();
            path.is_some_and(|path| !open.iter().any(|folder| path.starts_with(&folder.path)))
        };
        match error.code() {
            Code::ScopeRequired => error.and(&hints.ask),
            Code::PermissionDenied if error.denied().is_some_and(outside) => {
                error.and(&hints.outside)
            }
            _ => error,
        }
    }

    /// Whether the client answers any request of a server.
    fn answers_requests(&self) -> bool {
        self.request_capabilities.forms || self.request_capabilities.urls
    }

    /// Whether a server may send requests to the client within the call.
    fn may_forward(&self) -> bool {
        self.answers_requests() && self.backend.worker().is_remote(&self.tool)
    }

    /// Whether the call may become a task if it is slow: it must change nothing and forward no requests of servers.
    fn may_be_task(&self) -> bool {
        self.supports_tasks && !self.backend.worker().mutates(&self.tool) && !self.may_forward()
    }

    /// Starts the call, and forwards requests of servers.
    fn start(&mut self, asks: Asks, asks_client: bool) -> ClientCall {
        let arguments = if self.is_stateless {
            self.arguments.clone()
        } else {
            self.arguments.take()
        };
        let mut call = self.with_arguments(arguments, asks);
        let requests = self.may_forward().then(|| {
            let (sender, requests) = mpsc::unbounded_channel();
            let request_capabilities = self.request_capabilities;
            let forwarder = Forwarder {
                request_capabilities,
                sender,
            };
            call.meta.requests = Some(CallRequests::of_client(&self.client_id, forwarder));
            requests
        });
        ClientCall {
            call: self.start_in_worker(call, asks_client),
            requests,
            progress: self.progress.clone(),
        }
    }

    /// Starts the call with its grants. Its questions are returned only if the client is asked.
    fn start_in_worker(&self, call: Call, asks_client: bool) -> RunningCall {
        let (worker, mode) = (self.backend.worker(), self.mode());
        let grants = self.backend.grants.as_ref();
        let Some(grants) = grants.filter(|_| !self.options.granted.is_empty()) else {
            return match asks_client {
                true => worker.start_call(call, mode),
                false => worker.start_call_without_questions(call, mode),
            };
        };
        let (grants, worker) = (Arc::clone(grants), worker.clone());
        let granted = self.options.granted.clone();
        RunningCall::without_questions(async move {
            match mode {
                Mode::Preview => grants
                    .preview(&worker, call, granted)
                    .await
                    .map(|preview| Done::Preview(preview.into())),
                Mode::Apply => grants
                    .submit(&worker, call, granted)
                    .await
                    .map(Done::Outcome),
            }
        })
    }

    /// Runs the call without asking the user of the client.
    async fn run_as_task(&mut self, asks: Asks) -> Result<CallToolResult, ErrorData> {
        let mut running = self.start(asks, false);
        let result = loop {
            match running.next().await {
                Ok(ClientCallEvent::End(done)) => break convert::done(&done, self.links),
                // A task gets neither questions nor requests of servers.
                Ok(ClientCallEvent::Input(_)) => {}
                Err(error) => break Err(self.with_hint(error)),
            }
        };
        result.or_else(|error| convert::failure(&error))
    }
}

/// Whether the request is of a stateless revision.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bailiwick::fixtures::asked;
    use bailiwick::permission::{Answer, Lifetime};

    /// Who denied the request according to the broker after a client sent `response`, with room for `max_grants` grants.
    async fn decided(max_grants: usize, response: FormResponse) -> Option<DecidedBy> {
        let (grants, question, denied_by) = asked(max_grants).await;
        assert!(submit_answer(&grants, &question, response).await.is_ok());
        denied_by.await
    }

    #[tokio::test]
    async fn failed_approval_is_not_recorded_as_denial_by_a_person() {
        let yes = || FormResponse::Answer(Answer::allow(Lifetime::Session));
        assert_eq!(decided(1, yes()).await, None);
        assert_eq!(decided(0, yes()).await, Some(DecidedBy::Host));
    }

    #[tokio::test]
    async fn unusable_answer_is_recorded_as_decided_by_the_client() {
        assert_eq!(
            decided(1, FormResponse::Unusable).await,
            Some(DecidedBy::Client)
        );
        let no = FormResponse::Answer(Answer::DENY);
        assert_eq!(decided(1, no).await, Some(DecidedBy::Person));
    }
}
