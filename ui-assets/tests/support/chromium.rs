//! A machine in, its browser out; it is installed when it is first needed.

use std::path::PathBuf;
use std::process::Command;

/// Debian's Chromium, or what `BAILIWICK_CHROMIUM` names.
///
/// # Panics
/// If it is missing and cannot be installed.
pub(crate) fn chromium() -> PathBuf {
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
