//! Reads the arguments of a call from JSON, leniently where the meaning is clear.

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};
use serde_path_to_error::Segment;

use super::Example;
use super::schema::{self, ToolSchema};
use crate::error::{CallError, Code};
use crate::text::escape;

/// Maximum number of characters of an invalid value in an error.
const MAX_SHOWN: usize = 60;

/// The parameters of a tool.
#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) schema: ToolSchema,
    pub(super) examples: &'static [Example],
}

impl Parameters {
    /// Parses arguments by name; a list is rejected.
    ///
    /// Null counts as absent for optional arguments, and so does an empty string for enumerations. If that makes the
    /// arguments valid, a string is parsed as number or boolean, `5.0` as an integer, and a single string as a list.
    pub(super) fn read<A: DeserializeOwned>(&self, value: &Value) -> Result<A, CallError> {
        if !value.is_object() {
            let message = format!("the arguments must be an object, not {}", kind_of(value));
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        if let Ok(arguments) = A::deserialize(value) {
            return Ok(arguments);
        }
        let mut adapted = value.clone();
        adapt(&self.schema, &mut adapted);
        serde_path_to_error::deserialize(&adapted).map_err(|error| {
            let path = error.path().iter().map(segment).collect();
            self.refusal(&adapted, path, &error.inner().to_string())
        })
    }

    /// Returns an error that names the argument, the expected value and the received value.
    fn refusal(&self, value: &Value, mut path: Vec<String>, reason: &str) -> CallError {
        let named = |start: &str| {
            let rest = reason.strip_prefix(start)?;
            rest.split('`').next().map(str::to_owned)
        };
        let message = if let Some(name) = named("missing field `") {
            path.push(name);
            let expected = self.at(&path).map(expected);
            let expected = expected.map_or_else(String::new, |it| format!(": expected {it}"));
            format!("missing argument `{}`{expected}", pointer(&path))
        } else if let Some(name) = named("unknown field `") {
            if path.last() != Some(&name) {
                path.push(name);
            }
            let holder = path.split_last().and_then(|(_, holder)| self.at(holder));
            let known = holder.and_then(|schema| schema.get("properties")?.as_object());
            let known = known.filter(|known| !known.is_empty());
            let known = known.map_or_else(String::new, |known| {
                let names: Vec<String> = known.keys().map(|name| format!("`{name}`")).collect();
                format!(": expected one of {}", names.join(", "))
            });
            format!("unknown argument `{}`{known}", pointer(&path))
        } else {
            let given = value.pointer(&pointer(&path)).unwrap_or(value);
            let why = match self.at(&path) {
                Some(schema) if !fits(schema, given) => {
                    let least = if is_below_zero(schema, given) {
                        " of at least 0"
                    } else {
                        ""
                    };
                    let expected = expected(schema);
                    format!("expected {expected}{least}, got {}", shown(given))
                }
                _ => escape(reason).into_owned(),
            };
            format!("invalid argument `{}`: {why}", pointer(&path))
        };
        let error = CallError::new(Code::InvalidArguments, message);
        self.with_example(error.with("field", pointer(&path)))
    }

    /// Adds example arguments to an error that names an argument.
    pub(super) fn with_example(&self, error: CallError) -> CallError {
        let field = error.details().get("field").and_then(Value::as_str);
        let Some(field) = field.filter(|_| error.code() == Code::InvalidArguments) else {
            return error;
        };
        let name = field.split('/').nth(1).unwrap_or_default();
        match self.example(name) {
            Some(example) => error.and_clause(&format!("for example `{example}`")),
            None => error,
        }
    }

    /// The schema of the argument at `path`.
    fn at(&self, path: &[String]) -> Option<&Value> {
        path.iter().try_fold(&*self.schema, |schema, name| {
            let inner = schema.get("properties").and_then(|all| all.get(name));
            inner.or_else(|| schema.get("items"))
        })
    }

    /// Complete example arguments, if possible with the argument `name`.
    fn example(&self, name: &str) -> Option<&'static str> {
        let has = |example: &&Example| {
            let input: Option<Value> = serde_json::from_str(example.input).ok();
            input.is_some_and(|input| input.get(name).is_some())
        };
        let found = self.examples.iter().find(has).or(self.examples.first());
        found.map(|example| example.input)
    }
}

