//! The sentence about a call that people read first, and the files that it affects.

use serde::Serialize;

use super::Request;
use crate::effect::{Change, EntryKind, Hunk, Op};
use crate::path::VirtualPath;
use crate::scope::{Operation, Operations, Scope, quoted};
use crate::text::{abbreviated, counted};

/// Maximum number of files that are listed.
const MAX_FILES: usize = 20;
/// Maximum number of characters of a path in a sentence.
const MAX_PATH: usize = 120;
/// Maximum number of characters of a sentence that names several changes, and of a path in it.
const MAX_NAMING: usize = 160;
const MAX_NAMING_PATH: usize = 48;

/// What a call does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileOperation {
    /// It is read.
    Read,
    /// It is created.
    Create,
    /// Its content changes.
    Modify,
    /// It is created, changed, deleted or moved; which of these is not known before the call runs.
    Write,
    /// It is deleted.
    Delete,
    /// It is moved away.
    Move,
    /// It is copied.
    Copy,
    /// It is a directory that is created.
    MakeDirectory,
    /// It is executed.
    Execute,
}

impl From<Op> for FileOperation {
    fn from(op: Op) -> Self {
        match op {
            Op::Create => Self::Create,
            Op::Modify => Self::Modify,
            Op::Delete => Self::Delete,
            Op::Move => Self::Move,
            Op::Copy => Self::Copy,
            Op::MakeDirectory => Self::MakeDirectory,
        }
    }
}

impl FileOperation {
    /// The operation of a need; [`Self::Write`] if it may be several.
    fn of(operations: Operations) -> Self {
        let mut all = operations.iter();
        match (all.next(), all.next()) {
            (Some(Operation::Read), None) => Self::Read,
            (Some(Operation::Create), None) => Self::Create,
            (Some(Operation::Change), None) => Self::Modify,
            (Some(Operation::Delete), None) => Self::Delete,
            (Some(Operation::Move), None) => Self::Move,
            (Some(Operation::Execute), None) => Self::Execute,
            _ => Self::Write,
        }
    }
}

/// One file that a call affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AffectedFile {
    /// Its path. Escape it before it is shown.
    pub path: String,
    /// What happens to it.
    pub op: FileOperation,
    /// Its size: afterwards if it is created or changed, otherwise now. `None` if it is not known.
    pub bytes: Option<u64>,
}

/// The files that a call affects: those of its preview, or without a preview those that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AffectedFiles {
    /// The first 20 files; those that are deleted come first.
    pub first: Vec<AffectedFile>,
    /// The number of files.
    pub total: u64,
    /// Their size; `None` if that of a file is not known.
    pub bytes: Option<u64>,
}

impl AffectedFiles {
    pub(super) fn of(request: &Request) -> Self {
        match changes(request) {
            Some(changes) => Self::of_changes(changes),
            None => Self::of_needs(&request.needs),
        }
    }

    fn of_needs(needs: &[Scope]) -> Self {
        let mut files = Self::default();
        for need in needs {
            if let Some(path) = need.path() {
                let op = FileOperation::of(need.operations());
                files.push(path.as_str().to_owned(), op, None);
                files.total += 1;
            }
        }
        files
    }

    fn of_changes(changes: &[Change]) -> Self {
        let mut files = Self {
            bytes: Some(0),
            ..Self::default()
        };
        let mut of_files = changes_of_files(changes);
        of_files.sort_by_key(|change| change.op != Op::Delete);
        for change in of_files {
            let op = FileOperation::from(change.op);
            let contents = change.diff.contents.as_ref();
            let contents = contents.filter(|contents| contents.files + contents.others > 0);
            let (count, bytes) = match contents {
                Some(contents) => {
                    let inside = contents.first.iter();
                    for entry in inside.filter(|entry| entry.kind != EntryKind::Directory) {
                        let bytes = (entry.kind == EntryKind::File).then_some(entry.bytes);
                        files.push(format!("{}/{}", change.path, entry.path), op, bytes);
                    }
                    let bytes = (!change.diff.hidden).then_some(contents.bytes);
                    (contents.files + contents.others, bytes)
                }
                None => {
                    let bytes = match change.op {
                        Op::Create | Op::Modify => change.after.bytes(),
                        Op::Delete | Op::Move | Op::Copy => change.before.bytes(),
                        Op::MakeDirectory => None,
                    };
                    files.push(change.path.as_str().to_owned(), op, bytes);
                    (1, bytes.or(change.is_directory().then_some(0)))
                }
            };
            files.total += count;
            files.bytes = files
                .bytes
                .zip(bytes)
                .map(|(sum, bytes)| sum.saturating_add(bytes));
        }
        files
    }

