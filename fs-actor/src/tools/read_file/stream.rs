//! Reads lines of a large text without buffering the whole file.

use std::io::{Read as _, Seek as _, SeekFrom};

use bailiwick::effect::{Content, ContentHash, Utf8};
use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use sha2::{Digest as _, Sha256};

use super::file_bytes::LazyHash;
use super::lines::{LineCollector, LineSelection, count_lines, failed};
use super::render::{BOM, add_lines, add_text, line_cut, take, unchanged};
use super::{FileContent, Job};
use crate::read_view::ReadView;
use crate::resolve::OpenFile;

/// Number of bytes between checkpoints.
const CHUNK: usize = 64 * 1024;
/// Maximum bytes to stream; totals of larger files are unknown.
const MAX_STREAMED: u64 = 64 * 1024 * 1024;
/// Number of bytes at the end of such a file in which lines are counted from the end.
const MAX_TAIL: u64 = 1024 * 1024;

pub(super) fn text(
    view: &dyn ReadView,
    job: &Job,
    path: &VirtualPath,
    selection: LineSelection,
    opened: &mut OpenFile,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let all = opened.meta.len <= MAX_STREAMED;
    if !all && selection.offset < 0 {
        return tail(path, selection, opened, file, content);
    }
    let range = if selection.offset < 0 {
        let mut lines = 0;
        let mut open = false;
        each_chunk(view, opened, |chunk| {
            lines += count_lines(chunk) - u64::from(open);
            open = chunk.last().is_some_and(|last| *last != b'\n');
            true
        })?;
        selection.range(lines)?
    } else {
        selection.range(u64::MAX)?
    };
    let mut collector = LineCollector::new(selection, range);
    let mut hasher = Sha256::new();
    let mut begun = false;
    let mut read_all = true;
    each_chunk(view, opened, |chunk| {
        hasher.update(chunk);
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
        let hash = LazyHash::from(ContentHash::from_bytes(hasher.finalize().into()));
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
    add_lines(path, range.0, collected, file, content)
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

/// Adds lines of a file that is too large to stream, counted from its end; their numbers are unknown.
fn tail(
    path: &VirtualPath,
    selection: LineSelection,
    opened: &mut OpenFile,
    mut file: FileContent,
    content: &mut Vec<Content>,
) -> Result<FileContent, Interrupt> {
    let from = SeekFrom::Start(opened.meta.len.saturating_sub(MAX_TAIL));
    opened.file.seek(from).map_err(|error| failed(&error))?;
    let end = take(&mut opened.file, MAX_TAIL, MAX_TAIL)?;
    // The buffer begins within a line.
    let begin = end
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(end.len(), |end| end + 1);
    let text = end.get(begin..).unwrap_or_default();
    let lines = count_lines(text);
    let from_end = selection.offset.unsigned_abs();
    if from_end > lines {
        let message = format!(
            "line {from_end} from the end is before the last {MAX_TAIL} bytes; search for it with `grep`"
        );
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    let plain = LineSelection {
        line_numbers: false,
        ..selection
    };
    let mut collector = LineCollector::new(plain, plain.range(lines)?);
    collector.feed(text);
    let collected = collector.finish();
    add_text(path, collected.text, &mut file, content)?;
    file.line_cut = collected.line_cut;
    let mut notices = Vec::new();
    if collected.line_cut {
        notices.push(line_cut(selection.offset));
    }
    // The lines after the last one that is returned.
    let left = lines - collected.last;
    if left > 0 {
        notices.push(format!(
            "[lines {} to -{}; continue with offset -{left}]",
            selection.offset,
            left + 1
        ));
    }
    if !notices.is_empty() {
        content.push(Content::Text(Utf8::from(notices.join(" "))));
    }
    Ok(file)
}
