//! Parses audit records for the permission history.

use std::sync::Arc;

use serde::de::value;
use serde::{Deserialize, Deserializer, de::IntoDeserializer as _};

use super::chain::FORMAT;
use super::verify::BreakReason;
use super::{AnsweredStep, GrantedStep, NarrowedStep, SignedInStep};
use crate::call::Origin;
use crate::effect::Op;
use crate::error::Code;
use crate::id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
use crate::permission::{DecidedBy, RevokeCause};
use crate::policy::Verdict;
use crate::scope::{Scope, ScopePattern};

/// A parsed record.
#[derive(Debug, Deserialize)]
pub(crate) struct PastRecord {
    /// Its format version; absent in records of the first version.
    #[serde(default)]
    format: u16,
    /// When it was written, in milliseconds since 1970.
    #[serde(alias = "at")]
    pub(crate) at_ms: u64,
    pub(crate) event: PastEvent,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PastEvent {
    pub(crate) worker: Option<WorkerId>,
    pub(crate) agent: Arc<str>,
    pub(crate) call: Option<CallId>,
    pub(crate) tool: Option<ToolName>,
    pub(crate) origin: Option<Origin>,
    #[serde(flatten)]
    pub(crate) step: PastStep,
}

/// The steps that concern permissions. A record of one of these with missing members is invalid; other steps, also of
/// later versions, are ignored.
#[derive(Debug, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum PastStep {
    Spawned {
        session: Option<Arc<str>>,
    },
    Judged {
        verdict: Verdict,
        needs: Vec<Scope>,
        rule: Option<Arc<str>>,
    },
    #[serde(alias = "redeemed")]
    GrantUsed {
        grants: Vec<GrantId>,
        #[serde(default)]
        brought: Vec<ScopePattern>,
    },
    IgnoredGrants {
        #[serde(default)]
        brought: Vec<ScopePattern>,
    },
    Asked {
        question: QuestionId,
        needs: Vec<Scope>,
    },
    Answered(AnsweredStep),
    Planned {
        changes: Vec<PastChange>,
    },
    Granted(GrantedStep),
    /// A grant of an earlier run was restored.
    #[serde(alias = "restored")]
    GrantRestored(GrantedStep),
    GrantNarrowed(NarrowedStep),
    GrantRevoked {
        grant: GrantId,
        cause: Option<RevokeCause>,
    },
    SignedIn(SignedInStep),
    RemoteCall {
        #[serde(default)]
        preview: bool,
    },
    Applying,
    Applied,
    /// The first version uses this for failures, too.
    #[serde(alias = "refused")]
    Denied(PastFailure),
    Failed(PastFailure),
    Finished {
        #[serde(default, deserialize_with = "known_code")]
        code: Option<Code>,
    },
    #[serde(other)]
    Other,
}

/// Why a call has no result.
#[derive(Debug, Deserialize)]
pub(crate) struct PastFailure {
    #[serde(deserialize_with = "known_code")]
    pub(crate) code: Option<Code>,
    pub(crate) message: Option<Box<str>>,
    pub(crate) by: Option<DecidedBy>,
    #[serde(default)]
    pub(crate) begun: bool,
    pub(crate) done: Option<u64>,
    pub(crate) removed: Option<u64>,
}

/// Parses a code; `None` for one of a later version.
fn known_code<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Code>, D::Error> {
    let text = String::deserialize(from)?;
    let code: Result<Code, value::Error> = Code::deserialize(text.into_deserializer());
    Ok(code.ok())
}

/// The change of one path.
#[derive(Debug, Deserialize)]
pub(crate) struct PastChange {
    pub(crate) op: Op,
}

/// Parses a line whose position in the chain was checked.
pub(crate) fn past(line: &[u8]) -> Result<PastRecord, BreakReason> {
    let past: PastRecord = serde_json::from_slice(line).map_err(BreakReason::NotARecord)?;
    if past.format > FORMAT {
        return Err(BreakReason::NewerFormat { found: past.format });
    }
    Ok(past)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_format_is_rejected_and_the_first_is_read() {
        let event = r#""event":{"agent":"main","step":"redeemed","grants":[1]}}"#;
        let first = past(format!(r#"{{"seq":0,"at":7,{event}"#).as_bytes()).unwrap();
        assert_eq!(first.at_ms, 7);
        assert!(matches!(first.event.step, PastStep::GrantUsed { .. }));
        let later = past(format!(r#"{{"format":3,"at_ms":7,{event}"#).as_bytes());
        assert!(matches!(
            later.unwrap_err(),
            BreakReason::NewerFormat { found: 3 }
        ));
    }

    fn read(event: &str) -> Result<PastStep, BreakReason> {
        let line = format!(r#"{{"seq":0,"at":1,"event":{{"agent":"main",{event}}}}}"#);
        past(line.as_bytes()).map(|past| past.event.step)
    }

    #[test]
    fn unknown_steps_are_ignored_and_known_ones_must_be_complete() {
        for event in [
            r#""step":"sang","words":["la"]"#,
            r#""step":"artifacts","uris":7"#,
        ] {
            assert!(matches!(read(event), Ok(PastStep::Other)), "{event}");
        }
        assert!(matches!(
            read(r#""step":"asked","question":1,"needs":["read:file:/r/x"],"mood":"calm""#),
            Ok(PastStep::Asked { .. })
        ));
        assert!(matches!(
            read(r#""step":"applied","token":7"#),
            Ok(PastStep::Applied)
        ));
        // A code of a later version is left out.
        for (code, known) in [("BUDGET", true), ("SUNSPOTS", false)] {
            let event = format!(r#""step":"denied","code":"{code}","message":"m","by":"rule""#);
            let Ok(PastStep::Denied(failure)) = read(&event) else {
                panic!("{event}");
            };
            assert_eq!(failure.code.is_some(), known, "{event}");
        }
        // Lists that are empty are not written.
        assert!(matches!(
            read(r#""step":"answered","question":1,"decision":"granted""#),
            Ok(PastStep::Answered(_))
        ));
        for event in [
            r#""question":1"#,
            r#""step":"asked","question":1"#,
            r#""step":"asked","question":1,"needs":["fly:file:/r"]"#,
            r#""step":"answered","question":1,"decision":"perhaps""#,
            r#""step":"granted","grant":1,"pattern":"read""#,
        ] {
            assert!(
                matches!(read(event), Err(BreakReason::NotARecord(_))),
                "{event}"
            );
        }
    }
}
