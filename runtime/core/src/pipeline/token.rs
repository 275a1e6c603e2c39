//! Preview tokens: each identifies one call and its plan.
//!
//! The first half identifies the call and the second the plan, so that a token of another call is distinguished from one
//! whose files changed. Both are keyed hashes: only runtimes with the key can create one.

use super::CallInfo;
use crate::effect::ContentHash;
use crate::effect::PreviewToken;
use crate::error::CallError;
use crate::error::Code;
use crate::json::Canonical;
use crate::tool::AnyPlan;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// Number of bytes of a token that identify the call.
const OF_CALL: usize = 16;

/// Secret key of preview tokens.
#[derive(Clone, Copy)]
pub(crate) struct PreviewKey([u8; 32]);

impl fmt::Debug for PreviewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreviewKey(..)")
    }
}

impl From<[u8; 32]> for PreviewKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl PreviewKey {
    /// Returns the key, or a random one if it is `None`.
    ///
    /// # Errors
    /// The operating system's error if it has no random bytes.
    pub(crate) fn or_random(key: Option<Self>) -> Result<Self, getrandom::Error> {
        if let Some(key) = key {
            return Ok(key);
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Keyed hash of the joined `parts`, applied twice to prevent length extension.
    fn hash(&self, parts: &[&[u8]]) -> ContentHash {
        let keyed = |parts: &[&[u8]]| {
            let mut hasher = Sha256::new_with_prefix(self.0);
            parts.iter().for_each(|part| hasher.update(part));
            hasher.finalize()
        };
        ContentHash::from_bytes(keyed(&[&keyed(parts)]).into())
    }
}

/// Returns the token of a plan: the same worker, tool, arguments and state give the same token.
pub(crate) fn token_of(info: &CallInfo, plan: &AnyPlan) -> Result<PreviewToken, CallError> {
    let state = if plan.resources.is_empty() {
        serde_json::to_vec(&plan.changes)
    } else {
        serde_json::to_vec(&(&plan.changes, &plan.resources))
    };
    let state = state.map_err(|error| {
        let message = format!("cannot write the plan as JSON: {error}");
        CallError::new(Code::Internal, message)
    })?;
    Ok(token(info, &state))
}

/// Returns the token of a server's preview: the same worker, tool, arguments and server token give the same token.
#[must_use]
pub(crate) fn remote_token(info: &CallInfo, shown: &str) -> PreviewToken {
    token(info, shown.as_bytes())
}

fn token(info: &CallInfo, state: &[u8]) -> PreviewToken {
    let (tool, arguments) = (Value::from(info.tool.as_str()), Canonical(&info.arguments));
    let call = format!("[{},{tool},{arguments}]", info.worker.0);
    joined(info.preview_key, &call, state)
}

/// The token of the call that `call` describes, in a state.
fn joined(key: PreviewKey, call: &str, state: &[u8]) -> PreviewToken {
    let of_call = key.hash(&[call.as_bytes()]);
    // Nothing needs to separate the two, since all hashes have the same length.
    let of_plan = key.hash(&[of_call.as_bytes(), state]);
    let mut bytes = *of_call.as_bytes();
    for (byte, of_plan) in bytes.iter_mut().zip(of_plan.as_bytes()).skip(OF_CALL) {
        *byte = *of_plan;
    }
    PreviewToken(ContentHash::from_bytes(bytes))
}

/// Whether two tokens belong to the same call.
pub(crate) fn of_one_call(one: PreviewToken, other: PreviewToken) -> bool {
    one.0.as_bytes().get(..OF_CALL) == other.0.as_bytes().get(..OF_CALL)
}

/// Whether `token` belongs to the call `info`, whatever its plan.
pub(super) fn is_of_call(token: PreviewToken, info: &CallInfo) -> bool {
    of_one_call(token, self::token(info, &[]))
}

/// Returns the hash of arguments in the audit: the hash of their canonical JSON.
#[must_use]
pub(crate) fn arguments_hash(arguments: &Value) -> ContentHash {
    ContentHash::of(Canonical(arguments).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_a_token_depend_on_the_call_and_the_second_on_the_state() {
        let of = |call: &str, state: &str| joined([7; 32].into(), call, state.as_bytes());
        let halves = |token: PreviewToken| {
            let (call, plan) = token.0.as_bytes().split_at(OF_CALL);
            (call.to_vec(), plan.to_vec())
        };
        let (a, b) = (halves(of("a", "x")), halves(of("b", "x")));
        assert!(a.0 != b.0 && a.1 != b.1);
        let changed = halves(of("a", "y"));
        assert!(a.0 == changed.0 && a.1 != changed.1);
        assert_eq!(of("a", "x"), of("a", "x"));
        assert!(of_one_call(of("a", "x"), of("a", "y")));
        assert!(!of_one_call(of("a", "x"), of("b", "x")));
        let other_key = halves(joined([8; 32].into(), "a", b"x"));
        assert!(a.0 != other_key.0 && a.1 != other_key.1);
    }
}
