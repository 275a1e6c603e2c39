//! Reads the servers file, starts third-party MCP servers, and reports what is not available.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::text::escape;
use bailiwick::{Policy, RuntimeBuilder};
use bailiwick_mcp::upstream::{
    Bounds, PinStore, PinStoreError, ServerSpec, ServerState, ServerTool, ServersContext,
    ServersError, SpecError, Upstreams, WithheldReason,
};
use serde_json::json;

use crate::bounded_file::{ReadError, read_text};
use crate::cli::{INPUT_PREFIX, ServersOptions, input_variable_suffix};
use crate::state;
use crate::table::table;

/// The role of the files in errors, and their maximum size in bytes.
const WHAT: &str = "servers file";
const MAX_BYTES: u64 = 1 << 20;
/// How long to wait for servers before clients are served without those that are still starting.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(15);
/// The number of hexadecimal digits of a fingerprint that are shown.
const FINGERPRINT_DIGITS: usize = 16;
/// The minimum number of digits that identify a fingerprint.
const MIN_FINGERPRINT_DIGITS: usize = 8;

/// Why servers cannot be started, or tools cannot be approved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerSetupError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("invalid servers file `{}`", .0.display())]
    File(PathBuf, #[source] ServersError),
    #[error(
        "no state directory for tool fingerprints: set HOME or XDG_STATE_HOME, or use --pins FILE"
    )]
    NoState,
    #[error("cannot create the directory `{}`", .0.display())]
    State(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Pins(#[from] PinStoreError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "invalid tool `{0}`: expected TOOL@FINGERPRINT as shown, with at least {MIN_FINGERPRINT_DIGITS} digits"
    )]
    InvalidTool(String),
    #[error("no server lists `{0}` with this fingerprint now; show the tools again")]
    NotListed(String),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Started servers.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    upstreams: Upstreams,
    /// Invalid entries of the file, with the reason.
    rejected: Vec<(String, String)>,
    /// The canonical paths of the files that no worker may access, since they contain secrets and commands.
    protected: Vec<PathBuf>,
}

/// A parsed servers file.
#[derive(Debug)]
pub(crate) struct ServersFile {
    specs: Vec<ServerSpec>,
    rejected: Vec<(String, String)>,
    protected: Vec<PathBuf>,
    store: PinStore,
    /// The timeout for connecting to a server.
    start_timeout: Duration,
}

/// The values of placeholders. Records the files that were read.
struct Context<'o> {
    options: &'o ServersOptions,
    read: RefCell<Vec<PathBuf>>,
}

impl ServersContext for Context<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.options.environment.variables.get(name).cloned()
    }

    fn input(&self, id: &str) -> Option<String> {
        self.options
            .environment
            .inputs
            .get(&input_variable_suffix(id))
            .cloned()
    }

    fn workspace_folder(&self) -> Option<String> {
        std::env::current_dir()
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    }

    fn user_home(&self) -> Option<String> {
        self.variable("HOME")
    }

    fn env_file(&self, path: &str) -> Option<String> {
        let text = read_text(WHAT, Path::new(path), MAX_BYTES).ok()?;
        self.read.borrow_mut().push(path.into());
        Some(text)
    }
}

impl ServersFile {
    /// Reads the file, and opens the pin store.
    ///
    /// # Errors
    /// [`ServerSetupError`] if a file cannot be read or the pin store cannot be opened.
    pub(crate) fn read(options: &ServersOptions) -> Result<Self, ServerSetupError> {
        let text = read_text(WHAT, &options.file, MAX_BYTES)?;
        let context = Context {
            options,
            read: RefCell::new(vec![options.file.clone()]),
        };
        let file = ServerSpec::read_all(&text, &context);
        let file = file.map_err(|error| ServerSetupError::File(options.file.clone(), error))?;
        let rejected = file.rejected.into_iter().map(|(name, error)| {
            let hint = match &error {
                ServersError::Input { input, .. } => {
                    format!(
                        "; set the variable `{INPUT_PREFIX}{}`",
                        input_variable_suffix(input)
                    )
                }
                _ => String::new(),
            };
            (name, format!("{error}{hint}"))
        });
        let files = context.read.into_inner().into_iter();
        let protected = files.map(|path| {
            let real = path.canonicalize();
            real.map_err(|source| ReadError::Io {
                what: WHAT,
                path,
                source,
            })
        });
        let protected = protected.collect::<Result<_, _>>()?;
        Ok(Self {
            specs: file.servers,
            rejected: rejected.collect(),
            protected,
            store: open_pins(options)?,
            start_timeout: Duration::from_secs(options.pins.start_timeout),
        })
    }

