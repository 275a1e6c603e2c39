//! An address in, the page out that stands there and is the same for every call.

use rmcp::model::{Annotations, MetaObject, Resource, ResourceContents, Role};
use serde_json::{Map, json};

use super::{MIME, REVIEW};
use crate::gateway::describe;

struct Page {
    uri: &'static str,
    name: &'static str,
    title: &'static str,
    description: &'static str,
    html: &'static str,
    /// It shows files, so it is of use where they are served; and it stands by itself, without a call.
    of_files: bool,
}

const PAGES: [Page; 2] = [
    Page {
        uri: REVIEW,
        name: "review-page",
        title: "Review",
        description: "Shows what a call would change or changed",
        html: bailiwick_ui::REVIEW,
        of_files: false,
    },
    Page {
        uri: "ui://bailiwick/files",
        name: "files",
        title: "Files",
        description: "Shows the files that this server serves",
        html: bailiwick_ui::BROWSER,
        of_files: true,
    },
];

/// What is said of a page where it is listed and where it is read. It names no origin, so it reaches no network.
pub(super) fn meta() -> MetaObject {
    let ui = json!({"prefersBorder": true});
    MetaObject(Map::from_iter([("ui".to_owned(), ui)]))
}

fn shown(files: bool) -> impl Iterator<Item = &'static Page> {
    PAGES.iter().filter(move |page| files || !page.of_files)
}

/// The pages, where `files` are served or not.
pub(super) fn listed(files: bool) -> impl Iterator<Item = Resource> {
    shown(files).map(|page| {
        let mut meta = meta();
        meta.0.extend(describe::of_resource("page", false).0);
        if page.of_files {
            meta.0.insert("type".into(), "application".into());
        }
        let for_people = Annotations::default().with_audience(vec![Role::User]);
        Resource::new(page.uri, page.name)
            .with_title(page.title)
            .with_description(page.description)
            .with_mime_type(MIME)
            .with_annotations(for_people)
            .with_meta(meta)
    })
}

/// The page at `uri`, where `files` are served or not.
pub(super) fn read(uri: &str, files: bool) -> Option<ResourceContents> {
    let page = shown(files).find(|page| page.uri == uri)?;
    let contents = ResourceContents::text(page.html, uri).with_mime_type(MIME);
    Some(contents.with_meta(meta()))
}
