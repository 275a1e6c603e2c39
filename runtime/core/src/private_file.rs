//! Small file that only its owner can write, with its folder, its lock and its atomic replacement.
//!
//! All operations use one handle of the folder.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, fstat, fsync, openat, renameat,
    renameat_with, stat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of damaged files that are kept.
const MAX_ASIDE: u32 = 100;
/// The superuser.
const ROOT: u32 = 0;
const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR);
/// Interval between attempts to take a lock.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Why a file cannot be used.
#[derive(Debug)]
#[doc(hidden)]
pub enum PrivateFileError {
    /// It cannot be opened, created or read.
    Open(io::Error),
    /// Another user can write or replace it.
    Unsafe(String),
    /// Its lock is held.
    InUse,
}

impl From<Errno> for PrivateFileError {
    fn from(errno: Errno) -> Self {
        Self::Open(errno.into())
    }
}

/// The folder of the file at this path.
fn folder_of(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).canonicalize()
}

/// The file at `path` and all files that are created beside it, whether they exist or not.
pub(crate) fn places_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(places(&folder_of(path)?.join(name)))
}

fn places(file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().unwrap_or_default();
    let beside = ["", ".lock", ".new"].map(|end| beside(name, end));
    let all = beside
        .into_iter()
        .chain((1..=MAX_ASIDE).map(|n| aside(name, n)));
    all.map(|name| file.with_file_name(name)).collect()
}

/// The name of the first, second, ... damaged file.
fn aside(name: &OsStr, number: u32) -> OsString {
    match number {
        1 => beside(name, ".corrupt"),
        _ => beside(name, &format!(".corrupt-{number}")),
    }
}

/// The folder of a store, and its name there.
#[derive(Debug)]
#[doc(hidden)]
pub struct Folder {
    dir: File,
    name: OsString,
    place: PathBuf,
}

impl Folder {
    #[doc(hidden)]
    pub fn of(path: &Path) -> Result<Self, PrivateFileError> {
        let name = path
            .file_name()
            .ok_or_else(|| PrivateFileError::Open(io::ErrorKind::IsADirectory.into()))?;
        let folder = folder_of(path).map_err(PrivateFileError::Open)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, &folder, flags, Mode::empty())?;
        let this = Self {
            dir: dir.into(),
            name: name.to_owned(),
            place: folder.join(name),
        };
        let unsafe_folder = |reason| PrivateFileError::Unsafe(format!("its folder {reason}"));
        unsafe_directory(&fstat(&this.dir)?).map_or(Ok(()), |it| Err(unsafe_folder(it)))?;
        // A user who can rename an ancestor can replace the folder. The original path matters, too, since it may
        // contain a link that another user can replace.
        let written = std::path::absolute(path).map_err(PrivateFileError::Open)?;
        for above in folder
            .ancestors()
            .skip(1)
            .chain(written.ancestors().skip(1))
        {
            if let Some(reason) = unsafe_directory(&stat(above)?) {
                let above = above.display();
                let reason = format!("the folder `{above}` above it {reason}");
                return Err(PrivateFileError::Unsafe(reason));
            }
        }
        Ok(this)
    }

    /// Path of the file.
    #[doc(hidden)]
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Path of the file, and of those that are created beside it.
    #[doc(hidden)]
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        places(&self.place)
    }

    /// Returns the folder.
    #[doc(hidden)]
    #[must_use]
    pub fn directory(&self) -> &File {
        &self.dir
    }

    /// Name of the file in the folder.
    #[doc(hidden)]
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the first `most` bytes of the file, and one more if it is longer. `None` if there is no file.
    #[doc(hidden)]
    pub fn read(&self, most: u64) -> Result<Option<Vec<u8>>, PrivateFileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        check_owner(&file)?;
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(PrivateFileError::Open)?;
        Ok(Some(bytes))
    }

    /// Moves the damaged file `name` to a free name beside it, and returns that name.
    pub(crate) fn set_aside(&self, name: &OsStr) -> io::Result<PathBuf> {
        let dir = &self.dir;
        for number in 1..=MAX_ASIDE {
            let aside = aside(name, number);
            match renameat_with(dir, name, dir, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    fsync(dir)?;
                    return Ok(self.place.with_file_name(aside));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Like [`Folder::locked`], but waits up to `timeout` for the lock. Blocks.
    #[doc(hidden)]
    pub fn locked_within(self, timeout: Duration) -> Result<StoreFile, PrivateFileError> {
        let end = Instant::now() + timeout;
        loop {
            match self.lock() {
                Err(PrivateFileError::InUse) if Instant::now() < end => {
                    std::thread::sleep(BETWEEN_TRIES);
                }
                lock => return lock.map(|lock| StoreFile { folder: self, lock }),
            }
        }
    }

    /// Locks the file for writing while the result lives.
    #[doc(hidden)]
    pub fn locked(self) -> Result<StoreFile, PrivateFileError> {
        let lock = self.lock()?;
        Ok(StoreFile { folder: self, lock })
    }

    fn lock(&self) -> Result<File, PrivateFileError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = openat(&self.dir, beside(&self.name, ".lock"), flags, OWNERS)?;
        let lock: File = lock.into();
        check_owner(&lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(PrivateFileError::InUse),
            Err(TryLockError::Error(source)) => Err(PrivateFileError::Open(source)),
        }
    }
}

/// Why another user can rename or replace entries of a directory; `None` if no other user can.
fn unsafe_directory(stat: &Stat) -> Option<&'static str> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    if ![geteuid().as_raw(), ROOT].contains(&stat.st_uid) {
        Some("belongs to another user")
    } else if mode.intersects(Mode::WGRP | Mode::WOTH) && !mode.contains(Mode::SVTX) {
        Some("can be written by other users; `chmod g-w,o-w` takes that away")
    } else {
        None
    }
}

