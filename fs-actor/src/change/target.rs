//! Checks on the targets of changes, shared by the writing tools.

use bailiwick::effect::{Cost, Entry, FileDiff, Op, ResourceChange};
use bailiwick::policy::WriteMode;
use bailiwick::scope::Operation;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, Scope, Verdict, VirtualPath};

use super::state::Inspected;
use super::tree::{self, Item};
use super::{
    ChangeSet, State, Step, StepExecutor, TemporaryFiles, TransferMode, inspect, repository,
};
use bytes::Bytes;

use crate::diff;
use crate::read_view::ReadView;
use crate::replace::is_temporary;
use crate::resolve::{self, Kind, Meta};
use crate::tools::HashPrefix;

/// Maximum number of entries in a tree that a person is asked about individually.
const MAX_ASKED_ENTRIES: usize = 1_000;
/// Maximum size of a file whose content is kept for the diff and for undo.
const MAX_RESTORABLE_BYTES: u64 = 64 << 20;

/// An existing file that a call changes.
#[derive(Debug)]
pub(crate) struct OldFile {
    /// The content, unless the file is too large.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) meta: Meta,
}

impl OldFile {
    /// Its state, which has a hash of the content.
    pub(crate) fn state(&self) -> State {
        match &self.bytes {
            Some(bytes) => State::of_file(bytes),
            None => State::of_object(&self.meta),
        }
    }
}

/// Reads the file at `path`; `None` if it does not exist.
///
/// # Errors
/// `NOT_REGULAR` for anything but a regular file, and as [`resolve::file`].
pub(crate) fn read_old(
    view: &dyn ReadView,
    path: &VirtualPath,
) -> Result<Option<OldFile>, Interrupt> {
    let Some(file) = resolve::file_if_exists(view, path)? else {
        return Ok(None);
    };
    if file.meta.len > MAX_RESTORABLE_BYTES {
        return Ok(Some(OldFile {
            bytes: None,
            meta: file.meta,
        }));
    }
    let bytes = tree::read_file(&file, MAX_RESTORABLE_BYTES, path, view)?;
    Ok(Some(OldFile {
        bytes: Some(bytes.into()),
        meta: file.meta,
    }))
}

/// Reads what is needed to restore the entry `path`: the content of a file, or the target of a symbolic link. `None` if it
/// cannot be read.
pub(crate) fn restorable(view: &dyn ReadView, path: &VirtualPath, kind: Kind) -> Option<Bytes> {
    match kind {
        Kind::File => read_old(view, path).ok().flatten()?.bytes,
        Kind::Link => {
            let (dir, name) = resolve::parent(view, path).ok()?;
            Some(tree::read_link(dir.as_fd(), &name).ok()?.into())
        }
        Kind::Directory | Kind::Special => None,
    }
}

/// The change to report for a symbolic link that is created, and its target.
pub(crate) fn created_link(
    path: &VirtualPath,
    target: &[u8],
    is_readable: bool,
) -> (Change, Option<ResourceChange>) {
    let change = Change {
        path: path.clone(),
        op: Op::Create,
        to: None,
        before: Entry::Absent,
        after: State::of_link(target).entry(),
        diff: FileDiff::default(),
    };
    let described = is_readable.then(|| {
        let target = escape(&String::from_utf8_lossy(target)).into_owned();
        ResourceChange::new(path.to_string(), format!("symbolic link to `{target}`"))
    });
    (change, described)
}

/// Compares the `state` of the file with the `expected_hash` argument, if there is one.
///
/// # Errors
/// `CONFLICT`
pub(crate) fn check_expected_hash(
    path: &VirtualPath,
    state: impl FnOnce() -> State,
    expected: Option<&HashPrefix>,
) -> Result<(), CallError> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let hash = match state() {
        State::File { hash, .. } => Some(hash),
        State::Absent | State::Link { .. } | State::Object { .. } | State::Directory { .. } => None,
    };
    if hash.is_some_and(|hash| expected.matches(&hash)) {
        return Ok(());
    }
    let message = format!("`{path}` does not match `expected_hash`; read it again");
    let error = CallError::new(Code::Conflict, message);
    Err(match hash {
        Some(hash) => error.with("hash", HashPrefix::from(hash).to_string()),
        None => error,
    })
}

