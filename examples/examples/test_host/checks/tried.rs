//! A connected server in, how it answers what is harmless or must be refused out.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::said::compiled;
use super::{Check, Outcome};
use crate::app::facts::{APP, ToolFacts, told};
use crate::app::session::Connected;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A name that no tool and no method has.
const NOBODY: &str = "bailiwick_test_host_no_such_name";
/// How many tools are previewed.
const MOST_PREVIEWS: usize = 20;

pub(super) async fn all(server: &Connected) -> Vec<Check> {
    vec![
        unknown_tool(server).await,
        unknown_method(server).await,
        harmless(server).await,
        previews(server).await,
        expansion(server).await,
        apps(server).await,
    ]
}

async fn ask(server: &Connected, method: &str, params: Value) -> Result<Value, String> {
    match timeout(PATIENCE, server.client.request(method, params)).await {
        Ok(answer) => answer.map_err(|failure| failure.to_string()),
        Err(_) => Err("there was no answer".to_owned()),
    }
}

async fn call(
    server: &Connected,
    tool: &str,
    arguments: Value,
    meta: Value,
) -> Result<Value, String> {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    ask(server, "tools/call", params).await
}

fn code(answer: &Value) -> Option<i64> {
    answer.pointer("/error/code").and_then(Value::as_i64)
}

fn is_error(answer: &Value) -> bool {
    answer.pointer("/result/isError") == Some(&Value::Bool(true))
}

async fn unknown_tool(server: &Connected) -> Check {
    const CHECK: &str = "tools.unknown";
    if server.facts.tools.is_empty() {
        return Check::new(CHECK, Outcome::Skip, "there are no tools");
    }
    match call(server, NOBODY, json!({}), json!({})).await {
        Err(reason) => Check::fail(CHECK, reason),
        Ok(answer) if code(&answer) == Some(-32602) => {
            Check::new(CHECK, Outcome::Pass, "refused with -32602")
        }
        Ok(answer) if code(&answer).is_some() || is_error(&answer) => {
            let detail = "refused, but not with the error -32602";
            Check::new(CHECK, Outcome::Warn, detail)
        }
        Ok(_) => Check::fail(CHECK, "a call of a tool that does not exist succeeds"),
    }
}

async fn unknown_method(server: &Connected) -> Check {
    const CHECK: &str = "methods.unknown";
    match ask(server, NOBODY, json!({})).await {
        Err(reason) => Check::fail(CHECK, reason),
        Ok(answer) if code(&answer) == Some(-32601) => {
            Check::new(CHECK, Outcome::Pass, "refused with -32601")
        }
        Ok(answer) => Check::fail(CHECK, format!("answered {}", short(&answer))),
    }
}

/// Calls a tool that says it only reads and needs no arguments.
async fn harmless(server: &Connected) -> Check {
    const CHECK: &str = "tools.result";
    let needs_nothing = |tool: &&ToolFacts| {
        let required = tool.tool.pointer("/inputSchema/required");
        tool.read_only && required.and_then(Value::as_array).is_none_or(Vec::is_empty)
    };
    let mut found: Vec<&ToolFacts> = server.facts.tools.iter().filter(needs_nothing).collect();
    // One that says what it answers tells more.
    found.sort_by_key(|tool| tool.tool.get("outputSchema").is_none());
    let Some(tool) = found.first() else {
        let detail = "no tool is read-only and needs no arguments";
        return Check::new(CHECK, Outcome::Skip, detail);
    };
    let answer = call(server, &tool.name, json!({}), json!({})).await;
    match answer {
        Err(reason) => Check::fail(CHECK, format!("{}: {reason}", tool.name)),
        Ok(answer) => match ill_formed(tool, &answer) {
            Some(fault) => Check::fail(CHECK, format!("{}: {fault}", tool.name)),
            None => Check::new(CHECK, Outcome::Pass, format!("{} answered", tool.name)),
        },
    }
}

/// How a result differs from the output schema of its tool.
fn ill_formed(tool: &ToolFacts, answer: &Value) -> Option<String> {
    if let Some(error) = answer.get("error") {
        return Some(format!("it failed with {}", short(error)));
    }
    let schema = tool.tool.get("outputSchema")?;
    if is_error(answer) {
        return None;
    }
    let Some(structured) = answer.pointer("/result/structuredContent") else {
        return Some("it has an output schema and no structured content".to_owned());
    };
    let validator = compiled(schema).ok()?;
    let fault = validator.validate(structured).err();
    fault.map(|fault| format!("the structured content is not as its schema says: {fault}"))
}

/// Arguments that the tool itself gives as an example, or the least that its schema wants.
fn arguments(tool: &ToolFacts) -> Value {
    let examples = told(&tool.tool, "dashdash").and_then(|said| said.get("examples"));
    let example = examples.and_then(|examples| examples.get(0)?.get("input"));
    if let Some(example) = example {
        return example.clone();
    }
    let schema = tool.tool.get("inputSchema").unwrap_or(&Value::Null);
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let mut arguments = Map::new();
    for key in required {
        let field = schema.get("properties").and_then(|all| all.get(key));
        arguments.insert(key.to_owned(), least(field.unwrap_or(&Value::Null)));
    }
    Value::Object(arguments)
}

