//! Help, skill and registry entry of the file server.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads its expectation itself"
)]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Parses the YAML subset of the front matter: maps by indentation, lists, and JSON scalars.
fn yaml(lines: &mut std::iter::Peekable<std::str::Lines<'_>>, indent: usize) -> Value {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut map = Map::new();
    while let Some(line) = lines.next_if(|line| depth(line) == indent) {
        let (key, rest) = line.trim().split_once(':').unwrap();
        let plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(key.chars().all(plain), "{key}");
        let value = match rest.trim() {
            "" => {
                let mut items = Vec::new();
                while let Some(item) =
                    lines.next_if(|line| depth(line) > indent && line.trim().starts_with("- "))
                {
                    items.push(serde_json::from_str(item.trim().trim_start_matches("- ")).unwrap());
                }
                if items.is_empty() {
                    yaml(lines, indent + 2)
                } else {
                    Value::Array(items)
                }
            }
            scalar => serde_json::from_str(scalar).unwrap(),
        };
        assert_eq!(map.insert(key.to_owned(), value), None, "{key}");
    }
    Value::Object(map)
}

fn front(text: &str) -> Value {
    let (front, _) = text
        .strip_prefix("---\n")
        .unwrap()
        .split_once("\n---\n")
        .unwrap();
    yaml(&mut front.lines().peekable(), 0)
}

fn kebab(value: &Value) -> Value {
    let Value::Object(map) = value else {
        return value.clone();
    };
    let key = |key: &str| -> String {
        let parts = key.chars().map(|c| match c {
            'A'..='Z' => format!("-{}", c.to_ascii_lowercase()),
            _ => c.to_string(),
        });
        parts.collect()
    };
    map.iter()
        .map(|(name, value)| (key(name), kebab(value)))
        .collect()
}

#[test]
fn front_matter_equals_the_json() {
    let description = bailiwick_cli::description();
    let text = description.markdown(None).unwrap();
    let metadata = description.json(None).unwrap()["metadata"].clone();
    assert_eq!(front(&text), kebab(&metadata));
    for key in [
        "name",
        "description",
        "spec-url",
        "spec-version",
        "access-level",
        "cli-url",
        "api-url",
        "web-url",
        "install",
        "requires",
        "invocation",
    ] {
        assert!(front(&text).get(key).is_some(), "{key}");
    }
}

#[test]
fn server_has_the_fields_that_skills_need() {
    let dashdash = bailiwick_cli::description().rate("1000/second").dashdash();
    assert_eq!(dashdash["specVersion"], "0.2.0");
    assert_eq!(dashdash["identity"]["name"], "bailiwick");
    let description = dashdash["identity"]["description"].as_str().unwrap();
    assert!(description.contains("Use when") && description.chars().count() <= 1024);
    assert_eq!(dashdash["accessLevel"], "interact");
    for key in ["cliUrl", "apiUrl", "webUrl"] {
        let url = dashdash["alternativeAccess"].get(key).unwrap();
        assert!(url.is_null() || url.as_str().is_some_and(|url| url.starts_with("https://")));
    }
    assert_eq!(dashdash["rateLimit"], "1000/second");
    let scopes: BTreeSet<_> = bailiwick_fs::tools()
        .infos()
        .into_iter()
        .flat_map(|tool| tool.spec.scopes)
        .collect();
    assert_eq!(dashdash["requires"]["scopes"], json!(scopes));
    let package = dashdash["install"]["cargo"].as_str().unwrap();
    let installation = bailiwick_cli::description().markdown(Some("installation"));
    assert!(
        installation
            .unwrap()
            .contains(&format!("cargo install {package}\n"))
    );
}

const HEADINGS: [&str; 10] = [
    "When to Use",
    "Quick Reference",
    "Installation",
    "Authentication",
    "Rate Limits",
    "Error Handling",
    "Tool Reference",
    "Alternative Access Methods",
    "Best Practices",
    "Troubleshooting",
];

#[test]
fn headings_are_in_order_and_available_separately() {
    let description = bailiwick_cli::description();
    let text = description.markdown(None).unwrap();
    let found: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert_eq!(found, HEADINGS);
    let whole = description.json(None).unwrap();
    assert_eq!(whole["contentType"], "application/json");
    for heading in HEADINGS {
        let id = heading.to_lowercase().replace(' ', "-");
        let alone = description.markdown(Some(&id)).unwrap();
        assert!(
            alone.starts_with(&format!("## {heading}\n")) && text.contains(&alone),
            "{id}"
        );
        let sections = description.json(Some(&id)).unwrap()["sections"].clone();
        let (key, value) = sections.as_object().unwrap().iter().next().unwrap();
        assert_eq!(value, &whole["sections"][key], "{id}");
        assert_eq!(description.markdown(Some(key)), Ok(alone));
    }
    let known = description.markdown(Some("none")).unwrap_err().known;
    assert_eq!(known.len(), HEADINGS.len());
    assert!(text.contains("Do NOT use"));
}

