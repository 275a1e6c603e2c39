//! Finds out which entries of a directory rules may treat differently from the others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::base::Base;
use super::fold::fold;
use super::globs::{DenyGlobs, Globs};
use super::need::MountPoint;
use super::roots::Subtree;
use crate::path::{VirtualPath, beneath};
use crate::scope::ScopePattern;

/// The rules that may treat entries of one directory differently from others. Any two entries whose names are ordinary
/// have the same verdict on reading them, and changes of both or of neither are denied.
#[derive(Debug)]
pub(crate) struct EntryRules<'a> {
    lists: Vec<&'a Globs>,
    /// Folded names, and names as written, of entries that a rule about a path names.
    special: HashSet<String, RandomState>,
}

impl EntryRules<'_> {
    /// Whether no rule is about this name.
    pub(crate) fn is_ordinary(&self, name: &str) -> bool {
        if !name.is_ascii() {
            return false;
        }
        let mentioned = |name: &str| {
            !self.special.is_empty() && self.special.contains(name)
                || self.lists.iter().any(|list| list.mentions(name))
        };
        match fold(name) {
            Cow::Borrowed(_) => !mentioned(name),
            Cow::Owned(folded) => !mentioned(name) && !mentioned(&folded),
        }
    }
}

/// Collects the rules for one directory.
#[derive(Debug)]
pub(super) struct EntryRulesBuilder<'a, 'd> {
    dir: &'d VirtualPath,
    folded: Cow<'d, str>,
    rules: EntryRules<'a>,
    /// Whether there are rules that [`EntryRules`] cannot express.
    others: bool,
}

impl<'a, 'd> EntryRulesBuilder<'a, 'd> {
    /// `None` if the directory is outside all roots.
    pub(super) fn new(dir: &'d VirtualPath, base: &Base) -> Option<Self> {
        (!base.is_outside(dir)).then(|| Self {
            dir,
            folded: fold(dir.as_str()),
            rules: EntryRules {
                lists: Vec::new(),
                special: HashSet::default(),
            },
            others: false,
        })
    }

    /// Adds a rule about `path` and everything beneath it.
    pub(super) fn path(&mut self, path: &VirtualPath) {
        self.folded_path(&fold(path.as_str()));
    }

    fn folded_path(&mut self, path: &str) {
        self.others |= beneath(path, &self.folded).is_some_and(|rest| !rest.is_empty());
    }

    pub(super) fn pattern(&mut self, pattern: &ScopePattern) {
        if let Some(path) = pattern.path() {
            self.path(path);
        }
    }

    /// Adds a root, with its globs.
    pub(super) fn subtree(&mut self, subtree: &'a Subtree) {
        self.folded_path(subtree.mount.folded());
        if self.dir_beneath(&subtree.mount).is_some() {
            self.others |= subtree.allow_globs().is_some();
            self.globs(subtree.denied(), &subtree.mount);
        }
    }

    /// Adds globs relative to `mount`.
    pub(super) fn globs(&mut self, globs: &'a DenyGlobs, mount: &MountPoint) {
        let (deny, immutable) = globs.lists();
        for list in deny.into_iter().chain(immutable) {
            self.list(list, mount);
        }
    }

    fn list(&mut self, list: &'a Arc<Globs>, mount: &MountPoint) {
        let Some((folded, written)) = self.dir_beneath(mount) else {
            return;
        };
        let mut special = Vec::new();
        let known = list.names_in(folded, &mut special) && list.names_in(written, &mut special);
        self.others |= !known;
        self.rules.special.extend(special);
        let mut lists = self.rules.lists.iter();
        if !lists.any(|known| std::ptr::eq(*known, &**list)) {
            self.rules.lists.push(list);
        }
    }

    /// The directory relative to `mount`: folded, and as written.
    fn dir_beneath(&self, mount: &MountPoint) -> Option<(&str, &'d str)> {
        let folded = beneath(&self.folded, mount.folded())?;
        Some((folded, mount.below(self.dir)))
    }

    /// The rules, unless only judging each entry gives its verdict.
    pub(super) fn build(self) -> Option<EntryRules<'a>> {
        (!self.others).then_some(self.rules)
    }
}
