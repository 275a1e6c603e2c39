//! A pattern and an open file in, the lines that match with those around them out.
//!
//! Patterns come from models and files from anyone, so both are bounded: the pattern before and after it is
//! compiled, the file by size and by the longest line held. The engine is linear, and each line is looked at
//! once: a match ends the search in its line, so no pattern makes a file quadratic.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use bailiwick::{CallError, Interrupt};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, Ast, RepetitionKind, RepetitionRange, Visitor};

use crate::lens::Lens;
use crate::resolve::OpenFile;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1024;
/// The largest compiled pattern. Compiling stops here, so this also bounds how long it takes.
const MAX_PROGRAM: usize = 256 * 1024;
/// The cache of states while searching.
const MAX_STATES: usize = 1024 * 1024;
/// How deep groups may nest.
const MAX_NESTING: u32 = 50;
/// The most characters and classes that counted repetitions may expand to. With 1,000 a search took seconds for 200 KB,
/// since the states of the search no longer fit its cache; with 200 it takes milliseconds.
const MAX_EXPANDED: u64 = 200;
/// The longest line that is held; a file with a longer one is passed over from there.
const MAX_HELD: usize = 1024 * 1024;
/// The largest file that is searched.
pub(crate) const MAX_FILE: u64 = 64 * 1024 * 1024;
/// How much of a line is shown.
const MAX_SHOWN: usize = 4096;

/// How letters compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Sensitive,
    Insensitive,
    /// Insensitive unless the pattern has a capital.
    Smart,
}

/// Compiles `pattern`, or refuses it within milliseconds.
pub(crate) fn compile(pattern: &str, literal: bool, case: Case) -> Result<RegexMatcher, CallError> {
    let refuse = |why: String| Err(CallError::invalid_argument("/pattern", why));
    let length = pattern.len();
    if length == 0 || length > MAX_PATTERN {
        return refuse(format!("expected 1 to {MAX_PATTERN} bytes, got {length}"));
    }
    if !literal {
        let parsed = ParserBuilder::new()
            .nest_limit(MAX_NESTING)
            .build()
            .parse(pattern);
        let expanded = parsed.map(|ast| ast::visit(&ast, Expansion::default()));
        match expanded {
            Ok(Ok(expanded)) if expanded > MAX_EXPANDED => {
                return refuse(format!(
                    "expected counted repetitions of at most {MAX_EXPANDED} characters and classes, got {expanded}; use `*` or `+`"
                ));
            }
            Ok(Ok(_)) => {}
            Err(error) => return refuse(not_regular(&error.kind())),
        }
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(literal)
        .case_insensitive(case == Case::Insensitive)
        .case_smart(case == Case::Smart)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PROGRAM)
        .dfa_size_limit(MAX_STATES)
        .nest_limit(MAX_NESTING);
    builder
        .build(pattern)
        .or_else(|error| refuse(not_regular(&error)))
}

fn not_regular(reason: &dyn fmt::Display) -> String {
    format!("expected a regular expression: {reason}; set `literal` to search for plain text")
}

/// Counts what stands in counted repetitions, once for each time that it is repeated.
#[derive(Debug, Default)]
struct Expansion {
    /// How often each open repetition, outermost first, repeats what stands in it.
    counts: Vec<u64>,
    total: u64,
}

impl Visitor for Expansion {
    type Output = u64;
    type Err = Infallible;

    fn finish(self) -> Result<u64, Infallible> {
        Ok(self.total)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        let around = self.counts.last().copied().unwrap_or(1);
        match ast {
            Ast::Repetition(repetition) => {
                let most = match &repetition.op.kind {
                    RepetitionKind::Range(
                        RepetitionRange::Exactly(most)
                        | RepetitionRange::AtLeast(most)
                        | RepetitionRange::Bounded(_, most),
                    ) => u64::from(*most).max(1),
                    _ => 1,
                };
                self.counts.push(around.saturating_mul(most));
            }
            Ast::Group(_) | Ast::Alternation(_) | Ast::Concat(_) => {}
            _ if around > 1 => self.total = self.total.saturating_add(around),
            _ => {}
        }
        Ok(())
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if matches!(ast, Ast::Repetition(_)) {
            self.counts.pop();
        }
        Ok(())
    }
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: u64,
    /// Without its line end; cut if it is long.
    pub(crate) text: String,
    /// It matches; else it only stands near one that does.
    pub(crate) matches: bool,
    /// Lines were left out directly before it.
    pub(crate) gap: bool,
}

/// What a file gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// The lines, up to what was wanted.
    pub(crate) lines: Vec<Line>,
    /// How many match, as far as was searched.
    pub(crate) matches: u64,
}

/// Why a file gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skipped {
    Binary,
    TooLarge,
    Unreadable,
}

