//! The program `bailiwick`.

mod audit;
mod bounded_file;
mod cli;
mod doctor;
mod grants;
mod journal;
mod logging;
mod paths;
mod run;
mod sandbox;
mod serve;
mod servers;
mod signals;
mod state;
mod table;
mod templates;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bailiwick::config::ConfigSources;
use cli::{Invocation, Options};
use run::{RunError, RunOptions};
use serve::ServeError;
use signals::StopSignals;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use bailiwick::text::escape;
use bailiwick::{BuildError, BuildFault, Config, VirtualPath};
use bailiwick_cli::check::{self, Connection, Outcome, ServerError, Target};
use bailiwick_cli::test_host::{TestHost, TestHostError};
use tokio::net::TcpListener;

/// Exit status for invalid arguments or configuration.
const USAGE_ERROR: u8 = 2;
/// How long to wait at exit for the log to be written and for tasks to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // The sandbox of commands starts this program again.
    bailiwick_exec::init();
    let current_dir = std::env::current_dir().ok();
    let current_dir = current_dir.and_then(|dir| VirtualPath::parse(dir.to_str()?, None).ok());
    let invocation = cli::parse(
        std::env::args_os(),
        std::env::vars_os(),
        current_dir.as_ref(),
    );
    match invocation {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::History(command)) => print_result(audit::history(command)),
        Ok(Invocation::Verify(command)) => print_result(audit::verify(&command)),
        Ok(Invocation::Grants(command)) => print_result(grants::run(command)),
        Ok(Invocation::Journal(command)) => print_result(journal::list(&command)),
        Ok(Invocation::Undo(options)) => match tokio::runtime::Runtime::new() {
            Ok(runtime) => print_result(runtime.block_on(journal::undo(*options))),
            Err(error) => fail(&error, 1),
        },
        Ok(Invocation::Templates(command)) => print_result(templates::run(&command)),
        Ok(Invocation::Servers {
            options,
            approve,
            json,
        }) => match tokio::runtime::Runtime::new() {
            Ok(runtime) => print_result(runtime.block_on(servers::run(&options, &approve, json))),
            Err(error) => fail(&error, 1),
        },
        Ok(Invocation::Check {
            target,
            connection,
            timeout,
            json,
        }) => check(target, connection, timeout, json),
        Ok(Invocation::TestHost {
            target,
            connection,
            port,
        }) => test_host(target, connection, port),
        Ok(Invocation::Doctor { config, json }) => doctor(*config, json),
        Ok(Invocation::Run(options)) => run(*options),
        Ok(Invocation::Serve(options)) => serve(*options),
        // Other codes belong to the command.
        Err(error) if is_run() => fail(&error, run::NOT_RUN),
        Err(error) => fail(&error, USAGE_ERROR),
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn print_result(result: Result<String, impl Error + 'static>) -> ExitCode {
    match result {
        Ok(text) => print(&text),
        Err(error) => fail(&error, 1),
    }
}

/// Checks a server and prints the report; an interrupted check prints none.
fn check(target: Target, connection: Connection, within: Duration, json: bool) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, USAGE_ERROR),
    };
    let report = runtime.block_on(async {
        // Registered before the server starts, so that no signal is lost.
        let mut signals = StopSignals::new()?;
        let interrupted = async {
            signals.next().await;
        };
        let report = check::run(target, connection, within, interrupted);
        Ok::<_, std::io::Error>(report.await)
    });
    // This ends a server that was still starting. It does not wait for schemas that are still being compiled.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    let report = match report {
        Ok(Some(report)) => report,
        Ok(None) => return print_error("the check was interrupted", USAGE_ERROR),
        Err(error) => return fail(&error, USAGE_ERROR),
    };
    let printed = match (report.unreachable(), json) {
        (_, true) => print(&format!("{:#}", report.to_json())),
        (None, false) => print(&report.to_string()),
        (Some(_), false) => ExitCode::SUCCESS,
    };
    if let Some(error) = report.unreachable() {
        let connect = report.checks().first().map(|check| check.detail.as_str());
        let hint = match error {
            ServerError::Http {
                status: Some(401 | 403),
                ..
            } => "; --bearer-env VAR sends a token",
            _ => "",
        };
        let connect = connect.unwrap_or_default();
        return print_error(&format!("cannot connect: {connect}{hint}"), USAGE_ERROR);
    }
    match report.count(Outcome::Fail) {
        0 => printed,
        _ => ExitCode::FAILURE,
    }
}

