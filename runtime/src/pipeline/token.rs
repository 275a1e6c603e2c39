//! A call and its plan in, the token that stands for both out.

use serde_json::Value;

use super::Facts;
use crate::effect::{ContentHash, PreviewToken};
use crate::error::{CallError, Code};
use crate::tool::AnyPlan;

/// The same worker, tool, arguments and present state give the same token.
pub(crate) fn token_of(facts: &Facts, plan: &AnyPlan) -> Result<PreviewToken, CallError> {
    let whole = serde_json::to_vec(&(
        facts.worker.0,
        facts.tool.as_str(),
        canonical(&facts.arguments),
        &plan.changes,
    ));
    let whole = whole
        .map_err(|error| CallError::new(Code::Internal, format!("the plan is no JSON: {error}")))?;
    Ok(PreviewToken(ContentHash::of(&whole)))
}

/// The same worker, tool, arguments and word of the server give the same token.
pub(crate) fn remote_token(facts: &Facts, shown: &str) -> PreviewToken {
    let arguments = canonical(&facts.arguments);
    let whole = serde_json::json!([facts.worker.0, facts.tool.as_str(), arguments, shown]);
    PreviewToken(ContentHash::of(whole.to_string().as_bytes()))
}

/// The hash of arguments in the audit: of JSON without spaces whose keys are sorted.
pub(crate) fn arguments_hash(arguments: &Value) -> ContentHash {
    ContentHash::of(canonical(arguments).to_string().as_bytes())
}

/// `value` with the keys of every object in order, so that equal arguments are equal bytes.
pub(crate) fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map
                .iter()
                .map(|(key, value)| (key.clone(), canonical(value)))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
