//! Handles `tools/call`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, ErrorData, InputResponses,
    ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;

use super::backend::Backend;
use super::convert;
use super::elicit::{self, CallIdentity, PendingInput, ResumedCall};
use super::form::{FormKind, FormResponse, read};
use super::forward::{ClientCall, ClientCallEvent, ForwardTarget, shows_forms};
use super::meta::RequestOptions;
use super::requests::{is_initialized, request_cancelled};
use super::tasks::CallTask;
use super::view_tools;
use super::{ApprovalMode, Gateway, RefusalHints, Trust, apps, client_roots};
use bailiwick::call::{Asks, Call, CallMeta, Origin, Progress};
use bailiwick::error::{CallError, Code};
use bailiwick::permission::{DecidedBy, GrantAuthority, Question};
use bailiwick::pipeline::Mode;
use bailiwick::policy::Verdict;
use bailiwick::scope::Scope;
use bailiwick::worker::{CallEvent, Done, RunningCall};

/// Minimum time between progress notifications of a call.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A tool call of a client.
#[derive(Clone, Debug)]
struct ToolCall {
    backend: Arc<Backend>,
    tool: String,
    arguments: Value,
    options: RequestOptions,
    links: convert::ResultLinks,
    /// Counts progress if the client sent a progress token.
    progress: Option<Progress>,
    hints: Option<RefusalHints>,
    /// Answers requests of third-party servers within the call.
    forward_target: ForwardTarget,
    /// Whether the client may name the roots.
    client_roots: bool,
}

