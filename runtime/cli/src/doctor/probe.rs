//! Probes this machine.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use bailiwick_exec::{Layer, LayerState};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{
    Access, AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags,
    access, flock, fsync, mkdirat, openat, openat2, renameat_with, stat, statx, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::facts::{
    Confinement, Directory, Facts, FileSystem, Folder, Inotify, PrivateFolder, Sandbox,
    SecretsFolder, SystemCalls, Tried,
};
use crate::serve::secrets_dir;
use crate::state;

/// The maximum size of a file of the kernel that is read.
const MAX_BYTES: u64 = 16 << 10;
/// The names that are created in a temporary directory.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Probes this machine, and the file systems of `roots` or of the current directory.
pub(super) fn facts(
    roots: &[PathBuf],
    accepted: Option<Result<usize, String>>,
    file_tools: LayerState,
    layers: Vec<(Layer, LayerState)>,
) -> Facts {
    let current = [std::env::current_dir().unwrap_or_else(|_| ".".into())];
    let folders = match accepted {
        None => &current,
        Some(Ok(_)) => roots,
        // Nothing is created in a directory that cannot be a root.
        Some(Err(_)) => &[],
    };
    let number = |path| text(path).and_then(|text| text.parse().ok());
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let secrets = secrets_dir();
    Facts {
        kernel: text("/proc/sys/kernel/osrelease"),
        architecture: std::env::consts::ARCH,
        user: geteuid().as_raw(),
        roots: accepted,
        temporary: probe(&std::env::temp_dir(), system_calls),
        folders: folders
            .iter()
            .map(|folder| probe(folder, file_system))
            .collect(),
        state: state::dir(variable).map(|path| private_folder(path, roots)),
        secrets: SecretsFolder {
            named: variable("XDG_RUNTIME_DIR").as_ref() == Some(&secrets),
            folder: private_folder(secrets, roots),
        },
        inotify: Inotify {
            instances: number("/proc/sys/fs/inotify/max_user_instances"),
            watches: number("/proc/sys/fs/inotify/max_user_watches"),
        },
        open_files: getrlimit(Resource::Nofile).current,
        terminal: io::stderr().is_terminal(),
        opener: opener(),
        sandbox: Sandbox {
            file_tools,
            layers,
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: number(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
        },
    }
}

/// The content of a small file of the kernel.
fn text(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

/// The program in `BROWSER`, or `xdg-open` if there is a display.
fn opener() -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(browser) = set("BROWSER") {
        return Some(browser);
    }
    set("WAYLAND_DISPLAY").or_else(|| set("DISPLAY"))?;
    let name = "xdg-open";
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .any(|folder| access(folder.join(name), Access::EXEC_OK).is_ok())
        .then(|| name.to_owned())
}

fn private_folder(path: PathBuf, roots: &[PathBuf]) -> PrivateFolder {
    let directory = |path: &Path| {
        let found = stat(path).ok()?;
        Some(Directory {
            path: path.to_owned(),
            owner: found.st_uid,
            mode: found.st_mode,
        })
    };
    let innermost = path.ancestors().find(|path| stat(*path).is_ok());
    let innermost = innermost.unwrap_or(Path::new("/"));
    let real = innermost.canonicalize().unwrap_or_default();
    // The written path may contain a link that another user can replace.
    let written = innermost.ancestors().filter(|path| *path != real);
    let existing = real.ancestors().chain(written).filter_map(directory);
    let holds = |root: &&PathBuf| {
        let root = root.canonicalize().unwrap_or_else(|_| (*root).clone());
        real.starts_with(&root) || path.starts_with(&root)
    };
    PrivateFolder {
        existing: existing.collect(),
        writable: access(innermost, Access::WRITE_OK | Access::EXEC_OK),
        root: roots.iter().find(holds).cloned(),
        path,
    }
}

/// Runs `probes` in a temporary directory in `path`.
fn probe<T>(path: &Path, probes: impl FnOnce(&ProbeFolder) -> Result<T, Errno>) -> Folder<T> {
    Folder {
        path: path.to_owned(),
        probed: ProbeFolder::create(path).and_then(|folder| probes(&folder)),
    }
}

/// A temporary directory with the files `a` and `b`. It is removed on drop.
struct ProbeFolder {
    parent: OwnedFd,
    name: String,
    dir: OwnedFd,
}

impl ProbeFolder {
    fn create(parent: &Path) -> Result<Self, Errno> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
        // The file tools hide this name, and the next write in the directory removes it if this process is killed.
        let name = format!(".bailiwick-{:032x}.tmp", u128::from_be_bytes(random));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags, Mode::empty())?;
        mkdirat(&parent, &name, Mode::RWXU)?;
        let dir = match openat(&parent, &name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(dir) => dir,
            Err(errno) => {
                // Nothing else can be done with a directory that cannot be opened.
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                return Err(errno);
            }
        };
        let folder = Self { parent, name, dir };
        folder.create_file("a")?;
        folder.create_file("b")?;
        Ok(folder)
    }

    fn create_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)
    }

    fn rename(&self, from: &str, to: &str, how: RenameFlags) -> Tried {
        renameat_with(&self.dir, from, &self.dir, to, how)
    }
}

impl Drop for ProbeFolder {
    fn drop(&mut self) {
        for name in NAMES {
            // Only some of them exist.
            let _ = unlinkat(&self.dir, name, AtFlags::empty());
        }
        // What cannot be removed now is removed by the next write of a file tool.
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

fn file_system(folder: &ProbeFolder) -> Result<FileSystem, Errno> {
    let lock = flock(&folder.dir, FlockOperation::NonBlockingLockExclusive);
    let exchange = folder.rename("a", "b", RenameFlags::EXCHANGE);
    let no_replace = folder
        .rename("a", "c", RenameFlags::NOREPLACE)
        .and_then(|()| match folder.rename("b", "c", RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
            // The flag was ignored.
            Ok(()) => Err(Errno::OPNOTSUPP),
        });
    Ok(FileSystem {
        no_replace,
        exchange,
        sync_file: folder.create_file("d").and_then(fsync),
        sync_directory: fsync(&folder.dir),
        lock,
    })
}

fn system_calls(folder: &ProbeFolder) -> Result<SystemCalls, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&folder.dir, "a", flags, Mode::empty())?;
    Ok(SystemCalls {
        openat2: confinement(folder),
        reopen: reopen(&file),
        mount_id: mount_id(&folder.dir),
        watch: watch(&folder.dir),
    })
}

/// Opens a name in the directory, and then its parent, which must fail.
fn confinement(folder: &ProbeFolder) -> Confinement {
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_XDEV;
    let open = |path: &str| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(&folder.dir, path, flags, Mode::empty(), how)
    };
    match (open("a"), open("..")) {
        (Err(errno), _) => Confinement::Failed(errno),
        (Ok(_), Ok(_)) => Confinement::NotEnforced,
        (Ok(_), Err(_)) => Confinement::Enforced,
    }
}

fn proc_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn reopen(file: &OwnedFd) -> Tried {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, proc_path(file), flags, Mode::empty()).map(drop)
}

fn mount_id(dir: &OwnedFd) -> Tried {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let found = statx(dir.as_fd(), "", flags, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

fn watch(dir: &OwnedFd) -> Tried {
    let instance = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    inotify::add_watch(&instance, proc_path(dir), WatchFlags::CREATE).map(drop)
}
