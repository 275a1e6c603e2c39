//! Test vectors of narrowing and of scopes.

use serde_json::{Value, json};

use crate::call::Origin;
use crate::config::Config;
use crate::policy::{Authority, Flag, Policy, PolicyErrorKind, Verdict};
use crate::scope::Coverage;

use PolicyErrorKind::{PolicyAudience, PolicyExpansion, PolicyInvalid, PolicyScope};
use Verdict::{Allow, Ask, Deny};

fn config() -> Config {
    Config::parse(&json!({
        "roots": [
            { "path": "/r", "default": true, "deny": ["**/.git/**"], "immutable": ["*.lock"] },
            { "path": "/s" },
        ],
        "read_max_bytes": 1000,
        "tools": ["read_file", "edit_file", "delete_file"],
        "grantable": ["*:file"],
    }))
    .unwrap()
}

fn host() -> Authority {
    Authority::configured(&config()).unwrap()
}

#[track_caller]
fn overlaid(policy: &Value) -> Authority {
    let host = host();
    let layer = host.admit(&Policy::parse(policy).unwrap(), Origin::Model);
    host.overlay(&layer.unwrap())
}

#[track_caller]
fn check(authority: &Authority, need: &str, expected: Verdict) {
    check_granted(authority, need, &[], expected);
}

#[track_caller]
fn check_granted(authority: &Authority, need: &str, granted: &[&str], expected: Verdict) {
    let granted: Vec<Coverage> = granted.iter().map(|text| text.parse().unwrap()).collect();
    let scope = need.parse().unwrap();
    let explained = authority.explain(&scope, &granted);
    assert_eq!(
        authority.judge(&scope, &granted),
        expected,
        "{need}: {explained}"
    );
    assert_eq!(explained.verdict, expected, "{need}: {explained}");
    assert_eq!(
        explained.grant.is_some(),
        expected == Ask,
        "{need}: {explained}"
    );
}

#[track_caller]
fn refused(issuer: &Authority, policy: &Value, origin: Origin, kind: PolicyErrorKind, field: &str) {
    let error = Policy::parse(policy)
        .and_then(|policy| issuer.admit(&policy, origin))
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.field()),
        (kind, field),
        "{policy}: {error}"
    );
}

#[track_caller]
fn expands(policy: &Value, field: &str) {
    refused(&host(), policy, Origin::Model, PolicyExpansion, field);
}

#[test]
fn v01_a_root_beside_the_configured_ones_is_an_expansion() {
    expands(&json!({ "roots": [{ "path": "/etc" }] }), "/roots/0/path");
    let policy = Policy::new().root("/etc");
    let error = host().admit(&policy, Origin::Model).unwrap_err();
    assert_eq!(
        error.data("call"),
        json!({
            "kind": "policy_expansion",
            "code": "POLICY_EXPANSION",
            "field": "/roots/0/path",
            "requested": "/etc",
            "limit": ["/r", "/s"],
            "layer": "call",
        })
    );
    assert_eq!(
        error.to_string(),
        "policy may only restrict: /roots/0/path is outside the configured roots; asked for: `/etc`; held: `/r` (read and write), `/s` (read and write)"
    );
}

#[test]
fn v02_a_parent_of_a_root_is_an_expansion() {
    expands(&json!({ "roots": [{ "path": "/" }] }), "/roots/0/path");
}

#[test]
fn v03_dots_are_resolved_before_roots_are_compared() {
    expands(
        &json!({ "roots": [{ "path": "/r/../etc" }] }),
        "/roots/0/path",
    );
    check(
        &overlaid(&json!({ "roots": [{ "path": "/r/../r/a" }] })),
        "read:file:/r/a/x",
        Allow,
    );
}

#[test]
fn v04_a_listed_subfolder_excludes_its_siblings() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/r/sub" }] }));
    check(&worker, "read:file:/r/sub/x", Allow);
    check(&worker, "read:file:/r/sub", Allow);
    check(&worker, "read:file:/r/y", Deny);
    check(&worker, "read:file:/r/subx", Deny);
    check(&worker, "read:file:/s/z", Deny);
}

