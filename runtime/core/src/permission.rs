//! Permissions: questions to people, their answers, and grants.

mod approver;
mod authority;
mod batch;
mod block;
mod broker;
mod broker_state;
mod choices;
mod danger;
mod decided;
mod description;
mod grants;
mod history;
mod ledger;
mod manage;
mod options;
mod record;
mod settings;
mod store;
mod suggest;
mod template;
mod terminal;

use crate::call::Origin;
use crate::effect::{
    self, Change, ContentHash, ExcludedChange, ExclusionError, Preview, PreviewToken,
};
use crate::id::{CallId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use crate::id::{GrantId, ParseGrantIdError, QuestionId, SilencedId};
pub use approver::{Approver, Deciding, Deferred, DenyAll, Scripted};
pub use authority::{AuthorityError, Changes, GrantAuthority};
pub use batch::{BatchAnswer, NotBatchable};
pub use block::{
    BlockCall, BlockExtra, BlockKind, BlockStatus, PermissionBlock, PermissionRequest,
    PermissionRequired, PermissionType, ServerCard,
};
#[doc(hidden)]
pub use broker::{AskOutcome, Broker, BrokerConfig, Exclusion, QuestionSender};
pub(crate) use broker_state::CallRef;
#[doc(hidden)]
pub use choices::choices;
pub use choices::{Breadth, Choice, OfferedChoice};
pub use danger::{Danger, DangerKind, DangerLevel};
pub use decided::{DecidedBy, RevokeCause};
pub use description::{AffectedFile, AffectedFiles, FileOperation};
pub use grants::GrantView;
#[doc(hidden)]
pub use grants::{Requester, UsedGrants};
pub use history::{
    CallOutcome, CallTally, Denial, GrantUse, History, HistoryEntry, HistoryEvent, HistoryFilter,
    HistoryReport, PastCall, PastQuestion, RepeatedQuestion, Tally,
};
pub use ledger::AskLimits;
pub use options::{AnswerOption, Chosen, OptionKind};
pub use settings::{GrantFilter, Narrowing};
pub use store::{
    GrantDamage, GrantEditError, GrantStore, GrantStoreError, GrantWriteError, StoredGrant,
};
pub use suggest::{Suggestion, suggest};
pub use template::{Template, TemplateError};
pub use terminal::Terminal;

/// A call's request for approval.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The worker that makes the call.
    pub worker: WorkerId,
    /// The call.
    pub call: CallId,
    /// Who wrote the call.
    pub origin: Origin,
    /// The names of agents from the outermost to the one that asks.
    pub agent_path: Vec<String>,
    /// The session that the worker belongs to.
    pub session: Arc<str>,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments as canonical JSON, with keys sorted at every level. For typed arguments it is a string: the `Debug`
    /// form of the parsed job.
    pub arguments: Value,
    /// Hash of the arguments; calls with different arguments never share a question.
    pub arguments_hash: ContentHash,
    /// One sentence that describes the call to people. The runtime renders it from the tool's template, and it quotes
    /// the agent's arguments. For a tool of a third-party server it names the tool, and the server and where it runs.
    pub intent: String,
    /// How a third-party server describes the call. It is text of the server and of the agent.
    pub server_says: Option<String>,
    /// One sentence with the verb, object and count of what the call does, such as `Delete the folder old/ and the 12 files
    /// in it (34 kB)`; the intent if the changes are not known. Escape it before it is shown.
    pub sentence: String,
    /// Reasons to look closely, the worst first.
    pub dangers: Vec<Danger>,
    /// The files that the call affects.
    pub files: AffectedFiles,
    /// Exactly the scopes that require approval.
    pub needs: Vec<Scope>,
    /// Why they require approval: rules, with the layers of the policy and the entries that they belong to. Escape it
    /// before it is shown.
    pub asked_because: Vec<String>,
    /// What the call would do, if the worker may read its targets.
    pub preview: Option<Preview>,
    /// The choices of a person, the narrowest first: each covers all needs, and the first covers exactly them.
    pub choices: Vec<Choice>,
    /// The served roots; all other paths are outside.
    pub roots: Vec<VirtualPath>,
    /// The widest patterns that may be granted here.
    pub max_grantable: Vec<ScopePattern>,
    /// Whether a need has a protected name. If so, an answer can only name the paths of the needs, not what contains them.
    pub sensitive: bool,
    /// The needs with protected names, each with the reason why it is protected, as a sentence.
    pub protected: Vec<(Scope, &'static str)>,
    /// The state of the files when the question was asked.
    pub before: Option<PreviewToken>,
    /// Whether parts of the change can be excluded.
    pub divisible: bool,
    /// The MCP server that provides the tool; `None` for a tool of this runtime.
    pub server: Option<Arc<str>>,
    /// Whether the question is never shared with another call, even an equal one.
    pub alone: bool,
}

impl Request {
    /// Sets the sentence, dangers and files from the other fields.
    pub(crate) fn describe(&mut self) {
        self.sentence = description::sentence(self);
        self.dangers = danger::dangers(self);
        self.files = AffectedFiles::of(self);
    }

    /// One sentence on whether the changes can be undone, which says `place`, such as `in Activity`, if they can; `None` for
    /// a call that only reads, and for one whose tool describes its effects itself and changes no files.
    #[must_use]
    pub fn undo_notice(&self, place: &str) -> Option<String> {
        let fixed = |notice: &str| Some(notice.to_owned());
        match &self.preview {
            Some(preview) if !preview.changes.is_empty() && self.server.is_none() => {
                if !preview.undoable {
                    return fixed("This cannot be undone.");
                }
                let limit = if self.protected.is_empty() {
                    ""
                } else {
                    ", but not what programs do because of it until then"
                };
                Some(format!("You can undo this {place}{limit}."))
            }
            preview => {
                let changes = |need: &Scope| need.verb() != Verb::Read;
                if !self.needs.iter().any(changes) {
                    return None;
                }
                match (&self.server, preview) {
                    (Some(_), _) => fixed("This cannot be undone here."),
                    (None, None) => fixed("It may be impossible to undo this."),
                    (None, Some(_)) => None,
                }
            }
        }
    }

    /// Returns whether a person may allow this call by `patterns`: they must cover every need, and nothing beyond
    /// [`Request::max_grantable`]. A server or tool in `patterns` without a mark is matched with the marked one in the
    /// needs.
    ///
    /// An empty list means exactly the needs.
    #[must_use]
    pub fn fits(&self, patterns: &[Coverage]) -> bool {
        let patterns = self.marked(patterns);
        let exact = |one: &Coverage| {
            self.needs
                .iter()
                .any(|need| ScopePattern::of(need) == *one.pattern())
        };
        let may = |one: &Coverage| {
            let mut max_grantable = self.max_grantable.iter();
            exact(one)
                || (!self.sensitive && max_grantable.any(|top| top.covers_pattern(one.pattern())))
        };
        patterns.is_empty()
            || self
                .needs
                .iter()
                .all(|need| patterns.iter().any(|one| one.covers(need)))
                && patterns.iter().all(may)
    }

    /// `patterns`, with the marks of the needs where they have none.
    fn marked(&self, patterns: &[Coverage]) -> Vec<Coverage> {
        let mut all: Vec<Coverage> = Vec::with_capacity(patterns.len());
        for one in patterns {
            let marked = self.needs.iter().filter_map(|need| {
                let pattern = one.pattern().marked_as(need)?;
                one.with_pattern(pattern)
            });
            let mut marked: Vec<Coverage> = marked.collect();
            if marked.is_empty() {
                marked.push(one.clone());
            }
            for one in marked {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        all
    }

    /// What [`DeniedCalls::Kind`] denies, as a sentence for people. Escape it before it is shown.
    #[doc(hidden)]
    #[must_use]
    pub fn kinds(&self) -> String {
        denied_sentence(&DeniedCalls::Kind.of(&self.needs))
    }

    /// Checks that `parts` can be excluded from the change that was shown.
    ///
    /// # Errors
    /// [`ExclusionError`], such as for a change on which a remaining one depends.
    pub fn check_excluded(&self, parts: &[ExcludedChange]) -> Result<(), ExclusionError> {
        if parts.is_empty() {
            return Ok(());
        }
        let shown = self.preview.as_ref().filter(|_| self.divisible);
        let shown = shown.ok_or(ExclusionError::Indivisible)?;
        ExcludedChange::check(parts, &shown.changes)
    }

    /// Returns the request without `parts`, to show to people what will be done: its sentence, dangers, files and needs are
    /// those of the remaining changes. The states of changed files are still those after the whole change.
    ///
    /// # Errors
    /// As [`Request::check_excluded`].
    pub fn without(&self, parts: &[ExcludedChange]) -> Result<Self, ExclusionError> {
        self.check_excluded(parts)?;
        let mut rest = self.clone();
        let Some(preview) = &mut rest.preview else {
            return Ok(rest);
        };
        let mut gone = Vec::new();
        let mut changes = Vec::new();
        for change in std::mem::take(&mut preview.changes) {
            match effect::remaining(parts, &change) {
                Some(remaining) => changes.push(remaining.into_owned()),
                None => gone.push(change),
            }
        }
        let is_of = |changes: &[Change], need: &Scope| {
            let path = need.path();
            path.is_some_and(|path| changes.iter().any(|change| effect::concerns(change, path)))
        };
        let remains = |need: &Scope| !is_of(&gone, need) || is_of(&changes, need);
        rest.needs.retain(remains);
        rest.protected.retain(|(need, _)| remains(need));
        preview.changes = changes;
        rest.describe();
        Ok(rest)
    }

    /// Returns what `patterns` would grant, as a sentence for people.
    #[must_use]
    pub fn covers(&self, patterns: &[Coverage]) -> String {
        choices::sentence(&self.granted_by(patterns), &self.roots)
    }

    /// `patterns`, or exactly the needs if it is empty.
    pub(crate) fn granted_by(&self, patterns: &[Coverage]) -> Vec<Coverage> {
        if patterns.is_empty() {
            self.needs.iter().map(Coverage::of).collect()
        } else {
            self.marked(patterns)
        }
    }
}

/// A question to a person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question {
    /// Its id, for answers.
    pub id: QuestionId,
    /// The run of the runtime that asks; ids are unique in a run only.
    pub run: Run,
    /// When it was asked, since the runtime began.
    pub asked_at: Duration,
    /// When it expires, since the runtime began.
    pub expires_at: Duration,
    /// The request, which clones share.
    pub request: Arc<Request>,
    /// How many calls wait, as counted by the broker.
    #[doc(hidden)]
    pub calls: WaitingCalls,
}

/// Number of calls that wait for a question. Clones share the count.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct WaitingCalls(Arc<AtomicUsize>);

impl Default for WaitingCalls {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }
}

impl WaitingCalls {
    #[doc(hidden)]
    pub fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// A person's answer to a question.
///
/// ```
/// use bailiwick::permission::{DeniedCalls, Lifetime};
/// use bailiwick::{Answer, Question};
/// use std::num::NonZeroU32;
///
/// fn answer(question: &Question, typed: &str) -> Answer {
///     match (typed, question.request.choices.last()) {
///         ("yes", _) => Answer::ONCE,
///         ("ten", _) => Answer::allow(Lifetime::Uses(NonZeroU32::MIN.saturating_add(9))),
///         ("session", _) => Answer::allow(Lifetime::Session),
///         // The broadest choice, such as the whole project.
///         ("all", Some(choice)) => Answer::allow_choice(choice, Lifetime::Session),
///         ("stop", _) => Answer::deny_rest_of_session(DeniedCalls::Kind),
///         _ => Answer::deny(Some("edit another file".to_owned())),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Allow the call.
    Allow {
        /// What is allowed; empty for exactly what was asked. A bare pattern covers everything beneath it and all operations
        /// of its verb; a [`Choice`] says what it covers.
        #[serde(default)]
        patterns: Vec<Coverage>,
        /// How long it is allowed.
        lifetime: Lifetime,
        /// Whether the worker's descendants may use it, too.
        #[serde(default)]
        descendants: bool,
        /// Changes, and hunks of changed files, to exclude; the agent is informed. Allowed only if [`Request::divisible`] is
        /// set, [`Request::check_excluded`] accepts them, and only for [`Lifetime::Once`] and [`Lifetime::Waiting`].
        #[serde(default)]
        left_out: Vec<ExcludedChange>,
    },
    /// Deny the call.
    Deny {
        /// A note for the agent.
        #[serde(default)]
        note: Option<String>,
        /// Later calls of the worker that are also denied, without a question, until the session ends or
        /// [`GrantAuthority::ask_again`] is called. Only a person's answer has this effect.
        #[serde(default)]
        rest_of_session: Option<DeniedCalls>,
    },
}

/// Which later calls a person denies together with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedCalls {
    /// Calls that need any of the scopes that this call asks for.
    Same,
    /// Calls that need the same verb on the same kind of resource, such as a change of any file.
    Kind,
}

