//! `find`: finds files by name.

use std::fmt::Write as _;

use bailiwick::config::Namespace;
use bailiwick::policy::PathGlob;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Code, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{glob, optional, suggest};
use crate::pagination::{self, Cursor, PageBuilder};
use crate::read_view::ReadView;
use crate::resolve::Kind;
use crate::walk::{self, IgnoreRules};

/// Finds files by name.
#[derive(Debug)]
pub(crate) struct Find;

/// Arguments of `find`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindArgs {
    /// Glob: `*.rs` matches at any depth, `src/**/*.rs` beneath `path`.
    pub pattern: String,
    /// Directory to search.
    #[serde(default = "optional::current_dir", deserialize_with = "optional::path")]
    pub path: String,
    /// Only entries of this kind.
    #[serde(default)]
    pub kind: Option<KindFilter>,
    /// Include ignored files.
    #[serde(default)]
    pub include_ignored: bool,
    /// Maximum paths.
    #[serde(default = "page_length")]
    pub limit: u32,
    /// `next_cursor` of the previous result.
    #[serde(default, deserialize_with = "optional::text")]
    pub cursor: Option<String>,
}

/// A kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindFilter {
    /// Regular files.
    File,
    /// Directories.
    Directory,
}

fn page_length() -> u32 {
    200
}

/// Output of `find`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FindOutput {
    /// The paths of this page, in order.
    pub paths: Vec<String>,
    /// Number of paths on all pages.
    pub total: u64,
    /// Cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Directories that could not be entered.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub unreadable: u64,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    glob: PathGlob,
    kind: Option<KindFilter>,
    include_ignored: bool,
    limit: u32,
    cursor: Option<Cursor>,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Find files by their names",
    input: r#"{"pattern": "*.rs"}"#,
    output: r#"{"total": 1}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::InvalidArguments,
        when: "the glob is invalid",
        resolution: "Correct it; an example is `*.rs`",
    },
    Failure {
        code: Code::NotFound,
        when: "the directory does not exist",
        resolution: "List its parent directory",
    },
];

impl ReadTool for Find {
    type Args = FindArgs;
    type Output = FindOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("find", "Find files", "Finds entries by name.")
            .intent("Find {pattern} [in {path}]")
            .scopes(&["read:file"])
            .idempotent()
            .group("search", 0.9)
            .examples(EXAMPLES)
            .failures(FAILURES)
    }

    fn prepare(&self, args: FindArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        let job = Job {
            path: path.clone(),
            glob: glob::compile("/pattern", &args.pattern)?,
            kind: args.kind,
            include_ignored: args.include_ignored,
            limit: args.limit,
            cursor: args.cursor.as_deref().map(Cursor::parse).transpose()?,
        };
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path).beneath()],
            job,
        })
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        find(permit, job)
    }
}

