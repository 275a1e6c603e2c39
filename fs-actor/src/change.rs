//! Steps in, the changes made out, each only if everything is still as the plan found it; and steps that take them back.

mod contents;
mod execute;
pub(crate) mod repository;
pub(crate) mod state;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::sync::OnceLock;

use bailiwick::{CallError, Code, ContentHash, Entry, VirtualPath};
use bytes::Bytes;

use crate::read_view::ReadView;
use crate::replace::{Durability, ReachedDurability, Sweeper};
use crate::resolve::{self, Meta};
use crate::sys::{AtFlags, unlinkat};

pub(crate) use execute::other_device;
pub(crate) use state::{State, inspect};
pub(crate) use tree::TemporaryFiles;

/// One change to the files, as data: what it needs is in it, so it can be kept, shown, and taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Writes a file.
    Write {
        path: VirtualPath,
        content: Bytes,
        /// What it replaces; [`State::Absent`] for a new file.
        existing: State,
        /// The mode of a new file, if not the usual one.
        mode: Option<u32>,
    },
    /// Makes a directory where nothing is.
    MakeDirectory {
        path: VirtualPath,
        mode: Option<u32>,
    },
    /// Gives a file or directory another name.
    Move {
        from: VirtualPath,
        to: VirtualPath,
        what: State,
        /// The file it replaces, or nothing.
        existing: State,
    },
    /// Copies a file or directory.
    Copy {
        from: VirtualPath,
        to: VirtualPath,
        what: State,
        /// The file it replaces, or nothing.
        existing: State,
    },
    /// Removes a file, or a directory with all it holds.
    Remove { path: VirtualPath, what: State },
}

/// All that one call changes.
#[derive(Clone, Debug)]
pub(crate) struct ChangeSet {
    pub(crate) steps: Vec<Step>,
    /// What the changes are to survive.
    pub(crate) durability: Durability,
    /// What they survive once they are made.
    pub(crate) reached: ReachedDurability,
}

impl ChangeSet {
    pub(crate) fn new(
        steps: Vec<Step>,
        durability: Durability,
        reached: ReachedDurability,
    ) -> Self {
        Self {
            steps,
            durability,
            reached,
        }
    }
}

impl From<Vec<Step>> for ChangeSet {
    fn from(steps: Vec<Step>) -> Self {
        Self::new(steps, Durability::default(), ReachedDurability::default())
    }
}

/// Carries steps out; each tool has one.
#[derive(Debug, Default)]
pub(crate) struct StepExecutor {
    durability: Durability,
    sweeper: Sweeper,
    mask_key: OnceLock<[u8; 32]>,
}

impl StepExecutor {
    /// One whose changes are to survive that much.
    pub(crate) fn new(durability: Durability) -> Self {
        Self {
            durability,
            ..Self::default()
        }
    }

    /// What changes are to survive.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Makes every change, or says which were made. `begin` is asked before each: what it returns is held while it is made.
    ///
    /// # Errors
    /// `STALE_PREVIEW` if the files are not those of the plan, `CONFLICT` if another writer was quicker, `IO` and
    /// the like from the system. `details.done` counts the steps that were made before.
    pub(crate) fn execute<P>(
        &self,
        work: &ChangeSet,
        view: &dyn ReadView,
        begin: impl Fn() -> Result<P, CallError>,
    ) -> Result<(), CallError> {
        let mut reached = None;
        for (done, step) in work.steps.iter().enumerate() {
            match self.execute_step(step, work.durability, view, &begin) {
                Ok(level) => {
                    reached = Some(reached.map_or(level, |least: Durability| least.min(level)));
                }
                Err(error) => {
                    let made = work.steps.get(..done).unwrap_or_default();
                    let left = remove_created_directories(made, view);
                    return Err(if left == 0 {
                        error
                    } else {
                        error.with("done", left)
                    });
                }
            }
        }
        if let Some(reached) = reached {
            work.reached.set(reached);
        }
        Ok(())
    }

    /// What people and programs may know of `state`, the one of the object with these facts: for those who may not
    /// read it a value that changes with the content, from which it cannot be guessed. No other object has the same,
    /// whatever it holds, so a guess written elsewhere cannot be compared with it.
    pub(crate) fn entry(
        &self,
        state: &State,
        meta: Option<&Meta>,
        shown: bool,
    ) -> Result<Entry, CallError> {
        match (state.entry(), meta) {
            (Entry::File { hash, .. }, Some(meta)) if !shown => Ok(Entry::File {
                hash: self.masked(hash, tree::stamp(meta))?,
                bytes: 0,
            }),
            (Entry::File { .. }, None) if !shown => Ok(Entry::Absent),
            (entry, _) => Ok(entry),
        }
    }

    fn masked(&self, hash: ContentHash, stamp: ContentHash) -> Result<ContentHash, CallError> {
        let key = match self.mask_key.get() {
            Some(key) => key,
            None => {
                let mut key = [0; 32];
                getrandom::fill(&mut key).map_err(|_| {
                    CallError::new(Code::Io, "the operating system has no random numbers")
                })?;
                self.mask_key.get_or_init(|| key)
            }
        };
        let mut keyed = key.to_vec();
        keyed.extend_from_slice(hash.as_bytes());
        keyed.extend_from_slice(stamp.as_bytes());
        Ok(ContentHash::of(&keyed))
    }
}

/// The refusal of a plan whose files changed.
pub(crate) fn stale(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::StalePreview,
        format!("`{path}` is no longer what the preview was made from; make a new one"),
    )
}

/// Removes the directories that `steps` made, as far as they are still empty. Returns how many steps are left made.
fn remove_created_directories(steps: &[Step], view: &dyn ReadView) -> usize {
    let mut left = steps.len();
    for step in steps.iter().rev() {
        let Step::MakeDirectory { path, .. } = step else {
            break;
        };
        let Ok((dir, name)) = resolve::parent(view, path) else {
            break;
        };
        if unlinkat(dir.as_fd(), name.as_str(), AtFlags::REMOVEDIR).is_err() {
            break;
        }
        left -= 1;
    }
    left
}
