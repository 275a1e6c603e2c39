//! Reasons to look closely at a call before it is allowed.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::Request;
use super::description::{Loss, changes, contents, folder_name, loss, name, shortened, size};
use crate::effect::{Change, Op};
use crate::path::VirtualPath;
use crate::policy::fold;
use crate::scope::{Coverage, Detail, Operation, Reach, Scope, Verb};
use crate::text::{counted, escape, is_deceptive};
use crate::tool::{GET_PROMPT, READ_RESOURCE};

use DangerLevel::{Caution, Severe};

/// Maximum number of names or characters in one text.
const MAX_NAMED: usize = 3;

/// Kind of a [`Danger`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DangerKind {
    /// Something is deleted.
    Delete,
    /// A folder is deleted with everything in it.
    Recursive,
    /// All or most of an existing file's content is replaced.
    Overwrite,
    /// A move or copy replaces an existing file.
    MoveOver,
    /// Text of a file is removed or replaced, and that cannot be undone.
    Irreversible,
    /// Something is executed.
    Execute,
    /// A file looks like a secret, such as a key.
    Secret,
    /// A file is protected, since programs run commands from it or agents follow it.
    Protected,
    /// A name or content has characters that are invisible or change how text is displayed.
    HiddenCharacters,
    /// A file is outside the served roots.
    Outside,
    /// The network is used.
    Network,
    /// The tool is provided by a third-party server, so nobody can check what it does.
    ThirdParty,
}

/// How bad the consequences of a call may be, as far as it is known. A call without a [`Danger`] does nothing that this table
/// names: it reads in the roots, creates a file, or changes lines of one in a way that can be undone.
///
/// | the call | level |
/// |---|---|
/// | deletes something | [`Severe`](Self::Severe) |
/// | replaces the whole content of a file, or may do so without a preview | [`Severe`](Self::Severe) |
/// | replaces more than half of a file by a tool that writes whole files | [`Caution`](Self::Caution) |
/// | moves or copies over a file | [`Severe`](Self::Severe) |
/// | removes or replaces lines of a file, and that cannot be undone | [`Caution`](Self::Caution) |
/// | uses a file that looks like a secret | [`Severe`](Self::Severe) |
/// | changes a file with a protected name | [`Severe`](Self::Severe) |
/// | has hidden characters in names or in new content | [`Severe`](Self::Severe) |
/// | uses the network | [`Severe`](Self::Severe) |
/// | runs something | [`Severe`](Self::Severe) |
/// | runs something that changes nothing that outlasts the call, and sends nothing to other machines | [`Caution`](Self::Caution) |
/// | uses a tool of a third-party server | [`Severe`](Self::Severe) |
/// | uses such a tool that only reads, as it says | [`Caution`](Self::Caution) |
/// | uses a file outside the roots | [`Caution`](Self::Caution) |
///
/// Pages show severe dangers in red and the others in amber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DangerLevel {
    /// Unusual, but little can be lost.
    Caution,
    /// Something may be lost or revealed for good, or nobody can check it.
    Severe,
}

/// A reason to look closely at a call before it is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Danger {
    /// Its kind.
    pub kind: DangerKind,
    /// How bad it is.
    pub level: DangerLevel,
    /// A sentence for people, without a period. It quotes names of files, so escape it before it is shown.
    pub text: String,
    /// Facts for experts, such as the names of the hidden characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl DangerLevel {
    /// The word before the text of a danger, for prompts that consist of text.
    #[doc(hidden)]
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Severe => "Careful",
            Self::Caution => "Note",
        }
    }
}

impl Danger {
    /// Creates a danger.
    #[must_use]
    pub fn new(kind: DangerKind, level: DangerLevel, text: impl Into<String>) -> Self {
        Self {
            kind,
            level,
            text: text.into(),
            detail: None,
        }
    }
}

impl Request {
    /// Returns the sentence and the dangers on one line, escaped, such as for a title.
    #[must_use]
    pub fn summary(&self) -> String {
        escape(&self.sentence).into_owned() + &self.warning()
    }

    /// The dangers as escaped sentences with a period before each, the severe ones first; empty if there are none.
    pub(super) fn warning(&self) -> String {
        let warning = |level: DangerLevel| {
            let dangers = self.dangers.iter().filter(|danger| danger.level == level);
            let texts: Vec<&str> = dangers.map(|danger| danger.text.as_str()).collect();
            if texts.is_empty() {
                return String::new();
            }
            format!(". {}: {}", level.word(), escape(&texts.join("; ")))
        };
        warning(DangerLevel::Severe) + &warning(DangerLevel::Caution)
    }
}

