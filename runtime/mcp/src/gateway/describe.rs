//! Server description: in the handshake, as the method `ai_help`, and as a resource.

use rmcp::model::{CustomResult, ErrorData, MetaObject, Resource, ResourceContents};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use super::Gateway;
use super::call::is_stateless;
use bailiwick::describe::{self, Description};
use bailiwick::worker::Worker;

/// Method name of the dashdash proposal.
pub(super) const METHOD: &str = "ai_help";
/// URI of the help resource.
pub(super) const HELP: &str = "bailiwick://help";
const MARKDOWN: &str = "text/markdown";

/// The entry of the help in `resources/list`.
pub(super) fn help() -> Resource {
    Resource::new(HELP, "help")
        .with_title("How to use this server")
        .with_description("Tools, errors, installation and best practices of this server")
        .with_mime_type(MARKDOWN)
        .with_meta(resource_meta("documentation", true))
}

/// The `_meta` of a resource of that kind.
pub(super) fn resource_meta(kind: &str, refreshable: bool) -> MetaObject {
    let mut meta = Map::new();
    meta.insert("dashdash".into(), describe::resource(kind, refreshable));
    MetaObject(meta)
}

impl Gateway {
    /// The server's description for clients of `worker`; `None` without a manual.
    pub(super) fn description(&self, worker: &Worker) -> Option<Description> {
        let info = &self.state.info;
        let manual = self.state.manual?;
        let description = Description::new(manual, &info.name, &info.version)
            .title(&info.title)
            .tools(worker.tools())
            .access(worker.access())
            .rate(self.state.rate.to_string());
        Some(description)
    }

    async fn own_description(&self) -> Result<Description, ErrorData> {
        let backend = self.backend().await?;
        let none = || ErrorData::resource_not_found("there is no manual", None);
        self.description(backend.worker()).ok_or_else(none)
    }

    pub(super) async fn help(&self) -> Result<ResourceContents, ErrorData> {
        let text = self.own_description().await?.markdown(None);
        let text = text.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(ResourceContents::text(text, HELP).with_mime_type(MARKDOWN))
    }

    /// Handles `ai_help`.
    pub(super) async fn ai_help(
        &self,
        params: Option<&Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let format = text(params, "format")?.unwrap_or("markdown");
        let section = text(params, "section")?;
        let description = self.own_description().await?;
        let answer = match format {
            "markdown" => description
                .markdown(section)
                .map(|content| json!({"content": content, "contentType": MARKDOWN})),
            "json" => description.json(section),
            _ => {
                let reason = "`format` must be `markdown` or `json`";
                let data = json!({"field": "/format", "known": ["markdown", "json"]});
                return Err(ErrorData::invalid_params(reason, Some(data)));
            }
        };
        let mut answer = answer.map_err(|error| {
            let data = json!({"field": "/section", "known": error.known});
            ErrorData::invalid_params(error.to_string(), Some(data))
        })?;
        if let (true, Value::Object(members)) = (is_stateless(context), &mut answer) {
            members.insert("resultType".into(), "complete".into());
        }
        Ok(CustomResult::new(answer))
    }
}

/// A string parameter; `null` counts as absent.
fn text<'p>(params: Option<&'p Value>, key: &str) -> Result<Option<&'p str>, ErrorData> {
    let value = params.and_then(|params| params.get(key));
    match value.filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => {
            let reason = format!("`{key}` must be a string or null");
            let data = json!({"field": format!("/{key}")});
            Err(ErrorData::invalid_params(reason, Some(data)))
        }
    }
}
