//! Reduces the copy of a directory to what the command changed, in the form of the upper directory of overlayfs.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use bailiwick::tool::ReadPermit;
use bailiwick::{CallError, VirtualPath};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, mknodat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::collect::{attributes, is_equal, unreadable};
use super::{DIRECTORY, FILE, MAX_DEPTH};
use crate::clock::changed_at;
use crate::copied::{Copied, Entry, Kind, LIST, join};

/// Attribute of an entry that overlayfs has copied from the root before it was changed.
const ORIGIN: &str = "user.overlay.origin";
/// The directory that contains the copy.
const UPPER: &str = "upper";
/// The permissions that the owner of a directory needs to change it.
const OWNER: u32 = 0o700;

/// Which entries were copied from the roots, and not created by the command. A copied file may have been moved or linked
/// since.
#[derive(Debug, Default)]
pub(super) struct Origins(HashMap<u64, Vec<u8>>);

impl Origins {
    /// Whether a file was copied from a root.
    pub(super) fn is_copy(&self, file: &OwnedFd) -> bool {
        let mut none: [u8; 0] = [];
        self.path(file).is_some() || rustix::fs::fgetxattr(file, ORIGIN, &mut none).is_ok()
    }

    /// Whether a directory was copied from this path. Overlayfs copies directories that are moved as new ones.
    pub(super) fn is_copy_of(&self, directory: &OwnedFd, path: &VirtualPath) -> bool {
        match self.path(directory) {
            Some(from) => from == path.as_str().as_bytes(),
            None => self.is_copy(directory),
        }
    }

    fn path(&self, file: &OwnedFd) -> Option<&[u8]> {
        let path = self.0.get(&fstat(file).ok()?.st_ino)?;
        Some(path)
    }

    /// Reduces the copy of the directory `path` in `changes`, if there is one. `origin` is that directory.
    ///
    /// # Errors
    /// `IO` if the copy cannot be read.
    pub(super) fn reduce(
        &mut self,
        path: &VirtualPath,
        changes: &OwnedFd,
        origin: Option<&OwnedFd>,
        (began, permit): (Duration, &ReadPermit),
    ) -> Result<(), CallError> {
        let list = match openat(changes, LIST, OFlags::RDONLY | FILE, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            list => list.map_err(|error| unreadable(path, error))?,
        };
        let mut text = Vec::new();
        let read = File::from(list).read_to_end(&mut text);
        let copied = read.and_then(|_| Copied::decode(&text));
        let copied = copied.map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            unreadable(path, errno)
        })?;
        let mut reducer = Reducer {
            top: path,
            copied: &copied,
            began,
            permit,
            origins: self,
        };
        // The command may have taken permissions from its owner, the user of this process.
        let read = |error| unreadable(path, error);
        let stat = statat(changes, UPPER, AtFlags::SYMLINK_NOFOLLOW).map_err(read)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let set = |mode| chmodat(changes, UPPER, mode, AtFlags::empty()).map_err(read);
        set(mode | Mode::RWXU)?;
        let upper = openat(changes, UPPER, DIRECTORY, Mode::empty()).map_err(read)?;
        reducer.reduce(&upper, origin, b"", 0)?;
        set(mode)
    }
}

struct Reducer<'r> {
    top: &'r VirtualPath,
    copied: &'r Copied,
    /// When the command started, since 1970: before the files were copied.
    began: Duration,
    permit: &'r ReadPermit,
    origins: &'r mut Origins,
}

