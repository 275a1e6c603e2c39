//! Tests of explanations.

use serde_json::json;

use super::{configured, host, under};
use crate::call::Origin;
use crate::policy::{LayerName, Policy, Verdict};

use Verdict::{Allow, Ask, Deny};

#[test]
fn explanation_names_layer_rule_and_smallest_grant() {
    let session = host().session(
        &host()
            .admit(&Policy::new().deny_glob("**/.env"), Origin::Human)
            .unwrap(),
    );
    let child = under(
        &session,
        &Policy::new().allow("read:file").ask("write:file:/r/a"),
    );
    let grandchild = under(&child, &Policy::new().root("/r/a"));
    let call = grandchild.overlay(
        &grandchild
            .admit(&Policy::new().deny("read:file:/r/a/b"), Origin::Model)
            .unwrap(),
    );
    let explain = |need: &str| {
        let explained = call.explain(&need.parse().unwrap(), &[]);
        (
            explained.verdict,
            explained.layer,
            explained.key,
            explained.pattern,
            explained.grant.map(|grant| grant.pattern().to_string()),
        )
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        explain("read:file:/r/a/.env"),
        (Deny, LayerName::Session, "deny", text("**/.env"), None)
    );
    assert_eq!(
        explain("write:file:/r/a/x"),
        (
            Ask,
            LayerName::Agent(0),
            "ask_scopes",
            text("write:file:/r/a"),
            text("write:file:/r/a/x")
        )
    );
    assert_eq!(
        explain("write:file:/r/b"),
        (Deny, LayerName::Agent(0), "otherwise", None, None)
    );
    assert_eq!(
        explain("read:file:/r/b"),
        (Deny, LayerName::Agent(1), "roots", None, None)
    );
    assert_eq!(
        explain("read:file:/r/a/b"),
        (
            Deny,
            LayerName::Call,
            "deny_scopes",
            text("read:file:/r/a/b"),
            None
        )
    );
    assert_eq!(explain("read:file:/r/a/c").0, Allow);
}

#[test]
fn explanation_displays_as_a_sentence() {
    let host = configured(
        &json!({ "roots": [{ "path": "/r", "deny": ["no"], "immutable": ["*.lock"] }] }),
    );
    let line = |need: &str| host.explain(&need.parse().unwrap(), &[]).to_string();
    assert_eq!(
        line("read:file:/r/no/x"),
        "deny: configuration: a deny glob covers it (deny: `no`)"
    );
    assert_eq!(
        line("write:file:/r/a.lock"),
        "deny: configuration: an immutable glob covers it (immutable: `*.lock`)"
    );
    assert_eq!(
        line("read:file:/x"),
        "deny: configuration: no configured root allows that access (roots)"
    );
}

#[test]
fn explanation_of_an_allowed_scope_names_the_key_allow() {
    let host = configured(&json!({ "allow": ["read:mcp:notes"] }));
    let explained = host.explain(&"read:mcp:notes:list".parse().unwrap(), &[]);
    assert_eq!(
        explained.to_string(),
        "allow: configuration: the configuration allows the scope (allow: `read:mcp:notes`)"
    );
}

#[test]
fn explanation_distinguishes_root_globs_from_global_globs() {
    let root = json!({ "path": "/r", "deny": ["a"], "immutable": ["i"] });
    let policy = json!({ "roots": [root], "deny": ["b"], "immutable": ["j"] });
    let worker = under(&host(), &Policy::parse(&policy).unwrap());
    let pattern = |need: &str| worker.explain(&need.parse().unwrap(), &[]).pattern;
    assert_eq!(pattern("read:file:/r/a").as_deref(), Some("a"));
    assert_eq!(pattern("read:file:/r/b").as_deref(), Some("b"));
    assert_eq!(pattern("write:file:/r/i").as_deref(), Some("i"));
    assert_eq!(pattern("write:file:/r/j").as_deref(), Some("j"));
}

#[test]
fn explanation_distinguishes_allow_globs_from_unlisted_roots() {
    let roots = json!([{ "path": "/r/a", "allow": ["x"] }, { "path": "/r/b" }]);
    let policy = Policy::parse(&json!({ "roots": roots })).unwrap();
    let worker = under(&host(), &policy);
    let rule = |need: &str| worker.explain(&need.parse().unwrap(), &[]).rule;
    assert_eq!(
        rule("read:file:/r/a/y"),
        "no allow glob of its root matches it"
    );
    assert_eq!(
        rule("read:file:/r/c"),
        "it is outside the roots of the policy"
    );
}
