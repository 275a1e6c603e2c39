//! Fifteen third-party servers in one servers file.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bailiwick_test_support::chromium;
use serde_json::{Value, json};

use crate::PROGRAM;
use crate::installed::{Environment, node, package, python_program};

/// What the web site answers that `fetch` reads.
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html><body><h1>Tide table</h1>\
                    <p>High water at noon.</p></body></html>";

/// The names of the servers, in order.
pub(crate) const NAMES: [&str; 15] = [
    "browser",
    "calculator",
    "clock",
    "duckdb",
    "everything",
    "fetch",
    "files",
    "git",
    "memory",
    "notes",
    "sheets",
    "shell",
    "sqlite",
    "thinking",
    "time",
];

/// The variable by which the programs of the servers are found.
const MARK: &str = "BESIDE";

/// A folder with `mcp.json` and what its servers work on; `calculator` and the web site run until it is dropped.
pub(crate) struct ThirdParty {
    dir: tempfile::TempDir,
    /// Where the web site is.
    pub(crate) site: String,
    bridge: Child,
}

impl ThirdParty {
    /// With all servers, and entries that cannot be used.
    pub(crate) async fn new() -> Self {
        Self::with(&NAMES).await
    }

    /// With the servers of these names alone. Installs what is missing.
    pub(crate) async fn with(names: &[&str]) -> Self {
        let (node, scripts) = tokio::task::spawn_blocking(|| {
            let scripts = [
                "@modelcontextprotocol/server-everything/dist/index.js",
                "@modelcontextprotocol/server-filesystem/dist/index.js",
                "@modelcontextprotocol/server-memory/dist/index.js",
                "@modelcontextprotocol/server-sequential-thinking/dist/index.js",
                "@modelcontextprotocol/server-basic-vanillajs/dist/index.js",
                "@playwright/mcp/cli.js",
                "@negokaz/excel-mcp-server/dist/launcher.js",
                "mcp-server-commands/build/index.js",
                "obsidian-mcp/dist/main.js",
            ];
            (node(), scripts.map(package))
        })
        .await
        .unwrap();
        let time = python_program(Environment::Current, "mcp-server-time").await;
        let sqlite = python_program(Environment::First, "mcp-server-sqlite").await;
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "state", "files", "vault/.obsidian", "repo"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("files/a.txt"), "one\n").unwrap();
        fs::write(dir.path().join("vault/plan.md"), "# Plan\nSow oats.\n").unwrap();
        fs::write(
            dir.path().join("sheets.env"),
            "EXCEL_MCP_PAGING_CELLS_LIMIT=100\n",
        )
        .unwrap();
        let made = Command::new("git")
            .args(["init", "--quiet", "--initial-branch=main", "repo"])
            .current_dir(dir.path())
            .status();
        assert!(made.unwrap().success());
        fs::write(dir.path().join("repo/new.txt"), "new\n").unwrap();
        let (bridge, url) = bridge(&sqlite.with_file_name("mcp-proxy"), dir.path());
        let setup = Self {
            dir,
            site: site(),
            bridge,
        };
        fs::write(setup.path("book.xlsx"), include_bytes!("book.xlsx")).unwrap();
        let folders = [&time, &sqlite].map(|program| program.parent().unwrap());
        let [one, mut other] = entries(&node, &scripts, folders, &url);
        if names.len() == NAMES.len() {
            other["retired"] = json!({"command": "/nonexistent", "disabled": true});
            other["old"] = json!({"type": "sse", "url": "http://127.0.0.1:1/sse"});
        }
        let file = mcp_json(setup.dir.path(), names, [one, other]);
        fs::write(setup.path("mcp.json"), file).unwrap();
        setup
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program in front of the servers, with variables that `mcp.json` names.
    pub(crate) fn gateway(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(PROGRAM);
        program
            .args(["serve", "--servers", "mcp.json", "--audit", "audit.jsonl"])
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("XDG_STATE_HOME", self.path("state"))
            .env("BAILIWICK_INPUT_TEAM", "harbour")
            .env("DATABASE", "tides.db");
        program
    }

    /// What the program prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let mut program = Command::new(PROGRAM);
        let output = program
            .args(arguments)
            .current_dir(self.dir.path())
            .env_clear()
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The command lines of the servers' programs, and of those that they started.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.dir.path().display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let marked = entries.filter_map(|entry| {
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.find(|variable| *variable == mark.as_bytes())?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        });
        marked.collect()
    }
}