    /// Starts the servers. Servers that take longer than `wait` continue to start in the background.
    ///
    /// # Errors
    /// [`ServerSetupError`] if a server name is invalid.
    pub(crate) async fn start(self, wait: Duration) -> Result<Servers, ServerSetupError> {
        let upstreams = Upstreams::builder()
            .servers(self.specs)
            .bounds(Bounds {
                connect: self.start_timeout,
                ..Bounds::default()
            })
            .pin_store(self.store)
            .forward_requests()
            .start_within(wait);
        Ok(Servers {
            upstreams: upstreams.start().await?,
            rejected: self.rejected,
            protected: self.protected,
        })
    }
}

impl Servers {
    /// Adds the servers to a runtime, and denies access to the protected files. `roots` may contain symbolic links.
    pub(crate) fn add_to(&self, builder: RuntimeBuilder, roots: &[PathBuf]) -> RuntimeBuilder {
        let mut protected = self.protected.clone();
        for root in roots {
            // Opening the root will fail later.
            let Ok(real) = root.canonicalize() else {
                continue;
            };
            let inside = self.protected.iter().map(|file| file.strip_prefix(&real));
            protected.extend(inside.flatten().map(|rest| root.join(rest)));
        }
        let policy = protected.iter().fold(Policy::new(), |policy, file| {
            let file = file.display();
            let policy = policy.deny(&format!("read:file:{file}"));
            policy.deny(&format!("write:file:{file}"))
        });
        builder.servers(&self.upstreams).policy(policy)
    }

    /// Stops the servers.
    pub(crate) async fn shutdown(&self) {
        self.upstreams.shutdown().await;
    }

    /// A line for each entry, server and tool that is not available.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let upstreams = &self.upstreams;
        let mut lines = Vec::new();
        for (name, why) in &self.rejected {
            lines.push(format!("the server `{name}` is not used: {why}"));
        }
        for name in upstreams.names() {
            if let Some(why) = unavailable_reason(upstreams, name) {
                lines.push(format!("the server `{name}` is not available: {why}"));
            }
            for tool in upstreams.tools(name) {
                if let Err(why) = tool.offered {
                    lines.push(format!(
                        "the tool `{}` of the server `{name}` is withheld: {why}",
                        tool.tool
                    ));
                }
            }
        }
        let needs_review =
            |why: &WithheldReason| matches!(why, WithheldReason::Changed | WithheldReason::New);
        let tools = upstreams.names().flat_map(|name| upstreams.tools(name));
        if tools
            .filter_map(|tool| tool.offered.err())
            .any(|why| needs_review(&why))
        {
            lines.push("review changed tools with `bailiwick servers FILE`; approved tools are offered at once".to_owned());
        }
        lines
    }

    /// Instructions for models about the servers.
    pub(crate) fn instructions(&self) -> String {
        let upstreams = &self.upstreams;
        let (connected, missing): (Vec<&str>, Vec<&str>) = upstreams
            .names()
            .partition(|name| unavailable_reason(upstreams, name).is_none());
        let mut text = String::new();
        if !connected.is_empty() {
            let names: Vec<String> = connected.iter().map(|name| format!("`{name}`")).collect();
            text += &format!(
                "Tools and prompts named `SERVER__NAME` belong to the MCP servers {}; a person may be asked before a call.",
                names.join(", ")
            );
        }
        let rejected = self.rejected.iter().map(|(name, _)| name.as_str());
        let missing: Vec<String> = missing
            .into_iter()
            .chain(rejected)
            .map(|name| format!("`{name}`"))
            .collect();
        if !missing.is_empty() {
            text += &format!(" Not available now: {}.", missing.join(", "));
        }
        text.trim_start().to_owned()
    }
}

/// Why a server is not available; `None` if it is connected.
fn unavailable_reason(upstreams: &Upstreams, name: &str) -> Option<String> {
    match upstreams.state(name)? {
        ServerState::Ready => None,
        ServerState::Starting => Some("still starting".to_owned()),
        _ => {
            let failure = upstreams.failure(name);
            Some(failure.map_or_else(|| "not connected".to_owned(), |it| it.to_string()))
        }
    }
}

/// The path of the pin store, which may not exist yet.
pub(crate) fn pins_file(options: &ServersOptions) -> Result<PathBuf, ServerSetupError> {
    match &options.pins.pins {
        Some(file) => Ok(file.clone()),
        None => Ok(state_dir(options)?.join("pins")),
    }
}

