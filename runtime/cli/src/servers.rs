//! Third-party MCP servers: reads the file that names them, starts them, and tells what cannot be used.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bailiwick::{
    Bounds, PinStore, PinStoreError, Policy, RuntimeBuilder, ServerSpec, ServerState, ServerTool,
    ServersContext, ServersError, SpecError, Upstreams, WithheldReason, escape,
};
use serde_json::json;

use crate::cli::{INPUT, ServersCommand, ServersOptions, input_name};
use crate::state;
use crate::table::table;

/// The largest file that is read, in bytes.
const MOST: u64 = 1 << 20;
/// How long a client waits for the servers before it is served without those that are still starting.
pub(crate) const START: Duration = Duration::from_secs(15);
/// How many hexadecimal digits of a form are shown.
const FORM: usize = 16;
/// How many of them name a form at least.
const LEAST_FORM: usize = 8;

/// Why servers cannot be started or approved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServersFault {
    #[error("cannot read the file of servers `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("the file of servers `{}` is larger than {MOST} bytes", .0.display())]
    Large(PathBuf),
    #[error("the file of servers `{}` cannot be used", .0.display())]
    File(PathBuf, #[source] ServersError),
    #[error(
        "no state directory for the remembered tools: set HOME or XDG_STATE_HOME, or name a file with --pins"
    )]
    NoState,
    #[error("cannot create the directory `{}`", .0.display())]
    State(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Pins(#[from] PinStoreError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "`{0}` does not name a form of a tool; use TOOL@FORM as shown, with at least {LEAST_FORM} digits"
    )]
    Form(String),
    #[error("no server lists `{0}` in that form now; look at it again")]
    NotListed(String),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// The servers of a file, started.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    upstreams: Upstreams,
    /// The entries that cannot be used, with the reason.
    rejected: Vec<(String, String)>,
    /// Where the files really are that no worker reads or changes: they hold secrets, and say what is started.
    kept: Vec<PathBuf>,
}

/// The file that names servers, as it was read; none of them is started.
#[derive(Debug)]
pub(crate) struct ServersFile {
    specs: Vec<ServerSpec>,
    rejected: Vec<(String, String)>,
    kept: Vec<PathBuf>,
    pins: PathBuf,
    store: PinStore,
    /// How long a server may take to connect.
    start_timeout: Duration,
}

/// What the placeholders stand for where the program was started.
struct Context<'o> {
    options: &'o ServersOptions,
    read: RefCell<Vec<PathBuf>>,
}

impl ServersContext for Context<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.options.variables.get(name).cloned()
    }

    fn input(&self, id: &str) -> Option<String> {
        self.options.inputs.get(&input_name(id)).cloned()
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
        let text = read(Path::new(path)).ok()?;
        self.read.borrow_mut().push(path.into());
        Some(text)
    }
}

impl ServersFile {
    /// Reads the file, and opens the one in which tools are remembered.
    ///
    /// # Errors
    /// [`ServersFault`] if none of the file can be read, or the tools cannot be remembered.
    pub(crate) fn read(options: &ServersOptions) -> Result<Self, ServersFault> {
        let text = read(&options.file)?;
        let context = Context {
            options,
            read: RefCell::new(vec![options.file.clone()]),
        };
        let file = ServerSpec::read_all(&text, &context);
        let file = file.map_err(|error| ServersFault::File(options.file.clone(), error))?;
        let rejected = file.rejected.into_iter().map(|(name, error)| {
            let hint = match &error {
                ServersError::Input { input, .. } => {
                    format!("; set the variable `{INPUT}{}`", input_name(input))
                }
                _ => String::new(),
            };
            (name, format!("{error}{hint}"))
        });
        let files = context.read.into_inner().into_iter();
        let kept = files.map(|path| {
            let real = path.canonicalize();
            real.map_err(|source| ServersFault::Read(path, source))
        });
        let kept = kept.collect::<Result<_, _>>()?;
        let pins = pins(options)?;
        Ok(Self {
            specs: file.servers,
            rejected: rejected.collect(),
            kept,
            store: PinStore::open(&pins)?,
            pins,
            start_timeout: options.start_timeout,
        })
    }

    /// The file in which tools are remembered.
    pub(crate) fn pins(&self) -> &Path {
        &self.pins
    }

    /// Starts the servers. Those that take longer than `wait` go on starting.
    ///
    /// # Errors
    /// [`ServersFault`] if a server cannot be named so.
    pub(crate) async fn start(self, wait: Duration) -> Result<Servers, ServersFault> {
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
            kept: self.kept,
        })
    }
}

impl Servers {
    /// A runtime that offers what the servers have. A root is at the path that it was given, which may lead through links.
    pub(crate) fn offered(&self, builder: RuntimeBuilder, roots: &[PathBuf]) -> RuntimeBuilder {
        let mut kept = self.kept.clone();
        for root in roots {
            // What cannot be opened is refused when it is.
            let Ok(real) = root.canonicalize() else {
                continue;
            };
            let inside = self.kept.iter().map(|file| file.strip_prefix(&real));
            kept.extend(inside.flatten().map(|rest| root.join(rest)));
        }
        let policy = kept.iter().fold(Policy::new(), |policy, file| {
            let file = file.display();
            let policy = policy.deny(&format!("read:file:{file}"));
            policy.deny(&format!("write:file:{file}"))
        });
        builder.servers(&self.upstreams).policy(policy)
    }

