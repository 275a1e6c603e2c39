//! Searches files for lines that match a pattern.
//!
//! Patterns come from models and files from anyone, so both are limited: the pattern before and after compilation, the
//! file by size and line length. The regex engine takes linear time, and a match ends the search in its line.

mod ordered;

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use bailiwick::CallError;
use bailiwick::tool::Interrupt;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, Ast, RepetitionKind, RepetitionRange, Visitor};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::read_view::ReadView;
use crate::resolve::OpenFile;
use crate::sys::{Errno, pread, spare_capacity};

pub(crate) use ordered::{FileResult, MatchRange, search_ordered};

/// Maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 1024;
/// Maximum size of a compiled pattern, which also bounds the compilation time.
const MAX_PROGRAM: usize = 256 * 1024;
/// Maximum size of the state cache while searching.
const MAX_STATES: usize = 1024 * 1024;
/// Maximum nesting depth of groups.
const MAX_NESTING: u32 = 50;
/// Maximum number of characters and classes that counted repetitions expand to. With 1,000 a search took seconds for
/// 200 KB, since its states did not fit the cache; with 200 it takes milliseconds.
const MAX_EXPANDED: u64 = 200;
/// Maximum length of a line; the rest of a file with a longer line is skipped.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Maximum size of a file to search.
pub(crate) const MAX_FILE: u64 = 64 * 1024 * 1024;
/// Maximum size of a file that is read into memory before it is searched.
const MAX_BUFFERED: u64 = 1024 * 1024;
/// Maximum displayed bytes of a line.
const MAX_DISPLAYED_BYTES: usize = 4096;

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

/// Compiles `pattern`, or rejects it within milliseconds.
pub(crate) fn compile(
    pattern: &str,
    literal: bool,
    case: CaseArg,
) -> Result<RegexMatcher, CallError> {
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
            Err(error) => return refuse(invalid_pattern(&error.kind())),
        }
    }
    let mut builder = RegexMatcherBuilder::new();
    builder
        .fixed_strings(literal)
        .case_insensitive(case == CaseArg::Insensitive)
        .case_smart(case == CaseArg::Smart)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_PROGRAM)
        .dfa_size_limit(MAX_STATES)
        .nest_limit(MAX_NESTING);
    builder
        .build(pattern)
        .or_else(|error| refuse(invalid_pattern(&error)))
}

fn invalid_pattern(reason: &dyn fmt::Display) -> String {
    format!("expected a regular expression: {reason}; set `literal` to search for plain text")
}

/// Counts the expanded size of counted repetitions.
#[derive(Debug, Default)]
struct Expansion {
    /// The factor of each open repetition, outermost first.
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
                let max_matches = match &repetition.op.kind {
                    RepetitionKind::Range(
                        RepetitionRange::Exactly(max_matches)
                        | RepetitionRange::AtLeast(max_matches)
                        | RepetitionRange::Bounded(_, max_matches),
                    ) => u64::from(*max_matches).max(1),
                    _ => 1,
                };
                self.counts.push(around.saturating_mul(max_matches));
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

/// One line of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultLine {
    /// Line number, from 1.
    pub(crate) number: u64,
    /// Without line end; cut if it is long.
    pub(crate) text: String,
    /// It matches; otherwise it is a context line.
    pub(crate) matches: bool,
    /// Lines before it were omitted.
    pub(crate) gap: bool,
}

/// The result for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchResult {
    /// Lines up to the limits.
    pub(crate) lines: Vec<ResultLine>,
    /// Number of matching lines that were found.
    pub(crate) matches: u64,
}

impl SearchResult {
    /// Removes what a search with this range would not have collected.
    pub(crate) fn limit_to(&mut self, skip: u64, max_matches: u64) {
        if self.matches > skip.saturating_add(max_matches) {
            self.matches = skip.saturating_add(max_matches).saturating_add(1);
            let mut left = max_matches;
            let over = self.lines.iter().position(|line| {
                let over = line.matches && left == 0;
                left = left.saturating_sub(u64::from(line.matches));
                over
            });
            self.lines.truncate(over.unwrap_or(self.lines.len()));
        }
    }
}

