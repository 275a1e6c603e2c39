//! A pattern in, the lines, files or counts that match out.

use std::fmt::{self, Write as _};

use bailiwick::{
    CallError, Code, Example, Failure, Interrupt, Namespace, PathGlob, Prepared, ReadPermit,
    ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath, escape,
};
use grep_regex::RegexMatcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::{glob, optional, suggest};
use crate::lens::Lens;
use crate::page;
use crate::resolve::{self, Kind, OpenFile};
use crate::search::{self, Case, Line, Search, Skipped};
use crate::walk::{self, Ignoring, LeftOut, Onward};

/// The most lines around a match.
const MAX_CONTEXT: u32 = 20;

/// Searches the content of files.
#[derive(Debug)]
pub(crate) struct Grep;

/// What to search for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepArgs {
    /// Regular expression.
    pub pattern: String,
    /// File or directory to search.
    #[serde(default = "optional::here", deserialize_with = "optional::path")]
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
    /// Matching lines, names of files, or counts per file.
    #[serde(default)]
    pub mode: Mode,
    /// Lines to show before and after each match.
    #[serde(default)]
    pub context: u32,
    /// Most matches per file.
    #[serde(default)]
    pub per_file: Option<u32>,
    /// Most matches, or files, to return.
    #[serde(default = "page_length")]
    pub limit: u32,
    /// The `next_offset` of the answer to go on from.
    #[serde(default)]
    pub offset: u64,
    /// Include files that `.gitignore` excludes.
    #[serde(default)]
    pub include_ignored: bool,
}

/// How letters compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaseArg {
    /// As they are.
    #[default]
    Sensitive,
    /// Without regard to case.
    Insensitive,
    /// Without regard to case unless the pattern has a capital.
    Smart,
}

/// What is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
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

/// What was found.
#[derive(Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Matches {
    /// The files of this answer that match, in the order of the search.
    pub files: Vec<FileMatches>,
    /// How many files were searched, if none matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched: Option<u64>,
    /// The `offset` to go on with, if there is more.
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
        let mark = if self.matches { ':' } else { '-' };
        write!(f, "{}{mark}{}", self.number, self.text)
    }
}

impl Serialize for MatchLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A search once understood.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    matcher: RegexMatcher,
    glob: Option<PathGlob>,
    mode: Mode,
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
        when: "the pattern is no regular expression",
        resolution: "Correct it, or set `literal`",
    },
    Failure {
        code: Code::NotFound,
        when: "the place to search is missing",
        resolution: "List the directory above it",
    },
];

impl ReadTool for Grep {
    type Args = GrepArgs;
    type Output = Matches;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "grep",
            "Search in files",
            "Searches the lines of text files.",
        )
        .intent("Search for {pattern} [in {path}] [with glob {glob}]")
        .scopes(&["read:file"])
        .idempotent()
        .group("search", 1.0)
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: GrepArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path(&args.path)?;
        let case = match args.case {
            CaseArg::Sensitive => Case::Sensitive,
            CaseArg::Insensitive => Case::Insensitive,
            CaseArg::Smart => Case::Smart,
        };
        let glob = args.glob.as_deref();
        let glob = glob.map(|glob| glob::compile("/glob", glob));
        let job = Job {
            path: path.clone(),
            matcher: search::compile(&args.pattern, args.literal, case)?,
            glob: glob.transpose()?,
            mode: args.mode,
            context: usize::try_from(args.context.min(MAX_CONTEXT)).unwrap_or(0),
            per_file: args
                .per_file
                .map_or(u64::MAX, |most| u64::from(most.max(1))),
            limit: u64::from(args.limit.clamp(1, page::MOST)),
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

fn grep(lens: &dyn Lens, job: &Job) -> Result<Reply, Interrupt> {
    let mut answer = Answer::new(lens, job);
    match resolve::file(lens, &job.path) {
        Ok(opened) => {
            answer.search(lens.actual(&job.path), opened)?;
        }
        Err(Interrupt::Failed(error)) if error.code() == Code::NotRegular => answer.walk()?,
        Err(halt) => return Err(suggest::halted(lens, &job.path, halt)),
    }
    Ok(answer.finish())
}

fn room(lens: &dyn Lens) -> usize {
    usize::try_from(lens.max_bytes()).unwrap_or(usize::MAX)
}

/// An answer being gathered.
struct Answer<'a> {
    lens: &'a dyn Lens,
    job: &'a Job,
    search: Search,
    text: String,
    /// Results passed over or taken so far.
    counted: u64,
    /// The first result that is no longer wanted.
    end: u64,
    room: u64,
    searched: u64,
    found: Matches,
    left_out: LeftOut,
}

