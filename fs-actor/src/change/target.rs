//! A path that a call wants to change in, what a plan must know of it out.

use bailiwick::{
    CallError, Change, Code, Cost, Entry, FileDiff, Interrupt, Op, Operation, Plan, ReadPermit,
    Reply, Scope, Verdict, VirtualPath, WriteMode,
};

use super::state::Seen;
use super::tree::{self, Item};
use super::{Changer, State, Step, Temporaries, Work, repository, see};
use bytes::Bytes;

use crate::diff;
use crate::lens::Lens;
use crate::replace::is_temporary;
use crate::resolve::{self, Kind, Meta};
use crate::tools::HashPrefix;

/// The most entries of a tree that a person is asked about one by one.
const MAX_ASKED: usize = 1_000;
/// The largest file that is read whole, so that its change can be shown and taken back.
const MAX_KEPT: u64 = 64 << 20;

/// The file that a call is to change.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) state: State,
    /// Its bytes, unless there are too many.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) meta: Meta,
}

/// Reads the file at `path`; none if nothing is there.
///
/// # Errors
/// `NOT_REGULAR` for anything but a regular file, and as [`resolve::file`].
pub(crate) fn old(lens: &dyn Lens, path: &VirtualPath) -> Result<Option<Old>, Interrupt> {
    if resolve::entry(lens, path)?.is_none() {
        return Ok(None);
    }
    let file = resolve::file(lens, path)?;
    let pause = || lens.checkpoint();
    if file.meta.len > MAX_KEPT {
        return Ok(Some(Old {
            state: State::Object {
                stamp: tree::stamp(&file.meta),
                bytes: file.meta.len,
            },
            bytes: None,
            meta: file.meta,
        }));
    }
    let bytes = tree::bytes_of(&file.file, MAX_KEPT, path, &pause)?;
    Ok(Some(Old {
        state: State::of_file(&bytes),
        bytes: Some(bytes.into()),
        meta: file.meta,
    }))
}

/// Checks what the caller says it read before.
///
/// # Errors
/// `CONFLICT`
pub(crate) fn expect(
    path: &VirtualPath,
    state: &State,
    expected: Option<&HashPrefix>,
) -> Result<(), CallError> {
    let same = match (state, expected) {
        (_, None) => true,
        (State::File { hash, .. }, Some(expected)) => expected.matches(hash),
        (State::Absent | State::Object { .. } | State::Directory { .. }, Some(_)) => false,
    };
    if same {
        return Ok(());
    }
    let message = format!("`{path}` is not what expected_hash says; read it again");
    let error = CallError::new(Code::Conflict, message);
    Err(match state {
        State::File { hash, .. } => error.with("hash", HashPrefix::from(*hash).to_string()),
        State::Absent | State::Object { .. } | State::Directory { .. } => error,
    })
}

/// Refuses the names that this crate keeps for its own files.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn free_name(path: &VirtualPath) -> Result<(), CallError> {
    if path.names().any(is_temporary) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!("`{path}` is a name for temporary files; choose another"),
        ));
    }
    Ok(())
}

/// Refuses steps that write in a way the policy leaves out. What moves or removes something that was there
/// overwrites; so does an edit. `adding` says that what is rewritten only gets longer.
///
/// # Errors
/// `PERMISSION_DENIED`
pub(crate) fn within_modes(
    permit: &ReadPermit,
    steps: &[Step],
    adding: bool,
) -> Result<(), CallError> {
    let anew = |over: &State| match over {
        State::Absent => WriteMode::Create,
        _ if adding => WriteMode::Append,
        State::File { .. } | State::Object { .. } | State::Directory { .. } => WriteMode::Overwrite,
    };
    let modes = steps.iter().flat_map(|step| match step {
        Step::MakeDirectory { .. } => vec![WriteMode::Create],
        Step::Write { over, .. } | Step::Copy { over, .. } => vec![anew(over)],
        Step::Move { over, .. } => vec![WriteMode::Overwrite, anew(over)],
        Step::Remove { .. } => vec![WriteMode::Overwrite],
    });
    let mut left_out = modes.filter(|mode| !permit.allows_write_mode(*mode));
    left_out.next().map_or(Ok(()), |mode| {
        let message = format!(
            "this worker's policy leaves out the write mode `{}`",
            mode.as_str()
        );
        Err(CallError::new(Code::PermissionDenied, message))
    })
}

