//! What a client says of itself in, what of MCP Apps it is shown out: its pages, and who may call a tool.

#[cfg(feature = "ui")]
mod pages;

use std::borrow::Cow;

use rmcp::model::{
    Annotations, ClientCapabilities, MetaObject, Resource, ResourceContents, Role, Tool,
};
use serde_json::{Map, Value, json};

use super::describe;
use crate::tool::ToolInfo;

/// The media type of pages for views.
pub(super) const APP_MIME: &str = "text/html;profile=mcp-app";
/// Where the page stands that shows what a call changes.
const REVIEW: &str = "ui://bailiwick/review";
pub(super) const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// A page of the host's own, for clients that show views (MCP Apps).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppPage {
    /// Where it stands, such as `ui://hr/dashboard`; what begins with `ui://bailiwick/` is this library's.
    pub uri: Cow<'static, str>,
    /// Its name, for programs.
    pub name: Cow<'static, str>,
    /// Its name, for people.
    pub title: Cow<'static, str>,
    /// What it shows.
    pub description: Cow<'static, str>,
    /// The whole page. It reaches no network: its policy is nothing but what it says itself.
    pub html: Cow<'static, str>,
    /// It is of use by itself, without a call, so people may open it.
    pub application: bool,
}

impl AppPage {
    /// How it is listed.
    pub(super) fn listed(&self) -> Resource {
        let mut meta = meta();
        meta.0.extend(describe::resource_meta("page", false).0);
        if self.application {
            meta.0.insert("type".into(), "application".into());
        }
        let for_people = Annotations::default().with_audience(vec![Role::User]);
        Resource::new(self.uri.clone(), self.name.clone())
            .with_title(self.title.clone())
            .with_description(self.description.clone())
            .with_mime_type(APP_MIME)
            .with_annotations(for_people)
            .with_meta(meta)
    }

    /// How it is read.
    pub(super) fn read(&self) -> ResourceContents {
        let contents = ResourceContents::text(self.html.clone(), self.uri.clone());
        contents.with_mime_type(APP_MIME).with_meta(meta())
    }
}

/// What is said of a page where it is listed and where it is read. It names no origin, so it reaches no network.
fn meta() -> MetaObject {
    let ui = json!({"prefersBorder": true});
    MetaObject(Map::from_iter([("ui".to_owned(), ui)]))
}

/// Whether a client shows views: it says so of itself, with the media type of these pages.
pub(super) fn shows_views(capabilities: Option<&ClientCapabilities>) -> bool {
    let extensions = capabilities.and_then(|capabilities| capabilities.extensions.as_ref());
    let types = extensions
        .and_then(|extensions| extensions.get(APPS_EXTENSION)?.get("mimeTypes"))
        .and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|mime| mime == APP_MIME))
}

/// Says of a tool who may call it and which page shows that: its own, or the review of what it changes.
pub(super) fn add_ui_meta(tool: &mut Tool, info: &ToolInfo) {
    let mut ui = json!({"visibility": info.visibility()});
    let reviewed = cfg!(feature = "ui") && info.mutates && info.provider.is_none();
    let page = match &*info.spec.page {
        "" if reviewed => REVIEW,
        own => own,
    };
    if !page.is_empty()
        && let Some(ui) = ui.as_object_mut()
    {
        ui.insert("resourceUri".into(), page.into());
    }
    let meta = tool.meta.get_or_insert_default();
    meta.0.insert("ui".into(), ui);
}

/// What was read of an artifact: of a page it is said what is said of our own.
pub(super) fn artifact_contents(contents: ResourceContents, mime: &str) -> ResourceContents {
    #[cfg(feature = "ui")]
    if mime == APP_MIME {
        return contents.with_meta(meta());
    }
    #[cfg(not(feature = "ui"))]
    let _ = mime;
    contents
}

/// The pages that are the same for every call: ours, as far as `files` are served, and those of the host.
pub(super) fn pages(files: bool, own: &[AppPage]) -> impl Iterator<Item = &AppPage> {
    #[cfg(feature = "ui")]
    let ours = pages::PAGES
        .iter()
        .filter(move |page| files || !page.application);
    #[cfg(not(feature = "ui"))]
    let (ours, _) = (std::iter::empty(), files);
    ours.chain(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(capabilities: Value) -> bool {
        shows_views(Some(&serde_json::from_value(capabilities).unwrap()))
    }

    #[test]
    fn views_are_for_clients_that_name_the_media_type() {
        let extension = |settings: Value| json!({"extensions": {APPS_EXTENSION: settings}});
        assert!(shows(extension(json!({"mimeTypes": [APP_MIME]}))));
        assert!(shows(extension(
            json!({"mimeTypes": ["text/html", APP_MIME]})
        )));
        for other in [
            json!({}),
            extension(json!({})),
            extension(json!({"mimeTypes": []})),
            extension(json!({"mimeTypes": ["text/html"]})),
            extension(json!({"mimeTypes": APP_MIME})),
            json!({"extensions": {"elsewhere/ui": {"mimeTypes": [APP_MIME]}}}),
        ] {
            assert!(!shows(other.clone()), "{other}");
        }
        assert!(!shows_views(None));
    }
}
