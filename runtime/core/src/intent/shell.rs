//! Renders templates as POSIX shell commands with quoted values.

use serde_json::Value;

use super::{Key, Segment};

pub(super) fn line(segments: &[Segment], arguments: &Value) -> Option<String> {
    let mut line = String::new();
    for segment in segments {
        match segment {
            Segment::Text(text) => line.push_str(text),
            Segment::Placeholder(key) => line.push_str(&words(value(key, arguments)?)?),
            Segment::Group(group) => {
                let missing = |segment: &Segment| match segment {
                    Segment::Placeholder(key) => value(key, arguments).is_none(),
                    Segment::Text(_) | Segment::Group(_) => false,
                };
                if !group.iter().any(missing) {
                    line.push_str(&self::line(group, arguments)?);
                }
            }
        }
    }
    Some(line)
}

/// The value of an argument; `null` and the empty array are missing.
fn value<'a>(key: &Key, arguments: &'a Value) -> Option<&'a Value> {
    let argument = arguments.get(&key.name)?;
    let found = key
        .fields
        .iter()
        .try_fold(argument, |value, field| value.get(field))?;
    let empty = found.as_array().is_some_and(Vec::is_empty);
    (!found.is_null() && !empty).then_some(found)
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => quoted(&number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Array(items) => {
            let words = items.iter().map(|item| match item {
                Value::Array(_) => None,
                item => words(item),
            });
            Some(words.collect::<Option<Vec<_>>>()?.join(" "))
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// Quotes with single quotes, in which only a single quote is special.
fn quoted(text: &str) -> Option<String> {
    (!text.contains('\0')).then(|| format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::super::IntentTemplate;
    use serde_json::json;

    #[track_caller]
    fn check(template: &str, arguments: &serde_json::Value, line: Option<&str>) {
        let template = IntentTemplate::parse(template).unwrap();
        assert_eq!(template.shell(arguments).as_deref(), line);
    }

    #[test]
    fn each_value_is_one_word() {
        check(
            "rm {a}",
            &json!({"a": "x; $(y) `z`"}),
            Some("rm 'x; $(y) `z`'"),
        );
        check("rm {a}", &json!({"a": "'"}), Some(r"rm ''\'''"));
        check("rm {a}", &json!({"a": ""}), Some("rm ''"));
        check("rm {a}", &json!({"a": "{b} [\n"}), Some("rm '{b} [\n'"));
        check(
            "cat {a}",
            &json!({"a": ["x", "y z"]}),
            Some("cat 'x' 'y z'"),
        );
        check("head -n {n}", &json!({"n": -3}), Some("head -n '-3'"));
    }

    #[test]
    fn unquotable_values_give_no_line() {
        check("rm {a}", &json!({}), None);
        check("rm {a}", &json!({"a": null}), None);
        check("rm {a}", &json!({"a": "x\0y"}), None);
        check("rm {a}", &json!({"a": {"b": 1}}), None);
        check("rm {a}", &json!({"a": [["x"]]}), None);
        check("rm {a.b}", &json!({"a": {"b": "x"}}), Some("rm 'x'"));
    }

    #[test]
    fn group_with_a_missing_value_is_omitted() {
        check("ls[ -d {n}][ {a}]", &json!({"a": "x"}), Some("ls 'x'"));
        check("ls[ {a}]", &json!({"a": []}), Some("ls"));
    }
}