/// Requires everything at once: joins what each of `checks` must be granted, so that a person is asked one time. What is
/// not a matter of grants comes first.
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
            Err(halt @ (Interrupt::Failed(_) | Interrupt::Moved { .. } | Interrupt::All(_))) => {
                return Err(halt);
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

/// Steps that make the directories above `path` that are missing, from the top down. [`require_parents`] says whether the
/// call may make them.
///
/// # Errors
/// `NOT_FOUND` if there are some and `wanted` says not to make them.
pub(crate) fn missing_parents(
    permit: &ReadPermit,
    path: &VirtualPath,
    wanted: bool,
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
            Some(_) => {
                let message = format!("`{path}` is not a directory");
                return Err(CallError::new(Code::NotDirectory, message).into());
            }
        }
        above = path.parent();
    }
    missing.reverse();
    if let Some(first) = missing.first().filter(|_| !wanted) {
        let message = format!(
            "{}; set create_parents to make it",
            CallError::not_found(first).message()
        );
        return Err(CallError::new(Code::NotFound, message).into());
    }
    let steps = missing
        .into_iter()
        .map(|path| Step::MakeDirectory { path, mode: None });
    Ok(steps.collect())
}

/// Requires that the call may carry out `steps`, which make or change what is at `path`; `adding` is as in [`within_modes`].
///
/// # Errors
/// As [`within_modes`] and [`require_all`].
pub(crate) fn require_put(
    permit: &ReadPermit,
    path: &VirtualPath,
    steps: &[Step],
    adding: bool,
) -> Result<(), Interrupt> {
    within_modes(permit, steps, adding)?;
    require_all([
        require_parents(permit, path, steps),
        repository::require(permit, steps, &[]),
    ])
}

/// Requires that the call may make the directories above `path` that `steps` make.
///
/// # Errors
/// As [`ReadPermit::require_parents`].
pub(crate) fn require_parents(
    permit: &ReadPermit,
    path: &VirtualPath,
    steps: &[Step],
) -> Result<(), Interrupt> {
    let made = steps.iter().filter_map(|step| match step {
        Step::MakeDirectory { path: made, .. } if made != path => Some(made),
        Step::MakeDirectory { .. }
        | Step::Write { .. }
        | Step::Move { .. }
        | Step::Copy { .. }
        | Step::Remove { .. } => None,
    });
    permit.require_parents(path, made)
}

/// What takes the making of these directories back.
pub(crate) fn unmake(made: &[Step]) -> Vec<Step> {
    let remove = |step: &Step| match step {
        Step::MakeDirectory { path, .. } => Some(Step::Remove {
            path: path.clone(),
            what: State::empty_directory(),
        }),
        Step::Write { .. } | Step::Move { .. } | Step::Copy { .. } | Step::Remove { .. } => None,
    };
    made.iter().rev().filter_map(remove).collect()
}

/// Requires that the call may do `operation` to everything beneath `top`, at the path that `at` gives each.
///
/// # Errors
/// `PERMISSION_DENIED`, and nothing about which entry, if one is denied or may not even be shown; else those a person must allow.
pub(crate) fn require_beneath(
    permit: &ReadPermit,
    operation: Operation,
    top: &VirtualPath,
    items: &[Item],
    at: impl Fn(&VirtualPath) -> Result<VirtualPath, CallError>,
) -> Result<(), Interrupt> {
    let mut asked = Vec::new();
    for item in items {
        let need = Scope::doing(operation, at(&item.path)?);
        match permit.judge_need(&need) {
            Verdict::Allow => {}
            Verdict::Ask if permit.shows(&item.path) && asked.len() < MAX_ASKED => asked.push(need),
            Verdict::Ask | Verdict::Deny => {
                let message = format!(
                    "`{top}` holds what this worker may not touch; name smaller parts of it"
                );
                return Err(CallError::new(Code::PermissionDenied, message).into());
            }
        }
    }
    permit.require_needs(asked)
}

/// The need to put something at `to`, in place of a file if `overwrite` says so.
pub(crate) fn put(to: &VirtualPath, overwrite: bool) -> Scope {
    let create = Scope::doing(Operation::Create, to.clone());
    if overwrite {
        create.or(Operation::Change)
    } else {
        create
    }
}

/// Requires of a directory that the call may take (`operation`) all that it holds, and make all of it at `to`.
///
/// # Errors
/// As [`ReadPermit::require_needs`].
pub(crate) fn require_whole(
    permit: &ReadPermit,
    operation: Operation,
    (from, seen): (&VirtualPath, &Seen),
    to: &VirtualPath,
) -> Result<(), Interrupt> {
    if !matches!(seen.state, State::Directory { .. }) {
        return Ok(());
    }
    permit.require_needs([
        Scope::doing(operation, from.clone()).beneath(),
        Scope::doing(Operation::Create, to.clone()).beneath(),
    ])
}

