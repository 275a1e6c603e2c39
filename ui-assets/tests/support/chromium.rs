//! Nothing in, where Chromium is out.

use std::path::PathBuf;
use std::process::Command;

/// Debian's Chromium, installed if it is missing.
///
/// # Panics
/// If it cannot be installed.
pub(crate) fn place() -> PathBuf {
    let place = std::env::var_os("BAILIWICK_CHROMIUM")
        .map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    if !place.exists() {
        let script =
            "apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium";
        let installed = Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(
            installed.status.success() && place.exists(),
            "these tests need Chromium at {} (or where BAILIWICK_CHROMIUM says), and it cannot be installed:\n{}",
            place.display(),
            String::from_utf8_lossy(&installed.stderr)
        );
    }
    place
}
