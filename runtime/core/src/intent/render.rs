//! Renders intent templates with bounded work and length.

use serde_json::{Map, Value};

use super::line::{Line, Work};
use super::{Key, Segment, value};

/// Maximum length of a sentence in characters.
pub(super) const MAX_OF_SENTENCE: usize = 1024;
/// Maximum number of segments, values and characters to process for one sentence.
const MAX_WORK: u32 = 1 << 20;

/// A sentence, and whether all placeholders were filled.
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) filled: bool,
}

/// How values are rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Verbatim.
    Plain,
    /// Between `“` and `”`, which then occur nowhere else, with invisible characters as `\u{..}`. Numbers, `true` and `false`
    /// are not quoted.
    Quoted,
}

pub(super) fn sentence(segments: &[Segment], arguments: &Value, values: Values) -> Sentence {
    let mut renderer = Renderer {
        values,
        arguments: arguments.as_object(),
        bound: None,
        work: Work::of(MAX_WORK),
        filled: true,
    };
    let mut line = Line::trimmed(MAX_OF_SENTENCE);
    renderer.write(segments, &mut line);
    if !renderer.work.step() {
        line.cut_here();
    }
    Sentence {
        text: line.finish(),
        filled: renderer.filled,
    }
}

/// The argument that is bound to one of its elements in the current group. Other arrays of the group are missing.
#[derive(Clone, Copy)]
struct Bound<'a> {
    name: &'a str,
    element: &'a Value,
}

struct Renderer<'a> {
    values: Values,
    arguments: Option<&'a Map<String, Value>>,
    bound: Option<Bound<'a>>,
    work: Work,
    filled: bool,
}

fn unquoted(text: &str) -> String {
    text.replace(['“', '”'], "\"")
}

fn quoted(value: &str) -> String {
    let plain = matches!(value, "true" | "false") || value.parse::<f64>().is_ok();
    if plain {
        return value.to_owned();
    }
    format!("“{}”", unquoted(value))
}

impl<'a> Renderer<'a> {
    fn write(&mut self, segments: &'a [Segment], line: &mut Line) {
        for segment in segments {
            if line.is_cut() || !self.work.step() {
                return;
            }
            match segment {
                Segment::Text(text) if self.values == Values::Quoted => {
                    line.push_str(&unquoted(text), &mut self.work);
                }
                Segment::Text(text) => line.push_str(text, &mut self.work),
                Segment::Placeholder(key) => {
                    let text = match self.value(key) {
                        Some(value) if self.values == Values::Quoted => quoted(&value),
                        Some(value) => value,
                        None => {
                            self.filled = false;
                            format!("{{{key}}}")
                        }
                    };
                    line.push_str(&text, &mut self.work);
                }
                Segment::Group(group) => self.group(group, line),
            }
        }
    }

    fn group(&mut self, group: &'a [Segment], line: &mut Line) {
        let mut arrays = Vec::new();
        // In a repeated group, one array is bound to an element and the others are missing, so groups inside have no
        // arrays.
        if self.bound.is_none() {
            self.arrays(group, &mut arrays);
        }
        if arrays.is_empty() {
            if self.is_whole(group) {
                self.write(group, line);
            }
            return;
        }
        let mut first = true;
        for (name, elements) in arrays {
            for element in elements {
                if line.is_cut() || !self.work.step() {
                    return;
                }
                self.bound = Some(Bound { name, element });
                // One character more than the maximum, so that it is also cut in the sentence.
                let mut entry = Line::trimmed(MAX_OF_SENTENCE + 1);
                if self.is_whole(group) {
                    self.write(group, &mut entry);
                }
                self.bound = None;
                let entry = entry.text();
                if !entry.is_empty() {
                    if !first {
                        line.push_str(", ", &mut self.work);
                    }
                    line.push_str(entry, &mut self.work);
                    first = false;
                }
            }
        }
    }

    /// The arrays among the arguments named in a group, at any depth, in the order of the text.
    fn arrays(&self, group: &'a [Segment], found: &mut Vec<(&'a str, &'a [Value])>) {
        for segment in group {
            match segment {
                Segment::Text(_) => {}
                Segment::Placeholder(key) => {
                    if let Some(Value::Array(elements)) = self.argument(&key.name)
                        && found.iter().all(|(name, _)| *name != key.name)
                    {
                        found.push((&key.name, elements));
                    }
                }
                Segment::Group(inner) => self.arrays(inner, found),
            }
        }
    }

    /// Whether no value directly in the group is missing.
    fn is_whole(&mut self, group: &'a [Segment]) -> bool {
        group.iter().all(|segment| match segment {
            Segment::Placeholder(key) => self.value(key).is_some(),
            Segment::Text(_) | Segment::Group(_) => self.work.step(),
        })
    }

    fn argument(&self, name: &str) -> Option<&'a Value> {
        let own = || self.arguments.and_then(|arguments| arguments.get(name));
        match self.bound {
            Some(bound) if bound.name == name => Some(bound.element),
            Some(_) => own().filter(|value| !value.is_array()),
            None => own(),
        }
    }

    /// The text of a key's value, unless it is missing.
    fn value(&mut self, key: &Key) -> Option<String> {
        let argument = self.argument(&key.name)?;
        value::text(argument, &key.fields, self.values, &mut self.work)
    }
}
