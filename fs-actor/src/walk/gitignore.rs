//! Rules of `.gitignore` and `.ignore` files.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bailiwick::VirtualPath;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::read_view::ReadView;
use crate::resolve::{self, OpenDir, OpenFile};

/// Names of ignore files; later ones take precedence.
const NAMES: [&str; 2] = [".gitignore", ".ignore"];
/// Limits of an ignore file. The rest and unusual patterns are skipped, since they must not cost more than the search.
const MAX_BYTES: u64 = 64 * 1024;
const MAX_LINES: usize = 1000;
const MAX_LINE: usize = 512;
const MAX_BRACES: usize = 4;
/// Limit for the patterns of one walk, since each is compiled: their bytes, and this much per pattern. Beyond it
/// further ignore files are skipped.
const MAX_COST: usize = 512 * 1024;
const COST_PER_PATTERN: usize = 32;

/// The rules for the current directory. Clones share the budget.
#[derive(Clone, Debug)]
pub(crate) struct IgnoreRules {
    /// One per directory from the root down, if it has rules.
    levels: Vec<Option<Arc<Gitignore>>>,
    /// What remains of [`MAX_COST`].
    budget: Arc<AtomicUsize>,
}

impl IgnoreRules {
    /// The rules of the directories above `at`.
    pub(crate) fn for_ancestors(view: &dyn ReadView, at: &VirtualPath) -> Self {
        let mut above = Self {
            levels: Vec::new(),
            budget: Arc::new(AtomicUsize::new(MAX_COST)),
        };
        let mut next = at.parent();
        while let Some(dir) = next.filter(|dir| view.mount_point(dir).is_some()) {
            let read = |name: &str| {
                let path = dir.join(name).ok().filter(|path| view.shows(path))?;
                // Links are not followed, so their targets need not be judged.
                resolve::file(view, &path).ok()
            };
            above.add(&dir, read);
            next = dir.parent();
        }
        above.levels.reverse();
        above
    }

    /// Adds the rules of the directory `dir`; `may_contain` excludes ignore files that it does not have.
    pub(super) fn enter(
        &mut self,
        view: &dyn ReadView,
        dir: &OpenDir,
        path: &VirtualPath,
        may_contain: impl Fn(&str) -> bool,
    ) {
        let read = |name: &str| {
            if !may_contain(name) {
                return None;
            }
            path.join(name).ok().filter(|path| view.shows(path))?;
            dir.read(name).ok()
        };
        self.add(path, read);
    }

    /// Enters a directory that cannot be read.
    pub(super) fn enter_unknown(&mut self) {
        self.levels.push(None);
    }

    fn add(&mut self, dir: &VirtualPath, read: impl Fn(&str) -> Option<OpenFile>) {
        let patterns = if self.is_exhausted() {
            None
        } else {
            patterns(dir, read, &self.budget)
        };
        self.levels.push(patterns.map(Arc::new));
    }

    /// The same rules with a budget of their own.
    pub(super) fn separate(&self) -> Self {
        let left = self.budget.load(Ordering::Relaxed);
        Self {
            levels: self.levels.clone(),
            budget: Arc::new(AtomicUsize::new(left)),
        }
    }

    /// Whether nothing of the budget is left, so that further ignore files are skipped.
    pub(super) fn is_exhausted(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    /// Cost of the patterns so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        MAX_COST - self.budget.load(Ordering::Relaxed)
    }

    pub(super) fn pop(&mut self) {
        self.levels.pop();
    }

    /// Whether the deepest matching rule ignores the entry. `.git` is always ignored.
    pub(super) fn ignores(&self, name: &str, path: &str, is_dir: bool) -> bool {
        if name == ".git" {
            return true;
        }
        let path = Path::new(path);
        for level in self.levels.iter().rev().flatten() {
            match level.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

fn patterns(
    dir: &VirtualPath,
    read: impl Fn(&str) -> Option<OpenFile>,
    budget: &AtomicUsize,
) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(dir.as_str());
    let mut any = false;
    for opened in NAMES.into_iter().filter_map(read) {
        let mut bytes = Vec::new();
        if opened.file.take(MAX_BYTES).read_to_end(&mut bytes).is_err() {
            continue;
        }
        for line in String::from_utf8_lossy(&bytes).lines().take(MAX_LINES) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let braces = line.bytes().filter(|byte| *byte == b'{').count();
            if line.len() <= MAX_LINE && braces <= MAX_BRACES {
                let cost = line.len() + COST_PER_PATTERN;
                let spend = |left: usize| left.checked_sub(cost);
                if budget
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
                    .is_err()
                {
                    budget.store(0, Ordering::Relaxed);
                    break;
                }
                // Invalid patterns ignore nothing, as in Git.
                any |= builder.add_line(None, line).is_ok();
            }
        }
    }
    if any { builder.build().ok() } else { None }
}
