//! MCP servers over stdio that are tests of the test executable.
//!
//! A test that is a server returns at once unless [`arguments`] are set.

use std::fs::{File, OpenOptions};

/// The variable with the arguments of the server, one per line.
pub const ARGUMENTS: &str = "TEST_SERVER_ARGUMENTS";

/// The output of the server is descriptor 3, since the test harness prints to descriptor 1.
const SCRIPT: &str = r#"test=$1; shift; TEST_SERVER_ARGUMENTS=$(printf '%s\n' "$@") exec "$0" --exact "$test" --nocapture 3>&1 >/dev/null"#;

/// The command that starts the server in the test `test` of this executable. Further arguments can follow. The strings are
/// leaked, so that they can be used as arguments.
pub fn command(test: &'static str, arguments: &[&'static str]) -> Vec<&'static str> {
    let executable = std::env::current_exe().unwrap();
    let executable = executable.to_str().unwrap().to_owned().leak();
    let start = ["/bin/sh", "-c", SCRIPT, executable, test];
    [&start[..], arguments].concat()
}

/// The arguments of the server; `None` if this process runs tests.
pub fn arguments() -> Option<Vec<String>> {
    let arguments = std::env::var(ARGUMENTS).ok()?;
    Some(arguments.lines().map(ToOwned::to_owned).collect())
}

/// The output of the server.
pub fn output() -> File {
    let output = OpenOptions::new().write(true).open("/proc/self/fd/3");
    output.unwrap()
}
