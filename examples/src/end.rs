//! What a story came to in, the exit code out; a failure is told with its causes.

use std::error::Error;
use std::process::ExitCode;

/// Why an example is not as it says.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The exit code of an example.
#[expect(clippy::print_stderr, reason = "an example tells why it failed")]
#[must_use]
pub fn ended(run: Result<(), Failure>) -> ExitCode {
    let Err(failure) = run else {
        return ExitCode::SUCCESS;
    };
    eprintln!("FAILED: {failure}");
    let mut cause = failure.source();
    while let Some(inner) = cause {
        eprintln!("   because: {inner}");
        cause = inner.source();
    }
    ExitCode::FAILURE
}
