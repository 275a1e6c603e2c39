//! A greeting and lists in, what the page and the checks want to know of a server out.

use bailiwick::IntentTemplate;
use bailiwick_examples::Failure;
use serde::Serialize;
use serde_json::{Value, json};

use super::client::Client;
use super::connect::result;

/// The type of a page that hosts show in a frame.
pub(crate) const APP: &str = "text/html;profile=mcp-app";
/// How many pages of one list are read.
const MOST_PAGES: usize = 50;

/// What a server says of itself.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Facts {
    /// What it answered when it was met.
    pub(crate) greeting: Value,
    pub(crate) tools: Vec<ToolFacts>,
    /// Pages that can be opened without calling a tool.
    pub(crate) apps: Vec<Value>,
    pub(crate) badges: Vec<Badge>,
    pub(crate) config_schema: Option<Value>,
    pub(crate) policy: bool,
}

/// Something that the server can do beyond MCP.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Badge {
    pub(crate) name: &'static str,
    pub(crate) on: bool,
}

/// A tool, and what is to be known of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ToolFacts {
    /// As the server listed it.
    pub(crate) tool: Value,
    pub(crate) name: String,
    pub(crate) intent: Option<String>,
    /// What is discouraged about its intent, or why it is none.
    pub(crate) lints: Vec<String>,
    pub(crate) preview: bool,
    pub(crate) read_only: bool,
    /// The page that shows its results.
    pub(crate) ui: Option<String>,
}

impl Facts {
    /// Asks the server for its lists.
    ///
    /// # Errors
    /// If it goes, or refuses a list that it offers.
    pub(crate) async fn of(client: &Client, greeting: Value) -> Result<Self, Failure> {
        let offers = |key: &str| greeting.pointer(&format!("/capabilities/{key}")).is_some();
        let mut tools = Vec::new();
        if offers("tools") {
            let listed = listed(client, "tools/list", "tools").await?;
            tools.extend(listed.into_iter().map(ToolFacts::of));
        }
        let mut apps = Vec::new();
        if offers("resources") {
            let resources = listed(client, "resources/list", "resources").await?;
            apps.extend(resources.into_iter().filter(is_app));
        }
        let config_schema = [
            "/capabilities/configSchema",
            "/configSchema",
            "/_meta/configSchema",
        ];
        let config_schema = config_schema.iter().find_map(|at| greeting.pointer(at));
        let config_schema = config_schema.cloned();
        let policy = extends(&greeting, "policy");
        let has = |of: fn(&ToolFacts) -> bool| tools.iter().any(of);
        let badges = [
            ("apps", !apps.is_empty() || has(|tool| tool.ui.is_some())),
            ("intent templates", has(|tool| tool.intent.is_some())),
            ("preview", has(|tool| tool.preview)),
            ("policy", policy),
            ("configuration", config_schema.is_some()),
            ("dashdash", told(&greeting, "dashdash").is_some()),
        ];
        let badges = badges.map(|(name, on)| Badge { name, on }).into();
        Ok(Self {
            greeting,
            tools,
            apps,
            badges,
            config_schema,
            policy,
        })
    }
}

/// Whether the server says, in one of the ways there are, that it has the extension of that name.
pub(crate) fn extends(greeting: &Value, name: &str) -> bool {
    let capabilities = greeting.get("capabilities").unwrap_or(&Value::Null);
    let experimental = capabilities.pointer(&format!("/experimental/{name}"));
    let extensions = capabilities.get("extensions").and_then(Value::as_object);
    let mut names = extensions.into_iter().flat_map(|all| all.keys());
    let on = experimental.is_some_and(|value| *value != Value::Bool(false) && !value.is_null());
    on || names.any(|key| key.rsplit('/').next() == Some(name))
}

/// A member of a thing, or of its `_meta`.
pub(crate) fn told<'v>(of: &'v Value, key: &str) -> Option<&'v Value> {
    let own = of.get(key).or_else(|| of.pointer("/annotations")?.get(key));
    own.or_else(|| of.get("_meta")?.get(key))
}

fn is_app(resource: &Value) -> bool {
    let uri = resource.get("uri").and_then(Value::as_str);
    resource.get("mimeType") == Some(&json!(APP)) && uri.is_some_and(|uri| uri.starts_with("ui://"))
}

impl ToolFacts {
    fn of(tool: Value) -> Self {
        let text = |key: &str| tool.get(key).and_then(Value::as_str);
        let name = text("name").unwrap_or_default().to_owned();
        let hint = |key: &str| tool.pointer(&format!("/annotations/{key}"));
        let read_only = hint("readOnlyHint") == Some(&Value::Bool(true));
        let preview = told(&tool, "preview") == Some(&Value::Bool(true));
        let intent = told(&tool, "intentTemplate").and_then(Value::as_str);
        let intent = intent.map(str::to_owned);
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        let lints = match intent.as_deref().map(IntentTemplate::parse) {
            None => Vec::new(),
            Some(Err(error)) => vec![format!("it is no template: {error}")],
            Some(Ok(template)) => {
                let lints = template.lint(schema);
                lints.iter().map(ToString::to_string).collect()
            }
        };
        let meta = tool.get("_meta").unwrap_or(&Value::Null);
        let ui = meta.pointer("/ui/resourceUri");
        let ui = ui.or_else(|| meta.get("ui/resourceUri"));
        let ui = ui.and_then(Value::as_str).map(str::to_owned);
        Self {
            name,
            intent,
            lints,
            preview,
            read_only,
            ui,
            tool,
        }
    }
}

/// All items of a list.
async fn listed(client: &Client, method: &str, key: &str) -> Result<Vec<Value>, Failure> {
    let mut items = Vec::new();
    let mut params = json!({});
    for _ in 0..MOST_PAGES {
        let mut page = result(client.request(method, params).await?)?;
        if let Some(Value::Array(more)) = page.get_mut(key) {
            items.append(more);
        }
        match page.get("nextCursor") {
            Some(Value::String(cursor)) => params = json!({"cursor": cursor}),
            _ => return Ok(items),
        }
    }
    Err(format!("`{method}` has more than {MOST_PAGES} pages").into())
}
