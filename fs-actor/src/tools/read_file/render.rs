//! An open file and what is wanted of it in, content blocks and the facts about them out.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _};

use bailiwick::{CallError, Code, Content, Interrupt, Utf8, VirtualPath, escape};
use bytes::Bytes;

use super::piece::{self, Gather, Hash, Piece, Want};
use super::{FileRead, Job, Room, through};
use crate::lens::Lens;
use crate::media;
use crate::resolve::{self, OpenFile};

/// The largest file that is taken into memory as a whole; a larger one is read through.
pub(super) const WHOLE: u64 = 1024 * 1024;
pub(super) const BOM: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file, at once or to be read through.
pub(super) enum Source {
    Whole(Bytes),
    Through(OpenFile),
}

pub(super) fn open_and_render(
    lens: &dyn Lens,
    job: &Job,
    path: &VirtualPath,
    room: Room,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let mut opened = resolve::file(lens, path)?;
    if room.all == 0 || room.text == 0 {
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
pub(super) fn take(file: &mut File, limit: u64) -> Result<Bytes, CallError> {
    let mut bytes = Vec::new();
    let read = file.take(limit).read_to_end(&mut bytes);
    read.map_err(|error| piece::failed(&error))?;
    Ok(bytes.into())
}

pub(super) fn render(
    lens: &dyn Lens,
    job: &Job,
    path: &VirtualPath,
    room: Room,
    source: Source,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let mut file = FileRead {
        path: lens.actual(path).to_string(),
        ..FileRead::default()
    };
    let want = Want {
        max_bytes: job.want.max_bytes.min(room.text),
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
    let most = job.binary_bytes.min(room.all);
    let kind = media::kind(&head);
    match (kind, source) {
        (media::Kind::Text, Source::Whole(bytes)) => {
            if job.binary && std::str::from_utf8(&bytes).is_err() {
                let bytes = binary(path, length, most, Source::Whole(bytes))?;
                return Ok(whole_binary(job, kind, path, bytes, file, content));
            }
            whole_text(job, want, &bytes, file, content)
        }
        (media::Kind::Text, Source::Through(opened)) => {
            let read = through::text(lens, job, want, opened, file.clone(), content);
            match read {
                Err(Interrupt::Failed(error)) if job.binary && error.code() == Code::NotText => {}
                read => return read,
            }
            let again = Source::Through(resolve::file(lens, path)?);
            let bytes = binary(path, length, most, again)?;
            Ok(whole_binary(job, kind, path, bytes, file, content))
        }
        (media::Kind::Other(guess), _) if !job.binary => Err(not_text(path, length, guess).into()),
        (kind, source) => {
            let bytes = binary(path, length, most, source)?;
            Ok(whole_binary(job, kind, path, bytes, file, content))
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
        let message = format!(
            "`{}` has {longest} bytes, and at most {room} may be returned",
            escape(path.as_str())
        );
        return Err(CallError::new(Code::TooLarge, message).with("bytes", longest));
    }
    Ok(bytes)
}

fn whole_binary(
    job: &Job,
    kind: media::Kind,
    path: &VirtualPath,
    bytes: Bytes,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> FileRead {
    let hash = Hash::Of(bytes.clone());
    if job
        .known_hash
        .as_ref()
        .is_some_and(|known| known.matches(&hash.get()))
    {
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
        media::Kind::Other(_) | media::Kind::Text => Content::Blob {
            path: path.clone(),
            bytes,
        },
    });
    file
}

fn whole_text(
    job: &Job,
    want: Want,
    bytes: &Bytes,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let hash = Hash::Of(bytes.clone());
    if job
        .known_hash
        .as_ref()
        .is_some_and(|known| known.matches(&hash.get()))
    {
        return Ok(unchanged(file, hash, content));
    }
    file.hash = Some(hash);
    file.bom = bytes.starts_with(BOM);
    let text = bytes.slice(if file.bom { BOM.len() } else { 0 }..);
    let lines = piece::count_lines(&text);
    file.lines = Some(lines);
    let range = want.range(lines)?;
    if want.is_whole(text.len(), lines) {
        let length = text.len();
        let text = Utf8::new(text).map_err(|_| not_text_here(job, &file))?;
        if length > 0 {
            (file.first_line, file.last_line) = (Some(1), Some(lines));
        }
        file.text = Some(text.clone());
        content.push(Content::Text(text));
        return Ok(file);
    }
    let mut gather = Gather::new(want, range);
    gather.feed(&text);
    shown(job, range.0, gather.finish(), file, content)
}

/// Adds a piece of text, and where to go on.
pub(super) fn shown(
    job: &Job,
    first: u64,
    piece: Piece,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let text = Utf8::new(piece.text.into()).map_err(|_| not_text_here(job, &file))?;
    file.text = Some(text.clone());
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
            "[line {first} is longer than the limit and was cut; set `max_bytes` for more] "
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

pub(super) fn unchanged(mut file: FileRead, hash: Hash, content: &mut Vec<Content>) -> FileRead {
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
        "`{}` is not UTF-8 text but seems to be {guess} ({bytes} bytes); ask with `binary` to get its bytes",
        escape(path.as_str())
    );
    CallError::new(Code::NotText, message)
        .with("bytes", bytes)
        .with("guess", guess)
}
