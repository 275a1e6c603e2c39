//! Scans and copies directory trees.
//!
//! Trees are walked by handle, without following links, and with a bounded number of descriptors.

mod remove;

use std::os::fd::BorrowedFd;

use bailiwick::effect::ContentHash;
use bailiwick::path::PathError;
use bailiwick::{CallError, Code, VirtualPath};
use sha2::{Digest as _, Sha256};

use super::state::{Inspected, State};
use crate::read_view::ReadView;
use crate::replace::{Durability, StagedFile, is_temporary};
use crate::resolve::{self, AtPath as _, DirStack, Kind, Meta, OpenDir, OpenFile};
use crate::sys::{self, AtFlags, Dir, Errno, Mode, spare_capacity};

pub(crate) use remove::{remove, unlink};

/// Maximum number of entries in a tree that one call may move, copy or delete.
pub(crate) const MAX_ENTRIES: u64 = 100_000;
/// The digest includes file contents up to this total size; for further files their identity and time.
const MAX_HASHED: u64 = 64 << 20;

/// Bytes per read.
const PIECE: u64 = 256 << 10;

/// Whether a scan includes temporary files of writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemporaryFiles {
    /// They are deleted or moved with the tree.
    Included,
    /// They belong to their writers and are not copied.
    Excluded,
}

/// An entry beneath a directory.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Virtual path.
    pub(crate) path: VirtualPath,
    pub(crate) meta: Meta,
}

/// One directory of the scan.
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

/// Inspects everything beneath `dir`, whose virtual path is `path`: directories before their contents, names sorted.
///
/// # Errors
/// `TOO_LARGE` for a tree with too many entries or levels; `PERMISSION_DENIED` for a name that is not a valid path, and in
/// place of system errors that would name an entry which may not be shown.
pub(crate) fn scan(
    dir: OpenDir,
    path: &VirtualPath,
    temporaries: TemporaryFiles,
    view: &dyn ReadView,
) -> Result<Inspected, CallError> {
    let mut at = path.clone();
    scan_until(dir, path, temporaries, view, &mut at).map_err(|error| match error.code() {
        Code::Cancelled | Code::Deadline => error,
        _ if at == *path || view.shows(&at) => error,
        _ => super::target::denied_beneath(path),
    })
}

/// Sets `at` to each entry before it is inspected.
fn scan_until(
    dir: OpenDir,
    path: &VirtualPath,
    temporaries: TemporaryFiles,
    view: &dyn ReadView,
    at: &mut VirtualPath,
) -> Result<Inspected, CallError> {
    let (mut items, mut bytes, mut excluded_temporaries, mut content_only) =
        (Vec::new(), 0_u64, 0, true);
    let mut digest = Sha256::new();
    let skip = path.as_str().len();
    let mut levels = vec![Level::open(&dir, path.clone(), MAX_ENTRIES)?];
    let mut stack = DirStack::new(dir);
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            stack.pop();
            continue;
        };
        view.checkpoint()?;
        if temporaries == TemporaryFiles::Excluded && is_temporary(&name) {
            excluded_temporaries += 1;
            continue;
        }
        let path = level.path.join(&name).map_err(|_| too_large(&level.path))?;
        let dir = current_dir(&mut stack, &level.path)?;
        at.clone_from(&path);
        let meta = stat(dir.as_fd(), &name).at(&path)?;
        let (kind, hash) = match meta.kind {
            Kind::Directory => (b'd', ContentHash::of(b"")),
            Kind::File => {
                bytes = bytes.saturating_add(meta.len);
                if bytes <= MAX_HASHED {
                    let file = dir.read(&name).at(&path)?;
                    (b'f', hash_file(&file, MAX_HASHED, &path, view)?.0)
                } else {
                    (b's', stamp(&meta))
                }
            }
            Kind::Link => {
                let target = read_link(dir.as_fd(), &name).at(&path)?;
                (b'l', ContentHash::of(&target))
            }
            Kind::Special => (b'o', stamp(&meta)),
        };
        content_only &= matches!(kind, b'd' | b'f' | b'l');
        let relative = path.as_str().get(skip..).unwrap_or_default();
        digest.update(relative.as_bytes());
        digest.update([0, kind]);
        digest.update(hash.as_bytes());
        items.push(Item {
            path: path.clone(),
            meta,
        });
        if meta.kind == Kind::Directory {
            let budget = MAX_ENTRIES.saturating_sub(items.len() as u64);
            stack.enter(&name).at(&path)?;
            let dir = current_dir(&mut stack, &path)?;
            levels.push(Level::open(dir, path, budget)?);
        }
    }
    Ok(Inspected {
        state: State::Directory {
            digest: ContentHash::from_bytes(digest.finalize().into()),
            entries: items.len() as u64,
            content_only,
        },
        meta: None,
        items,
        bytes,
        excluded_temporaries,
    })
}

