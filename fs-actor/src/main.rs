//! Flags, variables and a configuration file in, an MCP server of the file tools out.

mod cli;
mod logging;
mod record;
mod serve;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use bailiwick::{VirtualPath, escape};
use cli::{Options, Wanted};
use serve::ServeError;

/// What was given to the program cannot be used.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let here = std::env::current_dir().ok();
    let here = here.and_then(|here| VirtualPath::parse(here.to_str()?, None).ok());
    match cli::parse(std::env::args_os(), std::env::vars_os(), here.as_ref()) {
        Ok(Wanted::Text(text)) => show(&text),
        Ok(Wanted::Look(look)) => match record::look(look) {
            Ok(text) => show(&text),
            Err(error) => refuse(&error, 1),
        },
        Ok(Wanted::Server(options)) => serve(*options),
        Err(error) => refuse(&error, BAD_INPUT),
    }
}

fn show(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(options: Options) -> ExitCode {
    let log = match logging::Log::start() {
        Ok(log) => log,
        Err(error) => return refuse(&error, 1),
    };
    tracing_subscriber::fmt()
        .with_writer(move || log.clone())
        .with_max_level(options.log)
        .with_ansi(false)
        .init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error, 1),
    };
    let served = runtime.block_on(serve::run(options));
    // A read of standard input that waits must not keep the program.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (ServeError::Input(_) | ServeError::Audit(_))) => refuse(&error, BAD_INPUT),
        Err(error) => refuse(&error, 1),
    }
}

/// Says in one line on standard error what is wrong, with its causes.
fn refuse(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let told: Vec<_> = causes.map(ToString::to_string).collect();
    // If even this cannot be written the code says it.
    let _ = writeln!(
        std::io::stderr(),
        "bailiwick-fs: {}",
        escape(&told.join(": "))
    );
    ExitCode::from(code)
}
