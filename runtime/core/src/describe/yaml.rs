//! YAML front matter.

use serde_json::{Map, Value};

/// The front matter with its two lines of dashes. Scalars are JSON, which is valid YAML.
pub(super) fn front_matter(facts: &Map<String, Value>) -> String {
    let mut text = String::from("---\n");
    members(facts, 0, &mut text);
    text.push_str("---\n");
    text
}

fn members(map: &Map<String, Value>, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for (key, value) in map {
        let key = kebab(key);
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push_str(&format!("{indent}{key}:\n"));
                members(inner, depth + 1, text);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push_str(&format!("{indent}{key}:\n"));
                for item in items {
                    text.push_str(&format!("{indent}  - {item}\n"));
                }
            }
            _ => text.push_str(&format!("{indent}{key}: {value}\n")),
        }
    }
}

/// `cliUrl` becomes `cli-url`.
fn kebab(key: &str) -> String {
    let mut kebab = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            kebab.push('-');
        }
        kebab.push(c.to_ascii_lowercase());
    }
    kebab
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_kebab_case_and_text_is_quoted() {
        let facts = json!({
            "cliUrl": null, "text": "a: \"b\" # c", "list": ["x", "- y"], "none": [], "nested": {"inKey": true},
        });
        let expected = "---\ncli-url: null\ntext: \"a: \\\"b\\\" # c\"\nlist:\n  - \"x\"\n  - \"- y\"\nnone: []\n\
                        nested:\n  in-key: true\n---\n";
        assert_eq!(front_matter(facts.as_object().unwrap()), expected);
    }
}