/// The dangers of a call.
pub(super) fn dangers(request: &Request) -> Vec<Danger> {
    let mut dangers = match changes(request) {
        Some(changes) => of_changes(changes, request),
        None => of_needs(request),
    };
    let may = |kind, is_of_kind: fn(&Scope) -> bool| {
        let needs = request.needs.iter().filter(|need| is_of_kind(need));
        let texts: Vec<String> = needs.map(|need| Coverage::of(need).sentence()).collect();
        (!texts.is_empty()).then(|| Danger::new(kind, Severe, format!("May {}", listed(texts))))
    };
    let programs: Vec<String> = request.needs.iter().filter_map(program).collect();
    if !programs.is_empty() {
        dangers.push(running(&listed(programs), request));
    }
    if request.server.is_none() {
        dangers.extend(may(DangerKind::Execute, |need| {
            let resource = need.resource();
            need.verb() == Verb::Execute && !resource.is_command() && !resource.is_network()
        }));
    }
    dangers.extend(may(DangerKind::Network, |need| {
        need.resource().is_network()
    }));
    let secrets: Vec<String> = paths(request)
        .into_iter()
        .filter(|path| is_secret(path))
        .collect();
    if !secrets.is_empty() {
        let one = secrets.len() == 1;
        let look = if one {
            "looks like a secret"
        } else {
            "look like secrets"
        };
        let names = listed(secrets.iter().map(|path| named(path, request)));
        let text = format!("{names} {look}");
        dangers.push(Danger::new(DangerKind::Secret, Severe, text));
    }
    for (need, reason) in &request.protected {
        let object = need.path().map(|path| name(path, &request.roots));
        let object = object.unwrap_or_else(|| Coverage::of(need).sentence());
        dangers.push(Danger::new(
            DangerKind::Protected,
            Severe,
            format!("{object} is sensitive: {reason}"),
        ));
    }
    dangers.extend(hidden_characters(request));
    let outside = |path: &&VirtualPath| !request.roots.iter().any(|root| path.starts_with(root));
    let outside = request.needs.iter().filter_map(Scope::path).filter(outside);
    let outside: BTreeSet<&VirtualPath> = outside.collect();
    if !outside.is_empty() {
        // A sentence about one file has its name.
        let text = if outside.len() == 1 && paths(request).len() == 1 {
            "This is outside your project".to_owned()
        } else {
            let names = listed(outside.into_iter().map(|path| shortened(path.as_str())));
            format!("Outside your project: {names}")
        };
        dangers.push(Danger::new(DangerKind::Outside, Caution, text));
    }
    dangers.extend(third_party(request));
    dangers.sort_by_key(|danger| (std::cmp::Reverse(danger.level), danger.kind));
    dangers
}

/// Running programs: whether they can do something that does not end with the call.
fn running(programs: &str, request: &Request) -> Danger {
    let preview = request.preview.as_ref();
    let mut known = preview.iter().flat_map(|preview| &preview.resources);
    let is_confined = preview.is_some_and(|preview| !preview.resources.is_empty())
        && known.all(|change| change.confined);
    let (level, does) = if is_confined {
        let does = "cannot change your files or use the network";
        (Caution, does)
    } else {
        let does = "may change files or use the network, which cannot be undone";
        (Severe, does)
    };
    let text = format!("Runs a program that {does}: {programs}");
    Danger::new(DangerKind::Execute, level, text)
}

/// A tool of a third-party server. The server's own words are quoted, after what they are worth.
fn third_party(request: &Request) -> Option<Danger> {
    let server = shortened(request.server.as_deref()?);
    let name = request.tool.as_str().rsplit_once("__");
    let (level, mut text) = if let Some((_, READ_RESOURCE | GET_PROMPT)) = name {
        let text = format!("What {server} does when it answers this cannot be verified");
        (Caution, text)
    } else if request.needs.iter().all(|need| need.verb() == Verb::Read) {
        let text = format!("{server} declares this read-only, which cannot be verified");
        (Caution, text)
    } else {
        let text = format!("What {server} does cannot be checked or undone here");
        (Severe, text)
    };
    if let Some(says) = &request.server_says {
        text += &format!("; it describes it as \"{}\"", says.replace('"', "'"));
    }
    Some(Danger::new(DangerKind::ThirdParty, level, text))
}

/// The program that a need is about.
fn program(need: &Scope) -> Option<String> {
    match need.detail() {
        Detail::Segments(name) if need.resource().is_command() => Some(shortened(name)),
        _ => None,
    }
}

