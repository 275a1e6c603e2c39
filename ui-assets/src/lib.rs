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

/// The element `<mcp-view>`, an ES module: the host half of MCP Apps. Serve it as `text/javascript`.
pub const MCP_VIEW: &str = include_str!("../dist/mcp-view.js");

/// The page between a host and the pages that `<mcp-view>` shows, for its attribute `sandbox-url`.
///
/// Serve it as `text/html; charset=utf-8` with [`SANDBOX_POLICY`] as its `Content-Security-Policy`, and with no cookie.
/// Without that header, whoever gets a person to open its address has a page with the origin of the host.
pub const SANDBOX: &str = include_str!("../dist/sandbox.html");

/// The `Content-Security-Policy` of [`SANDBOX`]: no origin, and no policy for scripts, which the shown pages would inherit.
pub const SANDBOX_POLICY: &str = "sandbox allow-scripts allow-forms";
