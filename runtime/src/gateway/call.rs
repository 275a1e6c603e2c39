//! A `tools/call` request in, one call of the connection's worker made, its answer out.

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

use super::ask::{self, Pending, Resumed, Subject};
use super::convert;
use super::door::Served;
use super::form::{Filled, Reach, read};
use super::forward::{Event, Forwarding, Running, shows_forms};
use super::meta::Extras;
use super::requests::{had_handshake, withdrawn};
use super::tasks::Underway;
#[cfg(feature = "ui")]
use super::views;
use super::{Advice, Asking, Gateway, Trust, apps, client_roots};
use crate::call::{Asks, Call, CallMeta, Origin, Progress};
use crate::error::{CallError, Code};
use crate::permission::{DecidedBy, GrantAuthority, Question};
use crate::pipeline::Mode;
use crate::policy::Verdict;
use crate::scope::Scope;
use crate::worker::{CallEvent, Done, RunningCall};

/// How often a client hears of its call's progress at most.
const BETWEEN: Duration = Duration::from_millis(250);

/// One call on its way through the gateway.
#[derive(Clone, Debug)]
struct Errand {
    served: Arc<Served>,
    tool: String,
    arguments: Value,
    extras: Extras,
    links: convert::Links,
    /// Counts the work for a client that wants to hear of it.
    progress: Option<Progress>,
    advice: Option<Advice>,
    /// What servers may ask the client within the call.
    forwarding: Forwarding,
    /// Whether the client may say which directories are served.
    client_roots: bool,
}

