//! Paths and a range of lines in, text, images and sounds out; how much there is, and where to go on.

mod media;
mod piece;
mod through;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IoSliceMut, Read as _, Seek as _};

use bailiwick::{
    CallError, Code, Content, ContentHash, Halt, Namespace, Prepared, ReadPermit, ReadTool, Reply,
    Scope, ToolSpec, Utf8, Verb, VirtualPath, escape,
};
use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::suggest;
use crate::lens::Lens;
use crate::resolve::{self, OpenFile};
use piece::{Gather, Piece, Want};

pub use piece::Hash;

/// The largest file that is answered at once.
const AT_HAND: usize = 64 * 1024;
/// The largest file that is taken into memory as a whole; a larger one is read through.
const WHOLE: u64 = 1024 * 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The most files in one call.
const MAX_FILES: usize = 100;

/// Reads files.
#[derive(Debug)]
pub(crate) struct ReadFile;

/// What to read.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadFileArgs {
    /// The file to read.
    pub path: Option<String>,
    /// Several files to read at once, in place of `path`.
    #[schemars(length(max = 100))]
    pub paths: Vec<String>,
    /// The first line to return, counted from 1; negative counts from the end, so -20 begins with the last 20 lines.
    pub offset: Option<i64>,
    /// How many lines to return.
    pub limit: Option<u64>,
    /// Puts its number before each line.
    pub line_numbers: bool,
    /// The most bytes to return of each file.
    pub max_bytes: Option<u64>,
    /// The hash from an earlier read: if the file is still the same, only `unchanged` is returned.
    pub known_hash: Option<ContentHash>,
    /// Returns a file that is no text, image or sound as its bytes, too.
    pub binary: bool,
}

/// What was read, apart from the text itself, which stands in the content.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FilesRead {
    /// One for each file that was asked for, in that order.
    pub files: Vec<FileRead>,
}

/// What was read of one file.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct FileRead {
    /// Its path, links followed.
    pub path: String,
    /// Its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many lines it has; not known of very large files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// The first line returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_line: Option<u64>,
    /// The last line returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<u64>,
    /// The `offset` to go on with, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// The last line returned is longer than the limit and was cut.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub line_cut: bool,
    /// It is what `known_hash` says, so it was not returned again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
    /// It begins with a byte order mark, which is not in the text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bom: bool,
    /// Its media type, if it is an image or a sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime: Option<&'static str>,
    /// Of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ContentHash>")]
    pub hash: Option<Hash>,
    /// Why this one of several files was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A read once understood.
#[derive(Debug)]
pub struct Job {
    paths: Vec<VirtualPath>,
    want: Want,
    known_hash: Option<ContentHash>,
    binary: bool,
}

impl ReadTool for ReadFile {
    type Args = ReadFileArgs;
    type Output = FilesRead;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "read_file",
            "Read file",
            "Reads one file, or several at once: text as it is (give `offset` and `limit` for part of it), images and sounds as such. Tells the totals and, if there is more, the offset to go on with.",
        )
        .intent("Read {path}{paths}")
        .scopes(&["read:file"])
        .idempotent()
    }

    fn prepare(&self, args: ReadFileArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let refuse = |message: &str| Err(CallError::new(Code::InvalidArguments, message));
        let given = match (args.path, args.paths) {
            (Some(path), paths) if paths.is_empty() => vec![path],
            (None, paths) if !paths.is_empty() => paths,
            _ => return refuse("give either `path` or `paths`"),
        };
        if given.len() > MAX_FILES {
            return refuse("too many files at once; ask for at most 100");
        }
        if args.offset == Some(0) || args.limit == Some(0) {
            return refuse("lines are counted from 1; neither `offset` nor `limit` can be 0");
        }
        let paths: Vec<VirtualPath> = given
            .iter()
            .map(|path| names.path(path))
            .collect::<Result<_, _>>()?;
        let needs = paths
            .iter()
            .map(|path| Scope::file(Verb::Read, path.clone()))
            .collect();
        let want = Want {
            offset: args.offset.unwrap_or(1),
            limit: args.limit,
            max_bytes: args.max_bytes.unwrap_or(u64::MAX),
            line_numbers: args.line_numbers,
        };
        Ok(Prepared {
            needs,
            job: Job {
                paths,
                want,
                known_hash: args.known_hash,
                binary: args.binary,
            },
        })
    }

    fn read_now(&self, job: &Job, permit: &ReadPermit) -> Option<Result<Reply, Halt>> {
        read_at_hand(permit, job)
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Halt> {
        read_files(permit, job)
    }
}

