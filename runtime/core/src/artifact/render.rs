//! Renders changes as a unified diff and as JSON.

use crate::effect::{Change, ContentHash, Entry, FileDiff, Hunk, Op, Preview, ResourceChange};
use crate::path::VirtualPath;
use crate::text::{escape, is_deceptive};
use serde::Serialize;
use std::fmt::Write as _;

/// Returns the changes as a patch for `patch -p1` in the directory `base`, which contains all changes of files.
///
/// Whatever a patch cannot express (binary content, directories, other resources) is a `#` line, which `patch` ignores.
pub(crate) fn diff(changes: &[Change], resources: &[ResourceChange], base: &VirtualPath) -> String {
    let mut out = String::new();
    for change in changes {
        render(&mut out, change, base);
    }
    for resource in resources {
        // Writing to a String does not fail, here and below.
        let _ = writeln!(out, "# {}", resource.title(usize::MAX));
        for (op, line) in resource.lines() {
            let _ = writeln!(out, "# {op}{}", escape(line));
        }
    }
    out
}

/// The root that contains all changes, or the top of the namespace.
pub(crate) fn base<'m>(
    changes: &[Change],
    mut mounts: impl Iterator<Item = &'m VirtualPath>,
) -> VirtualPath {
    let within = |mount: &VirtualPath| {
        let paths = changes
            .iter()
            .flat_map(|change| std::iter::once(&change.path).chain(change.to.as_ref()));
        paths.into_iter().all(|path| path.beneath(mount).is_some())
    };
    mounts
        .find(|mount| within(mount))
        .map_or_else(VirtualPath::top, VirtualPath::clone)
}

fn render(out: &mut String, change: &Change, base: &VirtualPath) {
    let FileDiff {
        hunks,
        binary,
        large,
        hidden,
        ..
    } = &change.diff;
    let to = change.to.as_ref().unwrap_or(&change.path);
    let directory = matches!(change.before, Entry::Directory { .. });
    if directory || change.op == Op::MakeDirectory {
        return note(out, change);
    }
    if *hidden || *binary || *large {
        note(out, change);
        if hunks.is_empty() && !matches!(change.op, Op::Move | Op::Copy) {
            return;
        }
    }
    header(out, change, to, base);
    hunks.iter().for_each(|hunk| render_hunk(out, hunk));
}

/// The header lines with the file names.
fn header(out: &mut String, change: &Change, to: &VirtualPath, base: &VirtualPath) {
    let (from, to) = (name(&change.path, base), name(to, base));
    let old = quoted(&format!("a/{from}"));
    let new = quoted(&format!("b/{to}"));
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
            let (from, to) = (quoted(from), quoted(to));
            let _ = writeln!(out, "{verb} from {from}\n{verb} to {to}");
        }
        Op::Modify | Op::MakeDirectory => {}
    }
    if change.diff.hunks.is_empty() {
        if change.op == Op::Delete {
            // Git's hash of the empty file. Without this line, `patch` does not remove an empty file.
            out.push_str("index e69de29..0000000\n");
        }
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

/// Comments for what a patch cannot express.
fn note(out: &mut String, change: &Change) {
    let _ = writeln!(out, "# {}", change.summary(usize::MAX));
    for entry in change.listing(usize::MAX, usize::MAX) {
        let _ = writeln!(out, "#   {entry}");
    }
}

/// A path as it is called in `base`.
fn name<'p>(path: &'p VirtualPath, base: &VirtualPath) -> &'p str {
    path.beneath(base)
        .unwrap_or_else(|| path.as_str().trim_start_matches('/'))
}

/// The name, quoted for git and GNU patch if necessary.
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resources: &'c [ResourceChange],
}

#[derive(Serialize)]
struct Item<'c> {
    path: &'c VirtualPath,
    op: Op,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'c VirtualPath>,
    before_sha256: Option<ContentHash>,
    after_sha256: Option<ContentHash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_bytes: Option<u64>,
    #[serde(flatten)]
    diff: &'c FileDiff,
}