impl Gateway {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Err(wait) = self.session.rate_limiter.take() {
            let backend = self.backend().await?;
            let error = backend.worker().refuse_pace(&request.name, wait);
            return convert::failure(&error).map(Into::into);
        }
        let mut options = RequestOptions::read(&context.meta, self.state.trust)?;
        if let Some(required) = self.roots_required(&request, &context).await? {
            return Ok(required.into());
        }
        let backend = self.backend().await?;
        let views = apps::shows_views(context.client_capabilities().as_ref());
        let request = match view_tools::commit_request(request, views, &backend, &mut options) {
            Ok(request) => request,
            Err(error) => return convert::failure(&error).map(Into::into),
        };
        if views
            && let Some(answer) = self
                .call_view_tool(&request, &backend, &options, &context)
                .await
        {
            return answer.map(Into::into);
        }
        if backend.worker().is_app_only(&request.name) {
            if !views {
                let error = backend
                    .worker()
                    .refuse_unknown(&request.name, options.origin);
                return convert::failure(&error).map(Into::into);
            }
            // The client hides app-only tools from models, so the call is treated as a call of a view. The gateway cannot
            // check that.
            options.origin = Origin::View;
        }
        let call = ToolCall {
            links: self.links(views, &options, &context),
            options,
            backend,
            tool: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            progress: context
                .meta
                .get_progress_token()
                .map(|_| Progress::default()),
            hints: self.state.refusal_hints.clone(),
            forward_target: ForwardTarget::new(&self.session.client_id, &context),
            client_roots: self.state.client_roots,
        };
        let (state, responses) = (request.request_state, request.input_responses.as_ref());
        let resumed = self.resume_call(&call, &context, state.as_deref(), responses);
        let resumed = match resumed.await? {
            Ok(resumed) => resumed,
            Err(error) => return convert::failure(&error).map(Into::into),
        };
        let progress = call.progress.clone();
        let answer = tokio::select! {
            biased;
            answer = self.run_call(&call, &context, resumed) => answer,
            never = report_progress(&context, progress) => match never {},
            // Dropping the call cancels it, unless its effect has begun.
            () = request_cancelled(&context) => return Err(cancelled()),
        };
        self.log(&context, &call.tool, &answer).await;
        answer
    }

    fn links(
        &self,
        views: bool,
        options: &RequestOptions,
        context: &RequestContext<RoleServer>,
    ) -> convert::ResultLinks {
        let supported = supports_resource_links(context);
        convert::ResultLinks {
            supported,
            review: supported && (views || self.state.links),
            artifacts: views || options.uses_extensions || self.state.trust == Trust::Host,
        }
    }

    async fn run_call(
        &self,
        call: &ToolCall,
        context: &RequestContext<RoleServer>,
        resumed: Option<ClientCall>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !call.options.ignored_grants.is_empty() {
            let worker = call.backend.worker();
            worker.note_ignored_grants(&call.to_call(Asks::Refuse), &call.options.ignored_grants);
        }
        // A resumed call continues; it is not started again.
        if let Some(running) = resumed {
            return self.run_asking(call, running, context).await;
        }
        let (asks, asks_client) = match &self.state.approval {
            ApprovalMode::Replay => (Asks::Wait, false),
            ApprovalMode::Client { otherwise } if !self.may_ask(call, context) => {
                (*otherwise, false)
            }
            // A call whose needs are all allowed may become a task. It may still need approval for needs that it finds
            // while it runs.
            ApprovalMode::Client { otherwise }
                if may_be_task(call, context) && call.is_allowed().await =>
            {
                (*otherwise, false)
            }
            ApprovalMode::Client { .. } if is_stateless(context) => (Asks::WaitAlone, true),
            ApprovalMode::Client { .. } => (Asks::Wait, true),
        };
        if !asks_client && !call.may_forward() {
            return self.run_unasked(call, asks, context).await;
        }
        let running = call.start(asks, asks_client);
        self.run_asking(call, running, context).await
    }

    /// Runs a call without asking the user of the client.
    async fn run_unasked(
        &self,
        call: &ToolCall,
        asks: Asks,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if may_be_task(call, context) {
            let owner = call.backend.name().to_owned();
            let call = call.clone();
            let task = CallTask(tokio::spawn(async move { call.answer(asks).await }));
            return self.state.tasks.answer(&owner, task).await;
        }
        call.answer(asks).await.map(Into::into)
    }

    /// Whether the user of the client may be asked for what a call lacks. A stateful client must be initialized first.
    fn may_ask(&self, call: &ToolCall, context: &RequestContext<RoleServer>) -> bool {
        let capabilities = context.client_capabilities();
        call.options.granted.is_empty()
            && self.state.trust != Trust::Agent
            && call.backend.grants().is_some()
            && capabilities
                .and_then(|them| them.elicitation)
                .is_some_and(|elicitation| shows_forms(&elicitation))
            && (is_stateless(context) || is_initialized(context))
    }

    /// Runs a call and asks its questions one by one. A stateless client gets the question as its result.
    async fn run_asking(
        &self,
        call: &ToolCall,
        mut running: ClientCall,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut forwarded = FuturesUnordered::new();
        let mut event = running.next().await;
        loop {
            let pending = match event {
                Err(error) => return convert::failure(&call.with_hint(error)).map(Into::into),
                Ok(ClientCallEvent::End(done)) => {
                    return into_response(call.result(&done)).map(Into::into);
                }
                Ok(ClientCallEvent::Question(question)) => PendingInput::Question(question),
                Ok(ClientCallEvent::Request(request)) => PendingInput::Request(request),
            };
            if is_stateless(context) {
                let suspended = self
                    .state
                    .suspended
                    .suspend(call.identity(), pending, running);
                let full = || CallError::new(Code::Busy, "too many questions are open");
                return suspended.map_or_else(
                    || convert::failure(&full().with("retry_after_ms", 1000)).map(Into::into),
                    |required| Ok(required.into()),
                );
            }
            event = match pending {
                PendingInput::Question(question) => tokio::select! {
                    biased;
                    event = running.next() => event,
                    answered = self.ask(&question, call, context) => match answered {
                        Ok(()) => running.next().await,
                        Err(NoResponse) => return convert::failure(&no_response(&question)).map(Into::into),
                    },
                    () = self.session.input_closed() => {
                        let message = "the client has disconnected, so nobody can be asked";
                        let error = CallError::new(Code::Cancelled, message);
                        return convert::failure(&error).map(Into::into);
                    }
                },
                PendingInput::Request(request) => {
                    forwarded.push(request.ask(context, &self.session.asking));
                    self.next_event(&mut running, &mut forwarded).await
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
    ) -> Result<(), NoResponse> {
        let grants = call.backend.grants().ok_or(NoResponse)?;
        let _lock = self.session.asking.lock().await;
        if let Ok(Some(_)) = grants.question(question.id).await {
            let response = elicit::ask_question(context, question).await;
            submit_answer(grants, question, response).await?;
        }
        Ok(())
    }

    /// The suspended call that a stateless client resumes, after its question was answered; `None` for a new call.
    async fn resume_call(
        &self,
        call: &ToolCall,
        context: &RequestContext<RoleServer>,
        state: Option<&str>,
        responses: Option<&InputResponses>,
    ) -> Result<Result<Option<ClientCall>, CallError>, ErrorData> {
        let Some(state) = state else {
            return Ok(Ok(None));
        };
        let may_ask = is_stateless(context) && self.may_ask(call, context);
        let may_forward = is_stateless(context) && call.forward_target.is_possible();
        let identity = call.identity();
        let suspended = &self.state.suspended;
        let resumed = suspended.resume(identity, state, responses, |pending| match pending {
            PendingInput::Question(_) => may_ask,
            PendingInput::Request(_) => may_forward,
        })?;
        let ResumedCall {
            running,
            pending,
            action,
            content,
        } = resumed;
        match pending {
            PendingInput::Request(request) => {
                request.answer(&action, content);
                Ok(Ok(Some(running)))
            }
            PendingInput::Question(question) => {
                let grants = call.backend.grants();
                let response = read(&question, FormKind::Call, &action, &content);
                let Some(grants) = grants else {
                    return Ok(Err(no_response(&question)));
                };
                match submit_answer(grants, &question, response).await {
                    Ok(()) => Ok(Ok(Some(running))),
                    // Dropping the call cancels its question.
                    Err(NoResponse) => Ok(Err(no_response(&question))),
                }
            }
        }
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
) -> Result<(), NoResponse> {
    match response {
        FormResponse::Dismissed => return Err(NoResponse),
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
struct NoResponse;

fn no_response(question: &Question) -> CallError {
    let message = "the person behind the client gave no answer";
    CallError::new(Code::ScopeRequired, message).requesting(question.request.needs.clone())
}

impl ToolCall {
    fn identity(&self) -> CallIdentity<'_> {
        CallIdentity {
            worker: self.backend.name(),
            tool: &self.tool,
            arguments: &self.arguments,
            options: &self.options,
        }
    }

    fn to_call(&self, asks: Asks) -> Call {
        Call::new(&self.tool, self.arguments.clone()).meta(CallMeta {
            origin: self.options.origin,
            policy: self.options.policy.clone(),
            excluded_hunks: Vec::new(),
            preview_token: self.options.preview_token,
            deadline: None,
            progress: self.progress.clone(),
            asks,
            confirm: self.options.confirm,
            requests: None,
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

    async fn answer(&self, asks: Asks) -> Result<CallToolResult, ErrorData> {
        let done = self.run(asks).await;
        into_response(done.map_err(|error| self.with_hint(error)))
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

    /// Whether a server may send requests to the client within the call.
    fn may_forward(&self) -> bool {
        self.forward_target.is_possible() && self.backend.worker().is_remote(&self.tool)
    }

    /// Starts the call, and forwards requests of servers.
    fn start(&self, asks: Asks, asks_client: bool) -> ClientCall {
        let (requests, forwarded) = self.forward_target.call_requests();
        let mut call = self.to_call(asks);
        call.meta.requests = Some(requests);
        ClientCall::new(self.begin(call), forwarded, asks_client)
    }

    /// Starts the call with its grants.
    fn begin(&self, call: Call) -> RunningCall {
        let (worker, mode) = (self.backend.worker(), self.mode());
        let grants = self.backend.grants();
        let Some(grants) = grants.filter(|_| !self.options.granted.is_empty()) else {
            return worker.underway(call, mode);
        };
        let (grants, worker) = (Arc::clone(grants), worker.clone());
        let granted = self.options.granted.clone();
        RunningCall::without_questions(async move {
            match mode {
                Mode::Preview => grants
                    .preview(&worker, call, granted)
                    .await
                    .map(Done::Preview),
                Mode::Apply => grants
                    .submit(&worker, call, granted)
                    .await
                    .map(Done::Outcome),
            }
        })
    }

    async fn run(&self, asks: Asks) -> Result<CallToolResult, CallError> {
        let mut running = self.begin(self.to_call(asks));
        loop {
            if let CallEvent::End(done) = running.next().await? {
                return self.result(&done);
            }
        }
    }

    fn result(&self, done: &Done) -> Result<CallToolResult, CallError> {
        match done {
            Done::Preview(preview) => convert::preview(preview, self.links),
            Done::Outcome(outcome) => convert::outcome(outcome, self.links),
        }
    }
}

fn into_response(result: Result<CallToolResult, CallError>) -> Result<CallToolResult, ErrorData> {
    result.or_else(|error| convert::failure(&error))
}

/// Sends progress notifications if the client asked for them; never returns.
async fn report_progress(
    context: &RequestContext<RoleServer>,
    progress: Option<Progress>,
) -> Infallible {
    let (Some(token), Some(progress)) = (context.meta.get_progress_token(), progress) else {
        return std::future::pending().await;
    };
    let mut reported = 0;
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let done = progress.done();
        if done > reported {
            reported = done;
            #[expect(
                clippy::cast_precision_loss,
                reason = "MCP counts in floating point; a count beyond 2^53 may be rounded"
            )]
            let update = ProgressNotificationParam::new(token.clone(), done as f64);
            // A failure to send shows when the answer is sent.
            let _ = context.peer.notify_progress(update).await;
        }
    }
}

fn supports_resource_links(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2025_06_18)
}

/// Whether the request is of a stateless revision.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Whether a slow call may become a task: the client must support tasks, and the call must change nothing and forward no
/// requests of servers.
fn may_be_task(call: &ToolCall, context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    is_stateless(context)
        && capabilities.is_some_and(|capabilities| capabilities.supports_tasks())
        && !call.backend.worker().mutates(&call.tool)
        && !call.may_forward()
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
        let yes = || {
            FormResponse::Answer(Answer::Allow {
                patterns: Vec::new(),
                lifetime: Lifetime::Session,
                descendants: false,
                left_out: Vec::new(),
            })
        };
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
