//! Permissions: questions to people, their answers, and grants.

mod approver;
mod authority;
mod batch;
mod block;
mod broker;
mod broker_state;
mod choices;
mod decided;
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

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Origin;
use crate::effect::{ContentHash, ExcludedHunks, Preview, PreviewToken};
use crate::id::{CallId, QuestionId, SilencedId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::scope::{Coverage, Scope, ScopePattern};

pub use approver::{Approver, Deciding, Deferred, DenyAll, Scripted};
pub use authority::{AuthorityError, Changes, GrantAuthority};
#[cfg(all(feature = "ui", feature = "http"))]
pub(crate) use batch::apart;
pub use batch::{Batch, BatchAnswer, BatchItem, NotBatchable, batches};
pub use block::{
    BlockCall, BlockExtra, BlockKind, BlockStatus, PermissionBlock, PermissionRequest,
    PermissionRequired, PermissionType, ServerCard,
};
pub(crate) use broker::{AskOutcome, Broker, BrokerConfig, QuestionSender};
pub(crate) use broker_state::CallRef;
pub(crate) use choices::choices;
pub use choices::{Breadth, Choice};
pub use decided::{DecidedBy, RevokeCause};
pub use grants::GrantView;
pub(crate) use grants::{Requester, UsedGrants};
pub use history::{
    CallOutcome, CallTally, Denial, GrantUse, History, HistoryEntry, HistoryEvent, HistoryFilter,
    HistoryReport, PastCall, PastQuestion, RepeatedQuestion, Tally,
};
pub use ledger::AskLimits;
pub use options::{AnswerOption, OptionKind};
pub use settings::{GrantFilter, Narrowing};
pub use store::{
    GrantDamage, GrantEditError, GrantStore, GrantStoreError, GrantWriteError, StoredGrant,
};
pub use suggest::{Suggestion, suggest};
pub use template::{Template, TemplateError};
pub use terminal::Terminal;

/// What one call asks of a person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Whose call it is.
    pub worker: WorkerId,
    /// The call.
    pub call: CallId,
    /// Who wrote the call.
    pub origin: Origin,
    /// The names from the outermost agent down to the one that asks.
    pub agent_path: Vec<String>,
    /// The session that the worker belongs to.
    pub session: Arc<str>,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, canonical: keys sorted at every level. For those of the tool's own type a text: how `Debug` shows
    /// the job that they were understood as.
    pub arguments: Value,
    /// Hash of these arguments; calls with others are never taken for the same question.
    pub arguments_hash: ContentHash,
    /// One sentence for people, made by the runtime from the tool's template. It quotes the agent's words.
    pub intent: String,
    /// Exactly what has to be allowed.
    pub needs: Vec<Scope>,
    /// What the call would do, where the worker may look.
    pub preview: Option<Preview>,
    /// What a person may choose from, the narrowest first: each covers all needs, the first exactly them.
    pub choices: Vec<Choice>,
    /// The served roots; what lies in none of them is outside.
    pub roots: Vec<VirtualPath>,
    /// The widest that may be granted here.
    pub max_grantable: Vec<ScopePattern>,
    /// A protected name is among the needs: only exactly them can be allowed.
    pub sensitive: bool,
    /// The needs that make it so.
    pub protected: Vec<Scope>,
    /// Why these are protected: each reason once, as a sentence.
    pub protected_because: Vec<&'static str>,
    /// The state of the files that the question was made from.
    pub before: Option<PreviewToken>,
    /// Hunks of the change can be left out of it.
    pub divisible: bool,
    /// The MCP server whose tool it is; none for a tool of this runtime.
    pub server: Option<Arc<str>>,
    /// An answer to another call serves for this one no more than the other way round, however equal they are.
    pub alone: bool,
}

impl Request {
    /// Whether a person may allow this call by `patterns`: they cover every need and nothing above the max_grantable. A server or
    /// tool that they name without its mark is the one that is asked about.
    ///
    /// No patterns at all means exactly the needs.
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

