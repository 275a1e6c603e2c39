//! Tests of the command line.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::*;
use ConfigSource::{Environment, File, Flags, Initialize};
use bailiwick::Config;
use bailiwick::config::{KEYS, Key, Merge, ValueKind};

/// Two different values of a field.
fn two_values(field: &Key) -> [Value; 2] {
    let example: Value = serde_json::from_str(field.example).unwrap();
    let other = match field.kind {
        ValueKind::Flag => json!(example == json!(false)),
        ValueKind::Count => json!(7),
        ValueKind::Path => json!("/other"),
        ValueKind::OneOf(words) | ValueKind::ListOf(words) => {
            let word = words
                .all()
                .into_iter()
                .find(|word| !example.to_string().contains(word))
                .unwrap();
            match field.kind {
                ValueKind::OneOf(_) => json!(word),
                _ => json!([word]),
            }
        }
        ValueKind::Names => json!(["stat", "find"]),
        ValueKind::Globs => json!(["other", "more"]),
        ValueKind::Patterns => json!(["read:network"]),
        ValueKind::Object | ValueKind::Policy => json!({ "children": 1 }),
        ValueKind::Objects => json!([{ "path": "/other" }]),
    };
    assert_ne!(example, other, "{}", field.key);
    [example, other]
}

fn document(field: &Key, value: &Value) -> Value {
    match field.parent() {
        None => json!({ field.key: value }),
        Some(parent) => json!({ parent: { field.name(): value } }),
    }
}

/// Formats a value for a flag or variable.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().flat_map(texts).collect()
        }
        other => vec![other.to_string()],
    }
}

/// The effective configuration of these sources.
fn effective(field: &Key, given: &[(ConfigSource, &Value)]) -> bailiwick::config::Effective {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut arguments: Vec<OsString> = vec!["bailiwick".into(), "serve".into()];
    let mut variables: Vec<(OsString, OsString)> = vec![("PATH".into(), "/bin".into())];
    let mut initialize = None;
    for (source, value) in given {
        match source {
            File => {
                serde_json::to_writer(&file, &document(field, value)).unwrap();
                arguments.push("--config".into());
                arguments.push(file.path().into());
            }
            Environment => {
                let lines = texts(value).join("\n");
                variables.push((field.variable().into(), lines.into()));
            }
            Flags => {
                let flag = |text| OsString::from(format!("--{}={text}", field.flag()));
                arguments.extend(texts(value).iter().map(flag));
            }
            Initialize => initialize = Some(document(field, value)),
        }
    }
    let Invocation::Serve(options) = parse(arguments, variables, None).unwrap() else {
        panic!("expected `serve`");
    };
    let sources = match initialize {
        Some(given) => options.sources.with(Initialize, given).unwrap(),
        None => options.sources,
    };
    sources.effective().unwrap()
}

#[test]
fn every_source_sets_every_field_and_sources_are_merged() {
    let all = [File, Environment, Flags, Initialize];
    for field in Key::settable() {
        let [one, other] = two_values(field);
        let top = field.parent().unwrap_or(field.key);
        let expected = Config::parse(&document(field, &other)).unwrap();
        for (index, later) in all.into_iter().enumerate() {
            let alone = effective(field, &[(later, &other)]);
            assert_eq!(alone.config, expected, "{} by {later:?}", field.key);
            for earlier in all.into_iter().take(index) {
                // A pattern is grantable only if all sources allow it.
                if field.merge == Merge::Identity && field.kind == ValueKind::Patterns {
                    continue;
                }
                let both = effective(field, &[(earlier, &one), (later, &other)]);
                let case = format!("{} by {earlier:?} and {later:?}", field.key);
                let sources = ConfigSources::new().with(earlier, document(field, &one));
                let sources = sources.unwrap().with(later, document(field, &other));
                let expected = sources.unwrap().effective().unwrap();
                assert_eq!(both, expected, "{case}");
                assert!(both.origin(top).is_some(), "{case}");
            }
        }
    }
    let mut members = KEYS.iter().filter(|field| !field.is_settable());
    assert!(
        members.all(|field| {
            field.parent() == Some("roots") || field.key.starts_with("restrictions")
        })
    );
}