/// Rejects a file that another user can write.
pub(crate) fn check_owner(file: &File) -> Result<(), PrivateFileError> {
    let stat = fstat(file)?;
    let others = Mode::WGRP | Mode::WOTH;
    let reason = if !FileType::from_raw_mode(stat.st_mode).is_file() {
        "it is not a regular file"
    } else if stat.st_uid != geteuid().as_raw() {
        "it belongs to another user"
    } else if Mode::from_raw_mode(stat.st_mode).intersects(others) {
        "other users may write it"
    } else {
        return Ok(());
    };
    Err(PrivateFileError::Unsafe(reason.to_owned()))
}

/// A file that is locked while this lives.
#[derive(Debug)]
#[doc(hidden)]
pub struct StoreFile {
    folder: Folder,
    lock: File,
}

impl StoreFile {
    #[doc(hidden)]
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Also locks the folder, in case the lock file is deleted. The folder must have no other store.
    pub(crate) fn lock_folder(&self) -> Result<(), PrivateFileError> {
        match self.folder.dir.try_lock() {
            Err(TryLockError::WouldBlock) => Err(PrivateFileError::InUse),
            // Some network file systems cannot lock folders.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        }
    }

    /// Releases the lock. The file must not be written any more.
    pub(crate) fn release(&self) {
        // A forked process may hold the same handle, and the lock, until it executes another program.
        let _ = self.lock.unlock();
        let _ = self.folder.dir.unlock();
    }

    /// Replaces the content of the file; after a crash it has the old or the new content.
    #[doc(hidden)]
    pub fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.folder.name, ".new");
        let written = self.write(&new, bytes);
        if written.is_err() {
            // It may already be removed. If it remains, the next replacement removes it.
            let _ = unlinkat(&self.folder.dir, &new, AtFlags::empty());
        }
        written
    }

    fn write(&self, new: &OsStr, bytes: &[u8]) -> io::Result<()> {
        let dir = &self.folder.dir;
        // The lock is held, so this file was left behind by a writer that was killed.
        match unlinkat(dir, new, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file: File = openat(dir, new, flags, OWNERS)?.into();
        file.write_all(bytes)?;
        file.sync_all()?;
        renameat(dir, new, dir, &self.folder.name)?;
        Ok(fsync(dir)?)
    }

    /// Moves the file to a free name beside it, and returns that name.
    pub(crate) fn set_aside(&self) -> io::Result<PathBuf> {
        self.folder.set_aside(&self.folder.name)
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        self.release();
    }
}

fn beside(name: &OsStr, end: &str) -> OsString {
    let mut beside = name.to_owned();
    beside.push(end);
    beside
}
