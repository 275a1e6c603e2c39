//! A `tools/call` request in, one call of the connection's worker made, its answer out.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorCode, ErrorData,
    ProgressNotificationParam, ProtocolVersion, RequestStateCodec,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;

use super::ask::{self, Subject};
use super::convert;
use super::door::Served;
use super::meta::Extras;
use super::tasks::Underway;
use super::{Asking, Gateway};
use crate::call::{Call, CallMeta, Progress};
use crate::error::{CallError, Code};
use crate::scope::ScopePattern;

/// How often a client hears of its call's progress at most.
const BETWEEN: Duration = Duration::from_millis(250);

/// One call on its way through the gateway.
#[derive(Clone, Debug)]
struct Errand {
    served: Arc<Served>,
    tool: String,
    arguments: Value,
    extras: Extras,
    /// The client's revision knows blocks that link to resources.
    links: bool,
    /// Counts the work for a client that wants to hear of it.
    progress: Option<Progress>,
}

impl Gateway {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Err(wait) = self.session.bucket.take() {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            let error =
                CallError::new(Code::RateLimited, "calls come too fast; wait and try again");
            return convert::failure(&error.with("retry_after_ms", ms)).map(Into::into);
        }
        let mut errand = Errand {
            extras: Extras::read(&context.meta, self.desk.trust)?,
            served: self.served().await?,
            tool: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            links: shows_links(&context),
            progress: context
                .meta
                .get_progress_token()
                .map(|_| Progress::default()),
        };
        if let Some(state) = request.request_state {
            match self.redeemed(&errand, &state, request.input_responses.as_ref())? {
                Some(granted) => errand.extras.granted.extend(granted),
                None => return convert::failure(&refused()).map(Into::into),
            }
        }
        let progress = errand.progress.clone();
        let answer = tokio::select! {
            biased;
            answer = self.carried_out(&mut errand, &context) => answer,
            never = progressing(&context, progress) => match never {},
            // Dropping the call withdraws it: an effect that has begun is completed, and nothing else is.
            () = context.ct.cancelled() => {
                let reason = "the call was cancelled";
                return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None));
            }
        };
        self.log(&context, &errand.tool, &answer).await;
        answer
    }

    async fn carried_out(
        &self,
        errand: &mut Errand,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if may_be_task(errand, context) {
            let owner = errand.served.name().to_owned();
            let errand = errand.clone();
            let underway = Underway(tokio::spawn(async move { errand.answer().await }));
            return self.desk.tasks.answer(&owner, underway).await;
        }
        match (errand.run().await, &self.desk.asking) {
            (Err(error), Asking::Client(codec)) if self.may_ask(errand, &error, context) => {
                asked(codec, errand, &error, context).await
            }
            (result, _) => answered(result).map(Into::into),
        }
    }

    /// Whether the person behind the client may be asked for what a call lacks.
    fn may_ask(
        &self,
        errand: &Errand,
        error: &CallError,
        context: &RequestContext<RoleServer>,
    ) -> bool {
        let capabilities = context.client_capabilities();
        error.code() == Code::ScopeRequired
            && errand.extras.granted.is_empty()
            && self.desk.trust.is_host()
            && errand.served.grants().is_some()
            && capabilities.is_some_and(|capabilities| capabilities.elicitation.is_some())
    }

    /// What a person granted in answer to a question that this gateway put.
    fn redeemed(
        &self,
        errand: &Errand,
        state: &str,
        responses: Option<&rmcp::model::InputResponses>,
    ) -> Result<Option<Vec<ScopePattern>>, ErrorData> {
        match &self.desk.asking {
            Asking::Client(codec) if self.desk.trust.is_host() => {
                ask::answered(codec, errand.subject(), state, responses)
            }
            _ => {
                let reason = "no question is open that `requestState` could belong to";
                Err(ErrorData::invalid_params(reason, None))
            }
        }
    }
}

impl Errand {
    fn subject(&self) -> Subject<'_> {
        Subject {
            worker: self.served.name(),
            preview: self.extras.preview,
            tool: &self.tool,
            arguments: &self.arguments,
        }
    }

    async fn answer(&self) -> Result<CallToolResult, ErrorData> {
        answered(self.run().await)
    }

    async fn run(&self) -> Result<CallToolResult, CallError> {
        let Extras {
            preview,
            policy,
            origin,
            granted,
            ignored_grants,
            token,
        } = self.extras.clone();
        let call = Call::new(&self.tool, self.arguments.clone()).meta(CallMeta {
            origin,
            policy,
            preview_token: token,
            deadline: None,
            progress: self.progress.clone(),
        });
        let worker = self.served.worker();
        if ignored_grants {
            worker.note_ignored_grants(&call);
        }
        let grants = self.served.grants().filter(|_| !granted.is_empty());
        if preview && worker.mutates(&self.tool) {
            let preview = match grants {
                Some(grants) => grants.preview(worker, call, granted).await?,
                None => worker.submit_preview(call).await?,
            };
            if !preview.artifacts.is_empty() {
                self.served.made_artifacts();
            }
            return convert::preview(&preview, self.links);
        }
        let outcome = match grants {
            Some(grants) => grants.submit(worker, call, granted).await?,
            None => worker.submit(call).await?,
        };
        if !outcome.artifacts.is_empty() {
            self.served.made_artifacts();
        }
        convert::outcome(&outcome, self.links)
    }
}

fn answered(result: Result<CallToolResult, CallError>) -> Result<CallToolResult, ErrorData> {
    result.or_else(|error| convert::failure(&error))
}

/// Asks the person behind the client for what a call lacks: at once, and makes the call again; or, without a handshake,
/// by the answer.
async fn asked(
    codec: &RequestStateCodec,
    errand: &mut Errand,
    error: &CallError,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let needs = error.requested_scopes();
    if is_stateless(context) {
        return match ask::required(codec, errand.subject(), needs) {
            Some(required) => Ok(required.into()),
            None => convert::failure(error).map(Into::into),
        };
    }
    match ask::elicited(context, errand.subject(), needs).await {
        Some(granted) => {
            errand.extras.granted = granted;
            errand.answer().await.map(Into::into)
        }
        None => convert::failure(&refused()).map(Into::into),
    }
}

/// Tells the client how far its call is, if it wants to hear of that; ends only with the call.
async fn progressing(
    context: &RequestContext<RoleServer>,
    progress: Option<Progress>,
) -> Infallible {
    let (Some(token), Some(progress)) = (context.meta.get_progress_token(), progress) else {
        return std::future::pending().await;
    };
    let mut told = 0;
    loop {
        tokio::time::sleep(BETWEEN).await;
        let done = progress.done();
        if done > told {
            told = done;
            #[expect(
                clippy::cast_precision_loss,
                reason = "MCP counts in floating point; a count beyond 2^53 may be rounded"
            )]
            let news = ProgressNotificationParam::new(token.clone(), done as f64);
            // A client that cannot be told is noticed by its answer.
            let _ = context.peer.notify_progress(news).await;
        }
    }
}

fn refused() -> CallError {
    CallError::new(Code::PermissionDenied, "a person refused this").with("denied_by", "person")
}

fn shows_links(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2025_06_18)
}

/// Whether the request is of a revision without handshakes.
pub(super) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Whether a call may go on as a task if it takes long: the client must know tasks, and the call change nothing.
fn may_be_task(errand: &Errand, context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    is_stateless(context)
        && capabilities.is_some_and(|capabilities| capabilities.supports_tasks())
        && !errand.served.worker().mutates(&errand.tool)
}