    fn push(&mut self, path: String, op: FileOperation, bytes: Option<u64>) {
        if self.first.len() < MAX_FILES {
            self.first.push(AffectedFile { path, op, bytes });
        }
    }
}

/// The changes of files that are known before the call runs.
pub(super) fn changes(request: &Request) -> Option<&[Change]> {
    let preview = request.preview.as_ref()?;
    (!preview.changes.is_empty()).then_some(preview.changes.as_slice())
}

/// The changes without created directories, or all changes if every one creates a directory.
fn changes_of_files(changes: &[Change]) -> Vec<&Change> {
    let others = |change: &&Change| change.op != Op::MakeDirectory;
    let files: Vec<&Change> = changes.iter().filter(others).collect();
    if files.is_empty() {
        changes.iter().collect()
    } else {
        files
    }
}

/// How much of its content a file loses that a tool writes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// All of it, as far as is known.
    All,
    /// More than half of it.
    Most,
    /// At most half of it.
    Some,
}

/// What the call removes from the content of a file. Tools that change parts of files can divide their changes.
pub(super) fn loss(change: &Change, request: &Request) -> Option<Loss> {
    let diff = &change.diff;
    if change.op != Op::Modify || request.divisible && !diff.whole {
        return None;
    }
    if diff.binary || diff.large || diff.hidden || diff.removed > 0 && diff.hunks.is_empty() {
        return Some(Loss::All);
    }
    let lost: usize = diff.hunks.iter().map(lost_bytes).sum();
    let lost = lost as u64;
    let before = change.before.bytes().unwrap_or_default();
    match lost {
        0 => None,
        _ if lost >= before => Some(Loss::All),
        _ if lost > before / 2 => Some(Loss::Most),
        _ => Some(Loss::Some),
    }
}

/// The size of the text that a hunk removes, without what its removed and added text have in common at their start and
/// end. A common last line end alone does not count.
fn lost_bytes(hunk: &Hunk) -> usize {
    let text = |op| {
        let lines = hunk.lines.iter().filter(move |line| line.op == op);
        lines.map(|line| line.text.as_str()).collect::<String>()
    };
    let (all, new) = (text('-'), text('+'));
    let old = all.trim_end_matches('\n').as_bytes();
    let new = new.trim_end_matches('\n').as_bytes();
    let shorter = old.len().min(new.len());
    let equal = |(one, other): &(&u8, &u8)| one == other;
    let start = old.iter().zip(new).take_while(equal).count();
    let ends = old.iter().rev().zip(new.iter().rev());
    let end = ends.take(shorter - start).take_while(equal).count();
    match start + end {
        0 => all.len(),
        common => old.len() - common,
    }
}

/// The path as people know it: relative to the root if there is only one. Ambiguous paths are quoted.
pub(super) fn name(path: &VirtualPath, roots: &[VirtualPath]) -> String {
    shortened(relative(path, roots))
}

/// The path of a folder as people know it, with a slash at its end.
pub(super) fn folder_name(path: &VirtualPath, roots: &[VirtualPath]) -> String {
    let path = relative(path, roots);
    quoted(&format!("{}/", abbreviated(path, MAX_PATH)))
}

fn relative<'p>(path: &'p VirtualPath, roots: &[VirtualPath]) -> &'p str {
    let relative = match roots {
        [root] => path.beneath(root).filter(|path| !path.is_empty()),
        _ => None,
    };
    relative.unwrap_or(path.as_str())
}

/// A path that is shortened in its middle if it is long, and quoted if it is ambiguous.
pub(super) fn shortened(path: &str) -> String {
    quoted(&abbreviated(path, MAX_PATH))
}

/// The size of `bytes`, such as `34 kB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return counted(bytes, "byte", "bytes");
    }
    let (mut unit, mut scale) = ("kB", 1000);
    for next in UNITS.into_iter().skip(1) {
        if bytes / 1000 < scale {
            break;
        }
        (unit, scale) = (next, scale * 1000);
    }
    let tenths = bytes / (scale / 10);
    if tenths < 100 && !tenths.is_multiple_of(10) {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("{} {unit}", tenths / 10)
    }
}

