//! The file browser in a real browser in, an agent that uses it as its person does out: it opens, marks and reads what they see.
//!
//! The page runs in a frame without an origin. What it calls (to list folders and read files) the worker judges as a view's
//! calls; what it offers, the agent calls as `app_files__…`, judged and recorded like any tool. Chromium is needed.

use std::path::PathBuf;
use std::process::ExitCode;

use bailiwick_examples::exit_code;

#[path = "app_tools/story.rs"]
mod story;

#[tokio::main]
async fn main() -> ExitCode {
    let chromium = std::env::var_os("BAILIWICK_CHROMIUM");
    let chromium = chromium.map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from);
    exit_code(story::run(&chromium).await)
}
