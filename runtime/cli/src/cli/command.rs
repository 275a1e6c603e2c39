//! Defines the command line. The flags of configuration keys come from the table of fields.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::JsonLines;
use bailiwick::config::{Key, ValueKind, config_schema};
use bailiwick_fs::Durability;
use bailiwick_mcp::gateway::{Rate, Trust};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, Command, CommandFactory as _, Parser, Subcommand, value_parser};
use tracing::level_filters::LevelFilter;

use super::audit::{HistoryCommand, VerifyCommand};
use super::check::{CheckFlags, TestHostFlags};
use super::doctor::DoctorFlags;
use super::grants::{GrantsCommand, TemplatesCommand};
use super::journal::{JournalCommand, UndoFlags};
use super::run::{CommandFlags, RunFlags};
use super::servers::{PinFlags, ServersFlags};
use super::{CliError, durability, http};

const SERVE_ABOUT: &str = "Serves file tools over MCP, confined to the given directories.

Each configuration key can be set in the configuration file, by an environment variable, by a flag, and by the client at \
initialize. A later source in this order never loosens an earlier one: of single values, the strictest applies; lists that \
restrict are combined, and lists that allow are intersected. Later roots and scope lists replace earlier ones, which still \
restrict them.
Nothing outside the given directories is read or changed, unless --grantable covers it and a person allows it. Without \
a directory, a client over stdio can name its workspace folders, unless its trust is agent; with --servers, no file tools \
are offered then.
A glob without `/`, such as `*.pem`, matches names at any depth; one with `/` starts at the top of each root.
A list is given by repeating its flag, by separating items with commas or line breaks, or as JSON. Each ROOT is one \
directory, even if its name contains commas.";

const EXAMPLES: &str = "\
Examples:
  bailiwick serve ./my-repo                          serve the file tools for a directory over stdio
  bailiwick serve --servers mcp.json ./my-repo       add third-party MCP servers under the same policy
  bailiwick run -- make test                         run a command in a sandbox
  bailiwick check node server.js                     check an MCP server
  bailiwick test-host node server.js                 try an MCP server on a local web page
  bailiwick doctor ./my-repo                         report what this machine can enforce
  bailiwick history audit.jsonl                      show what agents did
  bailiwick undo changes --root ./my-repo --change 7 take back what an agent changed
  claude mcp add files -- bailiwick serve ./my-repo  add the file tools to Claude Code";

const SERVE_EXAMPLES: &str = "\
Examples:
  bailiwick serve ./my-repo                            serve a directory over stdio
  bailiwick serve --read-only --deny .env ./my-repo    deny writes, and reads of .env files
  bailiwick serve --http 127.0.0.1:8080 ./my-repo      serve it over HTTP on this machine
  bailiwick serve --servers mcp.json --allow read:mcp:notes ./my-repo
                                                       add third-party servers under the same policy
  bailiwick serve --exec --allow execute:command:make ./my-repo
                                                       also let agents run make, in a sandbox
  claude mcp add files -- bailiwick serve ./my-repo    add it to Claude Code";

/// The name of the command `serve`.
pub(super) const SERVE: &str = "serve";
/// The name of the command `run`.
pub(super) const RUN: &str = "run";

/// Runs tool calls of LLM agents under a policy, and asks people about calls that need approval
#[derive(Debug, Parser)]
#[command(
    name = "bailiwick",
    version,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) print: PrintFlags,
    #[command(subcommand)]
    pub(super) command: Option<CliCommand>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Serve file tools and third-party MCP servers over MCP
    #[command(long_about = SERVE_ABOUT, after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeFlags>),
    Run(RunFlags),
    Check(CheckFlags),
    TestHost(TestHostFlags),
    Doctor(DoctorFlags),
    Servers(ServersFlags),
    History(HistoryCommand),
    Verify(VerifyCommand),
    Grants(GrantsCommand),
    Journal(JournalCommand),
    Undo(UndoFlags),
    Templates(TemplatesCommand),
}

