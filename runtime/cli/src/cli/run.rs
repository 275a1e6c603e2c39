//! The command line of `bailiwick run`, and the flags of commands.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use bailiwick_exec::{Commands, Layer};
use clap::Args;

use super::CliError;
use super::command::one_of;
use super::variables::Variables;
use crate::paths;

const ABOUT: &str = "Runs one command in the sandbox of `run_command`, the tool of `serve --exec`.

The command can read what the configuration allows, change what it allows to be changed without a question, and nothing \
else of this machine except the programs and libraries of the system. It has none of the variables of the environment, \
except TERM, and no network unless --network and --allow execute:network:HOST name hosts. Without --root, it can use the current directory. Protected files, such as those in `.git`, can be \
read only; with --overlay, changes of them are shown with the others. `read_only` denies all commands; to deny changes only, use --deny-scopes write:file. The configuration is read as by `serve`, from --config, variables and flags. The command needs no \
`execute` scope, but a scope or key that denies it counts.
It has the standard streams of this program, but no controlling terminal. If this program is interrupted or killed, \
everything that the command has started is killed.

Exit status: that of the command; 128 + N if signal N ended it; 127 if there is no such program; 126 if it cannot be run or \
the configuration denies it; 125 if it was not run for another reason.";

const EXAMPLES: &str = "\
Examples:
  bailiwick run -- make test                             run the tests in the current directory
  bailiwick run --deny .env --deny-scopes write:file -- ./lint
                                                         without .env files, and without changes
  bailiwick run --overlay -- npm install                 see what it would change, then apply it or not
  bailiwick run --network --allow execute:network:crates.io -- cargo fetch
                                                         with connections to one host, through a proxy
  bailiwick run --toolchain \"$(rustc --print sysroot)\" -- cargo test --offline
                                                         with a toolchain outside the system's directories";

/// Run a command in a sandbox
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXAMPLES)]
pub(super) struct RunFlags {
    /// A directory that the command can use, or a root as JSON; repeatable [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(super) root: Vec<String>,
    /// Read the configuration from a JSON file; no root may contain it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Keep the changes of the command apart: when it has ended, the terminal shows them and asks whether to apply them
    #[arg(long)]
    pub(super) overlay: bool,
    #[command(flatten)]
    pub(super) commands: CommandFlags,
    /// The program and its arguments; no shell is involved
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(super) argv: Vec<String>,
}

/// The flags of commands in sandboxes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommandFlags {
    /// A directory outside the roots that commands can read, such as a toolchain; the programs in its directory `bin` can
    /// be run by name; repeatable
    #[arg(long, value_name = "DIR")]
    toolchain: Vec<PathBuf>,
    /// A variable in the environment of commands; without a value, that of this program; repeatable
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Layers of the sandbox that may be missing, such as namespaces in a container; without it, commands are refused if a
    /// layer is missing. `bailiwick doctor` reports what is missing and why
    #[arg(long, value_name = "LAYER", value_delimiter = ',', value_parser = one_of(&OPTIONAL_LAYERS))]
    pub(super) optional_layers: Vec<Layer>,
}

/// The layers of [`CommandFlags::optional_layers`]. Overlayfs is always optional.
const OPTIONAL_LAYERS: [(&str, Layer); 7] = [
    ("namespaces", Layer::Namespaces),
    ("proc", Layer::Proc),
    ("process-limit", Layer::ProcessLimit),
    ("landlock", Layer::Landlock),
    ("seccomp", Layer::Seccomp),
    ("capabilities", Layer::Capabilities),
    ("cleanup", Layer::Cleanup),
];

impl CommandFlags {
    /// Rejects toolchains that contain files which commands must not read.
    pub(super) fn keep_out(&self, files: &[PathBuf]) -> Result<(), CliError> {
        for path in &self.toolchain {
            if let Some(held) = files.iter().find(|file| paths::holds(path, file)) {
                let (path, held) = (path.clone(), paths::real(held));
                return Err(CliError::ToolchainHolds { path, held });
            }
        }
        Ok(())
    }

    /// Adds these flags to the tool.
    pub(super) fn add_to(
        &self,
        mut commands: Commands,
        variables: &Variables,
    ) -> Result<Commands, CliError> {
        for path in &self.toolchain {
            let found = path.canonicalize().and_then(|found| {
                if found.is_dir() {
                    Ok(found)
                } else {
                    Err(io::ErrorKind::NotADirectory.into())
                }
            });
            let found = found.map_err(|source| CliError::Toolchain {
                path: path.clone(),
                source,
            })?;
            commands = commands.search(found.join("bin")).system(found);
        }
        for variable in &self.env {
            let (name, value) = match variable.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (variable.as_str(), variable_of(variables, variable)?),
            };
            if name.is_empty() {
                return Err(CliError::Env(variable.clone()));
            }
            commands = commands.env(name, value);
        }
        Ok(commands.optional(&self.optional_layers))
    }
}

fn variable_of(variables: &Variables, name: &str) -> Result<String, CliError> {
    let mut found = variables.iter().filter(|(known, _)| known == name);
    let (_, value) = found.next().ok_or_else(|| CliError::Env(name.to_owned()))?;
    let value: OsString = value.clone();
    value
        .into_string()
        .map_err(|_| CliError::NotUtf8(name.to_owned()))
}
