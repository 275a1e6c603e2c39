//! `grep`: searches the content of files.

use std::fmt::{self, Write as _};

use bailiwick::config::Namespace;
use bailiwick::policy::PathGlob;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Code, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};
use grep_regex::RegexMatcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{glob, optional, suggest};
use crate::pagination;
use crate::read_view::ReadView;
use crate::resolve::{self, Kind, OpenFile};
use crate::search::{self, CaseArg, FileResult, MatchRange, ResultLine, Search, Skipped};
use crate::walk::{self, IgnoreRules, WalkControl, WalkEntry, WalkSkipped};

/// Maximum number of context lines.
const MAX_CONTEXT: u32 = 20;

/// Searches the content of files.
#[derive(Debug)]
pub(crate) struct Grep;

/// Arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepArgs {
    /// Regular expression.
    pub pattern: String,
    /// File or directory to search.
    #[serde(default = "optional::current_dir", deserialize_with = "optional::path")]
    pub path: String,
    /// Treat `pattern` as plain text.
    #[serde(default)]
    pub literal: bool,
    /// `smart` ignores case unless the pattern has a capital.
    #[serde(default)]
    pub case: CaseArg,
    /// Only files matching this glob, such as `*.rs`.
    #[serde(default, deserialize_with = "optional::text")]
    pub glob: Option<String>,
    /// Lines, file names or counts per file.
    #[serde(default)]
    pub mode: GrepMode,
    /// Lines to show before and after each match.
    #[serde(default)]
    pub context: u32,
    /// Maximum matches per file.
    #[serde(default)]
    pub per_file: Option<u32>,
    /// Maximum matches or files.
    #[serde(default = "page_length")]
    pub limit: u32,
    /// `next_offset` of the previous result.
    #[serde(default)]
    pub offset: u64,
    /// Include ignored files.
    #[serde(default)]
    pub include_ignored: bool,
}

/// What is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrepMode {
    /// The lines that match.
    #[default]
    Content,
    /// The files that have a match.
    Files,
    /// The files that have a match, and how many.
    Count,
}

fn page_length() -> u32 {
    100
}

/// Output of `grep`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GrepOutput {
    /// The matching files, in the order of the search.
    pub files: Vec<FileMatches>,
    /// Number of files searched, if none matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched: Option<u64>,
    /// The `offset` of the next result, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// Binary files, which were not searched.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub binary: u64,
    /// Files too large, or with lines too long, which were not searched.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub too_large: u64,
    /// Files that could not be read.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub unreadable: u64,
    /// Directories that could not be entered.
    #[serde(skip_serializing_if = "super::is_zero")]
    #[schemars(default)]
    pub unreadable_directories: u64,
}

/// One file that matches.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileMatches {
    /// Its path.
    pub path: String,
    /// How many of its lines match, of those that this answer counts; not in mode `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<u64>,
    /// Its lines, in mode `content`: the number, `:` if the line matches or `-` if it is near one that does, and the
    /// text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, with = "Vec<String>")]
    pub lines: Vec<MatchLine>,
}

/// A line of a file, written as `12:text` if it matches and as `12-text` if it is near one that does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchLine {
    /// From 1.
    pub number: u64,
    /// Without its line end; cut if it is long.
    pub text: String,
    /// Whether it matches.
    pub matches: bool,
}

impl fmt::Display for MatchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.matches { ':' } else { '-' };
        write!(f, "{}{separator}{}", self.number, self.text)
    }
}

impl Serialize for MatchLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    matcher: RegexMatcher,
    glob: Option<PathGlob>,
    mode: GrepMode,
    context: usize,
    per_file: u64,
    limit: u64,
    offset: u64,
    include_ignored: bool,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Search some files",
    input: r#"{"pattern": "fn main", "glob": "*.rs"}"#,
    output: r#"{"files": [{"matches": 1, "lines": ["1:fn main() {"]}]}"#,
}];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::InvalidArguments,
        when: "the regular expression is invalid",
        resolution: "Correct it, or set `literal`",
    },
    Failure {
        code: Code::NotFound,
        when: "the path does not exist",
        resolution: "List its parent directory",
    },
];

