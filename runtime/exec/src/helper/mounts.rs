//! Builds the file system of a sandbox.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use nix::sched::CloneFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::copy::covered;
use super::layers::Layers;
use super::overlays::Overlays;
use super::{Failed, overlays};
use crate::error::Stage;
use crate::mount_table::mounts_beneath;
use crate::spec::{Layer, Mount, SandboxSpec};

/// Where the file system of the host is until the sandbox is built.
const HOST: &str = "/host";
/// Where the sandbox is built.
const NEW: &str = "/new";
/// Flags that open a path without access to its content.
const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Devices of the host that the program sees.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Size of the top-level directory, which contains only directories and links.
const TOP_OPTIONS: &str = "mode=755,size=1m";

/// Moves this process into a new mount namespace and makes a directory in memory its root directory. The host's files are
/// at [`HOST`] from then on.
pub(super) fn enter() -> Result<(), Failed> {
    let missing = |reason: String| Failed::Missing {
        layer: Layer::Namespaces,
        reason,
    };
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| missing(format!("a mount namespace cannot be created: {error}")))?;
    enter_new_root().map_err(|error| match error.kind() {
        // AppArmor allows namespaces on some systems, but nothing in them.
        io::ErrorKind::PermissionDenied => {
            missing(format!("mounting is forbidden in them: {error}"))
        }
        _ => Failed::at(Stage::Mounts)(error),
    })
}

/// A file system that was built.
pub(super) struct Built {
    /// The directory with the changes in overlays, if there are any: overlay N of the mounts writes into `N/upper`.
    pub(super) changes: Option<OwnedFd>,
    /// Whether directories were copied, since overlayfs is missing.
    pub(super) copied: bool,
    /// The files of the host are being detached.
    pub(super) detaching: Detaching,
}

/// A thread that detaches the files of the host, since the kernel waits for all processors then.
pub(super) struct Detaching(JoinHandle<rustix::io::Result<()>>);

impl Detaching {
    fn start() -> io::Result<Self> {
        let detach = || unmount("/", UnmountFlags::DETACH);
        Ok(Self(std::thread::Builder::new().spawn(detach)?))
    }

    /// Waits until the files of the host are detached.
    pub(super) fn wait(self) -> io::Result<()> {
        let detached = self.0.join();
        Ok(detached.map_err(|_| io::Error::other("the thread failed"))??)
    }
}

/// Builds the file system and moves this process into it, after [`enter`]. A host that has closed its socket ends it.
pub(super) fn build(
    spec: &SandboxSpec,
    layers: &mut Layers,
    host: &UnixStream,
) -> Result<Built, Failed> {
    let failed = |error: io::Error| Failed::at(Stage::Mounts)(error);
    layers.record(Layer::Namespaces, Ok(()))?;
    let mut tree = Tree::new(Overlays::new(spec, host)).map_err(failed)?;
    let has_overlay = spec.has_overlay();
    let changes = has_overlay.then(|| overlays::open(spec.overlay_bytes));
    let changes = changes.transpose().map_err(failed)?;
    tree.add_all(&spec.mounts)?;
    let missing = tree.overlays.missing.take();
    let copied = missing.is_some();
    if has_overlay {
        layers.record(Layer::Overlay, missing.map_or(Ok(()), Err))?;
    }
    if let Some(most) = spec.limits.processes {
        layers.record(Layer::ProcessLimit, limit_processes(most).map_err(failed)?)?;
    }
    layers.record(Layer::Proc, tree.add_proc().map_err(failed)?)?;
    tree.finish().map_err(failed)?;
    let named = rustix::system::sethostname(b"sandbox");
    named.map_err(|error| failed(error.into()))?;
    let detaching = leave_host().map_err(failed)?;
    Ok(Built {
        changes,
        copied,
        detaching,
    })
}

fn enter_new_root() -> io::Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    // Any directory that exists serves as the place of the mount; it is visible again after `pivot_root`.
    let place = "/tmp";
    tmpfs(Path::new(place), TOP_OPTIONS)?;
    fs::create_dir(format!("{place}{HOST}"))?;
    fs::create_dir(format!("{place}{NEW}"))?;
    rustix::process::pivot_root(place, format!("{place}{HOST}"))?;
    std::env::set_current_dir("/")?;
    tmpfs(Path::new(NEW), TOP_OPTIONS)
}