    /// `patterns`, with the marks of what is asked about where they have none.
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

    /// What [`DeniedCalls::Kind`] denies, in words for people. Whoever shows it makes the text inert first.
    pub(crate) fn kinds(&self) -> String {
        denied_sentence(&DeniedCalls::Kind.of(&self.needs))
    }

    /// Whether what was shown can be done without `parts`.
    #[must_use]
    pub fn can_leave_out(&self, parts: &[ExcludedHunks]) -> bool {
        let shown = self.preview.as_ref().filter(|_| self.divisible);
        parts.is_empty()
            || shown.is_some_and(|preview| ExcludedHunks::fits(parts, &preview.changes))
    }

    /// What `patterns` would grant, in words for people, generated from all that they are.
    #[must_use]
    pub fn covers(&self, patterns: &[Coverage]) -> String {
        choices::sentence(&self.meant(patterns), &self.roots)
    }

    /// What `patterns` stands for: itself, or exactly the needs if it is empty.
    pub(crate) fn meant(&self, patterns: &[Coverage]) -> Vec<Coverage> {
        if patterns.is_empty() {
            self.needs.iter().map(Coverage::of).collect()
        } else {
            self.marked(patterns)
        }
    }
}

/// A request as it is put to a person.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question {
    /// Names it in answers.
    pub id: QuestionId,
    /// Which run of a runtime asks; ids begin anew with each.
    pub run: Run,
    /// When it was asked, since the runtime began.
    pub asked_at: Duration,
    /// When it ends unanswered, since the runtime began.
    pub expires_at: Duration,
    /// What is asked.
    pub request: Request,
    /// How many calls wait; the broker counts.
    pub(crate) calls: WaitingCalls,
}

/// How many calls wait for a question. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct WaitingCalls(Arc<AtomicUsize>);

impl Default for WaitingCalls {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }
}

impl WaitingCalls {
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// What a person says to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It may.
    Allow {
        /// What may be done; empty for exactly what was asked. A bare pattern covers all that is beneath it and every
        /// operation of its verb; a [`Choice`] says what it covers.
        #[serde(default)]
        patterns: Vec<Coverage>,
        /// For how long.
        lifetime: Lifetime,
        /// Whether the worker's sub-agents may use it too.
        #[serde(default)]
        descendants: bool,
        /// What of the change that was shown is not to be made; the agent is told. Only where
        /// [`Request::divisible`] says so, and only for [`Lifetime::Once`] and [`Lifetime::Waiting`].
        #[serde(default)]
        left_out: Vec<ExcludedHunks>,
    },
    /// It may not.
    Deny {
        /// What the agent is told.
        #[serde(default)]
        note: Option<String>,
        /// Which later calls of the worker are denied, too, without a question, until the session ends or
        /// [`GrantAuthority::ask_again`]. Only a person's answer has this effect.
        #[serde(default)]
        rest_of_session: Option<DeniedCalls>,
    },
}

/// Which later calls a person denies together with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeniedCalls {
    /// Those that need any of what this call asks for.
    Same,
    /// Those that need the same verb on the same kind of resource, such as a change of any file.
    Kind,
}

impl DeniedCalls {
    /// What calls like one with `needs` may not ask for.
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
    /// Exactly what was asked, this once.
    pub const ONCE: Self = Self::Allow {
        patterns: Vec::new(),
        lifetime: Lifetime::Once,
        descendants: false,
        left_out: Vec::new(),
    };
    /// No, without a word.
    pub const DENY: Self = Self::deny(None);

    /// No, also to every later call of the kind until the session ends.
    pub(crate) const DENY_KIND: Self = Self::Deny {
        note: None,
        rest_of_session: Some(DeniedCalls::Kind),
    };

    /// No, for this call alone; the agent is told the note.
    #[must_use]
    pub const fn deny(note: Option<String>) -> Self {
        Self::Deny {
            note,
            rest_of_session: None,
        }
    }
}