impl DeniedCalls {
    /// The scopes that are denied together with a call that has these needs.
    pub(crate) fn of(self, needs: &[Scope]) -> Vec<Coverage> {
        let mut denied: Vec<Coverage> = Vec::new();
        for need in needs {
            let one = match self {
                Self::Same => Coverage::of(need),
                Self::Kind => ScopePattern::kind_of(need).into(),
            };
            if !denied.contains(&one) {
                denied.push(one);
            }
        }
        denied
    }
}

impl Answer {
    /// Allows exactly what was asked, once.
    pub const ONCE: Self = Self::allow(Lifetime::Once);
    /// Denies the call without a note.
    pub const DENY: Self = Self::deny(None);

    /// Allows exactly what was asked, for the worker without its descendants.
    #[must_use]
    pub const fn allow(lifetime: Lifetime) -> Self {
        Self::Allow {
            patterns: Vec::new(),
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        }
    }

    /// Allows what `choice`, one of [`Request::choices`], covers, for the worker without its descendants.
    #[must_use]
    pub fn allow_choice(choice: &Choice, lifetime: Lifetime) -> Self {
        Self::Allow {
            patterns: choice.patterns.clone(),
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        }
    }

    /// Denies this call only, with an optional note for the agent.
    #[must_use]
    pub const fn deny(note: Option<String>) -> Self {
        Self::Deny {
            note,
            rest_of_session: None,
        }
    }

