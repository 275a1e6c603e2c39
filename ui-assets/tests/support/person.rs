//! Runs Playwright scripts against real pages in Chromium.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

#[path = "chromium.rs"]
pub(crate) mod chromium;
#[path = "node.rs"]
pub(crate) mod node;

/// The folder with the sources of the pages and the scripts, once the packages of both are installed.
///
/// # Panics
/// If they cannot be installed.
pub(crate) fn web() -> PathBuf {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let web = here.ancestors().map(|folder| folder.join("ui-assets/web"));
    let web = web.into_iter().find(|folder| folder.is_dir()).unwrap();
    let installed = INSTALLED.get_or_init(|| node::install(&web, "web"));
    installed.as_ref().unwrap();
    web
}

/// Runs the scripts that these arguments of Playwright name, with `variables` in their environment. Those in `tests/live` belong
/// to the configuration `playwright.live.config.ts`.
///
/// # Panics
/// If a script fails.
#[track_caller]
pub(crate) fn does(scripts: &[&str], variables: &[(&str, &OsStr)]) {
    let output = Command::new("npx")
        .args(["playwright", "test"])
        .args(scripts)
        .envs(variables.iter().copied())
        .env("BAILIWICK_CHROMIUM", chromium::find())
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
