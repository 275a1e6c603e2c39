//! Runs the program with a servers file.

use std::ops::Deref;
use std::process::{Command, Output, Stdio};

use bailiwick_test_support::server::Server;
use bailiwick_test_support::temp_files::TempFiles;
use serde_json::{Value, json};

use crate::{PROGRAM, hostile_server};

/// A directory with a servers file and a directory for state.
pub(crate) struct Workspace(TempFiles);

impl Deref for Workspace {
    type Target = TempFiles;

    fn deref(&self) -> &TempFiles {
        &self.0
    }
}

impl Workspace {
    pub(crate) fn new(servers: &Value) -> Self {
        let files = TempFiles::new(&[("mcp.json", &servers.to_string())]);
        files.create_dir("state");
        Self(files)
    }

    fn program(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut program = self.command(PROGRAM, arguments);
        program
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .envs(variables.iter().copied());
        program
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.program(arguments, variables).output().unwrap()
    }

    /// A connected client of the program.
    pub(crate) fn client(&self, arguments: &[&str]) -> Server {
        self.client_with(arguments, &[], &json!({}))
    }

    /// A connected client of the program that has these capabilities.
    pub(crate) fn client_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
        capabilities: &Value,
    ) -> Server {
        let arguments = [&["serve", "--servers", "mcp.json"], arguments].concat();
        let mut program = self.program(&arguments, variables);
        let mut server = Server::start(program.stderr(Stdio::piped()));
        server.initialize(capabilities);
        server
    }
}

/// The `key` of each item of a list.
pub(crate) fn list(client: &mut Server, what: &str, key: &str) -> Vec<String> {
    let list = client.result(&format!("{what}/list"), json!({}));
    let field = if what == "resources/templates" {
        "resourceTemplates"
    } else {
        what
    };
    let items = list[field].as_array().unwrap().iter();
    items
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

/// An entry for the server that does what its arguments say.
pub(crate) fn hostile(arguments: &[&str]) -> Value {
    let command = [&hostile_server::command()[..], arguments].concat();
    json!({"command": command[0], "args": command[1..]})
}