impl Gateway {
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Err(wait) = self.session.bucket.take() {
            let served = self.served().await?;
            let error = served.worker().refuse_pace(&request.name, wait);
            return convert::failure(&error).map(Into::into);
        }
        let mut extras = Extras::read(&context.meta, self.desk.trust)?;
        if let Some(required) = self.roots_required(&request, &context).await? {
            return Ok(required.into());
        }
        let served = self.served().await?;
        let views = apps::shown_by(context.client_capabilities().as_ref());
        #[cfg(feature = "ui")]
        let request = match views::asked_for(request, views, &served, &mut extras) {
            Ok(request) => request,
            Err(error) => return convert::failure(&error).map(Into::into),
        };
        #[cfg(feature = "ui")]
        if views && let Some(answer) = self.viewed(&request, &served, &extras, &context).await {
            return answer.map(Into::into);
        }
        if served.worker().is_app_only(&request.name) {
            if !views {
                let error = served.worker().refuse_unknown(&request.name, extras.origin);
                return convert::failure(&error).map(Into::into);
            }
            // Whether a view or its model wrote the call only the client can tell: it promised to keep models from it.
            extras.origin = Origin::View;
        }
        let errand = Errand {
            links: self.links(views, &extras, &context),
            extras,
            served,
            tool: request.name.into_owned(),
            arguments: Value::Object(request.arguments.unwrap_or_default()),
            progress: context
                .meta
                .get_progress_token()
                .map(|_| Progress::default()),
            advice: self.desk.advice.clone(),
            forwarding: Forwarding::to(&self.session.client, &context),
            client_roots: self.desk.client_roots,
        };
        let (state, responses) = (request.request_state, request.input_responses.as_ref());
        let resumed = self.resumed(&errand, &context, state.as_deref(), responses);
        let resumed = match resumed.await? {
            Ok(resumed) => resumed,
            Err(error) => return convert::failure(&error).map(Into::into),
        };
        let progress = errand.progress.clone();
        let answer = tokio::select! {
            biased;
            answer = self.carried_out(&errand, &context, resumed) => answer,
            never = progressing(&context, progress) => match never {},
            // Dropping the call withdraws it: an effect that has begun is completed, and nothing else is.
            () = withdrawn(&context) => return Err(cancelled()),
        };
        self.log(&context, &errand.tool, &answer).await;
        answer
    }

    fn links(
        &self,
        views: bool,
        extras: &Extras,
        context: &RequestContext<RoleServer>,
    ) -> convert::Links {
        let known = knows_links(context);
        convert::Links {
            known,
            review: known && (views || self.desk.links),
            artifacts: views || extras.extended || self.desk.trust == Trust::Host,
        }
    }

    async fn carried_out(
        &self,
        errand: &Errand,
        context: &RequestContext<RoleServer>,
        resumed: Option<Running>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !errand.extras.ignored_grants.is_empty() {
            let worker = errand.served.worker();
            worker.note_ignored_grants(&errand.call(Asks::Refuse), &errand.extras.ignored_grants);
        }
        // A call that its client came back to is carried on and never made anew.
        if let Some(running) = resumed {
            return self.conversed(errand, running, context).await;
        }
        let (asks, asks_client) = match &self.desk.asking {
            Asking::Replay => (Asks::Wait, false),
            Asking::Client { otherwise } if !self.may_ask(errand, context) => (*otherwise, false),
            // A call that names nothing to ask about may become a task. Any other may ask later, for what it finds.
            Asking::Client { otherwise }
                if may_be_task(errand, context) && errand.is_allowed().await =>
            {
                (*otherwise, false)
            }
            Asking::Client { .. } if is_stateless(context) => (Asks::WaitAlone, true),
            Asking::Client { .. } => (Asks::Wait, true),
        };
        if !asks_client && !errand.may_forward() {
            return self.unasked(errand, asks, context).await;
        }
        let running = errand.started(asks, asks_client);
        self.conversed(errand, running, context).await
    }

    /// Makes a call without a word of the person behind the client.
    async fn unasked(
        &self,
        errand: &Errand,
        asks: Asks,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if may_be_task(errand, context) {
            let owner = errand.served.name().to_owned();
            let errand = errand.clone();
            let underway = Underway(tokio::spawn(async move { errand.answer(asks).await }));
            return self.desk.tasks.answer(&owner, underway).await;
        }
        errand.answer(asks).await.map(Into::into)
    }

    /// Whether the person behind the client may be asked for what a call lacks. One with a handshake may be sent nothing
    /// before it is ready.
    fn may_ask(&self, errand: &Errand, context: &RequestContext<RoleServer>) -> bool {
        let capabilities = context.client_capabilities();
        errand.extras.granted.is_empty()
            && self.desk.trust != Trust::Agent
            && errand.served.grants().is_some()
            && capabilities
                .and_then(|them| them.elicitation)
                .is_some_and(|elicitation| shows_forms(&elicitation))
            && (is_stateless(context) || had_handshake(context))
    }

    /// Carries a call on, question by question. A stateless client comes back with the answer.
    async fn conversed(
        &self,
        errand: &Errand,
        mut running: Running,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut asked = FuturesUnordered::new();
        let mut event = running.next().await;
        loop {
            let pending = match event {
                Err(error) => return convert::failure(&errand.advised(error)).map(Into::into),
                Ok(Event::End(done)) => return answered(errand.shown(&done)).map(Into::into),
                Ok(Event::Question(question)) => Pending::Question(question),
                Ok(Event::Request(request)) => Pending::Request(request),
            };
            if is_stateless(context) {
                let kept = self.desk.asker.keep(errand.subject(), pending, running);
                let full = || CallError::new(Code::Busy, "too many questions are open");
                return kept.map_or_else(
                    || convert::failure(&full().with("retry_after_ms", 1000)).map(Into::into),
                    |required| Ok(required.into()),
                );
            }
            event = match pending {
                Pending::Question(question) => tokio::select! {
                    biased;
                    event = running.next() => event,
                    put = self.put(&question, errand, context) => match put {
                        Ok(()) => running.next().await,
                        Err(Unanswered) => return convert::failure(&unanswered(&question)).map(Into::into),
                    },
                    () = self.session.silent() => {
                        let message = "the client is gone, so nobody can be asked";
                        let error = CallError::new(Code::Cancelled, message);
                        return convert::failure(&error).map(Into::into);
                    }
                },
                Pending::Request(request) => {
                    asked.push(request.ask(context, &self.session.asking));
                    self.next_while(&mut running, &mut asked).await
                }
            };
        }
    }

    /// What comes next of a call while its client is asked what servers want to know.
    async fn next_while<F: Future<Output = ()>>(
        &self,
        running: &mut Running,
        asked: &mut FuturesUnordered<F>,
    ) -> Result<Event, CallError> {
        loop {
            tokio::select! {
                biased;
                event = running.next() => return event,
                Some(()) = asked.next() => {}
                // Nobody can answer any more, and the servers hear so.
                () = self.session.silent(), if !asked.is_empty() => asked.clear(),
            }
        }
    }

    /// Puts a question to the person behind a client with a handshake, one at a time, unless it has ended meanwhile.
    async fn put(
        &self,
        question: &Question,
        errand: &Errand,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), Unanswered> {
        let grants = errand.served.grants().ok_or(Unanswered)?;
        let _turn = self.session.asking.lock().await;
        if let Ok(Some(_)) = grants.question(question.id).await {
            let filled = ask::elicited(context, question).await;
            settle(grants, question, filled).await?;
        }
        Ok(())
    }

    /// The call that a stateless client comes back to, what it waits for answered; none if it is a new one.
    async fn resumed(
        &self,
        errand: &Errand,
        context: &RequestContext<RoleServer>,
        state: Option<&str>,
        responses: Option<&InputResponses>,
    ) -> Result<Result<Option<Running>, CallError>, ErrorData> {
        let Some(state) = state else {
            return Ok(Ok(None));
        };
        let may_ask = is_stateless(context) && self.may_ask(errand, context);
        let may_forward = is_stateless(context) && errand.forwarding.is_possible();
        let subject = errand.subject();
        let asker = &self.desk.asker;
        let resumed = asker.resumed(subject, state, responses, |pending| match pending {
            Pending::Question(_) => may_ask,
            Pending::Request(_) => may_forward,
        })?;
        let Resumed {
            running,
            pending,
            action,
            content,
        } = resumed;
        match pending {
            Pending::Request(request) => {
                request.answer(&action, content);
                Ok(Ok(Some(running)))
            }
            Pending::Question(question) => {
                let grants = errand.served.grants();
                let filled = read(&question, Reach::Call, &action, &content);
                let Some(grants) = grants else {
                    return Ok(Err(unanswered(&question)));
                };
                match settle(grants, &question, filled).await {
                    Ok(()) => Ok(Ok(Some(running))),
                    // Dropping the call withdraws its question.
                    Err(Unanswered) => Ok(Err(unanswered(&question))),
                }
            }
        }
    }
}

