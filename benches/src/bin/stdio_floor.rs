//! The least that a stdio server of files has to do, as the baseline of the bench `stdio`.
//!
//! One thread reads lines, performs the system calls of each operation on an ambient path, and writes the answers of
//! all lines of a read at once. There is no policy, no audit log and no diff.
//!
//! With `--structured` it also does what every answer of bailiwick needs: it hashes the contents that are read and
//! written, and returns its text as structured content, too.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use bailiwick::effect::ContentHash;
use serde::Deserialize;
use serde_json::value::RawValue;

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

/// The result of a call.
struct Done {
    text: String,
    /// The contents that were read and written, besides the text.
    contents: Vec<String>,
}

fn main() -> io::Result<()> {
    let structured = std::env::args().any(|argument| argument == "--structured");
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut lines, mut answers) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = input.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        lines.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let end = lines.iter().rposition(|byte| *byte == b'\n');
        let rest = lines.split_off(end.map_or(0, |at| at + 1));
        for line in lines.split(|byte| *byte == b'\n') {
            answer(line, structured, &mut answers)?;
        }
        lines = rest;
        output.write_all(&answers)?;
        answers.clear();
        output.flush()?;
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
            let Done { text, contents } = call(&serde_json::from_str(params.get())?)?;
            answers.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
            let start = answers.len();
            serde_json::to_writer(&mut *answers, &text)?;
            let escaped = start..answers.len();
            answers.extend_from_slice(b"}]");
            if structured {
                answers.extend_from_slice(br#","structuredContent":{"text":"#);
                answers.extend_from_within(escaped);
                for content in std::iter::once(&text).chain(&contents) {
                    write!(answers, r#","hash":"{}""#, ContentHash::of(content.as_bytes()))?;
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

fn call(call: &Call) -> io::Result<Done> {
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
            Ok(Done::of(listing, []))
        }
        "write_file" => {
            let content = &call.arguments.content;
            replace(path, content)?;
            Ok(Done::of("written", [content.clone()]))
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
            Ok(Done::of("edited", [old, text]))
        }
        _ => Ok(Done::of(fs::read_to_string(path)?, [])),
    }
}

impl Done {
    fn of<const N: usize>(text: impl Into<String>, contents: [String; N]) -> Self {
        Self {
            text: text.into(),
            contents: contents.into(),
        }
    }
}

/// Replaces a file by a new one.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content)?;
    fs::rename(&temporary, path)
}
