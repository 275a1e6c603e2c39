//! Request bodies of the console's HTTP API; unknown members are rejected.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use bailiwick::effect::ExcludedChange;
use bailiwick::json::read_json;
use bailiwick::permission::{
    Answer, AuthorityError, Decision, DeniedCalls, GrantFilter, GrantHolder, GrantId,
    HistoryFilter, Lifetime, Narrowing, QuestionId, SilencedId,
};
use bailiwick::scope::{Coverage, Operations, Reach, ScopePattern, Verb};
use bailiwick::tool::ToolName;
use bailiwick::{VirtualPath, WorkerId};

/// The longest note to an agent, in characters.
const MAX_NOTE: usize = 1000;

/// Parses a request body.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    read_json(body).map_err(|error| ApiError::malformed(&error))
}

/// Parses `RUN-NUMBER`, the identifier of a question or grant across runtimes.
pub(super) fn handle(text: &str) -> Option<(u64, u64)> {
    let (run, number) = text.split_once('-')?;
    let plain = |digits: &str, radix| digits.chars().all(|c| c.is_digit(radix));
    if !plain(run, 16) || !plain(number, 10) {
        return None;
    }
    Some((u64::from_str_radix(run, 16).ok()?, number.parse().ok()?))
}

/// Parses the run and id of a question.
pub(super) fn question(text: &str) -> Option<(u64, QuestionId)> {
    handle(text).map(|(run, number)| (run, QuestionId(number)))
}

/// Parses the run and id of a worker.
pub(super) fn worker(text: &str) -> Option<(u64, WorkerId)> {
    handle(text).map(|(run, number)| (run, WorkerId(number)))
}

/// Parses the run and id of a grant.
pub(super) fn grant(text: &str) -> Option<(u64, GrantId)> {
    handle(text).map(|(run, number)| (run, GrantId(number)))
}

/// Parses the name of a run.
pub(super) fn run(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.chars().all(|c| c.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok())?
}

/// Answer to one question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerRequest {
    pub(super) question: String,
    /// The session in which the question was shown.
    pub(super) session: Arc<str>,
    pub(super) answer: AnswerBody,
}

/// Answers to several questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchAnswerRequest {
    pub(super) answers: Vec<AnswerRequest>,
}

/// What a person has excluded so far from the call of a question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemainingRequest {
    pub(super) question: String,
    pub(super) left_out: Vec<ExcludedChange>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum AnswerBody {
    Allow {
        #[serde(default)]
        patterns: Vec<Coverage>,
        lifetime: Lifetime,
        #[serde(default)]
        descendants: bool,
        #[serde(default)]
        left_out: Vec<ExcludedChange>,
    },
    Deny {
        #[serde(default)]
        note: Option<String>,
        #[serde(default)]
        rest_of_session: bool,
    },
}

impl AnswerBody {
    pub(super) fn into_answer(self) -> Result<Answer, ApiError> {
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
                    return Err(ApiError::too_long("a note", MAX_NOTE));
                }
                Answer::Deny {
                    note,
                    rest_of_session: rest_of_session.then_some(DeniedCalls::Same),
                }
            }
        })
    }
}

/// Grants to revoke.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeRequest {
    pub(super) grants: Vec<String>,
}

/// Filter for grants to revoke: all given members must match.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RevokeQuery {
    agent: Option<Arc<str>>,
    session: Option<Arc<str>>,
    worker: Option<WorkerId>,
    verb: Option<Verb>,
    touches: Option<ScopePattern>,
    /// Revokes all grants; required if no other member is given.
    #[serde(default)]
    all: bool,
}

impl RevokeQuery {
    pub(super) fn into_filter(self) -> Result<GrantFilter, ApiError> {
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
            Err(ApiError::unnamed())
        }
    }
}

/// Restrictions to add to a grant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NarrowRequest {
    pub(super) grant: String,
    pattern: Option<ScopePattern>,
    reach: Option<Reach>,
    operations: Option<Operations>,
    uses: Option<NonZeroU32>,
    for_ms: Option<u64>,
    #[serde(default)]
    holder_only: bool,
}

impl NarrowRequest {
    pub(super) fn narrowing(&self) -> Narrowing {
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

/// Holder of a new grant.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum HolderBody {
    Worker(WorkerId),
    Session { session: Arc<str>, worker: WorkerId },
    Agent(Arc<str>),
}

impl From<HolderBody> for GrantHolder {
    fn from(holder: HolderBody) -> Self {
        match holder {
            HolderBody::Worker(worker) => Self::Worker(worker),
            HolderBody::Session { session, worker } => Self::Session { session, worker },
            HolderBody::Agent(agent) => Self::Agent(agent),
        }
    }
}

/// A grant that no question asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantRequest {
    pub(super) run: String,
    pattern: ScopePattern,
    reach: Option<Reach>,
    operations: Option<Operations>,
    pub(super) holder: HolderBody,
    pub(super) lifetime: Lifetime,
    #[serde(default)]
    pub(super) descendants: bool,
    /// Allows an agent that does not exist yet as the holder.
    #[serde(default)]
    pub(super) future_agent: bool,
}