/// Makes [`NEW`] the root directory and starts to detach the files of the host.
fn leave_host() -> io::Result<Detaching> {
    std::env::set_current_dir(NEW)?;
    // The old root is mounted over the new one, and is then on top of it.
    rustix::process::pivot_root(".", ".")?;
    std::env::set_current_dir("/")?;
    Detaching::start()
}

pub(super) fn tmpfs(at: &Path, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount("tmpfs", at, "tmpfs", flags, options.as_c_str())?)
}

/// The file system that is built at [`NEW`].
struct Tree<'h> {
    root: OwnedFd,
    /// Devices of the directories in memory, in which places for mounts may be created.
    own: Vec<u64>,
    /// Directories in memory that the program may not change.
    closed: Vec<OwnedFd>,
    overlays: Overlays<'h>,
    /// The mounts of the host.
    host: String,
}

impl<'h> Tree<'h> {
    fn new(overlays: Overlays<'h>) -> io::Result<Self> {
        let root = rustix::fs::open(NEW, PATH, Mode::empty())?;
        Ok(Self {
            host: mount_table()?,
            own: vec![device(&root)?],
            root,
            closed: Vec::new(),
            overlays,
        })
    }

    fn add_all(&mut self, mounts: &[Mount]) -> Result<(), Failed> {
        let mut rest = mounts;
        while let Some((one, later)) = rest.split_first() {
            self.add(one, later)?;
            rest = later;
        }
        self.add_devices().map_err(Failed::at(Stage::Mounts))
    }

    /// Adds a mount; `later` are those that are added afterwards.
    fn add(&mut self, one: &Mount, later: &[Mount]) -> Result<(), Failed> {
        let failed = |error: io::Error| Failed::at(Stage::Mounts)(with_path(&error, one));
        let added = match one {
            Mount::Host {
                source,
                at,
                writable,
                identity,
            } => self.bind(source, at, *writable, *identity),
            Mount::Overlay {
                source,
                at,
                writable,
                identity,
            } => {
                let opened = open_in_host(source, *identity)
                    .and_then(|lower| Ok((lower, self.directory(at)?)));
                let (lower, place) = opened.map_err(failed)?;
                self.overlays.mount(&lower, &place, &covered(at, later))?;
                let mounted = self.open(at).map_err(io::Error::from);
                mounted.and_then(|mounted| restrict(&mounted, *writable))
            }
            Mount::Within { at, writable } => self.bind_again(at, *writable),
            Mount::Hidden { at } => self.hide(at),
            Mount::Temporary { at, bytes } => self.add_temporary(at, *bytes),
            Mount::Link { at, target } => self.add_link(at, target),
        };
        added.map_err(failed)
    }

    /// Mounts a directory or file of the sandbox at its own path, with other rights.
    fn bind_again(&self, at: &Path, writable: bool) -> io::Result<()> {
        let found = self.open(at)?;
        mount_bind_recursive(link(&found), link(&found))?;
        // The descriptor refers to the directory under the new mount.
        restrict_all(&self.open(at)?, writable)
    }

    fn add_temporary(&mut self, at: &Path, bytes: u64) -> io::Result<()> {
        let place = self.directory(at)?;
        tmpfs(&link(&place), &format!("mode=1777,size={bytes}"))?;
        self.own.push(device(&self.open(at)?)?);
        Ok(())
    }

    fn add_link(&self, at: &Path, target: &Path) -> io::Result<()> {
        let (folder, name) = self.parent(at)?;
        Ok(rustix::fs::symlinkat(target, &folder, name)?)
    }

