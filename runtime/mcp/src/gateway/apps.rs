//! MCP Apps: pages, style sheets for pages, `_meta.ui` of tools, and detection of clients that support views.

use std::borrow::Cow;

use rmcp::model::{
    Annotations, ClientCapabilities, MetaObject, Resource, ResourceContents, Role, Tool,
};
use serde_json::{Map, json};

use super::describe;
use bailiwick::artifact::{Artifact, REVIEW_MIME};
use bailiwick::tool::ToolInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Media type of MCP Apps pages.
pub(super) const APP_MIME: &str = "text/html;profile=mcp-app";
/// URI of the review page.
const REVIEW: &str = "ui://bailiwick/review";
/// URI of the file browser, which is served if files are.
const FILES: &str = "ui://bailiwick/files";
pub(super) const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// An MCP Apps page of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppPage {
    /// URI, such as `ui://hr/dashboard`; `ui://bailiwick/` and `ui://static/` are reserved for this library.
    pub uri: Cow<'static, str>,
    /// The name for programs.
    pub name: Cow<'static, str>,
    /// The display name.
    pub title: Cow<'static, str>,
    /// The description.
    pub description: Cow<'static, str>,
    /// The HTML document. It has no network access; its content security policy is the one it contains.
    pub html: Cow<'static, str>,
    /// People may open the page without a call.
    pub application: bool,
}

impl AppPage {
    /// The entry in `resources/list`.
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

    /// The contents for `resources/read`.
    pub(super) fn read(&self) -> ResourceContents {
        let contents = ResourceContents::text(self.html.clone(), self.uri.clone());
        contents.with_mime_type(APP_MIME).with_meta(meta())
    }
}

/// The `_meta` of a page. It names no origins, so the page has no network access.
fn meta() -> MetaObject {
    let ui = json!({"prefersBorder": true});
    MetaObject(Map::from_iter([("ui".to_owned(), ui)]))
}

/// A style sheet that pages of any server can use.
#[derive(Debug)]
pub(super) struct StyleSheet {
    pub(super) uri: &'static str,
    title: &'static str,
    description: &'static str,
    css: &'static str,
}

impl StyleSheet {
    /// The entry in `resources/list`.
    pub(super) fn listed(&self) -> Resource {
        let name = self.uri.rsplit('/').next().unwrap_or(self.uri);
        Resource::new(self.uri, name)
            .with_title(self.title)
            .with_description(self.description)
            .with_mime_type(CSS_MIME)
            .with_meta(describe::resource_meta("stylesheet", false))
    }

    /// The contents for `resources/read`.
    pub(super) fn read(&self) -> ResourceContents {
        ResourceContents::text(self.css, self.uri).with_mime_type(CSS_MIME)
    }
}

const CSS_MIME: &str = "text/css";

pub(super) static STYLE_SHEETS: [StyleSheet; 2] = [
    StyleSheet {
        uri: "ui://static/tokens.css",
        title: "Design tokens",
        description: "CSS variables for colors, fonts and sizes, taken from the theme of the host",
        css: bailiwick_ui::TOKENS_CSS,
    },
    StyleSheet {
        uri: "ui://static/utilities.css",
        title: "Utility classes",
        description: "Styles of text, controls, badges and notices, based on the design tokens",
        css: bailiwick_ui::UTILITIES_CSS,
    },
];

/// Whether a client declares MCP Apps with the media type of these pages.
pub(super) fn shows_views(capabilities: &ClientCapabilities) -> bool {
    let extension = capabilities.extensions.as_ref();
    let extension = extension.and_then(|extensions| extensions.get(APPS_EXTENSION));
    let types = extension.and_then(|extension| extension.get("mimeTypes")?.as_array());
    types.is_some_and(|types| types.iter().any(|mime| mime == APP_MIME))
}

/// Adds `_meta.ui` to a tool: its visibility and the page that shows its calls. `files` tells whether the file browser is
/// served.
pub(super) fn add_ui_meta(tool: &mut Tool, info: &ToolInfo, files: bool) {
    let mut ui = json!({"visibility": info.visibility()});
    let reviewed = info.mutates && info.provider.is_none();
    let page = match &*info.spec.page {
        "" if reviewed => REVIEW,
        FILES if !files => "",
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

/// Media type of an artifact for clients, which read a review as a page.
pub(super) fn artifact_mime(mime: &'static str) -> &'static str {
    if mime == REVIEW_MIME { APP_MIME } else { mime }
}

/// The artifact as clients read it: a review as a page with its data.
pub(crate) fn render_artifact(mut artifact: Artifact) -> Artifact {
    if artifact.mime != REVIEW_MIME {
        return artifact;
    }
    let page = bailiwick_ui::review_page(&String::from_utf8_lossy(&artifact.bytes));
    artifact.mime = APP_MIME;
    artifact.bytes = page.into();
    artifact
}

/// The contents of an artifact, with the `_meta` of a page if it is one.
pub(super) fn artifact_contents(artifact: Artifact, uri: &str) -> ResourceContents {
    let Artifact { mime, bytes, .. } = render_artifact(artifact);
    let contents = match String::from_utf8(bytes.into()) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
    };
    let contents = contents.with_mime_type(mime);
    if mime == APP_MIME {
        return contents.with_meta(meta());
    }
    contents
}

/// The built-in pages (the file browser only if `files` are served) and those of the host.
pub(super) fn pages(files: bool, own: &[AppPage]) -> impl Iterator<Item = &AppPage> {
    let built_in = BUILT_IN.iter();
    built_in
        .filter(move |page| files || !page.application)
        .chain(own)
}

/// The second page is the file browser, which needs `file://` resources.
static BUILT_IN: [AppPage; 2] = [
    AppPage {
        uri: Cow::Borrowed(REVIEW),
        name: Cow::Borrowed("review-page"),
        title: Cow::Borrowed("Review"),
        description: Cow::Borrowed("Shows what a call would change or changed"),
        html: Cow::Borrowed(bailiwick_ui::REVIEW),
        application: false,
    },
    AppPage {
        uri: Cow::Borrowed(FILES),
        name: Cow::Borrowed("files"),
        title: Cow::Borrowed("Files"),
        description: Cow::Borrowed("Shows the files that this server serves"),
        html: Cow::Borrowed(bailiwick_ui::BROWSER),
        application: true,
    },
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shows(capabilities: Value) -> bool {
        shows_views(&serde_json::from_value(capabilities).unwrap())
    }

    #[test]
    fn views_need_the_media_type_in_capabilities() {
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
    }
}
