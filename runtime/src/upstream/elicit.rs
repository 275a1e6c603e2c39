//! Checks whether a person may be asked what a server wants to know of them.

use serde_json::{Map, Value};

use super::classify::cut;

/// The most fields of a form, and the most choices of a field.
const MOST_FIELDS: usize = 20;
const MOST_CHOICES: usize = 100;
/// The longest name of a field, or value of a choice, in bytes; the longest title and description, which are cut.
const LONGEST_NAME: usize = 128;
const LONGEST_TITLE: usize = 256;
const LONGEST_TEXT: usize = 2048;
/// The longest address.
const LONGEST_URL: usize = 2048;
/// Words that mean a secret wherever they stand in the name of a field, its title or its description.
const SECRETS: &[&str] = &[
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "otp",
    "ssn",
    "cvv",
    "cvc",
    "mnemonic",
];
/// The same for words that follow one another.
const SECRET_PAIRS: &[[&str; 2]] = &[
    ["api", "key"],
    ["access", "key"],
    ["private", "key"],
    ["secret", "key"],
    ["client", "secret"],
    ["access", "token"],
    ["refresh", "token"],
    ["bearer", "token"],
    ["auth", "token"],
    ["api", "token"],
    ["pin", "code"],
    ["pin", "number"],
    ["security", "code"],
    ["card", "number"],
    ["credit", "card"],
    ["social", "security"],
    ["seed", "phrase"],
    ["recovery", "phrase"],
];
/// Words that mean a secret at the end of a name or title alone: `session_token`, but not `token_limit`.
const SECRET_ENDS: &[&str] = &[
    "secret",
    "token",
    "pin",
    "pass",
    "credential",
    "credentials",
    "apikey",
];

/// Why a person is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    /// A field is no text, number, choice or yes and no.
    NotFlat,
    /// There are too many fields or choices.
    TooMany,
    /// A name or a value is too long, or shows as something else than it is.
    Deceptive,
    /// A field asks for a secret.
    Secret,
    /// The address is none that may be shown.
    Url,
}

impl Unasked {
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::NotFlat => "a form may ask for texts, numbers, choices and yes or no",
            Self::TooMany => "the form has too many fields or choices",
            Self::Deceptive => "the names and values of a form must be short and show as they are",
            Self::Secret => "secrets are not asked for by a form",
            Self::Url => "the address must be one of `http` or `https`, without a user in it",
        }
    }
}

/// The form as a person may be shown it: what is only read is text and cut, what is sent back is as it was. Refuses forms
/// that are not flat, that ask for a secret, and that deceive.
pub(super) fn form(schema: &Value) -> Result<Value, Unasked> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.ok_or(Unasked::NotFlat)?;
    if fields.len() > MOST_FIELDS {
        return Err(Unasked::TooMany);
    }
    for (name, field) in fields {
        let field = field.as_object().ok_or(Unasked::NotFlat)?;
        flat(field)?;
        let text = |key: &str| field.get(key).and_then(Value::as_str);
        let secret = text("format") == Some("password")
            || names_secret(name)
            || text("title").is_some_and(names_secret)
            || text("description").is_some_and(|text| mentions_secret(&words(text)));
        if secret {
            return Err(Unasked::Secret);
        }
    }
    inert(schema)
}