impl GrantRequest {
    /// The coverage to grant: the whole pattern unless `reach` or `operations` restrict it.
    pub(super) fn coverage(&self) -> Result<Coverage, ApiError> {
        let pattern = self.pattern.clone();
        let covered = match (self.reach, self.operations) {
            (None, None) => Some(pattern.into()),
            (Some(reach), Some(operations)) => Coverage::new(pattern, reach, operations),
            (Some(_), None) | (None, Some(_)) => None,
        };
        covered.ok_or_else(|| ApiError::from(AuthorityError::DoesNotFit))
    }
}

/// A template and the directories that its rules are for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplatePreview {
    pub(super) run: String,
    pub(super) template: String,
    pub(super) roots: Vec<VirtualPath>,
}

/// A template to apply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateRequest {
    pub(super) run: String,
    pub(super) template: String,
    pub(super) roots: Vec<VirtualPath>,
    pub(super) holder: HolderBody,
    pub(super) lifetime: Lifetime,
    /// Allows an agent that does not exist yet as the holder.
    #[serde(default)]
    pub(super) future_agent: bool,
}

/// The agent and session to suggest a rule for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuggestionQuery {
    pub(super) run: String,
    pub(super) agent: Arc<str>,
    pub(super) session: Arc<str>,
    /// `RUN-NUMBER`.
    pub(super) worker: String,
}

/// A denial for the rest of a session to revoke, so that its calls are asked about again.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskAgainRequest {
    pub(super) run: String,
    pub(super) refusal: SilencedId,
}

/// Filter and offset of a history page.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Name of the runtime; the first one with an audit log by default.
    pub(super) source: Option<String>,
    agent: Option<Arc<str>>,
    tool: Option<ToolName>,
    decision: Option<Decision>,
    session: Option<Arc<str>>,
    server: Option<Arc<str>>,
    since: Option<u64>,
    until: Option<u64>,
    /// Restricts the history to one run.
    pub(super) run: Option<u64>,
    /// Number of the newest entries to skip.
    pub(super) skip: usize,
    /// Reads the whole audit log again.
    pub(super) anew: bool,
}

impl HistoryQuery {
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
        let read = parse::<T>(text.as_bytes());
        assert_eq!(read.is_ok(), fits, "{text}: {:?}", read.err());
    }

    #[test]
    fn unknown_and_duplicate_members_are_rejected() {
        let with_answer =
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
            (
                r#"{"allow":{"lifetime":"once","left_out":[{"path":"/r/a"},{"path":"/r/b","hunks":[0]}]}}"#,
                true,
            ),
            (r#"{"deny":{}}"#, true),
            (r#"{"deny":{"note":"no","rest_of_session":true}}"#, true),
            (r#"{"deny":{"why":"no"}}"#, false),
            (r#"{"maybe":{}}"#, false),
            (r#"{"allow":{"lifetime":"once"},"deny":{}}"#, false),
        ] {
            check::<AnswerRequest>(&with_answer(answer), fits);
        }
        check::<AnswerRequest>(
            r#"{"question":"a-1","session":"s","answer":{"deny":{}},"more":1}"#,
            false,
        );
        check::<HistoryQuery>(r#"{"agent":"main"}"#, true);
        check::<HistoryQuery>(r#"{"agnet":"main"}"#, false);
        check::<NarrowRequest>(r#"{"grant":"a-1","uses":1}"#, true);
        check::<NarrowRequest>(r#"{"grant":"a-1","use":1}"#, false);
    }

    #[test]
    fn revoking_all_grants_must_be_explicit() {
        let filter = |text: &str| parse::<RevokeQuery>(text.as_bytes()).unwrap().into_filter();
        assert_eq!(filter("{}").unwrap_err().code, "NOTHING_NAMED");
        assert_eq!(filter(r#"{"all":true}"#).unwrap(), GrantFilter::default());
        assert!(filter(r#"{"verb":"write"}"#).unwrap().verb.is_some());
        let both = filter(r#"{"all":true,"verb":"write"}"#);
        assert_eq!(both.unwrap_err().code, "NOTHING_NAMED");
    }

    #[test]
    fn note_length_is_limited() {
        let note = |length| AnswerBody::Deny {
            note: Some("n".repeat(length)),
            rest_of_session: false,
        };
        assert!(note(MAX_NOTE).into_answer().is_ok());
        assert_eq!(
            note(MAX_NOTE + 1).into_answer().unwrap_err().code,
            "TOO_LONG"
        );
    }

    #[test]
    fn only_valid_handles_are_parsed() {
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