/// The flags of `bailiwick serve` that are not configuration keys.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// A directory to serve, or a root as JSON; relative paths in calls are resolved against the first
    pub(super) root: Vec<String>,
    /// Read the configuration from a JSON file; no root may contain it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Serve Streamable HTTP on a loopback address, such as 127.0.0.1:8080, instead of stdio; other machines
    /// need a tunnel or proxy and --allow-host
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_loopback)]
    pub(crate) http: Option<SocketAddr>,
    /// The trust in clients: a host (agent framework) may configure, and grant (except with --ask page); a client
    /// (a program of a person) can only restrict, and its user may be asked by elicitation; an agent can only
    /// restrict [default: client; with --http agent]
    #[arg(long, value_name = "WHO", value_parser = one_of(&TRUST))]
    pub(super) trust: Option<Trust>,
    /// Store permanent grants to agents in a file; no root may contain it; needs --trust host
    #[arg(long, value_name = "FILE")]
    pub(crate) grants: Option<PathBuf>,
    /// Record the changes of file tools in a directory, so that they can be undone: by agents with the tools `undo` and `redo`,
    /// by people on the approval page or with `bailiwick undo`; no root may contain it. With --servers, this needs a ROOT
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,
    /// Forward stdio to the socket of a worker's endpoint, and serve nothing else
    #[arg(long, value_name = "SOCKET", conflicts_with_all = conflicts_with_attach())]
    pub(crate) attach: Option<PathBuf>,
    /// How calls that need approval are handled: client (elicitation), page (local web page), replay (a trusted
    /// host repeats the call with the missing scopes), or auto: the first of client, page (if started on a
    /// terminal) and replay that is possible
    #[arg(long, value_name = "HOW", value_parser = one_of(&ASK), default_value = "auto")]
    pub(crate) ask: Ask,
    /// How long a call waits for a person's answer before it is denied; at most a day. A longer time lets people
    /// answer after a break, a shorter one ends calls that nobody will answer
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=86_400),
        default_value_t = 600
    )]
    pub(crate) question_timeout: u64,
    /// The rate limit of a connection, or with --http of all clients together, in calls per second, minute or hour
    #[arg(long, value_name = "N/UNIT", value_parser = parse_rate, default_value_t)]
    pub(crate) rate: Rate,
    /// The level of the log on standard error
    #[arg(long, value_name = "LEVEL", value_parser = log_level(), default_value = "warn")]
    pub(crate) log: LevelFilter,
    /// With --http, also accept this Host header, which clients send through an SSH tunnel, a published
    /// container port or a reverse proxy, such as localhost:9000 or mcp.example; repeatable [env:
    /// BAILIWICK_ALLOW_HOST]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = http::parse_host, requires = "http")]
    pub(crate) allow_host: Vec<String>,
    /// With --http, accept requests with the token from web pages of this origin (CORS), such as
    /// https://app.example; repeatable [env: BAILIWICK_ALLOW_ORIGIN]
    #[arg(long, value_name = "ORIGIN", value_parser = http::parse_origin, requires = "http")]
    pub(crate) allow_origin: Vec<String>,
    /// Append the audit to a file of JSON lines; no root may contain it
    #[arg(long, value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Rotate the audit file before it exceeds N bytes (0: never); finished segments are named FILE.00000001
    /// and so on, and are never deleted
    #[arg(long, value_name = "N", requires = "audit", default_value_t = JsonLines::SEGMENT_BYTES)]
    pub(crate) audit_segment_bytes: u64,
    /// What completed writes survive: visible (a crash of the program), ordered (a crash of the machine, with
    /// the old or the new content) or durable (a crash of the machine, with the new content) [default: ordered]
    /// [env: BAILIWICK_DURABILITY]
    #[arg(long, value_name = "LEVEL", value_parser = one_of(&durability::LEVELS))]
    pub(super) durability: Option<Durability>,
    /// Also offer the tools, resources and prompts of the MCP servers in this file (an editor's mcp.json); the
    /// file tools are offered only with a ROOT. Calls need approval unless --allow covers them, such as
    /// read:mcp:NAME
    #[arg(long, value_name = "FILE")]
    pub(super) servers: Option<PathBuf>,
    /// Also offer the tool `run_command`, which runs commands in a sandbox that sees the files a client may read, can change
    /// those it may change without a question, and reaches no network unless --network is set and hosts are allowed, such as
    /// execute:network:crates.io. Commands need approval unless --allow covers them, such as execute:command:make. The
    /// program exits if this machine cannot confine commands. With --servers, this needs a ROOT
    #[arg(long)]
    pub(crate) exec: bool,
    #[command(flatten)]
    pub(super) commands: CommandFlags,
    #[command(flatten)]
    pub(super) pins: PinFlags,
    #[command(flatten)]
    pub(super) print: PrintFlags,
}

/// How calls that need approval are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// `Client` if the client supports elicitation, else `Page` if the program was started on a terminal, else
    /// `Replay`.
    Auto,
    /// The call fails with the missing scopes, and a trusted client repeats it with these scopes.
    Replay,
    /// The client asks its user by elicitation.
    Client,
    /// A person answers on the approval page.
    Page,
}

const ASK: [(&str, Ask); 4] = [
    ("auto", Ask::Auto),
    ("replay", Ask::Replay),
    ("client", Ask::Client),
    ("page", Ask::Page),
];
const TRUST: [(&str, Trust); 3] = [
    ("host", Trust::Host),
    ("client", Trust::Client),
    ("agent", Trust::Agent),
];

/// The flags that print a text and exit.
#[derive(Debug, Args)]
pub(super) struct PrintFlags {
    /// Print the JSON Schema of the configuration
    #[arg(long)]
    print_config_schema: bool,
    /// Print documentation of this server for agents; see --format and --section
    #[arg(long)]
    ai_help: bool,
    /// Print a SKILL.md for agents
    #[arg(long)]
    skill: bool,
    /// Print the MCP registry entry of this server as JSON
    #[arg(long)]
    registry_entry: bool,
    /// The format of --ai-help
    #[arg(
        long,
        requires = "ai_help",
        value_parser = ["markdown", "json"],
        default_value = "markdown"
    )]
    format: String,
    /// Print only this section of --ai-help, such as when-to-use
    #[arg(long, requires = "ai_help")]
    section: Option<String>,
}