/// Reads the arguments of a tool as a call of it does, for tools whose arguments contain calls of others.
#[doc(hidden)]
#[derive(Debug)]
pub struct ArgumentReader<A> {
    parameters: Parameters,
    arguments: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned + JsonSchema + 'static> Default for ArgumentReader<A> {
    fn default() -> Self {
        Self {
            parameters: Parameters {
                schema: ToolSchema::new(schema::input::<A>),
                examples: &[],
            },
            arguments: PhantomData,
        }
    }
}

impl<A: DeserializeOwned> ArgumentReader<A> {
    /// Parses arguments from an object.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS`
    pub fn read(&self, arguments: &Value) -> Result<A, CallError> {
        self.parameters.read(arguments)
    }
}

fn segment(segment: &Segment) -> String {
    match segment {
        Segment::Seq { index } => index.to_string(),
        Segment::Map { key } => key.clone(),
        Segment::Enum { variant } => variant.clone(),
        Segment::Unknown => "?".to_owned(),
    }
}

fn pointer(path: &[String]) -> String {
    let escaped = path.iter().map(|name| {
        let name = name.replace('~', "~0").replace('/', "~1");
        format!("/{}", escape(&cut(&name)))
    });
    escaped.collect()
}

/// Converts values that do not match `schema`, if the meaning is unambiguous.
fn adapt(schema: &Value, value: &mut Value) {
    match (schema.get("type").and_then(Value::as_str), &mut *value) {
        (Some("object"), Value::Object(members)) => adapt_members(schema, members),
        (Some("array"), Value::Array(items)) => {
            if let Some(schema) = schema.get("items") {
                items.iter_mut().for_each(|item| adapt(schema, item));
            }
        }
        (Some("array"), Value::String(_))
            if schema.pointer("/items/type") == Some(&Value::from("string")) =>
        {
            *value = Value::Array(vec![value.take()]);
        }
        (Some("integer"), Value::String(text)) => {
            let text = text.trim();
            let number = text.parse::<i64>().map(Number::from);
            if let Ok(number) = number.or_else(|_| text.parse::<u64>().map(Number::from)) {
                *value = number.into();
            }
        }
        (Some("integer"), Value::Number(number)) => {
            if let Some(whole) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *value = whole.into();
            }
        }
        (Some("number"), Value::String(text)) => {
            let number = text.trim().parse().ok().and_then(Number::from_f64);
            if let Some(number) = number {
                *value = number.into();
            }
        }
        (Some("boolean"), Value::String(text)) => {
            let text = text.trim();
            if let Some(index) = ["false", "true"]
                .iter()
                .position(|word| text.eq_ignore_ascii_case(word))
            {
                *value = (index == 1).into();
            }
        }
        _ => {}
    }
}

fn adapt_members(schema: &Value, members: &mut Map<String, Value>) {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        // Without a type, null may be a value.
        let typed = schema.get("type").is_some() || schema.get("enum").is_some();
        let values = schema.get("enum").and_then(Value::as_array);
        let absent = |member: &Value| match member {
            Value::Null => typed,
            Value::String(text) => {
                text.is_empty() && values.is_some_and(|values| !values.contains(member))
            }
            _ => false,
        };
        match members.get_mut(name) {
            Some(member) if !is_required(name) && absent(member) => {
                members.shift_remove(name);
            }
            Some(member) => adapt(schema, member),
            None => {}
        }
    }
}

/// Converts a number without a fraction to an integer, if it is small enough to be exact.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value is an integer of at most 53 bits"
    )]
    exact.then_some(number as i64)
}