#[track_caller]
fn options(arguments: &[&str], here: Option<&str>) -> Options {
    let here = here.map(|here| VirtualPath::parse(here, None).unwrap());
    let arguments = ["bailiwick", "serve"]
        .iter()
        .chain(arguments)
        .map(OsString::from);
    match parse(arguments, [], here.as_ref()).unwrap() {
        Invocation::Serve(options) => *options,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn config(arguments: &[&str]) -> Value {
    let sources = options(arguments, Some("/home/me")).sources;
    sources.effective().unwrap().config.to_json()
}

#[test]
fn positional_arguments_are_roots_and_the_first_is_the_default() {
    let read = config(&["repo", "/data/../srv"]);
    assert_eq!(read["roots"][0]["path"], "/home/me/repo");
    assert_eq!(read["roots"][0]["default"], true);
    assert_eq!(read["roots"][1]["path"], "/srv");
    assert_eq!(read["roots"][1]["default"], false);
    let read = config(&["a", r#"{"path":"/b","access":"read","default":true}"#]);
    assert_eq!(read["roots"][0]["default"], false);
    assert_eq!(read["roots"][1]["access"], "read");
    let two = config(&["a", "b"]);
    for same in [
        &["--roots", "a", "b"] as &[&str],
        &["--roots", "a,b"],
        &["--roots", r#"["a","b"]"#],
        &[r#"["a", "b"]"#],
    ] {
        assert_eq!(config(same), two, "{same:?}");
    }
    let read = config(&["a,b"]);
    assert_eq!(read["roots"][0]["path"], "/home/me/a,b");
}

#[test]
fn flag_without_value_is_true_and_consumes_no_root() {
    let read = config(&["--read-only", "false"]);
    assert_eq!(read["read_only"], true);
    assert_eq!(read["roots"][0]["path"], "/home/me/false");
    assert_eq!(config(&["--read-only=0"])["read_only"], false);
}

#[test]
fn default_trust_is_client_over_stdio_and_agent_over_http() {
    let trust = |arguments: &[&str]| options(arguments, None).trust;
    assert_eq!(trust(&[]), Trust::Client);
    assert_eq!(trust(&["--trust", "host"]), Trust::Host);
    assert_eq!(trust(&["--trust", "agent"]), Trust::Agent);
    let http = ["--http", "[::1]:8080"];
    assert_eq!(trust(&http), Trust::Agent);
    assert_eq!(trust(&[http[0], http[1], "--trust=host"]), Trust::Host);
}

#[test]
fn durability_flag_overrides_variable_and_file() {
    let durability = |flag: Option<&str>, variable: Option<&str>, key: Option<&str>| {
        let mut arguments: Vec<OsString> = vec!["bailiwick".into(), "serve".into()];
        let file = tempfile::NamedTempFile::new().unwrap();
        if let Some(key) = key {
            let document = json!({"durability": key, "read_only": false});
            serde_json::to_writer(file.reopen().unwrap(), &document).unwrap();
            arguments.extend(["--config".into(), file.path().into()]);
        }
        arguments.extend(flag.map(|flag| format!("--durability={flag}").into()));
        let variable = variable.map(|level| ("BAILIWICK_DURABILITY".into(), level.into()));
        match parse(arguments, variable, None)? {
            Invocation::Serve(options) => Ok::<_, CliError>(options.durability),
            other => panic!("{other:?}"),
        }
    };
    let set = |flag, variable, key| durability(flag, variable, key).unwrap();
    assert_eq!(set(None, None, None), Durability::Ordered);
    assert_eq!(set(None, None, Some("durable")), Durability::Durable);
    assert_eq!(set(None, Some("visible"), None), Durability::Visible);
    assert_eq!(set(Some("durable"), None, None), Durability::Durable);
    assert_eq!(
        set(None, Some("visible"), Some("durable")),
        Durability::Visible
    );
    let all = (Some("ordered"), Some("visible"), Some("durable"));
    assert_eq!(set(all.0, all.1, all.2), Durability::Ordered);
    let refused = |flag, variable, key| durability(flag, variable, key).unwrap_err().to_string();
    let levels = "must be `visible`, `ordered` or `durable`";
    let named = refused(None, Some("never"), None);
    assert_eq!(named, format!("BAILIWICK_DURABILITY {levels}"));
    let named = refused(None, None, Some("Durable"));
    assert!(
        named.starts_with("`/durability` in `") && named.ends_with(levels),
        "{named}"
    );
    assert!(refused(Some("never"), None, None).contains("--durability"));
}

#[test]
fn help_names_every_flag_and_variable() {
    command::command().debug_assert();
    let Invocation::Print(help) =
        parse(["x", "serve", "--help"].map(Into::into), [], None).unwrap()
    else {
        panic!("expected help");
    };
    for field in Key::settable() {
        assert!(help.contains(&format!("--{}", field.flag())), "{help}");
        assert!(
            help.contains(&format!("[env: {}]", field.variable())),
            "{help}"
        );
    }
}
