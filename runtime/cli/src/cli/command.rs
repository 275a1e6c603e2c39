//! Defines the command line. The flags of configuration keys come from the table of fields.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::JsonLines;
use bailiwick::config::config_schema;
use bailiwick::config::{Key, ValueKind};
use bailiwick::describe::Description;
use bailiwick_mcp::gateway::{Rate, Trust};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tracing::level_filters::LevelFilter;

use super::{Ask, CliError, audit, check, doctor, durability, grants, http, servers};

/// The id of the positional arguments.
pub(super) const ROOT: &str = "ROOT";

/// A flag that prints a text and exits.
pub(super) struct PrintFlag {
    pub(super) flag: &'static str,
    about: &'static str,
    pub(super) text: fn(&ArgMatches) -> Result<String, CliError>,
}

/// The flags that print a text.
pub(super) const PRINT_FLAGS: &[PrintFlag] = &[
    PrintFlag {
        flag: "print-config-schema",
        about: "Print the JSON Schema of the configuration",
        text: |_| Ok(format!("{:#}", durability::add_to_schema(config_schema()))),
    },
    PrintFlag {
        flag: "ai-help",
        about: "Print documentation of this server for agents; see --format and --section",
        text: ai_help,
    },
    PrintFlag {
        flag: "skill",
        about: "Print a SKILL.md for agents",
        text: |matches| Ok(description(matches).skill()),
    },
    PrintFlag {
        flag: "registry-entry",
        about: "Print the MCP registry entry of this server as JSON",
        text: |matches| Ok(format!("{:#}", description(matches).registry_entry())),
    },
];

/// The description of the server with these arguments.
fn description(matches: &ArgMatches) -> Description {
    // Only `serve` has this flag.
    let rate = matches.try_get_one::<Rate>("rate").ok().flatten();
    bailiwick_cli::description().rate(rate.copied().unwrap_or_default().to_string())
}

fn ai_help(matches: &ArgMatches) -> Result<String, CliError> {
    let description = description(matches);
    let section = matches.get_one::<String>("section").map(String::as_str);
    match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => Ok(format!("{:#}", description.json(section)?)),
        _ => Ok(description.markdown(section)?),
    }
}

/// The flags of `--ai-help`.
fn ai_help_flags() -> [Arg; 2] {
    [
        Arg::new("format")
            .long("format")
            .value_name("FORMAT")
            .requires("ai-help")
            .value_parser(PossibleValuesParser::new(["markdown", "json"]))
            .help("The format of --ai-help [default: markdown]"),
        Arg::new("section")
            .long("section")
            .value_name("SECTION")
            .requires("ai-help")
            .help("Print only this section of --ai-help, such as when-to-use"),
    ]
}

const ABOUT: &str =
    "Runs tools of LLM agents under a policy, and asks people to approve other calls";

const SERVE_ABOUT: &str = "Serves file tools over MCP, confined to the given directories.

Each configuration key is set by its flag, its environment variable, the configuration file, or the client at \
initialize. For each key, initialize overrides flags, flags override variables, and variables override the file. \
Restrictions (deny, immutable, deny-scopes, protect) of all sources are combined.
Nothing outside the given directories is read or changed, unless --grantable covers it and a person allows it. Without \
a directory, the client's workspace folders are served.
A glob without `/`, such as `*.pem`, matches names at any depth; one with `/` starts at the top of each root.
A list is given by repeating its flag, by separating items with commas or line breaks, or as JSON. Each ROOT is one \
directory, even if its name contains commas.";

const EXAMPLES: &str = "\
Examples:
  bailiwick serve ./my-repo                          serve the file tools for a directory over stdio
  bailiwick serve --servers mcp.json ./my-repo       add third-party MCP servers under the same policy
  bailiwick check node server.js                     check an MCP server
  bailiwick doctor ./my-repo                         report what this machine can enforce
  bailiwick history audit.jsonl                      show what agents did
  claude mcp add files -- bailiwick serve ./my-repo  add the file tools to Claude Code";

const SERVE_EXAMPLES: &str = "\
Examples:
  bailiwick serve ./my-repo                            serve a directory over stdio
  bailiwick serve --read-only --deny .env ./my-repo    deny writes, and reads of .env files
  bailiwick serve --http 127.0.0.1:8080 ./my-repo      serve it over HTTP on this machine
  bailiwick serve --servers mcp.json --allow read:mcp:notes ./my-repo
                                                       add third-party servers under the same policy
  claude mcp add files -- bailiwick serve ./my-repo    add it to Claude Code";

/// The name of the command `serve`.
pub(super) const SERVE: &str = "serve";

/// The whole command line.
pub(super) fn command() -> Command {
    Command::new("bailiwick")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .args(print_flags())
        .subcommand(serve())
        .subcommand(check::command())
        .subcommand(doctor::command())
        .subcommand(servers::command())
        .subcommands(audit::commands())
        .subcommands(grants::commands())
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
}

