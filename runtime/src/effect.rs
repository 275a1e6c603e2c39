//! Plans, previews and outcomes of calls.

mod content;
mod hash;
mod summary;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::CallError;
use crate::path::VirtualPath;

pub use content::{Content, Utf8};
pub use hash::{ContentHash, ParseContentHashError};
#[cfg(test)]
pub(crate) use summary::tests::deleted_directory;

/// What stands at a path at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Entry {
    /// Nothing.
    Absent,
    /// A regular file with this content.
    File {
        /// Of its bytes.
        hash: ContentHash,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A directory; `entries` counts what the worker may read beneath it, when the call depends on that.
    Directory {
        /// Names beneath it, at any depth.
        entries: u64,
    },
}

impl Entry {
    /// The hash of the content, if it is a file.
    #[must_use]
    pub fn hash(&self) -> Option<ContentHash> {
        match self {
            Self::File { hash, .. } => Some(*hash),
            Self::Absent | Self::Directory { .. } => None,
        }
    }

    /// The length in bytes, if it is a file.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::File { bytes, .. } => Some(*bytes),
            Self::Absent | Self::Directory { .. } => None,
        }
    }
}

/// What a change does to its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A file comes into being.
    Create,
    /// A file gets other content.
    Modify,
    /// A file or directory goes.
    Delete,
    /// It goes from here to `to`.
    Move,
    /// It stays, and a copy stands at `to`.
    Copy,
    /// A directory comes into being.
    MakeDirectory,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HunkLine {
    /// ` ` kept, `-` removed, `+` added.
    pub op: char,
    /// The line with its own line end, if it has one.
    pub text: String,
}

/// A run of changed lines with its context; line numbers begin with 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// First line in the old file; 0 if the old file is empty.
    pub old_start: usize,
    /// How many lines of the old file.
    pub old_lines: usize,
    /// First line in the new file; 0 if the new file is empty.
    pub new_start: usize,
    /// How many lines of the new file.
    pub new_lines: usize,
    /// The lines, old and new interleaved.
    pub lines: Vec<HunkLine>,
}

/// What lies beneath a directory, as far as the worker may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryContents {
    /// How many regular files.
    pub files: u64,
    /// How many directories, itself not included.
    pub directories: u64,
    /// How many links and special files.
    pub others: u64,
    /// The total size of the regular files.
    pub bytes: u64,
    /// Changes with every name, kind and content beneath the directory.
    pub hash: ContentHash,
    /// The first entries, those nearest to the top first; their number and length are bounded.
    pub first: Vec<ContainedEntry>,
}

impl DirectoryContents {
    /// How many entries there are, [`first`](Self::first) and all others.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.others
    }
}

/// One entry beneath a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainedEntry {
    /// Where it is, relative to the directory.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Its size, if it is a regular file, else 0.
    pub bytes: u64,
}

/// What kind of object an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, FIFO or socket.
    Special,
}

/// How the content of one file or directory differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// The changed runs, in order; empty for binary, large or hidden content.
    pub hunks: Vec<Hunk>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// The content is not text, so there are no hunks.
    pub binary: bool,
    /// The content is more than is compared, so there are no hunks; it may be text, and its lines may be counted.
    pub large: bool,
    /// The worker may not read this file, or something in this directory, so that is neither shown nor counted.
    pub hidden: bool,
    /// What kind of binary content it is, such as `image/png` or `a ZIP archive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_type: Option<&'static str>,
    /// What lies beneath a directory that is deleted, moved or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<DirectoryContents>,
    /// The whole former text, for people who look beyond the hunks: where these do not hold all of it, if it may be
    /// shown and is not too large. It stands in no JSON and no token, which its hash stands in.
    #[serde(skip)]
    pub old: Option<Bytes>,
}

/// One thing that a call would do, as people and programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Where.
    pub path: VirtualPath,
    /// What.
    pub op: Op,
    /// Where to, for a move or copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<VirtualPath>,
    /// What stands at `path` now; the plan is stale as soon as it is something else.
    pub before: Entry,
    /// What will stand there (at `to`, for a move or copy).
    pub after: Entry,
    /// How the content differs.
    #[serde(flatten)]
    pub diff: FileDiff,
}

/// Parts of one change that a person leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExcludedHunks {
    /// The file, as the preview names it.
    pub path: VirtualPath,
    /// Its hunks that are not to be made, by their place in [`FileDiff::hunks`], counted from 0.
    pub hunks: Vec<usize>,
}

impl ExcludedHunks {
    /// Whether `changes` can be made without `parts`: each names hunks that are there, once, and something is left.
    pub(crate) fn fits(parts: &[Self], changes: &[Change]) -> bool {
        let hunks_of = |path: &VirtualPath| {
            let change = changes.iter().find(|change| change.path == *path);
            change
                .filter(|change| change.op == Op::Modify)
                .map_or(0, |change| change.diff.hunks.len())
        };
        let mut seen = std::collections::BTreeSet::new();
        let there = parts.iter().all(|part| {
            let there = hunks_of(&part.path);
            let mut hunks = part.hunks.iter();
            hunks.all(|hunk| *hunk < there && seen.insert((&part.path, *hunk)))
        });
        let all: usize = changes.iter().map(|change| change.diff.hunks.len()).sum();
        there && (seen.is_empty() || seen.len() < all)
    }
}

