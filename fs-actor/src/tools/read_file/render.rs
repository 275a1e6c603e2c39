//! Renders the content of a file as content blocks and metadata.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use bailiwick::effect::{Content, Utf8};
use bailiwick::text::escape;
use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use bytes::Bytes;

use super::file_bytes::{FileBytes, LazyHash};
use super::lines::{self, CollectedLines, LineCollector, LineSelection};
use super::{ByteBudget, FileContent, Job, stream};
use crate::media;
use crate::read_view::ReadView;
use crate::resolve::{self, OpenFile};

/// Maximum size of a file that is buffered; larger ones are streamed.
pub(super) const MAX_BUFFERED: u64 = 1024 * 1024;
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The content of a file, buffered or to be streamed.
pub(super) enum Source {
    Buffered(FileBytes),
    Streamed(OpenFile),
}

pub(super) fn open_and_render(
    view: &dyn ReadView,
    job: &Job,
    path: &VirtualPath,
    budget: ByteBudget,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let mut opened = resolve::file(view, path)?;
    if budget.all == 0 || budget.text == 0 {
        let message = "the limit of one result is reached; read this file separately";
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    let source = if opened.meta.len <= MAX_BUFFERED {
        let length = opened.meta.len;
        let bytes = take(&mut opened.file, length, MAX_BUFFERED)?;
        Source::Buffered(FileBytes::new(bytes))
    } else {
        Source::Streamed(opened)
    };
    render(view, job, path, budget, source, content)
}

/// Reads at most `limit` bytes; memory grows with the bytes read, and at first for the `expected` ones.
pub(super) fn take(file: &mut File, expected: u64, limit: u64) -> Result<Bytes, CallError> {
    // With one more byte, the end is found without growing.
    let room = expected.min(limit).saturating_add(1).min(MAX_BUFFERED + 1);
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(0));
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| lines::failed(&error))?;
    Ok(bytes.into())
}

pub(super) fn render(
    view: &dyn ReadView,
    job: &Job,
    path: &VirtualPath,
    budget: ByteBudget,
    source: Source,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let mut file = FileContent {
        path: view.actual(path).to_string(),
        ..FileContent::default()
    };
    let selection = LineSelection {
        max_bytes: job.selection.max_bytes.min(budget.text),
        ..job.selection
    };
    let (source, head) = match source {
        Source::Buffered(data) => {
            let head = data.bytes().clone();
            (Source::Buffered(data), head)
        }
        Source::Streamed(mut opened) => {
            let head = take(&mut opened.file, media::HEAD as u64, media::HEAD as u64)?;
            opened
                .file
                .rewind()
                .map_err(|error| lines::failed(&error))?;
            (Source::Streamed(opened), head)
        }
    };
    let length = match &source {
        Source::Buffered(data) => u64::try_from(data.bytes().len()).unwrap_or(u64::MAX),
        Source::Streamed(opened) => opened.meta.len,
    };
    file.bytes = Some(length);
    let most = job.binary_bytes.min(budget.all);
    let kind = media::kind(&head);
    match (kind, source) {
        (media::Kind::Text, Source::Buffered(data)) => {
            if job.binary && std::str::from_utf8(data.bytes()).is_err() {
                let data = read_binary(path, length, most, Source::Buffered(data))?;
                return Ok(render_binary(job, kind, path, &data, file, content));
            }
            render_text(job, path, selection, &data, file, content)
        }
        (media::Kind::Text, Source::Streamed(mut opened)) => {
            let (from, facts) = (&mut opened, file.clone());
            let read = stream::text(view, job, path, selection, from, facts, content);
            match read {
                Err(Interrupt::Failed(error)) if job.binary && error.code() == Code::NotText => {}
                read => return read,
            }
            opened
                .file
                .rewind()
                .map_err(|error| lines::failed(&error))?;
            let data = read_binary(path, length, most, Source::Streamed(opened))?;
            Ok(render_binary(job, kind, path, &data, file, content))
        }
        (media::Kind::Other(guess), _) if !job.binary => Err(not_text(path, length, guess).into()),
        (kind, source) => {
            let data = read_binary(path, length, most, source)?;
            Ok(render_binary(job, kind, path, &data, file, content))
        }
    }
}

/// The content of a binary file, if it fits.
fn read_binary(
    path: &VirtualPath,
    length: u64,
    budget: u64,
    source: Source,
) -> Result<FileBytes, CallError> {
    let data = match source {
        Source::Buffered(data) => data,
        Source::Streamed(_) if length > budget => FileBytes::new(Bytes::new()),
        Source::Streamed(mut opened) => {
            let limit = budget.saturating_add(1);
            FileBytes::new(take(&mut opened.file, length, limit)?)
        }
    };
    let longest = length.max(u64::try_from(data.bytes().len()).unwrap_or(u64::MAX));
    if longest > budget {
        let message = format!(
            "`{}` has {longest} bytes, and at most {budget} may be returned",
            escape(path.as_str())
        );
        return Err(CallError::new(Code::TooLarge, message).with("bytes", longest));
    }
    Ok(data)
}