/// Whether `value` is of the type and among the values that `schema` names.
fn fits(schema: &Value, value: &Value) -> bool {
    let of_type = match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        _ => true,
    };
    let listed = schema.get("enum").and_then(Value::as_array);
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let number = value.as_f64();
    of_type
        && listed.is_none_or(|values| values.contains(value))
        && number.is_none_or(|number| bound("minimum").is_none_or(|least| number >= least))
        && number.is_none_or(|number| bound("maximum").is_none_or(|most| number <= most))
        && !is_below_zero(schema, value)
}

/// Whether it is a negative integer. A schema without a minimum may belong to an unsigned type, which rejects those.
fn is_below_zero(schema: &Value, value: &Value) -> bool {
    schema.get("minimum").is_none() && value.as_i64().is_some_and(|value| value < 0)
}

/// Description of the values that `schema` accepts.
fn expected(schema: &Value) -> String {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values: Vec<String> = values
            .iter()
            .map(|value| {
                format!(
                    "`{}`",
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                )
            })
            .collect();
        return format!("one of {}", values.join(", "));
    }
    let list = |schema: Option<&Value>| match schema.and_then(|items| items.get("type")?.as_str()) {
        Some("string") => "a list of strings",
        Some("object") => "a list of objects",
        Some("integer") => "a list of integers",
        _ => "a list",
    };
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => {
            let members = schema.get("properties").and_then(Value::as_object);
            let names = members.into_iter().flatten();
            let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
            match names.as_slice() {
                [] => "an object".to_owned(),
                names => format!("an object of {}", names.join(", ")),
            }
        }
        Some("array") => list(schema.get("items")).to_owned(),
        Some("string") => "a string".to_owned(),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some(kind @ ("integer" | "number")) => {
            let kind = if kind == "integer" {
                "an integer"
            } else {
                "a number"
            };
            match (schema.get("minimum"), schema.get("maximum")) {
                (Some(least), Some(most)) => format!("{kind} from {least} to {most}"),
                (Some(least), None) => format!("{kind} of at least {least}"),
                (None, Some(most)) => format!("{kind} of at most {most}"),
                (None, None) => kind.to_owned(),
            }
        }
        _ => "another value".to_owned(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A rejected value, for the error.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(text) => format!("the string `{}`", escape(&cut(text))),
        Value::Array(_) | Value::Object(_) => kind_of(value).to_owned(),
    }
}

fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(MAX_SHOWN).collect();
    if cut.len() < text.len() {
        cut.push('\u{2026}');
    }
    cut
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::tool::schema;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Lines,
        Count,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Edit {
        old_text: String,
        #[serde(default)]
        all: bool,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Args {
        path: String,
        #[serde(default)]
        paths: Vec<String>,
        #[serde(default)]
        edits: Vec<Edit>,
        #[serde(default)]
        limit: u32,
        #[serde(default)]
        offset: Option<i64>,
        #[serde(default)]
        all: bool,
        #[serde(default)]
        mode: Option<Mode>,
        #[serde(default)]
        anything: Value,
    }

    const EXAMPLES: &[Example] = &[
        Example {
            description: "",
            input: r#"{"path": "a"}"#,
            output: "{}",
        },
        Example {
            description: "",
            input: r#"{"path": "a", "limit": 5}"#,
            output: "{}",
        },
    ];

    fn read(value: &Value) -> Result<Args, CallError> {
        let parameters = Parameters {
            schema: schema::input::<Args>().into(),
            examples: EXAMPLES,
        };
        parameters.read(value)
    }

    #[test]
    fn null_is_absent_for_every_optional_argument() {
        let nulls = json!({
            "path": "a", "paths": null, "edits": null, "limit": null, "offset": null, "all": null, "mode": null,
            "anything": null,
        });
        assert_eq!(read(&nulls).unwrap(), read(&json!({"path": "a"})).unwrap());
        let inner = json!({"path": "a", "edits": [{"old_text": "x", "all": null}]});
        assert!(!read(&inner).unwrap().edits[0].all);
        let refused = read(&json!({"path": null})).unwrap_err();
        let message = "invalid argument `/path`: expected a string, got null; for example `{\"path\": \"a\"}`";
        assert_eq!(refused.message(), message);
    }

    #[test]
    fn empty_string_is_absent_for_an_optional_enum_argument() {
        let empty = read(&json!({"path": "", "mode": ""})).unwrap();
        assert_eq!(empty, read(&json!({"path": ""})).unwrap());
        let refused = read(&json!({"path": "a", "mode": " "})).unwrap_err();
        assert!(refused.message().contains("`lines`, `count`"), "{refused}");
    }

    #[test]
    fn unambiguous_values_of_another_type_are_converted() {
        let args = read(&json!({
            "path": "a", "paths": "b", "limit": "5", "offset": -2.0, "all": "true",
            "edits": [{"old_text": "x", "all": "False"}],
        }));
        let plain = read(&json!({
            "path": "a", "paths": ["b"], "limit": 5, "offset": -2, "all": true,
            "edits": [{"old_text": "x", "all": false}],
        }));
        assert_eq!(args.unwrap(), plain.unwrap());
        let text = read(&json!({"path": "5", "limit": "7"})).unwrap();
        assert_eq!(
            (text.path.as_str(), text.limit),
            ("5", 7),
            "text stays text"
        );
    }

    #[track_caller]
    fn check(value: &Value, field: &str, message: &str) {
        let error = read(value).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArguments);
        assert_eq!(error.message(), message);
        assert_eq!(error.details()["field"], field);
    }

    #[test]
    fn errors_name_the_argument_and_what_was_expected() {
        check(
            &json!({}),
            "/path",
            "missing argument `/path`: expected a string; for example `{\"path\": \"a\"}`",
        );
        check(
            &json!({"path": "a", "limit": "many"}),
            "/limit",
            "invalid argument `/limit`: expected an integer, got the string `many`; for example `{\"path\": \"a\", \"limit\": 5}`",
        );
        check(
            &json!({"path": "a", "limit": -1}),
            "/limit",
            "invalid argument `/limit`: expected an integer of at least 0, got `-1`; for example `{\"path\": \"a\", \"limit\": 5}`",
        );
        check(
            &json!({"path": "a", "edits": [{"old_text": 5}]}),
            "/edits/0/old_text",
            "invalid argument `/edits/0/old_text`: expected a string, got `5`; for example `{\"path\": \"a\"}`",
        );
        check(
            &json!({"path": "a", "edits": [{}]}),
            "/edits/0/old_text",
            "missing argument `/edits/0/old_text`: expected a string; for example `{\"path\": \"a\"}`",
        );
        check(
            &json!({"path": "a", "mode": "all"}),
            "/mode",
            "invalid argument `/mode`: expected one of `lines`, `count`, got the string `all`; for example `{\"path\": \"a\"}`",
        );
        check(
            &json!({"path": "a", "edits": ["x"]}),
            "/edits/0",
            "invalid argument `/edits/0`: expected an object of `old_text`, `all`, got the string `x`; for example `{\"path\": \"a\"}`",
        );
    }

    #[test]
    fn unknown_arguments_are_rejected() {
        check(
            &json!({"path": "a", "pth": 1}),
            "/pth",
            "unknown argument `/pth`: expected one of `path`, `paths`, `edits`, `limit`, `offset`, `all`, `mode`, `anything`; for example `{\"path\": \"a\"}`",
        );
        check(
            &json!({"path": "a", "edits": [{"old_text": "x", "new": 1}]}),
            "/edits/0/new",
            "unknown argument `/edits/0/new`: expected one of `old_text`, `all`; for example `{\"path\": \"a\"}`",
        );
        assert!(read(&json!({"path": "a", "pth": null})).is_err());
        assert!(read(&json!(["a"])).is_err());
    }
}
