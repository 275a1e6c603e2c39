//! A permit in, the file of employees beneath its root read out; and written, if it is still as it was planned with.

use bailiwick::{
    CallError, Change, Code, ContentHash, Cost, Entry, Interrupt, Op, Output, Plan, ReadPermit,
    Reply, Scope, Verb, VirtualPath, WritePermit,
};

use super::staff::{Staff, difference};

/// Where everybody stands.
pub(crate) const FILE: &str = "/hr/employees.json";

fn path() -> Result<VirtualPath, CallError> {
    VirtualPath::parse(FILE, None)
        .map_err(|error| CallError::new(Code::Internal, error.to_string()))
}

/// What a call needs that only looks.
pub(crate) fn to_read() -> Result<Vec<Scope>, CallError> {
    Ok(vec![Scope::file(Verb::Read, path()?)])
}

/// What a call needs that changes somebody.
pub(crate) fn to_write() -> Result<Vec<Scope>, CallError> {
    let path = path()?;
    Ok(vec![
        Scope::file(Verb::Read, path.clone()),
        Scope::file(Verb::Write, path),
    ])
}

fn failed(error: &std::io::Error) -> CallError {
    CallError::new(Code::Io, format!("the file of employees: {error}"))
}

fn text(permit: &ReadPermit) -> Result<String, CallError> {
    let path = path()?;
    let (root, name) = permit.root_of(&path)?;
    root.dir()
        .read_to_string(name)
        .map_err(|error| failed(&error))
}

pub(crate) fn read(permit: &ReadPermit) -> Result<Staff, CallError> {
    Staff::read(&text(permit)?)
}

/// What apply does, if the file is still what the plan saw.
#[derive(Debug)]
pub(crate) struct Replace {
    before: ContentHash,
    after: String,
}

/// Plans to make `change` of everybody; `reply` says of before and after what the tool answers.
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
        diff: difference(&before, &after),
    };
    let (said, output) = reply(&staff, &changed);
    Ok(Plan {
        changes: vec![change],
        reply: Reply::text(said, output),
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

/// Writes beside the file and takes its place, so that a reader finds the old or the new.
pub(crate) fn apply(replace: &Replace, permit: &WritePermit) -> Result<(), CallError> {
    let _commit = permit.begin()?;
    let now = text(permit.reading())?;
    if ContentHash::of(now.as_bytes()) != replace.before {
        let message = "somebody else changed the file; look again";
        return Err(CallError::new(Code::StalePreview, message));
    }
    let path = path()?;
    let (root, name) = permit.reading().root_of(&path)?;
    let beside = format!("{name}.new");
    let dir = root.dir();
    let written = dir.write(&beside, &replace.after);
    let written = written.and_then(|()| dir.rename(&beside, dir, name));
    written.map_err(|error| failed(&error))
}