    /// Ends the servers.
    pub(crate) async fn shutdown(&self) {
        self.upstreams.shutdown().await;
    }

    /// One line for each entry, server and tool that cannot be used now.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let upstreams = &self.upstreams;
        let mut lines = Vec::new();
        for (name, why) in &self.rejected {
            lines.push(format!("the server `{name}` is not used: {why}"));
        }
        for name in upstreams.names() {
            if let Some(why) = unavailable(upstreams, name) {
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
        let reviewed =
            |why: &WithheldReason| matches!(why, WithheldReason::Changed | WithheldReason::New);
        let tools = upstreams.names().flat_map(|name| upstreams.tools(name));
        if tools
            .filter_map(|tool| tool.offered.err())
            .any(|why| reviewed(&why))
        {
            lines.push("review tools that changed with `bailiwick servers FILE`; those that you approve are offered at once".to_owned());
        }
        lines
    }

    /// What a model is told of the servers.
    pub(crate) fn instructions(&self) -> String {
        let upstreams = &self.upstreams;
        let (there, missing): (Vec<&str>, Vec<&str>) = upstreams
            .names()
            .partition(|name| unavailable(upstreams, name).is_none());
        let mut text = String::new();
        if !there.is_empty() {
            let names: Vec<String> = there.iter().map(|name| format!("`{name}`")).collect();
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

/// Why a server is not connected; none if it is.
fn unavailable(upstreams: &Upstreams, name: &str) -> Option<String> {
    match upstreams.state(name)? {
        ServerState::Ready => None,
        ServerState::Starting => Some("it is still starting".to_owned()),
        _ => {
            let failure = upstreams.failure(name);
            Some(failure.map_or_else(|| "it is not connected".to_owned(), |it| it.to_string()))
        }
    }
}

fn read(path: &Path) -> Result<String, ServersFault> {
    let failed = |source| ServersFault::Read(path.to_owned(), source);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MOST {
        return Err(ServersFault::Large(path.to_owned()));
    }
    Ok(text)
}

/// Where tools are remembered.
fn pins(options: &ServersOptions) -> Result<PathBuf, ServersFault> {
    if let Some(file) = &options.pins {
        return Ok(file.clone());
    }
    let folder = state::folder(|name| options.variables.get(name).map(PathBuf::from));
    let folder = folder.ok_or(ServersFault::NoState)?;
    state::create(&folder).map_err(|source| ServersFault::State(folder.clone(), source))?;
    Ok(folder.join("pins"))
}

/// Shows servers and their tools, approved as wanted.
///
/// # Errors
/// [`ServersFault`]
pub(crate) async fn look(command: &ServersCommand) -> Result<String, ServersFault> {
    let file = ServersFile::read(&command.options)?;
    let servers = file.start(command.options.start_timeout).await?;
    let shown = match approve(&servers.upstreams, &command.approve).await {
        Ok(()) => show(&servers, command.json),
        Err(error) => Err(error),
    };
    servers.shutdown().await;
    shown
}

async fn approve(upstreams: &Upstreams, wanted: &[String]) -> Result<(), ServersFault> {
    for text in wanted {
        let form = || ServersFault::Form(escape(text).into_owned());
        let (name, digits) = text.split_once('@').ok_or_else(form)?;
        let (server, _) = name.split_once("__").ok_or_else(form)?;
        if digits.len() < LEAST_FORM {
            return Err(form());
        }
        let is_it = |tool: &ServerTool| {
            shown_name(server, tool) == name && tool.fingerprint.to_string().starts_with(digits)
        };
        let tool = upstreams.tools(server).into_iter().find(is_it);
        let missing = || ServersFault::NotListed(escape(text).into_owned());
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

/// What models call a tool, or would.
fn shown_name(server: &str, tool: &ServerTool) -> String {
    match &tool.offered {
        Ok((name, _)) => name.clone(),
        Err(_) => format!("{server}__{}", tool.tool),
    }
}

/// The beginning of a tool's form that `--approve` takes.
fn shown_form(tool: &ServerTool) -> String {
    tool.fingerprint.to_string().chars().take(FORM).collect()
}

fn show(servers: &Servers, json: bool) -> Result<String, ServersFault> {
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
        let state = unavailable(upstreams, name);
        let state = state.map_or_else(
            || "connected".to_owned(),
            |why| format!("not available: {why}"),
        );
        rows.push((name.to_owned(), None, state));
        for tool in upstreams.tools(name) {
            let state = match &tool.offered {
                Ok((_, verb)) => format!("{verb}s"),
                Err(why @ (WithheldReason::Changed | WithheldReason::New)) => {
                    format!("withheld: {why}. It says: {}", tool.description)
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
                "server": server, "tool": shown_name(server, tool), "form": shown_form(tool),
                "offered": tool.offered.is_ok(), "state": state,
            }),
        };
        let lines = rows.iter().map(|row| serde_json::to_string(&line(row)));
        return Ok(lines.collect::<Result<Vec<_>, _>>()?.join("\n"));
    }
    let row = |(server, tool, state): (String, Option<ServerTool>, String)| match tool {
        None => [server, String::new(), state],
        Some(tool) => {
            let name = shown_name(&server, &tool);
            [
                String::new(),
                format!("{name}@{}", shown_form(&tool)),
                state,
            ]
        }
    };
    Ok(table(
        ["SERVER", "TOOL", "STATE"],
        rows.into_iter().map(row),
    ))
}
