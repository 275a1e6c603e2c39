//! The verdict on an ordinary entry of a directory is that of any other, and so is whether changes are denied.

use proptest::prelude::*;
use serde_json::json;

use super::{cases, compiled, configured, path};
use crate::policy::{Policy, Verdict};
use crate::scope::{Coverage, Scope, Verb};

/// Names and globs that meet often.
fn glob() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "A",
        "*.k",
        "a/b",
        "b/a",
        "**/a/b",
        "**/b",
        "**/a/*",
        "**/a/**/b",
        "**/a/b*",
        "b*",
        "*",
        "**",
        "a/**",
        "**/A.k",
        "B/c",
        "a/*",
        "B/*/d",
        "a*K",
        "\u{200c}/a",
        "a/\u{200c}/b",
        "**/b/\u{200c}",
        "\u{200b}",
    ])
    .prop_map(str::to_owned)
}

fn subtree() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["/r", "/r/a", "/r/A", "/r/a/b", "/r/b/c", "/s"])
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a", "A", "b", "c", "a.k", "x.K", "B", "zz", "\u{e9}", "d", "\u{200b}",
    ])
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn ordinary_entries_have_one_verdict(
        base_deny in prop::collection::vec(glob(), 0..2),
        nested in prop::option::of(subtree()),
        deny in prop::collection::vec(glob(), 0..3),
        immutable in prop::collection::vec(glob(), 0..3),
        allow in prop::collection::vec(glob(), 0..2),
        listed in prop::option::of(subtree()),
        scopes in prop::collection::vec(subtree(), 0..2),
        verb in prop::sample::select(vec!["read", "write"]),
        denied in prop::option::of(subtree()),
        grant in prop::option::of(subtree()),
        dir in prop::sample::select(vec!["/r", "/r/a", "/r/A", "/r/b", "/r/a/b", "/r/\u{200b}", "/r/a/\u{200b}", "/s"]),
        names in prop::collection::vec(name(), 2..6),
    ) {
        let mut roots = vec![json!({ "path": "/r", "deny": base_deny }), json!({ "path": "/s" })];
        if let Some(nested) = nested.filter(|nested| !["/r", "/s"].contains(nested)) {
            roots.push(json!({ "path": nested, "access": "read" }));
        }
        let host = configured(&json!({ "roots": roots, "grantable": ["*:file"] }));
        let of_scopes = |paths: Vec<&str>| -> Vec<String> {
            paths.into_iter().map(|path| format!("read:file:{path}")).collect()
        };
        let mut policy = json!({ "deny": deny, "immutable": immutable });
        if !scopes.is_empty() {
            policy["allow_scopes"] = json!(of_scopes(scopes));
            policy["otherwise"] = json!("ask");
        }
        if let Some(denied) = denied {
            policy["deny_scopes"] = json!([format!("{verb}:file:{denied}")]);
        }
        if let Some(listed) = listed {
            policy["roots"] = json!([{ "path": listed, "allow": if allow.is_empty() { None } else { Some(allow) } }]);
        }
        let policy: Policy = serde_json::from_value(policy).unwrap();
        let authority = host.narrow(&compiled(&policy));
        let granted: Vec<Coverage> = of_scopes(grant.into_iter().collect())
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let dir = path(dir);
        if let Some(rules) = authority.entry_rules(&dir, &granted) {
            let ordinary = names.iter().filter(|name| rules.is_ordinary(name));
            let verdicts: Vec<(Verdict, bool)> = ordinary
                .map(|name| {
                    let verdict = |verb| authority.judge(&Scope::file(verb, dir.join(name).unwrap()), &granted);
                    (verdict(Verb::Read), verdict(Verb::Write) == Verdict::Deny)
                })
                .collect();
            prop_assert!(verdicts.windows(2).all(|two| two[0] == two[1]), "{policy:?} {dir}: {names:?} {verdicts:?}");
        }
    }
}

#[test]
fn most_entries_are_ordinary() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }] }));
    let policy = Policy::inherit()
        .deny_glob("**/.env")
        .deny_glob("**/secrets/**")
        .immutable_glob("**/*.lock");
    let authority = host.narrow(&compiled(&policy));
    let dir = path("/r/src");
    let rules = authority.entry_rules(&dir, &[]).unwrap();
    assert!(
        ["main.rs", "README.md"]
            .iter()
            .all(|name| rules.is_ordinary(name))
    );
    assert!(
        [".env", ".ENV", "secrets", "Cargo.lock"]
            .iter()
            .all(|name| !rules.is_ordinary(name))
    );
}