    /// Opens a path of the sandbox without following links.
    fn open(&self, at: &Path) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat2(
            &self.root,
            Path::new(".").join(at.strip_prefix("/").unwrap_or(at)),
            PATH | OFlags::NOFOLLOW,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        )
    }

    /// Opens a directory of the sandbox. Missing directories are created in memory, never in a directory of the host.
    fn directory(&self, at: &Path) -> io::Result<OwnedFd> {
        match self.open(at) {
            Ok(found) => Ok(found),
            Err(rustix::io::Errno::NOENT) => {
                let (folder, name) = self.parent(at)?;
                rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                Ok(self.open(at)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The directory in memory that contains `at`, and the name in it.
    fn parent<'p>(&self, at: &'p Path) -> io::Result<(OwnedFd, &'p std::ffi::OsStr)> {
        let (Some(folder), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = self.directory(folder)?;
        if self.own.contains(&device(&folder)?) {
            Ok((folder, name))
        } else {
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                "it does not exist in the directory that is mounted there",
            ))
        }
    }

    /// Mounts a file or directory of the host.
    fn bind(
        &self,
        source: &Path,
        at: &Path,
        writable: bool,
        identity: Option<(u64, u64)>,
    ) -> io::Result<()> {
        let found = open_in_host(source, identity)?;
        let mode = rustix::fs::fstat(&found)?.st_mode;
        let place = if FileType::from_raw_mode(mode).is_dir() {
            self.directory(at)?
        } else {
            self.file(at)?
        };
        mount_bind_recursive(link(&found), link(&place))?;
        let mounted = self.open(at)?;
        if mounts_beneath(&self.host, &fs::read_link(link(&found))?).is_empty() {
            restrict(&mounted, writable)
        } else {
            restrict_all(&mounted, writable)
        }
    }

    /// Opens a file of the sandbox, or creates it in memory.
    fn file(&self, at: &Path) -> io::Result<OwnedFd> {
        match self.open(at) {
            Ok(found) => Ok(found),
            Err(rustix::io::Errno::NOENT) => {
                let (folder, name) = self.parent(at)?;
                let create = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
                rustix::fs::openat(&folder, name, create, Mode::from_raw_mode(0o644))?;
                Ok(self.open(at)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Hides a file or directory. A link is left, since what it leads to is hidden where it is.
    fn hide(&mut self, at: &Path) -> io::Result<()> {
        use rustix::io::Errno;
        let found = match self.open(at) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
        if kind.is_symlink() {
            return Ok(());
        }
        if !kind.is_dir() {
            mount_bind_recursive(format!("{HOST}/dev/null"), link(&found))?;
            return restrict(&self.open(at)?, false);
        }
        tmpfs(&link(&found), TOP_OPTIONS)?;
        let empty = self.open(at)?;
        self.own.push(device(&empty)?);
        self.closed.push(empty);
        Ok(())
    }

    /// Creates `/dev`.
    fn add_devices(&mut self) -> io::Result<()> {
        for name in DEVICES {
            let source = Path::new(HOST).join("dev").join(name);
            let place = self.file(&Path::new("/dev").join(name))?;
            mount_bind_recursive(&source, link(&place))?;
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            self.add_link(&Path::new("/dev").join(name), Path::new(target))?;
        }
        self.add_temporary(Path::new("/dev/shm"), 64 << 20)
    }

    /// Mounts a `/proc` with the processes of the sandbox only. The inner error says why that is not possible.
    fn add_proc(&self) -> io::Result<Result<(), String>> {
        let place = self.directory(Path::new("/proc"))?;
        mount_proc(&link(&place), c"subset=pid")
    }

    /// Makes the directories in which mounts are placed read-only.
    fn finish(self) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY | MountFlags::BIND;
        for closed in &self.closed {
            mount_remount(link(closed), flags, c"")?;
        }
        Ok(mount_remount(NEW, flags, c"")?)
    }
}

/// The device of a file.
fn device(file: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_dev)
}

/// Opens a file or directory of the host while that is at [`HOST`].
fn open_in_host(source: &Path, identity: Option<(u64, u64)>) -> io::Result<OwnedFd> {
    let source = source.strip_prefix("/").map_err(io::Error::other)?;
    open_source(&Path::new(HOST).join(source), identity)
}

/// Opens a file or directory of the host, which must be the one that the host has checked.
pub(super) fn open_source(source: &Path, identity: Option<(u64, u64)>) -> io::Result<OwnedFd> {
    let found = rustix::fs::openat(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    #[expect(
        clippy::useless_conversion,
        reason = "the types differ between architectures"
    )]
    let is_other = identity
        .is_some_and(|identity| identity != (u64::from(stat.st_dev), u64::from(stat.st_ino)));
    if is_other {
        return Err(io::Error::other(
            "it was replaced since the host checked it",
        ));
    }
    Ok(found)
}

/// Opens an absolute path of the host that contains no links.
pub(super) fn open_without_links(at: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(CWD, at, flags, Mode::empty(), resolve)?)
}

/// The path of an open file, through the `/proc` of the host.
pub(super) fn link(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("{HOST}/proc/self/fd/{}", file.as_raw_fd()))
}

