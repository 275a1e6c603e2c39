//! Built-in MCP Apps pages.

use std::borrow::Cow;

use super::{AppPage, REVIEW};

/// The second page is the file browser, which needs `file://` resources.
pub(super) static PAGES: [AppPage; 2] = [
    AppPage {
        uri: Cow::Borrowed(REVIEW),
        name: Cow::Borrowed("review-page"),
        title: Cow::Borrowed("Review"),
        description: Cow::Borrowed("Shows what a call would change or changed"),
        html: Cow::Borrowed(bailiwick_ui::REVIEW),
        application: false,
    },
    AppPage {
        uri: Cow::Borrowed("ui://bailiwick/files"),
        name: Cow::Borrowed("files"),
        title: Cow::Borrowed("Files"),
        description: Cow::Borrowed("Shows the files that this server serves"),
        html: Cow::Borrowed(bailiwick_ui::BROWSER),
        application: true,
    },
];
