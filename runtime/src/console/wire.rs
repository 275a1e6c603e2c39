//! The body of a request in, what a person wants out; what is not known is refused, not passed over.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::faults::Fault;
use crate::effect::ExcludedHunks;
use crate::id::{GrantId, QuestionId, SilencedId, ToolName, WorkerId};
use crate::json::read_json;
use crate::path::VirtualPath;
use crate::permission::{
    Answer, AuthorityError, Decision, DeniedCalls, GrantFilter, GrantHolder, HistoryFilter,
    Lifetime, Narrowing,
};
use crate::scope::{Coverage, Operations, Reach, ScopePattern, Verb};

/// The longest note to an agent, in characters.
const MAX_NOTE: usize = 1000;

/// Reads a body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    read_json(body).map_err(|error| Fault::malformed(&error))
}

/// Reads `RUN-NUMBER`, which names a question or grant among those of all runtimes.
pub(super) fn handle(text: &str) -> Option<(u64, u64)> {
    let (run, number) = text.split_once('-')?;
    let plain = |digits: &str, radix| digits.chars().all(|c| c.is_digit(radix));
    if !plain(run, 16) || !plain(number, 10) {
        return None;
    }
    Some((u64::from_str_radix(run, 16).ok()?, number.parse().ok()?))
}

/// The run and the question that a handle names.
pub(super) fn question(text: &str) -> Option<(u64, QuestionId)> {
    handle(text).map(|(run, number)| (run, QuestionId(number)))
}

/// The run and the grant that a handle names.
pub(super) fn grant(text: &str) -> Option<(u64, GrantId)> {
    handle(text).map(|(run, number)| (run, GrantId(number)))
}

/// The run of this name.
pub(super) fn run(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok())?
}

/// A person's word on one question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    pub(super) question: String,
    /// The conversation that it was shown in.
    pub(super) session: Arc<str>,
    pub(super) answer: Word,
}

/// Words on several questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaidOfEach {
    pub(super) answers: Vec<Said>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Word {
    Allow {
        #[serde(default)]
        patterns: Vec<Coverage>,
        lifetime: Lifetime,
        #[serde(default)]
        descendants: bool,
        #[serde(default)]
        left_out: Vec<ExcludedHunks>,
    },
    Deny {
        #[serde(default)]
        note: Option<String>,
        #[serde(default)]
        rest_of_session: bool,
    },
}

impl Word {
    pub(super) fn meant(self) -> Result<Answer, Fault> {
        Ok(match self {
            Self::Allow {
                patterns,
                lifetime,
                descendants,
                left_out,
            } => Answer::Allow {
                patterns,
                lifetime,
                descendants,
                left_out,
            },
            Self::Deny {
                note,
                rest_of_session,
            } => {
                let length = note.as_ref().map_or(0, |note| note.chars().count());
                if length > MAX_NOTE {
                    return Err(Fault::too_long("a note", MAX_NOTE));
                }
                Answer::Deny {
                    note,
                    rest_of_session: rest_of_session.then_some(DeniedCalls::Same),
                }
            }
        })
    }
}

/// Grants to take back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revoked {
    pub(super) grants: Vec<String>,
}

/// Which grants are to be taken back: those for which everything that is said holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Swept {
    agent: Option<Arc<str>>,
    session: Option<Arc<str>>,
    worker: Option<WorkerId>,
    verb: Option<Verb>,
    touches: Option<ScopePattern>,
    /// Says that nothing is named because all are meant.
    #[serde(default)]
    all: bool,
}

impl Swept {
    pub(super) fn meant(self) -> Result<GrantFilter, Fault> {
        let Self {
            agent,
            session,
            worker,
            verb,
            touches,
            all,
        } = self;
        let filter = GrantFilter {
            agent,
            session,
            worker,
            verb,
            touches,
        };
        if all == (filter == GrantFilter::default()) {
            Ok(filter)
        } else {
            Err(Fault::unnamed())
        }
    }
}

/// Less of a grant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Narrowed {
    pub(super) grant: String,
    pattern: Option<ScopePattern>,
    reach: Option<Reach>,
    operations: Option<Operations>,
    uses: Option<NonZeroU32>,
    for_ms: Option<u64>,
    #[serde(default)]
    holder_only: bool,
}

impl Narrowed {
    pub(super) fn change(&self) -> Narrowing {
        Narrowing {
            pattern: self.pattern.clone(),
            reach: self.reach,
            operations: self.operations,
            uses: self.uses,
            time: self.for_ms.map(Duration::from_millis),
            holder_only: self.holder_only,
        }
    }
}

/// Who is to hold a grant.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Holder {
    Worker(WorkerId),
    Session { session: Arc<str>, worker: WorkerId },
    Agent(Arc<str>),
}

impl From<Holder> for GrantHolder {
    fn from(holder: Holder) -> Self {
        match holder {
            Holder::Worker(worker) => Self::Worker(worker),
            Holder::Session { session, worker } => Self::Session { session, worker },
            Holder::Agent(agent) => Self::Agent(agent),
        }
    }
}

/// A grant that is given without a question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    pub(super) run: String,
    pattern: ScopePattern,
    reach: Option<Reach>,
    operations: Option<Operations>,
    pub(super) holder: Holder,
    pub(super) lifetime: Lifetime,
    #[serde(default)]
    pub(super) descendants: bool,
}

