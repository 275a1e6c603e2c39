//! Finds changes that would make Git run a program.
//!
//! Git treats any directory that contains `HEAD`, `objects` and `refs` as a repository, and runs programs that its
//! configuration and hooks name. So these files are protected in such a directory, and so is every entry that would
//! complete it.

use std::collections::{BTreeMap, HashMap};

use bailiwick::policy::fold;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Code, VirtualPath};

use super::tree::{self, Item};
use super::{Step, TransferMode, target};
use crate::read_view::ReadView;
use crate::resolve::{self, AtPath as _, OpenDir};
use crate::sys::Errno;

/// Maximum number of protected files per call.
const MAX_ASKED: usize = 1_000;

/// Names that make a directory a repository.
const MARKERS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Which of the [`MARKERS`] a directory contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Markers([bool; 4]);

impl Markers {
    fn is_repository(self) -> bool {
        let [head, objects, refs, common] = self.0;
        // With `commondir` Git looks for the other two elsewhere.
        head && (common || objects && refs)
    }

    /// Adds the marker that `name` is, if it is one.
    fn with(self, name: &str) -> Self {
        let mut with = self;
        for (marker, present) in MARKERS.iter().zip(&mut with.0) {
            *present |= fold(marker) == fold(name);
        }
        with
    }

    /// The same after changes; `after` returns whether an entry exists then, if it is changed.
    pub(super) fn after(self, after: impl Fn(&str) -> Option<bool>) -> Self {
        let mut changed = self;
        for (marker, present) in MARKERS.iter().zip(&mut changed.0) {
            *present = after(marker).unwrap_or(*present);
        }
        changed
    }

    fn of(dir: &OpenDir) -> Result<Self, Errno> {
        let mut found = Self::default();
        for (marker, present) in MARKERS.iter().zip(&mut found.0) {
            *present = match tree::stat(dir.as_fd(), marker) {
                Ok(_) => true,
                Err(Errno::NOENT) => false,
                Err(errno) => return Err(errno),
            };
        }
        Ok(found)
    }
}

/// Returns whether the file or directory at `path` is protected, since it is the configuration or a hook of a repository of any
/// name, or contains hooks. For tools that change files by other means than this module.
///
/// # Errors
/// As [`File::open`](crate::io::File::open), if a directory above it cannot be read.
pub fn is_run_by_git(permit: &ReadPermit, path: &VirtualPath) -> Result<bool, Interrupt> {
    let markers = |dir: &VirtualPath| read_markers(permit, dir);
    EntryChange::new(&markers, path, path, &[], false).is_run("")
}

/// Whether Git runs programs that the entry `rest` of a repository names.
fn is_run(rest: &[&str]) -> bool {
    match rest {
        [name] => matches!(
            &*fold(name),
            "config" | "config.worktree" | "commondir" | "hooks"
        ),
        [info, name] if fold(info) == "info" => fold(name) == "attributes",
        [hooks, ..] => fold(hooks) == "hooks",
        [] => false,
    }
}

/// Whether an entry with this name may complete a repository, or makes Git run a program in one.
pub(super) fn is_relevant(name: &str) -> bool {
    Markers::default().with(name) != Markers::default() || is_run(&[name])
}

/// Whether creating `name` in `dir` changes what Git runs. Checked again while the directory is locked.
pub(super) fn is_protected(dir: &OpenDir, name: &str) -> Result<bool, Errno> {
    let before = Markers::of(dir)?;
    let after = before.with(name);
    Ok(after.is_repository() && (is_run(&[name]) || !before.is_repository()))
}

/// Requires a grant for each protected file that `steps` change; `items` are the contents of moved, copied or deleted
/// directories.
///
/// # Errors
/// [`Interrupt::Protected`]
pub(crate) fn require(
    permit: &ReadPermit,
    steps: &[Step],
    items: &[Item],
) -> Result<(), Interrupt> {
    permit_all(permit, protected(permit, steps, items)?)
}

/// As [`require`] for one step, after others; `markers` returns the markers of a directory then.
///
/// # Errors
/// [`Interrupt::Protected`]
pub(super) fn require_after(
    permit: &ReadPermit,
    step: &Step,
    items: &[Item],
    markers: &MarkersOf<'_>,
) -> Result<(), Interrupt> {
    let mut found = Vec::new();
    protected_by(step, items, markers, &mut found)?;
    permit_all(permit, found)
}

