//! Lists of globs: checked, compiled and matched. A glob without `/` matches names at any depth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use globset::{Glob, GlobBuilder};
use regex_automata::PatternSet;

use super::error::PolicyError;
use super::fold::fold;
use super::matcher::Matcher;
use super::names::{NameMatch, Names, is_plain};
use super::need::{Need, Spelling};
use super::patterns::{PatternBudget, PatternCost};
use super::verdict::{Rule, Ruling};
use super::{braces, cache};
use crate::scope::Verb;

/// Maximum length of a glob in bytes.
pub(crate) const MAX_GLOB: usize = 512;
/// Maximum number of brace groups in one glob.
const MAX_BRACES: usize = 4;
/// Maximum number of globs in one list.
pub(crate) const MAX_LIST: usize = 1024;
/// Cost of a glob that is matched by its names, in addition to its bytes.
const NAME_COST: usize = 32;

/// How a list of globs is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As written; `X/**` also covers `X`.
    Allow,
    /// In any spelling, with everything beneath what matches.
    Deny,
}

/// A compiled list of globs, relative to a root.
#[derive(Debug)]
pub(crate) struct Globs {
    names: Names,
    /// Matches the globs that `names` does not take.
    matcher: Option<Matcher>,
    /// The index of the text of each glob of the matcher.
    origins: Box<[usize]>,
    texts: Box<[String]>,
    cost: PatternCost,
    /// Whether `**` is among them, which covers every path and the root itself.
    covers_roots: bool,
    /// Whether `*` is among them, which covers every path beneath the root.
    covers_entries: bool,
}

static BUILDS: AtomicU64 = AtomicU64::new(0);

/// Returns how many glob lists were compiled since the program began.
#[doc(hidden)]
#[must_use]
pub fn glob_builds() -> u64 {
    BUILDS.load(Ordering::Relaxed)
}

impl Globs {
    /// Compiles `texts`, or takes them from the cache; `None` if there are none. `at` is their JSON pointer.
    pub(crate) fn intern(
        reading: Reading,
        texts: &[String],
        at: &str,
        budget: &mut PatternBudget,
    ) -> Result<Option<Arc<Self>>, PolicyError> {
        if texts.is_empty() {
            return Ok(None);
        }
        let globs = match cache::get(reading, texts) {
            Some(found) => found,
            None => {
                let built = Arc::new(Self::build(reading, texts, at, budget)?);
                if budget.keeps() {
                    cache::insert(reading, &built);
                }
                built
            }
        };
        budget.charge(globs.cost, globs.size(), at)?;
        Ok(Some(globs))
    }

    /// Compiles a list within `budget`.
    fn build(
        reading: Reading,
        texts: &[String],
        at: &str,
        budget: &PatternBudget,
    ) -> Result<Self, PolicyError> {
        if texts.len() > MAX_LIST {
            let reason = format!("holds more than {MAX_LIST} globs");
            return Err(PolicyError::invalid(at, reason));
        }
        let (mut globs, mut origins) = (Vec::new(), Vec::new());
        let mut names = Names::default();
        let mut cost = PatternCost::default();
        let (mut covers_roots, mut covers_entries) = (false, false);
        for (index, text) in texts.iter().enumerate() {
            let refuse = |reason| PolicyError::invalid(format!("{at}/{index}"), reason);
            for glob in variants(reading, text).map_err(refuse)? {
                covers_roots |= glob == "**";
                covers_entries |= matches!(glob.as_str(), "**/*" | "*");
                if reading == Reading::Deny && names.try_add(&glob) {
                    cost.names += glob.len() + NAME_COST;
                } else {
                    cost.wildcards += glob.len();
                    globs.push(compile(&glob).map_err(refuse)?);
                    origins.push(index);
                }
                budget.check(cost, at)?;
            }
        }
        BUILDS.fetch_add(1, Ordering::Relaxed);
        let matcher = (!globs.is_empty()).then(|| Matcher::build(reading, &globs));
        let matcher = matcher.transpose();
        Ok(Self {
            names,
            matcher: matcher.map_err(|reason| PolicyError::invalid(at, reason))?,
            origins: origins.into(),
            texts: texts.into(),
            cost,
            covers_roots,
            covers_entries,
        })
    }

