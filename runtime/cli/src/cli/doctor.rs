//! The command line of `bailiwick doctor`.

use clap::Args;

/// Report what this machine and this installation can enforce
#[derive(Debug, Args)]
#[command(
    long_about = "Checks what `bailiwick serve` uses on this machine: the kernel, the file system of each ROOT (or of the current \
        directory), the state directory, file watches, limits, how people are asked, and the sandbox of commands, which a \
        program tests that tries to break out of it. Prints a line for each check: \
        ok, limited or missing, its name, what it means, and what to do. Each check runs in a temporary directory that \
        is removed again; nothing else is changed.\n\nExit status 0 unless something that `serve` needs is missing, then 1; \
        2 if the arguments are wrong.\n\nExample: bailiwick doctor ./my-repo"
)]
pub(super) struct DoctorFlags {
    /// A directory to serve, or a root as JSON, as for `serve`
    pub(super) root: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}
