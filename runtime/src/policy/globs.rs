//! Glob texts in, a compiled set that is built once per list of texts out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::error::PolicyError;
use super::fold::fold;
use super::names::{Names, Told};
use super::need::Spelling;
use super::verdict::{Rule, Ruling};
use super::{braces, need};

/// The longest glob accepted, in bytes.
pub(crate) const MAX_GLOB: usize = 512;
/// The most brace groups in one glob.
const MAX_BRACES: usize = 4;
/// The most globs in one list.
pub(crate) const MAX_LIST: usize = 1024;
/// The most bytes of globs in one list that must be compiled together: what it costs grows with them.
const MAX_COMPILED: usize = 64 * 1024;
/// The most compiled lists kept for policies to come.
const MAX_INTERNED: usize = 4096;

/// How a list of globs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// What names alone do not decide.
    set: GlobSet,
    texts: Box<[String]>,
}

/// Every compiled list by its texts.
type Interned = DashMap<(Reading, Box<[String]>), Arc<Globs>, foldhash::fast::RandomState>;

static BUILDS: AtomicU64 = AtomicU64::new(0);
static INTERNED: LazyLock<Interned> = LazyLock::new(DashMap::default);

/// How many glob sets were compiled since the program began.
#[doc(hidden)]
#[must_use]
pub fn glob_builds() -> u64 {
    BUILDS.load(Ordering::Relaxed)
}

impl Globs {
    /// Compiles `texts`, or finds them compiled; none if there are none. `at` is their JSON pointer.
    pub(crate) fn intern(
        reading: Reading,
        texts: &[String],
        at: &str,
    ) -> Result<Option<Arc<Self>>, PolicyError> {
        if texts.is_empty() {
            return Ok(None);
        }
        let key = (reading, Box::from(texts));
        if let Some(found) = INTERNED.get(&key) {
            return Ok(Some(Arc::clone(&found)));
        }
        let built = Arc::new(Self::build(reading, texts, at)?);
        if INTERNED.len() >= MAX_INTERNED {
            INTERNED.retain(|_, globs| Arc::strong_count(globs) > 1);
        }
        if INTERNED.len() < MAX_INTERNED {
            INTERNED.insert(key, Arc::clone(&built));
        }
        Ok(Some(built))
    }

    fn build(reading: Reading, texts: &[String], at: &str) -> Result<Self, PolicyError> {
        if texts.len() > MAX_LIST {
            let reason = format!("holds more than {MAX_LIST} globs");
            return Err(PolicyError::invalid(at, reason));
        }
        let mut set = GlobSetBuilder::new();
        let mut names = Names::default();
        let mut compiled = 0;
        for (index, text) in texts.iter().enumerate() {
            let refuse = |reason| PolicyError::invalid(format!("{at}/{index}"), reason);
            for glob in variants(reading, text).map_err(refuse)? {
                if reading == Reading::Deny && names.take(&glob) {
                    continue;
                }
                compiled += glob.len();
                if compiled > MAX_COMPILED {
                    let reason =
                        format!("has more than {MAX_COMPILED} bytes of globs with wildcards");
                    return Err(PolicyError::invalid(at, reason));
                }
                match reading {
                    Reading::Deny => {
                        set.add(compile(&format!("{glob}/**")).map_err(refuse)?);
                        set.add(compile(&glob).map_err(refuse)?);
                    }
                    Reading::Allow => {
                        set.add(compile(&glob).map_err(refuse)?);
                    }
                }
            }
        }
        BUILDS.fetch_add(1, Ordering::Relaxed);
        let set = set
            .build()
            .map_err(|error| PolicyError::invalid(at, error.to_string()))?;
        Ok(Self {
            names,
            set,
            texts: texts.into(),
        })
    }

    /// Whether an allow list covers a path relative to its root.
    pub(crate) fn allows(&self, path: &str) -> bool {
        self.set.is_match(path)
    }

    /// Whether a deny list covers a path, in its folded form or as written.
    pub(crate) fn denies(&self, path: Spelling<'_>) -> bool {
        self.covers(path.folded) || path.written.is_some_and(|path| self.covers(path))
    }

    fn covers(&self, path: &str) -> bool {
        match self.names.tell(path) {
            Told::Covered => true,
            Told::Clear => false,
            Told::Unclear => self.set.is_match(path),
        }
    }

