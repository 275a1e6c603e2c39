//! Property tests of intent templates, also against the second implementation.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value};

use super::naive;
use crate::cases::cases;
use crate::intent::IntentTemplate;
use crate::text::is_deceptive;

const NAMES: &[&str] = &["a", "b", "c", "x", "y", "0", "$d", "paths", "é"];

fn key() -> impl Strategy<Value = String> {
    let blanks = select(vec!["", "", "", " ", "\t "]);
    let first = select(vec!["a", "b", "c", "$d", "paths", "é"]);
    let fields = vec(select(NAMES), 0..3);
    (blanks, first, fields).prop_map(|(blanks, first, fields)| {
        let key = [&[first], fields.as_slice()].concat().join(".");
        format!("{{{blanks}{key}{blanks}}}")
    })
}

fn text() -> impl Strategy<Value = String> {
    select(vec![
        " ", "  ", "in ", " with", "x", ",", "\\[", "\\}", "\\\\", "\\ ", "\\n", "\t", "\u{a0}",
        "\u{202e}", "\u{7}", "…",
    ])
    .prop_map(str::to_owned)
}

fn template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![2 => key(), 1 => text()];
    let group = leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            1 => inner.clone(),
            2 => vec(inner, 0..5).prop_map(|parts| format!("[{}]", parts.concat())),
        ]
    });
    vec(group, 0..6).prop_map(|parts| parts.concat())
}

/// Mostly invalid templates: special characters in any order.
fn soup() -> impl Strategy<Value = String> {
    let pieces = vec![
        "{", "}", "[", "]", "\\", " ", "a", "b", ".", "-", "1", "{a}", "[{b}", "é", "\u{200b}",
    ];
    vec(select(pieces), 0..14).prop_map(|pieces| pieces.concat())
}

fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec!["", " ", "v", "src/a.rs", "{a}", "[x]", " v ", "a\n\tb", "\u{202e}", "a\u{200b}b", "\u{1}", "\"\\"])
            .prop_map(str::to_owned),
        1 => "[a {}\\[\\]\u{0}-\u{1f}\u{80}-\u{9f}\u{2028}\u{fe0f}]{0,12}",
        1 => (240_usize..530).prop_map(|count| "w é".chars().cycle().take(count).collect()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        2 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => (-1e3..1e3_f64).prop_map(Value::from),
        5 => string().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..6).prop_map(Value::from),
            1 => object(inner),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let members = vec((select(NAMES), inner), 0..7);
    members.prop_map(|members| {
        let members = members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Value::Object(members.collect::<Map<_, _>>())
    })
}

fn arguments() -> impl Strategy<Value = Value> {
    prop_oneof![20 => object(value()), 1 => value()]
}

#[track_caller]
fn agrees(template: &str, arguments: &Value) -> Result<(), TestCaseError> {
    let sentence = IntentTemplate::parse(template).map(|template| template.render(arguments));
    prop_assert_eq!(sentence.ok(), naive::sentence(template, arguments));
    Ok(())
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn rendering_agrees_with_the_reference_implementation(template in template(), arguments in arguments()) {
        agrees(&template, &arguments)?;
        prop_assert!(IntentTemplate::parse(&template).is_ok());
    }

    #[test]
    fn parsing_agrees_with_the_reference_implementation(template in soup(), arguments in arguments()) {
        agrees(&template, &arguments)?;
    }

    #[test]
    fn sentences_are_bounded_and_have_no_deceptive_characters(template in template(), arguments in arguments()) {
        let sentence = IntentTemplate::parse(&template).unwrap().render(&arguments);
        prop_assert!(sentence.chars().count() <= 1024);
        prop_assert!(!sentence.chars().any(is_deceptive), "{:?}", sentence);
        prop_assert_eq!(sentence.trim(), &sentence);
        prop_assert!(!sentence.contains("  "));
    }

    #[test]
    fn values_are_never_parsed_as_templates(value in "[{}\\[\\]\\\\a.]{1,20}", other in string()) {
        let template = IntentTemplate::parse("{s}").unwrap();
        let arguments = serde_json::json!({ "s": value, "a": other });
        prop_assert_eq!(template.render(&arguments), value);
    }

    #[test]
    fn template_displays_its_source(template in prop_oneof![template(), soup()]) {
        if let Ok(read) = IntentTemplate::parse(&template) {
            prop_assert_eq!(read.to_string(), template);
            prop_assert_eq!(IntentTemplate::parse(&read.to_string()), Ok(read));
        }
    }

    #[test]
    fn error_position_is_a_character_boundary(bytes in vec(any::<u8>(), 0..80), soup in soup()) {
        for template in [String::from_utf8_lossy(&bytes).into_owned(), soup] {
            if let Err(error) = IntentTemplate::parse(&template) {
                prop_assert!(template.is_char_boundary(error.at), "{:?} {:?}", template, error);
            }
        }
    }

    #[test]
    fn any_schema_can_be_linted(template in template(), schema in value()) {
        let schema = serde_json::json!({ "properties": schema, "anyOf": [{ "$ref": "#" }, schema] });
        let template = IntentTemplate::parse(&template).unwrap();
        let keys = template.to_string().matches('{').count();
        prop_assert!(template.lint(&schema).len() <= 3 * keys);
    }
}
