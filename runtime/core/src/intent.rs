//! Intent templates: one sentence for people, rendered from the arguments of a call.
//!
//! ```text
//! template    = { text | placeholder | group }
//! group       = "[" , template , "]"                 optional; repeats for each element of an array in it
//! placeholder = "{" , key , "}"                      blanks around the key do not count
//! key         = name , { "." , field }               name is an argument, field a member of an object
//! name        = letter | "_" | "$" , then also digits and "-"; field may begin with these, too
//! text        = anything but { } [ ], which are written \{ \} \[ \]; \\ is one \
//! ```
//! 1. A placeholder is replaced by its value. A value that is absent, `null` or blank text is *missing*. Text is
//!    inserted as it is, a number or boolean as its JSON text, an object as compact JSON, and an array as its items
//!    that are not missing, separated by commas. A number is inserted as JSON parsing represents it: `1.0` stays `1.0`,
//!    `1.50` becomes `1.5`, and an integer of more than 64 bits becomes the nearest float.
//! 2. In values, control characters are replaced by blanks, bidirectional and zero-width characters are removed, and
//!    several blanks become one. Braces and brackets in a value have no meaning.
//! 3. Outside groups, the placeholder of a missing value is left as `{key}`.
//! 4. A group is omitted if a value directly in it is missing. This does not depend on the groups inside it.
//! 5. A group with an argument that is an array is repeated for each element, separated by commas. The placeholder is
//!    then the element, and other arrays in the group are missing. If a group has several arrays, it is repeated for
//!    the elements of the first one, then for those of the second one, and so on. A group with an empty result is
//!    omitted.
//! 6. A value has at most 256 characters, and the sentence at most 1024. Longer ones are truncated and end in `…`.
//!
//! Rendering does a bounded amount of work, whatever the arguments are. If the bound is reached, the sentence ends in
//! `…`.

mod line;
mod lint;
mod parse;
mod render;
mod shell;
mod value;

use std::fmt;

use serde_json::Value;

pub use lint::Lint;
pub use parse::{IntentError, IntentFault};
use render::Values;

/// Template of a sentence that describes a call to people: `Search {path} for {pattern} [in files {glob}]`.
///
/// ```
/// use bailiwick::intent::IntentTemplate;
/// use serde_json::json;
///
/// let template = IntentTemplate::parse("Read [{paths.path} [from line {paths.line}]]")?;
/// let arguments = json!({ "paths": [{ "path": "a.rs" }, { "path": "b.rs", "line": 10 }] });
/// assert_eq!(template.render(&arguments), "Read a.rs, b.rs from line 10");
/// # Ok::<(), bailiwick::intent::IntentError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentTemplate {
    source: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    Placeholder(Key),
    Group(Vec<Segment>),
}

/// The name of an argument, and the path of fields in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    name: String,
    fields: Vec<String>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.fields
            .iter()
            .try_for_each(|field| write!(f, ".{field}"))
    }
}

impl IntentTemplate {
    /// Parses a template of at most 4096 bytes, with groups at most 32 deep.
    ///
    /// # Errors
    /// [`IntentError`] with the position of the first error.
    pub fn parse(source: &str) -> Result<Self, IntentError> {
        Ok(Self {
            source: source.to_owned(),
            segments: parse::segments(source)?,
        })
    }

    /// Renders the sentence for a call with these arguments. A value that is not an object has no arguments.
    #[must_use]
    pub fn render(&self, arguments: &Value) -> String {
        render::sentence(&self.segments, arguments, Values::Plain).text
    }

    /// Like [`Self::render`], with each value between `“` and `”`, so that no value can be mistaken for text of the
    /// template, and with invisible characters as `\u{..}`, so that different names look different. Numbers and booleans
    /// are not quoted. Returns `None` if a `{key}` would remain in the sentence.
    ///
    /// ```
    /// use bailiwick::intent::IntentTemplate;
    /// use serde_json::json;
    ///
    /// let template = IntentTemplate::parse("Edit {path}[ from line {line}]")?;
    /// let arguments = json!({ "path": "a.rs from line 2 (approved”)", "line": 7 });
    /// let sentence = template.render_quoted(&arguments);
    /// assert_eq!(sentence.as_deref(), Some("Edit “a.rs from line 2 (approved\")” from line 7"));
    /// # Ok::<(), bailiwick::intent::IntentError>(())
    /// ```
    #[must_use]
    pub fn render_quoted(&self, arguments: &Value) -> Option<String> {
        let sentence = render::sentence(&self.segments, arguments, Values::Quoted);
        sentence.filled.then_some(sentence.text)
    }

    /// Returns the template as a line for a POSIX shell. Values are quoted, so each value is one word, and an array is
    /// one word for each element. Returns `None` if a value outside groups is missing, or if a value cannot be a word:
    /// an object, or text with a NUL.
    ///
    /// ```
    /// use bailiwick::intent::IntentTemplate;
    /// use serde_json::json;
    ///
    /// let template = IntentTemplate::parse("ls -A -- [{path}]")?;
    /// let line = template.shell(&json!({ "path": "it's; here" }));
    /// assert_eq!(line.as_deref(), Some(r"ls -A -- 'it'\''s; here'"));
    /// # Ok::<(), bailiwick::intent::IntentError>(())
    /// ```
    #[must_use]
    pub fn shell(&self, arguments: &Value) -> Option<String> {
        shell::line(&self.segments, arguments)
    }

    /// Returns lints of the template for a tool with this JSON Schema of its arguments.
    ///
    /// ```
    /// use bailiwick::intent::{IntentTemplate, Lint};
    /// use serde_json::json;
    ///
    /// let schema = json!({ "properties": { "path": { "type": "string" } } });
    /// let lints = |text: &str| IntentTemplate::parse(text).map(|template| template.lint(&schema));
    /// assert_eq!(lints("List [{path}]")?, []);
    /// assert_eq!(lints("List {path}")?, [Lint::NotRequired { key: "path".to_owned() }]);
    /// # Ok::<(), bailiwick::intent::IntentError>(())
    /// ```
    #[must_use]
    pub fn lint(&self, input_schema: &Value) -> Vec<Lint> {
        lint::lints(&self.segments, input_schema)
    }

    /// The arguments that it names and that the schema does not have; none if the schema does not list all arguments.
    pub(crate) fn unknown_arguments(&self, input_schema: &Value) -> Vec<String> {
        lint::unknown_arguments(&self.segments, input_schema)
    }
}

impl fmt::Display for IntentTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl std::str::FromStr for IntentTemplate {
    type Err = IntentError;

    fn from_str(source: &str) -> Result<Self, IntentError> {
        Self::parse(source)
    }
}

#[cfg(test)]
mod tests;
