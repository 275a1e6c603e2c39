//! The example with the file browser: a page that an agent uses, and the socket that only that page reaches.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

#[cfg(feature = "interop")]
#[path = "app_tools/browser.rs"]
mod browser;
#[path = "app_tools/door.rs"]
mod door;
#[path = "../examples/app_tools/story.rs"]
mod story;

use std::path::Path;
use std::time::Duration;

/// How long a browser may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn without_a_browser_it_says_what_is_missing() {
    let failed = story::run(Path::new("/nowhere/chromium")).await;
    let said = failed.unwrap_err().to_string();
    assert!(
        said.starts_with("this needs Chromium at /nowhere/chromium"),
        "{said}"
    );
}
