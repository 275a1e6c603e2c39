//! Reads lines of a large text without buffering the whole file.

use std::io::{Read as _, Seek as _, SeekFrom};

use bailiwick::effect::Content;
use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code};

use super::file_bytes::LazyHash;
use super::lines::{LineCollector, LineSelection, count_lines, failed};
use super::render::{BOM, add_lines, take, unchanged};
use super::{FileContent, Job};
use crate::read_view::ReadView;
use crate::resolve::OpenFile;

/// Number of bytes between checkpoints.
const CHUNK: usize = 64 * 1024;
/// Maximum bytes to stream; totals of larger files are unknown.
const MAX_STREAMED: u64 = 64 * 1024 * 1024;
/// Maximum bytes read from the end of such a file for its last lines.
const MAX_TAIL: u64 = 1024 * 1024;

pub(super) fn text(
    view: &dyn ReadView,
    job: &Job,
    selection: LineSelection,
    mut opened: OpenFile,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let all = opened.meta.len <= MAX_STREAMED;
    if !all && selection.offset < 0 {
        return tail(job, selection, opened, file, content);
    }
    let range = if selection.offset < 0 {
        let mut lines = 0;
        let mut open = false;
        each_chunk(view, &mut opened, |chunk| {
            lines += count_lines(chunk) - u64::from(open);
            open = chunk.last().is_some_and(|last| *last != b'\n');
            true
        })?;
        selection.range(lines)?
    } else {
        selection.range(u64::MAX)?
    };
    let mut collector = LineCollector::new(selection, range);
    let mut begun = false;
    let mut read_all = true;
    each_chunk(view, &mut opened, |chunk| {
        collector.hash(chunk);
        let bom = !begun && chunk.starts_with(BOM);
        file.bom |= bom;
        begun = true;
        collector.feed(
            chunk
                .get(if bom { BOM.len() } else { 0 }..)
                .unwrap_or_default(),
        );
        read_all = all || !collector.is_done();
        read_all
    })?;
    let done = collector.is_done();
    let collected = collector.finish();
    if read_all && all {
        file.lines = Some(collected.lines);
        let hash = LazyHash::from(collected.hash);
        if job.knows(&hash) {
            return Ok(unchanged(file, hash, content));
        }
        file.hash = Some(hash);
        selection.range(collected.lines)?;
    } else if !done && collected.last < range.0 {
        let message = format!(
            "line {} is beyond the first {MAX_STREAMED} bytes; search for it with `grep`",
            range.0
        );
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    add_lines(job, range.0, collected, file, content)
}

/// Passes the file to `chunk` in pieces until it returns false or the limit is reached.
fn each_chunk(
    view: &dyn ReadView,
    opened: &mut OpenFile,
    mut chunk: impl FnMut(&[u8]) -> bool,
) -> Result<(), Interrupt> {
    let mut buffer = vec![0; CHUNK];
    let mut left = MAX_STREAMED;
    opened.file.rewind().map_err(|error| failed(&error))?;
    while left > 0 {
        view.checkpoint()?;
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

/// The last lines of a file that is too large to stream; their numbers are unknown.
fn tail(
    job: &Job,
    selection: LineSelection,
    mut opened: OpenFile,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let window = MAX_TAIL.min(selection.max_bytes);
    let from = SeekFrom::Start(opened.meta.len.saturating_sub(window));
    opened.file.seek(from).map_err(|error| failed(&error))?;
    let end = take(&mut opened.file, window, window)?;
    // The buffer begins within a line.
    let begin = end
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(end.len(), |end| end + 1);
    let text = end.get(begin..).unwrap_or_default();
    let plain = LineSelection {
        line_numbers: false,
        ..selection
    };
    let lines = count_lines(text);
    let range = plain.range(lines)?;
    let mut collector = LineCollector::new(plain, range);
    collector.feed(text);
    file.lines = Some(lines);
    let mut file = add_lines(job, range.0, collector.finish(), file, content)?;
    (
        file.lines,
        file.first_line,
        file.last_line,
        file.next_offset,
    ) = (None, None, None, None);
    Ok(file)
}
