//! Plans, previews and outcomes of calls.

mod content;
mod excluded;
mod hash;
mod summary;

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::error::CallError;
use crate::path::VirtualPath;

pub use content::{Content, Utf8};
pub use excluded::{ExcludedChange, ExclusionError};
pub(crate) use excluded::{concerns, remaining};
pub use hash::{ContentHash, ParseContentHashError};

/// State of a path at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Entry {
    /// The path does not exist.
    Absent,
    /// A regular file with this content.
    File {
        /// Hash of its bytes.
        hash: ContentHash,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A directory. `entries` is 0 unless the call depends on it.
    Directory {
        /// Number of entries beneath it, at any depth, that the worker may read.
        entries: u64,
    },
}

impl Entry {
    /// Returns the hash of the content, if it is a file.
    #[must_use]
    pub fn hash(&self) -> Option<ContentHash> {
        match self {
            Self::File { hash, .. } => Some(*hash),
            Self::Absent | Self::Directory { .. } => None,
        }
    }

    /// Returns the length in bytes, if it is a file.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::File { bytes, .. } => Some(*bytes),
            Self::Absent | Self::Directory { .. } => None,
        }
    }
}

/// Operation of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A file is created.
    Create,
    /// The content of a file changes.
    Modify,
    /// A file or directory is deleted.
    Delete,
    /// It is moved to `to`.
    Move,
    /// It is copied to `to`.
    Copy,
    /// A directory is created.
    MakeDirectory,
}

/// One line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HunkLine {
    /// ` ` for kept, `-` for removed, `+` for added.
    pub op: char,
    /// The line with its own line end, if it has one.
    pub text: String,
}

/// Consecutive changed lines with their context. Line numbers begin with 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// First line in the old file; 0 if the old file is empty.
    pub old_start: usize,
    /// Number of lines of the old file.
    pub old_lines: usize,
    /// First line in the new file; 0 if the new file is empty.
    pub new_start: usize,
    /// Number of lines of the new file.
    pub new_lines: usize,
    /// The lines in order, with removed and added lines interleaved.
    pub lines: Vec<HunkLine>,
}

/// Contents of a directory, as far as the worker may read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryContents {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories, not counting the directory itself.
    pub directories: u64,
    /// Number of links and special files.
    pub others: u64,
    /// The total size of the regular files.
    pub bytes: u64,
    /// Hash over all names, kinds and contents beneath the directory.
    pub hash: ContentHash,
    /// The first entries, those nearest to the top first; bounded in number and length.
    pub first: Vec<ContainedEntry>,
}

impl DirectoryContents {
    /// Returns the number of all entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.others
    }
}

/// One entry beneath a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainedEntry {
    /// Its path relative to the directory.
    pub path: String,
    /// Its kind.
    pub kind: EntryKind,
    /// Its size, if it is a regular file, otherwise 0.
    pub bytes: u64,
}

/// Kind of an entry.
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

/// Difference of the content of one file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// The changed runs, in order; empty for binary, large or hidden content.
    pub hunks: Arc<[Hunk]>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Whether the content is not text, so there are no hunks.
    pub binary: bool,
    /// Whether the content is too large to compare, so there are no hunks. It may be text, and its lines may be
    /// counted.
    pub large: bool,
    /// Whether the worker may not read this file, or something in this directory. Such content is neither shown nor
    /// counted.
    pub hidden: bool,
    /// Kind of binary content, such as `image/png` or `a ZIP archive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binary_type: Option<&'static str>,
    /// Contents of a directory that is deleted, moved or copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<DirectoryContents>,
    /// Whether the tool wrote the whole file although its plan is divisible, so people are told what is lost.
    #[serde(skip)]
    pub whole: bool,
    /// The whole old text, for people who want to see more than the hunks. It is present if the hunks do not contain
    /// all of it, it may be shown and it is not too large. JSON contains only its hash, and so do preview tokens.
    #[serde(skip)]
    pub old: Option<Bytes>,
}

/// One change that a call would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The path.
    pub path: VirtualPath,
    /// The operation.
    pub op: Op,
    /// The target of a move or copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<VirtualPath>,
    /// The state of `path` now; the plan is stale once it differs.
    pub before: Entry,
    /// The state afterwards (of `to`, for a move or copy).
    pub after: Entry,
    /// The difference of the content.
    #[serde(flatten)]
    pub diff: FileDiff,
}

