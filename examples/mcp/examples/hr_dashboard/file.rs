//! Reads and replaces the employees file.

use bailiwick::effect::{ContentHash, Cost, Entry, Op, Output};
use bailiwick::tool::{Interrupt, ReadPermit, WritePermit};
use bailiwick::{CallError, Change, Code, Plan, Reply, Scope, Verb, VirtualPath};

use super::staff::{Staff, diff};

/// The virtual path of the file.
pub(crate) const FILE: &str = "/hr/employees.json";

fn path() -> Result<VirtualPath, CallError> {
    VirtualPath::parse(FILE, None)
        .map_err(|error| CallError::new(Code::Internal, error.to_string()))
}

/// The needs of calls that read.
pub(crate) fn read_needs() -> Result<Vec<Scope>, CallError> {
    Ok(vec![Scope::file(Verb::Read, path()?)])
}

/// The needs of calls that write.
pub(crate) fn write_needs() -> Result<Vec<Scope>, CallError> {
    let path = path()?;
    Ok(vec![
        Scope::file(Verb::Read, path.clone()),
        Scope::file(Verb::Write, path),
    ])
}

fn io_error(error: &std::io::Error) -> CallError {
    CallError::new(
        Code::Io,
        format!("cannot access the employees file: {error}"),
    )
}

fn text(permit: &ReadPermit) -> Result<String, CallError> {
    let path = path()?;
    let (root, name) = permit.root_of(&path)?;
    root.dir()
        .read_to_string(name)
        .map_err(|error| io_error(&error))
}

pub(crate) fn read(permit: &ReadPermit) -> Result<Staff, CallError> {
    Staff::read(&text(permit)?)
}

/// A planned replacement. It is applied only if the file still has the hash `before`.
#[derive(Debug)]
pub(crate) struct Replace {
    before: ContentHash,
    after: String,
}

/// Plans `change`; `reply` creates the reply from the staff before and after.
pub(crate) fn plan<T: Output>(
    permit: &ReadPermit,
    change: impl FnOnce(&Staff) -> Result<Staff, CallError>,
    reply: impl FnOnce(&Staff, &Staff) -> (String, T),
) -> Result<Plan<Replace>, Interrupt> {
    let before = text(permit)?;
    let staff = Staff::read(&before)?;
    let changed = change(&staff)?;
    let after = changed.text()?;
    let entry = |text: &str| Entry::File {
        hash: ContentHash::of(text.as_bytes()),
        bytes: text.len() as u64,
    };
    let change = Change {
        path: path()?,
        op: Op::Modify,
        to: None,
        before: entry(&before),
        after: entry(&after),
        diff: diff(&before, &after),
    };
    let (reply_text, output) = reply(&staff, &changed);
    Ok(Plan {
        changes: vec![change],
        resources: Vec::new(),
        reply: Reply::text(reply_text, output),
        cost: Cost {
            bytes: after.len() as u64,
            files: 1,
        },
        steps: Replace {
            before: ContentHash::of(before.as_bytes()),
            after,
        },
        inverse: None,
    })
}

/// Replaces the file atomically.
pub(crate) fn apply(replace: &Replace, permit: &WritePermit) -> Result<(), CallError> {
    let _commit = permit.begin()?;
    let current = text(permit.reading())?;
    if ContentHash::of(current.as_bytes()) != replace.before {
        let message = "the file has changed; preview again";
        return Err(CallError::new(Code::StalePreview, message));
    }
    let path = path()?;
    let (root, name) = permit.reading().root_of(&path)?;
    let temporary = format!("{name}.new");
    let dir = root.dir();
    let written = dir.write(&temporary, &replace.after);
    let written = written.and_then(|()| dir.rename(&temporary, dir, name));
    written.map_err(|error| io_error(&error))
}
