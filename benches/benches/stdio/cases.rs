//! The cases: the files that they use, the requests that they send, and their targets.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{RequestTail, method};
use crate::servers::Dialect;

/// Files per directory of the tree.
const FILES_PER_DIRECTORY: usize = 100;
/// Text that one of 100 files of the tree contains.
const NEEDLE: &str = "needle in a haystack";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Ping,
    ReadSmall,
    ReadLarge,
    List,
    Preview,
    Apply,
    Write,
    Find,
    Grep,
}

/// What a ratio compares.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Metric {
    /// Calls per second.
    Rate,
    /// CPU time per call.
    Cpu,
    /// Time per call.
    Time,
}

/// A ratio that bailiwick is to reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) metric: Metric,
    /// The server or program to compare with.
    pub(crate) with: &'static str,
    pub(crate) ratio: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) operation: Operation,
    /// Requests in flight.
    pub(crate) in_flight: usize,
    pub(crate) target: Option<Target>,
}

const fn case(
    name: &'static str,
    operation: Operation,
    in_flight: usize,
    metric: Metric,
    with: &'static str,
    ratio: f64,
) -> Case {
    Case {
        name,
        operation,
        in_flight,
        target: Some(Target {
            metric,
            with,
            ratio,
        }),
    }
}

const fn untargeted(name: &'static str, operation: Operation, in_flight: usize) -> Case {
    Case {
        name,
        operation,
        in_flight,
        target: None,
    }
}

pub(crate) const CASES: &[Case] = &[
    untargeted("ping-1", Operation::Ping, 1),
    case("ping", Operation::Ping, 16, Metric::Rate, RUST, 8.0),
    untargeted("read-1", Operation::ReadSmall, 1),
    case("read", Operation::ReadSmall, 16, Metric::Rate, RUST, 5.0),
    untargeted("read-64", Operation::ReadSmall, 64),
    case("read-1m", Operation::ReadLarge, 16, Metric::Cpu, FLOOR, 1.3),
    case("list", Operation::List, 16, Metric::Rate, NPM, 1.2),
    case("preview", Operation::Preview, 16, Metric::Rate, RUST, 8.0),
    case("apply", Operation::Apply, 16, Metric::Rate, RUST, 3.0),
    case("apply-64", Operation::Apply, 64, Metric::Rate, RUST, 3.0),
    case("write", Operation::Write, 16, Metric::Rate, RUST, 1.3),
    case("find", Operation::Find, 1, Metric::Time, "fd", 0.5),
    case("grep", Operation::Grep, 1, Metric::Time, "rg", 0.8),
];

const RUST: &str = "rust-mcp-filesystem";
const NPM: &str = "npm";
const FLOOR: &str = "floor";

impl Operation {
    /// Creates the files of this operation.
    pub(crate) fn prepare(self, root: &Path, tree: usize) -> io::Result<()> {
        match self {
            Self::Ping | Self::Write => Ok(()),
            Self::ReadSmall => fs::write(root.join("4k.txt"), text(4 << 10)),
            Self::ReadLarge => fs::write(root.join("1m.txt"), text(1 << 20)),
            Self::List => {
                let directory = root.join("thousand");
                fs::create_dir_all(&directory)?;
                (0..1000)
                    .try_for_each(|n| fs::write(directory.join(format!("entry_{n:04}.txt")), ""))
            }
            Self::Preview | Self::Apply => {
                (0..64).try_for_each(|slot| fs::write(root.join(edited(slot)), lines()))
            }
            Self::Find | Self::Grep => create_tree(&root.join("tree"), tree),
        }
    }