    /// Denies this call, and these later calls of the worker until the session ends, without a note.
    #[must_use]
    pub const fn deny_rest_of_session(calls: DeniedCalls) -> Self {
        Self::Deny {
            note: None,
            rest_of_session: Some(calls),
        }
    }
}

/// How long an approval is valid.
///
/// A call uses a grant when the grant allows it, even if the call then fails or needs a further grant that it does not get.
/// Previews use none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// For one of the calls that wait for the question. Other equal calls are asked about again.
    Once,
    /// For this many of the calls that wait for the question, but no later ones.
    Waiting(NonZeroU32),
    /// For this many calls of the worker, including the one that asked, until the worker or its session ends.
    Uses(NonZeroU32),
    /// For this long, which is not zero, for the worker, until the worker or its session ends.
    #[serde(rename = "for_ms", with = "as_millis")]
    For(Duration),
    /// Until the worker that asked or its session ends.
    Session,
    /// For the agent that asked, by its path: all workers of that name, also in later sessions.
    Agent,
}

impl Lifetime {
    /// Returns how many waiting calls it allows, if it grants nothing to later ones.
    #[must_use]
    pub const fn waiting_calls(self) -> Option<NonZeroU32> {
        match self {
            Self::Once => Some(NonZeroU32::MIN),
            Self::Waiting(calls) => Some(calls),
            Self::Uses(_) | Self::For(_) | Self::Session | Self::Agent => None,
        }
    }
}

