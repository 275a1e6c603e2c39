//! Finds the installed Firefox.

use std::path::PathBuf;

/// Names of the program, on Debian and elsewhere.
const NAMES: [&str; 2] = ["firefox-esr", "firefox"];

/// The program that `BAILIWICK_FIREFOX` names, or else the first one in `PATH`.
///
/// # Panics
/// If there is none.
pub fn find() -> PathBuf {
    crate::browser::find("Firefox", "BAILIWICK_FIREFOX", &NAMES)
}