    /// Approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let texts: usize = self.texts.iter().map(|text| text.len() + 64).sum();
        // The key of the cache has the texts, too.
        let matcher = self.matcher.as_ref().map_or(0, Matcher::size);
        2 * (texts + self.cost.names) + matcher
    }

    /// Whether an allow list covers a path relative to its root.
    pub(crate) fn allows(&self, path: &str) -> bool {
        let matches = |matcher: &Matcher| matcher.matches(path) == Some(true);
        self.matcher.as_ref().is_some_and(matches)
    }

    /// Whether a deny list covers a path, in its folded form or as written.
    pub(crate) fn denies(&self, path: Spelling<'_>) -> bool {
        self.covers(path.folded) || path.written.is_some_and(|path| self.covers(path))
    }

    fn covers(&self, path: &str) -> bool {
        let matches = |matcher: &Matcher| matcher.matches(path) != Some(false);
        match self.names.check(path) {
            NameMatch::Covered => true,
            NameMatch::NotCovered => false,
            NameMatch::Unknown => self.matcher.as_ref().is_some_and(matches),
        }
    }

    /// The first text of a deny list that covers the path.
    pub(crate) fn matching_glob(&self, path: Spelling<'_>) -> Option<&str> {
        let spellings = std::iter::once(path.folded).chain(path.written);
        let covering = spellings.filter_map(|path| self.first_covering(path));
        let text = covering.min().and_then(|index| self.texts.get(index));
        text.map(String::as_str)
    }

    fn first_covering(&self, path: &str) -> Option<usize> {
        let by_name = self.texts.iter().position(|text| {
            let mut names = Names::default();
            for glob in variants(Reading::Deny, text).unwrap_or_default() {
                names.try_add(&glob);
            }
            names.check(path) == NameMatch::Covered
        });
        let matching = self.matcher.as_ref().map(|matcher| matcher.matching(path));
        let matching = matching.iter().flat_map(PatternSet::iter);
        let by_glob = matching.filter_map(|glob| self.origins.get(glob.as_usize()).copied());
        by_glob.chain(by_name).min()
    }

    /// See [`Names::mentions`].
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.names.mentions(name)
    }

    /// See [`Names::names_in`].
    pub(super) fn names_in(&self, dir: &str, special: &mut Vec<String>) -> bool {
        self.names.names_in(dir, special)
    }

    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// A glob for paths beneath a directory, with the syntax of policies: without `/` it matches names at any depth.
///
/// ```
/// use bailiwick::policy::PathGlob;
/// let names = PathGlob::parse("*.pem")?;
/// assert!(names.is_match("a.pem") && names.is_match("keys/old/a.pem"));
/// let paths = PathGlob::parse("keys/*.pem")?;
/// assert!(paths.is_match("keys/a.pem") && !paths.is_match("keys/old/a.pem"));
/// # Ok::<(), bailiwick::policy::InvalidGlob>(())
/// ```
#[derive(Clone, Debug)]
pub struct PathGlob {
    matching: Matching,
    /// Whether only the last name of a path matters.
    names: bool,
}

/// How a glob is matched.
#[derive(Clone, Debug)]
enum Matching {
    /// `*.rs`: a path matches if it ends with one of these, which contain no `/`.
    Endings(Box<[Box<str>]>),
    Automaton(Arc<Matcher>),
}

/// Why a text is not a valid glob: it is malformed, too large, or can match nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the glob {0}")]
pub struct InvalidGlob(String);

impl PathGlob {
    /// Compiles a glob.
    ///
    /// # Errors
    /// [`InvalidGlob`]
    pub fn parse(text: &str) -> Result<Self, InvalidGlob> {
        let alternatives = alternatives(text).map_err(InvalidGlob)?;
        if let Some(endings) = alternatives.iter().map(|plain| ending(plain)).collect() {
            return Ok(Self {
                matching: Matching::Endings(endings),
                names: true,
            });
        }
        let (mut globs, mut names) = (Vec::new(), true);
        for plain in alternatives {
            let name = plain.strip_prefix("**/");
            names &= name.is_some_and(|name| !name.contains('/') && name != "**");
            globs.push(compile(&plain).map_err(InvalidGlob)?);
        }
        let matcher = Matcher::build(Reading::Allow, &globs).map_err(InvalidGlob)?;
        Ok(Self {
            matching: Matching::Automaton(Arc::new(matcher)),
            names,
        })
    }

