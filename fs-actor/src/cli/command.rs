//! The table of fields in, the command line that sets them out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bailiwick::config::{Key, ValueKind};
use bailiwick::{Description, JsonLines, Rate, Trust, config_schema};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tracing::level_filters::LevelFilter;

use super::{Ask, CliError, check, durability, grants, http, record, servers};

/// The id of the directories that are named without a flag.
pub(super) const ROOT: &str = "ROOT";

/// A flag that shows a text and serves nothing.
pub(super) struct Shown {
    pub(super) flag: &'static str,
    about: &'static str,
    pub(super) text: fn(&ArgMatches) -> Result<String, CliError>,
}

/// The flags that show a text, one line a flag.
pub(super) const SHOWN: &[Shown] = &[
    Shown {
        flag: "print-config-schema",
        about: "Print the JSON Schema of the configuration",
        text: |_| Ok(format!("{:#}", durability::in_schema(config_schema()))),
    },
    Shown {
        flag: "ai-help",
        about: "Print what an agent should know of this server; --format and --section choose form and part",
        text: ai_help,
    },
    Shown {
        flag: "skill",
        about: "Print a SKILL.md for agents that use skills",
        text: |matches| Ok(described(matches).skill()),
    },
    Shown {
        flag: "registry-entry",
        about: "Print the entry of this server for a registry, as JSON",
        text: |matches| Ok(format!("{:#}", described(matches).registry_entry())),
    },
];

/// The description of the server that these arguments would start.
fn described(matches: &ArgMatches) -> Description {
    let rate: Rate = matches.get_one("rate").copied().unwrap_or_default();
    bailiwick_fs::description().rate(rate.to_string())
}

fn ai_help(matches: &ArgMatches) -> Result<String, CliError> {
    let description = described(matches);
    let section = matches.get_one::<String>("section").map(String::as_str);
    match matches.get_one::<String>("format").map(String::as_str) {
        Some("json") => Ok(format!("{:#}", description.json(section)?)),
        _ => Ok(description.markdown(section)?),
    }
}

/// The flags that choose what `--ai-help` prints.
fn of_help() -> [Arg; 2] {
    [
        Arg::new("format")
            .long("format")
            .value_name("FORMAT")
            .requires("ai-help")
            .value_parser(PossibleValuesParser::new(["markdown", "json"]))
            .help("The form of --ai-help [default: markdown]"),
        Arg::new("section")
            .long("section")
            .value_name("SECTION")
            .requires("ai-help")
            .help("The one section of --ai-help to print, such as when-to-use"),
    ]
}

const ABOUT: &str = "Serves file tools over MCP, confined to the directories named.

Each field of the configuration is set by its flag, by its variable, in the configuration file or by the client at \
initialize: initialize prevails over flags, flags over variables, variables over the file, key by key. Lists that only \
take away (deny, immutable, deny-scopes, protect) hold what any of them names.
The directories named are the boundary: nothing outside them is read or changed, unless --grantable names it and a person \
allows it. Without a directory, the client says which (its workspace folders).
A glob without `/`, such as `*.pem`, is for names at any depth; one with `/` begins at the top of each root.
A list is given by repeating its flag, or with commas or line breaks between its items, or as JSON. A ROOT is one \
directory, commas and all.

Examples:
  bailiwick-fs ./my-repo
  bailiwick-fs --servers mcp.json --allow read:mcp:notes ./my-repo

The first argument may be one of the commands below instead, which serve nothing; a directory of such a name is served as \
./NAME.";

const EXAMPLES: &str = "\
Examples:
  bailiwick-fs ./my-repo                            serve a directory over stdio
  bailiwick-fs --read-only --deny .env ./my-repo    let nobody write, or read .env files
  bailiwick-fs --http 127.0.0.1:8080 ./my-repo      serve it over HTTP on this machine
  claude mcp add files -- bailiwick-fs ./my-repo    add it to Claude Code";

/// The whole command line.
pub(super) fn command() -> Command {
    let fields = Key::settable().map(field);
    let shown = SHOWN.iter().map(|shown| {
        Arg::new(shown.flag)
            .long(shown.flag)
            .help(shown.about)
            .action(ArgAction::SetTrue)
    });
    Command::new("bailiwick-fs")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Serves file tools over MCP, confined to the directories named")
        .long_about(ABOUT)
        .after_help(EXAMPLES)
        .arg(
            Arg::new(ROOT)
                .help("A directory to serve, or JSON of a root; relative paths of tools begin in the first")
                .action(ArgAction::Append),
        )
        .args(server())
        .args(http::flags())
        .args(of_audit())
        .arg(durability::flag())
        .args(servers::flags())
        .args(shown)
        .args(of_help())
        .subcommands(record::commands())
        .subcommands(grants::commands())
        .subcommand(servers::command())
        .subcommand(check::command())
        // Beside other arguments the name of a command is that of a directory.
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true)
        .next_help_heading("Fields of the configuration")
        .args(fields)
}

fn trust() -> impl TypedValueParser<Value = Trust> {
    let words = PossibleValuesParser::new(["host", "client", "agent"]);
    words.map(|text| match text.as_str() {
        "host" => Trust::Host,
        "client" => Trust::Client,
        _ => Trust::Agent,
    })
}

