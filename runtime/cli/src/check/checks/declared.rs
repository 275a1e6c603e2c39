//! Checks of the server's lists and capabilities, without further requests.

use std::collections::HashSet;

use bailiwick_mcp::upstream::{SchemaFault, SchemaValidator};
use serde_json::Value;

use super::counted;
use crate::check::report::{Check, joined};
use crate::check::server::{ListedTool, ServerInfo, member};

/// The maximum length of a tool name.
const MAX_NAME: usize = 128;

pub(super) async fn all(info: &ServerInfo) -> Vec<Check> {
    vec![
        names(&info.tools),
        schemas(&info.tools).await,
        intents(&info.tools),
        annotations(&info.tools),
        configuration(info.config_schema.as_ref()).await,
        dashdash(info),
    ]
}

fn names(tools: &[ListedTool]) -> Check {
    let mut seen = HashSet::new();
    let mut faults = Vec::new();
    for tool in tools {
        let name = &tool.name;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
            faults.push(format!("`{name}` is not a valid name"));
        }
        if !seen.insert(name) {
            faults.push(format!("`{name}` is listed twice"));
        }
    }
    Check::of_faults("tools.names", &faults, &counted(tools.len(), "tool"))
}

async fn schemas(tools: &[ListedTool]) -> Check {
    const CHECK: &str = "tools.schemas";
    let (mut faults, mut unchecked) = (Vec::new(), Vec::new());
    for tool in tools {
        let name = &tool.name;
        for key in ["inputSchema", "outputSchema"] {
            let Some(schema) = tool.tool.get(key) else {
                continue;
            };
            match SchemaValidator::new(schema.clone()).await {
                Err(error) if error.fault == SchemaFault::Invalid => {
                    let detail = error.detail.unwrap_or_else(|| error.fault.to_string());
                    faults.push(format!(
                        "{name}: {key} is not a valid JSON Schema: {detail}"
                    ));
                }
                Err(error) => unchecked.push(format!("{name}: {key} is not checked: {error}")),
                Ok(_) if schema.get("type").and_then(Value::as_str) != Some("object") => {
                    faults.push(format!("{name}: {key} is not of type object"));
                }
                Ok(_) => {}
            }
        }
        if tool.tool.get("inputSchema").is_none() {
            faults.push(format!("{name}: inputSchema is missing"));
        }
    }
    Check::of_findings(CHECK, &faults, &unchecked, &counted(tools.len(), "tool"))
}

fn intents(tools: &[ListedTool]) -> Check {
    const CHECK: &str = "tools.intents";
    let templates = tools.iter().filter(|tool| tool.intent.is_some()).count();
    if templates == 0 {
        return Check::skip(CHECK, "no tool has an intent template");
    }
    let faults = tools.iter().flat_map(|tool| {
        let lints = tool.lints.iter();
        lints.map(|lint| format!("{}: {lint}", tool.name))
    });
    let faults: Vec<String> = faults.collect();
    Check::of_faults(CHECK, &faults, &counted(templates, "template"))
}

fn annotations(tools: &[ListedTool]) -> Check {
    const CHECK: &str = "tools.annotations";
    let (mut faults, mut warnings) = (Vec::new(), Vec::new());
    for tool in tools {
        let name = &tool.name;
        let destructive = tool.tool.pointer("/annotations/destructiveHint");
        if tool.read_only && destructive == Some(&Value::Bool(true)) {
            faults.push(format!("{name} is read-only and destructive"));
        }
        let scopes = member(&tool.tool, "scopes").and_then(Value::as_array);
        let mut scopes = scopes.into_iter().flatten().filter_map(Value::as_str);
        if tool.read_only && scopes.any(|scope| scope.starts_with("write")) {
            faults.push(format!("{name} is read-only and has a scope to write"));
        }
        let operation = member(&tool.tool, "dashdash");
        let operation = operation.and_then(|dashdash| dashdash.get("operationType")?.as_str());
        if operation.is_some_and(|operation| (operation == "read") != tool.read_only) {
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
                    warnings.push(format!(
                        "{name}: {schema} requires `{key}` and does not describe it"
                    ));
                }
            }
        }
    }
    Check::of_findings(CHECK, &faults, &warnings, &counted(tools.len(), "tool"))
}

async fn configuration(schema: Option<&Value>) -> Check {
    const CHECK: &str = "configuration.schema";
    let Some(schema) = schema else {
        return Check::skip(CHECK, "the server has no configuration");
    };
    match SchemaValidator::new(schema.clone()).await {
        Ok(_) => {}
        Err(error) if error.fault == SchemaFault::Invalid => {
            return Check::fail(CHECK, &joined(&[error.to_string()], 1));
        }
        Err(error) => return Check::warn(CHECK, &format!("not checked: {error}")),
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut faults = Vec::new();
    for (key, field) in properties.into_iter().flatten() {
        for (word, known) in [
            ("scope", ["configuration", "policy", "any"]),
            ("audience", ["human", "llm", "any"]),
        ] {
            let value = field.get(word).map(|value| value.as_str().unwrap_or("?"));
            if value.is_some_and(|value| !known.contains(&value)) {
                faults.push(format!("`{key}` has an unknown {word}"));
            }
        }
        if field.get("description").is_none() {
            faults.push(format!("`{key}` has no description"));
        }
    }
    let fields = properties.map_or(0, serde_json::Map::len);
    Check::of_faults(CHECK, &faults, &counted(fields, "field"))
}

fn dashdash(info: &ServerInfo) -> Check {
    const CHECK: &str = "dashdash";
    let Some(dashdash) = member(&info.greeting, "dashdash") else {
        return Check::skip(CHECK, "the server has none");
    };
    let mut faults = Vec::new();
    for pointer in [
        "/specVersion",
        "/identity/name",
        "/identity/description",
        "/accessLevel",
        "/alternativeAccess",
    ] {
        if dashdash.pointer(pointer).is_none() {
            faults.push(format!("`{pointer}` is missing"));
        }
    }
    let level = dashdash.get("accessLevel").and_then(Value::as_str);
    if level.is_some_and(|level| !["read", "interact", "full"].contains(&level)) {
        faults.push("`accessLevel` is unknown".to_owned());
    }
    Check::of_faults(CHECK, &faults, "it has what is required")
}