fn render_binary(
    job: &Job,
    kind: media::Kind,
    path: &VirtualPath,
    data: &FileBytes,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> FileContent {
    let hash = data.hash();
    if job.knows(&hash) {
        return unchanged(file, hash, content);
    }
    file.hash = Some(hash);
    let bytes = data.bytes().clone();
    content.push(match kind {
        media::Kind::Image(mime) => {
            file.mime = Some(mime);
            Content::Image { bytes, mime }
        }
        media::Kind::Audio(mime) => {
            file.mime = Some(mime);
            Content::Audio { bytes, mime }
        }
        media::Kind::Other(_) | media::Kind::Text => Content::Blob {
            path: path.clone(),
            bytes,
        },
    });
    file
}

fn render_text(
    job: &Job,
    path: &VirtualPath,
    selection: LineSelection,
    data: &FileBytes,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let hash = data.hash();
    if job.knows(&hash) {
        return Ok(unchanged(file, hash, content));
    }
    file.hash = Some(hash);
    file.bom = data.has_bom();
    let text = data.after_bom();
    let lines = lines::count_lines(&text);
    file.lines = Some(lines);
    let range = selection.range(lines)?;
    if selection.is_whole(text.len(), lines) {
        let is_empty = text.is_empty();
        let text = data.text().map_err(|_| not_utf8(path, &file))?;
        if !is_empty {
            (file.first_line, file.last_line) = (Some(1), Some(lines));
        }
        file.text = Some(text.clone());
        content.push(Content::Text(text));
        return Ok(file);
    }
    let mut collector = LineCollector::new(selection, range);
    collector.feed(&text);
    add_lines(path, range.0, collector.finish(), file, content)
}

/// Adds lines of text, and where to continue.
pub(super) fn add_lines(
    path: &VirtualPath,
    first: u64,
    collected: CollectedLines,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    add_text(path, collected.text, &mut file, content)?;
    if collected.last >= first {
        (file.first_line, file.last_line) = (Some(first), Some(collected.last));
    }
    file.line_cut = collected.line_cut;
    let more = file.lines.is_none_or(|lines| collected.last < lines);
    file.next_offset = more.then_some(collected.last + 1);
    let mut notice = String::new();
    if collected.line_cut {
        let _ = write!(notice, "{} ", line_cut(first));
    }
    if let Some(next) = file.next_offset {
        let total = file
            .lines
            .map_or_else(|| "many".to_owned(), |lines| lines.to_string());
        let _ = write!(
            notice,
            "[lines {first}-{} of {total}; continue with offset {next}]",
            collected.last
        );
    }
    if !notice.is_empty() {
        content.push(Content::Text(Utf8::from(notice)));
    }
    Ok(file)
}

/// Adds text without a notice.
pub(super) fn add_text(
    path: &VirtualPath,
    text: Vec<u8>,
    file: &mut FileContent,
    content: &mut Vec<Content>,
) -> Result<(), CallError> {
    let text = Utf8::new(text.into()).map_err(|_| not_utf8(path, file))?;
    file.text = Some(text.clone());
    content.push(Content::Text(text));
    Ok(())
}

/// The notice for a line that was cut.
pub(super) fn line_cut(line: impl std::fmt::Display) -> String {
    format!("[line {line} is longer than the limit and was cut; set `max_bytes` for more]")
}

pub(super) fn unchanged(
    mut file: FileContent,
    hash: LazyHash,
    content: &mut Vec<Content>,
) -> FileContent {
    file.hash = Some(hash);
    file.unchanged = true;
    content.push(Content::Text(Utf8::from(
        "[unchanged since it was read]".to_owned(),
    )));
    file
}

fn not_utf8(path: &VirtualPath, file: &FileContent) -> CallError {
    let bytes = file.bytes.unwrap_or_default();
    not_text(path, bytes, "text in another encoding, or binary data")
}

fn not_text(path: &VirtualPath, bytes: u64, guess: &str) -> CallError {
    let message = format!(
        "`{}` is not UTF-8 text; it seems to be {guess} ({bytes} bytes); set `binary` to get its bytes",
        escape(path.as_str())
    );
    CallError::new(Code::NotText, message)
        .with("bytes", bytes)
        .with("guess", guess)
}
