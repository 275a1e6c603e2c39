//! Errors of `edit_file`.

use bailiwick::{CallError, Code, VirtualPath};
use serde_json::json;

use crate::edit::{EditError, Nearest, PatchError};
use crate::text::NotText;

pub(super) fn not_text(path: &VirtualPath, reason: NotText) -> CallError {
    CallError::new(
        Code::NotText,
        format!("`{path}` cannot be edited as text: {reason}"),
    )
}

/// The call error for an edit.
pub(super) fn edit_error(path: &VirtualPath, error: &EditError) -> CallError {
    let answer = |code| CallError::new(code, format!("`{path}` was not changed: {error}"));
    match error {
        EditError::Empty(edit) | EditError::Same(edit) => {
            answer(Code::InvalidArguments).with("edit", *edit)
        }
        EditError::NoMatch { edit, nearest } => {
            with_nearest(answer(Code::NoMatch).with("edit", *edit), nearest.as_ref())
        }
        EditError::Ambiguous { edit, lines, total }
        | EditError::Count {
            edit, lines, total, ..
        } => answer(Code::AmbiguousMatch)
            .with("edit", *edit)
            .with("lines", lines.clone())
            .with("total", *total),
        EditError::Overlap {
            first,
            second,
            line,
        } => answer(Code::InvalidArguments)
            .with("edits", vec![*first, *second])
            .with("line", *line),
        EditError::TooMany(edit) => answer(Code::TooLarge).with("edit", *edit),
        EditError::TooLarge { .. } => answer(Code::TooLarge),
        EditError::Stopped(error) => error.clone(),
    }
}

pub(super) fn patch_error(path: &VirtualPath, error: &PatchError) -> CallError {
    let answer = |code| CallError::new(code, format!("`{path}` was not changed: {error}"));
    match error {
        PatchError::Empty
        | PatchError::Syntax { .. }
        | PatchError::Counts { .. }
        | PatchError::NoContext(_) => answer(Code::InvalidArguments),
        PatchError::TooMany(hunk) => answer(Code::TooLarge).with("hunk", *hunk),
        PatchError::NoMatch { hunk, nearest } => {
            with_nearest(answer(Code::NoMatch).with("hunk", *hunk), nearest.as_ref())
        }
        PatchError::Ambiguous {
            hunk, lines, total, ..
        } => answer(Code::AmbiguousMatch)
            .with("hunk", *hunk)
            .with("lines", lines.clone())
            .with("total", *total),
        PatchError::Edit(error) => edit_error(path, error),
    }
}

fn with_nearest(error: CallError, nearest: Option<&Nearest>) -> CallError {
    match nearest {
        Some(nearest) => error.with("nearest", json!(nearest)),
        None => error,
    }
}