/// Rejects names that are reserved for temporary files.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn reject_temporary_name(path: &VirtualPath) -> Result<(), CallError> {
    if path.names().any(is_temporary) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!("`{path}` is reserved for temporary files; choose another name"),
        ));
    }
    Ok(())
}

/// Rejects steps whose write mode the policy excludes. Edits, moves and deletions of existing files count as
/// overwriting. `appends` means that rewritten files only grow.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(crate) fn check_write_modes(
    permit: &ReadPermit,
    steps: &[Step],
    appends: bool,
) -> Result<(), CallError> {
    let write_mode = |existing: &State| match existing {
        State::Absent => WriteMode::Create,
        _ if appends => WriteMode::Append,
        State::File { .. }
        | State::Link { .. }
        | State::Object { .. }
        | State::Directory { .. } => WriteMode::Overwrite,
    };
    let modes = steps.iter().flat_map(|step| match step {
        Step::MakeDirectory { .. } | Step::MakeLink { .. } => vec![WriteMode::Create],
        Step::Write { existing, .. } => vec![write_mode(existing)],
        Step::Transfer { mode, existing, .. } => match mode {
            TransferMode::Copy => vec![write_mode(existing)],
            TransferMode::Move => vec![WriteMode::Overwrite, write_mode(existing)],
        },
        Step::Remove { .. } | Step::SetMode { .. } => vec![WriteMode::Overwrite],
    });
    let mut denied_modes = modes.filter(|mode| !permit.allows_write_mode(*mode));
    denied_modes.next().map_or(Ok(()), |mode| {
        let message = format!(
            "the policy of this worker does not allow the write mode `{}`",
            mode.as_str()
        );
        Err(CallError::new(Code::PermissionDenied, message))
    })
}

/// Joins the needs of all `checks`, so that a person is asked once. Other errors come first.
///
/// # Errors
/// The first error of a check, else one [`Interrupt`] with all needs and protected files.
pub(crate) fn require_all(
    checks: impl IntoIterator<Item = Result<(), Interrupt>>,
) -> Result<(), Interrupt> {
    let (mut needs, mut protected) = (Vec::new(), Vec::new());
    for checked in checks {
        match checked {
            Ok(()) => {}
            Err(Interrupt::Needs(more)) => needs.extend(more),
            Err(Interrupt::Protected(more)) => protected.extend(more),
            Err(
                interrupt @ (Interrupt::Failed(_) | Interrupt::Moved { .. } | Interrupt::All(_)),
            ) => {
                return Err(interrupt);
            }
        }
    }
    match (needs.is_empty(), protected.is_empty()) {
        (true, true) => Ok(()),
        (false, true) => Err(Interrupt::Needs(needs)),
        (true, false) => Err(Interrupt::Protected(protected)),
        (false, false) => Err(Interrupt::All(vec![
            Interrupt::Needs(needs),
            Interrupt::Protected(protected),
        ])),
    }
}

/// Steps that create the missing directories above `path`, from the top down. [`require_parents`] checks whether the
/// call may create them.
///
/// # Errors
/// `NOT_FOUND` if some are missing and `create` is not set.
pub(crate) fn missing_parents(
    permit: &ReadPermit,
    path: &VirtualPath,
    create: bool,
) -> Result<Vec<Step>, Interrupt> {
    let mut missing = Vec::new();
    let mut above = path.parent();
    while let Some(path) = above {
        let (_, beneath) = permit.root_of(&path)?;
        if beneath.is_empty() {
            break;
        }
        match resolve::entry(permit, &path)? {
            None => missing.push(path.clone()),
            Some(meta) if meta.kind == Kind::Directory => break,
            Some(_) => return Err(not_a_directory(&path).into()),
        }
        above = path.parent();
    }
    missing.reverse();
    if let Some(first) = missing.first().filter(|_| !create) {
        return Err(missing_parent(first).into());
    }
    let steps = missing
        .into_iter()
        .map(|path| Step::MakeDirectory { path, mode: None });
    Ok(steps.collect())
}

pub(crate) fn not_a_directory(path: &VirtualPath) -> CallError {
    CallError::new(Code::NotDirectory, format!("`{path}` is not a directory"))
}

/// The error for a directory that must exist.
pub(crate) fn missing_parent(path: &VirtualPath) -> CallError {
    let message = format!(
        "{}; set `create_parents` to create it",
        CallError::not_found(path).message()
    );
    CallError::new(Code::NotFound, message)
}

