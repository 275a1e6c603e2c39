//! Checks that send harmless or invalid requests.

use bailiwick_mcp::upstream::SchemaValidator;
use serde_json::{Map, Value, json};

use super::counted;
use crate::check::report::{Check, joined};
use crate::check::server::{APP, ListedTool, member};
use crate::check::session::{Connected, Deadline};

/// The name of a tool and method that do not exist.
const UNKNOWN: &str = "bailiwick_check_no_such_name";
/// The maximum number of tools to preview, and of views to read.
const MAX_PREVIEWS: usize = 20;
const MAX_VIEWS: usize = 20;

/// A server that is checked until a deadline.
#[derive(Clone, Copy)]
struct Server<'s> {
    connected: &'s Connected,
    deadline: Deadline,
}

pub(super) async fn all(connected: &Connected, deadline: Deadline) -> Vec<Check> {
    let server = Server {
        connected,
        deadline,
    };
    vec![
        server.unknown_tool().await,
        server.unknown_method().await,
        server.result().await,
        server.previews().await,
        server.expansion().await,
        server.views().await,
    ]
}

fn code(response: &Value) -> Option<i64> {
    response.pointer("/error/code").and_then(Value::as_i64)
}

fn is_error(response: &Value) -> bool {
    response.pointer("/result/isError") == Some(&Value::Bool(true))
}

impl Server<'_> {
    fn tools(&self) -> &[ListedTool] {
        &self.connected.info.tools
    }

    /// Sends a request and waits for its response, which may be an error.
    async fn request(&self, method: &str, params: Value) -> Result<Value, String> {
        let Value::Object(params) = params else {
            return Err("params must be an object".to_owned());
        };
        let response = self.connected.request(method, params);
        let response = self.deadline.bound(method, response).await;
        response.map_err(|error| error.to_string())
    }

    async fn call(&self, tool: &str, arguments: Value, meta: Value) -> Result<Value, String> {
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.request("tools/call", params).await
    }

    async fn unknown_tool(&self) -> Check {
        const CHECK: &str = "tools.unknown";
        if self.tools().is_empty() {
            return Check::skip(CHECK, "the server has no tools");
        }
        match self.call(UNKNOWN, json!({}), json!({})).await {
            Err(reason) => Check::fail(CHECK, &reason),
            Ok(response) if code(&response) == Some(-32602) => {
                Check::pass(CHECK, "refused with -32602")
            }
            Ok(response) if code(&response).is_some() || is_error(&response) => {
                Check::warn(CHECK, "refused, but not with the error -32602")
            }
            Ok(_) => Check::fail(CHECK, "a call of a tool that does not exist succeeds"),
        }
    }

    async fn unknown_method(&self) -> Check {
        const CHECK: &str = "methods.unknown";
        match self.request(UNKNOWN, json!({})).await {
            Err(reason) => Check::fail(CHECK, &reason),
            Ok(response) if code(&response) == Some(-32601) => {
                Check::pass(CHECK, "refused with -32601")
            }
            Ok(response) => {
                let detail = format!("answered {response}, not with the error -32601");
                Check::fail(CHECK, &joined(&[detail], 1))
            }
        }
    }

    /// Calls a read-only tool that needs no arguments.
    async fn result(&self) -> Check {
        const CHECK: &str = "tools.result";
        let needs_no_arguments = |tool: &&ListedTool| {
            let required = tool.tool.pointer("/inputSchema/required");
            tool.read_only && required.and_then(Value::as_array).is_none_or(Vec::is_empty)
        };
        let found = self.tools().iter().filter(needs_no_arguments);
        // Prefers tools with an output schema.
        let Some(tool) = found.min_by_key(|tool| tool.tool.get("outputSchema").is_none()) else {
            return Check::skip(CHECK, "no tool is read-only and needs no arguments");
        };
        let fault = match self.call(&tool.name, json!({}), json!({})).await {
            Err(reason) => Some(reason),
            Ok(response) => result_fault(tool, &response).await,
        };
        match fault {
            Some(fault) => Check::fail(CHECK, &joined(&[format!("{}: {fault}", tool.name)], 1)),
            None => Check::pass(CHECK, &format!("{} answered", tool.name)),
        }
    }

    /// Previews each tool twice. If the first preview changed anything, the second may differ.
    async fn previews(&self) -> Check {
        const CHECK: &str = "preview";
        let tools = self.tools().iter().filter(|tool| tool.preview);
        let tools: Vec<&ListedTool> = tools.take(MAX_PREVIEWS).collect();
        if tools.is_empty() {
            return Check::skip(CHECK, "no tool can be previewed");
        }
        let mut faults = Vec::new();
        let mut shown = 0;
        for tool in &tools {
            let name = &tool.name;
            let preview = || self.call(name, sample_arguments(tool), json!({"preview": true}));
            match (preview().await, preview().await) {
                (Ok(first), Ok(_)) if first.get("error").is_some() || is_error(&first) => {}
                (Ok(first), Ok(second)) => {
                    shown += 1;
                    if first.pointer("/result/_meta/preview") != Some(&Value::Bool(true)) {
                        faults.push(format!(
                            "{name}: the result does not say that it is a preview"
                        ));
                    }
                    let structured = "/result/structuredContent";
                    if first.pointer(structured) != second.pointer(structured) {
                        faults.push(format!("{name}: a second preview differs from the first"));
                    }
                }
                (Err(reason), _) | (_, Err(reason)) => faults.push(format!("{name}: {reason}")),
            }
        }
        let tools = counted(tools.len(), "tool");
        let passed = format!("{tools}, {shown} with arguments that fit");
        Check::of_faults(CHECK, &faults, &passed)
    }

    /// Sends policies that are invalid or exceed the server's authority.
    async fn expansion(&self) -> Check {
        const CHECK: &str = "policy.expansion";
        let Some(tool) = self.tools().iter().find(|tool| tool.read_only) else {
            return Check::skip(CHECK, "no tool is read-only");
        };
        if !self.connected.info.policy {
            return Check::skip(CHECK, "the server has no policies");
        }
        let mut faults = Vec::new();
        for policy in [
            json!({"roots": [{"path": "/"}]}),
            json!({UNKNOWN: true}),
            json!("everything"),
        ] {
            let meta = json!({"policy": policy});
            match self.call(&tool.name, sample_arguments(tool), meta).await {
                Err(reason) => faults.push(reason),
                Ok(response) if code(&response).is_some() => {}
                Ok(_) => faults.push(format!("{policy} is not refused by an error")),
            }
        }
        Check::of_faults(
            CHECK,
            &faults,
            "policies that would widen authority are rejected",
        )
    }

    /// Reads the views of tools and resources.
    async fn views(&self) -> Check {
        const CHECK: &str = "apps";
        let of_tools = self.tools().iter().filter_map(|tool| tool.ui.as_deref());
        let listed = self.connected.info.apps.iter();
        let listed = listed.filter_map(|app| app.get("uri")?.as_str());
        let mut uris: Vec<&str> = of_tools.chain(listed).collect();
        uris.sort_unstable();
        uris.dedup();
        uris.truncate(MAX_VIEWS);
        if uris.is_empty() {
            return Check::skip(CHECK, "the server has no views");
        }
        let mut faults = Vec::new();
        let mut open = Vec::new();
        for uri in &uris {
            match self.view_domains(uri).await {
                Err(fault) => faults.push(format!("{uri}: {fault}")),
                Ok(domains) if domains.is_empty() => {}
                Ok(domains) => open.push(format!("{uri} connects to {}", domains.join(", "))),
            }
        }
        let views = counted(uris.len(), "view");
        let passed = format!("{views}, none connects to other machines");
        Check::of_findings(CHECK, &faults, &open, &passed)
    }

    /// The domains that a view may connect to.
    async fn view_domains(&self, uri: &str) -> Result<Vec<String>, String> {
        if !uri.starts_with("ui://") {
            return Err("the address does not begin with ui://".to_owned());
        }
        let response = self.request("resources/read", json!({"uri": uri})).await?;
        let contents = response.pointer("/result/contents/0");
        let contents = contents.ok_or_else(|| format!("it cannot be read: {response}"))?;
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
        let domains = csp.into_iter().flat_map(Map::values);
        let domains = domains.filter_map(Value::as_array).flatten();
        let domains = domains.filter_map(Value::as_str);
        Ok(domains.map(str::to_owned).collect())
    }
}

