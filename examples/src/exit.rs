//! Errors and exit codes of the examples.

use std::error::Error;
use std::process::ExitCode;

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Prints the error, if any, with its causes; returns the exit code of the example.
#[expect(clippy::print_stderr, reason = "examples print their errors")]
#[must_use]
pub fn exit_code(result: Result<(), BoxError>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        eprintln!("  caused by: {inner}");
        cause = inner.source();
    }
    ExitCode::FAILURE
}
