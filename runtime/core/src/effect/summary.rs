//! One-line summaries of changes, safe to print.

use super::{Change, ContainedEntry, DirectoryContents, Entry, EntryKind, Op, ResourceChange};
use crate::path::VirtualPath;
use crate::text::{abbreviated, counted, escape};

impl Change {
    /// One line, such as `delete directory /r/old with everything in it: 2 files, 1 directory, 12 bytes`. A path of more
    /// than `most_of_path` characters is shortened in its middle.
    #[doc(hidden)]
    pub fn summary(&self, most_of_path: usize) -> String {
        let shown = |path: &VirtualPath| {
            let path = escape(path.as_str()).into_owned();
            abbreviated(&path, most_of_path).into_owned()
        };
        let verb = match self.op {
            Op::Create | Op::MakeDirectory => "create",
            Op::Modify => "change",
            Op::Delete => "delete",
            Op::Move => "move",
            Op::Copy => "copy",
        };
        let directory = if self.is_directory() {
            " directory"
        } else {
            ""
        };
        let to = self.to.as_ref();
        let to = to.map_or_else(String::new, |to| format!(" to {}", shown(to)));
        let path = shown(&self.path);
        format!("{verb}{directory} {path}{to}{}", self.extent())
    }

    /// Returns the entries beneath a directory that is deleted, moved or copied, one per line: at most `most`, then the
    /// number of further ones.
    #[doc(hidden)]
    pub fn listing(&self, most: usize, most_of_path: usize) -> Vec<String> {
        let Some(contents) = &self.diff.contents else {
            return Vec::new();
        };
        let listed = contents.first.iter().take(most);
        let mut lines: Vec<String> = listed.map(|entry| entry.line(most_of_path)).collect();
        let more = contents.entries().saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("... and {more} more"));
        }
        lines
    }

    /// Whether it is about a directory.
    pub(crate) fn is_directory(&self) -> bool {
        let is_directory = |entry| matches!(entry, Entry::Directory { .. });
        self.op == Op::MakeDirectory || is_directory(self.before) || is_directory(self.after)
    }

    /// Returns whether it is the content of the file that a move or copy replaces. In a preview, the move or copy follows it.
    #[must_use]
    pub fn is_replaced_by(&self, transfer: &Self) -> bool {
        self.op == Op::Modify && transfer.to.as_ref() == Some(&self.path)
    }

    /// The extent of the change, as far as it is known.
    fn extent(&self) -> String {
        let diff = &self.diff;
        if self.op == Op::MakeDirectory {
            return String::new();
        }
        if self.is_directory() {
            let counts = match (&diff.contents, self.before) {
                (Some(contents), _) => contents.counts(),
                (None, Entry::Directory { entries }) => counted(entries, "entry", "entries"),
                (None, _) => return String::new(),
            };
            let hidden = if diff.hidden {
                ", and what this worker may not read"
            } else {
                ""
            };
            return format!(" with everything in it: {counts}{hidden}");
        }
        let content = if diff.hidden {
            "former content not shown, this worker may not read it".to_owned()
        } else if diff.large {
            format!("too large to compare, {}", self.sizes())
        } else if diff.binary {
            let kind = diff.binary_type.unwrap_or("unknown type");
            format!("binary content ({kind}), {}", self.sizes())
        } else if matches!(self.op, Op::Move | Op::Copy) && diff.hunks.is_empty() {
            return String::new();
        } else {
            format!("+{} -{} lines", diff.added, diff.removed)
        };
        format!(": {content}")
    }

    /// Size and hash of the file before and after.
    fn sizes(&self) -> String {
        let side = |entry| match entry {
            Entry::File { hash, bytes } => Some(format!(
                "{}, sha256 {hash}",
                counted(bytes, "byte", "bytes")
            )),
            Entry::Absent | Entry::Directory { .. } => None,
        };
        match (side(self.before), side(self.after)) {
            (Some(before), Some(after)) if self.before != self.after => {
                format!("{before} -> {after}")
            }
            (Some(one), _) | (None, Some(one)) => one,
            (None, None) => "size unknown".to_owned(),
        }
    }
}

impl ResourceChange {
    /// One line, such as `stock:tea: order 12 more`. Each part is cut to `most` characters.
    #[doc(hidden)]
    #[must_use]
    pub fn title(&self, most: usize) -> String {
        let shown = |text: &str| abbreviated(&escape(text), most).into_owned();
        format!("{}: {}", shown(&self.resource), shown(&self.summary))
    }

