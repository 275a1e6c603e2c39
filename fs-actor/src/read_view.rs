//! A permit in, what the resolver and the walker may see through it out.

use std::path::{Path, PathBuf};

use bailiwick::{CallError, ReadPermit, Verb, Verdict, VirtualPath};
use cap_std::fs::Dir;

/// One root as the resolver needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountPoint<'r> {
    /// Where it stands in the namespace.
    pub(crate) path: &'r VirtualPath,
    /// The handle that everything is opened beneath.
    pub(crate) dir: &'r Dir,
    /// Whether file systems mounted inside it belong to it.
    pub(crate) crosses_mounts: bool,
}

/// What a call may see. A [`ReadPermit`] is one; the tests of this crate have another, with their own verdicts.
///
/// Whoever implements it promises that every answer comes from the same authority.
pub(crate) trait ReadView {
    /// The verdict on reading `path`.
    fn judge(&self, path: &VirtualPath) -> Verdict;
    /// The path that was judged in place of `asked`.
    fn actual<'p>(&'p self, asked: &'p VirtualPath) -> &'p VirtualPath;
    /// The root that holds `path`, and the path beneath it.
    fn mount_point<'l, 'p>(&'l self, path: &'p VirtualPath) -> Option<(MountPoint<'l>, &'p str)>;
    /// The virtual path of an absolute link target, if a root holds it.
    fn from_host_path(&self, target: &Path) -> Option<VirtualPath>;
    /// The absolute host path of a relative link target that begins at the top of the root at `mount` and leads above it.
    fn host_path_above(&self, mount: &VirtualPath, target: &str) -> Option<PathBuf>;
    /// Fails once the call must stop.
    fn checkpoint(&self) -> Result<(), CallError>;
    /// The most bytes in one answer.
    fn max_bytes(&self) -> u64;
    /// The most entries in one answer.
    fn max_results(&self) -> u64;

    /// Whether the call was judged as one that changes a protected file at `path`.
    fn may_change_protected(&self, path: &VirtualPath) -> bool;

    /// Whether files with more than one name are refused.
    fn strict_hardlinks(&self) -> bool;

    /// Whether an entry at `path` may be shown.
    fn shows(&self, path: &VirtualPath) -> bool {
        self.judge(path) == Verdict::Allow
    }
}

impl ReadView for ReadPermit {
    fn judge(&self, path: &VirtualPath) -> Verdict {
        Self::judge(self, Verb::Read, path)
    }

    fn actual<'p>(&'p self, asked: &'p VirtualPath) -> &'p VirtualPath {
        Self::actual(self, asked)
    }

    fn mount_point<'l, 'p>(&'l self, path: &'p VirtualPath) -> Option<(MountPoint<'l>, &'p str)> {
        let (root, rest) = self.root_of(path).ok()?;
        Some((mount_point(root), rest))
    }

    fn from_host_path(&self, target: &Path) -> Option<VirtualPath> {
        self.roots().find_map(|root| root.virtual_path(target))
    }

    fn host_path_above(&self, mount: &VirtualPath, target: &str) -> Option<PathBuf> {
        self.root_of(mount).ok()?.0.above(target)
    }

    fn checkpoint(&self) -> Result<(), CallError> {
        Self::checkpoint(self)
    }

    fn max_bytes(&self) -> u64 {
        self.limits().read_max_bytes
    }

    fn max_results(&self) -> u64 {
        self.limits().max_results
    }

    fn strict_hardlinks(&self) -> bool {
        Self::strict_hardlinks(self)
    }

    fn may_change_protected(&self, path: &VirtualPath) -> bool {
        Self::may_change_protected(self, path)
    }
}

fn mount_point(root: &bailiwick::Root) -> MountPoint<'_> {
    MountPoint {
        path: root.mount(),
        dir: root.dir(),
        crosses_mounts: root.crosses_mounts(),
    }
}