/// A compiled search.
#[derive(Debug)]
pub(crate) struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    room: usize,
}

impl Search {
    /// `context` lines are given around each match; a file is searched no further once its lines have `room` bytes.
    pub(crate) fn new(matcher: RegexMatcher, context: usize, room: usize) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HELD))
            .build();
        Self {
            matcher,
            searcher,
            room,
        }
    }

    /// Searches `opened` for up to `most` matches, of which the first `skip` are only counted.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`; a file that cannot be searched is no error.
    pub(crate) fn file(
        &mut self,
        lens: &dyn Lens,
        opened: OpenFile,
        skip: u64,
        most: u64,
    ) -> Result<Result<Lines, Skipped>, Interrupt> {
        if opened.meta.len > MAX_FILE {
            return Ok(Err(Skipped::TooLarge));
        }
        let mut gather = Gather {
            skip,
            most,
            room: self.room,
            found: Lines::default(),
            binary: false,
            gap: false,
        };
        let mut stopped = None;
        let reader = Watched {
            lens,
            file: opened.file.take(MAX_FILE),
            stopped: &mut stopped,
        };
        let searched = self
            .searcher
            .search_reader(&self.matcher, reader, &mut gather);
        if let Some(error) = stopped {
            return Err(error.into());
        }
        Ok(match searched {
            _ if gather.binary => Err(Skipped::Binary),
            Ok(()) => Ok(gather.found),
            Err(_) => Err(Skipped::Unreadable),
        })
    }
}

/// A file that stops giving once the call must stop.
struct Watched<'w> {
    lens: &'w dyn Lens,
    file: io::Take<File>,
    stopped: &'w mut Option<CallError>,
}

impl Read for Watched<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Err(error) = self.lens.checkpoint() {
            *self.stopped = Some(error);
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(into)
    }
}

struct Gather {
    skip: u64,
    most: u64,
    /// What is left of the bytes that the lines may have.
    room: usize,
    found: Lines,
    binary: bool,
    gap: bool,
}

impl Gather {
    fn add(&mut self, number: Option<u64>, bytes: &[u8], matches: bool) {
        let gap = std::mem::take(&mut self.gap) && !self.found.lines.is_empty();
        let number = number.unwrap_or(0);
        let text = shown(bytes);
        self.room = self.room.saturating_sub(text.len());
        self.found.lines.push(Line {
            number,
            text,
            matches,
            gap,
        });
    }
}

impl Sink for Gather {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.found.matches += 1;
        // One line that matches is given however long it is, or the search could never go on behind it.
        if self.room == 0 && self.found.matches.saturating_sub(1) > self.skip {
            return Ok(false);
        }
        if self.found.matches > self.skip
            && self.found.matches <= self.skip.saturating_add(self.most)
        {
            self.add(found.line_number(), found.bytes(), true);
        }
        // One more than wanted tells that there is more.
        Ok(self.found.matches <= self.skip.saturating_add(self.most))
    }

    fn context(&mut self, _: &Searcher, near: &SinkContext<'_>) -> Result<bool, io::Error> {
        let within = self.found.matches >= self.skip
            && self.found.matches <= self.skip.saturating_add(self.most);
        if within && self.most > 0 {
            self.add(near.line_number(), near.bytes(), false);
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        self.gap = true;
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.binary = true;
        Ok(false)
    }
}

