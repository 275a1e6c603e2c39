//! Finds the installed Chromium.

use std::path::PathBuf;

use crate::browser;

/// Names of the program, on Debian and elsewhere.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// The environment variable that names the program.
pub const VARIABLE: &str = "BAILIWICK_CHROMIUM";

/// The program that `BAILIWICK_CHROMIUM` names, or else the first one in `PATH`.
///
/// # Panics
/// If there is none.
pub fn find() -> PathBuf {
    browser::find("Chromium", VARIABLE, &NAMES)
}

/// Like [`find`], but prefers Chromium without a user interface, which opens pages in half of the time. It cannot scroll to
/// an element in a frame of another process.
///
/// # Panics
/// If there is neither.
pub fn find_headless() -> PathBuf {
    let named = std::env::var_os(VARIABLE).is_some();
    let headless = browser::in_path(&["chromium-headless-shell"]);
    headless.filter(|_| !named).unwrap_or_else(find)
}
