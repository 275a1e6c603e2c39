//! The `dashdash` object of a server or a tool, and the entry of a server for registries.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Description;
use crate::json::members;
use crate::policy::Access;
use crate::tool::{Example, Failure, Reverse, ToolInfo};

/// The version of the dashdash proposal that is followed.
const SPEC_VERSION: &str = "0.2.0";
const SPEC_URL: &str = "https://github.com/visionik/dashdash";
/// Maximum length of a name in Agent Skills and dashdash.
const MAX_OF_NAME: usize = 64;
/// Maximum length of a description in Agent Skills, in characters.
const MAX_OF_DESCRIPTION: usize = 1024;

/// The server's name in `[a-z0-9-]{1,64}`.
pub(super) fn name(described: &Description) -> String {
    let plain = described.name.chars().map(|c| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            c
        } else {
            '-'
        }
    });
    let plain: String = plain.collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(MAX_OF_NAME).collect();
    match name.trim_end_matches('-') {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

/// What the server does and when to use it.
pub(super) fn description(described: &Description) -> String {
    let when = described.doc.when;
    let asks = match when {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{}, or {last}", first.join(", ")),
    };
    let text = format!(
        "{} Use when the user asks to {asks}.",
        described.doc.summary
    );
    if text.chars().count() <= MAX_OF_DESCRIPTION {
        return text;
    }
    let cut: String = text.chars().take(MAX_OF_DESCRIPTION - 1).collect();
    format!("{cut}\u{2026}")
}

/// The access level of the tools under the configuration.
fn access(described: &Description) -> Access {
    if described.tools.iter().any(|tool| tool.mutates) {
        described.access
    } else {
        Access::Read
    }
}

pub(super) fn scopes(tools: &[ToolInfo]) -> BTreeSet<&str> {
    let scopes = tools.iter().flat_map(|tool| &tool.spec.scopes);
    scopes.map(|scope| &**scope).collect()
}

pub(super) fn install(described: &Description) -> Value {
    let packages = described.doc.install.iter();
    let packages: Map<String, Value> = packages
        .map(|install| (install.by.to_owned(), install.package.into()))
        .collect();
    Value::Object(packages)
}

pub(super) fn alternatives(described: &Description) -> Value {
    let alternatives = described.doc.alternatives;
    json!({"cliUrl": alternatives.cli, "apiUrl": alternatives.api, "webUrl": alternatives.web})
}

/// Flat metadata of a server for the front matter and the JSON help.
pub(super) fn metadata(described: &Description) -> Map<String, Value> {
    let doc = &described.doc;
    let names = described.tools.iter().map(|tool| &*tool.spec.name);
    let mut facts = members(json!({
        "name": name(described),
        "description": description(described),
        "specUrl": SPEC_URL,
        "specVersion": SPEC_VERSION,
        "accessLevel": access(described),
        "cliUrl": doc.alternatives.cli,
        "apiUrl": doc.alternatives.api,
        "webUrl": doc.alternatives.web,
        "install": install(described),
        "requires": {"auth": [], "env": doc.environment, "scopes": scopes(&described.tools)},
        "invocation": {
            "modelInvocable": true, "userInvocable": true, "allowedTools": names.collect::<Vec<_>>(),
        },
    }));
    let known = members(json!({
        "rateLimit": described.rate,
        "homepage": doc.homepage,
        "repository": doc.repository,
        "contentVersion": doc.content_version,
        "lastUpdated": doc.last_updated,
    }));
    facts.extend(known.into_iter().filter(|(_, value)| !value.is_null()));
    facts
}

pub(super) fn server(described: &Description) -> Value {
    let mut facts = metadata(described);
    let mut take = |key: &str| facts.shift_remove(key).unwrap_or_default();
    let mut nested = members(json!({
        "specVersion": take("specVersion"),
        "identity": {"name": take("name"), "description": take("description")},
        "accessLevel": take("accessLevel"),
        "alternativeAccess": {"cliUrl": take("cliUrl"), "apiUrl": take("apiUrl"), "webUrl": take("webUrl")},
    }));
    take("specUrl");
    nested.extend(facts);
    Value::Object(nested)
}

/// The entry of a server for registries. It is marked as not verified, which only a registry can change.
pub(super) fn registry_entry(described: &Description) -> Value {
    let facts = metadata(described);
    json!({
        "name": facts.get("name"),
        "description": facts.get("description"),
        "version": described.version,
        "specVersion": facts.get("specVersion"),
        "install": install(described),
        "alternativeAccess": alternatives(described),
        "categories": described.doc.categories,
        "verified": false,
    })
}

/// `read`, `write` or `delete`.
pub(super) fn operation(tool: &ToolInfo) -> &'static str {
    match (tool.mutates, tool.spec.deletes) {
        (false, _) => "read",
        (true, false) => "write",
        (true, true) => "delete",
    }
}

