//! Second, naive implementation of intent templates for tests.
#![expect(clippy::string_slice, reason = "a wrong bound fails the test")]

use std::collections::BTreeMap;

use serde_json::Value;

/// A part of one level of a template; a group keeps its source.
enum Piece {
    Text(String),
    Key(String),
    Group(String),
}

/// The arguments by name; `true` marks those bound or put aside for a bound one.
type Scope = BTreeMap<String, (Value, bool)>;

/// The sentence; `None` for an invalid template.
pub(super) fn sentence(template: &str, arguments: &Value) -> Option<String> {
    check(template)?;
    let members = arguments.as_object().cloned().unwrap_or_default();
    let scope = members
        .into_iter()
        .map(|(name, value)| (name, (value, false)));
    let text = contents(template, &scope.collect());
    Some(cap(&normal(&text), 1024))
}

fn check(template: &str) -> Option<()> {
    for piece in pieces(template)? {
        match piece {
            Piece::Text(_) => {}
            Piece::Key(key) => {
                for (index, part) in key.split('.').enumerate() {
                    let first = part.chars().next()?;
                    let begins = |c: char| c.is_alphabetic() || c == '_' || c == '$';
                    if index == 0 && !begins(first)
                        || part
                            .chars()
                            .any(|c| !begins(c) && !c.is_numeric() && c != '-')
                    {
                        return None;
                    }
                }
            }
            Piece::Group(inner) => check(&inner)?,
        }
    }
    Some(())
}

fn pieces(template: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let escaped = after.chars().next().filter(|c| "{}[]\\".contains(*c));
        (rest, _) = match (c, escaped) {
            ('\\', Some(escaped)) => (&after[1..], pieces.push(Piece::Text(escaped.to_string()))),
            ('{', _) => {
                let (key, after) = after.split_once('}')?;
                (after, pieces.push(Piece::Key(key.trim().to_owned())))
            }
            ('[', _) => {
                let length = closing(after)?;
                (
                    &after[length + 1..],
                    pieces.push(Piece::Group(after[..length].to_owned())),
                )
            }
            ('}' | ']', _) => return None,
            _ => (after, pieces.push(Piece::Text(c.to_string()))),
        };
    }
    Some(pieces)
}

/// The position of the closing bracket. Braces hide brackets, and backslashes hide both.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut braced, mut hidden) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if hidden => hidden = false,
            '}' if braced => braced = false,
            _ if braced => {}
            '\\' => hidden = text[at + 1..].starts_with(['{', '}', '[', ']', '\\']),
            '{' => braced = true,
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn contents(template: &str, scope: &Scope) -> String {
    let piece = |piece| match piece {
        Piece::Text(text) => clean(&text),
        Piece::Key(key) => value(&key, scope).unwrap_or_else(|| clean(&format!("{{{key}}}"))),
        Piece::Group(inner) => group(&inner, scope),
    };
    pieces(template).unwrap().into_iter().map(piece).collect()
}

fn group(inner: &str, scope: &Scope) -> String {
    let mut roots: Vec<String> = Vec::new();
    for name in names(inner) {
        let is_root = matches!(scope.get(&name), Some((Value::Array(_), false)));
        if is_root && !roots.contains(&name) {
            roots.push(name);
        }
    }
    if roots.is_empty() {
        return once(inner, scope).unwrap_or_default();
    }
    let mut entries = Vec::new();
    for root in &roots {
        for element in scope[root].0.as_array().unwrap() {
            let mut bound = scope.clone();
            for other in &roots {
                bound.insert(other.clone(), (Value::Null, true));
            }
            bound.insert(root.clone(), (element.clone(), true));
            entries.extend(once(inner, &bound).map(|entry| normal(&entry)));
        }
    }
    entries.retain(|entry| !entry.is_empty());
    entries.join(", ")
}

fn once(inner: &str, scope: &Scope) -> Option<String> {
    let missing = |piece: &Piece| matches!(piece, Piece::Key(key) if value(key, scope).is_none());
    let whole = !pieces(inner).unwrap().iter().any(missing);
    whole.then(|| contents(inner, scope))
}

fn names(template: &str) -> Vec<String> {
    let of = |piece| match piece {
        Piece::Text(_) => Vec::new(),
        Piece::Key(key) => vec![key.split('.').next().unwrap().to_owned()],
        Piece::Group(inner) => names(&inner),
    };
    pieces(template).unwrap().into_iter().flat_map(of).collect()
}

fn value(key: &str, scope: &Scope) -> Option<String> {
    let mut parts = key.split('.');
    let (start, _) = scope.get(parts.next()?)?;
    let mut reached = vec![start.clone()];
    for part in parts.map(Some).chain([None]) {
        while reached.iter().any(Value::is_array) {
            reached = reached
                .into_iter()
                .flat_map(|value| match value {
                    Value::Array(items) => items,
                    other => vec![other],
                })
                .collect();
        }
        if let Some(part) = part {
            reached = reached
                .iter()
                .filter_map(|value| value.as_object()?.get(part).cloned())
                .collect();
        }
    }
    let texts: Vec<String> = reached
        .iter()
        .filter_map(|value| match value {
            Value::Null => None,
            Value::String(text) => Some(clean(text)).filter(|text| !text.trim().is_empty()),
            other => Some(clean(&other.to_string())),
        })
        .collect();
    (!texts.is_empty()).then(|| cap(&collapsed(&texts.join(", ")), 256))
}

/// Removes invisible and bidirectional characters; listed independently, from the Unicode charts.
fn clean(text: &str) -> String {
    let hidden = |c: char| {
        let c = u32::from(c);
        let ranges = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfffb,
            0x1bca0..=0x1bca3,
            0x1d173..=0x1d17a,
            0xe0000..=0xe0fff,
        ];
        ranges.iter().any(|range| range.contains(&c))
    };
    let shown = text.chars().filter(|c| !hidden(*c));
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn collapsed(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if !c.is_whitespace() => out.push(c),
            _ if out.ends_with(' ') => {}
            _ => out.push(' '),
        }
    }
    out
}

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cap(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
