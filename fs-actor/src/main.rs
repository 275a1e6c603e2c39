//! Flags, variables and a configuration file in, an MCP server of the file tools out.

mod cli;
mod grants;
mod logging;
mod record;
mod serve;
mod table;
mod templates;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use bailiwick::{BuildError, VirtualPath, escape};
use cli::{Options, Wanted};
use serve::ServeError;

/// What was given to the program cannot be used.
const BAD_INPUT: u8 = 2;
/// How long the end waits for the log to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let here = std::env::current_dir().ok();
    let here = here.and_then(|here| VirtualPath::parse(here.to_str()?, None).ok());
    match cli::parse(std::env::args_os(), std::env::vars_os(), here.as_ref()) {
        Ok(Wanted::Text(text)) => show(&text),
        Ok(Wanted::Look(look)) => match record::look(look) {
            Ok(text) => show(&text),
            Err(error) => refuse(&error, 1),
        },
        Ok(Wanted::Granted(granted)) => match grants::look(granted) {
            Ok(text) => show(&text),
            Err(error) => refuse(&error, 1),
        },
        Ok(Wanted::Templates(templates)) => match templates::look(&templates) {
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
    let log = match logging::Log::start(std::io::stderr()) {
        Ok(log) => log,
        Err(error) => return refuse(&error, 1),
    };
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(options.log)
        .with_ansi(false)
        .init();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error, 1),
    };
    let sources = options.sources.clone();
    let served = runtime.block_on(serve::run(options));
    // A read of standard input that waits must not keep the program.
    runtime.shutdown_background();
    log.settle(LAST_WORDS);
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(ServeError::Input(BuildError::Configured { field, source })) => tell(
            &format!("{} is refused: {}", sources.place(&field), chain(&source)),
            BAD_INPUT,
        ),
        Err(error @ (ServeError::Input(_) | ServeError::Audit(_) | ServeError::Grants(_))) => {
            refuse(&error, BAD_INPUT)
        }
        Err(error) => refuse(&error, 1),
    }
}

/// Says in one line on standard error what is wrong, with its causes.
fn refuse(error: &(dyn Error + 'static), code: u8) -> ExitCode {
    tell(&chain(error), code)
}

/// An error with its causes.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let told: Vec<_> = causes.map(ToString::to_string).collect();
    told.join(": ")
}

/// Says it in one line on standard error.
fn tell(what: &str, code: u8) -> ExitCode {
    // If even this cannot be written the code says it.
    let _ = writeln!(std::io::stderr(), "bailiwick-fs: {}", escape(what));
    ExitCode::from(code)
}