/// The first texts, and the number of further ones.
fn listed(texts: impl IntoIterator<Item = String>) -> String {
    let mut texts: Vec<String> = texts.into_iter().collect();
    let more = texts.len().saturating_sub(MAX_NAMED);
    texts.truncate(MAX_NAMED);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    let last = texts.pop().unwrap_or_default();
    if texts.is_empty() {
        last
    } else {
        format!("{} and {last}", texts.join(", "))
    }
}

fn named(path: &str, request: &Request) -> String {
    match VirtualPath::parse(path, None) {
        Ok(path) => name(&path, &request.roots),
        Err(_) => shortened(path),
    }
}

/// What the planned changes destroy.
fn of_changes(all: &[Change], request: &Request) -> Vec<Danger> {
    let name = |change: &&Change| name(&change.path, &request.roots);
    let mut dangers = Vec::new();
    let deleted = || all.iter().filter(|change| change.op == Op::Delete);
    let folders = || deleted().filter(|change| change.is_directory());
    let files: Vec<&Change> = deleted().filter(|change| !change.is_directory()).collect();
    if !files.is_empty() {
        let bytes: Option<u64> = files.iter().map(|change| change.before.bytes()).sum();
        let bytes = bytes
            .map(|bytes| format!(" ({})", size(bytes)))
            .unwrap_or_default();
        let what = match files.as_slice() {
            [one] => name(one),
            several => counted(several.len() as u64, "file", "files"),
        };
        dangers.push(Danger::new(
            DangerKind::Delete,
            Severe,
            format!("Deletes {what}{bytes}"),
        ));
    }
    for folder in folders().take(MAX_NAMED) {
        let object = folder_name(&folder.path, &request.roots);
        let text = match contents(folder) {
            Some(contents) => format!("Deletes the folder {object} and {contents}"),
            None => format!("Deletes the folder {object}, which is empty"),
        };
        dangers.push(Danger::new(DangerKind::Delete, Severe, text));
    }
    let full: Vec<String> = folders()
        .filter(|folder| contents(folder).is_some())
        .map(|folder| folder_name(&folder.path, &request.roots))
        .collect();
    if !full.is_empty() {
        let text = format!("Deletes everything in {}", listed(full));
        dangers.push(Danger::new(DangerKind::Recursive, Severe, text));
    }
    let (moved, replaced): (Vec<&Change>, Vec<&Change>) = all
        .iter()
        .filter(|change| change.op == Op::Modify)
        .partition(|change| all.iter().any(|other| change.is_replaced_by(other)));
    dangers.extend(moved_over(&moved, &request.roots));
    dangers.extend(overwritten(&replaced, request));
    dangers
}

/// What is lost of the content of files that are changed.
fn overwritten(changed: &[&Change], request: &Request) -> Vec<Danger> {
    let name = |change: &&Change| name(&change.path, &request.roots);
    let mut dangers = Vec::new();
    let names = |degree: Loss| -> Option<String> {
        let of_degree = |change: &&&Change| loss(change, request) == Some(degree);
        let files: Vec<String> = changed.iter().filter(of_degree).map(name).collect();
        (!files.is_empty()).then(|| listed(files))
    };
    if let Some(names) = names(Loss::All) {
        let text = format!("Replaces everything in {names}");
        dangers.push(Danger::new(DangerKind::Overwrite, Severe, text));
    }
    if let Some(names) = names(Loss::Most) {
        let text = format!("Removes or replaces more than half of {names}");
        dangers.push(Danger::new(DangerKind::Overwrite, Caution, text));
    }
    let undoable = request
        .preview
        .as_ref()
        .is_some_and(|preview| preview.undoable);
    let is_lost = |change: &&&Change| {
        !undoable && change.diff.removed > 0 && loss(change, request) != Some(Loss::All)
    };
    let lost: Vec<&&Change> = changed.iter().filter(is_lost).collect();
    if !lost.is_empty() {
        let lines: usize = lost.iter().map(|change| change.diff.removed).sum();
        let lines = counted(lines as u64, "line", "lines");
        let names = listed(lost.into_iter().map(name));
        let text = format!("Removes or replaces {lines} of {names}, which cannot be undone");
        dangers.push(Danger::new(DangerKind::Irreversible, Caution, text));
    }
    dangers
}

/// The files that others are moved or copied over.
fn moved_over(files: &[&Change], roots: &[VirtualPath]) -> Option<Danger> {
    if files.is_empty() {
        return None;
    }
    let names = listed(files.iter().map(|change| name(&change.path, roots)));
    let text = format!("Replaces the old content of {names}");
    Some(Danger::new(DangerKind::MoveOver, Severe, text))
}

