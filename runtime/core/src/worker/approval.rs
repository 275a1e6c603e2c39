//! Looks up grants for a call and asks people.

use std::sync::Arc;

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::threads_busy;
use super::future::TaskGuard;
use super::jobs::catch_panic;
use crate::call::Asks;
use crate::effect::{ContentHash, Preview};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::path::VirtualPath;
use crate::permission::{
    AffectedFiles, AskOutcome, CallRef, DecidedBy, Decision, Exclusion, QuestionSender, Request,
    Requester, UsedGrants, choices,
};
use crate::pipeline::{CallInfo, Granted, Step, Waiting};
use crate::root::Root;
use crate::scope::{Coverage, Scope, ScopePattern, Verb, quoted};
use crate::text::{abbreviated, escape, listed_first};
use crate::tool::{GET_PROMPT, READ_RESOURCE, Remote, Sentence};

/// Maximum number of permissions in one question, and of bytes of their text, besides those of planned changes.
const MAX_NEEDS: usize = 20;
const MAX_NEED_BYTES: usize = 8 << 10;
/// How many more there may be for each change that the plan shows.
const NEEDS_OF_CHANGE: usize = 2;
const NEED_BYTES_OF_CHANGE: usize = 256;
/// Maximum number of changes for which there may be more.
const MAX_CHANGES: usize = 1000;
/// Maximum number of targets in a sentence.
const MAX_TARGETS: usize = 20;
/// Maximum number of characters of a sentence that a function of the tool returns.
const MAX_SENTENCE: usize = 1024;

impl Shared {
    pub(super) fn requester(&self) -> Requester {
        Requester {
            worker: self.id,
            ancestors: Arc::clone(&self.lineage),
            session: Arc::clone(&self.session),
            agent: Arc::clone(&self.agent),
        }
    }

    /// Looks up live grants that cover the needs of a call.
    pub(super) fn check_grants(self: &Arc<Self>, id: CallId, waiting: &Step<Waiting>) -> TaskGuard {
        let shared = Arc::clone(self);
        let needs = waiting.asks().to_vec();
        let (sent_grants, mut rest) = waiting.match_sent_grants();
        if waiting.info().confirm {
            // Earlier grants must not confirm this call.
            rest.clear();
        }
        let info = waiting.info();
        let call = CallRef {
            call: info.id,
            tool: info.tool.clone(),
            origin: info.origin,
        };
        TaskGuard::spawn(async move {
            let used = shared.usable_grants(sent_grants, rest.into(), call).await;
            // A granted path that cannot be opened is rejected, since asking for it again would not help.
            let granted = match used {
                Some(used) => shared.open_granted(id, used, &needs).await.map(Some),
                None => Ok(None),
            };
            shared.post(WorkerMsg::GrantsChecked(id, granted));
        })
    }

    /// The grants sent with the call, and live grants for the other needs.
    async fn usable_grants(
        &self,
        sent_grants: Vec<ScopePattern>,
        rest: Arc<[Scope]>,
        call: CallRef,
    ) -> Option<UsedGrants> {
        let live = if rest.is_empty() {
            None
        } else {
            // A closed broker has no grants.
            let used = self.core.broker.use_grants(self.requester(), rest, call);
            used.await.ok().flatten()
        };
        if live.is_none() && sent_grants.is_empty() {
            return None;
        }
        let mut used = live.unwrap_or_default();
        // Grants sent with a call name no operations.
        let patterns = sent_grants.iter().cloned().map(Coverage::from);
        used.patterns.extend(patterns);
        used.brought = sent_grants;
        Some(used)
    }

    /// Rejects a call that requires approval if there is no approver, the call must not ask, or its needs do not fit
    /// into one question.
    pub(super) fn may_ask(
        &self,
        waiting: &Step<Waiting>,
        asks: Asks,
        preview: Option<&Preview>,
    ) -> Result<(), CallError> {
        let changes = preview.map_or(0, |preview| preview.changes.len());
        match asks {
            Asks::Wait | Asks::WaitAlone if self.core.asks => {
                fits_one_question(waiting.asks(), changes)
            }
            Asks::Wait | Asks::WaitAlone | Asks::Refuse => Err(waiting.scope_required()),
        }
    }

