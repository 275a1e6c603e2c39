//! Parses the values of flags and environment variables.

use serde_json::{Map, Value, json};

use crate::json::read_json;
use crate::path::VirtualPath;
use crate::policy::keys::ValueKind;

/// Parses `texts` as a value of that kind. Relative paths of roots are relative to `base`.
///
/// # Errors
/// [`serde_json::Error`] for JSON with duplicate keys.
pub(super) fn value(
    kind: ValueKind,
    texts: &[String],
    base: Option<&VirtualPath>,
) -> Result<Value, serde_json::Error> {
    match kind {
        ValueKind::Flag => single(texts, |text| Ok(flag(text))),
        ValueKind::Count => single(texts, |text| Ok(count(text))),
        ValueKind::Path | ValueKind::OneOf(_) => single(texts, |_| Ok(None)),
        ValueKind::Object | ValueKind::Policy => {
            single(texts, |text| json_beginning_with('{', text))
        }
        ValueKind::ListOf(_) | ValueKind::Names | ValueKind::Patterns => list(texts, plain_items),
        ValueKind::Globs => list(texts, glob_items),
        ValueKind::Objects => roots(texts, base),
    }
}

/// The only text, or a list of all, which is invalid for single values.
fn single(
    texts: &[String],
    read: impl Fn(&str) -> Result<Option<Value>, serde_json::Error>,
) -> Result<Value, serde_json::Error> {
    Ok(match texts {
        [text] => read(text)?.unwrap_or_else(|| json!(text)),
        many => json!(many),
    })
}

fn flag(text: &str) -> Option<Value> {
    match text {
        "true" | "1" => Some(json!(true)),
        "false" | "0" => Some(json!(false)),
        _ => None,
    }
}

fn count(text: &str) -> Option<Value> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| digits).map(Value::from)
}

/// The text as JSON; `None` if it is not JSON or begins with another character.
fn json_beginning_with(opening: char, text: &str) -> Result<Option<Value>, serde_json::Error> {
    if !text.trim_start().starts_with(opening) {
        return Ok(None);
    }
    match read_json(text.as_bytes()) {
        Err(error) if !error.is_data() => Ok(None),
        read => read.map(Some),
    }
}

/// Each text is a JSON list, or items.
fn list(texts: &[String], items: impl Fn(&str) -> Vec<String>) -> Result<Value, serde_json::Error> {
    let mut all = Vec::new();
    for text in texts {
        match json_beginning_with('[', text)? {
            Some(Value::Array(list)) => all.extend(list),
            _ => all.extend(items(text).into_iter().map(Value::from)),
        }
    }
    Ok(Value::Array(all))
}

/// The items between commas and line breaks.
fn plain_items(text: &str) -> Vec<String> {
    trimmed(text.split([',', '\n']).map(str::to_owned))
}

