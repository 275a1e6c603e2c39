//! Roots: directories that a person configured, opened with ambient authority.
//!
//! This is the only file that uses ambient authority.

mod granted;

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, FileType};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};
use rustix::io::Errno;

use crate::path::VirtualPath;
use crate::policy::Authority;

/// Why a directory cannot be a root.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// It cannot be opened as a directory.
    #[error("cannot open the root `{mount}`")]
    Open {
        /// Its mount point.
        mount: VirtualPath,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It would expose the whole machine or files of the kernel.
    #[error("`{mount}` cannot be a root: {reason}")]
    Unsafe {
        /// Its mount point.
        mount: VirtualPath,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

impl RootError {
    /// Returns the mount point of the root.
    #[must_use]
    pub fn mount(&self) -> &VirtualPath {
        match self {
            Self::Open { mount, .. } | Self::Unsafe { mount, .. } => mount,
        }
    }
}

/// An open directory with its mount point.
#[derive(Debug)]
pub struct Root {
    mount: VirtualPath,
    host: PathBuf,
    dir: Dir,
    identity: (u64, u64),
    cross_mounts: bool,
    for_one_call: bool,
}

impl Root {
    /// Opens `host` and mounts it at `mount`.
    pub(crate) fn open(
        mount: VirtualPath,
        host: &Path,
        cross_mounts: bool,
    ) -> Result<Self, RootError> {
        let failed = |source| RootError::Open {
            mount: mount.clone(),
            source,
        };
        let host = host.canonicalize().map_err(failed)?;
        let dir = Dir::open_ambient_dir(&host, ambient_authority()).map_err(failed)?;
        let home = homes().pop();
        if let Some(reason) = unsafe_reason(&host, home.as_deref()) {
            return Err(RootError::Unsafe { mount, reason });
        }
        Self::over(mount, host, dir, cross_mounts)
    }

    fn over(
        mount: VirtualPath,
        host: PathBuf,
        dir: Dir,
        cross_mounts: bool,
    ) -> Result<Self, RootError> {
        let stat = fstat(&dir).map_err(|errno| RootError::Open {
            mount: mount.clone(),
            source: errno.into(),
        })?;
        if let Some(reason) = kernel_reason(dir.as_fd()) {
            return Err(RootError::Unsafe { mount, reason });
        }
        Ok(Self {
            mount,
            host,
            dir,
            identity: (stat.st_dev, stat.st_ino),
            cross_mounts,
            for_one_call: false,
        })
    }

    /// Rejects a root that contains the same files under other names, since rules for one name would not apply to the other.
    pub(crate) fn beside(&self, other: &Self) -> Result<(), RootError> {
        let (outer, inner) = if self.host.starts_with(&other.host) {
            (other, self)
        } else {
            (self, other)
        };
        let nested = inner.host.starts_with(&outer.host) && inner.host != outer.host;
        let separate = !inner.host.starts_with(&outer.host);
        let in_place = outer.virtual_path(&inner.host).as_ref() == Some(&inner.mount);
        // A bind mount has other paths and the same files.
        let same = self.identity == other.identity;
        if separate
            && (self.mount.starts_with(&other.mount) || other.mount.starts_with(&self.mount))
        {
            return Err(RootError::Unsafe {
                mount: self.mount.clone(),
                reason: "its path lies in that of another root, and its files do not; mount it elsewhere",
            });
        }
        if !same && (separate || nested && in_place) {
            return Ok(());
        }
        Err(RootError::Unsafe {
            mount: self.mount.clone(),
            reason: "another root holds the same files by other names; mount the inner one beneath the outer one",
        })
    }

    /// Rejects a root that contains the file at `host`, which workers must not reach.
    pub(crate) fn without(&self, host: &Path) -> Result<(), RootError> {
        if host.starts_with(&self.host) {
            return Err(holds_kept_out(&self.mount));
        }
        Ok(())
    }

    /// The path of a file that workers must not access. If the path is a link, also the path of the link itself.
    pub(crate) fn places_of(host: &Path) -> std::io::Result<[PathBuf; 2]> {
        let folder = host.parent().filter(|path| !path.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize()?;
        let name = host
            .file_name()
            .map_or(folder.clone(), |name| folder.join(name));
        Ok([host.canonicalize()?, name])
    }

    /// Returns its mount point.
    #[must_use]
    pub fn mount(&self) -> &VirtualPath {
        &self.mount
    }

    /// Returns its path on the host when it was opened, for sandboxes that mount it. Check that the directory there still
    /// is this one ([`Root::identity`]).
    #[must_use]
    pub fn host_path(&self) -> &Path {
        &self.host
    }

    /// Returns the directory handle. Open only what a permit allows.
    #[must_use]
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Returns whether file systems mounted inside it belong to it.
    #[must_use]
    pub fn crosses_mounts(&self) -> bool {
        self.cross_mounts
    }

    /// Returns whether it is not configured, but was opened for a granted path outside the roots.
    #[must_use]
    pub fn is_for_one_call(&self) -> bool {
        self.for_one_call
    }

    /// Returns the absolute host path of a relative link target that leads out of this root: a link at the top of the
    /// root whose target begins with `..`. A later `..` is not resolved, since it depends on the links before it.
    #[must_use]
    pub fn above(&self, target: &str) -> Option<PathBuf> {
        let mut host = self.host.as_path();
        let mut rest = target.trim_start_matches('/');
        while let Some(after) = rest.strip_prefix("..") {
            if !after.is_empty() && !after.starts_with('/') {
                break;
            }
            host = host.parent()?;
            rest = after.trim_start_matches('/');
        }
        Some(host.join(rest))
    }

    /// Device and inode of the open directory, whatever happens to its name.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Returns whether `fd` is in a file system that no root may contain: procfs, sysfs or another one of the kernel, or
    /// FAT, where a file has several names.
    ///
    /// # Errors
    /// The error of the operating system, or `OVERFLOW` if the type of the file system has more than 32 bits.
    pub fn is_in_unsafe_file_system(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        let magic = magic(fd)?;
        Ok(is_of_kernel(magic) || is_fat(magic))
    }

    /// Rejects a root on FAT, since deny rules do not cover all names of a file there.
    pub(crate) fn require_unique_names(&self) -> Result<(), RootError> {
        match magic(self.dir.as_fd()) {
            Ok(magic) if !is_fat(magic) => Ok(()),
            Ok(_) => Err(RootError::Unsafe {
                mount: self.mount.clone(),
                reason: "it is on FAT or exFAT, where a file has several names, and deny rules do not cover all of them; use a directory on another file system",
            }),
            Err(errno) => Err(RootError::Open {
                mount: self.mount.clone(),
                source: errno.into(),
            }),
        }
    }

    /// Returns the virtual path of an absolute link target that points into this root.
    #[must_use]
    pub fn virtual_path(&self, host: &Path) -> Option<VirtualPath> {
        // The target of `..` depends on the links before it, so it is not resolved by name here.
        if host
            .components()
            .any(|part| matches!(part, Component::ParentDir))
        {
            return None;
        }
        let rest = host.strip_prefix(&self.host).ok()?.to_str()?;
        if rest.is_empty() {
            return Some(self.mount.clone());
        }
        VirtualPath::parse(rest, Some(&self.mount)).ok()
    }
}

fn holds_kept_out(mount: &VirtualPath) -> RootError {
    RootError::Unsafe {
        mount: mount.clone(),
        reason: "it contains the audit log or another file that workers must not reach; keep that elsewhere",
    }
}

/// `f_type` of file systems made by the kernel: proc, sys, devpts, debug, trace, security, cgroup (1, 2), bpf,
/// config, efivar, selinux, smack, apparmor, binfmt_misc, pstore, namespaces, fusectl, resctrl, mqueue.
const KERNEL_FILES: [u32; 20] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0xcafe_4a11,
    0x6265_6570,
    0xde5e_81e4,
    0xf97c_ff8c,
    0x4341_5d53,
    0x5a3c_69f0,
    0x4249_4e4d,
    0x6165_676c,
    0x6e73_6673,
    0x6573_5543,
    0x0765_5821,
    0x1980_0202,
];

/// `f_type` of FAT and exFAT, which ignore dots at the end of a name. FAT also has a short name for each file.
const FAT: [u32; 2] = [0x4d44, 0x2011_bab0];

/// The home directory: its path as the system states it, then its path with links resolved.
fn homes() -> Vec<PathBuf> {
    let named = std::env::home_dir().filter(|home| home.is_absolute());
    let real = named.as_ref().and_then(|home| home.canonicalize().ok());
    named.into_iter().chain(real).collect()
}

/// Why the directory at `host` must not be a root, if so.
fn unsafe_reason(host: &Path, home: Option<&Path>) -> Option<&'static str> {
    if host.parent().is_none() {
        return Some("it is the top of the file system; configure the directories that are needed");
    }
    if home.is_some_and(|home| home.starts_with(host)) {
        return Some(
            "it is or contains the home directory; configure the directories that are needed",
        );
    }
    // The device file system is a tmpfs, so it is recognised by its path.
    (host == Path::new("/dev")).then_some("it holds devices")
}

/// The `f_type` of the file system of `fd`.
fn magic(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    u32::try_from(fstatfs(fd)?.f_type).map_err(|_| Errno::OVERFLOW)
}

fn is_of_kernel(magic: u32) -> bool {
    KERNEL_FILES.contains(&magic)
}

fn is_fat(magic: u32) -> bool {
    FAT.contains(&magic)
}

/// Why a directory must not be a root because it is in a file system of the kernel, if so.
fn kernel_reason(dir: BorrowedFd<'_>) -> Option<&'static str> {
    match magic(dir) {
        Ok(magic) if is_of_kernel(magic) => Some("it contains the kernel's own files"),
        Ok(_) => None,
        Err(_) => Some("its file system cannot be determined"),
    }
}

/// What the kernel has cached about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedKind {
    /// The mount point of a root, which is known without a lookup.
    Root,
    Directory,
    /// It does not exist, or is in no root.
    Missing,
    /// Another kind, or not cached.
    Unknown,
}

/// The roots of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootTable {
    roots: Vec<Arc<Root>>,
    /// Configured roots in which the worker may do nothing.
    closed: Vec<Arc<Root>>,
}