fn read_at_hand(lens: &dyn Lens, job: &Job) -> Option<Result<Reply, Halt>> {
    let [path] = job.paths.as_slice() else {
        return None;
    };
    let opened = resolve::file_at_hand(lens, path)?;
    let bytes = bytes_at_hand(&opened)?;
    let mut content = Vec::with_capacity(1);
    let read = render(
        lens,
        job,
        path,
        lens.max_bytes(),
        Source::Whole(bytes),
        &mut content,
    );
    Some(read.map(|file| Reply {
        content,
        output: std::sync::Arc::new(FilesRead { files: vec![file] }),
    }))
}

/// All of a small file, if it is in memory; the read never waits.
fn bytes_at_hand(opened: &OpenFile) -> Option<Bytes> {
    let length = usize::try_from(opened.meta.len)
        .ok()
        .filter(|length| *length <= AT_HAND)?;
    // One byte more than there should be tells a file that has grown.
    let mut buffer = vec![0; length + 1];
    let into = &mut [IoSliceMut::new(&mut buffer)];
    let got = preadv2(&opened.file, into, 0, ReadWriteFlags::NOWAIT).ok()?;
    if got != length {
        return None;
    }
    buffer.truncate(got);
    Some(buffer.into())
}

fn read_files(lens: &dyn Lens, job: &Job) -> Result<Reply, Halt> {
    let mut content = Vec::new();
    let mut files = Vec::with_capacity(job.paths.len());
    let mut left = lens.max_bytes();
    for path in &job.paths {
        lens.checkpoint()?;
        let before = content.len();
        let read = open_and_render(lens, job, path, left, &mut content);
        let file = match read.map_err(|halt| suggest::halted(lens, path, halt)) {
            Ok(file) => file,
            Err(Halt::Failed(error)) if job.paths.len() > 1 && is_about_the_file(error.code()) => {
                FileRead {
                    path: path.to_string(),
                    error: Some(error.to_string()),
                    ..FileRead::default()
                }
            }
            Err(halt) => return Err(halt),
        };
        left = left.saturating_sub(content.iter().skip(before).map(length).sum::<u64>());
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
        output: std::sync::Arc::new(FilesRead { files }),
    })
}

/// Whether other files may still be read after this failure.
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