/// What a call without a preview may destroy.
fn of_needs(request: &Request) -> Vec<Danger> {
    let of_files = || {
        request
            .needs
            .iter()
            .filter_map(|need| Some((need, need.path()?)))
    };
    let name = |path: &VirtualPath| name(path, &request.roots);
    let mut dangers = Vec::new();
    for (need, path) in of_files() {
        let operations = need.operations();
        if !operations.includes(Operation::Delete.into()) {
            continue;
        }
        let verb = if operations.len() == 1 {
            "Deletes"
        } else {
            "May delete"
        };
        dangers.push(Danger::new(
            DangerKind::Delete,
            Severe,
            format!("{verb} {}", name(path)),
        ));
        if need.reach() == Reach::Beneath {
            let text = format!("{verb} everything in {}", name(path));
            dangers.push(Danger::new(DangerKind::Recursive, Severe, text));
        }
    }
    let both = [Operation::Create, Operation::Change].into_iter().collect();
    let replaced: Vec<String> = of_files()
        .filter(|(need, _)| need.operations().includes(both))
        .map(|(_, path)| name(path))
        .collect();
    if !replaced.is_empty() {
        let is_one = replaced.len() == 1;
        let files = if is_one && paths(request).len() == 1 {
            "this file".to_owned()
        } else {
            listed(replaced)
        };
        let text = if is_one {
            format!("If {files} exists already, its old content is replaced and may be lost")
        } else {
            format!("If {files} exist already, their old content is replaced and may be lost")
        };
        dangers.push(Danger::new(DangerKind::Overwrite, Severe, text));
    }
    dangers
}

/// The paths that the call names, and those in directories that it deletes, each once.
fn paths(request: &Request) -> BTreeSet<String> {
    let needs = request.needs.iter().filter_map(Scope::path);
    let mut paths: BTreeSet<String> = needs.map(ToString::to_string).collect();
    for change in changes(request).unwrap_or_default() {
        paths.insert(change.path.to_string());
        paths.extend(change.to.iter().map(ToString::to_string));
        let inside = change
            .diff
            .contents
            .iter()
            .flat_map(|contents| &contents.first);
        paths.extend(inside.map(|entry| format!("{}/{}", change.path, entry.path)));
    }
    paths
}

/// Names of files that hold secrets.
const SECRET_FILES: [&str; 16] = [
    ".env",
    ".netrc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".vault-token",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials",
    "credentials.json",
    "secrets.json",
    "secrets.yaml",
];
/// Names of folders that hold secrets.
const SECRET_FOLDERS: [&str; 4] = [".ssh", ".gnupg", ".aws", ".kube"];
/// Ends of names of files that hold secrets.
const SECRET_ENDS: [&str; 7] = [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];

/// Whether a file holds a secret, by its name in any spelling.
fn is_secret(path: &str) -> bool {
    let folded = fold(path);
    let mut names = folded.rsplit('/');
    let file = names.next().unwrap_or_default();
    SECRET_FILES.contains(&file)
        || file.starts_with(".env.")
        || SECRET_ENDS.iter().any(|end| file.ends_with(end))
        || SECRET_FOLDERS.contains(&file)
        || names.any(|folder| SECRET_FOLDERS.contains(&folder))
}

/// The hidden characters in names and in new content.
fn hidden_characters(request: &Request) -> Vec<Danger> {
    let mut dangers = Vec::new();
    for path in paths(request) {
        let found: BTreeSet<char> = path.chars().filter(|c| is_deceptive(*c)).collect();
        if !found.is_empty() {
            let what = format!("The name {}", named(&path, request));
            dangers.push(hidden(&what, &found));
        }
    }
    match changes(request) {
        Some(changes) => {
            for change in changes {
                let lines = change.diff.hunks.iter().flat_map(|hunk| &hunk.lines);
                let added = lines.filter(|line| line.op == '+');
                let found: BTreeSet<char> = added
                    .flat_map(|line| hidden_in_content(&line.text))
                    .collect();
                if !found.is_empty() {
                    let file = name(change.to.as_ref().unwrap_or(&change.path), &request.roots);
                    dangers.push(hidden(&format!("The new text of {file}"), &found));
                }
            }
        }
        None => {
            let mut found = BTreeSet::new();
            in_value(&request.arguments, &mut found);
            if !found.is_empty() {
                dangers.push(hidden("The data that is sent", &found));
            }
        }
    }
    let more = dangers.len().saturating_sub(MAX_NAMED);
    dangers.truncate(MAX_NAMED);
    if more > 0 {
        let places = counted(more as u64, "more place contains", "more places contain");
        let text = format!("{places} invisible characters");
        dangers.push(Danger::new(DangerKind::HiddenCharacters, Severe, text));
    }
    dangers
}

