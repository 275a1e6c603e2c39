//! A large text in, some of its lines out, without ever holding more than those.

use std::io::{Read as _, Seek as _, SeekFrom};

use bailiwick::{CallError, Code, Content, Interrupt};

use super::piece::{Gather, Hash, Want, count_lines, failed};
use super::render::{BOM, shown, take, unchanged};
use super::{FileRead, Job};
use crate::lens::Lens;
use crate::resolve::OpenFile;

/// How much is read between two looks at whether the call must stop.
const CHUNK: usize = 64 * 1024;
/// How much of a file is read through; of a larger one the totals stay unknown.
const MAX_THROUGH: u64 = 64 * 1024 * 1024;
/// How much from the end of such a file is looked at for its last lines.
const MAX_TAIL: u64 = 1024 * 1024;

pub(super) fn text(
    lens: &dyn Lens,
    job: &Job,
    want: Want,
    mut opened: OpenFile,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let all = opened.meta.len <= MAX_THROUGH;
    if !all && want.offset < 0 {
        return tail(job, want, opened, file, content);
    }
    let range = if want.offset < 0 {
        let mut lines = 0;
        let mut open = false;
        each_chunk(lens, &mut opened, |chunk| {
            lines += count_lines(chunk) - u64::from(open);
            open = chunk.last().is_some_and(|last| *last != b'\n');
            true
        })?;
        want.range(lines)?
    } else {
        want.range(u64::MAX)?
    };
    let mut gather = Gather::new(want, range);
    let mut begun = false;
    let mut read_all = true;
    each_chunk(lens, &mut opened, |chunk| {
        gather.hash(chunk);
        let bom = !begun && chunk.starts_with(BOM);
        file.bom |= bom;
        begun = true;
        gather.feed(
            chunk
                .get(if bom { BOM.len() } else { 0 }..)
                .unwrap_or_default(),
        );
        read_all = all || !gather.is_done();
        read_all
    })?;
    let done = gather.is_done();
    let piece = gather.finish();
    if read_all && all {
        file.lines = Some(piece.lines);
        let hash = Hash::Known(piece.hash);
        if job
            .known_hash
            .as_ref()
            .is_some_and(|known| known.matches(&hash.get()))
        {
            return Ok(unchanged(file, hash, content));
        }
        file.hash = Some(hash);
        want.range(piece.lines)?;
    } else if !done && piece.last < range.0 {
        let message = format!(
            "line {} lies beyond the first {MAX_THROUGH} bytes; search for it with grep",
            range.0
        );
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    shown(job, range.0, piece, file, content)
}

/// Hands `chunk` the file from its beginning, up to what is read through, until it returns false.
fn each_chunk(
    lens: &dyn Lens,
    opened: &mut OpenFile,
    mut chunk: impl FnMut(&[u8]) -> bool,
) -> Result<(), Interrupt> {
    let mut buffer = vec![0; CHUNK];
    let mut left = MAX_THROUGH;
    opened.file.rewind().map_err(|error| failed(&error))?;
    while left > 0 {
        lens.checkpoint()?;
        let got = opened
            .file
            .read(&mut buffer)
            .map_err(|error| failed(&error))?;
        let read = buffer.get(..got).unwrap_or_default();
        if read.is_empty() || !chunk(read) {
            break;
        }
        left = left.saturating_sub(got as u64);
    }
    Ok(())
}

/// The last lines of a file that is too large to be read through; their numbers are not known.
fn tail(
    job: &Job,
    want: Want,
    mut opened: OpenFile,
    mut file: FileRead,
    content: &mut Vec<Content>,
) -> Result<FileRead, Interrupt> {
    let window = MAX_TAIL.min(want.max_bytes);
    let from = SeekFrom::Start(opened.meta.len.saturating_sub(window));
    opened.file.seek(from).map_err(|error| failed(&error))?;
    let end = take(&mut opened.file, window)?;
    // The window begins in the midst of a line.
    let begin = end
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(end.len(), |end| end + 1);
    let text = end.get(begin..).unwrap_or_default();
    let plain = Want {
        line_numbers: false,
        ..want
    };
    let mut gather = Gather::new(plain, plain.range(count_lines(text))?);
    gather.feed(text);
    let first = plain.range(count_lines(text))?.0;
    file.lines = Some(count_lines(text));
    let mut file = shown(job, first, gather.finish(), file, content)?;
    (
        file.lines,
        file.first_line,
        file.last_line,
        file.next_offset,
    ) = (None, None, None, None);
    Ok(file)
}
