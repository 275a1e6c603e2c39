//! What a client says of itself in, what of MCP Apps it is shown out: its pages, and who may call a tool.

#[cfg(feature = "ui")]
mod pages;

use rmcp::model::{ClientCapabilities, Resource, ResourceContents, Tool};
use serde_json::{Value, json};

use crate::tool::ToolInfo;

/// The media type of pages for views.
pub(super) const MIME: &str = "text/html;profile=mcp-app";
/// Where the page stands that shows what a call changes.
const REVIEW: &str = "ui://bailiwick/review";
const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Whether a client shows views: it says so of itself, with the media type of these pages.
pub(super) fn shown_by(capabilities: Option<&ClientCapabilities>) -> bool {
    let extensions = capabilities.and_then(|capabilities| capabilities.extensions.as_ref());
    let types = extensions
        .and_then(|extensions| extensions.get(EXTENSION)?.get("mimeTypes"))
        .and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|mime| mime == MIME))
}

/// Says of a tool who may call it, and of one that changes something which page shows that.
pub(super) fn mark(tool: &mut Tool, info: &ToolInfo) {
    let mut ui = json!({"visibility": info.visibility()});
    if cfg!(feature = "ui")
        && info.mutates
        && let Some(ui) = ui.as_object_mut()
    {
        ui.insert("resourceUri".into(), REVIEW.into());
    }
    let meta = tool.meta.get_or_insert_default();
    meta.0.insert("ui".into(), ui);
}

/// What was read of an artifact: of a page it is said what [`page`] says of its own.
pub(super) fn of_artifact(contents: ResourceContents, mime: &str) -> ResourceContents {
    #[cfg(feature = "ui")]
    if mime == MIME {
        return contents.with_meta(pages::meta());
    }
    #[cfg(not(feature = "ui"))]
    let _ = mime;
    contents
}

/// The pages that are the same for every call, where `files` are served or not.
pub(super) fn pages(files: bool) -> Vec<Resource> {
    #[cfg(feature = "ui")]
    return pages::listed(files).collect();
    #[cfg(not(feature = "ui"))]
    {
        let _ = files;
        Vec::new()
    }
}

/// The one of them that stands at `uri`.
pub(super) fn page(uri: &str, files: bool) -> Option<ResourceContents> {
    #[cfg(feature = "ui")]
    return pages::read(uri, files);
    #[cfg(not(feature = "ui"))]
    {
        let _ = (uri, files);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(capabilities: Value) -> bool {
        shown_by(Some(&serde_json::from_value(capabilities).unwrap()))
    }

    #[test]
    fn views_are_for_clients_that_name_the_media_type() {
        let extension = |settings: Value| json!({"extensions": {EXTENSION: settings}});
        assert!(shows(extension(json!({"mimeTypes": [MIME]}))));
        assert!(shows(extension(json!({"mimeTypes": ["text/html", MIME]}))));
        for other in [
            json!({}),
            extension(json!({})),
            extension(json!({"mimeTypes": []})),
            extension(json!({"mimeTypes": ["text/html"]})),
            extension(json!({"mimeTypes": MIME})),
            json!({"extensions": {"elsewhere/ui": {"mimeTypes": [MIME]}}}),
        ] {
            assert!(!shows(other.clone()), "{other}");
        }
        assert!(!shown_by(None));
    }
}