/// Requires that the call may execute `steps`, which create or change `path`; for `appends` see [`check_write_modes`].
///
/// # Errors
/// As [`check_write_modes`] and [`require_all`].
pub(crate) fn require_put(
    permit: &ReadPermit,
    path: &VirtualPath,
    steps: &[Step],
    appends: bool,
) -> Result<(), Interrupt> {
    check_write_modes(permit, steps, appends)?;
    require_all([
        require_parents(permit, path, steps),
        repository::require(permit, steps, &[]),
    ])
}

/// Requires that the call may create the directories above `path` that `steps` create.
///
/// # Errors
/// As [`ReadPermit::require_parents`].
pub(crate) fn require_parents(
    permit: &ReadPermit,
    path: &VirtualPath,
    steps: &[Step],
) -> Result<(), Interrupt> {
    let made = steps.iter().filter_map(Step::created_directory);
    permit.require_parents(path, made.filter(|made| *made != path))
}

/// Steps that remove created directories.
pub(crate) fn undo_directories(made: &[Step]) -> Vec<Step> {
    let made = made.iter().rev().filter_map(Step::created_directory);
    made.map(|path| Step::Remove {
        path: path.clone(),
        state: State::empty_directory(),
    })
    .collect()
}

/// Requires that the call may do `operation` to everything beneath `top`; `at` maps each path to the one that is
/// checked.
///
/// # Errors
/// `PERMISSION_DENIED` without the entry's name if one is denied or hidden; else the needs that a person must allow.
pub(crate) fn require_beneath(
    permit: &ReadPermit,
    operation: Operation,
    top: &VirtualPath,
    items: &[Item],
    at: impl Fn(&VirtualPath) -> Result<VirtualPath, CallError>,
) -> Result<(), Interrupt> {
    let mut needs_approval = Vec::new();
    for item in items {
        let need = Scope::doing(operation, at(&item.path)?);
        match permit.judge_need(&need) {
            Verdict::Allow => {}
            Verdict::Ask
                if permit.shows(&item.path) && needs_approval.len() < MAX_ASKED_ENTRIES =>
            {
                needs_approval.push(need)
            }
            Verdict::Ask | Verdict::Deny => return Err(denied_beneath(top).into()),
        }
    }
    permit.require_needs(needs_approval)
}

/// The error for an entry beneath `top` that the worker may not use. It does not name the entry.
pub(super) fn denied_beneath(top: &VirtualPath) -> CallError {
    let message = format!("permission denied for an entry below `{top}`; narrow the path");
    CallError::new(Code::PermissionDenied, message)
}

/// The need of creating `to`, or of replacing it if `overwrite` is set.
pub(crate) fn put_need(to: &VirtualPath, overwrite: bool) -> Scope {
    let create = Scope::doing(Operation::Create, to.clone());
    if overwrite {
        create.or(Operation::Change)
    } else {
        create
    }
}

/// Requires that the call may do `operation` to a directory with its contents, and create them at `to`.
///
/// # Errors
/// As [`ReadPermit::require_needs`].
pub(crate) fn require_whole(
    permit: &ReadPermit,
    operation: Operation,
    (from, inspected): (&VirtualPath, &Inspected),
    to: &VirtualPath,
) -> Result<(), Interrupt> {
    if !matches!(inspected.state, State::Directory { .. }) {
        return Ok(());
    }
    permit.require_needs([
        Scope::doing(operation, from.clone()).beneath(),
        Scope::doing(Operation::Create, to.clone()).beneath(),
    ])
}

/// Maps `path`, which is beneath `from`, to the path beneath `to`.
pub(crate) fn relocated(
    path: &VirtualPath,
    from: &VirtualPath,
    to: &VirtualPath,
) -> Result<VirtualPath, CallError> {
    let beneath = path.beneath(from).filter(|rest| !rest.is_empty());
    let Some(rest) = beneath else {
        return Ok(to.clone());
    };
    VirtualPath::parse(rest, Some(to))
        .map_err(|error| CallError::new(Code::InvalidArguments, format!("`{to}`: {error}")))
}

/// Rejects a root, or a directory that contains one.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn reject_root(permit: &ReadPermit, path: &VirtualPath) -> Result<(), CallError> {
    let mut roots = permit.roots().filter(|root| !root.is_for_one_call());
    if roots.any(|root| root.mount().starts_with(path)) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!(
                "`{path}` is or contains a configured root, which cannot be moved, replaced or deleted"
            ),
        ));
    }
    Ok(())
}