    /// Returns the lines of the states before (`-`) and after (`+`) and of the facts for experts (` `), not escaped.
    #[doc(hidden)]
    pub fn lines(&self) -> impl Iterator<Item = (char, &str)> {
        let parts = [('-', &self.before), ('+', &self.after), (' ', &self.detail)];
        parts.into_iter().flat_map(|(mark, text)| {
            let lines = text.iter().flat_map(|text| text.lines());
            lines.map(move |line| (mark, line))
        })
    }

    /// Size in memory in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.text_bytes()
    }

    /// Size of its texts in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        let texts = [&self.before, &self.after, &self.detail];
        let texts = texts.into_iter().flatten();
        let texts = texts.chain([&self.resource, &self.summary]);
        texts.map(String::len).sum()
    }
}

impl DirectoryContents {
    /// The counts and the total size.
    fn counts(&self) -> String {
        let mut counts = vec![
            counted(self.files, "file", "files"),
            counted(self.directories, "directory", "directories"),
        ];
        if self.others > 0 {
            counts.push(counted(
                self.others,
                "link or special file",
                "links or special files",
            ));
        }
        counts.push(counted(self.bytes, "byte", "bytes"));
        counts.join(", ")
    }
}

impl ContainedEntry {
    fn line(&self, most_of_path: usize) -> String {
        let path = escape(&self.path);
        let path = abbreviated(&path, most_of_path);
        match self.kind {
            EntryKind::File => format!("{path} ({})", counted(self.bytes, "byte", "bytes")),
            EntryKind::Directory => format!("{path}/"),
            EntryKind::Link => format!("{path} (link)"),
            EntryKind::Special => format!("{path} (special file)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{ContentHash, FileDiff};
    use crate::fixtures::deleted_directory;

    fn file(text: &str) -> Entry {
        Entry::File {
            hash: ContentHash::of(text.as_bytes()),
            bytes: text.len() as u64,
        }
    }

    #[test]
    fn deleted_directory_summary_has_counts_size_and_names() {
        let mut change = deleted_directory("/r/old", 12, 3);
        assert_eq!(
            change.summary(100),
            "delete directory /r/old with everything in it: 12 files, 0 directories, 12 bytes"
        );
        assert_eq!(
            change.listing(2, 100),
            ["f0 (1 byte)", "f1 (1 byte)", "... and 10 more"]
        );
        assert_eq!(change.listing(50, 100).len(), 4);
        change.diff.hidden = true;
        assert!(
            change
                .summary(100)
                .ends_with(", and what this worker may not read")
        );
        change.op = Op::Move;
        change.to = Some(VirtualPath::parse("/r/new", None).unwrap());
        assert!(
            change
                .summary(100)
                .starts_with("move directory /r/old to /r/new with everything in it: 12 files"),
        );
    }

    #[test]
    fn binary_change_summary_has_type_size_and_hash() {
        let change = Change {
            path: VirtualPath::parse("/r/i.png", None).unwrap(),
            op: Op::Modify,
            to: None,
            before: file("a"),
            after: file("bc"),
            diff: FileDiff {
                binary: true,
                binary_type: Some("image/png"),
                ..FileDiff::default()
            },
        };
        let [a, bc] = ["a", "bc"].map(|text| ContentHash::of(text.as_bytes()));
        assert_eq!(
            change.summary(100),
            format!(
                "change /r/i.png: binary content (image/png), 1 byte, sha256 {a} -> 2 bytes, sha256 {bc}"
            )
        );
    }

    #[test]
    fn text_change_summary_has_line_counts_and_shortened_path() {
        let mut change = Change {
            path: VirtualPath::parse(&format!("/r/{}/name.rs", "d".repeat(200)), None).unwrap(),
            op: Op::Create,
            to: None,
            before: Entry::Absent,
            after: file("a\n"),
            diff: FileDiff {
                added: 1,
                ..FileDiff::default()
            },
        };
        let summary = change.summary(40);
        assert!(summary.starts_with("create /r/d"), "{summary}");
        assert!(summary.ends_with("d/name.rs: +1 -0 lines"), "{summary}");
        change.path = VirtualPath::parse("/r/a\u{202e}b", None).unwrap();
        assert_eq!(change.summary(40), "create /r/a\\u{202e}b: +1 -0 lines");
    }
}