/// Who may use a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantHolder {
    /// One worker; the grant ends with it.
    Worker(WorkerId),
    /// One worker, while it is in this session. Other workers of the same name in the session cannot use the grant.
    Session {
        /// The session.
        session: Arc<str>,
        /// The worker; the grant ends with it, too.
        worker: WorkerId,
    },
    /// The agent with this path, such as `main/tests`, in every session: all workers of that name, now and later.
    Agent(Arc<str>),
}

/// How a question ended; it is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A person allowed it.
    Granted,
    /// A person or the approver denied it.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// No call waits for the answer any more.
    Cancelled,
}

/// Identifies one run of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// A random number.
    pub nonce: u64,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
}

impl Run {
    /// Returns a time since the runtime began in milliseconds since 1970.
    #[must_use]
    pub fn at_ms(&self, since: Duration) -> u64 {
        self.began_ms.saturating_add(millis(since))
    }
}

impl Question {
    /// Returns an id of the question that is unique across runs.
    #[must_use]
    pub fn handle(&self) -> String {
        format!("{:016x}-{}", self.run.nonce, self.id.0)
    }

    /// Returns how many equal calls wait for the answer now. [`Lifetime::Once`] allows one of them, [`Lifetime::Waiting`] as
    /// many as it says.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.calls.0.load(Ordering::Relaxed)
    }

    /// Returns when it was asked, in milliseconds since 1970.
    #[must_use]
    pub fn asked_at_ms(&self) -> u64 {
        self.run.at_ms(self.asked_at)
    }
}