/// The changes to report for created parent directories.
pub(crate) fn directory_changes(steps: &[Step]) -> Vec<Change> {
    let made = steps.iter().filter_map(Step::created_directory);
    made.map(|path| Change {
        path: path.clone(),
        op: Op::MakeDirectory,
        to: None,
        before: Entry::Absent,
        after: Entry::Directory { entries: 0 },
        diff: FileDiff::default(),
    })
    .collect()
}

/// The plan of a call that changes nothing.
pub(crate) fn empty_plan(reply: Reply) -> Plan<ChangeSet> {
    Plan {
        changes: Vec::new(),
        resources: Vec::new(),
        reply,
        cost: Cost::default(),
        steps: Vec::new().into(),
        inverse: None,
    }
}

/// What a move or copy to `to` would replace: nothing, or a regular file if `overwrite` is set.
///
/// # Errors
/// `ALREADY_EXISTS`
pub(crate) fn destination(
    permit: &ReadPermit,
    to: &VirtualPath,
    overwrite: bool,
) -> Result<Inspected, Interrupt> {
    let inspected = inspect(permit, to, TemporaryFiles::Included)?;
    check_destination(
        permit.actual(to),
        inspected.meta.map(|meta| meta.kind),
        overwrite,
    )?;
    Ok(inspected)
}

/// Checks that a move or copy to `path`, where there is an entry of this kind, may replace it.
///
/// # Errors
/// `ALREADY_EXISTS`
pub(crate) fn check_destination(
    path: &VirtualPath,
    kind: Option<Kind>,
    overwrite: bool,
) -> Result<(), CallError> {
    let hint = match kind {
        None => return Ok(()),
        Some(Kind::File) if overwrite => return Ok(()),
        Some(Kind::File) => "set `overwrite` to replace it",
        Some(Kind::Directory) => "include the new name in the path",
        Some(Kind::Link | Kind::Special) => "only regular files can be replaced",
    };
    let message = format!("`{path}` already exists; {hint}");
    Err(CallError::new(Code::AlreadyExists, message))
}

/// Rejects a destination that is the source or inside it.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn reject_nested(from: &VirtualPath, to: &VirtualPath) -> Result<(), CallError> {
    if to.starts_with(from) || from.starts_with(to) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!("`{to}` and `{from}` are equal, or one contains the other"),
        ));
    }
    Ok(())
}

/// The change to report for a file that another one replaces.
pub(crate) fn replaced_file(
    executor: &StepExecutor,
    permit: &ReadPermit,
    (from, source): (&VirtualPath, &Inspected),
    (to, existing): (&VirtualPath, &Inspected),
) -> Result<(Option<Change>, Option<OldFile>), Interrupt> {
    if existing.state == State::Absent {
        return Ok((None, None));
    }
    let old = read_old(permit, to)?;
    let new = match source.state {
        State::File { .. } => read_old(permit, from)?.and_then(|new| new.bytes),
        State::Absent | State::Link { .. } | State::Object { .. } | State::Directory { .. } => None,
    };
    let is_readable = permit.shows(to) && permit.shows(from);
    let diff = match (old.as_ref().and_then(|old| old.bytes.as_ref()), new) {
        _ if !is_readable => diff::hidden(),
        (Some(old), Some(new)) => diff::of_bytes(old, &new),
        (None, _) | (_, None) => FileDiff {
            binary: true,
            ..FileDiff::default()
        },
    };
    let change = Change {
        path: to.clone(),
        op: Op::Modify,
        to: None,
        before: executor.entry(&existing.state, existing.meta.as_ref(), permit.shows(to))?,
        after: executor.entry(&source.state, source.meta.as_ref(), permit.shows(from))?,
        diff,
    };
    Ok((Some(change), old))
}

/// Steps that restore a replaced file; `None` if it was too large to keep.
pub(crate) fn restore_replaced(path: &VirtualPath, old: Option<OldFile>) -> Option<Vec<Step>> {
    let Some(old) = old else {
        return Some(Vec::new());
    };
    Some(vec![Step::Write {
        path: path.clone(),
        content: old.bytes?,
        existing: State::Absent,
        mode: Some(old.meta.mode),
    }])
}
