//! A directory in, everything beneath it and a mark that changes with it out; or all of it gone, or a copy of it.
//!
//! Walks go by handle and never follow a link; they hold a few descriptors, however deep they go.

mod remove;

use std::fs::File;
use std::os::fd::BorrowedFd;

use bailiwick::{CallError, Code, ContentHash, PathError, VirtualPath};
use sha2::{Digest as _, Sha256};

use crate::replace::{ReplaceError, Staged, is_temporary};
use crate::resolve::{self, Descent, Kind, Meta, OpenDir};
use crate::sys::{self, AtFlags, Dir, Errno, Mode};

pub(crate) use remove::{remove, unlink};

/// Names in one tree that a single call may move, copy or remove.
pub(crate) const MAX_ENTRIES: u64 = 100_000;
/// Up to this many bytes the mark of a tree is made of its files' content; what is beyond it, of their identity and time.
const MAX_HASHED: u64 = 64 << 20;

/// Bytes read at once.
const PIECE: usize = 256 << 10;

/// Asked between pieces of work whether to go on.
pub(crate) type Pause<'p> = &'p dyn Fn() -> Result<(), CallError>;

/// What becomes of the names under which writers keep what they have not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temporaries {
    /// They go with the rest.
    Counted,
    /// They belong to their writers, and a copy would be theirs no more.
    LeftOut,
}

/// One name beneath a directory.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Where it stands in the namespace.
    pub(crate) path: VirtualPath,
    pub(crate) meta: Meta,
}

/// Everything beneath a directory: each directory before what it holds, names sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) items: Vec<Item>,
    /// Of all names, kinds and contents.
    pub(crate) mark: Option<ContentHash>,
    /// The bytes of all files.
    pub(crate) bytes: u64,
    /// Whether the mark is of content alone, so that a copy has the same.
    pub(crate) exact: bool,
    /// How many unfinished files and directories of writers were left out.
    pub(crate) left_out: u64,
}

/// One directory of a walk.
struct Level {
    path: VirtualPath,
    names: std::vec::IntoIter<String>,
}

impl Level {
    fn open(dir: &OpenDir, path: VirtualPath, budget: u64) -> Result<Self, CallError> {
        let names = names(dir.as_fd(), &path, budget)?.into_iter();
        Ok(Self { path, names })
    }
}

/// Looks at everything beneath `dir`, which stands at `path`.
///
/// # Errors
/// `TOO_LARGE` for a tree with too many or too deep names; `PERMISSION_DENIED` for a name that no path can express.
pub(crate) fn look(
    dir: OpenDir,
    path: &VirtualPath,
    temporaries: Temporaries,
    pause: Pause<'_>,
) -> Result<Tree, CallError> {
    let mut tree = Tree {
        exact: true,
        ..Tree::default()
    };
    let mut mark = Sha256::new();
    let skip = path.as_str().len();
    let mut levels = vec![Level::open(&dir, path.clone(), MAX_ENTRIES)?];
    let mut way = Descent::new(dir);
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            way.leave();
            continue;
        };
        pause()?;
        if temporaries == Temporaries::LeftOut && is_temporary(&name) {
            tree.left_out += 1;
            continue;
        }
        let path = level.path.join(&name).map_err(|_| too_large(&level.path))?;
        let here = here(&mut way, &level.path)?;
        let meta = stat(here.as_fd(), &name).map_err(|errno| resolve::say(errno, &path))?;
        let relative = path.as_str().get(skip..).unwrap_or_default();
        mark.update(relative.as_bytes());
        mark.update([0]);
        mark.update(identity(here, &name, &path, &meta, &mut tree, pause)?);
        tree.items.push(Item {
            path: path.clone(),
            meta,
        });
        if meta.kind == Kind::Directory {
            let budget = MAX_ENTRIES.saturating_sub(tree.items.len() as u64);
            levels.push(descend(&mut way, &name, path, budget)?);
        }
    }
    tree.mark = Some(ContentHash::from_bytes(mark.finalize().into()));
    Ok(tree)
}

/// The deepest directory of `way`, which is `path`.
fn here<'w>(way: &'w mut Descent, path: &VirtualPath) -> Result<&'w OpenDir, CallError> {
    way.here().map_err(|errno| match errno {
        Errno::STALE | Errno::NOENT | Errno::LOOP | Errno::NOTDIR => super::stale(path),
        errno => resolve::say(errno, path),
    })
}

fn descend(
    way: &mut Descent,
    name: &str,
    path: VirtualPath,
    budget: u64,
) -> Result<Level, CallError> {
    way.enter(name)
        .map_err(|errno| resolve::say(errno, &path))?;
    Level::open(here(way, &path)?, path, budget)
}

/// What of one entry goes into the mark.
fn identity(
    dir: &OpenDir,
    name: &str,
    path: &VirtualPath,
    meta: &Meta,
    tree: &mut Tree,
    pause: Pause<'_>,
) -> Result<[u8; 33], CallError> {
    let (kind, hash) = match meta.kind {
        Kind::Directory => (b'd', ContentHash::of(b"")),
        Kind::File => {
            tree.bytes = tree.bytes.saturating_add(meta.len);
            if tree.bytes > MAX_HASHED {
                tree.exact = false;
                (b's', stamp(meta))
            } else {
                let file = dir.read(name).map_err(|errno| resolve::say(errno, path))?;
                (b'f', hash_of(&file.file, MAX_HASHED, path, pause)?.0)
            }
        }
        Kind::Link | Kind::Special => {
            tree.exact = false;
            (b'o', stamp(meta))
        }
    };
    let mut identity = [kind; 33];
    for (to, from) in identity.iter_mut().skip(1).zip(hash.as_bytes()) {
        *to = *from;
    }
    Ok(identity)
}