fn serve() -> Command {
    let fields = Key::settable().map(field_flag);
    Command::new(SERVE)
        .about("Serve file tools and third-party MCP servers over MCP")
        .long_about(SERVE_ABOUT)
        .after_help(SERVE_EXAMPLES)
        .arg(
            Arg::new(ROOT)
                .help("A directory to serve, or a root as JSON; relative paths in calls are resolved against the first")
                .action(ArgAction::Append),
        )
        .args(server_flags())
        .args(http::flags())
        .args(audit_flags())
        .arg(durability::flag())
        .args(servers::flags())
        .args(print_flags())
        .next_help_heading("Configuration keys")
        .args(fields)
}

/// The flags that print a text.
fn print_flags() -> impl Iterator<Item = Arg> {
    let texts = PRINT_FLAGS.iter().map(|flag| {
        Arg::new(flag.flag)
            .long(flag.flag)
            .help(flag.about)
            .action(ArgAction::SetTrue)
    });
    texts.chain(ai_help_flags())
}

fn trust_parser() -> impl TypedValueParser<Value = Trust> {
    let values = PossibleValuesParser::new(["host", "client", "agent"]);
    values.map(|text| match text.as_str() {
        "host" => Trust::Host,
        "client" => Trust::Client,
        _ => Trust::Agent,
    })
}

fn ask_parser() -> impl TypedValueParser<Value = Ask> {
    let values = PossibleValuesParser::new(["auto", "replay", "client", "page"]);
    values.map(|text| match text.as_str() {
        "client" => Ask::Client,
        "page" => Ask::Page,
        "replay" => Ask::Replay,
        _ => Ask::Auto,
    })
}

/// The flags that are not configuration keys.
fn server_flags() -> [Arg; 8] {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let level = PossibleValuesParser::new(levels).try_map(|text| text.parse::<LevelFilter>());
    [
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Read the configuration from a JSON file; no root may contain it"),
        Arg::new("http")
            .long("http")
            .value_name("ADDR:PORT")
            .value_parser(parse_loopback)
            .help("Serve Streamable HTTP on a loopback address, such as 127.0.0.1:8080, instead of stdio; other machines need a tunnel or proxy and --allow-host"),
        Arg::new("trust")
            .long("trust")
            .value_name("WHO")
            .value_parser(trust_parser())
            .help("The trust in clients: a host (agent framework) may configure and grant; a client (a program of a person) can only restrict, and may ask its user by elicitation; an agent can only restrict [default: client; with --http agent]"),
        Arg::new("grants")
            .long("grants")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Store permanent grants to agents in a file; no root may contain it; needs --trust host"),
        Arg::new("attach")
            .long("attach")
            .value_name("SOCKET")
            .value_parser(value_parser!(PathBuf))
            // The endpoint is configured by its host. Accepting restrictions that have no effect would be dangerous.
            .conflicts_with_all(conflicts_with_attach())
            .help("Forward stdio to the socket of a worker's endpoint, and serve nothing else"),
        Arg::new("ask")
            .long("ask")
            .value_name("HOW")
            .value_parser(ask_parser())
            .help("How calls that need approval are handled: client (elicitation), page (local web page), replay (a trusted host repeats the call with the missing scopes), or auto: the first of client, page (if started on a terminal) and replay that is possible [default: auto]"),
        Arg::new("rate")
            .long("rate")
            .value_name("N/UNIT")
            .value_parser(parse_rate)
            .help("The rate limit of each connection, in calls per second, minute or hour [default: 1000/second]"),
        Arg::new("log")
            .long("log")
            .value_name("LEVEL")
            .value_parser(level)
            .help("The level of the log on standard error [default: warn]"),
    ]
}

/// The audit flags.
fn audit_flags() -> [Arg; 2] {
    [
        Arg::new("audit")
            .long("audit")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Append the audit to a file of JSON lines; no root may contain it"),
        Arg::new("audit-segment-bytes")
            .long("audit-segment-bytes")
            .value_name("N")
            .requires("audit")
            .value_parser(value_parser!(u64))
            .help(format!(
                "Rotate the audit file before it exceeds N bytes (0: never); finished segments are named \
                 FILE.00000001 and so on, and are never deleted [default: {}]",
                JsonLines::SEGMENT_BYTES
            )),
    ]
}

/// The flags that have no effect with `--attach`.
fn conflicts_with_attach() -> impl Iterator<Item = clap::Id> {
    let server = [
        "config",
        "http",
        "trust",
        "audit",
        "audit-segment-bytes",
        "grants",
        "ask",
        "durability",
        "rate",
        "servers",
        ROOT,
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
        // Requires `=`, so that a following root is not parsed as the value.
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
