//! Changes in, a unified diff and its JSON out.

use std::fmt::Write as _;

use serde::Serialize;

use crate::audit::file_hash;
use crate::effect::{Change, ContentHash, Entry, FileDiff, Hunk, Op};
use crate::escape::{escape, is_deceptive};
use crate::path::VirtualPath;

/// Returns the changes as text that `patch -p1`, run at the top of the namespace, carries out.
///
/// What a patch cannot say (binary content, directories) stands in it as a `#` line, which `patch` passes over.
pub(crate) fn diff(changes: &[Change]) -> String {
    changes.iter().fold(String::new(), |mut out, change| {
        render(&mut out, change);
        out
    })
}

fn render(out: &mut String, change: &Change) {
    let FileDiff {
        hunks,
        binary,
        hidden,
        ..
    } = &change.diff;
    let to = change.to.as_ref().unwrap_or(&change.path);
    match (change.op, change.before) {
        (Op::MakeDirectory, _) => return note(out, &change.path, "becomes a directory"),
        (Op::Delete, Entry::Directory { .. }) => {
            return note(out, &change.path, "is a directory and goes");
        }
        (Op::Move | Op::Copy, Entry::Directory { .. }) => {
            let verb = if change.op == Op::Move {
                "moves"
            } else {
                "is copied"
            };
            return note(
                out,
                &change.path,
                &format!("is a directory and {verb} to {}", escape(to.as_str())),
            );
        }
        (Op::Create | Op::Modify | Op::Delete | Op::Move | Op::Copy, _) => {}
    }
    if *hidden {
        note(
            out,
            &change.path,
            "may not be read here, so its former content is not shown",
        );
    }
    if *binary {
        note(out, &change.path, "is binary, so its content is not shown");
    }
    if (*binary || *hidden) && hunks.is_empty() && !matches!(change.op, Op::Move | Op::Copy) {
        return;
    }
    header(out, change, to);
    hunks.iter().for_each(|hunk| render_hunk(out, hunk));
}

/// The lines that say which file becomes which.
fn header(out: &mut String, change: &Change, to: &VirtualPath) {
    let old = side('a', &change.path);
    let new = side('b', to);
    // Writing to a String does not fail, here and below.
    let _ = writeln!(out, "diff --git {old} {new}");
    match change.op {
        Op::Create => out.push_str("new file mode 100644\n"),
        Op::Delete => out.push_str("deleted file mode 100644\n"),
        Op::Move | Op::Copy => {
            let verb = if change.op == Op::Move {
                "rename"
            } else {
                "copy"
            };
            let (from, to) = (bare(&change.path), bare(to));
            let _ = writeln!(out, "{verb} from {from}\n{verb} to {to}");
        }
        Op::Modify | Op::MakeDirectory => {}
    }
    if change.diff.hunks.is_empty() {
        return;
    }
    let old = if change.op == Op::Create {
        "/dev/null"
    } else {
        &old
    };
    let new = if change.op == Op::Delete {
        "/dev/null"
    } else {
        &new
    };
    let _ = writeln!(out, "--- {old}\n+++ {new}");
}

fn render_hunk(out: &mut String, hunk: &Hunk) {
    let _ = writeln!(
        out,
        "@@ -{},{} +{},{} @@",
        hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines
    );
    for line in &hunk.lines {
        out.push(line.op);
        out.push_str(&line.text);
        if !line.text.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

fn note(out: &mut String, path: &VirtualPath, text: &str) {
    let _ = writeln!(out, "# {} {text}", escape(path.as_str()));
}

fn side(side: char, path: &VirtualPath) -> String {
    quoted(&format!("{side}{}", path.as_str()))
}

fn bare(path: &VirtualPath) -> String {
    quoted(path.as_str().trim_start_matches('/'))
}

/// The name as it is if it is plain, else in the quotes that git and GNU patch understand.
fn quoted(name: &str) -> String {
    let odd = |c: char| is_deceptive(c) || c.is_whitespace() || matches!(c, '"' | '\\');
    if !name.contains(odd) {
        return name.to_owned();
    }
    let mut out = String::with_capacity(name.len() + 8);
    out.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' ' => out.push(' '),
            c if odd(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(out, "\\{byte:03o}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[derive(Serialize)]
struct Document<'c> {
    changes: Vec<Item<'c>>,
}

#[derive(Serialize)]
struct Item<'c> {
    path: &'c VirtualPath,
    op: Op,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'c VirtualPath>,
    before_sha256: Option<ContentHash>,
    after_sha256: Option<ContentHash>,
    #[serde(flatten)]
    diff: &'c FileDiff,
}

/// Returns the changes as JSON for programs; the hunks of a text re-create its new content from the old.
///
/// # Errors
/// The serializer's, which is a fault of this library.
pub(crate) fn json(changes: &[Change]) -> Result<String, serde_json::Error> {
    let items = changes.iter().map(|change| Item {
        path: &change.path,
        op: change.op,
        to: change.to.as_ref(),
        before_sha256: file_hash(change.before),
        after_sha256: file_hash(change.after),
        diff: &change.diff,
    });
    serde_json::to_string(&Document {
        changes: items.collect(),
    })
}