impl ReadTool for Grep {
    type Args = GrepArgs;
    type Output = GrepOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("grep", "Search files", "Searches the lines of text files.")
            .intent("Search for {pattern} [in {path}] [with glob {glob}]")
            .scopes(&["read:file"])
            .idempotent()
            .group("search", 1.0)
            .examples(EXAMPLES)
            .failures(FAILURES)
    }

    fn prepare(&self, args: GrepArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        let glob = args.glob.as_deref();
        let glob = glob.map(|glob| glob::compile("/glob", glob));
        let job = Job {
            path: path.clone(),
            matcher: search::compile(&args.pattern, args.literal, args.case)?,
            glob: glob.transpose()?,
            mode: args.mode,
            context: usize::try_from(args.context.min(MAX_CONTEXT)).unwrap_or(0),
            per_file: args
                .per_file
                .map_or(u64::MAX, |most| u64::from(most.max(1))),
            limit: u64::from(args.limit.clamp(1, pagination::MAX_PAGE)),
            offset: args.offset,
            include_ignored: args.include_ignored,
        };
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path).beneath()],
            job,
        })
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        grep(permit, job)
    }
}

fn grep(view: &dyn ReadView, job: &Job) -> Result<Reply, Interrupt> {
    let mut answer = Answer::new(view, job);
    let mut search = answer.new_search();
    match resolve::file(view, &job.path) {
        Ok(opened) => {
            answer.search(&mut search, view.actual(&job.path), opened)?;
        }
        Err(Interrupt::Failed(error)) if error.code() == Code::NotRegular => {
            answer.walk(&mut search)?;
        }
        Err(interrupt) => return Err(suggest::on_interrupt(view, &job.path, interrupt)),
    }
    Ok(answer.finish())
}

/// Collects the results.
struct Answer<'a> {
    view: &'a dyn ReadView,
    job: &'a Job,
    text: String,
    /// Number of results skipped or included so far.
    counted: u64,
    /// Index after the last result to include.
    end: u64,
    byte_budget: u64,
    searched: u64,
    found: GrepOutput,
    left_out: WalkSkipped,
}

impl<'a> Answer<'a> {
    fn new(view: &'a dyn ReadView, job: &'a Job) -> Self {
        let limit = job.limit.min(view.max_results());
        Self {
            view,
            job,
            text: String::new(),
            counted: 0,
            end: job.offset.saturating_add(limit),
            byte_budget: view.max_bytes(),
            searched: 0,
            found: GrepOutput::default(),
            left_out: WalkSkipped::default(),
        }
    }

    fn new_search(&self) -> Search {
        let context = if self.job.mode == GrepMode::Content {
            self.job.context
        } else {
            0
        };
        let byte_budget = usize::try_from(self.view.max_bytes()).unwrap_or(usize::MAX);
        Search::new(self.job.matcher.clone(), context, byte_budget)
    }

