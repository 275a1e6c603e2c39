//! Tests of intent templates against test vectors and a second implementation.

mod laws;
mod naive;

use serde_json::{Value, json};

use super::parse::{MAX_BYTES, MAX_DEPTH};
use super::*;

#[track_caller]
fn says(template: &str, arguments: &Value, sentence: &str) {
    let template = IntentTemplate::parse(template).unwrap();
    assert_eq!(template.render(arguments), sentence, "{template}");
}

#[track_caller]
fn faulty(template: &str, at: usize, fault: IntentFault) {
    assert_eq!(
        IntentTemplate::parse(template),
        Err(IntentError { at, fault }),
        "{template}"
    );
}

#[track_caller]
fn lints(template: &str, expected: &[Lint]) {
    let schema = json!({
        "$defs": { "Item": {
            "type": "object",
            "properties": { "path": { "type": "string" }, "tags": { "type": "array", "items": { "type": "string" } } },
            "required": ["path"],
        } },
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "glob": { "type": ["string", "null"] },
            "kind": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "items": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
            "names": { "type": ["array", "null"], "items": { "type": "string" } },
            "one": { "$ref": "#/$defs/Item" },
            "looping": { "$ref": "#/properties/looping" },
        },
        "required": ["path", "items", "one"],
    });
    let template = IntentTemplate::parse(template).unwrap();
    assert_eq!(template.lint(&schema), expected, "{template}");
}

fn cases() -> Value {
    serde_json::from_str(include_str!("tests/cases.json")).unwrap()
}

