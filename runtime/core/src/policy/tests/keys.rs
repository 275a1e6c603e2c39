//! Tests that every key has an effect that can be observed.

use serde_json::{Value, json};

use crate::call::Origin;
use crate::config::Config;
use crate::path::VirtualPath;
use crate::policy::keys::{Audience, KEYS, Key, KeyScope, ValueKind};
use crate::policy::{Authority, Flag, Policy, PolicyRoot};
use crate::scope::{Scope, Verb};

/// A configuration without the key and one with it. A new key needs a case here.
fn case(key: &str) -> [Value; 2] {
    let roots = |more: Value| {
        let mut root = json!({ "path": "/r" });
        root.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "roots": [root] })
    };
    let with = |key: &str, value: Value| json!({ "roots": [{ "path": "/r" }], key: value });
    let plain = roots(json!({}));
    let network = json!({ "allow": ["read:network"] });
    let beyond = json!({ "roots": [{ "path": "/r" }], "grantable": ["read:file"] });
    let and = |base: &Value, key: &str, value: Value| {
        let mut all = base.clone();
        all[key] = value;
        [base.clone(), all]
    };
    match key {
        "roots" => [json!({}), plain],
        "roots/path" => [json!({ "roots": [{ "path": "/s" }] }), plain],
        "roots/default" => {
            let two = |default| json!({ "roots": [{ "path": "/r", "default": default }, { "path": "/s" }] });
            [two(false), two(true)]
        }
        "roots/optional" => [plain, roots(json!({ "optional": true }))],
        "roots/access" => [plain, roots(json!({ "access": "read" }))],
        "roots/blocked" => [plain, roots(json!({ "blocked": true }))],
        "roots/allow" => [plain, roots(json!({ "allow": ["src/**"] }))],
        "roots/deny" => [plain, roots(json!({ "deny": ["a"] }))],
        "roots/immutable" => [plain, roots(json!({ "immutable": ["a"] }))],
        "deny" | "immutable" | "protect" => [plain, with(key, json!(["a"]))],
        "allow_scopes" | "deny_scopes" | "delegate_only" => {
            [plain, with(key, json!(["read:file:/r/a"]))]
        }
        "ask_scopes" => [plain, with(key, json!(["write:file"]))],
        "otherwise" => [plain, with(key, json!("ask"))],
        "tools" => [plain, with(key, json!(["stat"]))],
        "verbs" => [plain, with(key, json!(["read"]))],
        "write_modes" => [plain, with(key, json!(["create"]))],
        "access" => [plain, with(key, json!("read"))],
        "allow_escape" => and(&beyond, key, json!(false)),
        "follow_symlinks" => [plain, with(key, json!(false))],
        "network" => and(&network, key, json!(true)),
        "read_only" | "strict_hardlinks" | "require_preview" | "require_approval" => {
            [plain, with(key, json!(true))]
        }
        "read_max_bytes" | "write_max_bytes" | "max_results" | "max_calls" | "ttl_ms"
        | "min_interval_ms" => [plain, with(key, json!(7))],
        "budget" => [plain, with(key, json!({ "calls": 1 }))],
        "budget/calls"
        | "budget/bytes_written"
        | "budget/files_touched"
        | "budget/children"
        | "budget/cpu_ms"
        | "budget/wall_ms"
        | "budget/output_bytes"
        | "budget/processes"
        | "budget/memory_bytes" => {
            let name = key.split_once('/').unwrap().1;
            [plain, with("budget", json!({ name: 1 }))]
        }
        "grantable" => [plain, beyond],
        "allow" => [json!({}), json!({ "allow": ["read:mcp"] })],
        "strict" => {
            let base = roots(json!({ "allow": ["src/**"] }));
            and(&base, key, json!(true))
        }
        "restrictions" | "restrictions/roots" => {
            let roots = json!([{ "path": "/r", "access": "read" }]);
            [plain, with("restrictions", json!([{ "roots": roots }]))]
        }
        "restrictions/policy" => {
            let policy = json!({ "deny_scopes": ["write"] });
            [plain, with("restrictions", json!([{ "policy": policy }]))]
        }
        other => panic!("no case shows what `{other}` changes"),
    }
}

