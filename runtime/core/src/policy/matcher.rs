//! Matches many globs at once with an automaton of bounded memory.

use std::fmt;
use std::sync::{Arc, LazyLock};

use globset::Glob;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, PatternSet};

use super::globs::{Reading, compile};

/// Maximum size of one automaton in bytes, without its caches.
const MAX_AUTOMATON: usize = 8 << 20;
/// Minimum size in bytes of the cache of states that a thread has for one automaton.
const MIN_CACHE: usize = 16 << 10;

type NewCache = Box<dyn Fn() -> Cache + Send + Sync>;

/// Compiled globs. States are built while matching, and a thread drops them once its cache is full.
pub(super) struct Matcher {
    dfa: Arc<DFA>,
    caches: Pool<Cache, NewCache>,
    /// The bytes of the automaton and of one full cache.
    size: usize,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Matcher {
    /// Compiles `globs`; in [`Reading::Deny`] each also matches everything beneath what it matches.
    pub(super) fn build(reading: Reading, globs: &[Glob]) -> Result<Self, String> {
        if !*IS_KNOWN {
            return Err(
                "cannot be compiled with this version of globset; 0.4.22 is known to work"
                    .to_owned(),
            );
        }
        let regexes: Vec<_> = globs.iter().map(|glob| regex(reading, glob)).collect();
        let bytes = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .dot_matches_new_line(true);
        let bounded = thompson::Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MAX_AUTOMATON));
        let nfa = thompson::Compiler::new()
            .syntax(bytes)
            .configure(bounded)
            .build_many(&regexes)
            .map_err(|error| error.to_string())?;
        let automaton = nfa.memory_usage();
        let cache = MIN_CACHE.max(4 * automaton);
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .cache_capacity(cache)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa);
        let dfa = Arc::new(dfa.map_err(|error| error.to_string())?);
        let cached = Arc::clone(&dfa);
        Ok(Self {
            dfa,
            caches: Pool::new(Box::new(move || cached.create_cache())),
            size: automaton + cache,
        })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether a glob matches all of `path`. `None` if the automaton gave up, although it is configured not to give up.
    pub(super) fn matches(&self, path: &str) -> Option<bool> {
        let input = Input::new(path).anchored(Anchored::Yes).earliest(true);
        let found = self.dfa.try_search_fwd(&mut self.caches.get(), &input);
        found.ok().map(|found| found.is_some())
    }

    /// The indexes of the globs that match all of `path`.
    pub(super) fn matching(&self, path: &str) -> PatternSet {
        let input = Input::new(path).anchored(Anchored::Yes);
        let mut found = PatternSet::new(self.dfa.pattern_len());
        // An automaton that gives up matches nothing.
        let _ = self
            .dfa
            .try_which_overlapping_matches(&mut self.caches.get(), &input, &mut found);
        found
    }
}

/// Whether this version of globset writes expressions as [`by_character`] expects.
static IS_KNOWN: LazyLock<bool> = LazyLock::new(|| {
    let glob = compile(r"\[?*[!^b]/[ab]");
    glob.is_ok_and(|glob| glob.regex() == r"(?-u)^\[[^/][^/]*[^/\^b]/[ab]$")
});

fn regex(reading: Reading, glob: &Glob) -> String {
    let regex = by_character(glob.regex());
    match (reading, regex.strip_suffix('$')) {
        (Reading::Deny, Some(stem)) => format!("{stem}(?:/.*)?$"),
        (Reading::Deny | Reading::Allow, _) => regex,
    }
}

/// Makes `?` and negated classes match one character. globset compiles them to `[^…]`, which matches one byte. Here it is a
/// byte that begins a character, and then the bytes that continue it. globset escapes a literal `[`, so `[^` always begins a
/// negated class.
pub(super) fn by_character(regex: &str) -> String {
    let mut parts = regex.split("[^");
    let mut converted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut escaped = false;
        let end = part.find(|c| {
            let ends = c == ']' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        match end.map(|end| part.split_at(end + 1)) {
            // The `[^/]*` of a `*` matches whole characters anyway.
            Some((class, rest)) if !rest.starts_with('*') => {
                converted.extend([r"[^\x80-\xbf", class, r"[\x80-\xbf]*", rest]);
            }
            _ => converted.extend(["[^", part]),
        }
    }
    converted
}