    /// The requests that `slot` repeats; none if servers of this kind cannot do it.
    pub(crate) fn requests(self, dialect: Dialect, root: &Path, slot: usize) -> Vec<RequestTail> {
        let at = |name: &str| root.join(name).display().to_string();
        let ours = dialect == Dialect::Bailiwick;
        let read = if ours { "read_file" } else { "read_text_file" };
        let tool = |name: &str, arguments: Value| vec![call(name, &arguments)];
        match self {
            Self::Ping => vec![method("ping", &json!({}))],
            Self::ReadSmall => tool(read, json!({ "path": at("4k.txt") })),
            Self::ReadLarge if ours => {
                let arguments =
                    json!({ "path": at("1m.txt"), "max_bytes": 2 << 20, "limit": 1 << 20 });
                tool(read, arguments)
            }
            Self::ReadLarge => tool(read, json!({ "path": at("1m.txt") })),
            Self::List if ours => tool(
                "list_directory",
                json!({ "path": at("thousand"), "limit": 1000 }),
            ),
            Self::List => tool("list_directory", json!({ "path": at("thousand") })),
            Self::Preview => vec![edit(dialect, &at(&edited(slot)), false, true)],
            Self::Apply => {
                let path = at(&edited(slot));
                vec![
                    edit(dialect, &path, false, false),
                    edit(dialect, &path, true, false),
                ]
            }
            // The content alternates, since equal content need not be written.
            Self::Write => ["first\n", "other\n"]
                .map(|line| {
                    let path = at(&format!("written_{slot}.txt"));
                    let content = format!("{line}{}", text((4 << 10) - line.len()));
                    let mut arguments = json!({ "path": path, "content": content });
                    if ours {
                        arguments["mode"] = json!("overwrite");
                    }
                    call("write_file", &arguments)
                })
                .to_vec(),
            Self::Find if ours => tool(
                "find",
                json!({ "path": at("tree"), "pattern": "*77.txt", "limit": 1000 }),
            ),
            Self::Grep if ours => {
                let arguments = json!({ "path": at("tree"), "pattern": NEEDLE, "literal": true, "mode": "files", "limit": 1000 });
                tool("grep", arguments)
            }
            Self::Find if dialect != Dialect::Floor => tool(
                "search_files",
                json!({ "path": at("tree"), "pattern": "**/*77.txt" }),
            ),
            Self::Grep if dialect == Dialect::RustMcp => {
                let arguments =
                    json!({ "path": at("tree"), "pattern": "**/*.txt", "query": NEEDLE });
                tool("search_files_content", arguments)
            }
            Self::Find | Self::Grep => Vec::new(),
        }
    }

    /// The arguments of a program that does the same.
    pub(crate) fn program(self, root: &Path) -> Option<(&'static str, Vec<String>)> {
        let tree = root.join("tree").display().to_string();
        let (program, arguments) = match self {
            Self::Find => ("fd", ["--glob", "*77.txt", &tree]),
            Self::Grep => ("rg", ["-lF", NEEDLE, &tree]),
            _ => return None,
        };
        Some((program, arguments.map(str::to_owned).to_vec()))
    }
}

fn call(name: &str, arguments: &Value) -> RequestTail {
    method(
        "tools/call",
        &json!({ "name": name, "arguments": arguments }),
    )
}

/// The name of the file that a slot edits.
fn edited(slot: usize) -> String {
    format!("edited_{slot}.txt")
}

/// Changes one line in the middle of a file, or changes it back.
fn edit(dialect: Dialect, path: &str, back: bool, preview: bool) -> RequestTail {
    let (mut old, mut new) = ("line 1000 of the file", "line 1000, edited");
    if back {
        std::mem::swap(&mut old, &mut new);
    }
    if dialect == Dialect::Bailiwick {
        let edits = json!([{ "old_text": old, "new_text": new }]);
        let mut params =
            json!({ "name": "edit_file", "arguments": { "path": path, "edits": edits } });
        if preview {
            params["_meta"] = json!({ "preview": true });
        }
        return method("tools/call", &params);
    }
    let edits = json!([{ "oldText": old, "newText": new }]);
    call(
        "edit_file",
        &json!({ "path": path, "edits": edits, "dryRun": preview }),
    )
}

/// Text of this length, with line ends and quotes.
fn text(length: usize) -> String {
    let line = "    let value = format!(\"{name}: {count}\"); // the quick brown fox\n";
    line.chars().cycle().take(length).collect()
}

/// 2,000 lines.
fn lines() -> String {
    (0..2000).fold(String::new(), |mut text, n| {
        writeln!(text, "line {n} of the file").expect("a String can be written");
        text
    })
}

fn create_tree(root: &Path, files: usize) -> io::Result<()> {
    for n in 0..files {
        let directory = root.join(format!("directory_{:03}", n / FILES_PER_DIRECTORY));
        if n % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let mut content = text(1500);
        if n % 100 == 42 {
            content.push_str(NEEDLE);
        }
        fs::write(directory.join(format!("file_{n:05}.txt")), content)?;
    }
    Ok(())
}