/// What a directory contains, such as `the 12 files and 2 folders in it (34 kB)`.
pub(super) fn contents(change: &Change) -> Option<String> {
    let contents = change.diff.contents.as_ref()?;
    let mut parts = Vec::new();
    for (count, one, several) in [
        (contents.files, "file", "files"),
        (contents.directories, "folder", "folders"),
        (
            contents.others,
            "link or special file",
            "links or special files",
        ),
    ] {
        if count > 0 {
            parts.push(counted(count, one, several));
        }
    }
    let hidden = change.diff.hidden;
    if parts.is_empty() {
        return hidden.then(|| "everything in it, which the agent may not read".to_owned());
    }
    let more = if hidden {
        ", and what the agent may not read"
    } else {
        ""
    };
    Some(format!(
        "the {} in it ({}){more}",
        parts.join(" and "),
        size(contents.bytes)
    ))
}

/// One sentence that describes the call: verb, object and count. It is the intent if the changes are not known, or are
/// not only changes of files.
pub(super) fn sentence(request: &Request) -> String {
    let files_only = request
        .preview
        .as_ref()
        .is_some_and(|preview| preview.resources.is_empty());
    let changes = changes(request).filter(|_| files_only && request.server.is_none());
    changes.map_or_else(
        || request.intent.clone(),
        |changes| of_changes(changes, request),
    )
}

fn of_changes(all: &[Change], request: &Request) -> String {
    let mut files = changes_of_files(all);
    files.retain(|change| !all.iter().any(|other| change.is_replaced_by(other)));
    let folders = all.len() - changes_of_files(all).len();
    let made = match folders {
        0 => String::new(),
        1 => " in a new folder".to_owned(),
        several => format!(" in {several} new folders"),
    };
    match files.as_slice() {
        [one] => of_change(one, all, request) + &made,
        several => of_several(several, all, request) + &made,
    }
}

fn of_change(change: &Change, all: &[Change], request: &Request) -> String {
    let roots = &request.roots;
    let mut object = name(&change.path, roots);
    if change.is_directory() {
        object = format!("the folder {}", folder_name(&change.path, roots));
        if let Some(contents) = contents(change) {
            object = format!("{object} and {contents}");
        }
    }
    let to = change
        .to
        .as_ref()
        .map(|to| name(to, roots))
        .unwrap_or_default();
    let is_over = is_over(change, all);
    match change.op {
        Op::Create | Op::MakeDirectory => format!("Create {object}"),
        Op::Modify if loss(change, request) == Some(Loss::All) => format!("Replace {object}"),
        Op::Modify => format!("Change {object}"),
        Op::Delete => match change.before.bytes() {
            Some(bytes) => format!("Delete {object} ({})", size(bytes)),
            None => format!("Delete {object}"),
        },
        Op::Move if is_over => format!("Move {object} to {to} and replace the file that is there"),
        Op::Copy if is_over => format!("Copy {object} to {to} and replace the file that is there"),
        Op::Move => format!("Move {object} to {to}"),
        Op::Copy => format!("Copy {object} to {to}"),
    }
}

/// Whether a move or copy replaces a file.
fn is_over(change: &Change, all: &[Change]) -> bool {
    all.iter().any(|other| other.is_replaced_by(change))
}

/// Several changes by operation, what is lost first. As many as fit are named, and the others are counted.
fn of_several(changes: &[&Change], all: &[Change], request: &Request) -> String {
    let naming = |most: &usize| {
        let text = naming(changes, all, request, *most);
        (text.chars().count() <= MAX_NAMING).then_some(text)
    };
    let text = [3, 2, 1].iter().find_map(naming);
    let text = text.unwrap_or_else(|| counting(changes, request));
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

const VERBS: [&str; 6] = ["delete", "replace", "create", "change", "move", "copy"];

fn verb(change: &Change, request: &Request) -> &'static str {
    match change.op {
        Op::Delete => "delete",
        Op::Modify if loss(change, request) == Some(Loss::All) => "replace",
        Op::Modify => "change",
        Op::Create | Op::MakeDirectory => "create",
        Op::Move => "move",
        Op::Copy => "copy",
    }
}

