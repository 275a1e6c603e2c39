//! Tests of the example `app_tools`: the scenario in a browser, and the page server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests and their helpers panic on failure"
)]

#[cfg(feature = "interop")]
#[path = "app_tools/browser.rs"]
mod browser;
#[path = "app_tools/page_server.rs"]
mod page_server;
#[path = "../examples/app_tools/scenario.rs"]
mod scenario;

use std::path::Path;
use std::time::Duration;

/// How long a browser may take.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn missing_browser_is_reported() {
    let result = scenario::run(Path::new("/nowhere/chromium")).await;
    let message = result.unwrap_err().to_string();
    assert!(
        message.starts_with("cannot start Chromium at /nowhere/chromium"),
        "{message}"
    );
}