/// How long a person's yes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// For one of the calls that wait for the question, and no other. Each further equal call is asked about again.
    Once,
    /// For this many of the calls that wait for the question, and no later one.
    Waiting(NonZeroU32),
    /// For this many calls of the worker, the one that asked among them.
    Uses(NonZeroU32),
    /// For this long, for the worker.
    #[serde(rename = "for_ms", with = "millis")]
    For(Duration),
    /// Until the session ends, for the worker that asked.
    Session,
    /// For the agent that asked, by its path: all workers of that name, in later sessions too.
    Agent,
}

impl Lifetime {
    /// How many waiting calls it lets through, if it grants nothing to later ones.
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
    /// One worker, while it is in this session. Not its name: workers of the same name in a session may be many.
    Session {
        /// The session.
        session: Arc<str>,
        /// The worker; the grant ends with it, too.
        worker: WorkerId,
    },
    /// The agent of this path, such as `main/tests`, in every session: every worker of that name, now and later.
    Agent(Arc<str>),
}

/// How a question ended. None of these ever becomes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A person allowed it.
    Granted,
    /// A person, or whoever stands for one, refused it.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// Nobody waits for the answer any more.
    Cancelled,
}

/// One run of a runtime, told from all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Drawn at random.
    pub nonce: u64,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
}

impl Question {
    /// Names the question among those of all runs.
    #[must_use]
    pub fn handle(&self) -> String {
        format!("{:016x}-{}", self.run.nonce, self.id.0)
    }

    /// How many equal calls wait for the answer now. [`Lifetime::Once`] lets one of them through,
    /// [`Lifetime::Waiting`] as many as it says.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.calls.0.load(Ordering::Relaxed)
    }

    /// When it was asked, in milliseconds since 1970.
    #[must_use]
    pub fn asked_at_ms(&self) -> u64 {
        let since = u64::try_from(self.asked_at.as_millis()).unwrap_or(u64::MAX);
        self.run.began_ms.saturating_add(since)
    }
}

/// How a question stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// It waits for an answer.
    Pending,
    /// It ended.
    Settled(Decision),
}

/// What a person does not want to be asked about for the rest of a session; see [`Answer::Deny`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silenced {
    /// Names it in [`GrantAuthority::ask_again`].
    pub id: SilencedId,
    /// Whose calls are denied without a question.
    pub worker: WorkerId,
    /// The path of that worker.
    pub agent: String,
    /// Until this session ends.
    pub session: Arc<str>,
    /// Calls that need any of this are denied.
    pub denied: Vec<Coverage>,
}

impl Silenced {
    /// What is denied, in words for people. Whoever shows it makes the text inert first.
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

/// What taking grants back came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantsRevoked {
    /// Grants that were taken back.
    pub grants: usize,
    /// Those of them with an effect that had begun before and did not end in time; nothing new begins by them.
    pub unfinished: usize,
}

/// A grant that a person gives without being asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewGrant {
    /// What it covers. A bare pattern covers all that is beneath it and every operation of its verb.
    #[serde(flatten)]
    pub pattern: Coverage,
    /// Who may use it.
    pub holder: GrantHolder,
    /// How long it holds; [`Lifetime::Once`] means one use.
    pub lifetime: Lifetime,
    /// Whether the holder's sub-agents may use it too.
    pub descendants: bool,
}

