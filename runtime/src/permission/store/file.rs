//! A path in; a folder, the file in it, its lock and its replacement out. Everything goes through one handle of the folder.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fstat, fsync, openat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::GrantStoreError;
use super::format::{GrantDamage, MOST_BYTES, Unread};

/// How many damaged files are kept beside one another.
const MOST_ASIDE: u32 = 100;
/// The user who may do everything anyway.
const ROOT: u32 = 0;
const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR);

/// The folder that a file of this path is in.
fn folder_of(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).canonicalize()
}

/// Every file of the store at `path`, whether it is there or not.
pub(super) fn places_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(places(&folder_of(path)?.join(name)))
}

fn places(file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().unwrap_or_default();
    let beside = ["", ".lock", ".new"].map(|end| beside(name, end));
    let all = beside
        .into_iter()
        .chain((1..=MOST_ASIDE).map(|n| aside(name, n)));
    all.map(|name| file.with_file_name(name)).collect()
}

/// What a damaged file is called, the first, the second and so on.
fn aside(name: &OsStr, number: u32) -> OsString {
    match number {
        1 => beside(name, ".corrupt"),
        _ => beside(name, &format!(".corrupt-{number}")),
    }
}

/// The folder of a store, and its name there.
#[derive(Debug)]
pub(super) struct Folder {
    dir: File,
    name: OsString,
    place: PathBuf,
}

impl Folder {
    pub(super) fn of(path: &Path) -> Result<Self, GrantStoreError> {
        let failed = |source| GrantStoreError::Open {
            file: path.to_owned(),
            source,
        };
        let name = path
            .file_name()
            .ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
        let folder = folder_of(path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, &folder, flags, Mode::empty());
        let this = Self {
            dir: dir.map_err(|errno| failed(errno.into()))?.into(),
            name: name.to_owned(),
            place: folder.join(name),
        };
        this.kept()?;
        Ok(this)
    }

    /// Refuses a folder in which somebody else may put another file in the place of ours. The folders above it are not looked
    /// at.
    fn kept(&self) -> Result<(), GrantStoreError> {
        let stat = fstat(&self.dir).map_err(|errno| self.unopened(errno.into()))?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let others = Mode::WGRP | Mode::WOTH;
        if ![geteuid().as_raw(), ROOT].contains(&stat.st_uid) {
            Err(self.not_ours("its folder belongs to another user"))
        } else if mode.intersects(others) && !mode.contains(Mode::SVTX) {
            Err(self.not_ours(
                "other users may write its folder; `chmod g-w,o-w` on it takes that away",
            ))
        } else {
            Ok(())
        }
    }

    /// Where the file stands.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Where the file stands, and what is made beside it.
    pub(super) fn places(&self) -> Vec<PathBuf> {
        places(&self.place)
    }

    /// The bytes of the file; none if there is no file.
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, GrantStoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = match openat(&self.dir, &self.name, flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.unopened(errno.into())),
        };
        self.ours(&file)?;
        let mut bytes = Vec::new();
        let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|source| self.unopened(source))?;
        Ok(Some(bytes))
    }

    /// Refuses a file that somebody else may have written.
    fn ours(&self, file: &File) -> Result<(), GrantStoreError> {
        let stat = fstat(file).map_err(|errno| self.unopened(errno.into()))?;
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
        Err(self.not_ours(reason))
    }

    fn not_ours(&self, reason: &'static str) -> GrantStoreError {
        GrantStoreError::Unsafe {
            file: self.place.clone(),
            reason,
        }
    }

    /// Keeps everyone else from writing the file, for as long as the answer lives.
    pub(super) fn locked(self) -> Result<StoreFile, GrantStoreError> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = openat(&self.dir, beside(&self.name, ".lock"), flags, OWNERS);
        let lock: File = lock.map_err(|errno| self.unopened(errno.into()))?.into();
        self.ours(&lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(StoreFile { folder: self, lock }),
            Err(TryLockError::WouldBlock) => Err(GrantStoreError::InUse { file: self.place }),
            Err(TryLockError::Error(source)) => Err(self.unopened(source)),
        }
    }

    pub(super) fn unopened(&self, source: io::Error) -> GrantStoreError {
        GrantStoreError::Open {
            file: self.place.clone(),
            source,
        }
    }

    pub(super) fn damaged(&self, source: GrantDamage, kept_in: Option<PathBuf>) -> GrantStoreError {
        GrantStoreError::Damaged {
            file: self.place.clone(),
            kept_in,
            source,
        }
    }

    pub(super) fn unread(&self, unread: Unread) -> GrantStoreError {
        let file = self.place.clone();
        match unread {
            Unread::Foreign => GrantStoreError::Foreign { file },
            Unread::Version(version) => GrantStoreError::Version { file, version },
            Unread::Damaged(damage) => self.damaged(damage, None),
        }
    }
}

/// The file of a store that nobody else writes.
#[derive(Debug)]
pub(super) struct StoreFile {
    folder: Folder,
    lock: File,
}

impl StoreFile {
    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Puts `bytes` in the place of the file; after a crash it holds the old bytes or the new ones.
    pub(super) fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let new = beside(&self.folder.name, ".new");
        let written = self.write(&new, bytes);
        if written.is_err() {
            // It may be gone already; if it stays, the next replacement removes it.
            let _ = unlinkat(&self.folder.dir, &new, AtFlags::empty());
        }
        written
    }

    fn write(&self, new: &OsStr, bytes: &[u8]) -> io::Result<()> {
        let dir = &self.folder.dir;
        // The lock is ours, so this is what a writer left that was killed.
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

    /// Moves the file to a name beside it that is free, and says which.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        let Folder { dir, name, place } = &self.folder;
        for number in 1..=MOST_ASIDE {
            let aside = aside(name, number);
            match renameat_with(dir, name, dir, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    fsync(dir)?;
                    return Ok(place.with_file_name(aside));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        // A process that was just forked may hold the same handle until it runs something else, and the lock with it.
        let _ = self.lock.unlock();
    }
}

fn beside(name: &OsStr, end: &str) -> OsString {
    let mut beside = name.to_owned();
    beside.push(end);
    beside
}
