//! Atomic replacement of files.
//!
//! The bytes are written to an unnamed file or one with an unguessable name, which then replaces the old file in one
//! step. Existing files are never written to, so a crash, a full disk or a limit leaves the old one complete, and other
//! hard links keep their content.
//!
//! The file size limit is checked before each write, so `SIGXFSZ` is not sent.

mod lock;
mod metadata;
mod sweep;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use bailiwick::{CallError, Code, VirtualPath};

use crate::read_view::ReadView;
use crate::resolve::{self, AtPath, Meta, OpenFile};
use crate::sys::{self, AtFlags, Errno, Mode, OFlags, RenameFlags, Resource, getrlimit};

pub(crate) use lock::{DirLock, hold_live_lock};
#[cfg(test)]
pub(crate) use sweep::empty;
pub(crate) use sweep::{Sweeper, discard, is_temporary, temporary_name};

/// Bytes per write.
const CHUNK: usize = 1 << 20;

/// What a change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// A crash of the program. Fastest; a crash of the machine may lose the new content.
    Visible,
    /// Also a crash of the machine: then the file has the old or the new content, on file systems that order renames.
    #[default]
    Ordered,
    /// The new content is on the disk when the call returns.
    Durable,
}

/// The durability of a call's changes: the requested level, or a lower or higher one if the file system does not
/// support it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReachedDurability {
    requested_level: Option<Durability>,
    reached: Arc<OnceLock<Durability>>,
}

impl ReachedDurability {
    /// `requested_level` is `None` if nothing changes.
    pub(crate) fn requested(requested_level: Option<Durability>) -> Self {
        Self {
            requested_level,
            reached: Arc::default(),
        }
    }

    /// The reached durability, or the requested one before the changes are made; `None` if nothing changes.
    #[must_use]
    pub fn get(&self) -> Option<Durability> {
        self.reached.get().copied().or(self.requested_level)
    }

    pub(crate) fn set(&self, reached: Durability) {
        // Steps are executed once, so it is not set yet.
        let _ = self.reached.set(reached);
    }
}

/// Why a file was not replaced. It is unchanged, except after [`ReplaceError::Displaced`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    /// Another writer was faster.
    #[error("the file changed in the meantime")]
    Changed,
    /// The name exists.
    #[error("the name already exists")]
    Exists,
    /// The call must stop.
    #[error(transparent)]
    Stopped(#[from] CallError),
    /// The file was exchanged with the new one, and then a system call failed. The displaced file, which may be that of
    /// another writer, has this name now.
    #[error("the displaced file was kept as `{kept}`")]
    Displaced {
        /// The name.
        kept: String,
        /// The error.
        source: Errno,
    },
    /// The process may not write files of this size.
    #[error("the file size limit of this process is {0} bytes")]
    Limit(u64),
    /// System error.
    #[error("the operating system denied the operation")]
    System(#[from] Errno),
}

impl ReplaceError {
    /// The call error for `path`.
    fn to_call_error(&self, path: &VirtualPath) -> CallError {
        let (code, message) = match self {
            Self::Changed => (
                Code::Conflict,
                format!("`{path}` changed while it was being written; read it again"),
            ),
            Self::Exists => (Code::AlreadyExists, format!("`{path}` already exists")),
            // The step may have been carried out.
            Self::Displaced { kept, source } => {
                let message = format!(
                    "`{path}` may have its new content, and another program may have changed it meanwhile: `{kept}` in the \
                     same directory has the other version ({source})"
                );
                return CallError::new(Code::Io, message).with("done", 1);
            }
            Self::Limit(limit) => (
                Code::Io,
                format!(
                    "`{path}` was not written: the file size limit of this process is {limit} bytes"
                ),
            ),
            Self::System(Errno::NOSPC | Errno::DQUOT) => (
                Code::Io,
                format!("`{path}` was not written: the disk is full; the old content is kept"),
            ),
            Self::System(Errno::FBIG) => (
                Code::Io,
                format!("`{path}` was not written: it would exceed the maximum file size"),
            ),
            Self::System(errno) => return resolve::to_call_error(*errno, path),
            Self::Stopped(error) => return error.clone(),
        };
        CallError::new(code, message)
    }
}

impl<T> AtPath<T> for Result<T, ReplaceError> {
    fn at(self, path: &VirtualPath) -> Result<T, CallError> {
        self.map_err(|error| error.to_call_error(path))
    }
}

/// A written file that has not replaced its target yet. Removed on drop.
#[derive(Debug)]
pub(crate) struct StagedFile<'d> {
    dir: BorrowedFd<'d>,
    file: OwnedFd,
    /// Its temporary name; `None` while it is unnamed.
    name: Option<TemporaryName<'d>>,
}

/// A temporary name in a directory, removed on drop.
#[derive(Debug)]
struct TemporaryName<'d> {
    dir: BorrowedFd<'d>,
    /// Empty if the file was renamed.
    name: String,
}