fn inert(value: &Value) -> Result<Value, Unasked> {
    Ok(match value {
        Value::Object(map) => {
            let part = |(key, value): (&String, &Value)| Ok((named(key)?, inert_part(key, value)?));
            let parts = map.iter().filter(|(key, _)| *key != "$schema").map(part);
            Value::Object(parts.collect::<Result<_, _>>()?)
        }
        Value::Array(items) if items.len() > MOST_CHOICES => return Err(Unasked::TooMany),
        Value::Array(items) => Value::Array(items.iter().map(inert).collect::<Result<_, _>>()?),
        Value::String(text) => Value::String(named(text)?),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn inert_part(key: &str, value: &Value) -> Result<Value, Unasked> {
    let title = |text: &str| Value::String(cut(&crate::escape(text), LONGEST_TITLE));
    match (key, value) {
        ("title", Value::String(text)) => Ok(title(text)),
        ("description", Value::String(text)) => {
            Ok(Value::String(cut(&crate::escape_lines(text), LONGEST_TEXT)))
        }
        ("enumNames", Value::Array(names)) if names.len() <= MOST_CHOICES => {
            let names = names.iter().map(|name| name.as_str().map(title));
            let names: Option<_> = names.collect();
            names.map(Value::Array).ok_or(Unasked::NotFlat)
        }
        _ => inert(value),
    }
}

/// What goes back to the server as it is shown, so it must show as it is.
fn named(text: &str) -> Result<String, Unasked> {
    let plain = text.len() <= LONGEST_NAME && !text.chars().any(crate::is_deceptive);
    plain.then(|| text.to_owned()).ok_or(Unasked::Deceptive)
}

fn flat(field: &Map<String, Value>) -> Result<(), Unasked> {
    let kind = field.get("type").and_then(Value::as_str);
    let choice = field.contains_key("enum") || field.contains_key("oneOf");
    let nested = ["properties", "$ref", "allOf", "patternProperties"];
    if nested.iter().any(|key| field.contains_key(*key)) {
        return Err(Unasked::NotFlat);
    }
    match kind {
        Some("string" | "number" | "integer" | "boolean") => Ok(()),
        // Several of a choice.
        Some("array") => {
            let items = field
                .get("items")
                .and_then(Value::as_object)
                .ok_or(Unasked::NotFlat)?;
            let chosen = items.contains_key("enum") || items.contains_key("anyOf");
            chosen.then_some(()).ok_or(Unasked::NotFlat)
        }
        None if choice => Ok(()),
        _ => Err(Unasked::NotFlat),
    }
}

/// The words of a name or a text, in lower case. `userPassword`, `user_password` and `USER-PASSWORD` are two each.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in text.chars() {
        let begins = c.is_uppercase() && lower;
        lower = c.is_lowercase() || c.is_numeric();
        if begins || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && c.is_alphanumeric()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a name or a title is that of a secret.
fn names_secret(text: &str) -> bool {
    let words = words(text);
    let ends = words
        .last()
        .is_some_and(|last| SECRET_ENDS.contains(&last.as_str()));
    ends || mentions_secret(&words)
}

fn mentions_secret(words: &[String]) -> bool {
    let pair = |pair: &[String]| SECRET_PAIRS.iter().any(|secret| secret == pair);
    words.iter().any(|word| SECRETS.contains(&word.as_str())) || words.windows(2).any(pair)
}

/// Refuses addresses that a person should not be sent to.
pub(crate) fn url(url: &str) -> Result<(), Unasked> {
    let after = |scheme: &str| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after("https://").or_else(|| after("http://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let plain = |c: char| c.is_ascii_graphic() && c != '\\';
    let fits = authority.is_some_and(|it| !it.is_empty() && !it.contains('@'))
        && url.len() <= LONGEST_URL
        && url.chars().all(plain);
    fits.then_some(()).ok_or(Unasked::Url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(field: &str, schema: Value, expected: Result<(), Unasked>) {
        let properties = Map::from_iter([(field.to_owned(), schema)]);
        let asked = form(&json!({"type": "object", "properties": properties}));
        assert_eq!(asked.map(|_| ()), expected, "{field}");
    }

    #[test]
    fn what_is_read_is_text_and_what_is_sent_back_is_as_it_was() {
        let shown = form(&json!({
            "$schema": "https://example.org", "type": "object", "title": "T\u{202e}", "required": ["a"],
            "properties": {"a": {
                "type": "string", "title": "x\u{1b}[2J\n", "description": "two\nlines\u{200b}",
                "enum": ["é 1", "2"], "enumNames": ["one\u{2066}", "two"], "default": "2",
            }},
        }));
        let expected = json!({
            "type": "object", "title": "T\\u{202e}", "required": ["a"],
            "properties": {"a": {
                "type": "string", "title": "x\\u{1b}[2J\\u{a}", "description": "two\nlines\\u{200b}",
                "enum": ["é 1", "2"], "enumNames": ["one\\u{2066}", "two"], "default": "2",
            }},
        });
        assert_eq!(shown, Ok(expected));
        let long =
            form(&json!({"properties": {"a": {"type": "string", "title": "x".repeat(9999)}}}));
        assert!(long.unwrap().to_string().len() < 400);
    }

    #[test]
    fn what_deceives_and_would_be_sent_back_is_not_asked() {
        for field in [
            json!({"type": "string", "enum": ["yes\u{200b}"]}),
            json!({"type": "string", "oneOf": [{"const": "a\u{202e}", "title": "a"}]}),
            json!({"type": "string", "default": "\u{1b}[2J"}),
            json!({"type": "string", "enum": ["x".repeat(129)]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a\n"]}}),
        ] {
            check("x", field, Err(Unasked::Deceptive));
        }
        check(
            "na\u{ad}me",
            json!({"type": "string"}),
            Err(Unasked::Deceptive),
        );
        let choices = |most: usize| json!({"type": "string", "enum": vec!["a"; most]});
        check("x", choices(100), Ok(()));
        check("x", choices(101), Err(Unasked::TooMany));
    }

    #[test]
    fn a_flat_form_may_be_asked() {
        check(
            "name",
            json!({"type": "string", "title": "Your name"}),
            Ok(()),
        );
        check("count", json!({"type": "integer", "minimum": 1}), Ok(()));
        check("sure", json!({"type": "boolean"}), Ok(()));
        check(
            "colour",
            json!({"type": "string", "enum": ["red", "blue"]}),
            Ok(()),
        );
        check(
            "days",
            json!({"type": "array", "items": {"type": "string", "enum": ["mo", "tu"]}}),
            Ok(()),
        );
        check("compass", json!({"type": "string"}), Ok(()));
        check("keyboard", json!({"type": "string"}), Ok(()));
    }

    #[test]
    fn a_nested_form_may_not() {
        for nested in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "array", "items": {"type": "object"}}),
            json!({"type": "array"}),
            json!({"$ref": "#/x"}),
            json!({"type": "string", "allOf": []}),
            json!({}),
            json!(7),
        ] {
            check("x", nested, Err(Unasked::NotFlat));
        }
        assert_eq!(form(&json!({"type": "object"})), Err(Unasked::NotFlat));
        let many: Map<String, Value> = (0..21)
            .map(|n| (format!("f{n}"), json!({"type": "string"})))
            .collect();
        assert_eq!(form(&json!({ "properties": many })), Err(Unasked::TooMany));
        let empty = json!({"properties": {}});
        assert_eq!(form(&empty), Ok(empty));
    }

    #[test]
    fn a_form_that_asks_for_a_secret_may_not() {
        for name in [
            "password",
            "API_KEY",
            "apiKey",
            "userPassword",
            "access-token",
            "PIN",
            "my pin code",
            "credit_card_number",
            "ssn",
            "otp code",
            "session_token",
            "clientSecret",
            "passwordAgain",
        ] {
            check(name, json!({"type": "string"}), Err(Unasked::Secret));
        }
        for name in [
            "business_name",
            "class name",
            "address_number",
            "do not pick",
            "keyboard",
            "max_tokens",
            "token_limit",
            "key",
            "sort_key",
            "pin_to_top",
            "compassionate",
            "Secret santa",
        ] {
            check(name, json!({"type": "string"}), Ok(()));
        }
        check(
            "x",
            json!({"type": "string", "format": "password"}),
            Err(Unasked::Secret),
        );
        check(
            "x",
            json!({"type": "string", "title": "Your secret"}),
            Err(Unasked::Secret),
        );
        check(
            "x",
            json!({"type": "string", "description": "the API key"}),
            Err(Unasked::Secret),
        );
        for (key, text) in [
            ("title", "Which key topics?"),
            ("title", "Token budget"),
            (
                "description",
                "How many tokens the answer may have; the key point comes first.",
            ),
            ("format", "email"),
        ] {
            check("x", json!({"type": "string", key: text}), Ok(()));
        }
    }

    #[test]
    fn an_address_is_of_the_web_and_names_no_user() {
        for good in [
            "https://example.org/a?b=c",
            "HTTP://example.org",
            "http://127.0.0.1:8080/",
        ] {
            assert_eq!(url(good), Ok(()), "{good}");
        }
        for bad in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "ui://x",
            "https://",
            "https://you@example.org",
            "https://exa mple.org",
            "https://example.org\u{202e}",
            "https:\\\\example.org",
        ] {
            assert_eq!(url(bad), Err(Unasked::Url), "{bad}");
        }
    }
}