    /// Rejects a call whose needs do not fit into one question, whatever its plan.
    pub(super) fn may_plan(&self, waiting: &Step<Waiting>, asks: Asks) -> Result<(), CallError> {
        match asks {
            Asks::Wait | Asks::WaitAlone if self.core.asks => {
                fits_one_question(waiting.asks(), MAX_CHANGES)
            }
            Asks::Wait | Asks::WaitAlone | Asks::Refuse => Ok(()),
        }
    }

    /// Asks the approver about a call, with its preview if there is one; `question_tx` receives the open question.
    pub(super) fn question(
        self: &Arc<Self>,
        id: CallId,
        waiting: &Step<Waiting>,
        preview: Option<Preview>,
        asks: Asks,
        question_tx: Option<QuestionSender>,
    ) -> TaskGuard {
        let alone = asks == Asks::WaitAlone || waiting.info().confirm;
        let request = self.request(waiting, preview, alone);
        self.log_asking(&request);
        let shared = Arc::clone(self);
        TaskGuard::spawn(async move {
            let needs = request.needs.clone();
            let broker = &shared.core.broker;
            let ruling = broker.ask(request, shared.requester(), question_tx).await;
            let granted = match ruling.and_then(into_result) {
                Ok((used, exclusion)) => {
                    let opened = shared.open_granted(id, used, &needs).await;
                    opened.map(|granted| (granted, exclusion))
                }
                Err(error) => Err(error),
            };
            shared.post(WorkerMsg::Answered(id, granted));
        })
    }

    /// Opens the granted paths that are outside the worker's roots. The deadline of the call runs meanwhile.
    async fn open_granted(
        &self,
        id: CallId,
        used: UsedGrants,
        needs: &[Scope],
    ) -> Result<Granted, CallError> {
        let granted = |need: &&Scope| used.patterns.iter().any(|one| one.covers(need));
        let outside = needs.iter().filter(granted).filter_map(Scope::path);
        let outside: Vec<VirtualPath> = outside
            .filter(|path| self.handles.roots.find(path).is_none())
            .cloned()
            .collect();
        if outside.is_empty() {
            return Ok(Granted {
                used,
                outside: Vec::new(),
            });
        }
        self.post(WorkerMsg::OpeningGranted(id));
        let core = Arc::clone(&self.core);
        let open = move || {
            let opened = outside.iter().map(|path| {
                let root = Root::open_granted(path, &core.kept_out, &core.roots);
                root.map(Arc::new)
                    .map_err(|error| CallError::new(Code::PermissionDenied, error.to_string()))
            });
            opened.collect::<Result<Vec<_>, _>>()
        };
        let open = move || catch_panic(open, Err);
        let opened = self.core.io_outside.run(&self.lost, open).await;
        let outside = opened.ok_or_else(|| threads_busy(self))??;
        Ok(Granted { used, outside })
    }

    fn request(&self, waiting: &Step<Waiting>, preview: Option<Preview>, alone: bool) -> Request {
        let (info, arguments) = (waiting.info(), waiting.arguments());
        let needs = waiting.asks().to_vec();
        let protected = waiting.protected();
        let sensitive = !protected.is_empty();
        let max_grantable = self.core.authority.max_grantable();
        let roots = self.core.authority.served();
        let before = preview.as_ref().map(|preview| preview.token);
        // A plan without changes does not show what a program changes.
        let executes = needs.iter().any(|need| need.verb() == Verb::Execute);
        let is_shown = |preview: &Preview| {
            !executes || !preview.changes.is_empty() || !preview.resources.is_empty()
        };
        let preview = preview.filter(is_shown);
        let (intent, server_says) = self.described(info, waiting.needs());
        let mut request = Request {
            worker: self.id,
            call: info.id,
            origin: info.origin,
            agent_path: self.agent.split('/').map(str::to_owned).collect(),
            session: Arc::clone(&self.session),
            tool: info.tool.clone(),
            arguments_hash: ContentHash::of(arguments.to_string().as_bytes()),
            arguments,
            intent,
            server_says,
            sentence: String::new(),
            dangers: Vec::new(),
            files: AffectedFiles::default(),
            choices: choices(&needs, &max_grantable, &roots, sensitive),
            roots,
            needs,
            asked_because: waiting.reasons(),
            before,
            divisible: preview.is_some() && waiting.is_divisible(),
            preview,
            max_grantable,
            sensitive,
            protected,
            server: self.server_of(info),
            alone,
        };
        request.describe();
        request
    }

