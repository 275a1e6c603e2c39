//! What a server says of itself in, whether it holds together out; nothing is asked of it.

use std::collections::HashSet;

use serde_json::Value;

use super::{Check, Outcome};
use crate::app::facts::{Facts, ToolFacts, told};

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    vec![
        names(&facts.tools),
        schemas(&facts.tools),
        intents(&facts.tools),
        annotations(&facts.tools),
        configuration(facts.config_schema.as_ref()),
        dashdash(facts),
    ]
}

fn counted(tools: &[ToolFacts]) -> String {
    format!("{} tools", tools.len())
}

fn names(tools: &[ToolFacts]) -> Check {
    let mut seen = HashSet::new();
    let mut faults = Vec::new();
    for tool in tools {
        let name = &tool.name;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if name.is_empty() || name.len() > 128 || !name.chars().all(allowed) {
            faults.push(format!("`{name}` is no name of a tool"));
        }
        if !seen.insert(name) {
            faults.push(format!("`{name}` is there twice"));
        }
    }
    Check::found("tools.names", Outcome::Fail, &faults, &counted(tools))
}

fn schemas(tools: &[ToolFacts]) -> Check {
    let mut faults = Vec::new();
    for tool in tools {
        let name = &tool.name;
        for key in ["inputSchema", "outputSchema"] {
            let Some(schema) = tool.tool.get(key) else {
                continue;
            };
            if let Err(error) = compiled(schema) {
                faults.push(format!("{name}: {key} is no schema: {error}"));
            } else if schema.get("type").and_then(Value::as_str) != Some("object") {
                faults.push(format!("{name}: {key} is not of type object"));
            }
        }
        if tool.tool.get("inputSchema").is_none() {
            faults.push(format!("{name}: there is no inputSchema"));
        }
    }
    Check::found("tools.schemas", Outcome::Fail, &faults, &counted(tools))
}

/// A validator for a schema; nothing is fetched for it.
pub(super) fn compiled(schema: &Value) -> Result<jsonschema::Validator, String> {
    jsonschema::validator_for(schema).map_err(|error| error.to_string())
}

fn intents(tools: &[ToolFacts]) -> Check {
    let templates = tools.iter().filter(|tool| tool.intent.is_some()).count();
    if templates == 0 {
        return Check::new("tools.intents", Outcome::Skip, "there are no templates");
    }
    let mut faults = Vec::new();
    for tool in tools {
        let name = &tool.name;
        faults.extend(tool.lints.iter().map(|lint| format!("{name}: {lint}")));
    }
    let passed = format!("{templates} templates");
    Check::found("tools.intents", Outcome::Fail, &faults, &passed)
}

fn annotations(tools: &[ToolFacts]) -> Check {
    let mut faults = Vec::new();
    for tool in tools {
        let name = &tool.name;
        let destructive = tool.tool.pointer("/annotations/destructiveHint");
        if tool.read_only && destructive == Some(&Value::Bool(true)) {
            faults.push(format!("{name} is read-only and destructive"));
        }
        let scopes = told(&tool.tool, "scopes").and_then(Value::as_array);
        let writes = scopes.into_iter().flatten().filter_map(Value::as_str);
        if tool.read_only && writes.clone().any(|scope| scope.starts_with("write")) {
            faults.push(format!("{name} is read-only and has a scope to write"));
        }
        let operation = told(&tool.tool, "dashdash").and_then(|said| said.get("operationType"));
        let reads = operation.and_then(Value::as_str).map(|kind| kind == "read");
        if reads.is_some_and(|reads| reads != tool.read_only) {
            faults.push(format!(
                "{name}: dashdash and readOnlyHint contradict each other"
            ));
        }
        for schema in ["inputSchema", "outputSchema"] {
            let properties = tool.tool.pointer(&format!("/{schema}/properties"));
            let properties = properties.and_then(Value::as_object);
            let required = tool.tool.pointer(&format!("/{schema}/required"));
            let required = required.and_then(Value::as_array).into_iter().flatten();
            for key in required.filter_map(Value::as_str) {
                if !properties.is_some_and(|known| known.contains_key(key)) {
                    faults.push(format!("{name}: {schema} requires `{key}` and has no such"));
                }
            }
        }
    }
    Check::found("tools.annotations", Outcome::Fail, &faults, &counted(tools))
}

fn configuration(schema: Option<&Value>) -> Check {
    const CHECK: &str = "configuration.schema";
    let Some(schema) = schema else {
        return Check::new(CHECK, Outcome::Skip, "nothing can be configured");
    };
    if let Err(error) = compiled(schema) {
        return Check::fail(CHECK, error);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let mut faults = Vec::new();
    let mut fields = 0;
    for (key, field) in properties {
        fields += 1;
        for (word, known) in [
            ("scope", ["configuration", "policy", "any"]),
            ("audience", ["human", "llm", "any"]),
        ] {
            let said = field.get(word).map(|said| said.as_str().unwrap_or("?"));
            if said.is_some_and(|said| !known.contains(&said)) {
                faults.push(format!("`{key}` has an unknown {word}"));
            }
        }
        if field.get("description").is_none() {
            faults.push(format!("`{key}` has no description"));
        }
    }
    let passed = format!("{fields} fields");
    Check::found(CHECK, Outcome::Fail, &faults, &passed)
}

fn dashdash(facts: &Facts) -> Check {
    const CHECK: &str = "dashdash";
    let Some(said) = told(&facts.greeting, "dashdash") else {
        return Check::new(CHECK, Outcome::Skip, "the server does not say it");
    };
    let mut faults = Vec::new();
    for pointer in [
        "/specVersion",
        "/identity/name",
        "/identity/description",
        "/accessLevel",
        "/alternativeAccess",
    ] {
        if said.pointer(pointer).is_none() {
            faults.push(format!("`{pointer}` is missing"));
        }
    }
    let level = said.get("accessLevel").and_then(Value::as_str);
    if level.is_some_and(|level| !["read", "interact", "full"].contains(&level)) {
        faults.push("`accessLevel` is unknown".to_owned());
    }
    Check::found(CHECK, Outcome::Fail, &faults, "it has what is required")
}