impl PrintFlags {
    /// The text to print, if any, for a server with this rate limit.
    pub(super) fn text(&self, rate: Rate) -> Result<Option<String>, CliError> {
        // It takes a while to make, and most starts print nothing.
        let description = || bailiwick_cli::description().rate(rate.to_string());
        let section = self.section.as_deref();
        Ok(if self.print_config_schema {
            Some(format!("{:#}", durability::add_to_schema(config_schema())))
        } else if self.ai_help && self.format == "json" {
            Some(format!("{:#}", description().json(section)?))
        } else if self.ai_help {
            Some(description().markdown(section)?)
        } else if self.skill {
            Some(description().skill())
        } else if self.registry_entry {
            Some(format!("{:#}", description().registry_entry()))
        } else {
            None
        })
    }
}

/// The whole command line.
pub(super) fn command() -> Command {
    let command = Cli::command().mut_subcommand(RUN, |run| {
        let keys = Key::settable().filter(|key| key.key != "roots");
        run.next_help_heading("Configuration keys")
            .args(keys.map(field_flag))
    });
    command.mut_subcommand(SERVE, |serve| {
        serve
            .mut_arg("toolchain", |arg| arg.requires("exec"))
            .mut_arg("env", |arg| arg.requires("exec"))
            .mut_arg("pins", |arg| arg.requires("servers"))
            .mut_arg("start_timeout", |arg| arg.requires("servers"))
            .next_help_heading("Configuration keys")
            .args(Key::settable().map(field_flag))
    })
}

/// Parses one of these names.
pub(super) fn one_of<T: Clone + Send + Sync + 'static>(
    values: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(values.iter().map(|(name, _)| *name));
    names.try_map(|text| {
        let mut values = values.iter();
        let found = values.find(|(name, _)| *name == text);
        found.map(|(_, value)| value.clone()).ok_or("unknown value")
    })
}

fn log_level() -> impl TypedValueParser<Value = LevelFilter> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    PossibleValuesParser::new(levels).try_map(|text| text.parse::<LevelFilter>())
}

/// The flags that have no effect with `--attach`.
fn conflicts_with_attach() -> impl Iterator<Item = clap::Id> {
    let server = [
        "config",
        "http",
        "trust",
        "audit",
        "audit_segment_bytes",
        "grants",
        "ask",
        "durability",
        "exec",
        "journal",
        "question_timeout",
        "rate",
        "servers",
        "root",
    ];
    let fields = Key::settable().map(|field| field.flag().into());
    server.into_iter().map(clap::Id::from).chain(fields)
}

/// The flag of a configuration key.
fn field_flag(field: &'static Key) -> Arg {
    let arg = Arg::new(field.flag()).long(field.flag()).help(format!(
        "{} [env: {}]",
        field.about,
        field.variable()
    ));
    match field.kind {
        ValueKind::Flag => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        ValueKind::Count => arg.value_name("N"),
        ValueKind::Path => arg.value_name("PATH"),
        ValueKind::OneOf(words) => arg.value_name(words.all().join("|")),
        ValueKind::ListOf(words) => repeatable(arg, &words.all().join("|")),
        ValueKind::Names => repeatable(arg, "NAME"),
        ValueKind::Globs => repeatable(arg, "GLOB"),
        ValueKind::Patterns => repeatable(arg, "SCOPE"),
        ValueKind::Object | ValueKind::Policy => arg.value_name("JSON"),
        ValueKind::Objects => repeatable(arg, "PATH|JSON"),
    }
}

fn repeatable(arg: Arg, name: &str) -> Arg {
    arg.value_name(name.to_owned()).action(ArgAction::Append)
}

/// An invalid listen address.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("must be an IP address and a port, such as 127.0.0.1:8080")]
    Invalid(#[from] std::net::AddrParseError),
    #[error(
        "must be a loopback address, such as 127.0.0.1:8080; other machines need a tunnel or proxy (--allow-host)"
    )]
    NotLoopback,
}

/// An invalid rate.
#[derive(Debug, thiserror::Error)]
#[error("must be a positive number per `second`, `minute` or `hour`, such as 100/minute")]
struct ParseRateError;

fn parse_rate(text: &str) -> Result<Rate, ParseRateError> {
    let (calls, unit) = text.split_once('/').ok_or(ParseRateError)?;
    let seconds = match unit {
        "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        _ => return Err(ParseRateError),
    };
    let calls = calls.parse().ok().filter(|calls| *calls > 0);
    Ok(Rate {
        calls: calls.ok_or(ParseRateError)?,
        per: Duration::from_secs(seconds),
    })
}

fn parse_loopback(text: &str) -> Result<SocketAddr, AddressError> {
    let address: SocketAddr = text.parse()?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(AddressError::NotLoopback)
    }
}
