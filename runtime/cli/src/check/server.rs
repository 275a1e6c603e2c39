//! The server's greeting and lists.

use bailiwick::intent::IntentTemplate;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::client::{Client, ServerError};
use super::session::Deadline;

/// The MIME type of MCP Apps views.
pub(super) const APP: &str = "text/html;profile=mcp-app";
/// The maximum number of pages, items and bytes of a list.
const MAX_PAGES: usize = 50;
const MAX_ITEMS: usize = 5_000;
const MAX_BYTES: usize = 16 << 20;

/// The server's greeting and lists.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerInfo {
    /// The result of `initialize` or `server/discover`.
    pub greeting: Value,
    /// The tools.
    pub tools: Vec<ListedTool>,
    /// The views among the listed resources.
    pub apps: Vec<Value>,
    /// The schema of `experimental.configuration`, if any.
    pub config_schema: Option<Value>,
    /// Whether calls may contain a policy.
    pub policy: bool,
    /// Errors of advertised lists that could not be read.
    #[serde(skip)]
    pub unread: Vec<String>,
}

/// A listed tool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListedTool {
    /// The listed JSON.
    pub tool: Value,
    /// Its name.
    pub name: String,
    /// The intent template.
    pub intent: Option<String>,
    /// The faults of the template.
    pub lints: Vec<String>,
    /// Whether it can be previewed.
    pub preview: bool,
    /// Whether it is annotated as read-only.
    pub read_only: bool,
    /// The URI of its view.
    pub ui: Option<String>,
}

impl ServerInfo {
    /// Reads the lists of a server.
    pub(super) async fn read(client: &Client, greeting: Value, deadline: Deadline) -> Self {
        let offers = |key: &str| greeting.pointer(&format!("/capabilities/{key}")).is_some();
        let mut unread = Vec::new();
        let mut items = async |method, key| {
            if !offers(key) {
                return Vec::new();
            }
            let listed = list(client, method, key, deadline).await;
            listed.unwrap_or_else(|error| {
                unread.push(error.to_string());
                Vec::new()
            })
        };
        let tools = items("tools/list", "tools").await;
        let apps = items("resources/list", "resources").await;
        let config_schema = [
            "/capabilities/configSchema",
            "/configSchema",
            "/_meta/configSchema",
        ];
        let config_schema = config_schema.iter().find_map(|at| greeting.pointer(at));
        Self {
            tools: tools.into_iter().map(ListedTool::new).collect(),
            apps: apps.into_iter().filter(is_app).collect(),
            config_schema: config_schema.cloned(),
            policy: extends(&greeting, "policy"),
            greeting,
            unread,
        }
    }
}

/// Whether the server declares an extension, in `experimental` or `extensions`.
fn extends(greeting: &Value, name: &str) -> bool {
    let capabilities = greeting.get("capabilities").unwrap_or(&Value::Null);
    let experimental = capabilities.pointer(&format!("/experimental/{name}"));
    let extensions = capabilities.get("extensions").and_then(Value::as_object);
    let mut names = extensions.into_iter().flat_map(Map::keys);
    let on = experimental.is_some_and(|value| *value != Value::Bool(false) && !value.is_null());
    on || names.any(|key| key.rsplit('/').next() == Some(name))
}

/// Finds a member of an object, its `annotations` or its `_meta`.
#[must_use]
pub fn member<'v>(object: &'v Value, key: &str) -> Option<&'v Value> {
    let own = object.get(key);
    let own = own.or_else(|| object.get("annotations")?.get(key));
    own.or_else(|| object.get("_meta")?.get(key))
}

fn is_app(resource: &Value) -> bool {
    let uri = resource.get("uri").and_then(Value::as_str);
    resource.get("mimeType") == Some(&json!(APP)) && uri.is_some_and(|uri| uri.starts_with("ui://"))
}

impl ListedTool {
    fn new(tool: Value) -> Self {
        let text = |key: &str| tool.get(key).and_then(Value::as_str);
        let name = text("name").unwrap_or_default().to_owned();
        let read_only = tool.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true));
        let preview = member(&tool, "preview") == Some(&Value::Bool(true));
        let intent = member(&tool, "intentTemplate").and_then(Value::as_str);
        let intent = intent.map(str::to_owned);
        let schema = tool.get("inputSchema").unwrap_or(&Value::Null);
        let lints = match intent.as_deref().map(IntentTemplate::parse) {
            None => Vec::new(),
            Some(Err(error)) => vec![format!("invalid template: {error}")],
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

/// Reads all pages of a list.
async fn list(
    client: &Client,
    method: &str,
    key: &str,
    deadline: Deadline,
) -> Result<Vec<Value>, ServerError> {
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut params = Map::new();
    for _ in 0..MAX_PAGES {
        let page = client.result(method, params);
        let mut page = deadline.bound(method, page).await?;
        if let Some(Value::Array(more)) = page.get_mut(key) {
            bytes += more
                .iter()
                .map(|item| item.to_string().len())
                .sum::<usize>();
            items.append(more);
        }
        if items.len() > MAX_ITEMS || bytes > MAX_BYTES {
            break;
        }
        match page.get_mut("nextCursor").map(Value::take) {
            Some(cursor @ Value::String(_)) => {
                params = Map::from_iter([("cursor".to_owned(), cursor)]);
            }
            _ => return Ok(items),
        }
    }
    Err(ServerError::TooLong(method.to_owned()))
}