impl TemporaryName<'_> {
    /// The file has another name now, so there is nothing to remove.
    fn renamed(mut self) {
        self.name.clear();
    }

    /// Keeps the file under a name that the sweeper leaves alone, if it can be renamed. Returns its name.
    fn keep(mut self) -> String {
        let own = std::mem::take(&mut self.name);
        let kept = format!("{own}.kept");
        match sys::renameat(self.dir, own.as_str(), self.dir, kept.as_str()) {
            Ok(()) => kept,
            Err(_) => own,
        }
    }
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // It may be gone already; the sweeper removes what remains.
            let _ = sys::unlinkat(self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}

impl<'d> StagedFile<'d> {
    /// Creates an empty file in `dir`.
    fn begin(dir: BorrowedFd<'d>, mode: Mode) -> Result<Self, ReplaceError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match sys::openat(dir, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => {
                lock::hold_live_lock(file.as_fd());
                Ok(Self {
                    dir,
                    file,
                    name: None,
                })
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                Self::begin_named(dir, mode)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates an empty file with a temporary name in `dir`.
    fn begin_named(dir: BorrowedFd<'d>, mode: Mode) -> Result<Self, ReplaceError> {
        let name = sweep::temporary_name()?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = sys::openat(dir, name.as_str(), flags | OFlags::NOFOLLOW, mode)?;
        lock::hold_live_lock(file.as_fd());
        Ok(Self {
            dir,
            file,
            name: Some(TemporaryName { dir, name }),
        })
    }

    /// Stages `bytes` for a new file, with the system's default mode unless one is given.
    pub(crate) fn new_file(
        dir: BorrowedFd<'d>,
        bytes: &[u8],
        mode: Option<u32>,
    ) -> Result<Self, ReplaceError> {
        let staged = Self::begin(dir, Mode::from_raw_mode(0o666))?;
        staged.write(bytes, 0)?;
        if let Some(mode) = mode {
            sys::fchmod(&staged.file, Mode::from_raw_mode(mode & 0o777))?;
        }
        Ok(staged)
    }

    /// Stages `bytes` to replace `old`, with its mode, unless another is given, and with its owner, attributes and access
    /// list as far as the system permits.
    pub(crate) fn in_place_of(
        dir: BorrowedFd<'d>,
        bytes: &[u8],
        old: &File,
        mode: Option<u32>,
    ) -> Result<Self, ReplaceError> {
        // A replacement is renamed over the old file, so it needs a name; naming an unnamed file would cost a `linkat`.
        let staged = Self::begin_named(dir, Mode::RUSR | Mode::WUSR)?;
        staged.write(bytes, 0)?;
        metadata::ownership_and_attributes(old, &staged.file, mode)?;
        Ok(staged)
    }

    /// Stages a copy of `from` with its mode but not its owner.
    pub(crate) fn copy_of(
        dir: BorrowedFd<'d>,
        from: &OpenFile,
        view: &dyn ReadView,
    ) -> Result<Self, ReplaceError> {
        let staged = Self::begin(dir, Mode::RUSR | Mode::WUSR)?;
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        loop {
            view.checkpoint()?;
            let read = match sys::pread(&from.file, &mut buffer, at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let piece = buffer.get(..read).unwrap_or_default();
            staged.write(piece, at)?;
            at += piece.len() as u64;
            // The file may grow while it is copied.
            if at > from.meta.len {
                return Err(ReplaceError::Changed);
            }
        }
        sys::fchmod(&staged.file, Mode::from_raw_mode(from.meta.mode & 0o777))?;
        Ok(staged)
    }

    fn write(&self, bytes: &[u8], mut at: u64) -> Result<(), ReplaceError> {
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if at.saturating_add(bytes.len() as u64) > limit {
            return Err(ReplaceError::Limit(limit));
        }
        for mut piece in bytes.chunks(CHUNK) {
            while !piece.is_empty() {
                match sys::pwrite(&self.file, piece, at) {
                    Ok(0) => return Err(Errno::IO.into()),
                    Ok(written) => {
                        piece = piece.get(written..).unwrap_or_default();
                        at += written as u64;
                    }
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }

    /// Writes the file to the disk if `requested` is `Durable`. Call this before [`StagedFile::create`] or
    /// [`StagedFile::replace`] and without holding a lock, since it may take long.
    pub(crate) fn flush(&self, requested: Durability) -> Result<(), ReplaceError> {
        match requested {
            Durability::Durable => Ok(sys::fsync(&self.file)?),
            Durability::Visible | Durability::Ordered => Ok(()),
        }
    }

    /// Gives the flushed file the name `name`, which must not exist. Returns the durability reached.
    pub(crate) fn create(
        self,
        name: &str,
        requested: Durability,
    ) -> Result<Durability, ReplaceError> {
        let Some(temporary) = &self.name else {
            link(&self.file, self.dir, name)?;
            return Ok(sync_dir(self.dir, requested));
        };
        let own = temporary.name.as_str();
        match sys::renameat_with(self.dir, own, self.dir, name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                sys::linkat(self.dir, own, self.dir, name, AtFlags::empty())
                    .map_err(exists_error)?;
            }
            done => done.map_err(exists_error)?,
        }
        Ok(sync_dir(self.dir, requested))
    }

    /// Replaces the file `old` at `name` with the flushed file. Returns the durability reached.
    ///
    /// The caller holds the [`DirLock`], so no other writer of this crate interferes.
    pub(crate) fn replace(
        mut self,
        name: &str,
        old: &File,
        was: &Meta,
        requested: Durability,
    ) -> Result<Durability, ReplaceError> {
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None => self.link_temporary()?,
        };
        check_unchanged(self.dir, name, old, was)?;
        let reached = match requested {
            Durability::Visible => self.exchange(temporary, name, was)?,
            Durability::Ordered | Durability::Durable => {
                sys::renameat(self.dir, temporary.name.as_str(), self.dir, name)?;
                temporary.renamed();
                requested
            }
        };
        Ok(sync_dir(self.dir, reached))
    }

    /// Exchanges the two names, so that the replaced file can be checked again before it is removed.
    fn exchange(
        &self,
        temporary: TemporaryName<'_>,
        name: &str,
        was: &Meta,
    ) -> Result<Durability, ReplaceError> {
        let own = temporary.name.as_str();
        let swap = || sys::renameat_with(self.dir, own, self.dir, name, RenameFlags::EXCHANGE);
        match swap() {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOSYS) => {
                sys::renameat(self.dir, own, self.dir, name)?;
                return Ok(Durability::Ordered);
            }
            Err(errno) => return Err(errno.into()),
        }
        let inspect = || {
            let out = Meta::from_stat(&sys::statat(self.dir, own, AtFlags::SYMLINK_NOFOLLOW)?);
            Ok((out.dev, out.ino))
        };
        let finish = || {
            let out = inspect()?;
            if out == (was.dev, was.ino) {
                return Ok(true);
            }
            let ours = Meta::of(&self.file)?;
            swap_back((ours.dev, ours.ino), out, swap, inspect)?;
            Ok(false)
        };
        match finish() {
            Ok(true) => Ok(Durability::Visible),
            Ok(false) => Err(ReplaceError::Changed),
            Err(source) => {
                let kept = temporary.keep();
                Err(ReplaceError::Displaced { kept, source })
            }
        }
    }

    fn link_temporary(&self) -> Result<TemporaryName<'d>, ReplaceError> {
        let name = sweep::temporary_name()?;
        link(&self.file, self.dir, &name)?;
        Ok(TemporaryName {
            dir: self.dir,
            name,
        })
    }
}

/// Undoes an exchange that displaced another writer's file: our file, `visible`, has the visible name, and `displaced` the
/// temporary one.
///
/// If a writer without a lock replaced our file meanwhile, the exchange displaces that newer file, so the names are
/// exchanged until an exchange displaces the file that the previous exchange made visible. The newest file keeps the visible name.
fn swap_back<I: PartialEq>(
    mut visible: I,
    mut displaced: I,
    swap: impl Fn() -> Result<(), Errno>,
    inspect: impl Fn() -> Result<I, Errno>,
) -> Result<(), Errno> {
    loop {
        swap()?;
        let out = inspect()?;
        if out == visible {
            return Ok(());
        }
        visible = std::mem::replace(&mut displaced, out);
    }
}

/// Gives an unnamed file the name `name`, which must not exist.
fn link(file: &OwnedFd, dir: BorrowedFd<'_>, name: &str) -> Result<(), ReplaceError> {
    match sys::linkat(file, "", dir, name, AtFlags::EMPTY_PATH) {
        // Older kernels require a privilege for this, but not via procfs.
        Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
            sys::linkat(sys::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW).map_err(exists_error)
        }
        done => done.map_err(exists_error),
    }
}

fn exists_error(errno: Errno) -> ReplaceError {
    match errno {
        Errno::EXIST => ReplaceError::Exists,
        errno => ReplaceError::System(errno),
    }
}

/// Syncs the directory if durability was requested and the file system supports it.
pub(crate) fn sync_dir(dir: BorrowedFd<'_>, reached: Durability) -> Durability {
    match reached {
        Durability::Durable if sys::fsync(dir).is_err() => Durability::Ordered,
        reached => reached,
    }
}

/// Checks that `name` is still `old`, unchanged since `was`.
pub(crate) fn check_unchanged(
    dir: BorrowedFd<'_>,
    name: &str,
    old: &File,
    was: &Meta,
) -> Result<(), ReplaceError> {
    let there = match sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Meta::from_stat(&stat),
        Err(Errno::NOENT) => return Err(ReplaceError::Changed),
        Err(errno) => return Err(errno.into()),
    };
    let content = |meta: &Meta| (meta.len, meta.modified, meta.modified_nanos);
    // The inode number is not reused while `old` is open.
    let same = (there.dev, there.ino) == (was.dev, was.ino);
    if same && content(&Meta::of(old)?) == content(was) {
        Ok(())
    } else {
        Err(ReplaceError::Changed)
    }
}