impl<'a> Answer<'a> {
    fn new(lens: &'a dyn Lens, job: &'a Job) -> Self {
        let limit = job.limit.min(lens.max_results());
        let context = if job.mode == Mode::Content {
            job.context
        } else {
            0
        };
        Self {
            lens,
            job,
            search: Search::new(job.matcher.clone(), context, room(lens)),
            text: String::new(),
            counted: 0,
            end: job.offset.saturating_add(limit),
            room: lens.max_bytes(),
            searched: 0,
            found: Matches::default(),
            left_out: LeftOut::default(),
        }
    }

    fn walk(&mut self) -> Result<(), Interrupt> {
        let (lens, job) = (self.lens, self.job);
        let (dir, at) = walk::start(lens, &job.path)?;
        let ignoring = (!job.include_ignored).then(|| Ignoring::above(lens, &at));
        self.left_out = walk::walk(lens, dir, &at, ignoring, &mut |found| {
            let beneath = found.path.beneath(&at).unwrap_or_default();
            let wanted = job.glob.as_ref().is_none_or(|glob| glob.is_match(beneath));
            if found.kind != Kind::File || found.raw.is_some() || !wanted {
                return Ok(Onward::Enter);
            }
            let opened = found.path.name().map(|name| found.holder.read(name));
            match opened {
                Some(Ok(opened)) if resolve::one_name(lens, &found.path, &opened.meta).is_ok() => {
                    self.search(&found.path, opened)
                }
                _ => {
                    self.found.unreadable += 1;
                    Ok(Onward::Enter)
                }
            }
        })?;
        Ok(())
    }

    /// Searches one file; stops once there is one result more than is wanted.
    fn search(&mut self, path: &VirtualPath, opened: OpenFile) -> Result<Onward, Interrupt> {
        self.searched += 1;
        let (skip, most) = match self.job.mode {
            Mode::Content => {
                let skip = self.job.offset.saturating_sub(self.counted);
                let left = self.end.saturating_sub(self.counted.max(self.job.offset));
                (skip, left.min(self.job.per_file.saturating_sub(skip)))
            }
            Mode::Files => (0, 0),
            Mode::Count => (u64::MAX, 0),
        };
        let lines = match self.search.file(self.lens, opened, skip, most)? {
            Ok(found) if found.matches > 0 => found,
            Ok(_) => return Ok(Onward::Enter),
            Err(skipped) => {
                *match skipped {
                    Skipped::Binary => &mut self.found.binary,
                    Skipped::TooLarge => &mut self.found.too_large,
                    Skipped::Unreadable => &mut self.found.unreadable,
                } += 1;
                return Ok(Onward::Enter);
            }
        };
        if self.job.mode == Mode::Content {
            return Ok(self.take_lines(
                path,
                lines.matches.min(self.job.per_file),
                skip,
                &lines.lines,
            ));
        }
        if self.counted >= self.end || self.room == 0 {
            self.found.next_offset = Some(self.counted);
            return Ok(Onward::Stop);
        }
        self.counted += 1;
        if self.counted > self.job.offset {
            // Writing to a String does not fail.
            let _ = match self.job.mode {
                Mode::Count => writeln!(self.text, "{} {}", escape(path.as_str()), lines.matches),
                Mode::Content | Mode::Files => writeln!(self.text, "{}", escape(path.as_str())),
            };
            self.found.files.push(FileMatches {
                path: path.to_string(),
                matches: (self.job.mode == Mode::Count).then_some(lines.matches),
                lines: Vec::new(),
            });
        }
        Ok(Onward::Enter)
    }

