//! Changes of the permission bits of files.

use bailiwick::effect::{Change, Entry, FileDiff, Op, ResourceChange};
use bailiwick::{CallError, Code, VirtualPath};

use super::{State, Step};
use crate::resolve::{Kind, Meta};

/// The permission bits that a step can change. Set-id bits and the sticky bit are never set.
pub(crate) const BITS: u32 = 0o777;

/// The step that changes the bits of a file from `from` to `to`.
pub(crate) fn step(path: &VirtualPath, state: &State, from: u32, to: u32) -> Step {
    Step::SetMode {
        path: path.clone(),
        state: state.clone(),
        from,
        to,
    }
}

/// The change to report for a file whose content stays; [`described`] has the bits.
pub(crate) fn change(path: VirtualPath, entry: Entry) -> Change {
    Change {
        path,
        op: Op::Modify,
        to: None,
        before: entry,
        after: entry,
        diff: FileDiff::default(),
    }
}

/// The permission bits of a new file that people are not told about.
const USUAL: u32 = 0o644;

/// Tells people about the bits that a file gets, and those that it has, if they may be shown; `None` if they stay or are
/// those of any new file.
pub(crate) fn described(path: &VirtualPath, from: Option<u32>, to: u32) -> Option<ResourceChange> {
    let to = to & BITS;
    let change = |summary| ResourceChange::new(path.to_string(), summary).after(format!("{to:o}"));
    match from.map(|from| from & BITS) {
        Some(from) if from == to => None,
        Some(from) => Some(change(format!("mode {from:o} -> {to:o}")).before(format!("{from:o}"))),
        None if to == USUAL => None,
        None if to & 0o111 != 0 => Some(change(format!("mode {to:o}: the file can be executed"))),
        None => Some(change(format!("mode {to:o}"))),
    }
}

/// Checks that the bits of a file may be changed: links of it elsewhere would change, too, and special bits would be lost.
///
/// # Errors
/// `NOT_REGULAR`
pub(crate) fn require_changeable(path: &VirtualPath, meta: &Meta) -> Result<(), CallError> {
    let reason = if meta.kind != Kind::File {
        "it is not a regular file"
    } else if meta.links > 1 {
        "it has other hard links, which would change, too"
    } else if meta.mode & !BITS != 0 {
        "it has a set-id or sticky bit"
    } else {
        return Ok(());
    };
    let message = format!("the permissions of `{path}` cannot be changed: {reason}");
    Err(CallError::new(Code::NotRegular, message))
}