/// The protected files among entries that are created, changed or deleted one after the other.
#[derive(Default)]
pub(crate) struct ProtectedEntries {
    /// Whether the paths so far exist afterwards. What is beneath them is not as on the disk.
    exists: BTreeMap<VirtualPath, bool>,
    found: Vec<VirtualPath>,
}

impl ProtectedEntries {
    /// Adds the entry `path`, which exists afterwards or does not.
    ///
    /// # Errors
    /// As [`resolve::parent`].
    pub(crate) fn add(
        &mut self,
        view: &dyn ReadView,
        path: &VirtualPath,
        exists: bool,
    ) -> Result<(), Interrupt> {
        let markers = |dir: &VirtualPath| {
            let on_disk = read_markers(view, dir)?;
            Ok(on_disk.after(|name| self.exists(&dir.join(name).ok()?)))
        };
        let mut found = Vec::new();
        EntryChange::new(&markers, path, path, &[], exists).protected(&mut found)?;
        self.found.extend(found);
        if !exists {
            self.exists.retain(|other, _| !other.starts_with(path));
        }
        self.exists.insert(path.clone(), exists);
        Ok(())
    }

    /// Whether `path` exists after the entries so far; `None` if it is as on the disk.
    fn exists(&self, path: &VirtualPath) -> Option<bool> {
        if let Some(exists) = self.exists.get(path) {
            return Some(*exists);
        }
        let mut above = std::iter::successors(path.parent(), VirtualPath::parent);
        above
            .any(|dir| self.exists.contains_key(&dir))
            .then_some(false)
    }

    /// Requires a grant for each of the protected files.
    ///
    /// # Errors
    /// As [`require`].
    pub(crate) fn require(self, permit: &ReadPermit) -> Result<(), Interrupt> {
        permit_all(permit, self.found)
    }
}

fn permit_all(permit: &ReadPermit, found: Vec<VirtualPath>) -> Result<(), Interrupt> {
    if found.len() > MAX_ASKED {
        let message = "the call would change too many protected files; split it into several calls";
        return Err(CallError::new(Code::PermissionDenied, message).into());
    }
    permit.require_protected(found)
}

/// The protected files that `steps` change.
pub(super) fn protected(
    view: &dyn ReadView,
    steps: &[Step],
    items: &[Item],
) -> Result<Vec<VirtualPath>, Interrupt> {
    let mut found = Vec::new();
    let markers = |dir: &VirtualPath| read_markers(view, dir);
    for step in steps {
        protected_by(step, items, &markers, &mut found)?;
    }
    Ok(found)
}

fn protected_by(
    step: &Step,
    items: &[Item],
    markers: &MarkersOf<'_>,
    found: &mut Vec<VirtualPath>,
) -> Result<(), Interrupt> {
    match step {
        Step::Write { path, .. }
        | Step::SetMode { path, .. }
        | Step::MakeLink { path, .. }
        | Step::MakeDirectory { path, .. } => {
            EntryChange::new(markers, path, path, &[], true).protected(found)
        }
        Step::Remove { path, .. } => {
            EntryChange::new(markers, path, path, items, false).protected(found)
        }
        Step::Transfer { mode, from, to, .. } => {
            if *mode == TransferMode::Move {
                EntryChange::new(markers, from, from, items, false).protected(found)?;
            }
            EntryChange::new(markers, from, to, items, true).protected(found)
        }
    }
}

/// Returns the markers of a directory.
type MarkersOf<'m> = dyn Fn(&VirtualPath) -> Result<Markers, Interrupt> + 'm;

/// The markers of a directory on the disk.
pub(super) fn read_markers(view: &dyn ReadView, dir: &VirtualPath) -> Result<Markers, Interrupt> {
    if view.mount_point(dir).is_none() {
        return Ok(Markers::default());
    }
    let Ok(entry) = dir.join("HEAD") else {
        return Ok(Markers::default());
    };
    match resolve::parent(view, &entry) {
        Ok((opened, _)) => Ok(Markers::of(&opened).at(dir)?),
        Err(Interrupt::Failed(error))
            if matches!(error.code(), Code::NotFound | Code::NotDirectory) =>
        {
            Ok(Markers::default())
        }
        Err(interrupt) => Err(interrupt),
    }
}

/// An entry that is added or removed at `at`, with its contents.
struct EntryChange<'c> {
    markers: &'c MarkersOf<'c>,
    /// The directory that `items` are beneath.
    base: &'c VirtualPath,
    at: &'c VirtualPath,
    items: &'c [Item],
    is_added: bool,
    /// Markers of directories beneath `at`, by relative path.
    inside: HashMap<&'c str, Markers>,
    /// Markers of directories above `at`.
    outside: HashMap<VirtualPath, Markers>,
}

