//! Sources of pages in, the built pages out. `web/` has the sources; `npm run build` there makes `dist/`, which is committed.

/// The file browser: a page for a sandboxed frame that speaks MCP Apps to whoever embeds it.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The page of the test host: a whole document, which its host serves on loopback and answers.
pub const TEST_HOST: &str = include_str!("../dist/test-host.html");
