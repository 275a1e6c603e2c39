//! An agent uses a file browser page together with a person: it opens files, selects lines and reads the current view.
//!
//! The page runs in a sandboxed frame in Chromium. Its calls (to list directories and read files) have the origin `view`. The
//! agent calls the page's tools as `app_files__…`, under the same policy and audit as other tools.

use std::path::PathBuf;
use std::process::ExitCode;

use bailiwick_examples::exit_code;

#[path = "app_tools/scenario.rs"]
mod scenario;

#[tokio::main]
async fn main() -> ExitCode {
    let chromium = std::env::var_os("BAILIWICK_CHROMIUM");
    let chromium = chromium.map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    exit_code(scenario::run(&chromium).await)
}