    /// The third-party server that carries out a call, if any.
    pub(super) fn server_of(&self, info: &CallInfo) -> Option<Arc<str>> {
        let entry = self.tool(info.tool.as_str())?;
        entry.remote.as_ref().map(|it| Arc::clone(&it.server))
    }

    /// One sentence that describes the call to people, with the words of a third-party server quoted.
    pub(super) fn intent(&self, info: &CallInfo, needs: &[Scope]) -> String {
        match self.described(info, needs) {
            (sentence, None) => sentence,
            (call, Some(says)) => {
                let says = says.replace('"', "'");
                format!("{call}, which describes it as \"{says}\"")
            }
        }
    }

    /// One sentence that describes the call to people, and how a third-party server describes it. If the tool's own sentence
    /// panics, the template is used. If that cannot be rendered, the sentence consists of the tool's title and the needs of
    /// the call.
    fn described(&self, info: &CallInfo, needs: &[Scope]) -> (String, Option<String>) {
        let entry = self.tool(info.tool.as_str());
        let entry = entry.as_deref();
        if let Some(Sentence(sentence)) = entry.and_then(|entry| entry.spec.sentence)
            && let Some(sentence) = catch_panic(|| sentence(&info.arguments), |_| None)
        {
            let sentence = abbreviated(&escape(&sentence), MAX_SENTENCE).into_owned();
            return (sentence, None);
        }
        let template = entry.and_then(|entry| entry.intent.as_ref());
        let sentence = template.and_then(|template| template.render_quoted(&info.arguments));
        let title = entry.map_or(info.tool.as_str(), |entry| &entry.spec.title);
        if let Some(Remote { shown, tool, .. }) = entry.and_then(|entry| entry.remote.as_ref()) {
            if let (READ_RESOURCE | GET_PROMPT, Some(sentence)) = (&**tool, &sentence) {
                return (format!("{sentence} of {shown}"), None);
            }
            let name = quoted(&escape(tool));
            let description = sentence.unwrap_or_else(|| title.to_owned());
            let says = escape(&description).into_owned();
            let is_new = !says.is_empty() && says != name;
            return (format!("Use {name} of {shown}"), is_new.then_some(says));
        }
        if let Some(sentence) = sentence.filter(|sentence| !sentence.is_empty()) {
            return (sentence, None);
        }
        let target = |need: &Scope| {
            need.path()
                .map_or_else(|| need.to_string(), ToString::to_string)
        };
        let mut targets: Vec<String> = needs.iter().map(target).collect();
        targets.dedup();
        if targets.is_empty() {
            return (title.to_owned(), None);
        }
        let targets = listed_first(targets, ", ", MAX_TARGETS);
        (format!("{title}: {targets}"), None)
    }
}

/// Rejects needs that are too many or too long for one question, whose plan shows this many changes.
fn fits_one_question(needs: &[Scope], changes: usize) -> Result<(), CallError> {
    let changes = changes.min(MAX_CHANGES);
    let most = MAX_NEEDS + NEEDS_OF_CHANGE * changes;
    let most_bytes = MAX_NEED_BYTES + NEED_BYTES_OF_CHANGE * changes;
    let count = needs.len();
    let bytes = needs
        .iter()
        .map(|need| crate::text::escape(&need.to_string()).len());
    let bytes: usize = bytes.sum();
    if count <= most && bytes <= most_bytes {
        return Ok(());
    }
    let message = format!(
        "this call needs {count} permissions ({bytes} bytes of text); a person is asked for at most {most} \
         ({most_bytes} bytes) at once. Name fewer or shorter paths in one call"
    );
    Err(CallError::new(Code::TooLarge, message))
}