    /// Returns whether it matches a path that is relative to the directory.
    #[must_use]
    pub fn is_match(&self, path: &str) -> bool {
        match &self.matching {
            Matching::Endings(endings) => endings.iter().any(|ending| path.ends_with(&**ending)),
            Matching::Automaton(matcher) => matcher.matches(path) == Some(true),
        }
    }

    /// Returns whether a path matches if and only if its last name does.
    #[must_use]
    pub fn matches_names(&self) -> bool {
        self.names
    }
}

/// The ending of the names that a glob like `**/*.rs` matches. For `**/*`, which matches every name, it is empty.
fn ending(plain: &str) -> Option<Box<str>> {
    let ending = plain.strip_prefix("**/*")?;
    (is_plain(ending) && !ending.contains('/')).then(|| ending.into())
}

/// Checks the syntax of one glob; its cost is checked when the policy is compiled.
pub(crate) fn check(text: &str) -> Result<(), String> {
    alternatives(text).map(drop)
}

/// The globs without braces that `text` expands to, relative to a directory.
fn alternatives(text: &str) -> Result<Vec<String>, String> {
    check_form(text)?;
    // Other texts cannot be malformed, and compiling one takes much longer than this test.
    if text.contains(['[', ']', '{', '}', '\\']) {
        compile(text)?;
    }
    let expanded = braces::expand(text)?.into_iter();
    expanded
        .map(|plain| {
            check_names(&plain)?;
            Ok(at_any_depth(plain))
        })
        .collect()
}

fn at_any_depth(plain: String) -> String {
    if plain.contains('/') || plain == "**" {
        plain
    } else {
        format!("**/{plain}")
    }
}

pub(crate) fn compile(text: &str) -> Result<Glob, String> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| format!("is malformed: {}", error.kind()))
}