/// Why a file was not searched.
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
    byte_budget: usize,
    /// The content of a small file.
    buffer: Vec<u8>,
}

impl Clone for Search {
    fn clone(&self) -> Self {
        Self {
            matcher: self.matcher.clone(),
            searcher: self.searcher.clone(),
            byte_budget: self.byte_budget,
            buffer: Vec::new(),
        }
    }
}

impl Search {
    /// A search with `context` lines around each match, which stops in a file after `byte_budget` bytes of lines.
    pub(crate) fn new(matcher: RegexMatcher, context: usize, byte_budget: usize) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build();
        Self {
            matcher,
            searcher,
            byte_budget,
            buffer: Vec::new(),
        }
    }

    /// Searches `opened` for up to `max_matches` matches; the first `skip` are only counted.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE`. A file that cannot be searched is not an error.
    pub(crate) fn file(
        &mut self,
        view: &dyn ReadView,
        opened: OpenFile,
        skip: u64,
        max_matches: u64,
    ) -> Result<Result<SearchResult, Skipped>, Interrupt> {
        if opened.meta.len > MAX_FILE {
            return Ok(Err(Skipped::TooLarge));
        }
        let mut collector = Collector {
            skip,
            max_matches,
            byte_budget: self.byte_budget,
            found: SearchResult::default(),
            binary: false,
            gap: false,
        };
        if opened.meta.len <= MAX_BUFFERED && self.read_small(&opened) {
            view.checkpoint()?;
            if memchr::memchr(0, &self.buffer).is_some() {
                return Ok(Err(Skipped::Binary));
            }
            let searched = self
                .searcher
                .search_slice(&self.matcher, &self.buffer, &mut collector);
            return Ok(searched
                .map(|()| collector.found)
                .map_err(|_| Skipped::Unreadable));
        }
        let mut stopped = None;
        let reader = InterruptibleReader {
            view,
            file: opened.file.take(MAX_FILE),
            stopped: &mut stopped,
        };
        let searched = self
            .searcher
            .search_reader(&self.matcher, reader, &mut collector);
        if let Some(error) = stopped {
            return Err(error.into());
        }
        Ok(match searched {
            _ if collector.binary => Err(Skipped::Binary),
            Ok(()) => Ok(collector.found),
            Err(_) => Err(Skipped::Unreadable),
        })
    }
}

