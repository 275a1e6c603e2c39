//! Finds the installed Chromium.

use std::path::PathBuf;

/// Names of the program, on Debian and elsewhere. The one without a user interface is first: in it, the tests take half the time.
const NAMES: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
];

/// The program that `BAILIWICK_CHROMIUM` names, or else the first one in `PATH`.
///
/// # Panics
/// If there is none.
pub fn find() -> PathBuf {
    crate::browser::find("Chromium", "BAILIWICK_CHROMIUM", &NAMES)
}