/// The globs that together are equivalent to `text` in this reading. In `Deny`, each also covers everything beneath.
pub(crate) fn variants(reading: Reading, text: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for plain in alternatives(text)? {
        match reading {
            Reading::Allow => allow_variants(&plain, &mut all),
            Reading::Deny => {
                let folded = fold(&plain);
                deny_variants(&folded, &mut all);
                if *folded != *plain {
                    // A class or `?` may match the original spelling but not the folded one.
                    deny_variants(&plain, &mut all);
                }
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The paths that an allow glob names without a wildcard, such as `src` for `src/**`.
pub(super) fn literal_paths(text: &str) -> Vec<String> {
    let mut all = variants(Reading::Allow, text).unwrap_or_default();
    all.retain(|glob| is_plain(glob));
    all
}

fn allow_variants(plain: &str, all: &mut Vec<String>) {
    if let Some(folder) = plain.strip_suffix("/**") {
        all.push(folder.to_owned());
    }
    all.push(plain.to_owned());
}

fn deny_variants(plain: &str, all: &mut Vec<String>) {
    let mut stem = plain;
    while let Some(folder) = stem.strip_suffix("/**") {
        stem = folder;
    }
    if !stem.is_empty() {
        all.push(stem.to_owned());
    }
}

/// Rejects globs that cost too much.
fn check_form(text: &str) -> Result<(), String> {
    if text.len() > MAX_GLOB {
        return Err(format!("is longer than {MAX_GLOB} bytes"));
    }
    if text.matches('{').count() > MAX_BRACES {
        return Err(format!("has more than {MAX_BRACES} brace groups"));
    }
    if text.chars().any(char::is_control) {
        return Err("holds a control character".to_owned());
    }
    if braces::has_named_class(text) {
        return Err(
            "has a class like `[:alpha:]`; list its characters, such as `a-zA-Z`".to_owned(),
        );
    }
    if braces::has_wide_class(text) {
        return Err(
            "has a class with a character beyond ASCII; write one glob for each".to_owned(),
        );
    }
    Ok(())
}

/// Rejects globs that can never match.
fn check_names(plain: &str) -> Result<(), String> {
    if plain.starts_with('/') {
        return Err(
            "begins with `/`; a glob is relative to each root, such as `src/*.pem`, or a name at any depth, such as `*.pem`"
                .to_owned(),
        );
    }
    if plain.ends_with('/') {
        return Err("ends with `/`; write `x` for a folder of that name at any depth, `x/**` for the one at the top of a root".to_owned());
    }
    if plain.starts_with('!') {
        return Err(
            "begins with `!`, and a glob here excludes nothing; write `\\!` for a name that begins with `!`"
                .to_owned(),
        );
    }
    if plain.split('/').next() == Some("~") {
        return Err(
            "begins with `~`, which is not expanded; a glob is relative to each root".to_owned(),
        );
    }
    if let Some(c) = escaped_plain(plain) {
        return Err(format!(
            "holds `\\{c}`; names are separated by `/`, and `\\` stands only before a character with a meaning, as in `\\*`"
        ));
    }
    match plain
        .split('/')
        .find(|name| matches!(*name, "" | "." | ".."))
    {
        Some(name) => Err(format!("contains the name `{name}`, so it can never match")),
        None => Ok(()),
    }
}

/// The first character that is escaped by `\` unnecessarily, as in a Windows path.
fn escaped_plain(plain: &str) -> Option<char> {
    let mut chars = plain.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let next = chars.next().filter(|c| !"*?[]{}!,~\\".contains(*c));
            if next.is_some() {
                return next;
            }
        }
    }
    None
}

/// The deny and immutable globs of a root, or of a whole policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct DenyGlobs {
    deny: Option<Arc<Globs>>,
    immutable: Option<Arc<Globs>>,
}

impl DenyGlobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.deny.is_none() && self.immutable.is_none()
    }

    pub(crate) fn compile(
        deny: &[String],
        immutable: &[String],
        at: &str,
        budget: &mut PatternBudget,
    ) -> Result<Self, PolicyError> {
        let mut intern =
            |texts, key| Globs::intern(Reading::Deny, texts, &format!("{at}/{key}"), budget);
        Ok(Self {
            deny: intern(deny, "deny")?,
            immutable: intern(immutable, "immutable")?,
        })
    }

    /// Whether these globs deny `verb` for every file.
    pub(crate) fn closes(&self, verb: Verb) -> bool {
        // A root itself can be listed, but never changed.
        let covers = |globs: &Arc<Globs>| match verb {
            Verb::Read => globs.covers_roots,
            Verb::Write | Verb::Execute => globs.covers_roots || globs.covers_entries,
        };
        self.deny.as_ref().is_some_and(covers)
            || verb == Verb::Write && self.immutable.as_ref().is_some_and(covers)
    }

    /// The ruling on `need`; `denies` returns whether a list covers it.
    pub(crate) fn judge(&self, need: &Need<'_>, denies: impl Fn(&Globs) -> bool) -> Ruling {
        let hit = |globs: &Option<Arc<Globs>>| globs.as_ref().is_some_and(|globs| denies(globs));
        if hit(&self.deny) {
            Ruling::deny(Rule::DenyGlob)
        } else {
            let immutable = need.changes_file() && hit(&self.immutable);
            Ruling::deny_if(immutable, Rule::ImmutableGlob)
        }
    }

    /// The deny list and the immutable list.
    pub(super) fn lists(&self) -> (Option<&Arc<Globs>>, Option<&Arc<Globs>>) {
        (self.deny.as_ref(), self.immutable.as_ref())
    }

    /// The list that resulted in a ruling.
    pub(crate) fn of(&self, rule: Rule) -> Option<&Globs> {
        match rule {
            Rule::DenyGlob => self.deny.as_deref(),
            Rule::ImmutableGlob => self.immutable.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Origin;
    use proptest::prelude::*;

    /// Reference implementation with the glob library alone: a match of the path or of an ancestor, or of any name if the
    /// glob has no `/`. It matches bytes, so with `?` or a negated class it agrees only on ASCII paths.
    fn by_library(text: &str, path: &str) -> bool {
        let stem = text.trim_end_matches("/**");
        let glob = compile(stem).unwrap().compile_matcher();
        if !text.contains('/') {
            return path.split('/').any(|name| glob.is_match(name));
        }
        let cuts = path.match_indices('/').map(|(at, _)| at);
        let mut folders = cuts.chain([path.len()]).map(|at| path.get(..at).unwrap());
        folders.any(|folder| glob.is_match(folder))
    }

    fn built(texts: &[String], budget: &PatternBudget) -> Result<Globs, PolicyError> {
        Globs::build(Reading::Deny, texts, "/deny", budget)
    }

    proptest! {
        #![proptest_config(crate::policy::tests::cases())]
        #[test]
        fn glob_about_names_ignores_the_directory(
            text in r"(\*\*/)?([ab*?]|\[!?[ab]\]|\[[+-]-9\]){1,3}(/[ab*]{1,2})?",
            dir in "([ab\u{e9}]{1,2}/){0,2}",
            name in "[ab\u{e9}]{1,3}",
        ) {
            if let Ok(glob) = PathGlob::parse(&text) && glob.matches_names() {
                prop_assert_eq!(glob.is_match(&name), glob.is_match(&format!("{dir}{name}")));
            }
        }
    }

    #[test]
    fn globs_without_slash_match_at_any_depth() {
        for (glob, path, denied, allowed) in [
            ("*.pem", "a.pem", true, true),
            ("*.pem", "keys/a.pem", true, true),
            (".env", "a/b/.env", true, true),
            (".env", "a/.env/b", true, false),
            (".env", "a/b.env", false, false),
            ("{*.pem,keys/*}", "a/b.pem", true, true),
            ("{*.pem,keys/*}", "a/keys/b", false, false),
            ("keys/*.pem", "a/keys/b.pem", false, false),
            ("x/**", "x", true, true),
            ("x/**", "a/x", false, false),
            ("**", "a/b", true, true),
            ("?.rs", "a/\u{e9}.rs", true, true),
            ("?.rs", "\u{e9}\u{e9}.rs", false, false),
            ("[!a]*", "\u{e9}", true, true),
            ("x[!a]y", "x\u{e9}y", true, true),
            ("x[!a]y", "x/y", false, false),
            ("x[+-9]y", "x/y", false, false),
            ("x[!a]\\*", "x\u{e9}*", true, true),
            ("?*?", "\u{e9}", false, false),
            ("?*?", "\u{e9}\u{1f511}", true, true),
        ] {
            let list = [glob.to_owned()];
            let budget = PatternBudget::configuration();
            let spelling = Spelling {
                folded: path,
                written: None,
            };
            let deny = Globs::build(Reading::Deny, &list, "/deny", &budget).unwrap();
            assert_eq!(deny.denies(spelling), denied, "{glob} {path}");
            let allow = Globs::build(Reading::Allow, &list, "/allow", &budget).unwrap();
            assert_eq!(allow.allows(path), allowed, "{glob} {path}");
            let exact = PathGlob::parse(glob).unwrap().is_match(path);
            assert_eq!(exact, allowed && path != "x", "{glob} {path}");
        }
    }

    #[test]
    fn globs_that_can_match_nothing_are_rejected() {
        for (glob, reason) in [
            ("!x", "begins with `!`"),
            ("{a,!x}", "begins with `!`"),
            ("~/x", "begins with `~`"),
            ("a\\b", "holds `\\b`"),
            ("C:\\x\\*.pem", "holds `\\x`"),
            ("/repo/*.pem", "begins with `/`"),
            ("node_modules/", "ends with `/`"),
            ("a/../b", "contains the name `..`"),
            ("", "contains the name ``"),
            ("[[:alpha:]\u{e9}].pem", "has a class like `[:alpha:]`"),
            ("[![:digit:]]*.key", "has a class like `[:alpha:]`"),
        ] {
            let error = check(glob).unwrap_err();
            assert!(error.starts_with(reason), "{glob}: {error}");
            assert!(PathGlob::parse(glob).is_err(), "{glob}");
        }
        for glob in [
            "[:]",
            "\\[:id\\].ts",
            "\\!x",
            "x!",
            "a~",
            "~a/b",
            "\\~/x",
            "a\\*b",
            "\\{a\\,b\\}",
        ] {
            assert_eq!(check(glob), Ok(()), "{glob}");
        }
    }

    #[test]
    fn glob_lists_over_the_budget_are_rejected() {
        let list = |glob: &dyn Fn(usize) -> String| {
            let texts: Vec<_> = (0..MAX_LIST).map(glob).collect();
            built(&texts, &PatternBudget::configuration())
        };
        let costly = list(&|index| format!("{index}{}", "*a".repeat(240)));
        assert_eq!(costly.unwrap_err().field(), "/deny");
        assert!(list(&|index| format!("**/{index}{}", "a".repeat(480))).is_ok());
        assert!(list(&|index| format!("a*/{index}/*")).is_ok());
    }

    #[test]
    fn largest_glob_list_of_a_model_is_bounded_in_bytes() {
        for glob in ["*", "*a", "*?", "?", "[!a]", "[a-y]", "/**/a", "*b?"] {
            let budget = PatternBudget::of(Origin::Model);
            let glob_of = |index| format!("**/{index}{}", glob.repeat(480 / glob.len()));
            let texts: Vec<_> = (0..MAX_LIST).map(glob_of).collect();
            // A list within the budget is still within it without its last globs.
            let (mut most, mut refused) = (1, texts.len());
            while refused - most > 1 {
                let middle = usize::midpoint(most, refused);
                match built(&texts[..middle], &budget) {
                    Ok(_) => most = middle,
                    Err(_) => refused = middle,
                }
            }
            let largest = built(&texts[..most], &budget).unwrap();
            assert!(largest.size() < 4 << 20, "{glob}: {}", largest.size());
        }
    }

    #[test]
    fn globs_that_are_not_about_the_ending_of_a_name_are_compiled() {
        for text in ["*\\*", "*[a]", "**", "***", "*a/b", "a*", "*?", "{*.a,b/*}"] {
            let glob = PathGlob::parse(text).unwrap();
            assert!(matches!(glob.matching, Matching::Automaton(_)), "{text}");
        }
    }

    #[test]
    fn further_globs_about_names_at_any_depth_are_matched_by_the_automaton() {
        let texts: Vec<_> = (0..100).map(|n| format!("**/a/**/b{n}")).collect();
        let globs = built(&texts, &PatternBudget::configuration()).unwrap();
        let denies = |path: &str| {
            let spelling = Spelling {
                folded: path,
                written: None,
            };
            globs.denies(spelling)
        };
        for n in 0..100 {
            assert!(denies(&format!("a/x/a/b{n}/y")) && denies(&format!("x/a/b{n}")));
            assert!(!denies(&format!("b{n}/a/x")) && !denies(&format!("a/xb{n}")));
        }
    }

    #[test]
    fn protected_names_need_no_automaton() {
        let texts: Vec<_> = crate::policy::protect::globs().map(str::to_owned).collect();
        let globs = built(&texts, &PatternBudget::configuration()).unwrap();
        assert!(globs.matcher.is_none());
        let unbound = built(&["*a*".to_owned()], &PatternBudget::configuration()).unwrap();
        assert!(unbound.matcher.is_some());
    }

    #[test]
    fn list_that_allows_is_not_taken_for_one_that_denies() {
        let texts = ["kept-apart/**".to_owned()];
        let intern = |reading| {
            let mut budget = PatternBudget::configuration();
            Globs::intern(reading, &texts, "", &mut budget)
                .unwrap()
                .unwrap()
        };
        for _ in 0..2 {
            let (allow, deny) = (intern(Reading::Allow), intern(Reading::Deny));
            assert!(!Arc::ptr_eq(&allow, &deny));
            let upper = Spelling {
                folded: "kept-apart/x",
                written: Some("KEPT-APART/x"),
            };
            assert!(deny.denies(upper) && allow.allows("kept-apart/x"));
            assert!(!allow.allows("KEPT-APART/x"));
        }
    }

    #[test]
    fn brace_alternatives_are_charged_one_by_one() {
        let eight = "{a,b,c,d,e,f,g,h}";
        let texts: Vec<_> = (0..MAX_LIST)
            .map(|index| format!("{index}{}{eight}{eight}", "a".repeat(400)))
            .collect();
        let refused = built(&texts, &PatternBudget::configuration());
        assert_eq!(refused.unwrap_err().field(), "/deny");
    }

    #[test]
    fn matching_glob_returns_the_first_glob() {
        let texts = ["b/*.rs", "a", "**/*.md", "c/{d,e*}", "C/x"].map(str::to_owned);
        let globs = built(&texts, &PatternBudget::configuration()).unwrap();
        for (path, expected) in [
            ("b/x.rs/y", Some("b/*.rs")),
            ("a/x.md", Some("a")),
            ("x/y.md", Some("**/*.md")),
            ("c/e2/x", Some("c/{d,e*}")),
            ("c/x", Some("C/x")),
            ("d", None),
        ] {
            let spelling = Spelling {
                folded: path,
                written: None,
            };
            assert_eq!(globs.matching_glob(spelling), expected, "{path}");
            assert_eq!(globs.denies(spelling), expected.is_some(), "{path}");
        }
    }

    #[test]
    fn names_of_ignored_characters_hide_nothing_and_cover_only_themselves() {
        for (glob, path, covered) in [
            (".env", "\u{200b}/.ENV", true),
            ("*.pem", "a/\u{200b}/KEY.PEM", true),
            ("**/secrets/*", "\u{200b}/SECRETS/x", true),
            ("\u{200b}/X", "\u{200b}/x", true),
            ("a/\u{200b}", "a/\u{200b}/x", true),
            ("a/\u{200b}", "a/\u{200b}", true),
            ("**/a/\u{200b}", "b/a/\u{200b}/x", true),
            ("a/\u{200b}", "a/x", false),
            ("**/a/\u{200b}", "b/a/x", false),
            ("\u{200b}/X", "x", false),
            ("**/a*b/\u{200b}", "ab/\u{200b}", true),
            ("**/a*b/\u{200b}", "ab/x", false),
            ("\u{200b}", "a/\u{200c}", true),
            ("\u{200b}", "a", false),
            ("\u{200b}", "\u{200c}", true),
            ("\u{200b}/**", "\u{200c}/x", true),
            ("\u{200b}/**", "a/x", false),
            ("stra\u{df}e", "STRA\u{1e9e}E/x", true),
        ] {
            let globs = built(&[glob.to_owned()], &PatternBudget::configuration()).unwrap();
            let folded = &*fold(path);
            let written = Some(path);
            assert_eq!(
                globs.denies(Spelling { folded, written }),
                covered,
                "{glob:?} {path:?}"
            );
        }
    }

    #[test]
    fn glob_cache_is_bounded_and_skips_lists_of_calls() {
        let texts = |index: usize| {
            [format!(
                "kept-within-a-bound/{index}/*{}",
                "*?x".repeat(150)
            )]
        };
        let intern = |index: usize, mut budget: PatternBudget| {
            let globs = Globs::intern(Reading::Deny, &texts(index), "", &mut budget);
            globs.unwrap().unwrap()
        };
        let enough =
            2 * cache::MAX_CACHED / intern(0, PatternBudget::of(Origin::Model).once()).size();
        let once = texts(0);
        assert!(cache::get(Reading::Deny, &once).is_none());
        for index in 0..enough {
            intern(index, PatternBudget::of(Origin::Model));
            assert!(cache::bytes() <= cache::MAX_CACHED);
        }
        assert!(cache::get(Reading::Deny, &texts(0)).is_none());
        assert!(cache::get(Reading::Deny, &texts(enough - 1)).is_some());
    }

    proptest! {
        #![proptest_config(crate::policy::tests::few_cases())]

        #[test]
        fn globs_for_endings_of_names_agree_with_globset(
            text in r"(\*\*/)?\*[ab.é ~^!,-]{0,2}|\*\{[ab.]{1,2},[ab.]{0,2}\}",
            path in "[ab.é ~^!,-]{1,3}(/[ab.é ~^!,-]{1,3}){0,2}",
        ) {
            let glob = PathGlob::parse(&text).unwrap();
            prop_assert!(matches!(glob.matching, Matching::Endings(_)) && glob.matches_names());
            let expanded = alternatives(&text).unwrap().into_iter();
            let by_library = expanded.map(|plain| compile(&plain).unwrap().compile_matcher());
            let expected = by_library.into_iter().any(|matcher| matcher.is_match(&path));
            prop_assert_eq!(glob.is_match(&path), expected);
        }

        #[test]
        fn matching_agrees_with_globset(
            texts in proptest::collection::vec(r"(\*\*/)?(\*?[ab]{1,2}|[ab]{1,2}\*[ab]{0,2}|\*|a\?)(/([ab]{1,2}\*?|\*\*|\*)){0,4}", 1..3),
            path in "[ab]{1,2}(/[ab]{1,2}){0,5}",
        ) {
            let globs = built(&texts, &PatternBudget::configuration()).unwrap();
            let covered = globs.denies(Spelling { folded: &path, written: None });
            prop_assert_eq!(covered, texts.iter().any(|text| by_library(text, &path)), "{:?}", texts);
        }
    }
}
