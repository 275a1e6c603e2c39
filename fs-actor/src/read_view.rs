//! What a call may read, as seen by the resolver and the walker.

use std::path::{Path, PathBuf};

use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, Verb, Verdict, VirtualPath};
use cap_std::fs::Dir;

/// A root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountPoint<'r> {
    /// Its virtual path.
    pub(crate) path: &'r VirtualPath,
    /// Its directory handle.
    pub(crate) dir: &'r Dir,
    /// Whether file systems mounted inside it belong to it.
    pub(crate) crosses_mounts: bool,
}

/// What a call may read. Implemented by [`ReadPermit`], and by the tests of this crate with other verdicts.
///
/// All answers of an implementation must come from the same authority.
pub(crate) trait ReadView: Sync {
    /// The verdict on reading `path`.
    fn judge(&self, path: &VirtualPath) -> Verdict;
    /// The path that was judged instead of `requested`.
    fn actual<'p>(&'p self, requested: &'p VirtualPath) -> &'p VirtualPath;
    /// The root that contains `path`, and the path beneath it.
    fn mount_point<'l, 'p>(&'l self, path: &'p VirtualPath) -> Option<(MountPoint<'l>, &'p str)>;
    /// The virtual path of an absolute link target, if it is in a root.
    fn virtual_path(&self, target: &Path) -> Option<VirtualPath>;
    /// The absolute host path of a relative link target that leads above the root at `mount`.
    fn host_path_above(&self, mount: &VirtualPath, target: &str) -> Option<PathBuf>;
    /// Fails when the call must stop.
    fn checkpoint(&self) -> Result<(), CallError>;
    /// Maximum bytes of a result.
    fn max_bytes(&self) -> u64;
    /// Maximum entries of a result.
    fn max_results(&self) -> u64;

    /// Whether the call may change a protected file at `path`.
    fn may_change_protected(&self, path: &VirtualPath) -> bool;

    /// Whether files with several hard links are rejected.
    fn strict_hardlinks(&self) -> bool;

    /// Whether entries of the directory `dir` may be shown, by their names, as in [`ReadView::shows`].
    fn entries<'v>(&'v self, dir: &VirtualPath) -> Box<dyn Fn(&str) -> bool + 'v>;

    /// Whether an entry at `path` may be shown.
    fn shows(&self, path: &VirtualPath) -> bool {
        self.judge(path) == Verdict::Allow
    }
}

impl ReadView for ReadPermit {
    fn judge(&self, path: &VirtualPath) -> Verdict {
        Self::judge(self, Verb::Read, path)
    }

    fn actual<'p>(&'p self, requested: &'p VirtualPath) -> &'p VirtualPath {
        Self::actual(self, requested)
    }

    fn mount_point<'l, 'p>(&'l self, path: &'p VirtualPath) -> Option<(MountPoint<'l>, &'p str)> {
        let (root, rest) = self.root_of(path).ok()?;
        Some((mount_point(root), rest))
    }

    fn virtual_path(&self, target: &Path) -> Option<VirtualPath> {
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

    fn entries<'v>(&'v self, dir: &VirtualPath) -> Box<dyn Fn(&str) -> bool + 'v> {
        let visible = Self::entries(self, dir);
        Box::new(move |name| visible.shows(name))
    }

    fn strict_hardlinks(&self) -> bool {
        Self::strict_hardlinks(self)
    }

    fn may_change_protected(&self, path: &VirtualPath) -> bool {
        Self::may_change_protected(self, path)
    }
}

fn mount_point(root: &bailiwick::root::Root) -> MountPoint<'_> {
    MountPoint {
        path: root.mount(),
        dir: root.dir(),
        crosses_mounts: root.crosses_mounts(),
    }
}
