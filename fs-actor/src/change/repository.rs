//! Finds changes that would make Git run something, in directories that are repositories by their shape.
//!
//! A directory that holds `HEAD`, `objects` and `refs` is a repository to Git, whatever its name is, and Git runs what
//! its configuration and its hooks name. So these are protected there, and so is whatever would complete the shape.

use std::collections::HashMap;

use bailiwick::{CallError, Code, Interrupt, ReadPermit, VirtualPath, fold};

use super::tree::{self, Item};
use super::{Step, target};
use crate::lens::Lens;
use crate::resolve::{self, OpenDir};
use crate::sys::Errno;

/// The most protected files that one call may ask for.
const MAX_ASKED: usize = 1_000;

/// The names that make a directory a repository.
const MARKERS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Which of the [`MARKERS`] a directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Markers([bool; 4]);

impl Markers {
    fn is_repository(self) -> bool {
        let [head, objects, refs, common] = self.0;
        // With `commondir` the other two are looked for elsewhere.
        head && (common || objects && refs)
    }

    /// These and the one that `name` is, if it is one.
    fn with(self, name: &str) -> Self {
        let mut with = self;
        for (marker, present) in MARKERS.iter().zip(&mut with.0) {
            *present |= fold(marker) == fold(name);
        }
        with
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

/// Whether Git runs what `rest`, the names of an entry in a repository, says.
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

/// Whether an entry of this name may complete a repository, or is run in one.
pub(super) fn matters(name: &str) -> bool {
    Markers::default().with(name) != Markers::default() || is_run(&[name])
}

/// Whether to put something at `name` in `dir` would change what Git runs; asked again while the directory is locked.
pub(super) fn is_protected(dir: &OpenDir, name: &str) -> Result<bool, Errno> {
    let before = Markers::of(dir)?;
    let after = before.with(name);
    Ok(after.is_repository() && (is_run(&[name]) || !before.is_repository()))
}

/// Requires a grant for each protected file that `steps` change; `items` lie beneath what is moved, copied or removed.
///
/// # Errors
/// [`Interrupt::Protected`]
pub(crate) fn require(
    permit: &ReadPermit,
    steps: &[Step],
    items: &[Item],
) -> Result<(), Interrupt> {
    let found = protected(permit, steps, items)?;
    if found.len() > MAX_ASKED {
        let message = "the call would change too many protected files; name smaller parts";
        return Err(CallError::new(Code::PermissionDenied, message).into());
    }
    permit.require_protected(found)
}

/// The protected files that `steps` change.
pub(super) fn protected(
    lens: &dyn Lens,
    steps: &[Step],
    items: &[Item],
) -> Result<Vec<VirtualPath>, Interrupt> {
    let mut found = Vec::new();
    for step in steps {
        match step {
            Step::Write { path, .. } | Step::MakeDirectory { path, .. } => {
                Change::new(lens, path, path, &[], true).protected(&mut found)?;
            }
            Step::Remove { path, .. } => {
                Change::new(lens, path, path, items, false).protected(&mut found)?;
            }
            Step::Move { from, to, .. } => {
                Change::new(lens, from, from, items, false).protected(&mut found)?;
                Change::new(lens, from, to, items, true).protected(&mut found)?;
            }
            Step::Copy { from, to, .. } => {
                Change::new(lens, from, to, items, true).protected(&mut found)?;
            }
        }
    }
    Ok(found)
}

/// Something that is put at `at` or removed from there, with what lies beneath it.
struct Change<'c> {
    lens: &'c dyn Lens,
    /// What `items` are beneath.
    base: &'c VirtualPath,
    at: &'c VirtualPath,
    items: &'c [Item],
    put: bool,
    /// The markers of directories beneath `at`, by their path relative to it.
    inside: HashMap<&'c str, Markers>,
    /// Those of directories above.
    outside: HashMap<VirtualPath, Markers>,
}

impl<'c> Change<'c> {
    fn new(
        lens: &'c dyn Lens,
        base: &'c VirtualPath,
        at: &'c VirtualPath,
        items: &'c [Item],
        put: bool,
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
            lens,
            base,
            at,
            items,
            put,
            inside,
            outside: HashMap::new(),
        }
    }

    fn protected(mut self, found: &mut Vec<VirtualPath>) -> Result<(), Interrupt> {
        if self.is_run("")? || self.put && self.completes()? {
            found.push(self.at.clone());
        }
        for item in self.items {
            let relative = item.path.beneath(self.base).unwrap_or_default();
            if self.is_run(relative)? || self.put && self.is_head(relative) {
                found.push(target::relocated(&item.path, self.base, self.at)?);
            }
        }
        Ok(())
    }

    /// Whether the entry itself makes the directory above it a repository.
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

    /// Whether the item stands for a repository that comes along.
    fn is_head(&self, relative: &str) -> bool {
        let (above, name) = relative.rsplit_once('/').unwrap_or(("", relative));
        fold(name) == "head" && self.is_repository_inside(above)
    }

    fn is_repository_inside(&self, relative: &str) -> bool {
        let markers = self.inside.get(relative).copied().unwrap_or_default();
        markers.is_repository()
    }

    /// Whether what stands at `relative` beneath the entry is run by Git in a repository above it.
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

    /// The markers of a directory that stands above the entry.
    fn markers_of(&mut self, dir: &VirtualPath) -> Result<Markers, Interrupt> {
        if let Some(known) = self.outside.get(dir) {
            return Ok(*known);
        }
        let markers = self.look(dir)?;
        self.outside.insert(dir.clone(), markers);
        Ok(markers)
    }

    fn look(&self, dir: &VirtualPath) -> Result<Markers, Interrupt> {
        if self.lens.place_of(dir).is_none() {
            return Ok(Markers::default());
        }
        let Ok(entry) = dir.join("HEAD") else {
            return Ok(Markers::default());
        };
        match resolve::parent(self.lens, &entry) {
            Ok((opened, _)) => {
                Markers::of(&opened).map_err(|errno| resolve::say(errno, dir).into())
            }
            Err(Interrupt::Failed(error)) if error.code() == Code::NotFound => {
                Ok(Markers::default())
            }
            Err(halt) => Err(halt),
        }
    }
}