/// What a call writes, charged to the worker's budgets before it is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes written.
    pub bytes: u64,
    /// Files and directories created, changed, moved or removed.
    pub files: u64,
}

/// What a mutating call would do, computed from the present state; nothing has changed yet.
///
/// `S` is what the tool needs to carry it out, and to take it back.
#[derive(Debug)]
pub struct Plan<S> {
    /// What people and programs see; the hash of this is the preview token.
    pub changes: Vec<Change>,
    /// The reply, the same for preview and apply.
    pub reply: Reply,
    /// What is charged before apply.
    pub cost: Cost,
    /// What apply does.
    pub steps: S,
    /// What takes it back, if anything can.
    pub inverse: Option<S>,
}

impl<S> Plan<S> {
    /// About how many bytes it holds while it waits: old and new content, and its diff here and with the question.
    pub(crate) fn weight(&self) -> u64 {
        let lines = self.changes.iter().flat_map(|change| &change.diff.hunks);
        let lines = lines.flat_map(|hunk| &hunk.lines);
        let shown: u64 = lines.map(|line| line.text.len() as u64 + 32).sum();
        let old = |change: &Change| match change.before {
            Entry::File { bytes, .. } => bytes,
            Entry::Absent | Entry::Directory { .. } => 0,
        };
        self.changes.iter().map(old).sum::<u64>() + self.cost.bytes + 3 * shown
    }
}

/// A value that becomes structured output; JSON is made of it only where it is needed.
pub trait Output: Any + Send + Sync + fmt::Debug {
    /// The value as JSON.
    ///
    /// # Errors
    /// The serializer's, which is a fault of the tool.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
    /// The value itself, for callers in this process.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Serialize + Any + Send + Sync + fmt::Debug> Output for T {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a tool answers, twice: as content, and as a value that becomes `structuredContent`. Each says everything, cut at
/// the same place, since some clients hand the one to their model and some the other.
///
/// A result has no `structuredContent` if the value is `null` in JSON, such as `()`.
#[derive(Clone, Debug)]
pub struct Reply {
    /// In order. Images, sounds and other bytes stand here alone.
    pub content: Vec<Content>,
    /// The same as a typed value.
    pub output: Arc<dyn Output>,
}

impl Reply {
    /// A reply of one text.
    #[must_use]
    pub fn text(text: impl Into<String>, output: impl Output) -> Self {
        Self {
            content: vec![Content::Text(Utf8::from(text.into()))],
            output: Arc::new(output),
        }
    }

    /// The structured output as JSON; `null` if there is none.
    ///
    /// # Errors
    /// `INTERNAL` if the tool's output cannot be written as JSON.
    pub fn structured(&self) -> Result<Value, CallError> {
        self.output.to_json().map_err(|error| {
            CallError::new(
                crate::error::Code::Internal,
                format!("the tool's output is no JSON: {error}"),
            )
        })
    }
}

/// Stands for one computed plan; the same files and arguments give the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PreviewToken(pub(crate) ContentHash);

impl fmt::Display for PreviewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for PreviewToken {
    type Err = ParseContentHashError;

    fn from_str(text: &str) -> Result<Self, ParseContentHashError> {
        text.parse().map(Self)
    }
}

/// Where people find a by-product of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactRef {
    /// `ui://edit_file/<id>.diff`, for example; the id has 128 random bits.
    pub uri: String,
    /// `diff`, `json` or `review`.
    pub name: &'static str,
    /// What people read of it, such as `Review of edit_file`.
    pub title: String,
    /// Its media type.
    pub mime: &'static str,
}

/// What a call would do, shown before it is done.
#[derive(Clone, Debug)]
pub struct Preview {
    /// The root that holds everything that would change, or the top of the namespace.
    pub base: VirtualPath,
    /// One sentence for people, made from the tool's template. It quotes the agent's words.
    pub intent: String,
    /// What would change, in order.
    pub changes: Vec<Change>,
    /// What the call would answer.
    pub reply: Reply,
    /// Ties a later call to this preview.
    pub token: PreviewToken,
    /// Where people find it.
    pub artifacts: Vec<ArtifactRef>,
}

/// What a call did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tool's answer.
    pub reply: Reply,
    /// What changed, in order; empty for a call that only read, or whose arguments asked for a preview.
    pub changes: Vec<Change>,
    /// Where people find it.
    pub artifacts: Vec<ArtifactRef>,
    /// Whether the audit recorded that the change was made. If not, it was made all the same.
    pub recorded: bool,
}

impl Outcome {
    /// The text for the model: all text blocks and links, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self
            .reply
            .content
            .iter()
            .filter_map(|content| match content {
                Content::Text(text) => Some(Cow::Borrowed(text.as_str())),
                Content::Link { uri, name, .. } => Some(Cow::Owned(format!("[{name}: {uri}]"))),
                Content::Image { .. } | Content::Audio { .. } | Content::Blob { .. } => None,
            });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The structured output as JSON; `null` if there is none.
    ///
    /// # Errors
    /// `INTERNAL` if the tool's output cannot be written as JSON.
    pub fn structured(&self) -> Result<Value, CallError> {
        self.reply.structured()
    }

    /// The structured output as the tool's own type, if `T` is that type.
    #[must_use]
    pub fn output<T: 'static>(&self) -> Option<&T> {
        self.reply.output.as_any().downcast_ref()
    }
}
