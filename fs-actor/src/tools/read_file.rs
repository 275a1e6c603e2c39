//! `read_file`: reads text, images, audio and other files.

mod file_bytes;
mod lines;
mod render;
mod stream;

use std::io::IoSliceMut;

use bailiwick::config::Namespace;
use bailiwick::effect::{Content, Utf8};
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Code, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::{optional, suggest};
use crate::read_view::ReadView;
use crate::resolve::{self, CachedFile, FileCache};
use crate::sys::{ReadWriteFlags, preadv2};
use file_bytes::FileBytes;
use lines::LineSelection;
use render::{Source, open_and_render, render};

pub use file_bytes::LazyHash;

/// Maximum size of a file that is read without waiting for a disk.
const MAX_NOWAIT_BYTES: u64 = 64 * 1024;
/// Maximum size of file content that is kept with the file in the file cache.
const MAX_CACHED_BYTES: usize = 16 * 1024;
/// Maximum number of files per call.
const MAX_FILES: usize = 100;

/// Reads files.
#[derive(Debug, Default)]
pub(crate) struct ReadFile {
    file_cache: FileCache<FileBytes>,
}

/// Arguments of `read_file`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadFileArgs {
    /// File to read.
    #[serde(deserialize_with = "optional::text")]
    pub path: Option<String>,
    /// Up to 100 files to read, instead of `path`.
    pub paths: Vec<String>,
    /// First line, from 1; negative counts from the end.
    pub offset: Option<i64>,
    /// Lines to return (default 2000).
    pub limit: Option<u64>,
    /// Prefix lines with their numbers.
    pub line_numbers: bool,
    /// Maximum bytes to return (default 100000).
    pub max_bytes: Option<u64>,
    /// Return nothing if the file still has this `hash`.
    #[serde(deserialize_with = "optional::text")]
    pub known_hash: Option<HashPrefix>,
    /// Return files of any type, as bytes.
    pub binary: bool,
}

/// Output of `read_file`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadFileOutput {
    /// One for each requested file, in the same order.
    pub files: Vec<FileContent>,
}

/// The content of one file.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FileContent {
    /// Its path, links followed.
    pub path: String,
    /// Its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Number of lines; absent for very large files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// The first line returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u64>,
    /// The last line returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<u64>,
    /// The `offset` of the next result, if there is more; absent for lines counted from the end of a very large file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// The last line returned is longer than the limit and was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub line_cut: bool,
    /// It matches `known_hash`, so its content is not returned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub unchanged: bool,
    /// It begins with a byte order mark, which is not in the text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub bom: bool,
    /// Its media type, if it is an image or audio file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime: Option<&'static str>,
    /// Prefix of the SHA-256 of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<HashPrefix>")]
    pub hash: Option<LazyHash>,
    /// The text, if it is text; the same as in the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub text: Option<Utf8>,
    /// Why this file, one of several, was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    paths: Vec<VirtualPath>,
    selection: LineSelection,
    /// Maximum bytes of binary files.
    binary_bytes: u64,
    known_hash: Option<HashPrefix>,
    binary: bool,
}

impl Job {
    /// Whether the caller has the content with this hash.
    fn knows(&self, hash: &LazyHash) -> bool {
        let known = self.known_hash.as_ref();
        known.is_some_and(|known| known.matches(&hash.get()))
    }
}

const EXAMPLES: &[Example] = &[
    Example {
        description: "Read a whole file",
        input: r#"{"path": "notes.txt"}"#,
        output: r#"{"files": [{"bytes": 14, "lines": 3, "first_line": 1, "last_line": 3}]}"#,
    },
    Example {
        description: "Read the last line",
        input: r#"{"path": "notes.txt", "offset": -1}"#,
        output: r#"{"files": [{"first_line": 3, "last_line": 3}]}"#,
    },
    Example {
        description: "Read several files",
        input: r#"{"paths": ["notes.txt", "README.md"]}"#,
        output: r#"{"files": [{"bytes": 14}, {"bytes": 7}]}"#,
    },
];
const FAILURES: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "there is no such file",
        resolution: "Use a name that the message suggests, or list the directory",
    },
    Failure {
        code: Code::NotRegular,
        when: "the path is a directory or device",
        resolution: "List a directory with `list_directory`",
    },
    Failure {
        code: Code::NotText,
        when: "the file is not text, an image or audio",
        resolution: "Set `binary` to get its bytes",
    },
];

