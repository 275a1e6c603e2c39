//! Scripts of what a person does on a page in, whether it goes so in a real browser out.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "chromium.rs"]
pub(crate) mod chromium;
#[path = "node.rs"]
pub(crate) mod node;

/// Where the sources of the pages are, and the scripts; what both need is installed.
///
/// # Panics
/// If it cannot be installed.
pub(crate) fn web() -> PathBuf {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-assets/web");
    node::install(&web);
    web
}

/// Does what the scripts say that these arguments of Playwright name; `told` is what they read. Those in `tests/live` are of
/// the configuration `playwright.live.config.ts`.
///
/// # Panics
/// If it does not go so.
#[track_caller]
pub(crate) fn does(scripts: &[&str], told: &[(&str, &OsStr)]) {
    let output = Command::new("npx")
        .args(["playwright", "test"])
        .args(scripts)
        .envs(told.iter().copied())
        .env("BAILIWICK_CHROMIUM", chromium::place())
        .current_dir(web())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "`npx playwright test {}` failed:\n{}{}",
        scripts.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