/// One change that a call would make to something that is not a file, such as a database row or a remote service.
///
/// People see its texts before they allow the call.
///
/// ```
/// use bailiwick::effect::ResourceChange;
/// let change = ResourceChange::new("stock:tea", "order 12 more").before("0").after("12");
/// assert_eq!(change.after.as_deref(), Some("12"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceChange {
    /// What changes, such as `stock:tea` or a URL.
    pub resource: String,
    /// What happens to it, in a few words.
    pub summary: String,
    /// Its current state, if known; the plan is stale once it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its state afterwards, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Facts for experts; pages show them on demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether its effects end with the call, and nothing is sent to other machines.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub confined: bool,
}

impl ResourceChange {
    /// Creates a change of `resource` without its states.
    #[must_use]
    pub fn new(resource: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            resource: resource.into(),
            summary: summary.into(),
            before: None,
            after: None,
            detail: None,
            confined: false,
        }
    }

    /// Sets the current state.
    #[must_use]
    pub fn before(mut self, text: impl Into<String>) -> Self {
        self.before = Some(text.into());
        self
    }

    /// Sets the state afterwards.
    #[must_use]
    pub fn after(mut self, text: impl Into<String>) -> Self {
        self.after = Some(text.into());
        self
    }

    /// Says that its effects end with the call, and nothing is sent to other machines.
    #[must_use]
    pub fn confined(mut self) -> Self {
        self.confined = true;
        self
    }

    /// Sets the facts for experts.
    #[must_use]
    pub fn detail(mut self, text: impl Into<String>) -> Self {
        self.detail = Some(text.into());
        self
    }
}

/// Cost of a call, charged to the worker's budgets before it is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes written.
    pub bytes: u64,
    /// Files and directories created, changed, moved or removed.
    pub files: u64,
}

/// What a mutating call would do, computed from the current state; nothing has changed yet.
///
/// `S` is the data that the tool needs to apply and to undo the plan.
#[derive(Debug)]
pub struct Plan<S> {
    /// The changes of files. The preview token is a hash of all changes.
    pub changes: Vec<Change>,
    /// The changes of other resources.
    pub resources: Vec<ResourceChange>,
    /// The reply, the same for preview and apply.
    pub reply: Reply,
    /// The cost, charged before apply.
    pub cost: Cost,
    /// The steps of apply.
    pub steps: S,
    /// The steps that undo it, if possible.
    pub inverse: Option<S>,
}

impl<S> Plan<S> {
    /// Converts the steps.
    pub(crate) fn try_map<T, E>(self, convert: impl Fn(S) -> Result<T, E>) -> Result<Plan<T>, E> {
        Ok(Plan {
            changes: self.changes,
            resources: self.resources,
            reply: self.reply,
            cost: self.cost,
            steps: convert(self.steps)?,
            inverse: self.inverse.map(convert).transpose()?,
        })
    }

    /// Approximate size in bytes while it is kept: old and new content, the diff, and the changes of other resources in the
    /// plan, the question and its review.
    pub(crate) fn weight(&self) -> u64 {
        let lines = self
            .changes
            .iter()
            .flat_map(|change| change.diff.hunks.iter());
        let lines = lines.flat_map(|hunk| &hunk.lines);
        let shown: u64 = lines.map(|line| line.text.len() as u64 + 32).sum();
        let old = |change: &Change| match change.before {
            Entry::File { bytes, .. } => bytes,
            Entry::Absent | Entry::Directory { .. } => 0,
        };
        let resources = self.resources.iter().map(|one| one.text_bytes() as u64);
        let contents = self.changes.iter().map(old).sum::<u64>() + self.cost.bytes;
        contents + shown + 3 * resources.sum::<u64>()
    }
}