fn into_result(ruling: AskOutcome) -> Result<(UsedGrants, Option<Exclusion>), CallError> {
    let (decision, by, note) = match ruling {
        AskOutcome::Allowed(granted, exclusion) => return Ok((granted, exclusion)),
        AskOutcome::Refused { decision, by, note } => (decision, by, note),
    };
    let (code, message) = match (decision, by) {
        (Decision::Cancelled, _) => (Code::Cancelled, "the question was withdrawn"),
        (Decision::Expired, _) => (Code::PermissionDenied, "nobody answered in time"),
        (Decision::Granted | Decision::Denied, DecidedBy::Person) => {
            (Code::PermissionDenied, "a person refused this")
        }
        (Decision::Granted | Decision::Denied, DecidedBy::Client) => (
            Code::PermissionDenied,
            "the client sent no answer that could be used",
        ),
        (Decision::Granted | Decision::Denied, _) => {
            (Code::PermissionDenied, "the host refused this")
        }
    };
    let error = CallError::new(
        code,
        note.map_or_else(|| message.to_owned(), |note| format!("{message}: {note}")),
    );
    Err(match decision {
        Decision::Denied => error.with("denied_by", by.as_str()),
        // An answer that came too late decided nothing.
        Decision::Expired => error.with("denied_by", DecidedBy::Nobody.as_str()),
        Decision::Granted | Decision::Cancelled => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_of_a_question_are_limited_in_number_and_size() {
        let needs = |count: usize, length: usize| -> Vec<Scope> {
            let folders = format!("/{}", "d".repeat(99)).repeat(length / 100);
            let need = |n| format!("read:file:{folders}/{n}").parse().unwrap();
            (0..count).map(need).collect()
        };
        for (count, length, changes, fits) in [
            (20, 100, 0, true),
            (21, 100, 0, false),
            (2, 4000, 0, true),
            (3, 4000, 0, false),
            (220, 100, 100, true),
            (221, 100, 100, false),
            (20, 4000, 100, false),
            (2020, 100, 1000, true),
            (2021, 100, 5000, false),
        ] {
            let checked = fits_one_question(&needs(count, length), changes);
            assert_eq!(checked.is_ok(), fits, "{count} of {length} for {changes}");
        }
    }

    #[test]
    fn denial_message_and_details_name_who_denied() {
        for (decision, by, code, expected) in [
            (
                Decision::Denied,
                DecidedBy::Person,
                Code::PermissionDenied,
                "a person refused this: no",
            ),
            (
                Decision::Denied,
                DecidedBy::Host,
                Code::PermissionDenied,
                "the host refused this: no",
            ),
            (
                Decision::Expired,
                DecidedBy::Nobody,
                Code::PermissionDenied,
                "nobody answered in time: no",
            ),
            (
                Decision::Expired,
                DecidedBy::Person,
                Code::PermissionDenied,
                "nobody answered in time: no",
            ),
            (
                Decision::Cancelled,
                DecidedBy::Nobody,
                Code::Cancelled,
                "the question was withdrawn: no",
            ),
        ] {
            let note = Some("no".to_owned());
            let error = into_result(AskOutcome::Refused { decision, by, note }).unwrap_err();
            assert_eq!((error.code(), error.message()), (code, expected));
            let denied_by = error.details().get("denied_by").and_then(|by| by.as_str());
            let denied = code == Code::PermissionDenied;
            let whose = if decision == Decision::Expired {
                DecidedBy::Nobody
            } else {
                by
            };
            assert_eq!(denied_by, denied.then_some(whose.as_str()));
            assert_eq!(error.details().len(), usize::from(denied));
        }
    }
}