    fn take_lines(
        &mut self,
        path: &VirtualPath,
        matches: u64,
        skip: u64,
        lines: &[Line],
    ) -> Onward {
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
            full = size > self.room && (matched > 0 || !self.text.is_empty());
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
            return Onward::Stop;
        }
        Onward::Enter
    }

    fn finish(mut self) -> Reply {
        // Writing to a String does not fail.
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
            let _ = writeln!(self.text, "[there is more; go on with offset {next}]");
        }
        Reply::text(self.text, self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Kernel, World, path};

    fn job(pattern: &str) -> Job {
        Job {
            path: path("/r"),
            matcher: search::compile(pattern, false, Case::Sensitive).unwrap(),
            glob: None,
            mode: Mode::Content,
            context: 0,
            per_file: u64::MAX,
            limit: 100,
            offset: 0,
            include_ignored: false,
        }
    }

    fn run(world: &World, job: &Job) -> (String, Matches) {
        let reply = world.run(|view| grep(view, job)).unwrap();
        let text = match &reply.content[..] {
            [bailiwick::Content::Text(text)] => text.as_str().to_owned(),
            other => panic!("{other:?}"),
        };
        let found = reply.output.as_any().downcast_ref::<Matches>().unwrap();
        let files = found.files.iter().map(|file| FileMatches {
            path: file.path.clone(),
            lines: file.lines.clone(),
            ..*file
        });
        (
            text,
            Matches {
                files: files.collect(),
                ..*found
            },
        )
    }

    #[track_caller]
    fn check(lines: &[&str], job: &Job, expected: &str) {
        let world = World::new(lines);
        for kernel in Kernel::ALL {
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
    fn matching_lines_come_by_file_without_what_is_denied_ignored_or_linked() {
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
    fn files_and_counts_are_told_without_their_lines() {
        check(
            &TREE,
            &Job {
                mode: Mode::Files,
                ..job("one")
            },
            "/r/a\n/r/b/c\n",
        );
        check(
            &TREE,
            &Job {
                mode: Mode::Count,
                ..job("one")
            },
            "/r/a 2\n/r/b/c 1\n",
        );
    }

    #[test]
    fn the_answers_go_on_at_their_offsets_and_together_hold_every_match_once() {
        let lines: Vec<String> = (0..5)
            .map(|n| format!("file root/f{n} x{n}a\nno\nx{n}b\nx{n}c\n"))
            .collect();
        let world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (mode, limit) in [
            (Mode::Content, 1),
            (Mode::Content, 2),
            (Mode::Content, 4),
            (Mode::Files, 2),
            (Mode::Count, 3),
        ] {
            let (mut seen, mut offset) = (Vec::new(), 0);
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
                seen.extend(
                    text.lines()
                        .filter(|line| {
                            line.contains('x') || line.starts_with("/r/f") && mode != Mode::Content
                        })
                        .map(str::to_owned),
                );
                match found.next_offset {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            let expected = if mode == Mode::Content { 15 } else { 5 };
            assert_eq!(seen.len(), expected, "{mode:?} {limit}: {seen:?}");
        }
    }

    #[test]
    fn a_full_answer_ends_at_a_line_and_says_where_to_go_on() {
        let mut world = World::new(&["file root/f aaaa\naaaa\naaaa\n"]);
        world.max_bytes = 20;
        let (text, found) = run(&world, &job("a"));
        assert_eq!(
            text,
            "/r/f\n1:aaaa\n2:aaaa\n[there is more; go on with offset 2]\n"
        );
        assert_eq!(found.next_offset, Some(2));
    }

    #[test]
    fn directories_that_cannot_be_entered_are_counted() {
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
    fn a_search_passes_over_fifos_and_binary_files() {
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
        for kernel in Kernel::ALL {
            let (text, found) = kernel.run(|| run(&world, &job("one")));
            assert_eq!(text, "/r/f\n1:one\n[files not searched: 1 binary]\n");
            assert_eq!(
                (found.searched, found.binary, found.unreadable),
                (None, 1, 0)
            );
        }
    }
}
