//! `list_directory`: lists directories and trees.

use std::borrow::Cow;
use std::fmt::Write as _;

use bailiwick::config::Namespace;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Code, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{optional, suggest};
use crate::pagination::{self, Cursor, PageBuilder};
use crate::read_view::ReadView;
use crate::resolve::Kind;
use crate::walk::{self, MAX_DEPTH, WalkControl, WalkEntry, WalkSkipped};

/// Lists a directory.
#[derive(Debug)]
pub(crate) struct ListDirectory;

/// Arguments of `list_directory`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirectoryArgs {
    /// Directory to list.
    #[serde(default = "optional::current_dir", deserialize_with = "optional::path")]
    pub path: String,
    /// Levels to list.
    #[serde(default = "one")]
    pub depth: u32,
    /// Maximum entries.
    #[serde(default = "page_length")]
    pub limit: u32,
    /// `next_cursor` of the previous result.
    #[serde(default, deserialize_with = "optional::text")]
    pub cursor: Option<String>,
    /// Include file sizes.
    #[serde(default)]
    pub sizes: bool,
}

impl Default for ListDirectoryArgs {
    /// One level of the current directory.
    fn default() -> Self {
        Self {
            path: optional::current_dir(),
            depth: one(),
            limit: page_length(),
            cursor: None,
            sizes: false,
        }
    }
}

fn one() -> u32 {
    1
}

fn page_length() -> u32 {
    500
}

/// Output of `list_directory`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListDirectoryOutput {
    /// The directory, links followed.
    pub path: String,
    /// The entries of this page, in path order.
    pub entries: Vec<DirectoryEntry>,
    /// Number of entries on all pages.
    pub total: u64,
    /// Cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Directories that could not be entered.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub unreadable: u64,
}

/// One entry.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DirectoryEntry {
    /// Its path beneath the directory.
    pub name: String,
    /// Its kind. Links are not followed; `stat` follows them.
    pub kind: Kind,
    /// The length of a file in bytes, with `sizes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The unescaped bytes of the path beneath the directory, in base64, if `name` is not exact. Names that are not UTF-8 or
    /// hold control characters are listed, but no tool opens them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    depth: usize,
    limit: u32,
    cursor: Option<Cursor>,
    sizes: bool,
}

const EXAMPLES: &[Example] = &[
    Example {
        description: "List one directory",
        input: r#"{"path": "src"}"#,
        output: r#"{"entries": [{"name": "main.rs", "kind": "file"}], "total": 1}"#,
    },
    Example {
        description: "List a tree, one entry a page",
        input: r#"{"depth": 9, "limit": 1}"#,
        output: r#"{"total": 6, "entries": [{"name": "README.md"}]}"#,
    },
];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "there is no such directory",
        resolution: "List its parent directory",
    },
    Failure {
        code: Code::NotDirectory,
        when: "the path is a file",
        resolution: "Read it with `read_file`",
    },
];

impl ReadTool for ListDirectory {
    type Args = ListDirectoryArgs;
    type Output = ListDirectoryOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "list_directory",
            "List directory",
            "Lists a directory, or with `depth` the tree beneath it.",
        )
        .intent("List the directory [{path}]")
        .scopes(&["read:file"])
        .idempotent()
        .group("directories", 0.8)
        .page(super::FILE_BROWSER)
        .command_line("ls -A -- [{path}]")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(
        &self,
        args: ListDirectoryArgs,
        names: &Namespace,
    ) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        let job = Job {
            path: path.clone(),
            depth: usize::try_from(args.depth.max(1))
                .map_or(MAX_DEPTH, |depth| depth.min(MAX_DEPTH)),
            limit: args.limit,
            cursor: args.cursor.as_deref().map(Cursor::parse).transpose()?,
            sizes: args.sizes,
        };
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path).beneath()],
            job,
        })
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        list(permit, job)
    }
}

fn list(view: &dyn ReadView, job: &Job) -> Result<Reply, Interrupt> {
    let (dir, at) = walk::start(view, &job.path)
        .map_err(|interrupt| suggest::on_interrupt(view, &job.path, interrupt))?;
    let mut page = PageBuilder::new(job.limit, view.max_results(), job.cursor.clone());
    let mut beneath = String::new();
    let skipped = walk::walk(view, dir, &at, None, &mut |found| {
        let name = found.beneath(&at, &mut beneath);
        page.add(pagination::key(name, found.raw), || {
            listed(found, name, job.sizes)
        });
        Ok(if found.depth < job.depth {
            WalkControl::Enter
        } else {
            WalkControl::Skip
        })
    })?;
    let page = page.finish();
    let listing = ListDirectoryOutput {
        path: at.to_string(),
        entries: page.entries,
        total: page.total,
        next_cursor: page.next,
        unreadable: skipped.directories,
    };
    Ok(Reply::text(text(&listing, skipped), listing))
}