/// What workers and tools observe of an authority. Whether a policy is admitted counts only for strict configurations: a
/// key that only lets policies have it, too, changes nothing.
fn observed(authority: &Authority) -> Vec<String> {
    let mut seen: Vec<String> = [
        "file:/r/a",
        "file:/r/src/b",
        "file:/s/c",
        "file:/etc/hosts",
        "network",
        "mcp:notes",
    ]
    .iter()
    .flat_map(|resource| ["read", "write"].map(|verb| format!("{verb}:{resource}")))
    .map(|need| {
        let scope: Scope = need.parse().unwrap();
        format!("{need} {:?}", authority.judge(&scope, &[]))
    })
    .collect();
    // Delegate-only scopes are observed by a child.
    let child = authority.admit(&Policy::new(), Origin::Human).unwrap();
    let need: Scope = "read:file:/r/a".parse().unwrap();
    seen.push(format!("{:?}", authority.narrow(&child).judge(&need, &[])));
    // Strict configurations refuse wider lists.
    let wider = PolicyRoot {
        allow: Some(vec!["**".to_owned()]),
        ..PolicyRoot::new(VirtualPath::parse("/r", None).unwrap())
    };
    let admitted = authority.admit(&Policy::new().subtree(wider), Origin::Human);
    seen.push(admitted.is_ok().to_string());
    seen.push(format!("{:?}", authority.limits()));
    seen.push(format!(
        "{:?} {:?} {:?}",
        authority.tools(),
        crate::policy::WriteMode::ALL.map(|mode| authority.allows_write_mode(mode)),
        Verb::ALL.map(|verb| authority.has_verb(verb)),
    ));
    // What the tools ask: whether links are followed, and whether a change must have been shown.
    seen.push(format!(
        "{} {} {}",
        authority.flag(Flag::FollowSymlinks),
        authority.flag(Flag::StrictHardlinks),
        authority.flag(Flag::RequirePreview)
    ));
    seen
}

fn seen_in(document: &Value) -> Vec<String> {
    let config = Config::parse(document).unwrap();
    let mut seen = observed(&Authority::configured(&config).unwrap());
    seen.push(format!("{:?}", config.namespace().path("x").ok()));
    // Observed when the roots are opened.
    let optional = config.roots.iter().map(|root| root.optional);
    seen.push(format!("{:?}", optional.collect::<Vec<_>>()));
    seen
}

#[test]
fn every_key_of_a_configuration_changes_something() {
    for field in KEYS {
        let [without, with] = case(field.key);
        assert_ne!(seen_in(&without), seen_in(&with), "{}", field.key);
    }
}

#[test]
fn every_key_of_a_policy_changes_something() {
    let open = json!({
        "roots": [{ "path": "/r" }, { "path": "/s" }], "allow": ["*:network", "*:mcp"],
        "grantable": ["read:file"], "network": true,
    });
    let host = Authority::configured(&Config::parse(&open).unwrap()).unwrap();
    let under = |policy: &Value| {
        let policy = Policy::parse(policy).unwrap();
        observed(&host.narrow(&host.admit(&policy, Origin::Human).unwrap()))
    };
    let in_policy = |field: &&Key| field.stands_in(KeyScope::Policy);
    for field in KEYS.iter().filter(in_policy) {
        let [_, mut with] = case(field.key);
        if field.key == "network" {
            with = json!({ "network": false });
        }
        let members = with.as_object_mut().unwrap();
        if !field.key.starts_with("roots") {
            members.remove("roots");
        }
        members.remove("grantable");
        assert_ne!(under(&json!({})), under(&with), "{}", field.key);
    }
}

#[test]
fn only_flags_of_a_policy_have_an_audience() {
    for field in KEYS.iter().filter(|field| field.audience != Audience::Any) {
        assert_eq!((field.kind, field.parent()), (ValueKind::Flag, None));
        assert!(field.stands_in(KeyScope::Policy), "{}", field.key);
    }
}