impl<'c> EntryChange<'c> {
    fn new(
        markers: &'c MarkersOf<'c>,
        base: &'c VirtualPath,
        at: &'c VirtualPath,
        items: &'c [Item],
        is_added: bool,
    ) -> Self {
        let mut inside: HashMap<&str, Markers> = HashMap::new();
        for item in items {
            let relative = item.path.beneath(base).unwrap_or_default();
            let (above, name) = relative.rsplit_once('/').unwrap_or(("", relative));
            let with = Markers::default().with(name);
            if with != Markers::default() {
                let markers = inside.entry(above).or_default();
                *markers = markers.with(name);
            }
        }
        Self {
            markers,
            base,
            at,
            items,
            is_added,
            inside,
            outside: HashMap::new(),
        }
    }

    fn protected(mut self, found: &mut Vec<VirtualPath>) -> Result<(), Interrupt> {
        if self.is_run("")? || self.is_added && self.completes()? {
            found.push(self.at.clone());
        }
        for item in self.items {
            let relative = item.path.beneath(self.base).unwrap_or_default();
            if self.is_run(relative)? || self.is_added && self.is_head(relative) {
                found.push(target::relocated(&item.path, self.base, self.at)?);
            }
        }
        Ok(())
    }

    /// Whether the entry completes a repository.
    fn completes(&mut self) -> Result<bool, Interrupt> {
        let name = self.at.name().unwrap_or_default();
        let Some(above) = self.at.parent() else {
            return Ok(false);
        };
        if Markers::default().with(name) == Markers::default() {
            return Ok(false);
        }
        let before = self.markers_of(&above)?;
        Ok(!before.is_repository() && before.with(name).is_repository())
    }

    /// Whether the item is a marker that stands for its repository.
    fn is_head(&self, relative: &str) -> bool {
        let (above, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        fold(name) == "head" && self.is_repository_inside(above)
    }

    fn is_repository_inside(&self, relative: &str) -> bool {
        let markers = self.inside.get(relative).copied().unwrap_or_default();
        markers.is_repository()
    }

    /// Whether Git runs programs that the file `relative` beneath the entry names, in a repository above it.
    fn is_run(&mut self, relative: &str) -> Result<bool, Interrupt> {
        let outer = self.at.depth();
        let inner = relative.split('/').filter(|name| !name.is_empty());
        let names: Vec<&str> = self.at.names().chain(inner).collect();
        for depth in 0..names.len() {
            let (above, rest) = names.split_at(depth);
            if !is_run(rest) {
                continue;
            }
            let repository = match above.get(outer..) {
                Some(inside) => self.is_repository_inside(&inside.join("/")),
                None => {
                    let above = VirtualPath::parse(&format!("/{}", above.join("/")), None);
                    let above = above.map_err(|error| {
                        CallError::new(Code::InvalidArguments, error.to_string())
                    })?;
                    self.markers_of(&above)?.is_repository()
                }
            };
            if repository {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The markers of a directory above the entry.
    fn markers_of(&mut self, dir: &VirtualPath) -> Result<Markers, Interrupt> {
        if let Some(known) = self.outside.get(dir) {
            return Ok(*known);
        }
        let markers = (self.markers)(dir)?;
        self.outside.insert(dir.clone(), markers);
        Ok(markers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, path};

    #[test]
    fn entries_are_protected_if_they_complete_a_repository_together() {
        let found = |entries: &[(&str, bool)]| {
            let world = World::new(&["dir root/b/objects", "file root/b/hooks/h x"]);
            let mut protected = ProtectedEntries::default();
            for (name, exists) in entries {
                protected.add(&world.view(), &path(name), *exists).unwrap();
            }
            let found = protected.found.iter().map(ToString::to_string);
            found.collect::<Vec<_>>()
        };
        let (head, refs) = (("/r/b/HEAD", true), ("/r/b/refs", true));
        assert_eq!(found(&[head, refs]), ["/r/b/refs"]);
        let hook = ("/r/b/hooks/h", true);
        assert_eq!(found(&[head, refs, hook]), ["/r/b/refs", "/r/b/hooks/h"]);
        assert_eq!(found(&[hook, head]), [""; 0]);
        assert_eq!(found(&[("/r/b/objects", false), head, refs]), [""; 0]);
        assert_eq!(
            found(&[("/r/b", false), ("/r/b", true), head, refs]),
            [""; 0]
        );
    }
}
