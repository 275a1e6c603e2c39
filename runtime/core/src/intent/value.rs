//! Converts the JSON value at a path of fields to text, with bounded stack and work.

use std::slice;

use serde_json::{Value, map};

use super::line::{Line, Work, is_visible};

/// Maximum length of one value in characters.
pub(super) const MOST_CHARS: usize = 256;

/// Returns the text of the value at the path `fields` in `value`; arrays on the path stand for all their elements.
pub(super) fn text(value: &Value, fields: &[String], work: &mut Work) -> Option<String> {
    let mut line = Line::whole(MOST_CHARS);
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
            json(leaf, line, work);
        }
    }
}

/// An array or object that is partly written.
enum Open<'v> {
    Array(slice::Iter<'v, Value>),
    Object(map::Iter<'v>),
}

/// Writes compact JSON.
fn json(value: &Value, line: &mut Line, work: &mut Work) {
    let mut open = Vec::new();
    begin(value, &mut open, line, work);
    let mut first = true;
    while let Some(inner) = open.last_mut() {
        if line.is_cut() || !work.step() {
            return;
        }
        let (name, value) = match inner {
            Open::Array(items) => (None, items.next()),
            Open::Object(members) => members
                .next()
                .map_or((None, None), |(name, value)| (Some(name), Some(value))),
        };
        let Some(value) = value else {
            line.push(if matches!(inner, Open::Array(_)) {
                ']'
            } else {
                '}'
            });
            open.pop();
            first = false;
            continue;
        };
        if !first {
            line.push(',');
        }
        if let Some(name) = name {
            quoted(name, line, work);
            line.push(':');
        }
        first = begin(value, &mut open, line, work);
    }
}

/// Writes a primitive value, or the start of an array or object; returns whether it was the latter.
fn begin<'v>(value: &'v Value, open: &mut Vec<Open<'v>>, line: &mut Line, work: &mut Work) -> bool {
    match value {
        Value::Null => line.push_str("null", work),
        Value::Bool(true) => line.push_str("true", work),
        Value::Bool(false) => line.push_str("false", work),
        Value::Number(number) => line.push_str(&number.to_string(), work),
        Value::String(text) => quoted(text, line, work),
        Value::Array(items) => {
            line.push('[');
            open.push(Open::Array(items.iter()));
            return true;
        }
        Value::Object(members) => {
            line.push('{');
            open.push(Open::Object(members.iter()));
            return true;
        }
    }
    false
}

fn quoted(text: &str, line: &mut Line, work: &mut Work) {
    line.push('"');
    for c in text.chars() {
        match c {
            _ if line.is_cut() => return,
            '"' => line.push_str("\\\"", work),
            '\\' => line.push_str("\\\\", work),
            '\u{8}' => line.push_str("\\b", work),
            '\t' => line.push_str("\\t", work),
            '\n' => line.push_str("\\n", work),
            '\u{c}' => line.push_str("\\f", work),
            '\r' => line.push_str("\\r", work),
            '\0'..='\u{1f}' => line.push_str(&format!("\\u{:04x}", u32::from(c)), work),
            _ if work.step() => line.push(c),
            _ => return,
        }
    }
    line.push('"');
}
