//! Glob texts in, a compiled set that is built once per list of texts out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::error::PolicyError;
use super::fold::fold;
use super::need::Spelling;
use super::verdict::{Rule, Ruling};
use super::{braces, need};

/// The longest glob accepted, in bytes.
pub(crate) const MAX_GLOB: usize = 512;
/// The most brace groups in one glob.
const MAX_BRACES: usize = 4;
/// The most globs in one list.
const MAX_LIST: usize = 1024;
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
    set: GlobSet,
    texts: Box<[String]>,
    /// Which text each member of the set came from.
    owners: Box<[usize]>,
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
        let mut owners = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let refuse = |reason| PolicyError::invalid(format!("{at}/{index}"), reason);
            for variant in variants(reading, text).map_err(refuse)? {
                set.add(compile(&variant).map_err(refuse)?);
                owners.push(index);
            }
        }
        BUILDS.fetch_add(1, Ordering::Relaxed);
        let set = set
            .build()
            .map_err(|error| PolicyError::invalid(at, error.to_string()))?;
        Ok(Self {
            set,
            texts: texts.into(),
            owners: owners.into(),
        })
    }

    /// Whether an allow list covers a path relative to its root.
    pub(crate) fn allows(&self, path: &str) -> bool {
        self.set.is_match(path)
    }

    /// Whether a deny list covers a path, in its folded form or as written.
    pub(crate) fn denies(&self, path: Spelling<'_>) -> bool {
        self.set.is_match(path.folded) || path.written.is_some_and(|path| self.set.is_match(path))
    }

    /// The first text that covers the path.
    pub(crate) fn culprit(&self, path: Spelling<'_>) -> Option<&str> {
        let spellings = [Some(path.folded), path.written];
        let hit = spellings
            .into_iter()
            .flatten()
            .flat_map(|path| self.set.matches(path))
            .min()?;
        self.texts.get(*self.owners.get(hit)?).map(String::as_str)
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

/// The globs that together mean what `text` means in this reading.
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
        all.push(format!("{stem}/**"));
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
