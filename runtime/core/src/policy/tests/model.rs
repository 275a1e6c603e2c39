//! Exhaustive test of a small model against an oracle without globs, scopes or layers.

use serde_json::{Value, json};

use super::compiled;
use crate::config::Config;
use crate::policy::{Authority, Layer, Policy, Verdict};
use crate::scope::Scope;

/// One part of a policy, and its verdict on (verb, path): 0 allow, 1 ask, 2 deny.
type Part = (&'static str, fn(&str, &str) -> u8);

fn under(path: &str, folder: &str) -> bool {
    let mut names = path.split('/');
    folder.split('/').all(|name| names.next() == Some(name))
}

const ROOTS: &[Part] = &[
    ("{}", |_, _| 0),
    (r#"{"roots":[]}"#, |_, _| 2),
    (r#"{"roots":[{"path":"/r"}]}"#, |_, p| {
        if under(p, "/r") { 0 } else { 2 }
    }),
    (r#"{"roots":[{"path":"/r/a"},{"path":"/s"}]}"#, |_, p| {
        if under(p, "/r/a") || under(p, "/s") {
            0
        } else {
            2
        }
    }),
    (r#"{"roots":[{"path":"/r/a","blocked":true}]}"#, |_, p| {
        if under(p, "/r/a") { 2 } else { 0 }
    }),
    (
        r#"{"roots":[{"path":"/r"},{"path":"/r/a","blocked":true}]}"#,
        |_, p| {
            if under(p, "/r") && !under(p, "/r/a") {
                0
            } else {
                2
            }
        },
    ),
    (
        r#"{"roots":[{"path":"/r","allow":["*/k"]},{"path":"/r/b"}]}"#,
        |_, p| {
            if ["/r/a/k", "/r/b/k"].contains(&p) || under(p, "/r/b") {
                0
            } else {
                2
            }
        },
    ),
    (
        r#"{"roots":[{"path":"/r","deny":["a"]},{"path":"/r/a"}]}"#,
        |_, p| {
            if under(p, "/r") && !under(p, "/r/a") {
                0
            } else {
                2
            }
        },
    ),
    (
        r#"{"roots":[{"path":"/r","immutable":["**/k"]},{"path":"/s"}]}"#,
        |v, p| match p {
            "/x" | "/x/k" => 2,
            _ if v == "write" && under(p, "/r") && p.ends_with("/k") => 2,
            _ => 0,
        },
    ),
];

const SCOPES: &[Part] = &[
    ("{}", |_, _| 0),
    (r#"{"allow_scopes":["read"]}"#, |v, _| {
        if v == "read" { 0 } else { 2 }
    }),
    (r#"{"allow_scopes":[]}"#, |_, _| 2),
    (
        r#"{"ask_scopes":["write:file:/r"],"allow_scopes":["*"]}"#,
        |v, p| u8::from(v == "write" && under(p, "/r")),
    ),
    (
        r#"{"ask_scopes":["write"],"deny_scopes":["*:file:/r/a"]}"#,
        |v, p| match v {
            "write" if !under(p, "/r/a") => 1,
            _ => 2,
        },
    ),
    (
        r#"{"deny_scopes":["write:file:/s","read:file:/r/b"]}"#,
        |v, p| match v {
            "write" if under(p, "/s") => 2,
            "read" if under(p, "/r/b") => 2,
            _ => 0,
        },
    ),
    (
        r#"{"otherwise":"ask","allow_scopes":["read:file:/r/a"]}"#,
        |v, p| u8::from(v != "read" || !under(p, "/r/a")),
    ),
    (
        r#"{"delegate_only":["write:file:/r"],"allow_scopes":["*:file"]}"#,
        |v, p| {
            if v == "write" && under(p, "/r") { 2 } else { 0 }
        },
    ),
];

const REST: &[Part] = &[
    ("{}", |_, _| 0),
    (r#"{"deny":["**/k"]}"#, |_, p| {
        if p.ends_with("/k") { 2 } else { 0 }
    }),
    (r#"{"immutable":["a/**"]}"#, |v, p| {
        if v == "write" && (under(p, "/r/a") || under(p, "/s/a")) {
            2
        } else {
            0
        }
    }),
    (
        r#"{"read_only":true}"#,
        |v, _| if v == "write" { 2 } else { 0 },
    ),
    (r#"{"require_approval":true}"#, |v, _| {
        u8::from(v == "write")
    }),
    (
        r#"{"verbs":["write"]}"#,
        |v, _| if v == "read" { 2 } else { 0 },
    ),
    (
        r#"{"access":"read"}"#,
        |v, _| if v == "write" { 2 } else { 0 },
    ),
];

const PATHS: &[&str] = &[
    "/r", "/r/a", "/r/a/k", "/r/b", "/r/b/k", "/s", "/s/a", "/x", "/x/k",
];

/// `/r` may be written, `/s` read, and `/x` granted for reading.
fn configured(verb: &str, path: &str) -> u8 {
    match path.as_bytes().get(1) {
        Some(b'r') => 0,
        Some(b's') if verb == "read" => 0,
        Some(b'x') if verb == "read" => 1,
        _ => 2,
    }
}

fn needs() -> Vec<(&'static str, &'static str, Scope)> {
    let pairs = ["read", "write"]
        .into_iter()
        .flat_map(|verb| PATHS.iter().map(move |path| (verb, *path)));
    pairs
        .map(|(verb, path)| (verb, path, format!("{verb}:file:{path}").parse().unwrap()))
        .collect()
}

fn merged(parts: &[&Part]) -> Layer {
    let mut value = json!({});
    for (text, _) in parts {
        let part: Value = serde_json::from_str(text).unwrap();
        value
            .as_object_mut()
            .unwrap()
            .extend(part.as_object().unwrap().clone());
    }
    compiled(&Policy::parse(&value).unwrap())
}

#[test]
fn every_pair_of_policies_agrees_with_the_model() {
    let config = json!({
        "roots": [{ "path": "/r" }, { "path": "/s", "access": "read" }],
        "grantable": ["read:file:/x"],
    });
    let host = Authority::configured(&Config::parse(&config).unwrap()).unwrap();
    let needs = needs();
    let mut worlds = Vec::new();
    for roots in ROOTS {
        for scopes in SCOPES {
            for rest in REST {
                let parts = [roots, scopes, rest];
                let said = needs
                    .iter()
                    .map(|(verb, path, _)| parts.map(|part| part.1(verb, path)).into_iter().max());
                worlds.push((
                    merged(&parts),
                    said.map(Option::unwrap).collect::<Vec<u8>>(),
                    parts.map(|part| part.0),
                ));
            }
        }
    }
    let mut judged = 0_u64;
    for (first, said_first, text_first) in &worlds {
        let session = host.session(first);
        for (second, said_second, text_second) in &worlds {
            let call = session.overlay(second);
            for (index, (verb, path, need)) in needs.iter().enumerate() {
                let expected = configured(verb, path)
                    .max(said_first[index])
                    .max(said_second[index]);
                let verdict = call.judge(need, &[]);
                assert_eq!(
                    verdict as u8, expected,
                    "{verb} {path} under {text_first:?} and {text_second:?}"
                );
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 504 * 504 * 18);
    assert_eq!(Verdict::Deny as u8, 2);
}
