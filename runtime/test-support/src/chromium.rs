//! Finds the installed Chromium.

use std::path::PathBuf;

/// Names of the program, on Debian and elsewhere.
const NAMES: [&str; 4] = [
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