fn find(view: &dyn ReadView, job: &Job) -> Result<Reply, Interrupt> {
    let (dir, at) = walk::start(view, &job.path)
        .map_err(|interrupt| suggest::on_interrupt(view, &job.path, interrupt))?;
    let ignore_rules = (!job.include_ignored).then(|| IgnoreRules::for_ancestors(view, &at));
    let new_page = || {
        let page = PageBuilder::new(job.limit, view.max_results(), job.cursor.clone());
        (page, String::new())
    };
    let (pages, left_out) = walk::walk_unordered(
        view,
        dir,
        &at,
        ignore_rules,
        new_page,
        |(page, beneath), found| {
            let kind = match job.kind {
                None => true,
                Some(KindFilter::File) => found.kind == Kind::File,
                Some(KindFilter::Directory) => found.kind == Kind::Directory,
            };
            if let Some(name) = found.name().filter(|_| kind)
                && (!job.glob.matches_names() || job.glob.is_match(name))
            {
                let beneath = found.beneath(&at, beneath);
                if job.glob.matches_names() || job.glob.is_match(beneath) {
                    page.add(pagination::key(beneath, None), || found.path().to_string());
                }
            }
        },
    )?;
    let (mut page, _) = new_page();
    for (part, _) in pages {
        page.merge(part);
    }
    let page = page.finish();
    let mut text = String::new();
    for path in &page.entries {
        let _ = writeln!(text, "{}", escape(path));
    }
    if page.total == 0 {
        text.push_str("nothing found\n");
    }
    text.push_str(&left_out.text());
    if let Some(cursor) = &page.next {
        let _ = writeln!(
            text,
            "[{} of {}; continue with cursor {cursor}]",
            page.entries.len(),
            page.total
        );
    }
    Ok(Reply::text(
        text,
        FindOutput {
            paths: page.entries,
            total: page.total,
            next_cursor: page.next,
            unreadable: left_out.directories,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{KernelMode, World, path};

    fn job(pattern: &str) -> Job {
        Job {
            path: path("/r"),
            glob: glob::compile("/pattern", pattern).unwrap(),
            kind: None,
            include_ignored: false,
            limit: 100,
            cursor: None,
        }
    }

    #[track_caller]
    fn check(lines: &[&str], job: &Job, expected: &[&str]) {
        let world = World::new(lines);
        for kernel in KernelMode::ALL {
            let reply = kernel.run(|| world.run(|view| find(view, job)).unwrap());
            let found = reply.output.as_any().downcast_ref::<FindOutput>().unwrap();
            assert_eq!(found.paths, expected, "{kernel:?}");
            assert_eq!(found.total, expected.len() as u64);
        }
    }

    const TREE: [&str; 9] = [
        "file root/src/a.rs x",
        "file root/src/deep/b.rs x",
        "file root/target/c.rs x",
        "file root/.gitignore target/\n*.log\n!keep.log",
        "file root/x.log x",
        "file root/keep.log x",
        "file root/.git/d.rs x",
        "file root/secrets/e.rs x",
        "link root/l.rs secrets/e.rs",
    ];

    #[test]
    fn names_are_found_at_any_depth_except_ignored_and_denied() {
        check(
            &TREE,
            &job("*.rs"),
            &["/r/l.rs", "/r/src/a.rs", "/r/src/deep/b.rs"],
        );
        check(&TREE, &job("src/*.rs"), &["/r/src/a.rs"]);
        check(&TREE, &job("*.log"), &["/r/keep.log"]);
        let files = Job {
            kind: Some(KindFilter::File),
            ..job("*.rs")
        };
        check(&TREE, &files, &["/r/src/a.rs", "/r/src/deep/b.rs"]);
        let all = Job {
            include_ignored: true,
            ..job("*.rs")
        };
        check(
            &TREE,
            &all,
            &[
                "/r/.git/d.rs",
                "/r/l.rs",
                "/r/src/a.rs",
                "/r/src/deep/b.rs",
                "/r/target/c.rs",
            ],
        );
    }

    #[test]
    fn ignore_rules_apply_beneath_their_directory() {
        let below = Job {
            path: path("/r/src"),
            ..job("*")
        };
        let lines = [
            "file root/.gitignore *.o",
            "file root/src/a.o x",
            "file root/src/a.c x",
        ];
        check(&lines, &below, &["/r/src/a.c"]);
    }

    #[test]
    fn nearest_ignore_file_takes_precedence() {
        let lines = [
            "file root/.gitignore *.o",
            "file root/src/.ignore !a.o",
            "file root/src/a.o x",
            "file root/src/b.o x",
        ];
        check(&lines, &job("*.o"), &["/r/src/a.o"]);
    }

    #[test]
    fn unreadable_directories_are_counted() {
        for (levels, unreadable, note) in [
            (300, 1, "[1 directory could not be entered]\n"),
            (200, 0, ""),
        ] {
            let world = World::new(&["file root/f x"]);
            world.make(&format!("dir root/{}", vec!["d"; levels].join("/")));
            let reply = world.run(|view| find(view, &job("f"))).unwrap();
            let found = reply.output.as_any().downcast_ref::<FindOutput>().unwrap();
            assert_eq!(
                (&*found.paths, found.unreadable),
                (&["/r/f".to_owned()][..], unreadable)
            );
            let [bailiwick::effect::Content::Text(text)] = &reply.content[..] else {
                panic!("{:?}", reply.content);
            };
            assert_eq!(text.as_str(), format!("/r/f\n{note}"));
        }
    }

    #[test]
    fn hostile_ignore_file_costs_little() {
        let braces = "{a,b}".repeat(8000);
        let hostile = format!(
            "file root/.gitignore {braces}\n[\n**********z\n{}",
            "*a".repeat(200)
        );
        check(&[&hostile, "file root/f x"], &job("f"), &["/r/f"]);
    }
}