    /// Searches the files beneath a directory.
    fn walk(&mut self, search: &mut Search) -> Result<(), Interrupt> {
        let (view, job) = (self.view, self.job);
        let (dir, at) = walk::start(view, &job.path)?;
        let ignore_rules = (!job.include_ignored).then(|| IgnoreRules::for_ancestors(view, &at));
        let mut beneath = String::new();
        let mut wanted = |found: &WalkEntry<'_>, name: &str| {
            let glob = job.glob.as_ref();
            found.kind == Kind::File
                && glob.is_none_or(|glob| {
                    glob.is_match(if glob.matches_names() {
                        name
                    } else {
                        found.beneath(&at, &mut beneath)
                    })
                })
        };
        let next = |more| {
            if more {
                WalkControl::Enter
            } else {
                WalkControl::Stop
            }
        };
        if job.mode == GrepMode::Content && job.offset > 0 {
            // Which lines of a file are on the page depends on the files before it.
            self.left_out = walk::walk(view, dir, &at, ignore_rules, &mut |found| {
                let Some(_) = found.name().filter(|name| wanted(found, name)) else {
                    return Ok(WalkControl::Enter);
                };
                let more = match found.open(view) {
                    Ok(opened) => self.search(search, found.path(), opened)?,
                    Err(_) => self.take(0, Some((found.path().clone(), Err(Skipped::Unreadable)))),
                };
                Ok(next(more))
            })?;
            return Ok(());
        }
        let (mut left_out, range) = (WalkSkipped::default(), self.range());
        let mut take = |searched, file| self.take(searched, file);
        search::search_ordered(view, search, range, &mut take, |ordered| {
            left_out = walk::walk(view, dir, &at, ignore_rules, &mut |found| match found
                .name()
                .filter(|name| wanted(found, name))
            {
                Some(name) => Ok(next(ordered.add(found.holder, found.parent, name)?)),
                None => Ok(WalkControl::Enter),
            })?;
            Ok(())
        })?;
        self.left_out = left_out;
        Ok(())
    }

    /// Which matches of the next file to collect.
    fn range(&self) -> MatchRange {
        let (skip, max_matches) = match self.job.mode {
            GrepMode::Content => {
                let skip = self.job.offset.saturating_sub(self.counted);
                let left = self.end.saturating_sub(self.counted.max(self.job.offset));
                (skip, left.min(self.job.per_file.saturating_sub(skip)))
            }
            GrepMode::Files => (0, 0),
            GrepMode::Count => (u64::MAX, 0),
        };
        MatchRange { skip, max_matches }
    }

    /// Searches one file; returns false after one result more than requested.
    fn search(
        &mut self,
        search: &mut Search,
        path: &VirtualPath,
        opened: OpenFile,
    ) -> Result<bool, Interrupt> {
        let MatchRange { skip, max_matches } = self.range();
        let found = search.file(self.view, opened, skip, max_matches)?;
        Ok(self.take(1, Some((path.clone(), found))))
    }

    /// Takes the result of a file, whose range may have been that of an earlier file.
    fn take(&mut self, searched: u64, file: Option<FileResult>) -> bool {
        self.searched += searched;
        let Some((path, found)) = file else {
            return true;
        };
        let mut lines = match found {
            Ok(found) if found.matches > 0 => found,
            Ok(_) => return true,
            Err(skipped) => {
                *match skipped {
                    Skipped::Binary => &mut self.found.binary,
                    Skipped::TooLarge => &mut self.found.too_large,
                    Skipped::Unreadable => &mut self.found.unreadable,
                } += 1;
                return true;
            }
        };
        if self.job.mode == GrepMode::Content {
            let MatchRange { skip, max_matches } = self.range();
            lines.limit_to(skip, max_matches);
            let matches = lines.matches.min(self.job.per_file);
            return self.take_lines(&path, matches, skip, &lines.lines);
        }
        if self.counted >= self.end || self.byte_budget == 0 {
            self.found.next_offset = Some(self.counted);
            return false;
        }
        self.counted += 1;
        if self.counted > self.job.offset {
            let _ = match self.job.mode {
                GrepMode::Count => {
                    writeln!(self.text, "{} {}", escape(path.as_str()), lines.matches)
                }
                GrepMode::Content | GrepMode::Files => {
                    writeln!(self.text, "{}", escape(path.as_str()))
                }
            };
            self.found.files.push(FileMatches {
                path: path.to_string(),
                matches: (self.job.mode == GrepMode::Count).then_some(lines.matches),
                lines: Vec::new(),
            });
        }
        true
    }

    fn take_lines(
        &mut self,
        path: &VirtualPath,
        matches: u64,
        skip: u64,
        lines: &[ResultLine],
    ) -> bool {
        let heading = format!("{}\n", escape(path.as_str()));
        let (mut taken, mut matched) = (Vec::new(), 0);
        let mut full = false;
        let mut piece = heading;
        for line in lines {
            let gap = if line.gap { "--\n" } else { "" };
            let found = MatchLine {
                number: line.number,
                text: line.text.clone(),
                matches: line.matches,
            };
            let shown = format!("{gap}{found}\n");
            let size =
                u64::try_from(self.text.len() + piece.len() + shown.len()).unwrap_or(u64::MAX);
            full = size > self.byte_budget && (matched > 0 || !self.text.is_empty());
            if full {
                break;
            }
            piece.push_str(&shown);
            matched += u64::from(line.matches);
            taken.push(found);
        }
        if matched > 0 {
            self.text.push_str(&piece);
            self.found.files.push(FileMatches {
                path: path.to_string(),
                matches: Some(matched),
                lines: taken,
            });
        }
        let reached = matches.min(skip) + matched;
        self.counted += reached;
        if full || matches > reached {
            self.found.next_offset = Some(self.counted);
            return false;
        }
        true
    }

    fn finish(mut self) -> Reply {
        if self.found.files.is_empty() {
            self.found.searched = Some(self.searched);
            let _ = writeln!(self.text, "no match in {} files", self.searched);
        }
        let skipped = [
            (self.found.binary, "binary"),
            (self.found.too_large, "too large"),
            (self.found.unreadable, "unreadable"),
        ];
        let skipped = skipped.iter().filter(|(count, _)| *count > 0);
        let skipped: Vec<String> = skipped
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        if !skipped.is_empty() {
            let _ = writeln!(self.text, "[files not searched: {}]", skipped.join(", "));
        }
        self.text.push_str(&self.left_out.text());
        self.found.unreadable_directories = self.left_out.directories;
        if let Some(next) = self.found.next_offset {
            let _ = writeln!(self.text, "[there is more; continue with offset {next}]");
        }
        Reply::text(self.text, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{KernelMode, World, path};

    fn job(pattern: &str) -> Job {
        Job {
            path: path("/r"),
            matcher: search::compile(pattern, false, CaseArg::Sensitive).unwrap(),
            glob: None,
            mode: GrepMode::Content,
            context: 0,
            per_file: u64::MAX,
            limit: 100,
            offset: 0,
            include_ignored: false,
        }
    }

    fn run(world: &World, job: &Job) -> (String, GrepOutput) {
        let reply = world.run(|view| grep(view, job)).unwrap();
        let text = match &reply.content[..] {
            [bailiwick::effect::Content::Text(text)] => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let found = reply.output.as_any().downcast_ref::<GrepOutput>().unwrap();
        let files = found.files.iter().map(|file| FileMatches {
            path: file.path.clone(),
            lines: file.lines.clone(),
            ..*file
        });
        (
            text,
            GrepOutput {
                files: files.collect(),
                ..*found
            },
        )
    }

    #[track_caller]
    fn check(lines: &[&str], job: &Job, expected: &str) {
        let world = World::new(lines);
        for kernel in KernelMode::ALL {
            let (text, _) = kernel.run(|| run(&world, job));
            assert_eq!(text, expected, "{kernel:?}");
        }
    }

    const TREE: [&str; 7] = [
        "file root/a one\ntwo\nthree one\n",
        "file root/b/c one more\n",
        "file root/.gitignore target\n",
        "file root/target/d one\n",
        "file root/secrets/e one\n",
        "link root/l secrets/e",
        "link root/m @/outside/f",
    ];

    #[test]
    fn matches_exclude_denied_ignored_and_linked_files() {
        check(
            &TREE,
            &job("one"),
            "/r/a\n1:one\n3:three one\n/r/b/c\n1:one more\n",
        );
        let near = Job {
            context: 1,
            ..job("two")
        };
        check(&TREE, &near, "/r/a\n1-one\n2:two\n3-three one\n");
        let rs = Job {
            glob: Some(glob::compile("/glob", "c").unwrap()),
            ..job("one")
        };
        check(&TREE, &rs, "/r/b/c\n1:one more\n");
        check(
            &TREE,
            &Job {
                path: path("/r/a"),
                ..job("^one")
            },
            "/r/a\n1:one\n",
        );
        check(&TREE, &job("nowhere"), "no match in 3 files\n");
    }

    #[test]
    fn modes_files_and_count_have_no_lines() {
        check(
            &TREE,
            &Job {
                mode: GrepMode::Files,
                ..job("one")
            },
            "/r/a\n/r/b/c\n",
        );
        check(
            &TREE,
            &Job {
                mode: GrepMode::Count,
                ..job("one")
            },
            "/r/a 2\n/r/b/c 1\n",
        );
    }

    #[test]
    fn pages_have_every_match_once() {
        let lines: Vec<String> = (0..5)
            .map(|n| format!("file root/f{n} x{n}a\nno\nx{n}b\nx{n}c\n"))
            .collect();
        let world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (mode, limit) in [
            (GrepMode::Content, 1),
            (GrepMode::Content, 2),
            (GrepMode::Content, 4),
            (GrepMode::Files, 2),
            (GrepMode::Count, 3),
        ] {
            let (mut searched_count, mut offset) = (Vec::new(), 0);
            loop {
                let (text, found) = run(
                    &world,
                    &Job {
                        mode,
                        limit,
                        offset,
                        ..job("x")
                    },
                );
                searched_count.extend(
                    text.lines()
                        .filter(|line| {
                            line.contains('x')
                                || line.starts_with("/r/f") && mode != GrepMode::Content
                        })
                        .map(str::to_owned),
                );
                match found.next_offset {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            let expected = if mode == GrepMode::Content { 15 } else { 5 };
            assert_eq!(
                searched_count.len(),
                expected,
                "{mode:?} {limit}: {searched_count:?}"
            );
        }
    }

    #[test]
    fn full_result_ends_at_a_line_with_next_offset() {
        let mut world = World::new(&["file root/f aaaa\naaaa\naaaa\n"]);
        world.max_bytes = 20;
        let (text, found) = run(&world, &job("a"));
        assert_eq!(
            text,
            "/r/f\n1:aaaa\n2:aaaa\n[there is more; continue with offset 2]\n"
        );
        assert_eq!(found.next_offset, Some(2));
    }

    #[test]
    fn unreadable_directories_are_counted() {
        for (levels, unreadable, note) in [
            (300, 1, "[1 directory could not be entered]\n"),
            (200, 0, ""),
        ] {
            let world = World::new(&["file root/f one\n"]);
            world.make(&format!("dir root/{}", vec!["d"; levels].join("/")));
            let (text, found) = run(&world, &job("one"));
            assert_eq!(text, format!("/r/f\n1:one\n{note}"));
            assert_eq!(found.unreadable_directories, unreadable);
        }
    }

    #[test]
    fn search_skips_fifos_and_binary_files() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let world = World::new(&["file root/f one\n", "file root/g one\0\n"]);
        mknodat(
            CWD,
            world.host("root/fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for kernel in KernelMode::ALL {
            let (text, found) = kernel.run(|| run(&world, &job("one")));
            assert_eq!(text, "/r/f\n1:one\n[files not searched: 1 binary]\n");
            assert_eq!(
                (found.searched, found.binary, found.unreadable),
                (None, 1, 0)
            );
        }
    }

    #[test]
    fn many_files_are_searched_in_the_order_of_the_walk() {
        let mut lines = Vec::new();
        for n in 0..600 {
            let text = ["x\nhit\nx\nhit", "none", "hit\0"][n % 3];
            lines.push(format!("file root/d{:02}/f{n:03} {text}", n % 40));
        }
        let world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (mode, context, per_file) in [
            (GrepMode::Content, 0, u64::MAX),
            (GrepMode::Content, 2, 1),
            (GrepMode::Files, 0, u64::MAX),
            (GrepMode::Count, 0, u64::MAX),
        ] {
            let page = |offset, limit| {
                let job = Job {
                    mode,
                    context,
                    per_file,
                    offset,
                    limit,
                    ..job("hit")
                };
                run(&world, &job).1
            };
            let whole = page(0, 10_000);
            let names: Vec<&str> = whole.files.iter().map(|file| &*file.path).collect();
            assert!(names.is_sorted());
            assert_eq!(
                (names.len(), whole.binary, whole.next_offset),
                (200, 200, None)
            );
            // One page after the other, which searches on one thread from the second page on, has the same files.
            let (mut paged, mut offset) = (Vec::new(), Some(0));
            while let Some(next) = offset {
                let found = page(next, 70);
                paged.extend(found.files.into_iter().map(|file| file.path));
                offset = found.next_offset;
            }
            paged.dedup();
            assert_eq!(paged, names, "{mode:?}");
        }
    }

    #[test]
    fn search_on_several_threads_stops_with_the_call() {
        let lines: Vec<String> = (0..600)
            .map(|n| format!("file root/d{:02}/f{n:03} x", n % 40))
            .collect();
        let mut world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        world.checkpoints_left = 300.into();
        let stopped = world.run(|view| grep(view, &job("hit")).map(drop));
        assert_eq!(stopped, Err(Code::Cancelled));
    }
}