impl RootTable {
    pub(crate) fn new(roots: Vec<Arc<Root>>) -> Self {
        Self {
            roots,
            closed: Vec::new(),
        }
    }

    /// These roots and `more`.
    pub(crate) fn with(&self, more: &[Arc<Root>]) -> Self {
        Self {
            roots: self.roots.iter().chain(more).cloned().collect(),
            closed: self.closed.clone(),
        }
    }

    /// Resolves `path` in a root; `None` if it does not exist or leads outside all roots.
    pub(crate) fn real(&self, path: &VirtualPath) -> Option<VirtualPath> {
        let (root, rest) = self.find(path)?;
        let host = root.host.join(rest).canonicalize().ok()?;
        self.iter().find_map(|root| root.virtual_path(&host))
    }

    /// Whether `path` is a file; links are not followed.
    pub(crate) fn is_file(&self, path: &VirtualPath) -> bool {
        self.file_type(path).is_some_and(|found| found.is_file())
    }

    /// The type of `path`, if it exists; links are not followed.
    pub(crate) fn file_type(&self, path: &VirtualPath) -> Option<FileType> {
        let (root, rest) = self.find(path)?;
        let meta = root.dir.symlink_metadata(rest).ok()?;
        Some(meta.file_type())
    }

    /// What `path` is, as far as the kernel has cached it. This does not block.
    pub(crate) fn cached_kind(&self, path: &VirtualPath) -> CachedKind {
        let (root, rest) = match self.find(path) {
            Some((_, "")) => return CachedKind::Root,
            Some(found) => found,
            None => return CachedKind::Missing,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A mount point of a network file system would be looked up again at its server.
        let how = ResolveFlags::BENEATH
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        match openat2(&root.dir, rest, flags, Mode::empty(), how) {
            Ok(_) => CachedKind::Directory,
            Err(Errno::NOENT) => CachedKind::Missing,
            Err(_) => CachedKind::Unknown,
        }
    }

    /// The roots in which `authority` may allow something; this table if these are all.
    pub(crate) fn reached_by(self: &Arc<Self>, authority: &Authority) -> Arc<Self> {
        let reaches = |root: &Arc<Root>| authority.reaches(&root.mount);
        if self.roots.iter().all(reaches) {
            return Arc::clone(self);
        }
        let (roots, closed) = self.roots.iter().cloned().partition(reaches);
        Arc::new(Self { roots, closed })
    }

    pub(crate) fn closed(&self) -> impl Iterator<Item = &Root> {
        self.closed.iter().map(Arc::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().map(Arc::as_ref)
    }

    /// The root with the longest mount that contains `path`, and the path relative to it. A path granted for one call
    /// is looked up in its parent directory if that was opened, too, since the path may itself be the parent of another
    /// granted path.
    pub(crate) fn find<'t, 'p>(&'t self, path: &'p VirtualPath) -> Option<(&'t Root, &'p str)> {
        let holding = self
            .iter()
            .filter_map(|root| Some((root, path.beneath(&root.mount)?)));
        holding.min_by_key(|(root, rest)| (root.for_one_call && rest.is_empty(), rest.len()))
    }
}

#[cfg(test)]
mod tests;