/// A line as it may stand in a listing: on one line, nothing in it deceptive, not longer than is shown.
fn shown(bytes: &[u8]) -> String {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let cut = line.get(..MAX_SHOWN);
    let text = String::from_utf8_lossy(cut.unwrap_or(line));
    let text = bailiwick::escape_lines(&text);
    match cut.filter(|_| line.len() > MAX_SHOWN) {
        Some(_) => format!("{text} [cut, {} bytes]", line.len()),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bailiwick::Code;

    use super::*;
    use crate::resolve;
    use crate::testing::{World, path};

    fn search(
        text: &[u8],
        pattern: &str,
        context: usize,
        skip: u64,
        most: u64,
    ) -> Result<Lines, Skipped> {
        let world = World::new(&[]);
        world.write("root/f", text);
        let lens = world.lens();
        let opened = resolve::file(&lens, &path("/r/f")).unwrap();
        let matcher = compile(pattern, false, Case::Sensitive).unwrap();
        Search::new(matcher, context, usize::MAX)
            .file(&lens, opened, skip, most)
            .unwrap()
    }

    #[track_caller]
    fn check(text: &str, pattern: &str, context: usize, expected: &[(u64, &str, bool)]) {
        let got = search(text.as_bytes(), pattern, context, 0, 100).unwrap();
        let lines = got
            .lines
            .iter()
            .map(|line| (line.number, line.text.as_str(), line.matches));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_that_match_come_with_the_lines_around_them() {
        check("a\nb\nc\nd\n", "b", 0, &[(2, "b", true)]);
        check(
            "a\nb\nc\nd\n",
            "b",
            1,
            &[(1, "a", false), (2, "b", true), (3, "c", false)],
        );
        check("a\r\nb\r\n", "^b", 0, &[(2, "b", true)]);
        check("x\u{202e}y\n", "x", 0, &[(1, "x\\u{202e}y", true)]);
    }

    #[test]
    fn only_so_many_matches_are_given_and_one_more_is_counted() {
        let got = search(b"1a\n2a\n3a\n4a\n", "a", 0, 1, 2).unwrap();
        let numbers: Vec<u64> = got.lines.iter().map(|line| line.number).collect();
        assert_eq!((numbers, got.matches), (vec![2, 3], 4));
    }

    #[test]
    fn binary_files_are_passed_over() {
        assert_eq!(search(b"a\0a\n", "a", 0, 0, 9), Err(Skipped::Binary));
    }

    #[test]
    fn a_search_ends_within_a_file_once_the_call_must_stop() {
        let mut world = World::new(&[]);
        world.write("root/f", "no\n".repeat(1 << 20));
        let search = |world: &World| {
            world.run(|view| {
                let opened = resolve::file(view, &path("/r/f"))?;
                let matcher = compile("yes", false, Case::Sensitive)?;
                Search::new(matcher, 0, usize::MAX).file(view, opened, 0, 9)
            })
        };
        assert_eq!(search(&world), Ok(Ok(Lines::default())));
        world.patience = 3.into();
        assert_eq!(search(&world), Err(Code::Cancelled));
    }

    #[test]
    fn long_lines_are_cut() {
        let got = search("ab".repeat(5000).as_bytes(), "a", 0, 0, 9).unwrap();
        assert!(got.lines[0].text.ends_with("[cut, 10000 bytes]"));
        assert!(got.lines[0].text.len() < 5000);
    }

    #[test]
    fn a_search_ends_once_its_lines_fill_the_room_and_tells_that_there_is_more() {
        let found = |room| {
            let world = World::new(&[]);
            world.write("root/f", "x\n-\n".repeat(1_000).as_bytes());
            let lens = world.lens();
            let opened = resolve::file(&lens, &path("/r/f")).unwrap();
            let matcher = compile("x", false, Case::Sensitive).unwrap();
            let found = Search::new(matcher, 1, room).file(&lens, opened, 0, 900);
            let found = found.unwrap().unwrap();
            (found.lines.len(), found.matches)
        };
        assert_eq!(found(usize::MAX), (1_800, 901));
        assert_eq!(found(10), (10, 6));
        assert_eq!(found(0), (2, 2));
    }

    #[test]
    fn patterns_that_explode_are_refused() {
        let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
        let wide = format!("[{}]", "a".repeat(2000));
        for pattern in [
            r"\w{1000}",
            r"(a{1,50}){1,20}b",
            r"a{1,1000}b",
            r"\w{999}",
            r"((a{100}){100}){100}",
            r"(\pL{50}){50}",
            r"\p{L}{300}\p{L}{300}",
            "(?x)(a{1,5 0}){1,3 0}b",
            "(?x:(a{1,5 0}){1,3 0})b",
            "(?x)(a{1,5# {\n0}){1,3# }\n0}b",
            "(aaaaaaaaaaaaaaaaaaaa){1,200}b",
            &deep,
            &wide,
            "(",
            "",
        ] {
            let refused = compile(pattern, false, Case::Insensitive).map(drop);
            assert_eq!(
                refused.map_err(|error| error.code()),
                Err(Code::InvalidArguments),
                "{pattern}"
            );
        }
        for pattern in [
            r"\w+\s*=",
            r"[a-z]{3,20}",
            r"(a{1,20}){1,10}b",
            r".{0,100}b",
            r"(foo|bar)\b",
            r"\d{4}-\d{2}-\d{2}",
            "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "(?x)(a{1,2 0}){1,1 0}b # {1,999}\n",
            r"a\{1000}[{1000}]",
            "(some words){1,15}b",
        ] {
            assert!(compile(pattern, false, Case::Smart).is_ok(), "{pattern}");
        }
        assert!(compile("(", true, Case::Sensitive).is_ok());
    }

    #[test]
    fn patterns_that_an_engine_with_backtracking_never_ends_find_what_matches() {
        let text = "a".repeat(512 * 1024);
        for (pattern, matches) in [("a*b|a", 1), ("(a+)+b", 0), ("(a|aa)+$", 1)] {
            let got = search(text.as_bytes(), pattern, 0, 0, 9).unwrap();
            assert_eq!(got.matches, matches, "{pattern}");
        }
    }
}