/// Stands for an object that is not read: which one it is, and when it last changed.
pub(crate) fn stamp(meta: &Meta) -> ContentHash {
    let Meta {
        dev,
        ino,
        len,
        modified,
        modified_nanos,
        ..
    } = meta;
    ContentHash::of(format!("{dev} {ino} {len} {modified} {modified_nanos}").as_bytes())
}

/// The hash and length of what `file` holds, up to `limit` bytes.
pub(crate) fn hash_of(
    file: &File,
    limit: u64,
    path: &VirtualPath,
    pause: Pause<'_>,
) -> Result<(ContentHash, u64), CallError> {
    let mut hash = Sha256::new();
    let bytes = read(file, limit, path, pause, |piece| hash.update(piece))?;
    Ok((ContentHash::from_bytes(hash.finalize().into()), bytes))
}

/// What `file` holds, up to `limit` bytes.
pub(crate) fn bytes_of(
    file: &File,
    limit: u64,
    path: &VirtualPath,
    pause: Pause<'_>,
) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    read(file, limit, path, pause, |piece| {
        bytes.extend_from_slice(piece)
    })?;
    Ok(bytes)
}

/// Gives what `file` holds to `take`, piece by piece. Returns how much it was.
fn read(
    file: &File,
    limit: u64,
    path: &VirtualPath,
    pause: Pause<'_>,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, CallError> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    loop {
        pause()?;
        match sys::pread(file, &mut buffer, at) {
            Ok(0) => return Ok(at),
            Ok(read) => {
                take(buffer.get(..read).unwrap_or_default());
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(resolve::say(errno, path)),
        }
        if at > limit {
            return Err(too_large(path));
        }
    }
}

/// Copies `items`, which stand beneath `path` at `from`, into the empty directory `to`: directories and regular files alone.
pub(crate) fn copy(
    from: OpenDir,
    to: OpenDir,
    path: &VirtualPath,
    items: &[Item],
    pause: Pause<'_>,
) -> Result<(), CallError> {
    let (mut source, mut copy) = (Descent::new(from), Descent::new(to));
    // The items come depth first, so the parent of each is on the way down to the one before.
    let mut open = vec![path];
    for item in items {
        pause()?;
        let parent = item.path.parent();
        while open.len() > 1 && open.last().copied() != parent.as_ref() {
            open.pop();
            source.leave();
            copy.leave();
        }
        let (from, to) = (here(&mut source, &item.path)?, here(&mut copy, &item.path)?);
        let name = item.path.name().unwrap_or_default();
        let failed = |errno| resolve::say(errno, &item.path);
        match item.meta.kind {
            Kind::Directory => {
                // Never more open than the original, and open enough to be filled.
                let mode = Mode::from_raw_mode(item.meta.mode & 0o777 | 0o700);
                sys::mkdirat(to.as_fd(), name, mode).map_err(failed)?;
                source.enter(name).map_err(failed)?;
                copy.enter(name).map_err(failed)?;
                open.push(&item.path);
            }
            Kind::File => copy_file(from, to.as_fd(), name, &item.path, pause)?,
            Kind::Link | Kind::Special => return Err(not_copied(&item.path)),
        }
    }
    Ok(())
}

fn copy_file(
    from: &OpenDir,
    to: BorrowedFd<'_>,
    name: &str,
    path: &VirtualPath,
    pause: Pause<'_>,
) -> Result<(), CallError> {
    let source = from.read(name).map_err(|errno| resolve::say(errno, path))?;
    let paused = || pause().map_err(Stopped::Paused);
    let copied = Staged::copy_of(to, &source.file, source.meta.mode, source.meta.len, paused);
    let (staged, _) = copied.map_err(|stopped| stopped.say(path))?;
    staged
        .create(name, crate::replace::Durability::Visible)
        .map_err(|error| error.say(path))?;
    Ok(())
}

/// Why a copy ended early.
#[derive(Debug)]
pub(crate) enum Stopped {
    Paused(CallError),
    Failed(ReplaceError),
}

impl From<ReplaceError> for Stopped {
    fn from(error: ReplaceError) -> Self {
        Self::Failed(error)
    }
}

impl Stopped {
    pub(crate) fn say(self, path: &VirtualPath) -> CallError {
        match self {
            Self::Paused(error) => error,
            Self::Failed(error) => error.say(path),
        }
    }
}

pub(crate) fn not_copied(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::NotRegular,
        format!("`{path}` is a link or a special file, which are not copied"),
    )
}

pub(crate) fn too_large(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::TooLarge,
        format!(
            "`{path}` holds more, larger or deeper entries than one call may touch ({MAX_ENTRIES} names); take a smaller part"
        ),
    )
}

/// What stands under `name`, no link followed.
pub(crate) fn stat(dir: BorrowedFd<'_>, name: &str) -> Result<Meta, Errno> {
    sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Meta::from_stat(&stat))
}

/// The names in `dir`, sorted; at most `budget`.
fn names(dir: BorrowedFd<'_>, path: &VirtualPath, budget: u64) -> Result<Vec<String>, CallError> {
    let failed = |errno| resolve::say(errno, path);
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let name = name.to_str().map_err(|_| unspeakable(path))?;
        path.join(name).map_err(|error| match error {
            PathError::TooLong => too_large(path),
            _ => unspeakable(path),
        })?;
        if names.len() as u64 >= budget {
            return Err(too_large(path));
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// What no path can name no rule can speak of, so nothing is done to it.
fn unspeakable(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::PermissionDenied,
        format!("`{path}` holds a name that no path can express, so the call cannot be judged"),
    )
}