/// The `dashdash` object of a tool; `offered` are the tools that it may refer to.
pub(super) fn tool(tool: &ToolInfo, offered: &[ToolInfo]) -> Value {
    let mut facts = facts(tool, offered);
    let mut fact = |key: &str, value: Value| facts.insert(key.to_owned(), value);
    fact("idempotentWithKey", false.into());
    fact(
        "examples",
        tool.spec.examples.iter().filter_map(example).collect(),
    );
    fact("errors", tool.spec.failures.iter().map(failure).collect());
    Value::Object(facts)
}

/// Like `tool`, for tool lists: without examples and errors, which are in `ai_help`.
#[doc(hidden)]
#[must_use]
pub fn listed(tool: &ToolInfo, offered: &[ToolInfo]) -> Value {
    let mut facts = facts(tool, offered);
    facts.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
    Value::Object(facts)
}

fn facts(tool: &ToolInfo, offered: &[ToolInfo]) -> Map<String, Value> {
    let spec = &tool.spec;
    let mut facts = Map::new();
    let mut fact = |key: &str, value: Value| facts.insert(key.to_owned(), value);
    if !spec.group.is_empty() {
        fact("category", spec.group.into());
    }
    fact("operationType", operation(tool).into());
    fact("idempotent", (spec.idempotent || !tool.mutates).into());
    fact("sideEffects", spec.side_effects.into());
    let reverse = reverse(tool, offered);
    fact("reversible", reverse.is_some().into());
    if let Some(reverse) = reverse {
        fact("reverseMethod", reverse.tool.into());
        fact("reverseHow", reverse.how.into());
        if !reverse.unless.is_empty() {
            fact("reversibleUnless", reverse.unless.into());
        }
    }
    if !spec.command_line.is_empty() {
        fact("cliEquivalent", spec.command_line.into());
    }
    facts
}

/// How a call of `tool` is undone, if the tool for that is offered.
pub(super) fn reverse(tool: &ToolInfo, offered: &[ToolInfo]) -> Option<Reverse> {
    let there = |name: &str| offered.iter().any(|tool| tool.spec.name == name);
    tool.spec.reverse.filter(|reverse| there(reverse.tool))
}

pub(super) fn example(example: &Example) -> Option<Value> {
    let input: Value = serde_json::from_str(example.input).ok()?;
    let output: Value = serde_json::from_str(example.output).ok()?;
    Some(json!({"description": example.description, "input": input, "output": output}))
}

pub(super) fn failure(failure: &Failure) -> Value {
    json!({
        "code": failure.code.as_str(), "description": failure.when, "resolution": failure.resolution,
    })
}

/// Returns the `dashdash` object of a resource. It forbids caching, since the resource may change at any time.
#[doc(hidden)]
#[must_use]
pub fn resource(kind: &str, refreshable: bool) -> Value {
    json!({"resourceType": kind, "refreshable": refreshable, "cacheDuration": 0})
}