impl Given {
    /// What is to be granted: all of the pattern, unless the page says how far and what.
    pub(super) fn covered(&self) -> Result<Coverage, Fault> {
        let pattern = self.pattern.clone();
        let covered = match (self.reach, self.operations) {
            (None, None) => Some(pattern.into()),
            (Some(reach), Some(operations)) => Coverage::new(pattern, reach, operations),
            (Some(_), None) | (None, Some(_)) => None,
        };
        covered.ok_or_else(|| Fault::from(AuthorityError::DoesNotFit))
    }
}

/// A template and the directories it is for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Looked {
    pub(super) run: String,
    pub(super) template: String,
    pub(super) roots: Vec<VirtualPath>,
}

/// A template that is applied.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Applied {
    pub(super) run: String,
    pub(super) template: String,
    pub(super) roots: Vec<VirtualPath>,
    pub(super) holder: Holder,
    pub(super) lifetime: Lifetime,
}

/// Whose later questions a rule might spare.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Often {
    pub(super) run: String,
    pub(super) agent: Arc<str>,
    pub(super) session: Arc<str>,
    pub(super) worker: WorkerId,
}

/// What was refused for the rest of a session and is to be asked again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedAgain {
    pub(super) run: String,
    pub(super) refusal: SilencedId,
}

/// Which part of a history is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Past {
    /// Which runtime's; the first if it is not said.
    pub(super) source: Option<String>,
    agent: Option<Arc<str>>,
    tool: Option<ToolName>,
    decision: Option<Decision>,
    session: Option<Arc<str>>,
    server: Option<Arc<str>>,
    since: Option<u64>,
    until: Option<u64>,
    /// Which run that the record tells of.
    pub(super) run: Option<u64>,
    /// How many of the latest entries are passed over.
    pub(super) skip: usize,
    /// Whether what was read of the record before is read again.
    pub(super) anew: bool,
}

impl Past {
    pub(super) fn filter(&self) -> HistoryFilter {
        HistoryFilter {
            agent: self.agent.clone(),
            tool: self.tool.clone(),
            decision: self.decision,
            session: self.session.clone(),
            server: self.server.clone(),
            since: self.since,
            until: self.until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: DeserializeOwned>(text: &str, fits: bool) {
        let read = read::<T>(text.as_bytes());
        assert_eq!(read.is_ok(), fits, "{text}: {:?}", read.err());
    }

    #[test]
    fn what_is_not_known_or_said_twice_is_refused() {
        let said =
            |answer: &str| format!(r#"{{"question":"a-1","session":"s","answer":{answer}}}"#);
        for (answer, fits) in [
            (r#"{"allow":{"lifetime":"once"}}"#, true),
            (
                r#"{"allow":{"lifetime":{"uses":2},"patterns":["write:file:/r"]}}"#,
                true,
            ),
            (r#"{"allow":{"lifetime":"once","forever":true}}"#, false),
            (r#"{"allow":{"lifetime":"once","lifetime":"agent"}}"#, false),
            (r#"{"allow":{"lifetime":{"uses":0}}}"#, false),
            (r#"{"allow":{"lifetime":{"uses":2,"uses":1}}}"#, false),
            (
                r#"{"allow":{"lifetime":"once","patterns":["everything"]}}"#,
                false,
            ),
            (
                r#"{"allow":{"lifetime":"once","left_out":[{"path":"/r","hunks":[0],"x":1}]}}"#,
                false,
            ),
            (r#"{"deny":{}}"#, true),
            (r#"{"deny":{"note":"no","rest_of_session":true}}"#, true),
            (r#"{"deny":{"why":"no"}}"#, false),
            (r#"{"maybe":{}}"#, false),
            (r#"{"allow":{"lifetime":"once"},"deny":{}}"#, false),
        ] {
            check::<Said>(&said(answer), fits);
        }
        check::<Said>(
            r#"{"question":"a-1","session":"s","answer":{"deny":{}},"more":1}"#,
            false,
        );
        check::<Past>(r#"{"agent":"main"}"#, true);
        check::<Past>(r#"{"agnet":"main"}"#, false);
        check::<Narrowed>(r#"{"grant":"a-1","uses":1}"#, true);
        check::<Narrowed>(r#"{"grant":"a-1","use":1}"#, false);
    }

    #[test]
    fn all_grants_are_meant_only_if_that_is_said() {
        let meant = |text: &str| read::<Swept>(text.as_bytes()).unwrap().meant();
        assert_eq!(meant("{}").unwrap_err().code, "NOTHING_NAMED");
        assert_eq!(meant(r#"{"all":true}"#).unwrap(), GrantFilter::default());
        assert!(meant(r#"{"verb":"write"}"#).unwrap().verb.is_some());
        let both = meant(r#"{"all":true,"verb":"write"}"#);
        assert_eq!(both.unwrap_err().code, "NOTHING_NAMED");
    }

    #[test]
    fn a_note_is_as_long_as_a_person_writes() {
        let note = |length| Word::Deny {
            note: Some("n".repeat(length)),
            rest_of_session: false,
        };
        assert!(note(MAX_NOTE).meant().is_ok());
        assert_eq!(note(MAX_NOTE + 1).meant().unwrap_err().code, "TOO_LONG");
    }

    #[test]
    fn handles_are_read_back_and_nothing_else_is() {
        assert_eq!(handle("00000000000000ff-3"), Some((255, 3)));
        for wrong in [
            "", "-", "ff", "ff-", "-3", "+f-3", "ff-+3", "ff-3-3", "fg-3", "ff-3x",
        ] {
            assert_eq!(handle(wrong), None, "{wrong}");
        }
        assert_eq!(run("00000000000000ff"), Some(255));
        assert_eq!(run("ff"), None);
    }
}