/// State of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// It waits for an answer.
    Pending,
    /// It ended.
    Settled(Decision),
}

/// Calls that a person denied for the rest of a session; see [`Answer::Deny`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silenced {
    /// Its id, for [`GrantAuthority::ask_again`].
    pub id: SilencedId,
    /// The worker whose calls are denied.
    pub worker: WorkerId,
    /// The path of that worker.
    pub agent: String,
    /// The session in which they are denied.
    pub session: Arc<str>,
    /// Calls that need any of this are denied.
    pub denied: Vec<Coverage>,
}

impl Silenced {
    /// Returns what is denied, as a sentence for people. Escape it before it is shown.
    #[must_use]
    pub fn sentence(&self) -> String {
        denied_sentence(&self.denied)
    }
}

fn denied_sentence(denied: &[Coverage]) -> String {
    let texts: Vec<String> = denied.iter().map(Coverage::sentence).collect();
    texts
        .join("; ")
        .replace(" every file that may be granted", " any file")
}

/// Result of revoking grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantsRevoked {
    /// Number of revoked grants.
    pub grants: usize,
    /// Number of those with an effect that had already begun and did not end in time. They allow no further effect.
    pub unfinished: usize,
}

/// A grant that a person gives without a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewGrant {
    /// What it covers. A bare pattern covers everything beneath it and all operations of its verb.
    #[serde(flatten)]
    pub pattern: Coverage,
    /// Who may use it.
    pub holder: GrantHolder,
    /// How long it is valid; [`Lifetime::Once`] means one use.
    pub lifetime: Lifetime,
    /// Whether the holder's descendants may use it, too; those with another session may not use a grant for a session.
    pub descendants: bool,
}