impl Reducer<'_> {
    /// Removes what the command did not change from the directory `copy` at `path`, and marks what it deleted. `origin` is the
    /// directory of the root at the same path.
    fn reduce(
        &mut self,
        copy: &OwnedFd,
        origin: Option<&OwnedFd>,
        path: &[u8],
        depth: usize,
    ) -> Result<(), CallError> {
        self.permit.checkpoint()?;
        let mut names = BTreeSet::new();
        for entry in Dir::read_from(copy).map_err(|error| self.unreadable(error))? {
            let entry = entry.map_err(|error| self.unreadable(error))?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                names.insert(entry.file_name().to_owned());
            }
        }
        for name in &names {
            let path = join(path, name.to_bytes());
            self.reduce_entry((copy, origin), name, &path, depth)?;
        }
        for name in self.copied.names(path) {
            let entry = self.copied.at(&join(path, name));
            let has_copy =
                entry.is_some_and(|entry| !matches!(entry.kind, Kind::Hidden | Kind::Special));
            let name = CString::new(name.as_slice()).unwrap_or_default();
            if has_copy && !names.contains(&name) {
                mknodat(copy, &name, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(|error| self.unreadable(error))?;
            }
        }
        Ok(())
    }

    fn reduce_entry(
        &mut self,
        (copy, origin): (&OwnedFd, Option<&OwnedFd>),
        name: &CString,
        path: &[u8],
        depth: usize,
    ) -> Result<(), CallError> {
        let stat = statat(copy, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.unreadable(error))?;
        let known = self.copied.of(stat.st_ino);
        let here = known.filter(|known| known.path == path);
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let is_unchanged = match known {
            Some(Entry {
                kind: Kind::Hidden, ..
            }) => is_directory || self.is_untouched(&stat),
            _ if is_directory => {
                let has_attributes = depth < MAX_DEPTH
                    && self.reduce_directory((copy, origin), name, (&stat, path), depth)?;
                has_attributes && here.is_some_and(|here| here.mode == stat.st_mode & 0o7777)
            }
            _ => match here {
                Some(here) => self.is_unchanged((copy, origin), name, &stat, here)?,
                None => false,
            },
        };
        if is_unchanged {
            let flags = if is_directory {
                AtFlags::REMOVEDIR
            } else {
                AtFlags::empty()
            };
            return match unlinkat(copy, name, flags) {
                // It contains changes.
                Ok(()) | Err(Errno::NOTEMPTY) => Ok(()),
                Err(error) => Err(self.unreadable(error)),
            };
        }
        if let Some(known) = known {
            let from = join(self.top.as_str().as_bytes(), &known.path);
            self.origins.0.insert(stat.st_ino, from);
        }
        Ok(())
    }

    /// Reduces a directory in `copy`. Returns whether its attributes are those of the directory in `origin`.
    fn reduce_directory(
        &mut self,
        (copy, origin): (&OwnedFd, Option<&OwnedFd>),
        name: &CString,
        (stat, path): (&Stat, &[u8]),
        depth: usize,
    ) -> Result<bool, CallError> {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let is_closed = stat.st_mode & OWNER != OWNER;
        if is_closed {
            let open = mode | Mode::RWXU;
            chmodat(copy, name, open, AtFlags::empty()).map_err(|error| self.unreadable(error))?;
        }
        let inner =
            openat(copy, name, DIRECTORY, Mode::empty()).map_err(|error| self.unreadable(error))?;
        let inner_origin =
            origin.and_then(|origin| openat(origin, name, DIRECTORY, Mode::empty()).ok());
        self.reduce(&inner, inner_origin.as_ref(), path, depth + 1)?;
        if is_closed {
            fchmod(&inner, mode).map_err(|error| self.unreadable(error))?;
        }
        Ok(inner_origin.is_none_or(|origin| attributes(&origin) == attributes(&inner)))
    }

    /// Whether nobody has changed an entry since it was copied. A file that was mapped into memory may have been changed.
    fn is_untouched(&self, stat: &Stat) -> bool {
        changed_at(stat) <= self.copied.until
    }

    /// Whether the command has not changed a file or link that was copied to `name`.
    fn is_unchanged(
        &self,
        (copy, origin): (&OwnedFd, Option<&OwnedFd>),
        name: &CString,
        stat: &Stat,
        here: &Entry,
    ) -> Result<bool, CallError> {
        let is_untouched = self.is_untouched(stat);
        if here.kind == Kind::Link {
            return Ok(true);
        }
        if here.kind == Kind::Unreadable {
            return Ok(is_untouched);
        }
        let open = |directory| openat(directory, name, OFlags::RDONLY | FILE, Mode::empty());
        let (Ok(new), Some(Ok(old))) = (open(copy), origin.map(open)) else {
            return Ok(is_untouched);
        };
        let before = fstat(&old).map_err(|error| self.unreadable(error))?;
        if is_untouched && changed_at(&before) > self.began {
            return Ok(true);
        }
        let is_same_kind = FileType::from_raw_mode(before.st_mode).is_file();
        let of = |stat: &Stat| (stat.st_size, stat.st_mode & 0o7777);
        Ok(is_same_kind
            && of(&before) == of(stat)
            && (is_untouched || attributes(&old) == attributes(&new))
            && is_equal(self.permit, self.top, &old, &new)?)
    }

    fn unreadable(&self, error: Errno) -> CallError {
        unreadable(self.top, error)
    }
}