pub(super) fn cancelled() -> ErrorData {
    let reason = "the call was cancelled";
    ErrorData::new(ErrorCode::INTERNAL_ERROR, reason, None)
}

/// Gives an answer to the broker. One that cannot be used ends the question in the name of the client, one that cannot be
/// taken in that of the host, so that the call does not wait for another; neither is a person's no.
async fn settle(
    grants: &GrantAuthority,
    question: &Question,
    filled: Filled,
) -> Result<(), Unanswered> {
    match filled {
        Filled::Dismissed => return Err(Unanswered),
        Filled::Unusable => {
            tracing::warn!(question = %question.id, "a client sent an answer that cannot be used");
            grants.refuse_unusable(question.id, DecidedBy::Client);
        }
        Filled::Answer(answer) => {
            if let Err(error) = grants.answer(question.id, answer).await {
                tracing::warn!(%error, question = %question.id, "an answer had no effect");
                grants.refuse_unusable(question.id, DecidedBy::Host);
            }
        }
    }
    Ok(())
}

/// The person behind the client gave no answer, and cannot be said to have refused.
struct Unanswered;

fn unanswered(question: &Question) -> CallError {
    let message = "the person behind the client gave no answer";
    CallError::new(Code::ScopeRequired, message).requesting(question.request.needs.clone())
}