/// A value for structured output, serialised only if needed.
pub trait Output: Any + Send + Sync + fmt::Debug {
    /// Returns the value as JSON.
    ///
    /// # Errors
    /// The serialiser's error, which is a bug in the tool.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
    /// Appends the value as JSON text.
    ///
    /// # Errors
    /// The serialiser's error, which is a bug in the tool.
    fn write_json(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error>;
    /// Returns the value itself, for callers in this process.
    fn as_any(&self) -> &dyn Any;
}

impl<T: Serialize + Any + Send + Sync + fmt::Debug> Output for T {
    fn to_json(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    fn write_json(&self, text: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(text, self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Reply of a tool, as content and as a value for `structuredContent`. Both contain the same information, truncated at
/// the same place, since some clients give their model only one of them.
///
/// A result has no `structuredContent` if the value is `null` in JSON, such as `()`.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The content blocks. Only they contain images, audio and other binary data.
    pub content: Vec<Content>,
    /// The same as a typed value.
    pub output: Arc<dyn Output>,
}

impl Reply {
    /// Creates a reply with one text.
    #[must_use]
    pub fn text(text: impl Into<String>, output: impl Output) -> Self {
        Self {
            content: vec![Content::Text(Utf8::from(text.into()))],
            output: Arc::new(output),
        }
    }

    /// Returns the structured output as JSON; `null` if there is none.
    ///
    /// # Errors
    /// `INTERNAL` if the tool's output cannot be written as JSON.
    pub fn structured(&self) -> Result<Value, CallError> {
        self.output.to_json().map_err(|error| not_json(&error))
    }

    /// Appends the structured output as JSON text, which is `null` if there is none.
    #[doc(hidden)]
    pub fn write_structured(&self, text: &mut Vec<u8>) -> Result<(), CallError> {
        self.output
            .write_json(text)
            .map_err(|error| not_json(&error))
    }
}

fn not_json(error: &serde_json::Error) -> CallError {
    let message = format!("cannot write the tool's output as JSON: {error}");
    CallError::new(crate::error::Code::Internal, message)
}

/// Identifies a plan; the same files and arguments give the same token.
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

/// Reference to an artifact of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArtifactRef {
    /// `ui://edit_file/<id>.diff`, for example; the id has 128 random bits.
    pub uri: String,
    /// `diff`, `json` or `review`.
    pub name: &'static str,
    /// Its title, such as `Review of edit_file`.
    pub title: String,
    /// Its media type.
    pub mime: &'static str,
}

/// Preview of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Preview {
    /// The root that contains all changes, or the top of the namespace.
    pub base: VirtualPath,
    /// One sentence for people, rendered from the tool's template. It quotes the agent's arguments.
    pub intent: String,
    /// What would change, in order.
    pub changes: Vec<Change>,
    /// What would change that is not a file, in order.
    pub resources: Vec<ResourceChange>,
    /// The reply of the call.
    pub reply: Reply,
    /// Binds a later call to this preview.
    pub token: PreviewToken,
    /// Its artifacts.
    pub artifacts: Vec<ArtifactRef>,
    /// Whether the changes of files can be undone afterwards: the runtime has a journal and the tool `undo`, and the journal
    /// keeps what they replace.
    pub undoable: bool,
    /// The call that was previewed, if its caller may apply the preview.
    pub(crate) call: Option<Arc<Call>>,
}

impl Preview {
    /// Returns the call that carries out this preview: the previewed call with the preview's token. Returns `None` for
    /// previews in questions and previews of the gateway, whose calls other parties submit.
    ///
    /// [`Worker::apply`](crate::Worker::apply) submits it;
    /// [`GrantAuthority::submit`](crate::GrantAuthority::submit) submits it with grants.
    #[must_use]
    pub fn call(&self) -> Option<Call> {
        let mut call = Call::clone(self.call.as_deref()?);
        call.meta.preview_token = Some(self.token);
        Some(call)
    }
}

/// Result of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The tool's reply.
    pub reply: Reply,
    /// The changes, in order. Empty for calls that only read, and for calls whose arguments requested a preview.
    pub changes: Vec<Change>,
    /// The changes of other resources, as in the preview.
    pub resources: Vec<ResourceChange>,
    /// Its artifacts.
    pub artifacts: Vec<ArtifactRef>,
    /// Whether the audit recorded the effect. If not, it still happened.
    pub recorded: bool,
}

impl Outcome {
    /// Returns whether the call changed something, according to its tool.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty() || !self.resources.is_empty()
    }

    /// Returns the text for the model: all text blocks and links, joined by line breaks.
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

    /// Returns the structured output as JSON; `null` if there is none.
    ///
    /// # Errors
    /// `INTERNAL` if the tool's output cannot be written as JSON.
    pub fn structured(&self) -> Result<Value, CallError> {
        self.reply.structured()
    }

    /// Returns the structured output as the tool's own type, if `T` is that type.
    #[must_use]
    pub fn output<T: 'static>(&self) -> Option<&T> {
        self.reply.output.as_any().downcast_ref()
    }
}