impl ReadTool for ReadFile {
    type Args = ReadFileArgs;
    type Output = ReadFileOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "read_file",
            "Read file",
            "Reads one or more text, image or audio files.",
        )
        .intent("Read [{path}] [{paths}] [from line {offset}]")
        .scopes(&["read:file"])
        .idempotent()
        .group("files", 1.0)
        .command_line("cat -- [{path}][{paths}]")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: ReadFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let refuse = |field: &str, reason: &str| Err(CallError::invalid_argument(field, reason));
        let selection = LineSelection::of(&args);
        let (given, field) = match (args.path, args.paths) {
            (Some(path), paths) if paths.is_empty() => (vec![path], None),
            (None, paths) if !paths.is_empty() => (paths, Some("/paths")),
            (Some(_), _) => return refuse("/paths", "expected either `path` or `paths`, got both"),
            (None, _) => {
                let reason = "expected a string, or a list of strings as `paths`, got neither";
                return refuse("/path", reason);
            }
        };
        let count = given.len();
        if count > MAX_FILES {
            let reason = format!("expected at most {MAX_FILES} paths, got {count}");
            return refuse("/paths", &reason);
        }
        if args.offset == Some(0) {
            let reason = "expected a line number from 1, or from -1 to count from the end, got `0`";
            return refuse("/offset", reason);
        }
        if args.limit == Some(0) {
            return refuse("/limit", "expected an integer of at least 1, got `0`");
        }
        let parsed = |(index, path): (usize, &String)| match field {
            None => names.path_argument("/path", path),
            Some(field) => names.path_argument(&format!("{field}/{index}"), path),
        };
        let paths = given.iter().enumerate().map(parsed);
        let paths: Vec<VirtualPath> = paths.collect::<Result<_, _>>()?;
        let needs = paths
            .iter()
            .map(|path| Scope::file(Verb::Read, path.clone()))
            .collect();
        Ok(Prepared {
            needs,
            job: Job {
                paths,
                selection,
                binary_bytes: args.max_bytes.unwrap_or(u64::MAX),
                known_hash: args.known_hash,
                binary: args.binary,
            },
        })
    }

    fn read_now(&self, job: &Job, permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        try_read_nowait(permit, job, &self.file_cache)
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        read_files(permit, job)
    }
}

fn try_read_nowait(
    view: &dyn ReadView,
    job: &Job,
    file_cache: &FileCache<FileBytes>,
) -> Option<Result<Reply, Interrupt>> {
    let [path] = job.paths.as_slice() else {
        return None;
    };
    let file = resolve::try_open_nowait(view, path, MAX_NOWAIT_BYTES, file_cache)?;
    let data = try_read_bytes(&file)?;
    let mut content = Vec::with_capacity(1);
    let read = render(
        view,
        job,
        path,
        ByteBudget::of(view, job),
        Source::Buffered(data),
        &mut content,
    );
    Some(read.map(|file| Reply {
        content,
        output: std::sync::Arc::new(ReadFileOutput { files: vec![file] }),
    }))
}

/// The content of a small file if the kernel has cached it; never blocks. If it equals what was read the last time, that is
/// returned, with its hash and text.
fn try_read_bytes(file: &CachedFile<FileBytes>) -> Option<FileBytes> {
    let length = usize::try_from(file.open.meta.len).ok()?;
    // One more byte than expected means that the file has grown.
    let mut buffer = vec![0; length + 1];
    let into = &mut [IoSliceMut::new(&mut buffer)];
    let got = preadv2(&file.open.file, into, 0, ReadWriteFlags::NOWAIT).ok()?;
    if got != length {
        return None;
    }
    buffer.truncate(got);
    if let Some(known) = file.computed().filter(|known| *known.bytes() == buffer) {
        return Some(known);
    }
    let data = FileBytes::new(buffer.into());
    if length <= MAX_CACHED_BYTES {
        file.set_computed(data.clone());
    }
    Some(data)
}

fn read_files(view: &dyn ReadView, job: &Job) -> Result<Reply, Interrupt> {
    if job.paths.len() > 1 {
        // Otherwise each link would read the previous files again.
        resolve::resolve_links(view, &job.paths)?;
    }
    let mut content = Vec::new();
    let mut files = Vec::with_capacity(job.paths.len());
    let mut budget = ByteBudget::of(view, job);
    for path in &job.paths {
        view.checkpoint()?;
        let before = content.len();
        let read = open_and_render(view, job, path, budget, &mut content);
        let file = match read.map_err(|interrupt| suggest::on_interrupt(view, path, interrupt)) {
            Ok(file) => file,
            Err(Interrupt::Failed(error))
                if job.paths.len() > 1 && is_about_the_file(error.code()) =>
            {
                FileContent {
                    path: path.to_string(),
                    error: Some(error.to_string()),
                    ..FileContent::default()
                }
            }
            Err(interrupt) => return Err(interrupt),
        };
        content
            .iter()
            .skip(before)
            .for_each(|content| budget.take(content));
        if job.paths.len() > 1 {
            let heading = file.error.as_deref().unwrap_or("");
            let heading = format!("== {} {}", escape(&file.path), escape(heading));
            content.insert(
                before,
                Content::Text(Utf8::from(heading.trim_end().to_owned())),
            );
        }
        files.push(file);
    }
    Ok(Reply {
        content,
        output: std::sync::Arc::new(ReadFileOutput { files }),
    })
}

/// Whether other files may still be read after this error.
fn is_about_the_file(code: Code) -> bool {
    matches!(
        code,
        Code::NotFound
            | Code::NotText
            | Code::NotRegular
            | Code::NotDirectory
            | Code::TooLarge
            | Code::PermissionDenied
            | Code::Conflict
            | Code::Io
            | Code::InvalidArguments
    )
}

/// Remaining bytes of the result.
#[derive(Clone, Copy)]
struct ByteBudget {
    /// For text.
    text: u64,
    /// For all content.
    all: u64,
}

impl ByteBudget {
    fn of(view: &dyn ReadView, job: &Job) -> Self {
        let all = view.max_bytes();
        Self {
            text: job.selection.max_bytes.min(all),
            all,
        }
    }

    fn take(&mut self, content: &Content) {
        let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
        self.all = self.all.saturating_sub(length);
        if matches!(content, Content::Text(_)) {
            self.text = self.text.saturating_sub(length);
        }
    }
}

#[cfg(test)]
mod tests;
