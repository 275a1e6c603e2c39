//! Description of a sandbox.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A program and the sandbox that it runs in. Paths of the sandbox are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SandboxSpec {
    /// The program and its arguments. The program is a path in the sandbox.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The working directory, a path in the sandbox.
    pub cwd: PathBuf,
    /// What the program sees of the file system, in this order. A later mount hides an earlier one at the same path.
    pub mounts: Vec<Mount>,
    /// Limits of the program and all its children.
    pub limits: Limits,
    /// The maximum size of all changes in overlays, in bytes.
    pub overlay_bytes: u64,
    /// What may be copied at most if overlayfs is missing.
    pub copy: CopyLimits,
    /// The network that it can reach.
    pub network: Network,
    /// Layers that may be missing if this machine does not support them.
    ///
    /// Without [`Layer::Namespaces`], mounts that hide files, take rights away or have another path than on the host are
    /// refused, and [`Layer::Landlock`] and [`Layer::Seccomp`] are always required, since nothing else confines files and
    /// the network. The program has no temporary directories and no `/proc`. It cannot change modes, owners, attributes
    /// and times of any file, since Landlock does not confine that, and it can see the names, sizes and times of all files
    /// of the host, but not list or read them.
    ///
    /// Without [`Layer::Overlay`], the program works on copies of the directories of [`Mount::Overlay`], which are in memory.
    /// Hidden files, FIFOs, sockets and devices are not copied. Directories that exceed [`SandboxSpec::copy`] are refused.
    pub optional: Vec<Layer>,
    /// The name of the program that it gets as its first argument, if it is not its path.
    pub(crate) arg0: Option<String>,
    /// The file that the program must be. It is checked immediately before the program starts.
    pub(crate) program: Option<FileIdentity>,
}

impl SandboxSpec {
    /// Whether changes are kept apart.
    pub(crate) fn has_overlay(&self) -> bool {
        let mut mounts = self.mounts.iter();
        mounts.any(|mount| matches!(mount, Mount::Overlay { .. }))
    }

    /// Creates a sandbox without files, environment and network.
    #[must_use]
    pub fn new(argv: Vec<String>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv,
            env: Vec::new(),
            cwd: cwd.into(),
            mounts: Vec::new(),
            limits: Limits::default(),
            overlay_bytes: 512 << 20,
            copy: CopyLimits::default(),
            network: Network::None,
            optional: Vec::new(),
            arg0: None,
            program: None,
        }
    }
}

/// Limits of all copies of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CopyLimits {
    /// Number of files and directories.
    pub entries: u64,
    /// Size of all files, in bytes.
    pub bytes: u64,
    /// How long copying may take.
    pub time: Duration,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self {
            entries: 50_000,
            bytes: 256 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// Identifies a file and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    /// Its device and inode; `None` in an overlay, where they are others.
    file: Option<(u64, u64)>,
    /// Its size.
    pub(crate) bytes: u64,
    /// When its content was changed, in seconds and nanoseconds.
    modified: (i64, i64),
    /// When its content or its attributes were changed; `None` in a copy.
    changed: Option<(i64, i64)>,
}

impl FileIdentity {
    /// The identity of the same file in an overlay.
    pub(crate) fn in_overlay(self) -> Self {
        Self { file: None, ..self }
    }

    /// The identity of a file in an overlay if that is a copy.
    pub(crate) fn in_copy(self) -> Self {
        let changed = self.changed.filter(|_| self.file.is_some());
        Self { changed, ..self }
    }

    /// Whether `found` is this file, in the same state.
    pub(crate) fn is(&self, found: &Self) -> bool {
        self.file.is_none_or(|file| found.file == Some(file))
            && self.changed.is_none_or(|at| found.changed == Some(at))
            && (self.bytes, self.modified) == (found.bytes, found.modified)
    }

    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Self {
            file: Some((data.dev(), data.ino())),
            bytes: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: Some((data.ctime(), data.ctime_nsec())),
        })
    }
}