/// The mounts of this process.
fn mount_table() -> io::Result<String> {
    // The kernel writes the table anew for each part that is read.
    let mut table = String::with_capacity(1 << 16);
    let mut file = fs::File::open(format!("{HOST}/proc/self/mountinfo"))?;
    file.read_to_string(&mut table)?;
    Ok(table)
}

/// Removes rights from a mount and the mounts in it.
fn restrict_all(mounted: &OwnedFd, writable: bool) -> io::Result<()> {
    let at = fs::read_link(link(mounted))?;
    for inner in mounts_beneath(&mount_table()?, &at) {
        restrict(&rustix::fs::open(&inner, PATH, Mode::empty())?, writable)?;
    }
    restrict(mounted, writable)
}

/// Removes rights from a mount: programs with the set-user-ID bit and devices have no effect, and files can be changed only
/// if `writable`.
fn restrict(mounted: &OwnedFd, writable: bool) -> io::Result<()> {
    let before = rustix::fs::fstatvfs(mounted)?.f_flag;
    let mut flags = MountFlags::NOSUID | MountFlags::BIND;
    for (found, flag) in [
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        // These may not be cleared in a user namespace.
        if before.contains(found) {
            flags |= flag;
        }
    }
    // A device of the host is needed in `/dev` only, whose mounts are files.
    let mode = rustix::fs::fstat(mounted)?.st_mode;
    let is_device = FileType::from_raw_mode(mode).is_char_device();
    if !is_device || before.contains(StatVfsMountFlags::NODEV) {
        flags |= MountFlags::NODEV;
    }
    if !writable {
        flags |= MountFlags::RDONLY;
    }
    Ok(mount_remount(link(mounted), flags, c"")?)
}

/// Limits the processes in the PID namespace, since `RLIMIT_NPROC` does not limit user 0. The inner error says why that is
/// not possible.
fn limit_processes(most: u64) -> io::Result<Result<(), String>> {
    // The kernel gives the first 300 numbers only once. A namespace has `most` numbers without them.
    const RESERVED: u64 = 300;
    if !rustix::process::getuid().is_root() {
        return Ok(Ok(()));
    }
    // The file of an older kernel is that of the whole machine.
    if !limits_namespaces(&rustix::system::uname().release().to_string_lossy()) {
        return Ok(Err(
            "for user 0, it needs Linux 6.14 or newer; run as another user".to_owned(),
        ));
    }
    let place = Path::new("/limits");
    fs::create_dir(place)?;
    // It is detached with the files of the host.
    let mounted = mount_proc(place, c"")?;
    Ok(mounted.and_then(|()| {
        let file = place.join("sys/kernel/pid_max");
        let limited = fs::write(file, most.max(1).saturating_add(RESERVED).to_string());
        limited.map_err(|error| format!("cannot set it: {error}"))
    }))
}

/// Whether a Linux release limits the processes of each PID namespace.
fn limits_namespaces(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    (number(), number()) >= (Some(6), Some(14))
}

/// Mounts a `/proc`, which a container can forbid.
fn mount_proc(at: &Path, options: &CStr) -> io::Result<Result<(), String>> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("proc", at, "proc", flags, options) {
        Ok(()) => Ok(Ok(())),
        Err(error @ (rustix::io::Errno::PERM | rustix::io::Errno::ACCESS)) => {
            Ok(Err(format!("cannot mount /proc: {error}")))
        }
        Err(error) => Err(error.into()),
    }
}

fn with_path(error: &io::Error, one: &Mount) -> io::Error {
    let (Mount::Host { at, .. }
    | Mount::Overlay { at, .. }
    | Mount::Within { at, .. }
    | Mount::Hidden { at }
    | Mount::Temporary { at, .. }
    | Mount::Link { at, .. }) = one;
    io::Error::new(error.kind(), format!("{}: {error}", at.display()))
}

#[cfg(test)]
mod tests {
    use super::limits_namespaces;

    #[test]
    fn only_newer_kernels_limit_the_processes_of_a_namespace() {
        for release in ["6.14", "6.14.0-rc1", "6.18.44-fc", "7.0.1", "10.1"] {
            assert!(limits_namespaces(release), "{release}");
        }
        for release in ["6.13.12", "6.8.0-45-generic", "5.15.0", "", "x", "6"] {
            assert!(!limits_namespaces(release), "{release}");
        }
    }
}