/// The state of a directory with these contents, as [`scan`] finds it: the names of each entry, and the hash and length of
/// a file. `None` if they are too large to be compared by content.
pub(crate) fn state_of<'e>(
    entries: impl IntoIterator<Item = (Vec<&'e str>, Option<(ContentHash, u64)>)>,
) -> Option<State> {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_unstable();
    let (mut digest, mut total) = (Sha256::new(), 0_u64);
    for (names, file) in &entries {
        let (kind, hash) = match file {
            Some((hash, bytes)) => {
                total = total.saturating_add(*bytes);
                (b'f', *hash)
            }
            None => (b'd', ContentHash::of(b"")),
        };
        names.iter().for_each(|name| {
            digest.update(b"/");
            digest.update(name.as_bytes());
        });
        digest.update([0, kind]);
        digest.update(hash.as_bytes());
    }
    (total <= MAX_HASHED).then(|| State::Directory {
        digest: ContentHash::from_bytes(digest.finalize().into()),
        entries: entries.len() as u64,
        content_only: true,
    })
}

/// The current directory of `stack`, whose virtual path is `path`.
fn current_dir<'w>(stack: &'w mut DirStack, path: &VirtualPath) -> Result<&'w OpenDir, CallError> {
    let dir = stack.current().map_err(|errno| match errno {
        Errno::STALE | Errno::NOENT | Errno::LOOP | Errno::NOTDIR => super::stale(path),
        errno => resolve::to_call_error(errno, path),
    })?;
    Ok(dir)
}

/// Identity and modification time of an object whose content is not read.
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

/// The hash and length of a file of at most `limit` bytes.
pub(crate) fn hash_file(
    file: &OpenFile,
    limit: u64,
    path: &VirtualPath,
    view: &dyn ReadView,
) -> Result<(ContentHash, u64), CallError> {
    let mut hash = Sha256::new();
    let bytes = read(file, limit, path, view, |piece| hash.update(piece))?;
    Ok((ContentHash::from_bytes(hash.finalize().into()), bytes))
}

/// Whether a file has this content.
pub(crate) fn has_content(
    file: &OpenFile,
    content: &[u8],
    path: &VirtualPath,
    view: &dyn ReadView,
) -> Result<bool, CallError> {
    let limit = content.len() as u64;
    if file.meta.len != limit {
        return Ok(false);
    }
    let mut rest = Some(content);
    read(file, limit, path, view, |piece| {
        rest = rest.and_then(|rest| rest.strip_prefix(piece));
    })?;
    Ok(rest.is_some_and(<[u8]>::is_empty))
}

/// The content of a file of at most `limit` bytes.
pub(crate) fn read_file(
    file: &OpenFile,
    limit: u64,
    path: &VirtualPath,
    view: &dyn ReadView,
) -> Result<Vec<u8>, CallError> {
    let mut bytes = Vec::new();
    // One more byte, so that the end is found without growing.
    reserve(&mut bytes, file.meta.len.min(limit).saturating_add(1));
    loop {
        if bytes.len() == bytes.capacity() {
            reserve(&mut bytes, PIECE);
        }
        let at = bytes.len() as u64;
        view.checkpoint()?;
        match sys::pread(&file.file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Ok(bytes),
            Ok(_) if bytes.len() as u64 > limit => return Err(too_large(path)),
            Ok(_) if is_end(file, bytes.len() as u64, &bytes) => return Ok(bytes),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(resolve::to_call_error(errno, path)),
        }
    }
}

/// Whether the read into `buffer` that ended at `at` has reached the end: if it did not fill the buffer and ended at the known
/// length. Other reads that do not fill it may have been interrupted.
fn is_end(file: &OpenFile, at: u64, buffer: &Vec<u8>) -> bool {
    at == file.meta.len && buffer.len() < buffer.capacity()
}

fn reserve(bytes: &mut Vec<u8>, more: u64) {
    bytes.reserve_exact(usize::try_from(more).unwrap_or(0));
}