/// Whether the path of `agent` is `top` or beneath it.
pub(crate) fn is_at_or_beneath(agent: &str, top: &str) -> bool {
    let rest = agent.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl NewGrant {
    /// Whether the lifetime is possible for the holder: permanent grants are held by agents, and agents have no session.
    fn is_sound(&self) -> bool {
        match (&self.holder, self.lifetime) {
            // This lifetime is only for calls that wait.
            (_, Lifetime::Waiting(_)) => false,
            (_, Lifetime::For(time)) if time.is_zero() => false,
            (GrantHolder::Agent(_), lifetime) => lifetime != Lifetime::Session,
            (GrantHolder::Worker(_) | GrantHolder::Session { .. }, lifetime) => {
                lifetime != Lifetime::Agent
            }
        }
    }
}

/// A duration in whole milliseconds.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// (De)serialises a duration in milliseconds.
mod as_millis {
    use super::{Deserialize as _, Duration, millis};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(millis(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Entry, FileDiff, Hunk, HunkLine, Op};
    use crate::fixtures::request;

    #[track_caller]
    fn check(request: &Request, patterns: &[&str], fits: bool) {
        let patterns: Vec<Coverage> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(request.fits(&patterns), fits, "{patterns:?}");
    }

    #[test]
    fn answer_must_cover_every_need_and_stay_within_max_grantable() {
        let mut request = request(1, 1, &["write:file:/r/a/x", "write:file:/r/b"]);
        request.max_grantable = vec!["write:file:/r".parse().unwrap()];
        check(&request, &[], true);
        check(&request, &["write:file:/r/a/x", "write:file:/r/b"], true);
        check(&request, &["write:file:/r"], true);
        check(&request, &["write:file:/r/a"], false);
        check(&request, &["write:file"], false);
        check(&request, &["write:file:/r", "read"], false);
    }

    #[test]
    fn undo_notice_follows_the_preview_and_the_provider() {
        let changed = |undoable| {
            let mut request = crate::fixtures::shown(request(1, 1, &["write:file:/r/a"]));
            if let Some(preview) = &mut request.preview {
                preview.changes = vec![crate::fixtures::deleted_directory("/r/a", 1, 1)];
                preview.undoable = undoable;
            }
            request
        };
        let check = |request: &Request, expected: Option<&str>| {
            assert_eq!(request.undo_notice("afterwards").as_deref(), expected);
        };
        check(&changed(true), Some("You can undo this afterwards."));
        let mut protected = changed(true);
        protected.protected = vec![(protected.needs[0].clone(), "agents follow it")];
        let notice =
            "You can undo this afterwards, but not what programs do because of it until then.";
        check(&protected, Some(notice));
        check(&changed(false), Some("This cannot be undone."));
        let mut unknown = request(1, 1, &["write:file:/r/a"]);
        check(&unknown, Some("It may be impossible to undo this."));
        unknown.server = Some("notes".into());
        check(&unknown, Some("This cannot be undone here."));
        let mut reads = request(1, 1, &["read:file:/r/a"]);
        reads.server = Some("notes".into());
        check(&reads, None);
    }

    /// A change of two places of `/r/b`, of which the second adds a hidden character.
    fn edit() -> Change {
        let hunk = |start, added: &str| Hunk {
            old_start: start,
            old_lines: 1,
            new_start: start,
            new_lines: 1,
            lines: [('-', "old\n"), ('+', added)]
                .map(|(op, text)| HunkLine {
                    op,
                    text: text.to_owned(),
                })
                .into(),
        };
        let state = Entry::File {
            hash: ContentHash::of(b""),
            bytes: 8,
        };
        Change {
            path: VirtualPath::parse("/r/b", None).unwrap(),
            op: Op::Modify,
            to: None,
            before: state,
            after: state,
            diff: FileDiff {
                hunks: [hunk(1, "new\n"), hunk(9, "a\u{202e}b\n")].into(),
                added: 2,
                removed: 2,
                ..FileDiff::default()
            },
        }
    }

    #[test]
    fn request_without_a_part_describes_what_remains() {
        let needs = ["write:file:/r/b", "write:file:/r/old", "read:file:/tmp/x"];
        let mut request = crate::fixtures::shown(request(1, 1, &needs));
        request.divisible = true;
        request.protected = vec![(request.needs[1].clone(), "programs run it")];
        let preview = request.preview.as_mut().unwrap();
        preview.undoable = true;
        preview.changes = vec![crate::fixtures::deleted_directory("/r/old", 3, 3), edit()];
        request.describe();
        let without = |path: &str, hunks: Option<Vec<usize>>| {
            let path = VirtualPath::parse(path, None).unwrap();
            let rest = request.without(&[ExcludedChange { path, hunks }]).unwrap();
            let kinds: Vec<DangerKind> = rest.dangers.iter().map(|danger| danger.kind).collect();
            let changes = &rest.preview.as_ref().unwrap().changes;
            let lines = changes
                .iter()
                .map(|change| change.diff.added)
                .sum::<usize>();
            (rest.sentence, kinds, rest.needs.len(), lines)
        };
        let whole = "Delete old/ (3 files); change b";
        let (hidden, outside) = (DangerKind::HiddenCharacters, DangerKind::Outside);
        let (delete, recursive) = (DangerKind::Delete, DangerKind::Recursive);
        let all = vec![delete, recursive, DangerKind::Protected, hidden, outside];
        assert_eq!(
            without("/r/b", Some(vec![])),
            (whole.to_owned(), all.clone(), 3, 2)
        );
        let edited = without("/r/old", None);
        assert_eq!(edited, ("Change b".to_owned(), vec![hidden, outside], 2, 2));
        let safe = vec![delete, recursive, DangerKind::Protected, outside];
        assert_eq!(
            without("/r/b", Some(vec![1])),
            (whole.to_owned(), safe.clone(), 3, 1)
        );
        assert_eq!(
            without("/r/b", Some(vec![0])),
            (whole.to_owned(), all, 3, 1)
        );
        let deleted = "Delete the folder old/ and the 3 files in it (3 bytes)".to_owned();
        let rest = (deleted, safe, 2, 0);
        assert_eq!(without("/r/b", Some(vec![0, 1])), rest);
        assert_eq!(without("/r/b", None), rest);
    }

    #[test]
    fn names_in_an_answer_get_the_marks_of_the_needs() {
        let request = request(1, 1, &["write:mcp:h~1:edit~2", "write:mcp:h~1:note~3"]);
        for (texts, marked) in [
            (
                &[][..],
                &["write:mcp:h~1:edit~2", "write:mcp:h~1:note~3"][..],
            ),
            (&["write:mcp:h"], &["write:mcp:h~1"]),
            (
                &["write:mcp:h:edit", "write:mcp:h:note"],
                &["write:mcp:h~1:edit~2", "write:mcp:h~1:note~3"],
            ),
            (&["write:mcp"], &["write:mcp"]),
        ] {
            check(&request, texts, true);
            let given: Vec<Coverage> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let patterns = request.granted_by(&given);
            let found = patterns.iter().map(|one| one.pattern().to_string());
            assert_eq!(found.collect::<Vec<_>>(), marked);
        }
        check(&request, &["write:mcp:h~9"], false);
        check(&request, &["write:mcp:h:edit"], false);
    }

    #[test]
    fn sensitive_need_is_allowed_only_exactly() {
        let mut request = request(1, 1, &["write:file:/r/.mcp.json"]);
        check(&request, &["write:file:/r"], true);
        request.sensitive = true;
        check(&request, &["write:file:/r"], false);
        check(&request, &["write:file:/r/.mcp.json"], true);
        check(&request, &[], true);
    }

    #[test]
    fn exact_needs_fit_outside_max_grantable() {
        let mut request = request(1, 1, &["write:file:/r/x"]);
        request.max_grantable.clear();
        check(&request, &["write:file:/r/x"], true);
        check(&request, &["write:file:/r"], false);
    }

    #[test]
    fn lifetimes_and_answers_round_trip_through_json() {
        for (lifetime, text) in [
            (Lifetime::Once, "\"once\""),
            (
                Lifetime::Waiting(NonZeroU32::new(3).unwrap()),
                "{\"waiting\":3}",
            ),
            (
                Lifetime::Uses(NonZeroU32::new(10).unwrap()),
                "{\"uses\":10}",
            ),
            (
                Lifetime::For(Duration::from_secs(3600)),
                "{\"for_ms\":3600000}",
            ),
            (Lifetime::Session, "\"session\""),
            (Lifetime::Agent, "\"agent\""),
        ] {
            assert_eq!(serde_json::to_string(&lifetime).unwrap(), text);
            assert_eq!(serde_json::from_str::<Lifetime>(text).unwrap(), lifetime);
        }
        let once: Answer = serde_json::from_str("{\"allow\":{\"lifetime\":\"once\"}}").unwrap();
        assert_eq!(once, Answer::ONCE);
    }
}