impl Drop for ThirdParty {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

/// Serves `mcp-server-calculator` over Streamable HTTP until it is killed; its address.
fn bridge(proxy: &Path, folder: &Path) -> (Child, String) {
    let mut bridge = Command::new(proxy)
        .args(["--host", "127.0.0.1", "--port", "0", "--"])
        .arg(proxy.with_file_name("mcp-server-calculator"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(bridge.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "mcp-proxy ended");
        if let Some((_, address)) = line.split_once("Uvicorn running on ") {
            break address.split_whitespace().next().unwrap().to_owned();
        }
    };
    // What it logs later fills no pipe.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    (bridge, format!("{address}/mcp"))
}

/// A web site of one page; its address.
fn site() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            // A client that goes away early gets no page.
            let _ = stream
                .read(&mut head)
                .and_then(|_| stream.write_all(PAGE.as_bytes()));
        }
    });
    address
}

/// An entry that runs a script with the pinned Node, and what else it has.
fn scripted(node: &Path, script: &Path, args: &[&str], more: Value) -> Value {
    let args: Vec<_> = script
        .to_str()
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    let mut entry = json!({"command": node, "args": args});
    let Value::Object(more) = more else {
        return entry;
    };
    entry.as_object_mut().unwrap().extend(more);
    entry
}

/// The servers, in the dialects of two editors.
fn entries(
    node: &Path,
    scripts: &[PathBuf; 9],
    [current, first]: [&Path; 2],
    calculator: &str,
) -> [Value; 2] {
    let with_node = |index: usize, args: &[&str], more| scripted(node, &scripts[index], args, more);
    let chromium = chromium::find();
    let shown = [
        "--headless",
        "--no-sandbox",
        "--isolated",
        "--executable-path",
        chromium.to_str().unwrap(),
    ];
    let of_one = json!({
        "everything": with_node(0, &["stdio"], json!({})),
        "files": with_node(1, &["${workspaceFolder}/files"], json!({"type": "stdio"})),
        "memory": with_node(2, &[], json!({"env": {"MEMORY_FILE_PATH": "${userHome}/memory.jsonl"}})),
        "thinking": with_node(3, &[], json!({"disabled": false, "alwaysAllow": ["sequentialthinking"]})),
        "clock": with_node(4, &["--stdio"], json!({})),
        "browser": with_node(5, &shown, json!({"cwd": "${userHome}"})),
        "sheets": with_node(6, &[], json!({"envFile": "${workspaceFolder}/sheets.env"})),
        "shell": with_node(7, &[], json!({"timeout": 60, "autoApprove": []})),
        "notes": with_node(8, &["serve", "--vault", "work=${workspaceFolder}/vault"], json!({})),
    });
    let current = |name: &str| current.join(name);
    let of_another = json!({
        "time": {"type": "stdio", "command": current("mcp-server-time"), "args": ["--local-timezone", "${ZONE:-Asia/Tokyo}"]},
        "git": {"command": current("mcp-server-git"), "args": ["--repository", "${workspaceFolder}/repo"]},
        "fetch": {"command": current("mcp-server-fetch"), "args": ["--allow-private-ips", "--ignore-robots-txt"]},
        "duckdb": {"command": current("mcp-server-motherduck"), "args": ["--db-path", ":memory:", "--read-write"]},
        "sqlite": {"command": first.join("mcp-server-sqlite"), "args": ["--db-path", "${workspaceFolder}/${env:DATABASE}"]},
        "calculator": {"type": "http", "url": calculator, "headers": {"X-Team": "${input:team}"}},
    });
    [of_one, of_another]
}

/// The file with the entries of these names and of those that cannot be used.
fn mcp_json(folder: &Path, names: &[&str], mut entries: [Value; 2]) -> String {
    for entries in &mut entries {
        let entries = entries.as_object_mut().unwrap();
        let unusable = ["retired", "old"];
        entries.retain(|name, _| names.contains(&&**name) || unusable.contains(&&**name));
        for entry in entries.values_mut() {
            if entry.get("command").is_some() {
                entry["env"][MARK] = json!(folder);
            }
        }
    }
    let inputs = json!([{"type": "promptString", "id": "team", "description": "Your team"}]);
    let [one, other] = entries;
    format!(
        "{{\n  // Entries of two editors.\n  \"mcpServers\": {one:#},\n  /* The other one's. */\n  \"servers\": {other:#},\n  \
         \"inputs\": {inputs},\n}}\n"
    )
}