fn least(schema: &Value) -> Value {
    if let Some(said) = schema.get("default").or_else(|| schema.get("const")) {
        return said.clone();
    }
    if let Some(first) = schema
        .pointer("/enum/0")
        .or_else(|| schema.pointer("/examples/0"))
    {
        return first.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!(NOBODY),
    }
}

/// Previews twice what says that it can be previewed: if the first had done anything, the second would differ.
async fn previews(server: &Connected) -> Check {
    const CHECK: &str = "preview";
    let able = server.facts.tools.iter().filter(|tool| tool.preview);
    let able: Vec<&ToolFacts> = able.take(MOST_PREVIEWS).collect();
    if able.is_empty() {
        return Check::new(CHECK, Outcome::Skip, "no tool says that it can");
    }
    let mut faults = Vec::new();
    let mut shown = 0;
    for tool in &able {
        let name = &tool.name;
        let arguments = arguments(tool);
        let once = call(server, name, arguments.clone(), json!({"preview": true})).await;
        let again = call(server, name, arguments, json!({"preview": true})).await;
        match (once, again) {
            (Ok(once), Ok(_)) if once.get("error").is_some() || is_error(&once) => {}
            (Ok(once), Ok(again)) => {
                shown += 1;
                if once.pointer("/result/_meta/preview") != Some(&Value::Bool(true)) {
                    faults.push(format!("{name} does not say that its answer is a preview"));
                }
                let said = |answer: &Value| answer.pointer("/result/structuredContent").cloned();
                if said(&once) != said(&again) {
                    faults.push(format!("{name} answers a second preview in another way"));
                }
            }
            (Err(reason), _) | (_, Err(reason)) => faults.push(format!("{name}: {reason}")),
        }
    }
    let passed = format!("{} tools, {shown} with arguments that fit", able.len());
    Check::found(CHECK, Outcome::Fail, &faults, &passed)
}

/// Tries to reach the whole machine by a policy, which may only take away.
async fn expansion(server: &Connected) -> Check {
    const CHECK: &str = "policy.expansion";
    let tools = &server.facts.tools;
    let Some(tool) = tools.iter().find(|tool| tool.read_only) else {
        return Check::new(CHECK, Outcome::Skip, "no tool is read-only");
    };
    if !server.facts.policy {
        return Check::new(CHECK, Outcome::Skip, "the server knows no policies");
    }
    let mut faults = Vec::new();
    for policy in [
        json!({"roots": [{"path": "/"}]}),
        json!({NOBODY: true}),
        json!("everything"),
    ] {
        let meta = json!({"policy": policy});
        match call(server, &tool.name, arguments(tool), meta).await {
            Err(reason) => faults.push(reason),
            Ok(answer) if code(&answer).is_some() => {}
            Ok(_) => faults.push(format!("{policy} is not refused by an error")),
        }
    }
    Check::found(CHECK, Outcome::Fail, &faults, "what would widen is refused")
}

/// Reads the pages that tools and resources name.
async fn apps(server: &Connected) -> Check {
    const CHECK: &str = "apps";
    let of_tools = server
        .facts
        .tools
        .iter()
        .filter_map(|tool| tool.ui.as_deref());
    let listed = server.facts.apps.iter();
    let listed = listed.filter_map(|app| app.get("uri")?.as_str());
    let mut uris: Vec<&str> = of_tools.chain(listed).collect();
    uris.sort_unstable();
    uris.dedup();
    if uris.is_empty() {
        return Check::new(CHECK, Outcome::Skip, "there are none");
    }
    let mut faults = Vec::new();
    let mut reaches = Vec::new();
    for uri in &uris {
        match page(server, uri).await {
            Err(fault) => faults.push(format!("{uri}: {fault}")),
            Ok(domains) if domains.is_empty() => {}
            Ok(domains) => reaches.push(format!("{uri} reaches {}", domains.join(", "))),
        }
    }
    if faults.is_empty() && !reaches.is_empty() {
        return Check::new(CHECK, Outcome::Warn, reaches.join("; "));
    }
    let passed = format!("{} pages, none reaches the network", uris.len());
    Check::found(CHECK, Outcome::Fail, &faults, &passed)
}

/// The domains that a page may reach, if it is a page.
async fn page(server: &Connected, uri: &str) -> Result<Vec<String>, String> {
    if !uri.starts_with("ui://") {
        return Err("its address does not begin with ui://".to_owned());
    }
    let answer = ask(server, "resources/read", json!({"uri": uri})).await?;
    let contents = answer.pointer("/result/contents/0");
    let contents = contents.ok_or_else(|| format!("it cannot be read: {}", short(&answer)))?;
    if contents.get("mimeType") != Some(&json!(APP)) {
        return Err(format!("its type is not {APP}"));
    }
    if contents
        .get("text")
        .or_else(|| contents.get("blob"))
        .is_none()
    {
        return Err("it has no content".to_owned());
    }
    let csp = contents.pointer("/_meta/ui/csp").and_then(Value::as_object);
    let domains = csp.into_iter().flat_map(|csp| csp.values());
    let domains = domains.filter_map(Value::as_array).flatten();
    Ok(domains
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect())
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