/// Returns the changes as JSON for programs; the hunks of a text re-create its new content from the old.
///
/// # Errors
/// The serialiser's error, which is a bug of this library.
pub(crate) fn json(
    changes: &[Change],
    resources: &[ResourceChange],
) -> Result<String, serde_json::Error> {
    let items = changes.iter().map(|change| Item {
        path: &change.path,
        op: change.op,
        to: change.to.as_ref(),
        before_sha256: change.before.hash(),
        after_sha256: change.after.hash(),
        before_bytes: change.before.bytes(),
        after_bytes: change.after.bytes(),
        diff: &change.diff,
    });
    serde_json::to_string(&Document {
        changes: items.collect(),
        resources,
    })
}

impl Preview {
    /// Returns the changes as a unified diff for `patch -p1` in [`Preview::base`]. Changes of other resources are comments
    /// at its end.
    #[must_use]
    pub fn diff(&self) -> String {
        diff(&self.changes, &self.resources, &self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::HunkLine;
    use similar::{ChangeTag, TextDiff};

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    fn entry(text: Option<&str>) -> Entry {
        text.map_or(Entry::Absent, |text| Entry::File {
            hash: ContentHash::of(text.as_bytes()),
            bytes: text.len() as u64,
        })
    }

    /// Hunks with three lines of context; a lone CR ends no line.
    fn content(old: &str, new: &str) -> FileDiff {
        let (old, new): (Vec<_>, Vec<_>) = (
            old.split_inclusive('\n').collect(),
            new.split_inclusive('\n').collect(),
        );
        let diff = TextDiff::from_slices(&old, &new);
        let (mut out, mut hunks) = (FileDiff::default(), Vec::new());
        for group in diff.grouped_ops(3) {
            let (first, last) = (group.first().unwrap(), group.last().unwrap());
            let (old, new) = (
                first.old_range().start..last.old_range().end,
                first.new_range().start..last.new_range().end,
            );
            let lines: Vec<HunkLine> = group
                .iter()
                .flat_map(|op| diff.iter_changes(op))
                .map(|change| HunkLine {
                    op: match change.tag() {
                        ChangeTag::Equal => ' ',
                        ChangeTag::Delete => '-',
                        ChangeTag::Insert => '+',
                    },
                    text: change.value().to_string(),
                })
                .collect();
            out.added += lines.iter().filter(|line| line.op == '+').count();
            out.removed += lines.iter().filter(|line| line.op == '-').count();
            hunks.push(Hunk {
                old_start: old.start + usize::from(!old.is_empty()),
                old_lines: old.len(),
                new_start: new.start + usize::from(!new.is_empty()),
                new_lines: new.len(),
                lines,
            });
        }
        out.hunks = hunks.into();
        out
    }

    fn change(name: &str, old: Option<&str>, new: Option<&str>) -> Change {
        let op = match (old, new) {
            (None, _) => Op::Create,
            (_, None) => Op::Delete,
            _ => Op::Modify,
        };
        Change {
            path: path(name),
            op,
            to: None,
            before: entry(old),
            after: entry(new),
            diff: content(old.unwrap_or_default(), new.unwrap_or_default()),
        }
    }

    #[test]
    fn deceptive_names_are_escaped_in_the_header() {
        let text = diff(
            &[change("/r/\u{202e}a\u{200b}", Some("1\n"), Some("2\n"))],
            &[],
            &VirtualPath::top(),
        );
        assert!(
            !text.chars().any(|c| is_deceptive(c) && c != '\n'),
            "{text}"
        );
    }

    #[test]
    fn changes_without_patch_form_are_comments() {
        let binary = Change {
            diff: FileDiff {
                binary: true,
                binary_type: Some("image/png"),
                ..FileDiff::default()
            },
            ..change("/r/\u{202e}img", Some("x"), Some("y"))
        };
        let large = Change {
            diff: FileDiff {
                large: true,
                ..FileDiff::default()
            },
            ..change("/r/long", Some("x"), Some("y"))
        };
        let hidden = Change {
            diff: FileDiff {
                hidden: true,
                ..FileDiff::default()
            },
            ..change("/r/secret", Some("x"), Some("y"))
        };
        let directory = Change {
            op: Op::MakeDirectory,
            after: Entry::Directory { entries: 0 },
            ..change("/r/dir", None, Some(""))
        };
        let text = diff(
            &[
                binary,
                large,
                hidden,
                directory,
                crate::fixtures::deleted_directory("/r/old", 3, 2),
                change("/r/a", Some("1\n"), Some("2\n")),
            ],
            &[],
            &VirtualPath::top(),
        );
        let notes: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
        let [x, y] = ["x", "y"].map(|text| ContentHash::of(text.as_bytes()));
        let sizes = format!("1 byte, sha256 {x} -> 1 byte, sha256 {y}");
        assert_eq!(
            notes,
            [
                format!("# change /r/\\u{{202e}}img: binary content (image/png), {sizes}"),
                format!("# change /r/long: too large to compare, {sizes}"),
                "# change /r/secret: former content not shown, this worker may not read it".into(),
                "# create directory /r/dir".into(),
                "# delete directory /r/old with everything in it: 3 files, 0 directories, 3 bytes"
                    .into(),
                "#   f0 (1 byte)".into(),
                "#   f1 (1 byte)".into(),
                "#   ... and 1 more".into(),
            ]
        );
        let edit = [change("/r/a", Some("1\n"), Some("2\n"))];
        assert!(
            text.ends_with(&diff(&edit, &[], &VirtualPath::top())),
            "{text}"
        );
    }

    #[test]
    fn json_has_both_hashes_and_recreates_the_new_text() {
        let (old, new) = ("1\r\n2\n3", "1\r\n2b\n3\n4");
        let text = json(&[change("/r/a", Some(old), Some(new))], &[]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let item = &value["changes"][0];
        assert_eq!(item["path"], "/r/a");
        assert_eq!(item["op"], "modify");
        assert_eq!(
            item["before_sha256"],
            ContentHash::of(old.as_bytes()).to_string()
        );
        assert_eq!(
            item["after_sha256"],
            ContentHash::of(new.as_bytes()).to_string()
        );
        assert_eq!((&item["added"], &item["removed"]), (&3.into(), &2.into()));
        assert_eq!(item["binary"], false);
        let lines = item["hunks"][0]["lines"].as_array().unwrap();
        let side = |gone: &str| -> String {
            let kept = lines.iter().filter(|line| line["op"] != gone);
            kept.map(|line| line["text"].as_str().unwrap()).collect()
        };
        assert_eq!((side("+"), side("-")), (old.to_owned(), new.to_owned()));
    }

    #[test]
    fn resource_is_a_patch_comment_and_a_json_entry() {
        let order = ResourceChange::new("stock:tea", "order 12 more\n--- a/x")
            .before("0")
            .after("12\n+++ b/x\u{202e}");
        let text = diff(&[], std::slice::from_ref(&order), &VirtualPath::top());
        let lines = [
            r"# stock:tea: order 12 more\u{a}--- a/x",
            "# -0",
            "# +12",
            r"# ++++ b/x\u{202e}",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        let json_of = |resources: &[ResourceChange]| -> serde_json::Value {
            serde_json::from_str(&json(&[], resources).unwrap()).unwrap()
        };
        assert_eq!(
            json_of(&[order])["resources"][0],
            serde_json::json!({
                "resource": "stock:tea",
                "summary": "order 12 more\n--- a/x",
                "before": "0",
                "after": "12\n+++ b/x\u{202e}",
            })
        );
        assert_eq!(json_of(&[]), serde_json::json!({ "changes": [] }));
    }

    #[test]
    fn created_file_has_no_hash_before() {
        let text = json(&[change("/r/a", None, Some("x"))], &[]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["changes"][0]["before_sha256"],
            serde_json::Value::Null
        );
    }
}
