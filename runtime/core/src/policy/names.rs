//! Matches deny globs that are plain names, without a regular expression.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

use crate::path::beneath;

/// The globs of a list that are matched by comparing names, and a filter for all other globs.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// `a/b`: paths from the root.
    anchored: Vec<Box<str>>,
    /// `**/a/b`: the names that must follow a name, keyed by that name.
    floating: HashMap<Box<str>, Vec<Box<str>>, RandomState>,
    /// `**/*.key`: suffixes of names.
    endings: Vec<Box<str>>,
    /// `**/a/*`: names that a path must have for one of the other globs to cover it.
    needed: HashSet<Box<str>, RandomState>,
    /// Whether one of the other globs requires no name.
    unbound: bool,
}

/// Result of comparing the names of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameMatch {
    Covered,
    Clear,
    /// The other globs must be matched.
    Unclear,
}

impl Names {
    /// Adds a glob, which also covers everything beneath. Returns false if it cannot be matched by names.
    pub(super) fn take(&mut self, stem: &str) -> bool {
        let Some(rest) = stem.strip_prefix("**/") else {
            let plain = is_plain(stem);
            if plain {
                self.anchored.push(stem.into());
            } else {
                self.unbound = true;
            }
            return plain;
        };
        let (name, after) = rest.split_once('/').unwrap_or((rest, ""));
        if is_plain(rest) {
            let follows = self.floating.entry(name.into()).or_default();
            follows.push(after.into());
            return true;
        }
        if is_plain(name) {
            self.needed.insert(name.into());
            return false;
        }
        match rest.strip_prefix('*') {
            Some(ending) if after.is_empty() && !ending.is_empty() && is_plain(ending) => {
                self.endings.push(ending.into());
                true
            }
            _ => {
                self.unbound = true;
                false
            }
        }
    }

    /// Whether an entry of that name may be treated differently from others in its directory, because of its name alone.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.floating.contains_key(name)
            || self.needed.contains(name)
            || self.endings.iter().any(|end| name.ends_with(&**end))
    }

    /// Adds the names of entries in `dir` that globs with several names may treat differently from others. Returns false
    /// if the other globs must be matched for each entry.
    pub(super) fn names_in(&self, dir: &str, special: &mut Vec<String>) -> bool {
        let mut add = |dir: &str, stem: &str| {
            let rest = if dir.is_empty() {
                Some(stem)
            } else {
                beneath(stem, dir)
            };
            let name = rest.and_then(|rest| rest.split('/').next());
            special.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
        };
        self.anchored.iter().for_each(|stem| add(dir, stem));
        let mut rest = Some(dir).filter(|dir| !dir.is_empty());
        while let Some(names) = rest {
            let (name, after) = names.split_once('/').unwrap_or((names, ""));
            if self.needed.contains(name) {
                return false;
            }
            let follows = self.floating.get(name).into_iter().flatten();
            follows.for_each(|stem| add(after, stem));
            rest = Some(after).filter(|after| !after.is_empty());
        }
        !self.unbound
    }

    pub(super) fn check(&self, path: &str) -> NameMatch {
        if self
            .anchored
            .iter()
            .any(|stem| beneath(path, stem).is_some())
        {
            return NameMatch::Covered;
        }
        let mut unclear = self.unbound;
        let mut rest = Some(path);
        while let Some(names) = rest {
            let (name, after) = names.split_once('/').unwrap_or((names, ""));
            let follows = self.floating.get(name).into_iter().flatten();
            let covered = follows
                .into_iter()
                .any(|stem| stem.is_empty() || beneath(after, stem).is_some());
            if covered || self.endings.iter().any(|end| name.ends_with(&**end)) {
                return NameMatch::Covered;
            }
            unclear = unclear || self.needed.contains(name);
            rest = Some(after).filter(|after| !after.is_empty());
        }
        if unclear {
            NameMatch::Unclear
        } else {
            NameMatch::Clear
        }
    }
}

/// Whether a glob is a path without a wildcard.
pub(super) fn is_plain(text: &str) -> bool {
    !text.contains(['*', '?', '[', ']', '{', '}', '\\'])
}
