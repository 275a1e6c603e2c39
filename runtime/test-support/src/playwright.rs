//! Runs Playwright tests in Chromium.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{chromium, npm};

/// Installs the npm packages and returns the directory `ui-assets/web`.
///
/// # Panics
/// If they cannot be installed.
pub fn web() -> PathBuf {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui-assets/web");
    let installed = INSTALLED.get_or_init(|| npm::install(&web, "web"));
    installed.as_ref().unwrap();
    web
}

/// Runs `npx playwright test` with these arguments and environment variables, in the Chromium that [`chromium::find`] finds
/// unless they name another one. The scripts in `tests/live` need the configuration `playwright.live.config.ts`.
///
/// # Panics
/// If a script fails.
#[track_caller]
pub fn run(scripts: &[&str], variables: &[(&str, &OsStr)]) {
    let is_named = variables
        .iter()
        .any(|(name, _)| *name == chromium::VARIABLE);
    let chromium = (!is_named).then(|| (chromium::VARIABLE, chromium::find()));
    let output = Command::new("npx")
        .args(["playwright", "test"])
        .args(scripts)
        .envs(chromium)
        .envs(variables.iter().copied())
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
