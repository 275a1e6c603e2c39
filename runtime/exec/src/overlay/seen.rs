//! The entries of the roots before a command runs.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use bailiwick::VirtualPath;

/// Device and inode of a directory.
pub(crate) type Identity = (u64, u64);

/// The entries of the roots before a command runs, to notice what others change meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    directories: HashMap<VirtualPath, Identity>,
    /// Hashes of the paths of all other entries.
    others: HashSet<u64>,
    hasher: RandomState,
}

impl Seen {
    pub(crate) fn add_directory(&mut self, path: VirtualPath, identity: Identity) {
        self.directories.insert(path, identity);
    }

    pub(crate) fn add_other(&mut self, path: &VirtualPath) {
        self.others.insert(self.hasher.hash_one(path));
    }

    pub(crate) fn contains(&self, path: &VirtualPath) -> bool {
        self.directories.contains_key(path) || self.others.contains(&self.hasher.hash_one(path))
    }

    /// The identity of the directory at a path.
    pub(crate) fn directory(&self, path: &VirtualPath) -> Option<Identity> {
        self.directories.get(path).copied()
    }

    /// The directories at and above a path, with their identities.
    pub(crate) fn directories_above(&self, path: &VirtualPath) -> Vec<(VirtualPath, Identity)> {
        let above = std::iter::successors(Some(path.clone()), VirtualPath::parent);
        let known = above.filter_map(|path| Some((path.clone(), self.directory(&path)?)));
        known.collect()
    }
}