/// Like [`plain_items`], but a comma within `{}` or `[]`, or after `\`, belongs to the glob.
fn glob_items(text: &str) -> Vec<String> {
    let (mut items, mut item) = (Vec::new(), String::new());
    let (mut braces, mut class, mut escaped) = (0_usize, false, false);
    for c in text.chars() {
        let cut = c == '\n' || (c == ',' && braces == 0 && !class && !escaped);
        if cut {
            items.push(std::mem::take(&mut item));
            (braces, class, escaped) = (0, false, false);
            continue;
        }
        item.push(c);
        match c {
            _ if escaped => {}
            '[' => class = true,
            ']' => class = false,
            '{' if !class => braces += 1,
            '}' if !class => braces = braces.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    items.push(item);
    trimmed(items)
}

/// Trims items and removes empty ones.
fn trimmed(items: impl IntoIterator<Item = String>) -> Vec<String> {
    let items = items.into_iter().map(|item| item.trim().to_owned());
    items.filter(|item| !item.is_empty()).collect()
}

/// Each text is a JSON list of roots or paths, one root as JSON, or paths between commas and line breaks. The first
/// path is the default root if no JSON names another.
fn roots(texts: &[String], base: Option<&VirtualPath>) -> Result<Value, serde_json::Error> {
    let mut all = Vec::new();
    let mut first = None;
    for text in texts {
        let items = if let Some(Value::Array(list)) = json_beginning_with('[', text)? {
            list
        } else if let Some(root) = json_beginning_with('{', text)? {
            vec![root]
        } else if text.starts_with(['[', '{']) {
            // Invalid JSON is left for the parser to reject.
            all.push(json!(text));
            continue;
        } else if text.is_empty() {
            // It has no items, and does not name a directory.
            vec![json!("")]
        } else {
            plain_items(text).into_iter().map(Value::from).collect()
        };
        for item in items {
            let Value::String(path) = item else {
                all.push(item);
                continue;
            };
            first = first.or(Some(all.len()));
            all.push(json!({ "path": absolute(&path, base) }));
        }
    }
    let chosen = all.iter().any(|root| root.get("default").is_some());
    let first = first.filter(|_| !chosen);
    if let Some(root) = first.and_then(|first| all.get_mut(first)) {
        let members = root.as_object_mut().map(std::mem::take).unwrap_or_default();
        let default = Map::from_iter([("default".to_owned(), json!(true))]);
        *root = Value::Object(members.into_iter().chain(default).collect());
    }
    Ok(Value::Array(all))
}

fn absolute(path: &str, base: Option<&VirtualPath>) -> String {
    VirtualPath::parse(path, base).map_or_else(|_| path.to_owned(), |path| path.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::keys::EnumKind;

    #[track_caller]
    fn check(kind: ValueKind, texts: &[&str], expected: impl Into<Value>) {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        let base = VirtualPath::parse("/home/me", None).unwrap();
        assert_eq!(value(kind, &texts, Some(&base)).unwrap(), expected.into());
    }

    #[test]
    fn a_flag_is_true_false_1_or_0() {
        check(ValueKind::Flag, &["true"], json!(true));
        check(ValueKind::Flag, &["0"], json!(false));
        check(ValueKind::Flag, &["yes"], json!("yes"));
        check(ValueKind::Flag, &["TRUE"], json!("TRUE"));
    }

    #[test]
    fn a_count_is_digits() {
        check(ValueKind::Count, &["1000"], json!(1000));
        for text in ["+5", "-1", "1_000", "1e3", " 1", "", "18446744073709551616"] {
            check(ValueKind::Count, &[text], json!(text));
        }
        check(ValueKind::Count, &["1", "2"], json!(["1", "2"]));
    }

    #[test]
    fn text_values_are_never_parsed_as_json() {
        check(ValueKind::Path, &["[1]"], json!("[1]"));
        check(ValueKind::OneOf(EnumKind::Access), &["read"], json!("read"));
    }

    #[test]
    fn lists_are_repeated_texts_separated_items_or_json() {
        check(ValueKind::Names, &["a", "b"], json!(["a", "b"]));
        check(ValueKind::Names, &["a, b\nc,"], json!(["a", "b", "c"]));
        check(ValueKind::Names, &[r#"["a,b"]"#, "c"], json!(["a,b", "c"]));
        check(ValueKind::Names, &[""], json!([]));
        check(
            ValueKind::Patterns,
            &["read,write:file:/a"],
            json!(["read", "write:file:/a"]),
        );
    }

    #[test]
    fn commas_inside_globs_do_not_separate() {
        check(
            ValueKind::Globs,
            &["**/.env, **/*.{key,pem},a[,]b,c\\,d\n[ab]*.rs"],
            json!(["**/.env", "**/*.{key,pem}", "a[,]b", "c\\,d", "[ab]*.rs"]),
        );
        check(ValueKind::Globs, &["a\\\\,b"], json!(["a\\\\", "b"]));
        check(ValueKind::Globs, &["{a\nb,c"], json!(["{a", "b", "c"]));
    }

    #[test]
    fn roots_are_paths_or_json() {
        let kind = ValueKind::Objects;
        check(
            kind,
            &["/a", "../b"],
            json!([{ "path": "/a", "default": true }, { "path": "/home/b" }]),
        );
        check(
            kind,
            &["c=ro, d\n/e,"],
            json!([
                { "path": "/home/me/c=ro", "default": true }, { "path": "/home/me/d" }, { "path": "/e" },
            ]),
        );
        check(
            kind,
            &[r#"["a,b", {"path":"/c"}]"#, "d"],
            json!([{ "path": "/home/me/a,b", "default": true }, { "path": "/c" }, { "path": "/home/me/d" }]),
        );
        check(kind, &["[1]"], json!([1]));
        check(
            kind,
            &[
                r#"{"path":"/a","default":true}"#,
                r#"[{"path":"/b"}]"#,
                "/c",
            ],
            json!([{ "path": "/a", "default": true }, { "path": "/b" }, { "path": "/c" }]),
        );
        check(kind, &[""], json!([{ "path": "", "default": true }]));
        check(kind, &["{odd"], json!(["{odd"]));
        check(
            kind,
            &["./{odd"],
            json!([{ "path": "/home/me/{odd", "default": true }]),
        );
    }

    #[test]
    fn a_budget_is_json() {
        check(
            ValueKind::Object,
            &[r#"{"calls":1}"#],
            json!({ "calls": 1 }),
        );
        check(ValueKind::Object, &["calls=1"], json!("calls=1"));
    }
}