fn state_dir(options: &ServersOptions) -> Result<PathBuf, ServerSetupError> {
    let folder = state::dir(|name| options.environment.variables.get(name).map(PathBuf::from));
    folder.ok_or(ServerSetupError::NoState)
}

fn open_pins(options: &ServersOptions) -> Result<PinStore, ServerSetupError> {
    if options.pins.pins.is_none() {
        let folder = state_dir(options)?;
        state::create(&folder).map_err(|source| ServerSetupError::State(folder, source))?;
    }
    Ok(PinStore::open(pins_file(options)?)?)
}

/// Runs the command: approves tools, then lists servers and tools.
///
/// # Errors
/// [`ServerSetupError`]
pub(crate) async fn run(
    options: &ServersOptions,
    tools: &[String],
    json: bool,
) -> Result<String, ServerSetupError> {
    let file = ServersFile::read(options)?;
    let wait = file.start_timeout;
    let servers = file.start(wait).await?;
    let output = match approve(&servers.upstreams, tools).await {
        Ok(()) => format_servers(&servers, json),
        Err(error) => Err(error),
    };
    servers.shutdown().await;
    output
}

async fn approve(upstreams: &Upstreams, wanted: &[String]) -> Result<(), ServerSetupError> {
    for text in wanted {
        let invalid = || ServerSetupError::InvalidTool(escape(text).into_owned());
        let (name, digits) = text.split_once('@').ok_or_else(invalid)?;
        let (server, _) = name.split_once("__").ok_or_else(invalid)?;
        if digits.len() < MIN_FINGERPRINT_DIGITS {
            return Err(invalid());
        }
        let is_match = |tool: &ServerTool| {
            display_name(server, tool) == name && tool.fingerprint.to_string().starts_with(digits)
        };
        let tool = upstreams.tools(server).into_iter().find(is_match);
        let missing = || ServerSetupError::NotListed(escape(text).into_owned());
        let tool = tool.ok_or_else(missing)?;
        if !upstreams
            .approve(server, &tool.tool, tool.fingerprint)
            .await?
        {
            return Err(missing());
        }
    }
    Ok(())
}

/// The name of a tool for models.
fn display_name(server: &str, tool: &ServerTool) -> String {
    match &tool.offered {
        Ok((name, _)) => name.clone(),
        Err(_) => format!("{server}__{}", tool.tool),
    }
}

/// The shown prefix of a tool's fingerprint.
fn short_fingerprint(tool: &ServerTool) -> String {
    tool.fingerprint
        .to_string()
        .chars()
        .take(FINGERPRINT_DIGITS)
        .collect()
}

fn format_servers(servers: &Servers, json: bool) -> Result<String, ServerSetupError> {
    let Servers {
        upstreams,
        rejected,
        ..
    } = servers;
    let mut rows = Vec::new();
    for (name, why) in rejected {
        rows.push((name.clone(), None, format!("not used: {why}")));
    }
    for name in upstreams.names() {
        let state = unavailable_reason(upstreams, name);
        let state = state.map_or_else(
            || "connected".to_owned(),
            |why| format!("not available: {why}"),
        );
        rows.push((name.to_owned(), None, state));
        for tool in upstreams.tools(name) {
            let state = match &tool.offered {
                Ok((_, verb)) => format!("{verb}s"),
                Err(why @ (WithheldReason::Changed | WithheldReason::New)) => {
                    format!("withheld: {why}. Description: {}", tool.description)
                }
                Err(why) => format!("withheld: {why}"),
            };
            rows.push((name.to_owned(), Some(tool), state));
        }
    }
    if json {
        let line = |(server, tool, state): &(String, Option<ServerTool>, String)| match tool {
            None => json!({"server": server, "state": state}),
            Some(tool) => json!({
                "server": server, "tool": display_name(server, tool), "form": short_fingerprint(tool),
                "offered": tool.offered.is_ok(), "state": state,
            }),
        };
        let lines = rows.iter().map(|row| serde_json::to_string(&line(row)));
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
    }
    let row = |(server, tool, state): (String, Option<ServerTool>, String)| match tool {
        None => [server, String::new(), state],
        Some(tool) => {
            let name = display_name(&server, &tool);
            [
                String::new(),
                format!("{name}@{}", short_fingerprint(&tool)),
                state,
            ]
        }
    };
    Ok(table(
        ["SERVER", "TOOL", "STATE"],
        rows.into_iter().map(row),
    ))
}
