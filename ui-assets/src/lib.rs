//! Sources of pages in, the built pages out. `web/` has the sources; `npm run build` there makes `dist/`, which is committed.

/// The file browser: a page for a sandboxed frame that speaks MCP Apps to whoever embeds it.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The console: the host's own page, on which a person answers questions and looks at grants and the record.
pub const CONSOLE: &str = include_str!("../dist/console.html");