/// Passes the content of a file to `take` in pieces. Returns its length.
fn read(
    file: &OpenFile,
    limit: u64,
    path: &VirtualPath,
    view: &dyn ReadView,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, CallError> {
    let mut buffer = Vec::new();
    reserve(&mut buffer, file.meta.len.saturating_add(1).min(PIECE));
    let mut at = 0;
    loop {
        view.checkpoint()?;
        buffer.clear();
        match sys::pread(&file.file, spare_capacity(&mut buffer), at) {
            Ok(0) => return Ok(at),
            Ok(read) => {
                take(&buffer);
                at += read as u64;
            }
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(resolve::to_call_error(errno, path)),
        }
        if at > limit {
            return Err(too_large(path));
        }
        if is_end(file, at, &buffer) {
            return Ok(at);
        }
    }
}

/// Copies `items`, the entries beneath `path` at `from`, into the empty directory `to`. Only directories and regular
/// files can be copied.
pub(crate) fn copy(
    from: OpenDir,
    to: OpenDir,
    path: &VirtualPath,
    items: &[Item],
    view: &dyn ReadView,
) -> Result<(), CallError> {
    let (mut source, mut copy) = (DirStack::new(from), DirStack::new(to));
    // Items come depth first, so the parent of each is the previous directory or above it.
    let mut open = vec![path];
    for item in items {
        view.checkpoint()?;
        let parent = item.path.parent();
        while open.len() > 1 && open.last().copied() != parent.as_ref() {
            open.pop();
            source.pop();
            copy.pop();
        }
        let (from, to) = (
            current_dir(&mut source, &item.path)?,
            current_dir(&mut copy, &item.path)?,
        );
        let name = item.path.name().unwrap_or_default();
        match item.meta.kind {
            Kind::Directory => {
                // Not more permissive than the original, but writable for the copy.
                let mode = Mode::from_raw_mode(item.meta.mode & 0o777 | 0o700);
                sys::mkdirat(to.as_fd(), name, mode).at(&item.path)?;
                source.enter(name).at(&item.path)?;
                copy.enter(name).at(&item.path)?;
                open.push(&item.path);
            }
            Kind::File => copy_file(from, to.as_fd(), name, &item.path, view)?,
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
    view: &dyn ReadView,
) -> Result<(), CallError> {
    let source = from.read(name).at(path)?;
    let copied = StagedFile::copy_of(to, &source, view)
        .and_then(|staged| staged.create(name, Durability::Visible));
    copied.map(drop).at(path)
}

pub(crate) fn not_copied(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::NotRegular,
        format!("cannot copy `{path}`: it is a link or a special file"),
    )
}

pub(crate) fn too_large(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::TooLarge,
        format!(
            "`{path}` is too large or too deep for one call (at most {MAX_ENTRIES} entries); narrow the path"
        ),
    )
}

/// The metadata of `name`, without following a link.
pub(crate) fn stat(dir: BorrowedFd<'_>, name: &str) -> Result<Meta, Errno> {
    sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Meta::from_stat(&stat))
}

/// The target of the symbolic link `name`.
pub(crate) fn read_link(dir: BorrowedFd<'_>, name: &str) -> Result<Vec<u8>, Errno> {
    sys::readlinkat(dir, name, Vec::new()).map(|target| target.into_bytes())
}

/// The names in `dir`, sorted; fails if there are more than `budget`.
fn names(dir: BorrowedFd<'_>, path: &VirtualPath, budget: u64) -> Result<Vec<String>, CallError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).at(path)? {
        let entry = entry.at(path)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let name = name.to_str().map_err(|_| not_utf8(path))?;
        path.join(name).map_err(|error| match error {
            PathError::TooLong => too_large(path),
            _ => not_utf8(path),
        })?;
        if names.len() as u64 >= budget {
            return Err(too_large(path));
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// No policy can match such a name, so it is denied.
fn not_utf8(path: &VirtualPath) -> CallError {
    CallError::new(
        Code::PermissionDenied,
        format!(
            "`{path}` contains a name that is not valid in a path, so the policy cannot be checked"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, path};

    fn content(length: usize) -> Vec<u8> {
        (0..=u8::MAX).cycle().take(length).collect()
    }

    #[test]
    fn file_that_changes_after_it_was_opened_is_read_to_its_end() {
        let piece = usize::try_from(PIECE).unwrap();
        let lengths = [0, 5, piece - 1, piece, piece + 5, 2 * piece];
        let pairs = lengths.map(|opened| lengths.map(|now| (opened, now)));
        for (opened, now) in pairs.into_iter().flatten() {
            let world = World::new(&["file root/a"]);
            world.write("root/a", content(opened));
            let (view, at) = (world.view(), path("/r/a"));
            let file = resolve::file(&view, &at).unwrap();
            let content = content(now);
            world.write("root/a", &content);
            let limit = now as u64;
            let read = read_file(&file, limit, &at, &view).unwrap();
            assert!(read == content, "{opened} {now}");
            let hashed = hash_file(&file, limit, &at, &view).unwrap();
            assert_eq!(hashed, (ContentHash::of(&content), limit));
            let is_same = has_content(&file, &content, &at, &view).unwrap();
            assert_eq!(is_same, opened == now);
            if let Some(less) = limit.checked_sub(1) {
                let refused = read_file(&file, less, &at, &view).unwrap_err();
                assert_eq!(refused.code(), Code::TooLarge);
                let refused = hash_file(&file, less, &at, &view).unwrap_err();
                assert_eq!(refused.code(), Code::TooLarge);
            }
        }
    }
}