/// A part of the file system that the program sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mount {
    /// A file or directory of the host.
    Host {
        /// Its path on the host.
        source: PathBuf,
        /// Its path in the sandbox.
        at: PathBuf,
        /// Whether the program may change it.
        writable: bool,
        /// The device and inode that the host has checked; another file at `source` fails the start.
        identity: Option<(u64, u64)>,
    },
    /// A directory of the host whose changes are kept apart: the program sees them, the directory stays as it is. They
    /// are in memory: see [`SandboxSpec::overlay_bytes`] and [`Process::changes`](crate::Process::changes). Needs
    /// [`Layer::Overlay`], that is, overlayfs, which unprivileged users may mount since Linux 5.11, and extended
    /// attributes of files in memory, which Linux has since 6.6. Files of other users cannot be changed.
    Overlay {
        /// Its path on the host.
        source: PathBuf,
        /// Its path in the sandbox.
        at: PathBuf,
        /// Whether the program may change what it sees.
        writable: bool,
        /// The device and inode that the host has checked; another file at `source` fails the start.
        identity: Option<(u64, u64)>,
    },
    /// A directory inside an earlier mount with other rights. The path is resolved without following links.
    Within {
        /// Its path in the sandbox.
        at: PathBuf,
        /// Whether the program may change it.
        writable: bool,
    },
    /// Hides a file or directory inside an earlier mount: a file becomes an empty device, a directory an empty
    /// directory. The path is resolved without following links. A path that does not exist is skipped.
    Hidden {
        /// Its path in the sandbox.
        at: PathBuf,
    },
    /// An empty directory in memory that the program may change.
    Temporary {
        /// Its path in the sandbox.
        at: PathBuf,
        /// The maximum size of its contents.
        bytes: u64,
    },
    /// A symbolic link in the top-level directory.
    Link {
        /// Its path in the sandbox.
        at: PathBuf,
        /// The text of the link.
        target: PathBuf,
    },
}

/// Limits of the program and all its children. `None` leaves the limit of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// CPU time of each process.
    pub cpu: Option<Duration>,
    /// Address space of each process, in bytes.
    pub memory: Option<u64>,
    /// Size of each written file, in bytes.
    pub file_size: Option<u64>,
    /// Number of processes and threads. For user 0 the process ids are limited instead; Linux gives the first 300 of them
    /// only once, so up to 300 more can run until these are used. Without [`Layer::Namespaces`], those that the user has
    /// when the sandbox starts are added, since Linux counts them as well.
    pub processes: Option<u64>,
    /// Number of open descriptors of each process.
    pub open_files: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: None,
            memory: None,
            file_size: Some(1 << 30),
            processes: Some(512),
            open_files: Some(4096),
        }
    }
}

/// The network that the program can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Network {
    /// None: it cannot create sockets other than pairs that are connected to each other.
    #[default]
    None,
    /// The hosts that a proxy allows; see [`spawn_with_proxy`](crate::spawn_with_proxy). The environment variables
    /// `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, also in lower case, name the proxy. The program can create TCP
    /// sockets, but not listen on them, and connect them to the proxy only.
    Proxy,
}

/// A layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// User, mount, PID, network, IPC, UTS and cgroup namespaces.
    Namespaces,
    /// A `/proc` that shows the processes of the sandbox only.
    Proc,
    /// A limit of the number of processes.
    ProcessLimit,
    /// Landlock rules for files, TCP, signals and abstract sockets.
    Landlock,
    /// A seccomp filter.
    Seccomp,
    /// No capabilities, and no way to get them.
    Capabilities,
    /// All processes are killed when the program ends, or when the host closes the sandbox.
    Cleanup,
    /// Overlayfs, which keeps changes apart. Only sandboxes with [`Mount::Overlay`] need it.
    Overlay,
}

impl Layer {
    /// All layers.
    pub const ALL: [Self; 8] = [
        Self::Namespaces,
        Self::Proc,
        Self::ProcessLimit,
        Self::Landlock,
        Self::Seccomp,
        Self::Capabilities,
        Self::Cleanup,
        Self::Overlay,
    ];
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Proc => "a private /proc",
            Self::ProcessLimit => "a limit of the number of processes",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
            Self::Capabilities => "dropped capabilities",
            Self::Cleanup => "killing all processes",
            Self::Overlay => "overlayfs",
        })
    }
}
