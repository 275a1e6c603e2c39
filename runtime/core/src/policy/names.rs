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
    /// `**/a*b`: names with one `*`.
    wildcards: Vec<Wildcard>,
    /// `**/a/*` or `a/*`: names that a path must have for one of the other globs to cover it.
    needed: HashSet<Box<str>, RandomState>,
    /// Whether one of the other globs requires no name.
    unbound: bool,
}

/// How a name begins and ends.
#[derive(Debug)]
struct Wildcard {
    begin: Box<str>,
    end: Box<str>,
}

impl Wildcard {
    fn parse(name: &str) -> Option<Self> {
        let (begin, end) = name.split_once('*')?;
        (is_plain(begin) && is_plain(end) && begin.len() + end.len() > 0).then(|| Self {
            begin: begin.into(),
            end: end.into(),
        })
    }

    fn matches(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&*self.begin);
        rest.is_some_and(|rest| rest.ends_with(&*self.end))
    }
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
        let floating = stem.strip_prefix("**/");
        let rest = floating.unwrap_or(stem);
        let (name, after) = rest.split_once('/').unwrap_or((rest, ""));
        let wildcard = floating
            .filter(|_| after.is_empty())
            .and(Wildcard::parse(name));
        match (floating, wildcard) {
            (None, _) if is_plain(stem) => self.anchored.push(stem.into()),
            (Some(_), _) if is_plain(rest) => {
                let follows = self.floating.entry(name.into()).or_default();
                follows.push(after.into());
            }
            (_, Some(wildcard)) => self.wildcards.push(wildcard),
            _ if is_plain(name) => {
                self.needed.insert(name.into());
                return false;
            }
            _ => {
                self.unbound = true;
                return false;
            }
        }
        true
    }

    /// Whether an entry of that name may be treated differently from others in its directory, because of its name alone.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.floating.contains_key(name) || self.needed.contains(name) || self.has_wildcard(name)
    }

    fn has_wildcard(&self, name: &str) -> bool {
        self.wildcards.iter().any(|it| it.matches(name))
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
            if covered || self.has_wildcard(name) {
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
