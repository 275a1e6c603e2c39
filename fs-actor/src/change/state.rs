//! A path in, what stands there out, precise enough to notice any change.

use bailiwick::{CallError, ContentHash, Entry, Interrupt, VirtualPath};

use super::tree::{self, Item, Pause, Temporaries};
use crate::lens::Lens;
use crate::resolve::{self, Kind, Meta, OpenDir};
use crate::sys::Errno;

/// Files larger than this are told apart by identity and time, not by content.
const MAX_HASHED: u64 = 64 << 20;

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing.
    Absent,
    /// A file with this content.
    File { hash: ContentHash, bytes: u64 },
    /// A link, a special file, or one too large to read: this very object, unchanged since.
    Object { stamp: ContentHash, bytes: u64 },
    /// A directory, and everything beneath it.
    Directory {
        mark: ContentHash,
        entries: u64,
        /// Whether a copy has the same mark.
        exact: bool,
    },
}

impl State {
    /// The state of a file that holds `bytes`.
    pub(crate) fn of_file(bytes: &[u8]) -> Self {
        Self::File {
            hash: ContentHash::of(bytes),
            bytes: bytes.len() as u64,
        }
    }

    /// The state of a directory that holds nothing.
    pub(crate) fn empty_directory() -> Self {
        Self::Directory {
            mark: ContentHash::of(b""),
            entries: 0,
            exact: true,
        }
    }

    /// The state as a change shows it.
    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Absent => Entry::Absent,
            Self::File { hash, bytes } | Self::Object { stamp: hash, bytes } => Entry::File {
                hash: *hash,
                bytes: *bytes,
            },
            Self::Directory { entries, .. } => Entry::Directory { entries: *entries },
        }
    }
}

/// What stands at a path, and what lies beneath it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) state: State,
    /// None if nothing stands there.
    pub(crate) meta: Option<Meta>,
    /// Everything beneath a directory.
    pub(crate) items: Vec<Item>,
    /// The bytes of all files.
    pub(crate) bytes: u64,
    /// How many unfinished files of writers are not among the items.
    pub(crate) left_out: u64,
}

impl Seen {
    const NOTHING: Self = Self {
        state: State::Absent,
        meta: None,
        items: Vec::new(),
        bytes: 0,
        left_out: 0,
    };
}

/// Looks at `path` itself: a link that bears the last name is an object like others.
///
/// # Errors
/// As [`resolve::parent`]; `TOO_LARGE` for a tree beyond the limits.
pub(crate) fn see(
    lens: &dyn Lens,
    path: &VirtualPath,
    temporaries: Temporaries,
) -> Result<Seen, Interrupt> {
    let (dir, name) = match resolve::parent(lens, path) {
        Ok(found) => found,
        Err(Interrupt::Failed(error)) if error.code() == bailiwick::Code::NotFound => {
            return Ok(Seen::NOTHING);
        }
        Err(halt) => return Err(halt),
    };
    let pause = || lens.checkpoint();
    Ok(see_in(&dir, &name, path, temporaries, &pause)?)
}

/// Looks at `name` in `dir`, which is `path` in the namespace.
pub(crate) fn see_in(
    dir: &OpenDir,
    name: &str,
    path: &VirtualPath,
    temporaries: Temporaries,
    pause: Pause<'_>,
) -> Result<Seen, CallError> {
    let failed = |errno| resolve::say(errno, path);
    let meta = match tree::stat(dir.as_fd(), name) {
        Ok(meta) => meta,
        Err(Errno::NOENT) => return Ok(Seen::NOTHING),
        Err(errno) => return Err(failed(errno)),
    };
    let mut seen = Seen {
        state: State::Object {
            stamp: tree::stamp(&meta),
            bytes: meta.len,
        },
        meta: Some(meta),
        items: Vec::new(),
        bytes: meta.len,
        left_out: 0,
    };
    match meta.kind {
        Kind::File if meta.len <= MAX_HASHED => {
            let file = dir.read(name).map_err(failed)?;
            let (hash, bytes) = tree::hash_of(&file.file, MAX_HASHED, path, pause)?;
            seen.state = State::File { hash, bytes };
        }
        Kind::Directory => {
            let inner = dir.enter(name).map_err(failed)?;
            let tree = tree::look(inner, path, temporaries, pause)?;
            seen.state = State::Directory {
                mark: tree.mark.unwrap_or_else(|| ContentHash::of(b"")),
                entries: tree.items.len() as u64,
                exact: tree.exact,
            };
            seen.bytes = tree.bytes;
            seen.left_out = tree.left_out;
            seen.items = tree.items;
        }
        Kind::File | Kind::Link | Kind::Special => {}
    }
    Ok(seen)
}