#[test]
fn rendering_cases_match() {
    let cases = cases();
    let cases = cases["render"].as_array().unwrap();
    assert_eq!(cases.len(), 48);
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let template = IntentTemplate::parse(case["template"].as_str().unwrap()).unwrap();
            let sentence = template.render(&case["arguments"]);
            (sentence != case["expected"]).then(|| format!("{}: {sentence}", case["id"]))
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn invalid_templates_are_rejected_at_the_position() {
    let cases = cases();
    let cases = cases["faults"].as_array().unwrap();
    assert_eq!(cases.len(), 7);
    for case in cases {
        let error = IntentTemplate::parse(case["template"].as_str().unwrap()).unwrap_err();
        let found = json!({ "at": error.at, "fault": format!("{:?}", error.fault) });
        assert_eq!(
            found,
            json!({ "at": case["at"], "fault": case["fault"] }),
            "{case}"
        );
    }
}

#[test]
fn names_begin_with_a_letter_and_fields_also_with_a_digit() {
    for key in [
        "a", "_", "$a", "é", "日本", "a1", "a-b", "a.1", "a.-", "ǅ.²",
    ] {
        says(&format!("{{{key}}}"), &json!({}), &format!("{{{key}}}"));
    }
    for key in [
        "1", "-a", "²", "Ⓐ", "Ⅷ", "a b", "a\u{301}", "{", "[", "a\\}",
    ] {
        assert!(
            IntentTemplate::parse(&format!("{{{key}}}")).is_err(),
            "{key}"
        );
    }
    faulty("é{ü b}", 5, IntentFault::BadName);
    faulty("{a.}", 3, IntentFault::EmptyName);
    faulty("{ .a}", 2, IntentFault::EmptyName);
}

#[test]
fn templates_are_bounded_in_length_and_depth() {
    let nested = |depth| format!("{}x{}", "[".repeat(depth), "]".repeat(depth));
    says(&nested(MAX_DEPTH), &json!({}), "x");
    faulty(&nested(MAX_DEPTH + 1), MAX_DEPTH, IntentFault::TooDeep);
    assert!(IntentTemplate::parse(&"x".repeat(MAX_BYTES)).is_ok());
    faulty(&"x".repeat(MAX_BYTES + 1), MAX_BYTES, IntentFault::TooLong);
}

#[test]
fn only_brackets_braces_and_the_backslash_are_escaped() {
    says(
        r"\{a\} \[b\] \\ \n \",
        &json!({ "a": 1 }),
        r"{a} [b] \ \n \",
    );
    says(r"\\{a}", &json!({ "a": 1 }), r"\1");
}

#[test]
fn numbers_render_as_parsed() {
    let arguments: Value =
        serde_json::from_str("[1.0, 1.50, -0, 1e3, 18446744073709551615, 18446744073709551616]")
            .unwrap();
    says(
        "{n}",
        &json!({ "n": arguments }),
        "1.0, 1.5, -0.0, 1000.0, 18446744073709551615, 1.8446744073709552e+19",
    );
}

#[test]
fn values_render_verbatim_without_deceptive_characters() {
    says(
        "Say {s}",
        &json!({ "s": "\u{1b}[2J\u{85}a\u{2028}b\u{202e}\u{2066}\u{feff}\u{e0041}c" }),
        "Say [2J a bc",
    );
    says(
        "Say {s} [or {s}]",
        &json!({ "s": "\u{200b}\u{202e} \u{1}" }),
        "Say {s}",
    );
    says(
        "Say\u{202e} \u{7}{s}\u{200d}",
        &json!({ "s": "x" }),
        "Say x",
    );
    says(
        "Set {o}",
        &json!({ "o": { "a\"\n": ["\u{7}\u{7f}\u{202e}", null, [], {}, true, 1.0] } }),
        r#"Set {"a\"\n":["\u0007 ",null,[],{},true,1.0]}"#,
    );
}

#[test]
fn groups_repeat_only_for_array_arguments() {
    says(
        "Do [in {root} [{paths}]]",
        &json!({ "root": "r", "paths": ["a", "b"] }),
        "Do in r a, in r b",
    );
    says(
        "Do [in {root} [{paths}]]",
        &json!({ "root": "r", "paths": [] }),
        "Do",
    );
    says(
        "Do [in {root} [{paths}]]",
        &json!({ "root": "r" }),
        "Do in r",
    );
    says(
        "Do [as {o.tags} x]",
        &json!({ "o": { "tags": ["a", null, "b"] } }),
        "Do as a, b x",
    );
    says(
        "Do [{p} x]",
        &json!({ "p": [["a", "b"], [], ["c"]] }),
        "Do a, b x, c x",
    );
    says("Do [{p.0}]", &json!({ "p": ["a"] }), "Do");
}

#[test]
fn long_values_and_sentences_are_truncated() {
    let (fits, long) = ("é".repeat(256), "é".repeat(257));
    says("{s}", &json!({ "s": fits }), &fits);
    says(
        "{s}!",
        &json!({ "s": long }),
        &format!("{}…!", "é".repeat(255)),
    );
    let words = |count: usize| json!({ "s": vec!["abcde"; count] });
    let whole = vec!["abcde"; 146].join(", ");
    says("ab [{s}]", &words(146), &format!("ab {whole}"));
    let cut = IntentTemplate::parse("[{s}]").unwrap().render(&words(147));
    assert_eq!(cut.chars().count(), 1024);
    assert!(cut.ends_with("abcde, a…"), "{cut}");
}

#[test]
fn rendering_work_is_bounded() {
    let many = "[{a.b} [{a.c}] {d.e}]".repeat(MAX_BYTES / 21);
    let long =
        json!({ "a": vec![json!({ "b": " " }); 100_000], "d": "\u{200b}".repeat(10_000_000) });
    says(&many, &long, "…");
    let wide = IntentTemplate::parse("Delete [{paths}]").unwrap();
    let sentence = wide.render(&json!({ "paths": (0..100_000).collect::<Vec<_>>() }));
    assert!(
        sentence.starts_with("Delete 0, 1, 2, ") && sentence.ends_with('…'),
        "{sentence}"
    );
    says(
        "Delete [{paths}]",
        &json!({ "paths": vec![Value::Null; 100_000] }),
        "Delete",
    );
}

#[test]
fn deep_arguments_do_not_overflow_the_stack() {
    // `json!` would walk through what it is given.
    let member =
        |name: &str, value| Value::Object([(name.to_owned(), value)].into_iter().collect());
    let mut arrays = json!("x");
    let mut objects = json!("x");
    for _ in 0..20_000 {
        arrays = Value::Array(vec![arrays]);
        objects = member("k", objects);
    }
    let (mut arrays, mut objects) = (member("o", arrays), member("o", objects));
    says("{o} [{o}]", &arrays, "x x");
    says("{o}", &objects, &format!("{}…", "{\"k\":".repeat(51)));
    take_apart(&mut arrays);
    take_apart(&mut objects);
}

/// Takes a value apart from outside in: its drop would need stack for its depth.
fn take_apart(value: &mut Value) {
    let mut next = value.take();
    loop {
        next = match &mut next {
            Value::Array(items) => items[0].take(),
            Value::Object(members) => members.values_mut().next().unwrap().take(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        };
    }
}

#[test]
fn filled_sentence_contains_no_key() {
    let template = IntentTemplate::parse("Move {from} to {to} [over {it}]").unwrap();
    let filled = |arguments| template.render_quoted(&arguments);
    assert_eq!(
        filled(json!({ "from": "a", "to": "b" })).as_deref(),
        Some("Move “a” to “b”")
    );
    assert_eq!(filled(json!({ "from": "a", "destination": "b" })), None);
    assert_eq!(filled(Value::Null), None);
}

#[test]
fn quoted_values_show_invisible_characters() {
    let template = IntentTemplate::parse("Edit {path}").unwrap();
    let quoted = |path: &str| template.render_quoted(&json!({ "path": path }));
    for (path, expected) in [
        ("a\u{200b}b.txt", "Edit “a\\u{200b}b.txt”"),
        ("x\u{202e}gnp.exe", "Edit “x\\u{202e}gnp.exe”"),
        ("a\u{1b}\n b", "Edit “a b”"),
    ] {
        assert_eq!(quoted(path).as_deref(), Some(expected));
    }
    assert_eq!(quoted("\u{200b}"), None);
    let long = quoted(&"\u{200b}x".repeat(200)).unwrap();
    assert!(long.chars().count() < 270, "{long}");
}

#[test]
fn template_that_fits_its_schema_has_no_lints() {
    lints(
        "Open {path} [as {glob} [{kind}]] [{items.path}] [{names}] {one.path}",
        &[],
    );
    lints("Nothing", &[]);
}

#[test]
fn each_lint_is_reported() {
    let key = |key: &str| key.to_owned();
    lints("{glob}", &[Lint::NotRequired { key: key("glob") }]);
    lints(
        "{nothing} [{one.nothing}] [{path.x}]",
        &[
            Lint::UnknownKey {
                key: key("nothing"),
            },
            Lint::UnknownKey {
                key: key("one.nothing"),
            },
            Lint::UnknownKey { key: key("path.x") },
        ],
    );
    lints(
        "{items.path}",
        &[Lint::NotPrimitive {
            key: key("items.path"),
        }],
    );
    lints(
        "{one} [{items}]",
        &[
            Lint::NotPrimitive { key: key("one") },
            Lint::NotPrimitive { key: key("items") },
        ],
    );
    lints(
        "[{items.tags}]",
        &[Lint::NotPrimitive {
            key: key("items.tags"),
        }],
    );
    lints(
        "{names}",
        &[
            Lint::NotRequired { key: key("names") },
            Lint::NotPrimitive { key: key("names") },
        ],
    );
    lints(
        "[x {items.path} [y {names}] {items.path}]",
        &[Lint::MixedArrays {
            names: vec![key("items"), key("names")],
        }],
    );
    lints("[{looping}]", &[]);
}
