//! Checks elicitation requests of servers before a person is asked.

use serde_json::{Map, Value};

use super::classify::truncate;

/// The largest number of fields in a form, and of choices in a field.
const MAX_FIELDS: usize = 20;
const MAX_CHOICES: usize = 100;
/// The longest field name or choice, in bytes, and the longest title and description, which are truncated.
const MAX_NAME_BYTES: usize = 128;
const MAX_TITLE_BYTES: usize = 256;
const MAX_TEXT_BYTES: usize = 2048;
/// The longest URL, in bytes.
const MAX_URL_BYTES: usize = 2048;
/// Words and phrases that indicate a secret anywhere in the name, title or description of a field.
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
    "api key",
    "access key",
    "private key",
    "secret key",
    "client secret",
    "access token",
    "refresh token",
    "bearer token",
    "auth token",
    "api token",
    "pin code",
    "pin number",
    "security code",
    "card number",
    "credit card",
    "social security",
    "seed phrase",
    "recovery phrase",
];
/// Words that indicate a secret at the end of a name or title: `session_token`, but not `token_limit`.
const SECRET_ENDS: &[&str] = &[
    "secret",
    "token",
    "pin",
    "pass",
    "credential",
    "credentials",
    "apikey",
];

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormRejection {
    #[error("a form may ask only for strings, numbers, choices and booleans")]
    NotFlat,
    #[error("the form has too many fields or choices")]
    TooMany,
    #[error("the names and values of a form must be short and contain no invisible characters")]
    Deceptive,
    #[error("a form must not ask for secrets")]
    Secret,
    #[error("the URL must be `http` or `https`, without a user name")]
    Url,
}

/// Returns the form with titles and descriptions escaped and truncated, and with names and values unchanged. Rejects
/// forms that are nested, deceptive, or ask for secrets.
pub(super) fn check_form(schema: &Value) -> Result<Value, FormRejection> {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.ok_or(FormRejection::NotFlat)?;
    if fields.len() > MAX_FIELDS {
        return Err(FormRejection::TooMany);
    }
    for (name, field) in fields {
        let field = field.as_object().ok_or(FormRejection::NotFlat)?;
        check_flat(field)?;
        let text = |key: &str| field.get(key).and_then(Value::as_str);
        let secret = text("format") == Some("password")
            || names_secret(name)
            || text("title").is_some_and(names_secret)
            || text("description").is_some_and(|text| mentions_secret(&words(text)));
        if secret {
            return Err(FormRejection::Secret);
        }
    }
    sanitize(schema)
}

