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
    if let Some(program) = std::env::var_os("BAILIWICK_CHROMIUM").map(PathBuf::from) {
        assert!(
            program.is_file(),
            "`BAILIWICK_CHROMIUM` names {}, which is not a file",
            program.display()
        );
        return program;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut programs =
        std::env::split_paths(&folders).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    programs.find(|program| program.is_file()).unwrap_or_else(|| {
        panic!(
            "these tests need Chromium: install it (on Debian, `apt-get install chromium`), or set `BAILIWICK_CHROMIUM` to its path"
        )
    })
}