/// The changes, of which the first `most` of each operation are named.
fn naming(changes: &[&Change], all: &[Change], request: &Request, most: usize) -> String {
    let named = |path: &VirtualPath, end: &str| {
        let path = relative(path, &request.roots);
        quoted(&format!("{}{end}", abbreviated(path, MAX_NAMING_PATH)))
    };
    let object = |change: &&Change| {
        let end = if change.is_directory() { "/" } else { "" };
        let mut object = named(&change.path, end);
        if let Some(to) = &change.to {
            let preposition = if is_over(change, all) { "over" } else { "to" };
            object = format!("{object} {preposition} {}", named(to, end));
        }
        let inside = change.diff.contents.as_ref();
        if let Some(inside) = inside.filter(|_| change.op != Op::MakeDirectory) {
            let files = counted(inside.files + inside.others, "file", "files");
            let more = if change.diff.hidden { " or more" } else { "" };
            object = format!("{object} ({files}{more})");
        }
        object
    };
    let mut parts: Vec<String> = Vec::new();
    for word in VERBS {
        let of_word = || changes.iter().filter(|one| verb(one, request) == word);
        let mut objects: Vec<String> = of_word()
            .copied()
            .take(most)
            .map(|one| object(&one))
            .collect();
        let more = of_word().count() - objects.len();
        if more > 0 {
            objects.push(format!("{more} more"));
        }
        let Some(last) = objects.pop() else {
            continue;
        };
        parts.push(if objects.is_empty() {
            format!("{word} {last}")
        } else {
            format!("{word} {} and {last}", objects.join(", "))
        });
    }
    parts.join("; ")
}