#[test]
fn v05_roots_are_compared_by_component() {
    expands(
        &json!({ "roots": [{ "path": "/r-evil" }] }),
        "/roots/0/path",
    );
}

#[test]
fn v06_a_wide_allow_does_not_override_a_deny() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/r", "allow": ["**"] }] }));
    check(&worker, "read:file:/r/.git/c", Deny);
    check(&worker, "read:file:/r/c", Allow);
    check(&worker, "read:file:/r", Allow);
}

#[test]
fn v07_allow_globs_hold_in_their_own_root() {
    let worker =
        overlaid(&json!({ "roots": [{ "path": "/r", "allow": ["src/**"] }, { "path": "/s" }] }));
    check(&worker, "read:file:/r/src/a", Allow);
    check(&worker, "read:file:/r/src", Allow);
    check(&worker, "read:file:/r/b", Deny);
    check(&worker, "read:file:/r/SRC/a", Deny);
    check(&worker, "read:file:/s/z", Allow);
}

#[test]
fn v08_a_deny_glob_holds_for_every_verb_and_spelling() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/r", "deny": ["**/*.key"] }] }));
    for need in [
        "read:file:/r/d/k.key",
        "write:file:/r/d/k.key",
        "write:file:/r/k.key",
        "read:file:/r/d/K.KEY",
        "read:file:/r/k.key/x",
    ] {
        check(&worker, need, Deny);
    }
    check(&worker, "read:file:/r/d/k.keys", Allow);
    check(&worker, "write:file:/r/d", Allow);
}

#[test]
fn v09_an_immutable_glob_denies_only_writes() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/r", "immutable": ["docs/**"] }] }));
    check(&worker, "write:file:/r/docs/a", Deny);
    check(&worker, "write:file:/r/docs", Deny);
    check(&worker, "read:file:/r/docs/a", Allow);
    check(&worker, "write:file:/r/doc", Allow);
    check(&worker, "write:file:/r/x.lock", Deny);
    check(&worker, "write:file:/r/X.Lock", Deny);
    check(&worker, "read:file:/r/x.lock", Allow);
    check(&worker, "write:file:/r/d/x.lock", Deny);
    check(&worker, "write:file:/r/d/x.locks", Allow);
}

#[test]
fn v10_an_empty_list_of_roots_denies_all_files() {
    let worker = overlaid(&json!({ "roots": [] }));
    check(&worker, "read:file:/r/a", Deny);
    check(
        &overlaid(&json!({ "roots": null })),
        "read:file:/r/a",
        Allow,
    );
}

#[test]
fn v11_a_limit_may_only_fall_and_zero_is_unlimited() {
    assert_eq!(
        overlaid(&json!({ "read_max_bytes": 500 }))
            .limits()
            .read_max_bytes,
        500
    );
    assert_eq!(
        overlaid(&json!({ "read_max_bytes": 1000 }))
            .limits()
            .read_max_bytes,
        1000
    );
    assert_eq!(overlaid(&json!({})).limits().read_max_bytes, 1000);
    expands(&json!({ "read_max_bytes": 1001 }), "/read_max_bytes");
    expands(&json!({ "read_max_bytes": 0 }), "/read_max_bytes");
    assert_eq!(overlaid(&json!({ "ttl_ms": 0 })).limits().ttl_ms, u64::MAX);
}

#[test]
fn v12_a_false_permissive_flag_cannot_be_set() {
    expands(&json!({ "allow_escape": true }), "/allow_escape");
    assert!(!overlaid(&json!({ "allow_escape": false })).flag(Flag::AllowEscape));
    assert!(!overlaid(&json!({})).flag(Flag::AllowEscape));
    let mut closed = config();
    closed.policy = closed.policy.allow_escape(false);
    let closed = Authority::configured(&closed).unwrap();
    let opening = Policy::new().allow_escape(true);
    assert!(closed.admit(&opening, Origin::Model).is_err());
    check(&closed, "read:file:/new/f", Deny);
    check(&host(), "read:file:/new/f", Ask);
}

#[test]
fn v13_tools_are_a_subset() {
    let worker = overlaid(&json!({ "tools": ["read_file"] }));
    assert!(worker.allows_tool("read_file"));
    assert!(!worker.allows_tool("edit_file"));
    assert!(host().allows_tool("edit_file") && !host().allows_tool("write_file"));
    expands(&json!({ "tools": ["read_file", "write_file"] }), "/tools/1");
}

#[test]
fn v14_a_configuration_key_in_a_policy_is_rejected() {
    let refuse = |policy, field| refused(&host(), &policy, Origin::Human, PolicyScope, field);
    refuse(json!({ "grantable": ["*"] }), "/grantable");
    refuse(json!({ "strict": false }), "/strict");
    refuse(
        json!({ "roots": [{ "path": "/r", "default": true }] }),
        "/roots/0/default",
    );
}

#[test]
fn v15_a_human_key_from_a_model_is_rejected() {
    let policy = json!({ "require_approval": true });
    refused(
        &host(),
        &policy,
        Origin::Model,
        PolicyAudience,
        "/require_approval",
    );
    refused(
        &host(),
        &policy,
        Origin::View,
        PolicyAudience,
        "/require_approval",
    );
    let parsed = Policy::parse(&policy).unwrap();
    let worker = host().overlay(&host().admit(&parsed, Origin::Human).unwrap());
    assert!(worker.flag(Flag::RequireApproval));
    check(&worker, "write:file:/r/a", Ask);
    check(&worker, "read:file:/r/a", Allow);
    check_granted(&worker, "write:file:/r/a", &["write:file:/r/a"], Allow);
}

#[test]
fn v16_blocking_one_root_keeps_the_other() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/s", "blocked": true }] }));
    check(&worker, "read:file:/r/a", Allow);
    check(&worker, "read:file:/s/z", Deny);
    check(&worker, "read:file:/s", Deny);
    check(&worker, "read:file:/S/z", Deny);
}

#[test]
fn v17_a_grant_never_overrides_a_deny_glob() {
    check_granted(&host(), "read:file:/r/.git/c", &["read:file:/r/.git"], Deny);
    check_granted(
        &host(),
        "read:file:/r/.git/c",
        &["read:file:/r/.git/c", "*"],
        Deny,
    );
    check_granted(&host(), "write:file:/r/x.lock", &["*"], Deny);
    check_granted(&host(), "read:file:/new/f", &["read:file:/new"], Allow);
}

#[test]
fn v18_a_grant_never_overrides_a_missing_allow() {
    let worker = overlaid(&json!({ "roots": [{ "path": "/r" }] }));
    check_granted(&worker, "write:file:/new/f", &["write:file:/new"], Deny);
    check(&worker, "write:file:/new/f", Deny);
    check(&host(), "write:file:/new/f", Ask);
    check_granted(&host(), "write:file:/new/f", &["write:file:/new"], Allow);
}

#[test]
fn v19_a_grandchild_is_admitted_against_its_parent() {
    let layer = host()
        .admit(&Policy::new().root("/r/a"), Origin::Human)
        .unwrap();
    let child = host().narrow(&layer);
    let refuse = |policy| {
        refused(
            &child,
            &policy,
            Origin::Human,
            PolicyExpansion,
            "/roots/0/path",
        )
    };
    refuse(json!({ "roots": [{ "path": "/r" }] }));
    refuse(json!({ "roots": [{ "path": "/r/b" }] }));
    let error = child
        .admit(&Policy::new().root("/r"), Origin::Human)
        .unwrap_err();
    assert_eq!(error.limit(), &json!(["/r/a"]));
    assert!(
        child
            .admit(&Policy::new().root("/r/a/b"), Origin::Human)
            .is_ok()
    );
}

/// Everything is grantable, and a policy decides what is allowed.
#[track_caller]
fn scoped(policy: &Policy) -> Authority {
    let config = json!({ "roots": [{ "path": "/" }], "allow": ["*"], "grantable": ["*"] });
    let host = Authority::configured(&Config::parse(&config).unwrap()).unwrap();
    let layer = host.admit(&policy.clone().otherwise(Ask), Origin::Human);
    host.narrow(&layer.unwrap())
}

#[test]
fn c01_a_verb_may_be_allowed_and_another_denied() {
    let worker = scoped(&Policy::new().allow("read:*").deny("write:*"));
    check(&worker, "read:file:/a", Allow);
    check(&worker, "write:file:/a", Deny);
    check(&worker, "execute:cli:ls", Ask);
}

#[test]
fn c02_a_resource_does_not_imply_another() {
    let worker = scoped(&Policy::new().allow("write:file"));
    check(&worker, "write:file:/a", Allow);
    check(&worker, "write:database:t", Ask);
}

#[test]
fn c03_resources_are_distinguished() {
    let worker = scoped(&Policy::new().allow("write:database").deny("write:file"));
    check(&worker, "write:database:t", Allow);
    check(&worker, "write:file:/a", Deny);
}

#[test]
fn c04_a_path_covers_itself_and_its_subtree() {
    let worker = scoped(&Policy::new().allow("write:file:/p/to"));
    check(&worker, "write:file:/p/to", Allow);
    check(&worker, "write:file:/p/to/x", Allow);
    check(&worker, "write:file:/p/tox", Ask);
    check(&worker, "write:file:/p", Ask);
    check(&worker, "write:file:/p/q", Ask);
    assert!("write:file:/p/to/../q".parse::<crate::Scope>().is_err());
}

#[test]
fn c05_a_deny_inside_an_allow_wins() {
    let worker = scoped(
        &Policy::new()
            .allow("write:file:/p")
            .deny("write:file:/p/secret"),
    );
    check(&worker, "write:file:/p/secret/k", Deny);
    check(&worker, "write:file:/p/SECRET/k", Deny);
    check(&worker, "write:file:/p/k", Allow);
}

#[test]
fn c06_a_specific_allow_does_not_override_a_deny() {
    let worker = scoped(
        &Policy::new()
            .allow("write:file:/p/secret")
            .deny("write:file:/p"),
    );
    check(&worker, "write:file:/p/secret/k", Deny);
    check(&worker, "write:file:/q", Ask);
}

#[test]
fn c07_a_link_is_judged_by_its_target() {
    let worker = scoped(&Policy::new().allow("write:file:/p"));
    check(&worker, "write:file:/p/l/passwd", Allow);
    check(&worker, "write:file:/etc/passwd", Ask);
}

#[test]
fn c08_every_wildcard_form_covers() {
    for wildcard in ["*", "read", "read:*", "read:*:*"] {
        let worker = scoped(&Policy::new().allow(wildcard));
        check(&worker, "read:file:/a", Allow);
    }
    check(&scoped(&Policy::new().allow("write")), "read:file:/a", Ask);
}

#[test]
fn c09_segments_are_compared_whole() {
    let worker = scoped(&Policy::new().allow("execute:cli:safe"));
    check(&worker, "execute:cli:safe:ls", Allow);
    check(&worker, "execute:cli:safest:ls", Ask);
}

#[test]
fn c10_a_move_asks_only_for_the_missing_side() {
    let worker = scoped(&Policy::new().allow("write:file:/p"));
    check(&worker, "write:file:/p/a", Allow);
    check(&worker, "write:file:/q/b", Ask);
}

#[test]
fn c11_each_need_of_a_batch_is_judged_alone() {
    let config = Config {
        grantable: vec!["write:file".parse().unwrap()],
        ..config()
    };
    let host = Authority::configured(&config).unwrap();
    check(&host, "write:file:/r/a", Allow);
    check(&host, "write:file:/x/a", Ask);
    check(&host, "write:file:/y/a", Ask);
    check(&host, "read:file:/y/a", Deny);
}

#[track_caller]
fn invalid(policy: &Value, field: &str) {
    refused(&host(), policy, Origin::Human, PolicyInvalid, field);
}

#[test]
fn policy_errors_point_at_the_member() {
    invalid(&json!([]), "");
    invalid(&json!({ "rots": [] }), "/rots");
    invalid(&json!({ "a/b~": 1 }), "/a~1b~0");
    invalid(&json!({ "roots": {} }), "/roots");
    invalid(&json!({ "roots": [{}] }), "/roots/0");
    invalid(&json!({ "roots": [{ "path": "r" }] }), "/roots/0/path");
    invalid(
        &json!({ "roots": [{ "path": "/r", "x": 1 }] }),
        "/roots/0/x",
    );
    invalid(
        &json!({ "roots": [{ "path": "/r", "blocked": "yes" }] }),
        "/roots/0/blocked",
    );
    invalid(
        &json!({ "roots": [{ "path": "/r", "deny": ["a", 7] }] }),
        "/roots/0/deny/1",
    );
    invalid(
        &json!({ "roots": [{ "path": "/r", "allow": ["[z-a]"] }] }),
        "/roots/0/allow/0",
    );
    invalid(&json!({ "deny": "**" }), "/deny");
    invalid(&json!({ "deny": ["{a"] }), "/deny/0");
    invalid(
        &json!({ "deny_scopes": ["write:file:/p/../q"] }),
        "/deny_scopes/0",
    );
    invalid(&json!({ "allow_scopes": ["fly:file"] }), "/allow_scopes/0");
    invalid(&json!({ "otherwise": "maybe" }), "/otherwise");
    invalid(&json!({ "verbs": ["delete"] }), "/verbs/0");
    invalid(&json!({ "write_modes": ["truncate"] }), "/write_modes/0");
    invalid(&json!({ "access": "all" }), "/access");
    invalid(&json!({ "read_only": 1 }), "/read_only");
    invalid(&json!({ "read_max_bytes": -1 }), "/read_max_bytes");
    invalid(&json!({ "read_max_bytes": 1.5 }), "/read_max_bytes");
    invalid(&json!({ "budget": { "calls": "9" } }), "/budget/calls");
    invalid(&json!({ "budget": { "clls": 9 } }), "/budget/clls");
}

#[test]
fn builder_errors_are_reported_at_admission() {
    let refuse = |policy: Policy, field: &str| {
        let error = host().admit(&policy, Origin::Human).unwrap_err();
        assert_eq!((error.kind(), error.field()), (PolicyInvalid, field));
    };
    refuse(
        Policy::new().allow("read").deny("write:file:p"),
        "/deny_scopes/0",
    );
    refuse(Policy::new().allow("read").allow("rea"), "/allow_scopes/1");
    refuse(Policy::new().deny_glob("ok").deny_glob("/not"), "/deny/1");
    refuse(Policy::new().immutable_glob("not/"), "/immutable/0");
    refuse(Policy::new().root("/r").root("s"), "/roots/1/path");
    assert!(
        host()
            .admit(&Policy::new().allow("read:file"), Origin::Human)
            .is_ok()
    );
}

#[test]
fn policy_round_trips_through_json() {
    let value = json!({
        "roots": [{ "path": "/r", "blocked": false, "allow": ["a"], "deny": ["b"], "immutable": ["c"] }],
        "deny": ["d"], "immutable": ["e"],
        "allow_scopes": ["read:file"], "ask_scopes": ["write:file:/r"], "deny_scopes": ["*"],
        "delegate_only": ["execute:cli"], "otherwise": "ask",
        "tools": ["t"], "verbs": ["read"], "write_modes": ["append"], "access": "interact",
        "allow_escape": false, "follow_symlinks": true, "network": false,
        "read_only": true, "strict_hardlinks": true, "require_preview": true, "require_approval": true,
        "read_max_bytes": 1, "write_max_bytes": 2, "max_results": 3, "max_calls": 4, "ttl_ms": 5,
        "min_interval_ms": 6,
        "budget": {
            "calls": 1, "bytes_written": 2, "files_touched": 3, "children": 4, "cpu_ms": 5, "wall_ms": 6,
            "output_bytes": 7, "processes": 8, "memory_bytes": 9,
        },
    });
    let policy = Policy::parse(&value).unwrap();
    assert_eq!(serde_json::to_value(&policy).unwrap(), value);
    for (key, _) in value.as_object().unwrap() {
        assert!(crate::policy::keys::Key::find(key).is_some(), "{key}");
    }
}
