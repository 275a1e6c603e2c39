//! What is known about a machine and an installation.

use std::path::PathBuf;

use bailiwick_exec::{Layer, LayerState};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

/// The outcome of a system call that was tried.
pub(super) type Tried = Result<(), Errno>;

/// All that was probed.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The release of the kernel, if it is known.
    pub(super) kernel: Option<String>,
    pub(super) architecture: &'static str,
    /// The effective user id.
    pub(super) user: u32,
    /// The number of roots, or why they are rejected; `None` without a ROOT.
    pub(super) roots: Option<Result<usize, String>>,
    pub(super) temporary: Folder<SystemCalls>,
    /// The roots, or the current directory.
    pub(super) folders: Vec<Folder<FileSystem>>,
    /// The state directory, if a variable names it.
    pub(super) state: Option<PrivateFolder>,
    /// The directory for files with secrets.
    pub(super) secrets: SecretsFolder,
    pub(super) inotify: Inotify,
    /// The soft limit of open files; `None` if there is no limit.
    pub(super) open_files: Option<u64>,
    /// Whether standard error is a terminal.
    pub(super) terminal: bool,
    /// A program that opens web pages.
    pub(super) opener: Option<String>,
    pub(super) sandbox: Sandbox,
}

/// A directory and what was probed in a temporary directory inside it, or why that cannot be created.
#[derive(Clone, Debug)]
pub(super) struct Folder<T> {
    pub(super) path: PathBuf,
    pub(super) probed: Result<T, Errno>,
}

/// System calls that do not depend on the file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemCalls {
    pub(super) openat2: Confinement,
    /// Reopening a handle by `/proc/self/fd`.
    pub(super) reopen: Tried,
    /// Reading the mount id by `statx`.
    pub(super) mount_id: Tried,
    /// Watching a directory with inotify.
    pub(super) watch: Tried,
}

/// Whether `openat2` keeps a path beneath a directory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Confinement {
    Enforced,
    /// It opened `..`.
    NotEnforced,
    Failed(Errno),
}

/// Operations that depend on the file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSystem {
    /// Renaming without replacing another file.
    pub(super) no_replace: Tried,
    /// Exchanging two names.
    pub(super) exchange: Tried,
    pub(super) sync_file: Tried,
    pub(super) sync_directory: Tried,
    pub(super) lock: Tried,
}

/// A directory that other users must not change.
#[derive(Clone, Debug)]
pub(super) struct PrivateFolder {
    pub(super) path: PathBuf,
    /// The directory itself if it exists, and then its existing ancestors, from the innermost.
    pub(super) existing: Vec<Directory>,
    /// Whether this user can create entries in the first one.
    pub(super) writable: Tried,
    /// The root that contains it.
    pub(super) root: Option<PathBuf>,
}

/// Owner and mode of a path.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) owner: u32,
    /// `st_mode`.
    pub(super) mode: u32,
}

impl Directory {
    pub(super) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_dir()
    }

    /// Whether another user than `user` and the superuser can rename or replace entries.
    pub(super) fn is_open_to_others(&self, user: u32) -> bool {
        let mode = Mode::from_raw_mode(self.mode);
        let written = mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX);
        written || ![user, 0].contains(&self.owner)
    }

    /// Whether only `user` can list and enter it.
    pub(super) fn is_private_to(&self, user: u32) -> bool {
        self.owner == user && !Mode::from_raw_mode(self.mode).intersects(Mode::RWXG | Mode::RWXO)
    }
}

/// The directory for files with secrets.
#[derive(Clone, Debug)]
pub(super) struct SecretsFolder {
    pub(super) folder: PrivateFolder,
    /// Whether `XDG_RUNTIME_DIR` names it.
    pub(super) named: bool,
}

/// Limits of file watches per user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inotify {
    pub(super) instances: Option<u64>,
    pub(super) watches: Option<u64>,
}

/// What sandboxes of commands and the threads of file tools enforce, and settings that explain what they do not.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    /// Whether Landlock confines file tools.
    pub(super) file_tools: LayerState,
    /// The result of the self-test.
    pub(super) layers: Vec<(Layer, LayerState)>,
    /// `/proc/sys/user/max_user_namespaces`
    pub(super) max_user_namespaces: Option<u64>,
    /// `/proc/sys/kernel/unprivileged_userns_clone`, which only some distributions have.
    pub(super) unprivileged_userns_clone: Option<u64>,
    /// `/proc/sys/kernel/apparmor_restrict_unprivileged_userns`, which only some distributions have.
    pub(super) apparmor_restrict_unprivileged_userns: Option<u64>,
}
