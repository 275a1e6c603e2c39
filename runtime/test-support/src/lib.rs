//! Test harnesses shared by the packages of this workspace.
//!
//! A helper that needs the program under test takes its path as a parameter, because Cargo provides the path only
//! to the integration tests of `bailiwick-cli`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "tests and their helpers panic on failure and create files directly"
)]

mod browser;
#[cfg(feature = "tls")]
pub mod certificates;
pub mod checks;
pub mod chromium;
#[cfg(feature = "runtime")]
pub mod client;
#[cfg(feature = "runtime")]
pub mod console;
pub mod embedded_server;
pub mod file_tools;
pub mod firefox;
pub mod forbidden_calls;
#[cfg(feature = "runtime")]
pub mod http;
pub mod invalid_server;
pub mod json;
pub mod npm;
pub mod numbers;
pub mod playwright;
pub mod server;
#[cfg(feature = "stage")]
pub mod stage;
pub mod temp_files;
#[cfg(feature = "stage")]
pub mod tools;
#[cfg(feature = "runtime")]
pub mod upstream;
pub mod wait;
#[cfg(feature = "runtime")]
pub mod workspace;

use std::fmt::Debug;
use std::path::PathBuf;
use std::str::FromStr;

/// The directory for files that tests keep between runs: `tmp` in the target directory.
pub fn target_tmp() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    // The executable of a test is `target/<profile>/deps/<name>`.
    let directory = executable.ancestors().nth(3).unwrap().join("tmp");
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The number of cases for property tests and races: `BAILIWICK_CASES`, or `default`.
pub fn cases<T: FromStr<Err: Debug>>(default: T) -> T {
    let requested = std::env::var("BAILIWICK_CASES").ok();
    requested.map_or(default, |cases| cases.parse().unwrap())
}
