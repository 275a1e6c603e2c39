//! Sources of pages in, the built pages out. `web/` has the sources; `npm run build` there makes `dist/`, which is committed.

/// The file browser: a page for a sandboxed frame that speaks MCP Apps to whoever embeds it.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The review page: a page for a sandboxed frame that shows what a call would change or changed.
pub const REVIEW: &str = include_str!("../dist/review.html");

/// Where in [`REVIEW`] the data of a call may be put, as the script element with the id `data`.
pub const DATA: &str = "<!--data-->";
