//! The least that a stdio server of files has to do, as the baseline of the bench `stdio`.
//!
//! It reads requests, one per line, and performs the system calls of each operation on an ambient path. It writes answers
//! when no further request has been read. It does not check a policy, write an audit log or make diffs.
//!
//! With `--structured` it uses all processors, and also does what every answer of bailiwick needs: it hashes the contents
//! that are read and written, and returns its text as structured content, too.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Mutex;

use bailiwick::effect::ContentHash;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Above this many bytes, answers are written even if there are more lines.
const MAX_ANSWERS: usize = 64 << 10;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    content: String,
    #[serde(default)]
    edits: Vec<Edit>,
    #[serde(default, rename = "dryRun")]
    dry_run: bool,
}

#[derive(Deserialize)]
struct Edit {
    #[serde(rename = "oldText")]
    old: String,
    #[serde(rename = "newText")]
    new: String,
}

fn main() -> io::Result<()> {
    let structured = std::env::args().any(|argument| argument == "--structured");
    let threads = if structured {
        std::thread::available_parallelism()?.get()
    } else {
        1
    };
    let input = Mutex::new(Input::default());
    let run = || {
        if serve(&input, structured).is_err() {
            // The other threads wait for lines.
            std::process::exit(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    Ok(())
}

/// Answers requests until the end of the input.
fn serve(input: &Mutex<Input>, structured: bool) -> io::Result<()> {
    let mut answers = Vec::new();
    loop {
        // A thread that waits for lines keeps the lock.
        let at_hand = match input.try_lock() {
            Ok(mut input) if answers.len() < MAX_ANSWERS => input.line(),
            _ => None,
        };
        let line = match at_hand {
            Some(line) => Some(line),
            None => {
                let mut output = io::stdout().lock();
                output.write_all(&answers)?;
                output.flush()?;
                answers.clear();
                drop(output);
                input
                    .lock()
                    .map_err(|_| io::ErrorKind::Other)?
                    .next_line()?
            }
        };
        match line {
            Some(line) => answer(&line, structured, &mut answers)?,
            None => return Ok(()),
        }
    }
}

/// Input that was read and that no thread has taken.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Memory to read into.
    chunk: Vec<u8>,
}

impl Input {
    /// The next line that was read completely.
    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = self.bytes.get(self.start..)?;
        let end = memchr::memchr(b'\n', rest)?;
        let line = rest.get(..end)?.to_owned();
        self.start += end + 1;
        Some(line)
    }

    /// The next line; `None` at the end of the input.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(line) = self.line() {
                return Ok(Some(line));
            }
            self.bytes.drain(..self.start);
            self.start = 0;
            self.chunk.resize(CHUNK, 0);
            let read = io::stdin().lock().read(&mut self.chunk)?;
            if read == 0 {
                return Ok(None);
            }
            let chunk = self.chunk.get(..read).unwrap_or_default();
            self.bytes.extend_from_slice(chunk);
        }
    }
}

/// Appends the answer to a line; nothing if the line is empty or a notification.
fn answer(line: &[u8], structured: bool, answers: &mut Vec<u8>) -> io::Result<()> {
    if line.is_empty() {
        return Ok(());
    }
    let request: Request<'_> = serde_json::from_slice(line)?;
    let Some(id) = request.id else {
        return Ok(());
    };
    write!(answers, r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.get())?;
    match (request.method, request.params) {
        ("initialize", _) => answers.extend_from_slice(
            br#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"floor","version":"0"}}"#,
        ),
        ("tools/call", Some(params)) => {
            let (text, hashes) = call(&serde_json::from_str(params.get())?, structured)?;
            answers.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
            let start = answers.len();
            serde_json::to_writer(&mut *answers, &text)?;
            let escaped = start..answers.len();
            answers.extend_from_slice(b"}]");
            if structured {
                answers.extend_from_slice(br#","structuredContent":{"text":"#);
                answers.extend_from_within(escaped);
                for hash in hashes {
                    write!(answers, r#","hash":"{hash}""#)?;
                }
                answers.push(b'}');
            }
            answers.push(b'}');
        }
        _ => answers.extend_from_slice(b"{}"),
    }
    answers.extend_from_slice(b"}\n");
    Ok(())
}

/// The text of the answer and, with `structured`, the hashes of the contents.
fn call(call: &Call, structured: bool) -> io::Result<(String, Vec<ContentHash>)> {
    let path = Path::new(&call.arguments.path);
    match call.name.as_str() {
        "list_directory" => {
            let mut listing = String::new();
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                let kind = match entry.file_type()?.is_dir() {
                    true => "[DIR] ",
                    false => "[FILE] ",
                };
                listing.push_str(kind);
                listing.push_str(&entry.file_name().to_string_lossy());
                listing.push('\n');
            }
            Ok((listing, Vec::new()))
        }
        "write_file" => {
            let content = &call.arguments.content;
            replace(path, content)?;
            let hash = structured.then(|| ContentHash::of(content.as_bytes()));
            Ok(("written".to_owned(), hash.into_iter().collect()))
        }
        "edit_file" => {
            let old = fs::read_to_string(path)?;
            let mut text = old.clone();
            for edit in &call.arguments.edits {
                text = text.replacen(&edit.old, &edit.new, 1);
            }
            if !call.arguments.dry_run {
                replace(path, &text)?;
            }
            let hashes = structured.then(|| hashes_of(old.as_bytes(), text.as_bytes()));
            Ok(("edited".to_owned(), hashes.into_iter().flatten().collect()))
        }
        _ => {
            let text = fs::read_to_string(path)?;
            let hash = structured.then(|| ContentHash::of(text.as_bytes()));
            Ok((text, hash.into_iter().collect()))
        }
    }
}

/// The hashes of two contents. The blocks with which both begin are hashed once.
fn hashes_of(old: &[u8], new: &[u8]) -> [ContentHash; 2] {
    const BLOCK: usize = 1 << 10;
    let blocks = old.chunks_exact(BLOCK).zip(new.chunks_exact(BLOCK));
    let common = BLOCK * blocks.take_while(|(old, new)| old == new).count();
    let hasher = Sha256::new_with_prefix(old.get(..common).unwrap_or_default());
    [old, new].map(|content| {
        let rest = content.get(common..).unwrap_or_default();
        ContentHash::from_bytes(hasher.clone().chain_update(rest).finalize().into())
    })
}

/// Replaces a file by a new one.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content)?;
    fs::rename(&temporary, path)
}
