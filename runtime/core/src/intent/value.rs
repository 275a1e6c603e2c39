//! Converts the JSON value at a path of fields to text, with bounded stack and work.

use std::{io, slice};

use serde_json::Value;

use super::line::{Line, Work, is_visible};
use super::render::Values;

/// Maximum length of one value in characters.
pub(super) const MAX_CHARS: usize = 256;

/// Returns the text of the value at the path `fields` in `value`. For arrays on the path, it has the values of all
/// elements.
pub(super) fn text(
    value: &Value,
    fields: &[String],
    values: Values,
    work: &mut Work,
) -> Option<String> {
    let mut line = match values {
        Values::Plain => Line::whole(MAX_CHARS),
        Values::Quoted => Line::whole(MAX_CHARS).escaped(),
    };
    let mut found = false;
    let mut arrays: Vec<(slice::Iter<'_, Value>, &[String])> = Vec::new();
    let mut next = Some((value, fields));
    while let Some((value, fields)) = next {
        if line.is_cut() || !work.step() {
            break;
        }
        next = match (value, fields) {
            (Value::Array(items), _) => {
                arrays.push((items.iter(), fields));
                None
            }
            (Value::Object(members), [field, rest @ ..]) => {
                members.get(field).map(|member| (member, rest))
            }
            (_, [_, ..]) => None,
            (leaf, []) => {
                if is_there(leaf, work) {
                    if found {
                        line.push_str(", ", work);
                    }
                    found = true;
                    write(leaf, &mut line, work);
                }
                None
            }
        }
        .or_else(|| step(&mut arrays));
    }
    found.then(|| line.finish())
}

/// The next element of the innermost array that has one.
fn step<'v, 'f>(
    arrays: &mut Vec<(slice::Iter<'v, Value>, &'f [String])>,
) -> Option<(&'v Value, &'f [String])> {
    loop {
        let (items, fields) = arrays.last_mut()?;
        match items.next() {
            Some(item) => return Some((item, fields)),
            None => arrays.pop(),
        };
    }
}

fn is_there(leaf: &Value, work: &mut Work) -> bool {
    match leaf {
        Value::Null => false,
        Value::String(text) => text.chars().any(|c| !work.step() || is_visible(c)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

fn write(leaf: &Value, line: &mut Line, work: &mut Work) {
    match leaf {
        Value::String(text) => line.push_str(text, work),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            // Writing fails when the line is cut, which bounds the depth, since each level writes a character.
            let _ = serde_json::to_writer(JsonWriter { line, work }, leaf);
        }
    }
}

/// Writes compact JSON to a line until the line is cut.
struct JsonWriter<'l> {
    line: &'l mut Line,
    work: &'l mut Work,
}

impl io::Write for JsonWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        self.line.push_str(text, self.work);
        if self.line.is_cut() || !self.work.step() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