#[test]
fn both_references_have_every_tool_and_argument() {
    let description = bailiwick_cli::description();
    let quick = description.markdown(Some("quick-reference")).unwrap();
    let full = description.markdown(Some("tool-reference")).unwrap();
    for tool in bailiwick_fs::tools().infos() {
        let name = tool.spec.name;
        assert!(quick.contains(&format!("- `{name}`: ")), "{name}");
        let (_, entry) = full.split_once(&format!("### {name}\n")).unwrap();
        let entry = entry.split("\n### ").next().unwrap();
        for part in [
            "**Parameters:**",
            "**Returns:**",
            "**Side Effects:**",
            "**CLI Equivalent:**",
            "**Example:**",
        ] {
            assert!(entry.contains(part), "{name}: {part}");
        }
        let properties = tool
            .input_schema
            .get("properties")
            .and_then(Value::as_object);
        for argument in properties
            .into_iter()
            .flatten()
            .map(|(argument, _)| argument)
        {
            assert!(
                entry.contains(&format!("- `{argument}` (")),
                "{name}: {argument}"
            );
        }
        for failure in tool.spec.failures {
            assert!(entry.contains(&format!("- `{}`: ", failure.code)), "{name}");
        }
    }
}

#[test]
fn client_configuration_is_json_with_the_program() {
    let text = bailiwick_cli::description()
        .markdown(Some("installation"))
        .unwrap();
    let (_, rest) = text
        .split_once("### Claude Desktop Configuration\n\n```json\n")
        .unwrap();
    let (json, _) = rest.split_once("\n```").unwrap();
    let json: Value = serde_json::from_str(json).unwrap();
    let server = &json["mcpServers"]["bailiwick"];
    assert_eq!(server["command"], "bailiwick");
    assert_eq!(server["args"], json!(["serve", "/path/to/project"]));
}

#[test]
fn skill_follows_the_agent_skills_format() {
    let skill = bailiwick_cli::description().skill();
    let front = front(&skill);
    let name = front["name"].as_str().unwrap();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    assert!((1..=64).contains(&name.len()) && name.chars().all(plain));
    assert!(!name.starts_with('-') && !name.ends_with('-') && !name.contains("--"));
    let description = front["description"].as_str().unwrap();
    assert!((1..=1024).contains(&description.chars().count()));
    assert!(skill.contains("\n## When to Use\n") && skill.contains("\n## Quick Reference\n"));
    assert!(skill.lines().count() < 500);
}

#[test]
fn registry_entry_has_its_origin_and_no_verification() {
    let entry = bailiwick_cli::description().registry_entry();
    for key in [
        "name",
        "description",
        "specVersion",
        "install",
        "alternativeAccess",
        "categories",
    ] {
        assert!(!entry[key].is_null(), "{key}");
    }
    assert_eq!(entry["verified"], false);
}

#[test]
fn operations_agree_with_scopes() {
    let reference = bailiwick_cli::description()
        .json(Some("toolReference"))
        .unwrap();
    for entry in reference["sections"]["toolReference"].as_array().unwrap() {
        let operation = entry["dashdash"]["operationType"].as_str().unwrap();
        let scopes = entry["scopes"].as_array().unwrap();
        let writes = scopes
            .iter()
            .any(|scope| scope.as_str().unwrap().starts_with("write:"));
        assert_eq!(writes, operation != "read", "{entry}");
        assert_eq!(operation == "delete", entry["name"] == "delete");
        let effects = entry["dashdash"]["sideEffects"].as_array().unwrap();
        assert_eq!(effects.is_empty(), operation == "read", "{entry}");
    }
}

/// `help.md` is reviewed when a tool changes; `BAILIWICK_BLESS=1` updates it.
#[test]
fn help_equals_the_reviewed_file() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help.md");
    let text = bailiwick_cli::description()
        .rate("1000/second")
        .markdown(None)
        .unwrap();
    if std::env::var_os("BAILIWICK_BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&golden).unwrap());
}
