//! Sources of pages in, the built pages out. `web/` has the sources; `npm run build` there makes `dist/`, which is committed.

/// The file browser: a page for a sandboxed frame that speaks MCP Apps to whoever embeds it.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The review page: a page for a sandboxed frame that shows what a call would change or changed.
///
/// It takes what it shows from the first of these that there is:
/// - its own data, put in at [`DATA`];
/// - its host, as `dev.bailiwick/data` of the host context or by the notification `dev.bailiwick/notifications/review`:
///   `{review, asked}`, where `review` is what stands at `ui://TOOL/ID.rows`;
/// - the result of the tool call that its host tells it of, which links the review; until then a preview of that call.
///
/// Where a person is `asked` about the call, hunks can be left out. The page tells its host which by the notification
/// `dev.bailiwick/notifications/left-out`, `{left_out: [{path, hunks}]}`, whenever that changes. It decides nothing:
/// whoever asks shows in a document of their own what is left out.
pub const REVIEW: &str = include_str!("../dist/review.html");

/// Where in [`REVIEW`] the data of a call may be put, as the script element with the id `data`.
pub const DATA: &str = "<!--data-->";

/// The element `<mcp-view>`, an ES module: the host half of MCP Apps. Serve it as `text/javascript; charset=utf-8`.
pub const MCP_VIEW: &str = include_str!("../dist/mcp-view.js");

/// The page between a host and the pages that `<mcp-view>` shows; its address is the element's `sandbox-url`.
///
/// Serve it as `text/html; charset=utf-8`, with [`SANDBOX_POLICY`] as the whole `Content-Security-Policy`; it holds
/// nothing that a session would have to guard. The document around it must allow it in `frame-src`.
pub const SANDBOX: &str = include_str!("../dist/sandbox.html");

/// The `Content-Security-Policy` of [`SANDBOX`]. It takes the origin from the page however it is opened, and says
/// nothing of scripts, since the pages shown in it inherit it; what they may reach is added for each.
pub const SANDBOX_POLICY: &str = "sandbox allow-scripts allow-forms";

/// The page of the test host: a whole document, which its host serves on loopback and answers.
pub const TEST_HOST: &str = include_str!("../dist/test-host.html");

/// The console: the host's own page, on which a person answers questions and looks at grants and the record.
pub const CONSOLE: &str = include_str!("../dist/console.html");

/// The element `<permission-prompt>`, an ES module for a host's own document. Serve it as `text/javascript`.
pub const PERMISSION_PROMPT: &str = include_str!("../dist/permission-prompt.js");
