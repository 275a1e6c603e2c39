//! Sources of pages in, the built pages out. `web/` has the sources; `npm run build` there makes `dist/`, which is committed.

/// The file browser: a page for a sandboxed frame that speaks MCP Apps to whoever embeds it.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The element `<mcp-view>`, an ES module: the host half of MCP Apps. Serve it as `text/javascript`.
pub const MCP_VIEW: &str = include_str!("../dist/mcp-view.js");

/// The page between a host and the pages that `<mcp-view>` shows, for its attribute `sandbox-url`.
///
/// Serve it as `text/html; charset=utf-8` with [`SANDBOX_POLICY`] as its `Content-Security-Policy`, and with no cookie.
/// Without that header, whoever gets a person to open its address has a page with the origin of the host.
pub const SANDBOX: &str = include_str!("../dist/sandbox.html");

/// The `Content-Security-Policy` of [`SANDBOX`]: no origin, and no policy for scripts, which the shown pages would inherit.
pub const SANDBOX_POLICY: &str = "sandbox allow-scripts allow-forms";

/// The page of the test host: a whole document, which its host serves on loopback and answers.
pub const TEST_HOST: &str = include_str!("../dist/test-host.html");

/// The console: the host's own page, on which a person answers questions and looks at grants and the record.
pub const CONSOLE: &str = include_str!("../dist/console.html");

/// The element `<permission-prompt>`, an ES module for a host's own document. Serve it as `text/javascript`.
pub const PERMISSION_PROMPT: &str = include_str!("../dist/permission-prompt.js");