/// The changes, only counted.
fn counting(changes: &[&Change], request: &Request) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in VERBS {
        let of_word = || changes.iter().filter(|one| verb(one, request) == word);
        let folders = of_word().filter(|change| change.is_directory()).count();
        let files = of_word().count() - folders;
        if files > 0 {
            parts.push(format!("{word} {}", counted(files as u64, "file", "files")));
        }
        if folders > 0 {
            let folders = counted(folders as u64, "folder", "folders");
            parts.push(format!("{word} {folders}"));
        }
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{ContentHash, Entry, FileDiff};
    use crate::fixtures::{deleted_directory, request, shown};

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    fn file(bytes: u64) -> Entry {
        Entry::File {
            hash: ContentHash::of(b""),
            bytes,
        }
    }

    fn change(op: Op, at: &str, to: Option<&str>) -> Change {
        let (before, after) = match op {
            Op::Create => (Entry::Absent, file(2)),
            Op::Delete => (file(2), Entry::Absent),
            Op::MakeDirectory => (Entry::Absent, Entry::Directory { entries: 0 }),
            Op::Modify | Op::Move | Op::Copy => (file(2), file(3)),
        };
        Change {
            path: path(at),
            op,
            to: to.map(path),
            before,
            after,
            diff: FileDiff::default(),
        }
    }

    fn asked(changes: Vec<Change>) -> Request {
        let mut request = shown(request(1, 1, &["write:file:/r/x"]));
        request.preview.as_mut().unwrap().changes = changes;
        request.describe();
        request
    }

    #[track_caller]
    fn check(changes: Vec<Change>, expected: &str) {
        assert_eq!(asked(changes).sentence, expected);
    }

    #[test]
    fn sentence_has_verb_object_and_count() {
        use Op::{Copy, Create, Delete, MakeDirectory, Modify, Move};
        let replaced = |removed| {
            let mut change = change(Modify, "/r/src/main.rs", None);
            change.diff.removed = removed;
            change
        };
        check(vec![change(Create, "/r/a", None)], "Create a");
        check(vec![replaced(0)], "Change src/main.rs");
        check(vec![replaced(1)], "Replace src/main.rs");
        check(vec![change(Delete, "/r/a", None)], "Delete a (2 bytes)");
        check(vec![change(Delete, "/r", None)], "Delete /r (2 bytes)");
        check(vec![change(Move, "/r/a", Some("/r/b"))], "Move a to b");
        check(
            vec![
                change(Modify, "/r/b", None),
                change(Copy, "/r/a", Some("/r/b")),
            ],
            "Copy a to b and replace the file that is there",
        );
        check(
            vec![change(MakeDirectory, "/r/d", None)],
            "Create the folder d/",
        );
        check(
            vec![
                change(MakeDirectory, "/r/d", None),
                change(MakeDirectory, "/r/d/e", None),
                change(Create, "/r/d/e/f", None),
            ],
            "Create d/e/f in 2 new folders",
        );
        check(
            vec![
                change(Modify, "/r/a", None),
                change(Modify, "/r/b", None),
                change(Delete, "/r/c", None),
            ],
            "Delete c; change a and b",
        );
        check(
            vec![
                deleted_directory("/r/old", 12, 3),
                change(Create, "/r/c", None),
            ],
            "Delete old/ (12 files); create c",
        );
        check(
            vec![deleted_directory("/r/old", 12, 3)],
            "Delete the folder old/ and the 12 files in it (12 bytes)",
        );
        check(
            vec![deleted_directory("/r/old and new", 0, 0)],
            "Delete the folder \"old and new/\"",
        );
    }

    #[test]
    fn sentence_about_several_changes_names_as_many_as_fit_and_counts_the_others() {
        use Op::{Create, Delete, Modify, Move};
        let many = |op, count: usize, length: usize| -> Vec<Change> {
            let names = (0..count).map(|n| format!("/r/{n}{}", "x".repeat(length)));
            names.map(|name| change(op, &name, None)).collect()
        };
        check(many(Delete, 3, 0), "Delete 0, 1 and 2");
        check(many(Delete, 5, 0), "Delete 0, 1, 2 and 2 more");
        let x = "x".repeat(40);
        check(
            many(Create, 9, 40),
            &format!("Create 0{x}, 1{x}, 2{x} and 6 more"),
        );
        let both = || [many(Create, 9, 40), many(Delete, 9, 40)].concat();
        check(
            both(),
            &format!("Delete 0{x} and 8 more; create 0{x} and 8 more"),
        );
        let mut replaced = many(Modify, 2, 40);
        replaced[0].diff.removed = 1;
        check(
            [both(), replaced].concat(),
            "Delete 9 files; replace 1 file; create 9 files; change 1 file",
        );
        check(
            vec![
                change(Move, "/r/a", Some("/r/b")),
                change(Modify, "/r/b", None),
                change(Move, "/r/c", Some("/r/d")),
            ],
            "Move a over b and c to d",
        );
        let mut hidden = deleted_directory("/r/old", 1, 1);
        hidden.diff.hidden = true;
        check(
            vec![hidden, change(Create, "/r/a; delete b", None)],
            "Delete old/ (1 file or more); create \"a; delete b\"",
        );
    }

    #[test]
    fn edit_is_a_change_although_it_removes_lines() {
        let mut edit = change(Op::Modify, "/r/a", None);
        edit.diff.removed = 1;
        let mut request = asked(vec![edit]);
        request.divisible = true;
        request.describe();
        assert_eq!(request.sentence, "Change a");
    }

    #[test]
    fn intent_is_the_sentence_if_changes_are_unknown_or_of_a_server() {
        assert_eq!(asked(Vec::new()).sentence, "Edit a file");
        let mut request = asked(vec![change(Op::Create, "/r/a", None)]);
        request.server = Some("hub".into());
        request.describe();
        assert_eq!(request.sentence, "Edit a file");
    }

    #[test]
    fn hidden_contents_of_a_directory_are_mentioned() {
        let mut change = deleted_directory("/r/old", 1, 1);
        change.diff.hidden = true;
        let request = asked(vec![change]);
        assert_eq!(
            request.sentence,
            "Delete the folder old/ and the 1 file in it (1 byte), and what the agent may not read"
        );
        assert_eq!(request.files.bytes, None);
    }

    #[test]
    fn files_are_listed_up_to_twenty_and_counted() {
        let files = asked(vec![deleted_directory("/r/old", 30, 30)]).files;
        assert_eq!(
            (files.first.len(), files.total, files.bytes),
            (20, 30, Some(30))
        );
        let first = AffectedFile {
            path: "/r/old/f0".to_owned(),
            op: FileOperation::Delete,
            bytes: Some(1),
        };
        assert_eq!(files.first[0], first);
        let deleted = deleted_directory("/r/old", 1, 1);
        let files = asked(vec![change(Op::Create, "/r/a", None), deleted]).files;
        let paths: Vec<&str> = files.first.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["/r/old/f0", "/r/a"]);
        let mut unknown = request(
            1,
            1,
            &["write:file:/r/x", "read:file:/r/y", "execute:shell"],
        );
        unknown.describe();
        let operations: Vec<FileOperation> = unknown.files.first.iter().map(|it| it.op).collect();
        assert_eq!(operations, [FileOperation::Write, FileOperation::Read]);
        assert_eq!((unknown.files.total, unknown.files.bytes), (2, None));
    }

    #[test]
    fn sizes_have_two_digits_at_most_below_100() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (999, "999 bytes"),
            (1000, "1 kB"),
            (1234, "1.2 kB"),
            (34_567, "34 kB"),
            (999_999, "999 kB"),
            (1_000_000, "1 MB"),
            (u64::MAX, "18446 PB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