/// Serves a page for trying a server until a signal arrives, and prints the page's URL.
fn test_host(target: Target, connection: Connection, port: u16) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, USAGE_ERROR),
    };
    let served = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let host = TestHost::serve(listener, target)?;
        // If standard output is closed, nobody can open the page.
        writeln!(std::io::stdout(), "{}", host.url())?;
        tokio::select! {
            _ = signals.next() => {}
            () = async {
                host.connect(connection).await;
                std::future::pending().await
            } => {}
        }
        host.shutdown().await;
        Ok::<_, TestHostError>(())
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, USAGE_ERROR),
    }
}

/// Checks this machine and prints the report.
fn doctor(config: Config, json: bool) -> ExitCode {
    let report = match doctor::run(config) {
        Ok(report) => report,
        Err(error) => return fail(&error, 1),
    };
    let printed = if json {
        print(&format!("{:#}", report.to_json()))
    } else {
        print(&report.to_string())
    };
    if report.can_serve() {
        printed
    } else {
        ExitCode::FAILURE
    }
}

/// Whether the arguments are those of `bailiwick run`.
fn is_run() -> bool {
    std::env::args_os().nth(1).is_some_and(|name| name == "run")
}

/// Runs a command; returns its exit status.
fn run(options: RunOptions) -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, run::NOT_RUN),
    };
    let sources = options.sources.clone();
    match runtime.block_on(run::run(options)) {
        Ok(ended) => {
            for note in &ended.notes {
                print_error(note, ended.status);
            }
            ExitCode::from(ended.status)
        }
        Err(RunError::Input(error)) => fail_build(&error, &sources, run::NOT_RUN),
        Err(error) => fail(&error, error.exit_status()),
    }
}

fn serve(options: Options) -> ExitCode {
    let log = logging::LogWriter::new(std::io::stderr);
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(options.flags.log)
        .with_ansi(false)
        .finish()
        .with(logging::filter(options.flags.log))
        .init();
    // One client over stdio is served on this thread: for it, other threads would only add wake-ups.
    let mut runtime = match options.flags.http {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    let sources = options.sources.clone();
    let served = runtime.block_on(serve::run(options));
    // A pending read of standard input must not delay the exit.
    runtime.shutdown_background();
    log.flush_within(SHUTDOWN_TIMEOUT);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(ServeError::Input(error)) => fail_build(&error, &sources, USAGE_ERROR),
        Err(
            error @ (ServeError::Audit(_)
            | ServeError::Grants(_)
            | ServeError::Journal(_)
            | ServeError::Servers(_)
            | ServeError::RootHolds { .. }),
        ) => fail(&error, USAGE_ERROR),
        Err(error) => fail(&error, 1),
    }
}

/// Prints the faults of a configuration; returns the exit code.
fn fail_build(error: &BuildError, sources: &ConfigSources, code: u8) -> ExitCode {
    for fault in error.faults() {
        let message = match fault {
            BuildFault::Configured { field, source } => {
                format!("invalid {}: {}", sources.place(field), error_chain(source))
            }
            fault => error_chain(fault),
        };
        print_error(&message, code);
    }
    ExitCode::from(code)
}

/// Prints an error with its causes; returns the exit code.
fn fail(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    print_error(&error_chain(error), code)
}

/// The messages of an error and its causes.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let messages: Vec<_> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}

/// Prints a message to standard error; returns the exit code.
fn print_error(message: &str, code: u8) -> ExitCode {
    // If standard error is closed, there is still the exit code.
    let _ = writeln!(std::io::stderr(), "bailiwick: {}", escape(message));
    ExitCode::from(code)
}
