//! Starts the program over stdio.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use bailiwick_test_support::server::Server;

use crate::PROGRAM;

/// `bailiwick serve` with a client that has these roots.
pub(super) fn start(arguments: &[&str], roots: &[&Path]) -> Server {
    start_with(arguments, &[], roots)
}

/// Like [`start`], with these environment variables.
pub(super) fn start_with(
    arguments: &[&str],
    variables: &[(&str, &OsStr)],
    roots: &[&Path],
) -> Server {
    let mut command = Command::new(PROGRAM);
    command
        .arg("serve")
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied());
    let mut server = Server::start(&mut command);
    server.set_roots(roots);
    server
}
