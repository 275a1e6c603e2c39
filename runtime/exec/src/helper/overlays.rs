//! Mounts the directories whose changes are kept apart.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_bind_recursive, mount_remount,
    move_mount,
};

use super::Failed;
use super::copy::{Budget, copy};
use super::mounts::{link, tmpfs};
use crate::error::Stage;
use crate::spec::{Layer, SandboxSpec};

/// Where the changes in overlays are. The mount is detached with the files of the host.
const CHANGES: &str = "/changes";
/// Maximum number of files and directories in all changes.
const MAX_CHANGES: u64 = 200_000;

/// Creates the directory for the changes in overlays.
pub(super) fn open(bytes: u64) -> io::Result<OwnedFd> {
    fs::create_dir(CHANGES)?;
    tmpfs(Path::new(CHANGES), &options(bytes, MAX_CHANGES))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(CHANGES, flags, Mode::empty())?)
}

fn options(bytes: u64, entries: u64) -> String {
    format!("mode=700,size={bytes},nr_inodes={entries}")
}

/// The overlays of a sandbox.
pub(super) struct Overlays<'h> {
    /// Number of overlays so far.
    count: usize,
    /// Whether directories may be copied if overlayfs is missing.
    may_copy: bool,
    budget: Budget<'h>,
    /// Size of the directory for the changes if it contains copies.
    bytes: u64,
    entries: u64,
    /// Why directories were copied.
    pub(super) missing: Option<String>,
}

impl<'h> Overlays<'h> {
    pub(super) fn new(spec: &SandboxSpec, host: &'h UnixStream) -> Self {
        Self {
            count: 0,
            may_copy: spec.optional.contains(&Layer::Overlay),
            budget: Budget::new(spec.copy.clone(), host),
            bytes: spec.overlay_bytes.saturating_add(spec.copy.bytes),
            entries: MAX_CHANGES.saturating_add(spec.copy.entries),
            missing: None,
        }
    }

    /// Mounts a view of `lower` at `place`. If overlayfs is missing, that is a copy without the `covered` paths.
    pub(super) fn mount(
        &mut self,
        lower: &OwnedFd,
        place: &OwnedFd,
        covered: &BTreeSet<PathBuf>,
    ) -> Result<(), Failed> {
        let failed = |error: io::Error| Failed::at(Stage::Mounts)(error);
        let changes = Path::new(CHANGES).join(self.count.to_string());
        self.count += 1;
        create(&changes, lower).map_err(failed)?;
        let Err(reason) = mount_overlay(lower, &changes, place) else {
            return Ok(());
        };
        if !self.may_copy {
            let layer = Layer::Overlay;
            return Err(Failed::Missing { layer, reason });
        }
        if self.missing.is_none() {
            let reason = format!("{reason}; files are copied instead");
            self.missing = Some(reason);
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let options = std::ffi::CString::new(options(self.bytes, self.entries));
            let options = options.map_err(|error| failed(error.into()))?;
            mount_remount(CHANGES, flags, options.as_c_str())
                .map_err(|error| failed(error.into()))?;
        }
        copy(lower, &changes, covered, &mut self.budget)?;
        mount_bind_recursive(changes.join("upper"), link(place))
            .map_err(|error| failed(error.into()))
    }
}

/// Creates the directories of an overlay of `lower`.
fn create(changes: &Path, lower: &OwnedFd) -> io::Result<()> {
    let upper = changes.join("upper");
    for path in [changes, &upper, &changes.join("work")] {
        fs::create_dir(path)?;
    }
    // The directory itself is that of the changes, with the mode of the other.
    let mode = Mode::from_raw_mode(rustix::fs::fstat(lower)?.st_mode & 0o777);
    Ok(rustix::fs::chmod(&upper, mode)?)
}

/// Mounts overlayfs at `place`, which shows `lower` with the changes in `changes`.
///
/// # Errors
/// Why that is not possible here.
fn mount_overlay(lower: &OwnedFd, changes: &Path, place: &OwnedFd) -> Result<(), String> {
    let (upper, work) = (changes.join("upper"), changes.join("work"));
    // Without them, overlayfs can be mounted, but directories cannot be replaced.
    rustix::fs::setxattr(&work, "user.test", b"", XattrFlags::CREATE)
        .map_err(|error| format!("files in memory cannot have extended attributes: {error}"))?;
    let mounted = || {
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_flag(context.as_fd(), "userxattr")?;
        fsconfig_set_string(context.as_fd(), "lowerdir", link(lower))?;
        fsconfig_set_string(context.as_fd(), "upperdir", upper)?;
        fsconfig_set_string(context.as_fd(), "workdir", work)?;
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let made = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let paths =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(made.as_fd(), "", place.as_fd(), "", paths)
    };
    mounted().map_err(|error: Errno| format!("it cannot be mounted: {error}"))
}