/// The danger of hidden characters in `what`.
fn hidden(what: &str, found: &BTreeSet<char>) -> Danger {
    let text = format!("{what} contains invisible characters that can hide what it really says");
    Danger {
        detail: Some(characters(found)),
        ..Danger::new(DangerKind::HiddenCharacters, Severe, text)
    }
}

/// Adds the hidden characters of all texts in `value`.
fn in_value(value: &Value, found: &mut BTreeSet<char>) {
    match value {
        Value::String(text) => found.extend(hidden_in_content(text)),
        Value::Array(values) => values.iter().for_each(|value| in_value(value, found)),
        Value::Object(members) => {
            for (key, value) in members {
                found.extend(hidden_in_content(key));
                in_value(value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The hidden characters of a text. Line ends and tabs are not hidden, nor are a byte order mark at the start, and joiners
/// and variation selectors after a letter or symbol that is not ASCII, since scripts and emoji use them.
fn hidden_in_content(text: &str) -> impl Iterator<Item = char> {
    let mut before = None;
    text.chars().filter(move |c| {
        let previous = before.replace(*c);
        let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}');
        let follows = previous.is_some_and(|c| !c.is_ascii() && (!is_deceptive(c) || is_joiner(c)));
        let is_ordinary = matches!(c, '\n' | '\r' | '\t')
            || *c == '\u{feff}' && previous.is_none()
            || joins && follows;
        is_deceptive(*c) && !is_ordinary
    })
}

fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{fe0f}')
}

/// The first characters with their names, such as `U+202E right-to-left override`.
fn characters(found: &BTreeSet<char>) -> String {
    listed(
        found
            .iter()
            .map(|c| format!("U+{:04X} {}", u32::from(*c), name_of(*c))),
    )
}

fn name_of(c: char) -> &'static str {
    match c {
        '\u{1b}' => "escape",
        '\u{8}' => "backspace",
        '\u{ad}' => "soft hyphen",
        '\u{61c}' => "Arabic letter mark",
        '\u{200b}' => "zero width space",
        '\u{200c}' => "zero width non-joiner",
        '\u{200d}' => "zero width joiner",
        '\u{200e}' => "left-to-right mark",
        '\u{200f}' => "right-to-left mark",
        '\u{2028}' => "line separator",
        '\u{2029}' => "paragraph separator",
        '\u{202a}' => "left-to-right embedding",
        '\u{202b}' => "right-to-left embedding",
        '\u{202c}' => "pop directional formatting",
        '\u{202d}' => "left-to-right override",
        '\u{202e}' => "right-to-left override",
        '\u{2060}' => "word joiner",
        '\u{2066}' => "left-to-right isolate",
        '\u{2067}' => "right-to-left isolate",
        '\u{2068}' => "first strong isolate",
        '\u{2069}' => "pop directional isolate",
        '\u{feff}' => "zero width no-break space",
        '\u{e0000}'..='\u{e007f}' => "tag character",
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => "variation selector",
        c if c.is_control() => "control character",
        _ => "invisible character",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{ContentHash, Entry, FileDiff, Hunk, HunkLine, ResourceChange};
    use crate::fixtures::{changing, deleted_directory, request, shown};
    use crate::scope::Operations;

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    fn file() -> Entry {
        Entry::File {
            hash: ContentHash::of(b""),
            bytes: 2,
        }
    }

    fn change(op: Op, at: &str) -> Change {
        Change {
            path: path(at),
            op,
            to: None,
            before: file(),
            after: file(),
            diff: FileDiff::default(),
        }
    }

    fn of(mut request: Request, changes: Vec<Change>) -> Vec<(DangerKind, String)> {
        if !changes.is_empty() {
            request = shown(request);
            request.preview.as_mut().unwrap().changes = changes;
        }
        request.describe();
        let dangers = request.dangers.into_iter();
        dangers.map(|danger| (danger.kind, danger.text)).collect()
    }

    #[track_caller]
    fn check(changes: Vec<Change>, expected: &[(DangerKind, &str)]) {
        let found = of(request(1, 1, &["write:file:/r/x"]), changes);
        let found: Vec<(DangerKind, &str)> = found
            .iter()
            .map(|(kind, text)| (*kind, text.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn destructive_changes_are_dangers_and_creating_is_not() {
        use DangerKind::{Delete, MoveOver, Overwrite, Recursive};
        check(vec![change(Op::Create, "/r/a")], &[]);
        check(vec![change(Op::Modify, "/r/a")], &[]);
        check(
            vec![change(Op::Delete, "/r/a")],
            &[(Delete, "Deletes a (2 bytes)")],
        );
        check(
            vec![deleted_directory("/r/old", 12, 12)],
            &[
                (
                    Delete,
                    "Deletes the folder old/ and the 12 files in it (12 bytes)",
                ),
                (Recursive, "Deletes everything in old/"),
            ],
        );
        check(
            vec![deleted_directory("/r/old", 0, 0)],
            &[(Delete, "Deletes the folder old/, which is empty")],
        );
        let mut replaced = change(Op::Modify, "/r/a");
        replaced.diff.removed = 1;
        check(
            vec![replaced.clone()],
            &[(Overwrite, "Replaces everything in a")],
        );
        let mut moved = change(Op::Move, "/r/b");
        moved.to = Some(path("/r/a"));
        check(
            vec![replaced, moved],
            &[(MoveOver, "Replaces the old content of a")],
        );
    }

    #[test]
    fn needs_without_a_preview_say_what_may_be_destroyed() {
        use DangerKind::{Delete, Overwrite, Recursive};
        let with = |operations: &[Operation], beneath: bool| {
            let mut request = request(1, 1, &["write:file:/r/x"]);
            let operations: Operations = operations.iter().copied().collect();
            let need = request.needs[0].clone().only(operations);
            request.needs = vec![if beneath { need.beneath() } else { need }];
            of(request, Vec::new())
        };
        let text = |kind, text: &str| (kind, text.to_owned());
        assert_eq!(with(&[Operation::Create], false), []);
        assert_eq!(with(&[Operation::Change], false), []);
        assert_eq!(
            with(&[Operation::Delete], true),
            [
                text(Delete, "Deletes x"),
                text(Recursive, "Deletes everything in x"),
            ]
        );
        assert_eq!(
            with(&[Operation::Create, Operation::Change], false),
            [text(
                Overwrite,
                "If this file exists already, its old content is replaced and may be lost"
            )]
        );
        assert_eq!(
            with(&[Operation::Create, Operation::Delete], false),
            [text(Delete, "May delete x")]
        );
    }

    #[test]
    fn executing_network_and_outside_paths_are_dangers() {
        use DangerKind::{Execute, Network, Outside};
        let kinds =
            |need: &str| -> Vec<(DangerKind, String)> { of(request(1, 1, &[need]), Vec::new()) };
        let text = |kind, text: &str| vec![(kind, text.to_owned())];
        assert_eq!(kinds("read:file:/r/x"), []);
        assert_eq!(
            kinds("read:file:/tmp/x"),
            text(Outside, "This is outside your project")
        );
        assert_eq!(
            kinds("execute:cli:git"),
            text(Execute, "May execute cli git")
        );
        assert_eq!(
            kinds("execute:command:git"),
            text(
                Execute,
                "Runs a program that may change files or use the network, which cannot be undone: git"
            )
        );
        assert_eq!(
            kinds("execute:network:crates.io:443"),
            text(Network, "May connect to crates.io:443")
        );
        assert_eq!(
            kinds("read:network:example.com"),
            text(Network, "May read network example.com")
        );
    }

    #[test]
    fn secret_names_are_found_in_any_spelling_and_in_deleted_folders() {
        for secret in [
            "/r/.env",
            "/r/.ENV",
            "/r/.env.local",
            "/r/.e\u{200b}nv",
            "/r/keys/server.pem",
            "/r/.ssh/known_hosts",
            "/r/.ssh",
            "/r/id_ed25519",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
        for plain in [
            "/r/env",
            "/r/environment",
            "/r/main.rs",
            "/r/keys",
            "/r/ssh/x",
        ] {
            assert!(!is_secret(plain), "{plain}");
        }
        let mut folder = deleted_directory("/r/old", 1, 1);
        folder.diff.contents.as_mut().unwrap().first[0].path = "a/.env".to_owned();
        let found = of(request(1, 1, &["write:file:/r/old"]), vec![folder]);
        let expected = (
            DangerKind::Secret,
            "old/a/.env looks like a secret".to_owned(),
        );
        assert!(found.contains(&expected), "{found:?}");
    }

    #[test]
    fn danger_of_rewriting_a_file_depends_on_how_much_is_lost_and_whether_it_can_be_undone() {
        use DangerKind::{Irreversible, Overwrite};
        let check = |change: Change, undoable: bool, expected: &[(DangerKind, &str)]| {
            let mut request = shown(request(1, 1, &["write:file:/r/x"]));
            let preview = request.preview.as_mut().unwrap();
            preview.changes = vec![change];
            preview.undoable = undoable;
            request.describe();
            let found = request.dangers.iter();
            let found: Vec<_> = found.map(|it| (it.kind, it.text.as_str())).collect();
            assert_eq!(found, expected);
        };
        let lost = (
            Irreversible,
            "Removes or replaces 1 line of a, which cannot be undone",
        );
        let most = (Overwrite, "Removes or replaces more than half of a");
        let all = (Overwrite, "Replaces everything in a");
        check(rewritten(3, "2\n"), true, &[]);
        check(rewritten(3, "2\n"), false, &[lost]);
        check(rewritten(1, "2\n"), true, &[most]);
        check(rewritten(1, "2\n"), false, &[most, lost]);
        check(rewritten(3, "1111, 2\n"), true, &[]);
        check(rewritten(0, "2\n"), true, &[all]);
        check(rewritten(0, "2\n"), false, &[all]);
    }

    /// A change of the first of some lines by a tool that writes whole files.
    fn rewritten(kept: usize, added: &str) -> Change {
        let mut change = change(Op::Modify, "/r/a");
        let line = |op, text: &str| HunkLine {
            op,
            text: text.to_owned(),
        };
        let mut lines = vec![line('-', "1111\n"), line('+', added)];
        lines.extend((0..kept).map(|_| line(' ', "x\n")));
        change.before = Entry::File {
            hash: ContentHash::of(b""),
            bytes: 5 + 2 * kept as u64,
        };
        change.diff.removed = 1;
        change.diff.added = usize::from(!added.is_empty());
        change.diff.hunks = [Hunk {
            old_start: 1,
            old_lines: 1 + kept,
            new_start: 1,
            new_lines: 1 + kept,
            lines,
        }]
        .into();
        change
    }

    /// The level of each danger of a call with these needs, planned changes and other effects.
    fn levels(
        needs: &[&str],
        changes: Vec<Change>,
        resources: Vec<ResourceChange>,
        undoable: bool,
    ) -> Vec<(DangerKind, DangerLevel)> {
        let mut request = changing(request(1, 1, needs));
        if !changes.is_empty() || !resources.is_empty() {
            request = shown(request);
            let preview = request.preview.as_mut().unwrap();
            preview.changes = changes;
            preview.resources = resources;
            preview.undoable = undoable;
        }
        let is_of_server = |need: &Scope| need.resource().as_str() == "mcp";
        request.server = request.needs.iter().any(is_of_server).then(|| "hub".into());
        let sensitive = request.needs.iter();
        request.protected = sensitive
            .filter(|need| need.to_string().ends_with("AGENTS.md"))
            .map(|need| (need.clone(), "agents follow it"))
            .collect();
        request.describe();
        let dangers = request.dangers.iter();
        dangers.map(|danger| (danger.kind, danger.level)).collect()
    }

    #[test]
    fn level_of_a_danger_follows_the_table_of_danger_levels() {
        use DangerKind::{
            Delete, Execute, HiddenCharacters, Irreversible, MoveOver, Network, Outside, Overwrite,
            Protected, Recursive, Secret, ThirdParty,
        };
        let file = "write:file:/r/a";
        let planned = |changes, undoable| levels(&[file], changes, Vec::new(), undoable);
        let needed = |need: &str| levels(&[need], Vec::new(), Vec::new(), false);
        let runs = |does: &[ResourceChange]| {
            levels(&["execute:command:ls"], Vec::new(), does.to_vec(), false)
        };
        let edited = |undoable| {
            let mut edit = rewritten(3, "2\n");
            edit.op = Op::Modify;
            planned(vec![edit], undoable)
        };
        // Harmless calls.
        assert_eq!(needed("read:file:/r/a"), []);
        assert_eq!(planned(vec![change(Op::Create, "/r/a")], false), []);
        assert_eq!(edited(true), []);
        // One assertion for each row of the table, in its order.
        assert_eq!(
            planned(vec![change(Op::Delete, "/r/a")], true),
            [(Delete, Severe)]
        );
        assert_eq!(
            planned(vec![deleted_directory("/r/a", 1, 1)], true),
            [(Delete, Severe), (Recursive, Severe)]
        );
        let whole = planned(vec![rewritten(0, "2\n")], true);
        assert_eq!(whole, [(Overwrite, Severe)]);
        let unknown = [Operation::Create, Operation::Change].into_iter().collect();
        let mut overwrites = request(1, 1, &[file]);
        overwrites.needs = vec![overwrites.needs[0].clone().only(unknown)];
        overwrites.describe();
        assert_eq!(overwrites.dangers[0].level, Severe);
        let most = planned(vec![rewritten(1, "2\n")], true);
        assert_eq!(most, [(Overwrite, Caution)]);
        let mut over = change(Op::Move, "/r/b");
        over.to = Some(path("/r/a"));
        let mut replaced = change(Op::Modify, "/r/a");
        replaced.diff.removed = 1;
        assert_eq!(planned(vec![replaced, over], true), [(MoveOver, Severe)]);
        assert_eq!(edited(false), [(Irreversible, Caution)]);
        assert_eq!(needed("read:file:/r/.env"), [(Secret, Severe)]);
        assert_eq!(needed("write:file:/r/AGENTS.md"), [(Protected, Severe)]);
        assert_eq!(
            needed("read:file:/r/a\u{202e}"),
            [(HiddenCharacters, Severe)]
        );
        assert_eq!(needed("execute:network:crates.io:443"), [(Network, Severe)]);
        assert_eq!(needed("execute:shell"), [(Execute, Severe)]);
        assert_eq!(needed("execute:command:ls"), [(Execute, Severe)]);
        let harmless = ResourceChange::new("`ls`", "run in /r").confined();
        let writes = ResourceChange::new("Can change", "/r/target");
        assert_eq!(runs(&[harmless.clone(), writes]), [(Execute, Severe)]);
        assert_eq!(runs(&[harmless]), [(Execute, Caution)]);
        assert_eq!(needed("write:mcp:hub:push"), [(ThirdParty, Severe)]);
        assert_eq!(needed("execute:mcp:hub:push"), [(ThirdParty, Severe)]);
        assert_eq!(needed("read:mcp:hub:list"), [(ThirdParty, Caution)]);
        assert_eq!(needed("read:file:/tmp/x"), [(Outside, Caution)]);
        assert_eq!(needed("write:file:/tmp/x"), [(Outside, Caution)]);
    }

    const HIDDEN: &str = "contains invisible characters that can hide what it really says";

    #[test]
    fn hidden_characters_are_named_in_the_detail() {
        let mut request = request(1, 1, &["read:file:/r/a\u{200b}\u{202e}txt"]);
        request.describe();
        let detail = request.dangers[0].detail.as_deref();
        assert_eq!(
            detail,
            Some("U+200B zero width space and U+202E right-to-left override")
        );
    }

    #[test]
    fn hidden_characters_of_names_and_new_content_are_found() {
        let found = of(request(1, 1, &["read:file:/r/a\u{202e}txt"]), Vec::new());
        let expected = format!("The name \"a\u{202e}txt\" {HIDDEN}");
        assert_eq!(found, [(DangerKind::HiddenCharacters, expected)]);
        let content = |text: &str, op| {
            let mut change = change(Op::Modify, "/r/a");
            change.diff.hunks = [Hunk {
                old_start: 1,
                old_lines: 1,
                new_start: 1,
                new_lines: 1,
                lines: vec![HunkLine {
                    op,
                    text: text.to_owned(),
                }],
            }]
            .into();
            of(request(1, 1, &["write:file:/r/a"]), vec![change])
        };
        let hidden = content("a\u{200b}b\u{1b}[2J\n", '+');
        assert_eq!(hidden[0].1, format!("The new text of a {HIDDEN}"));
        for removed_or_plain in [content("a\u{200b}", '-'), content("a\tb\r\n", '+')] {
            let kinds = removed_or_plain.iter().map(|(kind, _)| *kind);
            assert!(
                !kinds
                    .into_iter()
                    .any(|kind| kind == DangerKind::HiddenCharacters)
            );
        }
        let mut request = request(1, 1, &["read:file:/r/a"]);
        request.arguments = serde_json::json!({ "list": ["a\u{202e}"] });
        let expected = format!("The data that is sent {HIDDEN}");
        assert_eq!(
            of(request, Vec::new()),
            [(DangerKind::HiddenCharacters, expected)]
        );
    }

    #[test]
    fn joiners_of_scripts_and_emoji_are_not_hidden_characters() {
        let hidden = |text| hidden_in_content(text).collect::<String>();
        assert_eq!(hidden("\u{feff}fn"), "");
        assert_eq!(hidden("fn\u{feff}"), "\u{feff}");
        assert_eq!(hidden("👩\u{200d}💻 ❤\u{fe0f}\u{200d}🔥"), "");
        assert_eq!(hidden("क\u{94d}\u{200d}ष"), "");
        assert_eq!(hidden("a\u{200d}b"), "\u{200d}");
    }

    #[test]
    fn dangers_are_bounded() {
        let changes = (0..100).map(|n| change(Op::Delete, &format!("/r/.env.{n}\u{200b}")));
        let found = of(request(1, 1, &["write:file:/r/x"]), changes.collect());
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(found.iter().all(|(_, text)| text.len() < 1000));
        assert!(
            found[1].1.contains("and 97 more look like secrets"),
            "{found:?}"
        );
        assert_eq!(found[5].1, "97 more places contain invisible characters");
    }
}