fn sanitize(value: &Value) -> Result<Value, FormRejection> {
    Ok(match value {
        Value::Object(map) => {
            let part = |(key, value): (&String, &Value)| {
                Ok((check_plain(key)?, sanitize_field(key, value)?))
            };
            let parts = map.iter().filter(|(key, _)| *key != "$schema").map(part);
            Value::Object(parts.collect::<Result<_, _>>()?)
        }
        Value::Array(items) if items.len() > MAX_CHOICES => return Err(FormRejection::TooMany),
        Value::Array(items) => Value::Array(items.iter().map(sanitize).collect::<Result<_, _>>()?),
        Value::String(text) => Value::String(check_plain(text)?),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn sanitize_field(key: &str, value: &Value) -> Result<Value, FormRejection> {
    let title =
        |text: &str| Value::String(truncate(&bailiwick::text::escape(text), MAX_TITLE_BYTES));
    match (key, value) {
        ("title", Value::String(text)) => Ok(title(text)),
        ("description", Value::String(text)) => Ok(Value::String(truncate(
            &bailiwick::text::escape_lines(text),
            MAX_TEXT_BYTES,
        ))),
        ("enumNames", Value::Array(names)) if names.len() <= MAX_CHOICES => {
            let names = names.iter().map(|name| name.as_str().map(title));
            let names: Option<_> = names.collect();
            names.map(Value::Array).ok_or(FormRejection::NotFlat)
        }
        _ => sanitize(value),
    }
}

/// Names and values are returned to the server, so they must display unchanged.
fn check_plain(text: &str) -> Result<String, FormRejection> {
    let plain = text.len() <= MAX_NAME_BYTES && !text.chars().any(bailiwick::text::is_deceptive);
    plain
        .then(|| text.to_owned())
        .ok_or(FormRejection::Deceptive)
}

fn check_flat(field: &Map<String, Value>) -> Result<(), FormRejection> {
    let kind = field.get("type").and_then(Value::as_str);
    let choice = field.contains_key("enum") || field.contains_key("oneOf");
    let nested = ["properties", "$ref", "allOf", "patternProperties"];
    if nested.iter().any(|key| field.contains_key(*key)) {
        return Err(FormRejection::NotFlat);
    }
    match kind {
        Some("string" | "number" | "integer" | "boolean") => Ok(()),
        // A choice of several values.
        Some("array") => {
            let items = field
                .get("items")
                .and_then(Value::as_object)
                .ok_or(FormRejection::NotFlat)?;
            let chosen = items.contains_key("enum") || items.contains_key("anyOf");
            chosen.then_some(()).ok_or(FormRejection::NotFlat)
        }
        None if choice => Ok(()),
        _ => Err(FormRejection::NotFlat),
    }
}

/// The words of a name or text, in lower case. `userPassword`, `user_password` and `USER-PASSWORD` have two words each.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in text.chars() {
        let starts_word = c.is_uppercase() && lower;
        lower = c.is_lowercase() || c.is_numeric();
        if starts_word || !c.is_alphanumeric() {
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

/// Whether a name or title refers to a secret.
fn names_secret(text: &str) -> bool {
    let words = words(text);
    let ends_in_secret = words
        .last()
        .is_some_and(|last| SECRET_ENDS.contains(&last.as_str()));
    ends_in_secret || mentions_secret(&words)
}

fn mentions_secret(words: &[String]) -> bool {
    let text = format!(" {} ", words.join(" "));
    let mut secrets = SECRETS.iter();
    secrets.any(|secret| text.contains(&format!(" {secret} ")))
}

/// Rejects URLs that a person should not open.
pub(crate) fn check_url(url: &str) -> Result<(), FormRejection> {
    let after = |scheme: &str| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after("https://").or_else(|| after("http://"));
    let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let plain = |c: char| c.is_ascii_graphic() && c != '\\';
    let fits = authority.is_some_and(|it| !it.is_empty() && !it.contains('@'))
        && url.len() <= MAX_URL_BYTES
        && url.chars().all(plain);
    fits.then_some(()).ok_or(FormRejection::Url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(field: &str, schema: Value, expected: Result<(), FormRejection>) {
        let properties = Map::from_iter([(field.to_owned(), schema)]);
        let checked = check_form(&json!({"type": "object", "properties": properties}));
        assert_eq!(checked.map(|_| ()), expected, "{field}");
    }

    #[test]
    fn form_texts_are_escaped_and_values_are_unchanged() {
        let shown = check_form(&json!({
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
        let long = check_form(
            &json!({"properties": {"a": {"type": "string", "title": "x".repeat(9999)}}}),
        );
        assert!(long.unwrap().to_string().len() < 400);
    }

    #[test]
    fn deceptive_values_are_rejected() {
        for field in [
            json!({"type": "string", "enum": ["yes\u{200b}"]}),
            json!({"type": "string", "oneOf": [{"const": "a\u{202e}", "title": "a"}]}),
            json!({"type": "string", "default": "\u{1b}[2J"}),
            json!({"type": "string", "enum": ["x".repeat(129)]}),
            json!({"type": "array", "items": {"type": "string", "enum": ["a\n"]}}),
        ] {
            check("x", field, Err(FormRejection::Deceptive));
        }
        check(
            "na\u{ad}me",
            json!({"type": "string"}),
            Err(FormRejection::Deceptive),
        );
        let choices = |count: usize| json!({"type": "string", "enum": vec!["a"; count]});
        check("x", choices(100), Ok(()));
        check("x", choices(101), Err(FormRejection::TooMany));
    }

    #[test]
    fn flat_forms_are_accepted() {
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
    fn nested_forms_are_rejected() {
        for nested in [
            json!({"type": "object", "properties": {}}),
            json!({"type": "array", "items": {"type": "object"}}),
            json!({"type": "array"}),
            json!({"$ref": "#/x"}),
            json!({"type": "string", "allOf": []}),
            json!({}),
            json!(7),
        ] {
            check("x", nested, Err(FormRejection::NotFlat));
        }
        assert_eq!(
            check_form(&json!({"type": "object"})),
            Err(FormRejection::NotFlat)
        );
        let many: Map<String, Value> = (0..21)
            .map(|n| (format!("f{n}"), json!({"type": "string"})))
            .collect();
        assert_eq!(
            check_form(&json!({ "properties": many })),
            Err(FormRejection::TooMany)
        );
        let empty = json!({"properties": {}});
        assert_eq!(check_form(&empty), Ok(empty));
    }

    #[test]
    fn forms_that_ask_for_secrets_are_rejected() {
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
            check(name, json!({"type": "string"}), Err(FormRejection::Secret));
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
            Err(FormRejection::Secret),
        );
        check(
            "x",
            json!({"type": "string", "title": "Your secret"}),
            Err(FormRejection::Secret),
        );
        check(
            "x",
            json!({"type": "string", "description": "the API key"}),
            Err(FormRejection::Secret),
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
    fn urls_are_http_without_a_user() {
        for good in [
            "https://example.org/a?b=c",
            "HTTP://example.org",
            "http://127.0.0.1:8080/",
        ] {
            assert_eq!(check_url(good), Ok(()), "{good}");
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
            assert_eq!(check_url(bad), Err(FormRejection::Url), "{bad}");
        }
    }
}