fn length(content: &Content) -> u64 {
    let length = match content {
        Content::Text(text) => text.as_str().len(),
        Content::Image { bytes, .. } | Content::Audio { bytes, .. } | Content::Blob { bytes } => {
            bytes.len()
        }
        _ => 0,
    };
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The bytes of a file, at once or to be read through.
enum Source {
    Whole(Bytes),
    Through(OpenFile),
}

fn open_and_render(
    lens: &dyn Lens,
    job: &Job,
    path: &VirtualPath,
    room: u64,
    content: &mut Vec<Content>,
) -> Result<FileRead, Halt> {
    let mut opened = resolve::file(lens, path)?;
    if room == 0 {
        let message = "the limit of one answer is reached; read this file by itself";
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    let source = if opened.meta.len <= WHOLE {
        Source::Whole(take(&mut opened.file, WHOLE)?)
    } else {
        Source::Through(opened)
    };
    render(lens, job, path, room, source, content)
}

/// At most `limit` bytes from where `file` stands; memory grows with what comes, not with what was announced.
fn take(file: &mut File, limit: u64) -> Result<Bytes, CallError> {
    let mut bytes = Vec::new();
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| piece::failed(&error))?;
    Ok(bytes.into())
}

fn render(
    lens: &dyn Lens,
    job: &Job,
    path: &VirtualPath,
    room: u64,
    source: Source,
    content: &mut Vec<Content>,
) -> Result<FileRead, Halt> {
    let mut file = FileRead {
        path: lens.actual(path).to_string(),
        ..FileRead::default()
    };
    let want = Want {
        max_bytes: job.want.max_bytes.min(room),
        ..job.want
    };
    let (source, head) = match source {
        Source::Whole(bytes) => (Source::Whole(bytes.clone()), bytes),
        Source::Through(mut opened) => {
            let head = take(&mut opened.file, media::HEAD as u64)?;
            opened
                .file
                .rewind()
                .map_err(|error| piece::failed(&error))?;
            (Source::Through(opened), head)
        }
    };
    let length = match &source {
        Source::Whole(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        Source::Through(opened) => opened.meta.len,
    };
    file.bytes = Some(length);
    let kind = media::kind(&head);
    match (kind, source) {
        (media::Kind::Text, Source::Whole(bytes)) => whole_text(job, want, &bytes, file, content),
        (media::Kind::Text, Source::Through(opened)) => {
            through::text(lens, job, want, opened, file, content)
        }
        (media::Kind::Other(guess), _) if !job.binary => Err(not_text(path, length, guess).into()),
        (kind, source) => {
            let bytes = binary(path, length, want.max_bytes, source)?;
            Ok(whole_binary(job, kind, bytes, file, content))
        }
    }
}

/// All bytes of a file that is no text, if they fit.
fn binary(path: &VirtualPath, length: u64, room: u64, source: Source) -> Result<Bytes, CallError> {
    let bytes = match source {
        Source::Whole(bytes) => bytes,
        Source::Through(_) if length > room => Bytes::new(),
        Source::Through(mut opened) => take(&mut opened.file, room.saturating_add(1))?,
    };
    let longest = length.max(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    if longest > room {
        let message = format!("`{path}` has {longest} bytes, and at most {room} may be returned");
        return Err(CallError::new(Code::TooLarge, message).with("bytes", longest));
    }
    Ok(bytes)
}

fn whole_binary(
    job: &Job,
    kind: media::Kind,
    bytes: Bytes,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> FileRead {
    let hash = Hash::Of(bytes.clone());
    if job.known_hash.is_some_and(|known| known == hash.get()) {
        return unchanged(file, hash, content);
    }
    file.hash = Some(hash);
    content.push(match kind {
        media::Kind::Image(mime) => {
            file.mime = Some(mime);
            Content::Image { bytes, mime }
        }
        media::Kind::Audio(mime) => {
            file.mime = Some(mime);
            Content::Audio { bytes, mime }
        }
        media::Kind::Other(_) | media::Kind::Text => Content::Blob { bytes },
    });
    file
}

fn whole_text(
    job: &Job,
    want: Want,
    bytes: &Bytes,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Halt> {
    let hash = Hash::Of(bytes.clone());
    if job.known_hash.is_some_and(|known| known == hash.get()) {
        return Ok(unchanged(file, hash, content));
    }
    file.hash = Some(hash);
    file.bom = bytes.starts_with(BOM);
    let text = bytes.slice(if file.bom { BOM.len() } else { 0 }..);
    let lines = piece::count_lines(&text);
    file.lines = Some(lines);
    let range = want.range(lines)?;
    if want.is_whole(text.len()) {
        let length = text.len();
        let text = Utf8::new(text).map_err(|_| not_text_here(job, &file))?;
        if length > 0 {
            (file.first_line, file.last_line) = (Some(1), Some(lines));
        }
        content.push(Content::Text(text));
        return Ok(file);
    }
    let mut gather = Gather::new(want, range);
    gather.feed(&text);
    shown(job, range.0, gather.finish(), file, content)
}

/// Adds a piece of text, and where to go on.
fn shown(
    job: &Job,
    first: u64,
    piece: Piece,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Halt> {
    let text = Utf8::new(piece.text.into()).map_err(|_| not_text_here(job, &file))?;
    content.push(Content::Text(text));
    if piece.last >= first {
        (file.first_line, file.last_line) = (Some(first), Some(piece.last));
    }
    file.line_cut = piece.line_cut;
    let more = file.lines.is_none_or(|lines| piece.last < lines);
    file.next_offset = more.then_some(piece.last + 1);
    let mut notice = String::new();
    // Writing to a String does not fail.
    if piece.line_cut {
        let _ = write!(
            notice,
            "[line {first} is longer than the limit and was cut] "
        );
    }
    if let Some(next) = file.next_offset {
        let total = file
            .lines
            .map_or_else(|| "many".to_owned(), |lines| lines.to_string());
        let _ = write!(
            notice,
            "[lines {first}-{} of {total}; go on with offset {next}]",
            piece.last
        );
    }
    if !notice.is_empty() {
        content.push(Content::Text(Utf8::from(notice)));
    }
    Ok(file)
}

fn unchanged(mut file: FileRead, hash: Hash, content: &mut Vec<Content>) -> FileRead {
    file.hash = Some(hash);
    file.unchanged = true;
    content.push(Content::Text(Utf8::from(
        "[unchanged since it was read]".to_owned(),
    )));
    file
}

fn not_text_here(job: &Job, file: &FileRead) -> CallError {
    let path = job
        .paths
        .iter()
        .find(|path| path.as_str() == file.path)
        .or(job.paths.first());
    let bytes = file.bytes.unwrap_or_default();
    path.map_or_else(
        || CallError::new(Code::NotText, "it is not UTF-8 text"),
        |path| not_text(path, bytes, "text in another encoding, or binary data"),
    )
}

fn not_text(path: &VirtualPath, bytes: u64, guess: &str) -> CallError {
    let message = format!(
        "`{path}` is not UTF-8 text but seems to be {guess} ({bytes} bytes); ask with `binary` to get its bytes"
    );
    CallError::new(Code::NotText, message)
        .with("bytes", bytes)
        .with("guess", guess)
}

#[cfg(test)]
mod tests;
