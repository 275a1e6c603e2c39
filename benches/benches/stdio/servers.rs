//! The servers to compare.

use std::path::{Path, PathBuf};

/// The names of tools and arguments that a server expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Bailiwick,
    RustMcp,
    Npm,
    Floor,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    /// The command, to which the directory to serve is appended.
    pub(crate) command: Vec<String>,
}

impl Server {
    fn new(name: &str, dialect: Dialect, command: &[&str]) -> Self {
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        Self {
            name: name.to_owned(),
            dialect,
            command,
        }
    }

    /// Parses `NAME=DIALECT:COMMAND`, whose command is split at spaces.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, rest) = text.split_once('=')?;
        let (dialect, command) = rest.split_once(':')?;
        let dialect = match dialect {
            "bailiwick" => Dialect::Bailiwick,
            "rust-mcp-filesystem" => Dialect::RustMcp,
            "npm" => Dialect::Npm,
            "floor" => Dialect::Floor,
            _ => return None,
        };
        let command: Vec<&str> = command.split_whitespace().collect();
        Some(Self::new(name, dialect, &command))
    }

    pub(crate) fn command(&self, root: &Path) -> Vec<String> {
        let mut command = self.command.clone();
        command.push(root.display().to_string());
        command
    }
}

/// Where the documented command installs the peers, and the folder of the built programs.
pub(crate) struct Folders {
    pub(crate) peers: PathBuf,
    profile: PathBuf,
}

impl Folders {
    /// # Panics
    /// If the bench is not in the target folder.
    pub(crate) fn find() -> Self {
        let this = std::env::current_exe().expect("the path of this program is known");
        let profile = this.ancestors().nth(2).expect("benches are in `deps`");
        let target = profile.parent().expect("profiles are in the target folder");
        Self {
            peers: target.join("peers"),
            profile: profile.to_owned(),
        }
    }

    /// An installed program.
    pub(crate) fn program(&self, name: &str) -> Option<String> {
        let installed = self.peers.join("bin").join(name);
        installed.exists().then(|| installed.display().to_string())
    }

    /// bailiwick, the floor, and the peers that are installed. bailiwick is copied to `directory`, as by an installation: the
    /// kernel caches what a linker has written in small pieces, which take longer to map.
    ///
    /// # Panics
    /// If bailiwick cannot be copied.
    pub(crate) fn servers(&self, directory: &Path) -> Vec<Server> {
        let own = self.profile.join("bailiwick");
        let mut servers = Vec::new();
        if own.exists() {
            let copy = directory.join("bailiwick");
            std::fs::copy(own, &copy).expect("bailiwick can be copied");
            let own = copy.display().to_string();
            let command = [&own, "serve", "--rate", "1000000/second"];
            servers.push(Server::new("bailiwick", Dialect::Bailiwick, &command));
        } else {
            println!(
                "bailiwick is left out: it is built by `cargo build --release -p bailiwick-cli`"
            );
        }
        if let Some(peer) = self.program("rust-mcp-filesystem") {
            let command = [&peer, "--allow-write"];
            servers.push(Server::new(
                "rust-mcp-filesystem",
                Dialect::RustMcp,
                &command,
            ));
        }
        let npm = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
        let npm = self.peers.join(npm);
        if npm.exists() {
            let command = ["node", &npm.display().to_string()];
            servers.push(Server::new("npm", Dialect::Npm, &command));
        }
        let floor = [env!("CARGO_BIN_EXE_stdio_floor")];
        servers.push(Server::new("floor", Dialect::Floor, &floor));
        let command = [floor[0], "--structured"];
        servers.push(Server::new("floor, structured", Dialect::Floor, &command));
        servers
    }
}