    /// The first text of a deny list that covers the path.
    pub(crate) fn culprit(&self, path: Spelling<'_>) -> Option<&str> {
        let covers = |text: &&String| {
            let alone = Self::intern(Reading::Deny, std::slice::from_ref(*text), "");
            matches!(alone, Ok(Some(globs)) if globs.denies(path))
        };
        self.texts.iter().find(covers).map(String::as_str)
    }

    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Checks one glob without keeping it.
pub(crate) fn check(reading: Reading, text: &str) -> Result<(), String> {
    for variant in variants(reading, text)? {
        compile(&variant)?;
    }
    Ok(())
}

pub(crate) fn compile(text: &str) -> Result<Glob, String> {
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|error| error.to_string())
}

/// The globs that together mean what `text` means in this reading; in `Deny`, each covers what is beneath, too.
pub(crate) fn variants(reading: Reading, text: &str) -> Result<Vec<String>, String> {
    check_form(text)?;
    compile(text)?;
    let mut all = Vec::new();
    for plain in braces::expand(text)? {
        match reading {
            Reading::Allow => allow_variants(&plain, &mut all),
            Reading::Deny => {
                deny_variants(&fold(&plain), &mut all);
                // A class or `?` may match what was written and not its fold.
                deny_variants(&plain, &mut all);
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
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

/// Refuses what would cost too much, and what could never match and so protect nothing.
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
    if braces::has_wide_class(text) {
        return Err(
            "has a class with a character beyond ASCII; write one glob for each".to_owned(),
        );
    }
    if text.starts_with('/') {
        return Err("begins with `/`; a glob is relative to its root".to_owned());
    }
    if text.ends_with('/') {
        return Err("ends with `/`; write `/**` for what is in a folder".to_owned());
    }
    match text
        .split('/')
        .find(|name| matches!(*name, "" | "." | ".."))
    {
        Some(name) => Err(format!("has `{name}` for a name and could never match")),
        None => Ok(()),
    }
}

/// Deny and immutable globs that hold in every root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Everywhere {
    pub(crate) deny: Option<Arc<Globs>>,
    pub(crate) immutable: Option<Arc<Globs>>,
}

impl Everywhere {
    pub(crate) fn compile(deny: &[String], immutable: &[String]) -> Result<Self, PolicyError> {
        Ok(Self {
            deny: Globs::intern(Reading::Deny, deny, "/deny")?,
            immutable: Globs::intern(Reading::Deny, immutable, "/immutable")?,
        })
    }

    pub(crate) fn judge(&self, need: &need::Need<'_>, mounts: &[need::Place]) -> Ruling {
        let hit = |globs: &Option<Arc<Globs>>| {
            globs
                .as_ref()
                .is_some_and(|globs| need.any_beneath(mounts, |spelling| globs.denies(spelling)))
        };
        if hit(&self.deny) {
            Ruling::deny(Rule::DenyGlob)
        } else {
            Ruling::deny_if(
                need.changes_file() && hit(&self.immutable),
                Rule::ImmutableGlob,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the list means, by the glob library alone: a match of the path or of a folder above it.
    fn by_library(text: &str, path: &str) -> bool {
        let stem = text.trim_end_matches("/**");
        let glob = compile(stem).unwrap().compile_matcher();
        let cuts = path.match_indices('/').map(|(at, _)| at);
        let mut folders = cuts.chain([path.len()]).map(|at| path.get(..at).unwrap());
        folders.any(|folder| glob.is_match(folder))
    }

    #[test]
    fn a_list_that_would_cost_too_much_to_compile_is_refused() {
        let list = |glob: &dyn Fn(usize) -> String| {
            let texts: Vec<_> = (0..MAX_LIST).map(glob).collect();
            Globs::build(Reading::Deny, &texts, "/deny")
        };
        let costly = list(&|index| format!("{index}{}", "*a".repeat(240)));
        assert_eq!(costly.unwrap_err().field(), "/deny");
        assert!(list(&|index| format!("**/{index}{}", "a".repeat(480))).is_ok());
        assert!(list(&|index| format!("a*/{index}/*")).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: crate::policy::tests::cases().cases / 10, ..crate::policy::tests::cases() })]

        #[test]
        fn names_tell_what_the_glob_library_would(
            texts in proptest::collection::vec(r"(\*\*/)?(\*?[ab]{1,2}|\*|a\?)(/([ab]{1,2}\*?|\*\*|\*)){0,2}", 1..3),
            path in "[ab]{1,2}(/[ab]{1,2}){0,3}",
        ) {
            let globs = Globs::build(Reading::Deny, &texts, "").unwrap();
            let covered = globs.denies(Spelling { folded: &path, written: None });
            prop_assert_eq!(covered, texts.iter().any(|text| by_library(text, &path)), "{:?}", texts);
        }
    }
}