impl Search {
    /// Reads the whole file into the buffer; false if it is larger than stated, or cannot be read.
    fn read_small(&mut self, opened: &OpenFile) -> bool {
        let length = usize::try_from(opened.meta.len).unwrap_or(usize::MAX);
        self.buffer.clear();
        // One more byte than expected means that the file has grown.
        self.buffer.reserve_exact(length + 1);
        loop {
            let at = self.buffer.len() as u64;
            match pread(&opened.file, spare_capacity(&mut self.buffer), at) {
                Ok(0) => return true,
                Ok(_) if self.buffer.len() < length => {}
                Ok(_) => return self.buffer.len() == length,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// A reader that fails when the call must stop.
struct InterruptibleReader<'w> {
    view: &'w dyn ReadView,
    file: io::Take<File>,
    stopped: &'w mut Option<CallError>,
}

impl Read for InterruptibleReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Err(error) = self.view.checkpoint() {
            *self.stopped = Some(error);
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(into)
    }
}

struct Collector {
    skip: u64,
    max_matches: u64,
    /// Remaining bytes for lines.
    byte_budget: usize,
    found: SearchResult,
    binary: bool,
    gap: bool,
}

impl Collector {
    fn add(&mut self, number: Option<u64>, bytes: &[u8], matches: bool) {
        let gap = std::mem::take(&mut self.gap) && !self.found.lines.is_empty();
        let number = number.unwrap_or(0);
        let text = display_line(bytes);
        self.byte_budget = self.byte_budget.saturating_sub(text.len());
        self.found.lines.push(ResultLine {
            number,
            text,
            matches,
            gap,
        });
    }
}

impl Sink for Collector {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.found.matches += 1;
        // The first match is always included, so that the next page makes progress.
        if self.byte_budget == 0 && self.found.matches.saturating_sub(1) > self.skip {
            return Ok(false);
        }
        if self.found.matches > self.skip
            && self.found.matches <= self.skip.saturating_add(self.max_matches)
        {
            self.add(found.line_number(), found.bytes(), true);
        }
        // One match beyond the limit shows that there are more.
        Ok(self.found.matches <= self.skip.saturating_add(self.max_matches))
    }

    fn context(&mut self, _: &Searcher, near: &SinkContext<'_>) -> Result<bool, io::Error> {
        let within = self.found.matches >= self.skip
            && self.found.matches <= self.skip.saturating_add(self.max_matches);
        if within && self.max_matches > 0 {
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

/// A line for display: escaped and cut.
fn display_line(bytes: &[u8]) -> String {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let cut = line.get(..MAX_DISPLAYED_BYTES);
    let text = String::from_utf8_lossy(cut.unwrap_or(line));
    let text = bailiwick::text::escape_lines(&text);
    match cut.filter(|_| line.len() > MAX_DISPLAYED_BYTES) {
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
        max_matches: u64,
    ) -> Result<SearchResult, Skipped> {
        let world = World::new(&[]);
        world.write("root/f", text);
        let view = world.view();
        let opened = resolve::file(&view, &path("/r/f")).unwrap();
        let matcher = compile(pattern, false, CaseArg::Sensitive).unwrap();
        Search::new(matcher, context, usize::MAX)
            .file(&view, opened, skip, max_matches)
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
    fn matches_have_context_lines() {
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
    fn matches_are_limited_and_one_more_is_counted() {
        let got = search(b"1a\n2a\n3a\n4a\n", "a", 0, 1, 2).unwrap();
        let numbers: Vec<u64> = got.lines.iter().map(|line| line.number).collect();
        assert_eq!((numbers, got.matches), (vec![2, 3], 4));
    }

    #[test]
    fn binary_files_are_skipped() {
        assert_eq!(search(b"a\0a\n", "a", 0, 0, 9), Err(Skipped::Binary));
    }

    #[test]
    fn search_stops_within_a_file() {
        let mut world = World::new(&[]);
        world.write("root/f", "no\n".repeat(1 << 20));
        let search = |world: &World| {
            world.run(|view| {
                let opened = resolve::file(view, &path("/r/f"))?;
                let matcher = compile("yes", false, CaseArg::Sensitive)?;
                Search::new(matcher, 0, usize::MAX).file(view, opened, 0, 9)
            })
        };
        assert_eq!(search(&world), Ok(Ok(SearchResult::default())));
        world.checkpoints_left = 3.into();
        assert_eq!(search(&world), Err(Code::Cancelled));
    }

    #[test]
    fn long_lines_are_cut() {
        let got = search("ab".repeat(5000).as_bytes(), "a", 0, 0, 9).unwrap();
        assert!(got.lines[0].text.ends_with("[cut, 10000 bytes]"));
        assert!(got.lines[0].text.len() < 5000);
    }

    #[test]
    fn search_stops_at_the_byte_limit_and_reports_more() {
        let found = |byte_budget| {
            let world = World::new(&[]);
            world.write("root/f", "x\n-\n".repeat(1_000).as_bytes());
            let view = world.view();
            let opened = resolve::file(&view, &path("/r/f")).unwrap();
            let matcher = compile("x", false, CaseArg::Sensitive).unwrap();
            let found = Search::new(matcher, 1, byte_budget).file(&view, opened, 0, 900);
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
            let refused = compile(pattern, false, CaseArg::Insensitive).map(drop);
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
            assert!(compile(pattern, false, CaseArg::Smart).is_ok(), "{pattern}");
        }
        assert!(compile("(", true, CaseArg::Sensitive).is_ok());
    }

    #[test]
    fn backtracking_patterns_match_in_linear_time() {
        let text = "a".repeat(512 * 1024);
        for (pattern, matches) in [("a*b|a", 1), ("(a+)+b", 0), ("(a|aa)+$", 1)] {
            let got = search(text.as_bytes(), pattern, 0, 0, 9).unwrap();
            assert_eq!(got.matches, matches, "{pattern}");
        }
    }
}