/// Returns how a response violates the output schema of its tool.
async fn result_fault(tool: &ListedTool, response: &Value) -> Option<String> {
    if let Some(error) = response.get("error") {
        return Some(format!("the call failed with {error}"));
    }
    let schema = tool.tool.get("outputSchema")?;
    if is_error(response) {
        return None;
    }
    let Some(structured) = response.pointer("/result/structuredContent") else {
        return Some(
            "the result has no structured content, and the tool an output schema".to_owned(),
        );
    };
    // The check `tools.schemas` reports invalid schemas.
    let validator = SchemaValidator::new(schema.clone()).await.ok()?;
    let mismatch = validator.mismatch(structured.clone()).await.ok()??;
    Some(format!(
        "the structured content does not match the output schema: {mismatch}"
    ))
}

/// The tool's example arguments, or minimal arguments for its schema.
fn sample_arguments(tool: &ListedTool) -> Value {
    let examples = member(&tool.tool, "dashdash").and_then(|dashdash| dashdash.get("examples"));
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
        arguments.insert(key.to_owned(), sample_value(field.unwrap_or(&Value::Null)));
    }
    Value::Object(arguments)
}

/// A value that is valid for a simple schema.
fn sample_value(schema: &Value) -> Value {
    let value = schema.get("default").or_else(|| schema.get("const"));
    let value = value.or_else(|| schema.pointer("/enum/0"));
    if let Some(value) = value.or_else(|| schema.pointer("/examples/0")) {
        return value.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!(UNKNOWN),
    }
}