/// What `path`, beneath `from`, is called beneath `to`.
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

/// Refuses a root and what holds one.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn not_a_root(permit: &ReadPermit, path: &VirtualPath) -> Result<(), CallError> {
    let mut roots = permit.roots().filter(|root| !root.is_for_one_call());
    if roots.any(|root| root.mount().starts_with(path)) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!(
                "`{path}` is or holds a root, which no call moves or removes; name something in it"
            ),
        ));
    }
    Ok(())
}

/// The changes that people see of the directories made on the way.
pub(crate) fn made(steps: &[Step]) -> Vec<Change> {
    let change = |step: &Step| match step {
        Step::MakeDirectory { path, .. } => Some(Change {
            path: path.clone(),
            op: Op::MakeDirectory,
            to: None,
            before: Entry::Absent,
            after: Entry::Directory { entries: 0 },
            diff: FileDiff::default(),
        }),
        Step::Write { .. } | Step::Move { .. } | Step::Copy { .. } | Step::Remove { .. } => None,
    };
    steps.iter().filter_map(change).collect()
}

/// The plan of a call that would change nothing.
pub(crate) fn nothing(reply: Reply) -> Plan<Work> {
    Plan {
        changes: Vec::new(),
        reply,
        cost: Cost::default(),
        steps: Vec::new().into(),
        inverse: None,
    }
}

/// What a move or copy to `to` would replace: nothing, or a regular file if `overwrite` says so.
///
/// # Errors
/// `ALREADY_EXISTS`
pub(crate) fn destination(
    permit: &ReadPermit,
    to: &VirtualPath,
    overwrite: bool,
) -> Result<Seen, Interrupt> {
    let seen = see(permit, to, Temporaries::Counted)?;
    let path = permit.actual(to);
    let hint = match seen.meta.map(|meta| meta.kind) {
        None => return Ok(seen),
        Some(Kind::File) if overwrite => return Ok(seen),
        Some(Kind::File) => "set overwrite to replace it",
        Some(Kind::Directory) => "name the whole new path, last name included",
        Some(Kind::Link | Kind::Special) => "only regular files are replaced",
    };
    let message = format!("there is something at `{path}` already; {hint}");
    Err(CallError::new(Code::AlreadyExists, message).into())
}

/// Refuses to put something into itself or in its own place.
///
/// # Errors
/// `INVALID_ARGUMENTS`
pub(crate) fn apart(from: &VirtualPath, to: &VirtualPath) -> Result<(), CallError> {
    if to.starts_with(from) || from.starts_with(to) {
        return Err(CallError::new(
            Code::InvalidArguments,
            format!("`{to}` and `{from}` are the same or lie in each other"),
        ));
    }
    Ok(())
}

/// The change that people see of a file that is replaced by another.
pub(crate) fn replaced(
    changer: &Changer,
    permit: &ReadPermit,
    (from, what): (&VirtualPath, &Seen),
    (to, over): (&VirtualPath, &Seen),
) -> Result<(Option<Change>, Option<Old>), Interrupt> {
    if over.state == State::Absent {
        return Ok((None, None));
    }
    let kept = old(permit, to)?;
    let new = match what.state {
        State::File { .. } => old(permit, from)?.and_then(|new| new.bytes),
        State::Absent | State::Object { .. } | State::Directory { .. } => None,
    };
    let shown = permit.shows(to) && permit.shows(from);
    let diff = match (kept.as_ref().and_then(|kept| kept.bytes.as_ref()), new) {
        _ if !shown => diff::hidden(),
        (Some(kept), Some(new)) => diff::of_bytes(kept, &new),
        (None, _) | (_, None) => FileDiff {
            binary: true,
            ..FileDiff::default()
        },
    };
    let change = Change {
        path: to.clone(),
        op: Op::Modify,
        to: None,
        before: changer.entry(&over.state, over.meta.as_ref(), permit.shows(to))?,
        after: changer.entry(&what.state, what.meta.as_ref(), permit.shows(from))?,
        diff,
    };
    Ok((Some(change), kept))
}

/// What puts a replaced file back where nothing is; none if it was too large to keep.
pub(crate) fn put_back(path: &VirtualPath, kept: Option<Old>) -> Option<Vec<Step>> {
    let Some(kept) = kept else {
        return Some(Vec::new());
    };
    Some(vec![Step::Write {
        path: path.clone(),
        content: kept.bytes?,
        over: State::Absent,
        mode: Some(kept.meta.mode),
    }])
}