fn ask() -> impl TypedValueParser<Value = Ask> {
    let words = PossibleValuesParser::new(["auto", "replay", "client", "page"]);
    words.map(|text| match text.as_str() {
        "client" => Ask::Client,
        "page" => Ask::Page,
        "replay" => Ask::Replay,
        _ => Ask::Auto,
    })
}

/// Flags that set no configuration key.
fn server() -> [Arg; 8] {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let level = PossibleValuesParser::new(levels).try_map(|text| text.parse::<LevelFilter>());
    [
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Read the configuration from a JSON file; no root may hold it"),
        Arg::new("http")
            .long("http")
            .value_name("ADDR:PORT")
            .value_parser(loopback)
            .help("Serve Streamable HTTP on a loopback address, such as 127.0.0.1:8080, instead of stdio; others are refused, so other machines need a tunnel or proxy and --allow-host"),
        Arg::new("trust")
            .long("trust")
            .value_name("WHO")
            .value_parser(trust())
            .help("Who connects: a host (agent framework) may configure and grant; a client (a person's program) can only restrict, and its person may be asked; an agent can only restrict [default: client; with --http agent]"),
        Arg::new("grants")
            .long("grants")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Keep what people grant to agents for good in a file; no root may hold it, and whoever connects must be trusted"),
        Arg::new("attach")
            .long("attach")
            .value_name("SOCKET")
            .value_parser(value_parser!(PathBuf))
            // What it joins is configured elsewhere: to take a restriction and not to keep it would be worse than to refuse.
            .conflicts_with_all(unheeded())
            .help("Join stdio to the socket of a worker's endpoint, and serve nothing else"),
        Arg::new("ask")
            .long("ask")
            .value_name("HOW")
            .value_parser(ask())
            .help("How calls that need approval are handled: client (its person is asked by elicitation), page (a local web page), replay (a trusted host sends the call again with scopes), or auto: the first of client, page (if started on a terminal) and replay that is possible [default: auto]"),
        Arg::new("rate")
            .long("rate")
            .value_name("N/UNIT")
            .value_parser(rate)
            .help("How many calls one connection may make a second, minute or hour [default: 1000/second]"),
        Arg::new("log")
            .long("log")
            .value_name("LEVEL")
            .value_parser(level)
            .help("What is logged to standard error [default: warn]"),
    ]
}

/// The flags of the audit.
fn of_audit() -> [Arg; 2] {
    [
        Arg::new("audit")
            .long("audit")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Append the audit to a file of JSON lines; no root may hold it"),
        Arg::new("audit-segment-bytes")
            .long("audit-segment-bytes")
            .value_name("N")
            .requires("audit")
            .value_parser(value_parser!(u64))
            .help(format!(
                "Rotate the audit file before it grows beyond N bytes, or never if N is 0; finished segments are named \
                 FILE.00000001 and so on, and are never deleted [default: {}]",
                JsonLines::SEGMENT_BYTES
            )),
    ]
}

/// What a program that only joins a socket could not heed.
fn unheeded() -> impl Iterator<Item = clap::Id> {
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

/// The flag of a field.
fn field(field: &'static Key) -> Arg {
    let arg = Arg::new(field.flag()).long(field.flag()).help(format!(
        "{} [env: {}]",
        field.about,
        field.variable()
    ));
    match field.kind {
        // Its value is joined by `=`, so that a root after it is not taken for one.
        ValueKind::Flag => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        ValueKind::Count => arg.value_name("N"),
        ValueKind::Text => arg.value_name("TEXT"),
        ValueKind::Path => arg.value_name("PATH"),
        ValueKind::OneOf(words) => arg.value_name(words.all().join("|")),
        ValueKind::ListOf(words) => repeated(arg, &words.all().join("|")),
        ValueKind::Names => repeated(arg, "NAME"),
        ValueKind::Globs => repeated(arg, "GLOB"),
        ValueKind::Patterns => repeated(arg, "SCOPE"),
        ValueKind::Object | ValueKind::Policy => arg.value_name("JSON"),
        ValueKind::Objects => repeated(arg, "PATH|JSON"),
    }
}

fn repeated(arg: Arg, name: &str) -> Arg {
    arg.value_name(name.to_owned()).action(ArgAction::Append)
}

/// Why an address is not listened on.
#[derive(Debug, thiserror::Error)]
enum AddressError {
    #[error("must be an IP address and a port, such as 127.0.0.1:8080")]
    NoAddress(#[from] std::net::AddrParseError),
    #[error(
        "must be an address of this machine alone, such as 127.0.0.1:8080; other machines need a tunnel or proxy (--allow-host)"
    )]
    NotLoopback,
}

/// Why a rate is none.
#[derive(Debug, thiserror::Error)]
#[error("must be a number above 0 and `second`, `minute` or `hour`, such as 100/minute")]
struct NoRate;

fn rate(text: &str) -> Result<Rate, NoRate> {
    let (calls, unit) = text.split_once('/').ok_or(NoRate)?;
    let seconds = match unit {
        "second" => 1,
        "minute" => 60,
        "hour" => 3600,
        _ => return Err(NoRate),
    };
    let calls = calls.parse().ok().filter(|calls| *calls > 0);
    Ok(Rate {
        calls: calls.ok_or(NoRate)?,
        per: Duration::from_secs(seconds),
    })
}

fn loopback(text: &str) -> Result<SocketAddr, AddressError> {
    let address: SocketAddr = text.parse()?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(AddressError::NotLoopback)
    }
}
