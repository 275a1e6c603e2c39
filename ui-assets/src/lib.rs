//! The built user interface pages. The sources are in `web/`; `npm run build` there creates `dist/`, which is committed.

/// The file browser: an MCP Apps view for a sandboxed frame.
pub const BROWSER: &str = include_str!("../dist/browser.html");

/// The review page: an MCP Apps view for a sandboxed frame that shows the changes of a call or preview.
///
/// It shows the first available of:
/// - data inserted at [`DATA`];
/// - `{review, asked}` from the host, as `dev.bailiwick/data` of the host context or in the notification
///   `dev.bailiwick/notifications/review`, where `review` is the content of `ui://TOOL/ID.rows`;
/// - the result of the tool call that the host reports, which links to the review; until then, a preview of that call.
///
/// If `asked` is true, the person can exclude hunks. Whenever the selection changes, the page sends the notification
/// `dev.bailiwick/notifications/left-out` with `{left_out: [{path, hunks}]}`. The page decides nothing: the host shows the
/// excluded hunks in its own document.
pub const REVIEW: &str = include_str!("../dist/review.html");

/// The placeholder in [`REVIEW`] for the data of a call: a script element with the id `data`.
pub const DATA: &str = "<!--data-->";

/// The page that shows a review: [`REVIEW`] with `data`, the JSON of the review, at [`DATA`].
#[must_use]
pub fn review_page(data: &str) -> String {
    let (before, after) = REVIEW.split_once(DATA).unwrap_or((REVIEW, ""));
    let script = r#"<script type="application/json" id="data">"#;
    let data = escape_json(data);
    format!("{before}{script}{data}</script>{after}")
}

/// Escapes JSON for a script element.
fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// The element `<mcp-view>`, an ES module: the host half of MCP Apps. Serve it as `text/javascript; charset=utf-8`.
pub const MCP_VIEW: &str = include_str!("../dist/mcp-view.js");

/// The sandbox proxy between a host and the views in `<mcp-view>`. Its URL is the element's `sandbox-url`.
///
/// Serve it as `text/html; charset=utf-8`, with [`SANDBOX_POLICY`] as the whole `Content-Security-Policy`. It contains
/// no secrets. The embedding document must allow it in `frame-src`.
pub const SANDBOX: &str = include_str!("../dist/sandbox.html");

/// The `Content-Security-Policy` of [`SANDBOX`]. It gives the page an opaque origin. It does not restrict scripts, since views
/// inherit it; each view adds its own policy.
pub const SANDBOX_POLICY: &str = "sandbox allow-scripts allow-forms";

/// The page of the test host.
pub const TEST_HOST: &str = include_str!("../dist/test-host.html");

/// The console's page for answering questions.
pub const CONSOLE: &str = include_str!("../dist/console.html");

/// The console's page for the activity of agents.
pub const ACTIVITY: &str = include_str!("../dist/activity.html");

/// The console's page for permissions.
pub const PERMISSIONS: &str = include_str!("../dist/permissions.html");

/// The element `<permission-prompt>`, an ES module. Serve it as `text/javascript`.
pub const PERMISSION_PROMPT: &str = include_str!("../dist/permission-prompt.js");

/// Design tokens: CSS variables for colors, fonts and sizes. They take the host's variables of MCP Apps, and have
/// fallbacks. MCP servers of bailiwick serve it as `ui://static/tokens.css`.
pub const TOKENS_CSS: &str = include_str!("../dist/tokens.css");

/// Styles of text, controls, badges and notices, based on [`TOKENS_CSS`]. MCP servers of bailiwick serve it as
/// `ui://static/utilities.css`.
pub const UTILITIES_CSS: &str = include_str!("../dist/utilities.css");