/// The entry `found`, whose path beneath the directory is `name`.
fn listed(found: &WalkEntry<'_>, name: &str, sizes: bool) -> DirectoryEntry {
    let path = match found.raw {
        None => Cow::Borrowed(name.as_bytes()),
        Some(raw) => {
            let above = name.rfind('/').and_then(|slash| name.get(..=slash));
            Cow::Owned([above.unwrap_or_default().as_bytes(), raw].concat())
        }
    };
    let text = String::from_utf8_lossy(&path);
    let escaped_name = escape(&text);
    // `raw` is set whenever the displayed name differs from the real one.
    let is_exact = found.raw.is_none() && escaped_name == text;
    DirectoryEntry {
        kind: found.kind,
        bytes: (sizes && found.kind == Kind::File)
            .then(|| found.meta().map(|meta| meta.len))
            .flatten(),
        raw: (!is_exact).then(|| STANDARD.encode(&path)),
        name: escaped_name.into_owned(),
    }
}

fn text(listing: &ListDirectoryOutput, skipped: WalkSkipped) -> String {
    let names: usize = listing.entries.iter().map(|entry| entry.name.len()).sum();
    let mut text = String::with_capacity(names + 8 * listing.entries.len() + 128);
    for DirectoryEntry {
        name, kind, bytes, ..
    } in &listing.entries
    {
        text.push_str(name);
        match (kind, bytes) {
            (Kind::Directory, _) => text.push('/'),
            (Kind::Link, _) => text.push_str(" (link)"),
            (Kind::Special, _) => text.push_str(" (special file)"),
            (Kind::File, Some(bytes)) => {
                let _ = write!(text, " {bytes}");
            }
            (Kind::File, None) => {}
        }
        text.push('\n');
    }
    if listing.total == 0 {
        text.push_str("(empty)\n");
    }
    text.push_str(&skipped.text());
    if let Some(cursor) = &listing.next_cursor {
        let count = listing.entries.len();
        let _ = writeln!(
            text,
            "[{count} of {} entries; continue with cursor {cursor}]",
            listing.total
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use bailiwick::Code;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;
    use crate::testing::{KernelMode, World, in_child, path};

    fn job(requested: &str, depth: usize) -> Job {
        Job {
            path: path(requested),
            depth,
            limit: 500,
            cursor: None,
            sizes: false,
        }
    }

    fn listing(world: &World, job: &Job) -> serde_json::Value {
        let reply = world.run(|view| list(view, job)).unwrap();
        reply.output.to_json().unwrap()
    }

    fn names(listing: &serde_json::Value) -> Vec<String> {
        let entries = listing["entries"].as_array().unwrap().iter();
        entries
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn tree_is_listed_to_its_depth_without_denied_entries() {
        let world = World::new(&[
            "file root/a/b/c x",
            "file root/a-b xx",
            "file root/secrets/key x",
            "link root/l secrets",
            "file root/a/secrets x",
        ]);
        for kernel in KernelMode::ALL {
            let listed = |depth| kernel.run(|| names(&listing(&world, &job("/r", depth))));
            assert_eq!(listed(1), ["a", "a-b", "l"]);
            assert_eq!(listed(2), ["a", "a/b", "a-b", "l"]);
            assert_eq!(listed(9), ["a", "a/b", "a/b/c", "a-b", "l"]);
        }
        assert_eq!(listing(&world, &job("/r", 9))["total"], 5);
        assert_eq!(
            world.run(|view| list(view, &job("/r/l", 1))).unwrap_err(),
            Code::NotFound
        );
        assert_eq!(
            world.run(|view| list(view, &job("/r/a-b", 1))).unwrap_err(),
            Code::NotDirectory
        );
    }

    #[test]
    fn sizes_are_listed_on_request() {
        let world = World::new(&["file root/f four", "dir root/d", "link root/l f"]);
        let sizes = |sizes| {
            let listed = listing(
                &world,
                &Job {
                    sizes,
                    ..job("/r", 1)
                },
            );
            let entries = listed["entries"].as_array().unwrap().iter();
            let sizes = entries.map(|entry| entry["bytes"].as_u64());
            sizes.collect::<Vec<_>>()
        };
        assert_eq!(sizes(false), [None, None, None]);
        assert_eq!(sizes(true), [None, Some(4), None]);
    }

    #[test]
    fn link_to_a_directory_inside_is_listed() {
        let world = World::new(&["file root/d/f x", "link root/l d"]);
        let got = listing(&world, &job("/r/l", 1));
        assert_eq!(
            (&got["path"], names(&got)),
            (&"/r/d".into(), vec!["f".to_owned()])
        );
    }

    #[test]
    fn odd_names_are_listed_escaped_with_their_bytes() {
        let world = World::new(&[]);
        for name in [&b"a\nb"[..], b"\xff\xfe", "\u{202e}txt".as_bytes()] {
            world.write(Path::new("root").join(OsStr::from_bytes(name)), "x");
        }
        let reply = world.run(|view| list(view, &job("/r", 2))).unwrap();
        let got = reply.output.to_json().unwrap();
        assert_eq!(
            names(&got),
            ["a\\u{a}b", "\\u{202e}txt", "\u{fffd}\u{fffd}"]
        );
        let raw: Vec<&str> = got["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["raw"].as_str().unwrap())
            .collect();
        assert_eq!(raw, ["YQpi", "4oCudHh0", "//4="]);
    }

    #[test]
    fn raw_is_the_path_beneath_the_directory_at_every_depth() {
        let world = World::new(&["dir root/d"]);
        for name in [&b"\xff\xfe"[..], "\u{202e}txt".as_bytes()] {
            world.write(Path::new("root/d").join(OsStr::from_bytes(name)), "x");
        }
        let got = listing(&world, &job("/r", 2));
        assert_eq!(names(&got), ["d", "d/\\u{202e}txt", "d/\u{fffd}\u{fffd}"]);
        let raw = |index: usize| got["entries"][index]["raw"].as_str();
        let expected =
            [&b"d/\xff\xfe"[..], "d/\u{202e}txt".as_bytes()].map(|bytes| STANDARD.encode(bytes));
        assert_eq!(raw(0), None);
        assert_eq!(raw(1), Some(&*expected[1]));
        assert_eq!(raw(2), Some(&*expected[0]));
    }

    #[test]
    fn pages_continue_to_the_end() {
        let lines: Vec<String> = (0..25).map(|n| format!("file root/f{n:02} x")).collect();
        let world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let requested = Job {
                limit: 10,
                cursor,
                ..job("/r", 1)
            };
            let got = listing(&world, &requested);
            assert_eq!(got["total"], 25);
            seen.extend(names(&got));
            match got["next_cursor"].as_str() {
                Some(next) => cursor = Some(Cursor::parse(next).unwrap()),
                None => break,
            }
        }
        assert_eq!(
            seen,
            (0..25).map(|n| format!("f{n:02}")).collect::<Vec<_>>()
        );
    }

    #[test]
    fn thousands_of_entries_are_listed_with_few_descriptors() {
        const NAME: &str =
            "tools::list_directory::tests::thousands_of_entries_are_listed_with_few_descriptors";
        if !in_child(NAME, "ulimit -n 128") {
            return;
        }
        let world = World::new(&[]);
        for n in 0..5000 {
            world.make(&format!("dir root/d{n:04}"));
        }
        for kernel in KernelMode::ALL {
            let got = kernel.run(|| listing(&world, &job("/r", 3)));
            assert_eq!((&got["total"], names(&got).len()), (&5000.into(), 500));
            assert_eq!(got["unreadable"], serde_json::Value::Null);
        }
    }

    #[test]
    fn too_deep_tree_is_cut_with_a_notice() {
        let world = World::new(&[]);
        let mut dir = world.host("root");
        let deepest = rustix::fs::openat(
            rustix::fs::CWD,
            &dir,
            rustix::fs::OFlags::RDONLY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let mut deepest = deepest;
        for _ in 0..300 {
            rustix::fs::mkdirat(&deepest, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
            deepest = rustix::fs::openat(
                &deepest,
                "d",
                rustix::fs::OFlags::RDONLY,
                rustix::fs::Mode::empty(),
            )
            .unwrap();
        }
        dir.push("d");
        let got = listing(&world, &job("/r", MAX_DEPTH));
        assert!(got["total"].as_u64().unwrap() >= 254);
        assert!(got["total"].as_u64().unwrap() <= 256);
    }
}