/// Whether the path of `agent` is `top`, or that of an agent beneath it.
fn is_at_or_beneath(agent: &str, top: &str) -> bool {
    let rest = agent.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl NewGrant {
    /// Whether holder and lifetime go together: what is for an agent for good is held by an agent, and an agent is in no
    /// one session.
    fn is_sound(&self) -> bool {
        match (&self.holder, self.lifetime) {
            // It is only for calls that wait.
            (_, Lifetime::Waiting(_)) => false,
            (GrantHolder::Agent(_), lifetime) => lifetime != Lifetime::Session,
            (GrantHolder::Worker(_) | GrantHolder::Session { .. }, lifetime) => {
                lifetime != Lifetime::Agent
            }
        }
    }
}

mod millis {
    use super::Duration;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scope::Scope;

    /// A request of worker `worker` that differs from others by `argument`.
    pub(crate) fn request(worker: u64, argument: u64, needs: &[&str]) -> Request {
        let needs: Vec<Scope> = needs.iter().map(|need| need.parse().unwrap()).collect();
        let max_grantable = vec![ScopePattern::ANY];
        let roots = vec![VirtualPath::parse("/r", None).unwrap()];
        let arguments = serde_json::json!({ "argument": argument });
        Request {
            worker: WorkerId(worker),
            call: CallId(argument),
            origin: Origin::Model,
            agent_path: vec!["main".to_owned(), format!("agent{worker}")],
            session: "session".into(),
            tool: ToolName::new("edit_file"),
            arguments_hash: ContentHash::of(arguments.to_string().as_bytes()),
            arguments,
            intent: "Edit a file".to_owned(),
            preview: None,
            choices: choices(&needs, &max_grantable, &roots, false),
            roots,
            needs,
            max_grantable,
            sensitive: false,
            protected: Vec::new(),
            protected_because: Vec::new(),
            before: None,
            divisible: false,
            server: None,
            alone: false,
        }
    }

    /// The same, where nothing but the content of files is changed.
    pub(crate) fn changing(mut request: Request) -> Request {
        let change = crate::scope::Operation::Change.into();
        let needs = request.needs.into_iter();
        request.needs = needs.map(|need| need.only(change)).collect();
        let Request {
            needs,
            max_grantable,
            roots,
            sensitive,
            ..
        } = &request;
        request.choices = choices(needs, max_grantable, roots, *sensitive);
        request
    }

    /// The same with something to see.
    pub(crate) fn shown(mut request: Request) -> Request {
        request.preview = Some(crate::effect::Preview {
            base: crate::path::VirtualPath::top(),
            intent: request.intent.clone(),
            changes: Vec::new(),
            reply: crate::effect::Reply::text("", ()),
            token: PreviewToken(ContentHash::of(b"")),
            artifacts: Vec::new(),
        });
        request
    }

    #[track_caller]
    fn check(request: &Request, patterns: &[&str], fits: bool) {
        let patterns: Vec<Coverage> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(request.fits(&patterns), fits, "{patterns:?}");
    }

    #[test]
    fn an_answer_must_cover_every_need_and_stay_below_the_ceiling() {
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
    fn a_name_in_an_answer_is_what_is_asked_about() {
        let request = request(1, 1, &["write:mcp:h~1:edit~2", "write:mcp:h~1:note~3"]);
        for (said, meant) in [
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
            check(&request, said, true);
            let said: Vec<Coverage> = said.iter().map(|text| text.parse().unwrap()).collect();
            let patterns = request.meant(&said);
            let marked = patterns.iter().map(|one| one.pattern().to_string());
            assert_eq!(marked.collect::<Vec<_>>(), meant);
        }
        check(&request, &["write:mcp:h~9"], false);
        check(&request, &["write:mcp:h:edit"], false);
    }

    #[test]
    fn a_sensitive_need_is_allowed_by_its_very_name_alone() {
        let mut request = request(1, 1, &["write:file:/r/.mcp.json"]);
        check(&request, &["write:file:/r"], true);
        request.sensitive = true;
        check(&request, &["write:file:/r"], false);
        check(&request, &["write:file:/r/.mcp.json"], true);
        check(&request, &[], true);
    }

    #[test]
    fn the_exact_needs_fit_even_where_the_ceiling_does_not_reach() {
        let mut request = request(1, 1, &["write:file:/r/x"]);
        request.max_grantable.clear();
        check(&request, &["write:file:/r/x"], true);
        check(&request, &["write:file:/r"], false);
    }

    #[test]
    fn lifetimes_and_answers_survive_json() {
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