impl Errand {
    fn subject(&self) -> Subject<'_> {
        Subject {
            worker: self.served.name(),
            tool: &self.tool,
            arguments: &self.arguments,
            extras: &self.extras,
        }
    }

    fn call(&self, asks: Asks) -> Call {
        Call::new(&self.tool, self.arguments.clone()).meta(CallMeta {
            origin: self.extras.origin,
            policy: self.extras.policy.clone(),
            preview_token: self.extras.token,
            deadline: None,
            progress: self.progress.clone(),
            asks,
            confirm: self.extras.confirm,
            requests: None,
        })
    }

    /// Whether the call shows what it would do; what only reads is done all the same.
    fn mode(&self) -> Mode {
        if self.extras.preview && self.served.worker().mutates(&self.tool) {
            Mode::Preview
        } else {
            Mode::Apply
        }
    }

    /// Whether the worker's policy allows all that the call names; links are not followed for that.
    async fn is_allowed(&self) -> bool {
        let call = self.call(Asks::Refuse);
        let explained = self.served.worker().explain_later(&call).await;
        explained.is_ok_and(|needs| needs.iter().all(|need| need.verdict == Verdict::Allow))
    }

    async fn answer(&self, asks: Asks) -> Result<CallToolResult, ErrorData> {
        let done = self.run(asks).await;
        answered(done.map_err(|error| self.advised(error)))
    }

    /// A refusal with what the person behind the client can do about it.
    fn advised(&self, error: CallError) -> CallError {
        if self.client_roots
            && error.code() == Code::PermissionDenied
            && self.served.worker().has_no_root()
        {
            return error.and(client_roots::ADVICE);
        }
        let Some(advice) = &self.advice else {
            return error;
        };
        let outside = |scope: &Scope| {
            let open = self.served.worker().open_folders();
            let path = scope.path();
            path.is_some_and(|path| !open.iter().any(|folder| path.starts_with(&folder.path)))
        };
        match error.code() {
            Code::ScopeRequired => error.and(&advice.ask),
            Code::PermissionDenied if error.denied().is_some_and(outside) => {
                error.and(&advice.outside)
            }
            _ => error,
        }
    }

    /// Whether a server may ask the client something within the call.
    fn may_forward(&self) -> bool {
        self.forwarding.is_possible() && self.served.worker().is_remote(&self.tool)
    }

    /// Makes the call, and forwards what servers ask within it.
    fn started(&self, asks: Asks, asks_client: bool) -> Running {
        let (requests, forwarded) = self.forwarding.of_call();
        let mut call = self.call(asks);
        call.meta.requests = Some(requests);
        Running::new(self.underway(call), forwarded, asks_client)
    }

    /// Makes the call, with what was granted to it.
    fn underway(&self, call: Call) -> RunningCall {
        let (worker, mode) = (self.served.worker(), self.mode());
        let grants = self.served.grants();
        let Some(grants) = grants.filter(|_| !self.extras.granted.is_empty()) else {
            return worker.underway(call, mode);
        };
        let (grants, worker) = (Arc::clone(grants), worker.clone());
        let granted = self.extras.granted.clone();
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
        let mut underway = self.underway(self.call(asks));
        loop {
            if let CallEvent::End(done) = underway.next().await? {
                return self.shown(&done);
            }
        }
    }

    fn shown(&self, done: &Done) -> Result<CallToolResult, CallError> {
        match done {
            Done::Preview(preview) => convert::preview(preview, self.links),
            Done::Outcome(outcome) => convert::outcome(outcome, self.links),
        }
    }
}

fn answered(result: Result<CallToolResult, CallError>) -> Result<CallToolResult, ErrorData> {
    result.or_else(|error| convert::failure(&error))
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

fn knows_links(context: &RequestContext<RoleServer>) -> bool {
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

/// Whether a call may go on as a task if it takes long: the client must know tasks, and the call change nothing and ask
/// nothing for a server.
fn may_be_task(errand: &Errand, context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    is_stateless(context)
        && capabilities.is_some_and(|capabilities| capabilities.supports_tasks())
        && !errand.served.worker().mutates(&errand.tool)
        && !errand.may_forward()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::audit::{Audit, MemoryAudit};
    use crate::config::Config;
    use crate::permission::tests::request;
    use crate::permission::{
        Answer, AskOutcome, Broker, BrokerConfig, Decision, Deferred, Lifetime, Requester,
    };
    use crate::policy::Authority;

    /// Who is said to have decided after a client sent this, of a runtime that holds so many grants.
    async fn decided(max_grants: usize, filled: Filled) -> Option<DecidedBy> {
        let audit = Audit::start(MemoryAudit::new(100), 100).unwrap();
        let config = BrokerConfig {
            max_grants,
            ..BrokerConfig::default()
        };
        let broker = Broker::start(config, audit, Arc::new(Deferred)).await;
        let broker = broker.unwrap();
        let authority = Authority::configured(&Config::new()).unwrap();
        let grants = GrantAuthority::new(broker.clone(), authority, Arc::default());
        let request = request(1, 1, &["write:file:/r/x"]);
        let requester = Requester {
            worker: request.worker,
            ancestors: [].into(),
            session: Arc::clone(&request.session),
            agent: "main".into(),
        };
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let asking = tokio::spawn(async move { broker.ask(request, requester, Some(told)).await });
        let question = hears.recv().await.unwrap();
        assert!(settle(&grants, &question, filled).await.is_ok());
        match asking.await.unwrap().unwrap() {
            AskOutcome::Refused { decision, by, .. } => {
                assert_eq!(decision, Decision::Denied);
                Some(by)
            }
            AskOutcome::Allowed(..) => None,
        }
    }

    #[tokio::test]
    async fn a_yes_that_cannot_be_taken_is_not_told_as_a_persons_no() {
        let yes = || {
            Filled::Answer(Answer::Allow {
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
    async fn an_answer_that_cannot_be_used_is_the_clients_and_no_persons_no() {
        assert_eq!(decided(1, Filled::Unusable).await, Some(DecidedBy::Client));
        let no = Filled::Answer(Answer::DENY);
        assert_eq!(decided(1, no).await, Some(DecidedBy::Person));
    }
}
