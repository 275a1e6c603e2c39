//! Tests of what a child may request, and of how each field merges.

use std::sync::Arc;

use serde_json::json;

use super::{admitted, check, configured, expands, host, path, under};
use crate::budget::Budget;
use crate::call::Origin;
use crate::config::{Config, RootConfig};
use crate::policy::{Access, Authority, Flag, Limits, Policy, PolicyErrorKind, Verdict, WriteMode};
use crate::scope::Verb;

use Verdict::{Allow, Ask, Deny};

#[test]
fn patterns_are_admitted_against_roots_grants_and_denies() {
    let config = json!({
        "roots": [{ "path": "/r" }],
        "grantable": ["read:file:/new", "execute:cli:git"],
        "allow": ["execute:cli:safe"],
    });
    let host = configured(&config);
    for held in [
        "read",
        "read:file",
        "write:file:/r/a",
        "read:file:/new/x",
        "execute:cli:safe:ls",
        "execute:cli:git",
    ] {
        admitted(&host, &Policy::new().allow(held));
    }
    for lacking in [
        "write:file:/new",
        "read:file:/etc",
        "execute:cli",
        "read:mcp:x",
    ] {
        expands(&host, &Policy::new().allow(lacking), "/allow_scopes/0");
    }
    let parent = under(&host, &Policy::new().root("/r/a").deny("write:file:/r/a/s"));
    admitted(&parent, &Policy::new().allow("write:file:/r/a"));
    expands(
        &parent,
        &Policy::new().allow("write:file:/r/b"),
        "/allow_scopes/0",
    );
    expands(
        &parent,
        &Policy::new().allow("read:file:/new"),
        "/allow_scopes/0",
    );
    expands(
        &parent,
        &Policy::new().allow("write:file:/r/a/s/t"),
        "/allow_scopes/0",
    );
    expands(
        &parent,
        &Policy::new().allow("write:file:/r/a/S/t"),
        "/allow_scopes/0",
    );
    admitted(&parent, &Policy::new().allow("read:file:/r/a/s/t"));
    let closed = under(&host, &Policy::new().deny("write:file"));
    expands(
        &closed,
        &Policy::new().allow("write:file"),
        "/allow_scopes/0",
    );
    admitted(&closed, &Policy::new().allow("write"));
}

#[test]
fn child_may_be_allowed_what_its_parent_must_ask_for() {
    let parent = under(
        &host(),
        &Policy::new().allow("read:file").ask("write:file:/r/a"),
    );
    check(
        &under(&parent, &Policy::new().allow("write:file:/r/a/b")),
        "write:file:/r/a/b",
        &[],
        Ask,
    );
    expands(
        &parent,
        &Policy::new().ask("write:file:/r/b"),
        "/ask_scopes/0",
    );
    expands(
        &parent,
        &Policy::new().allow("read:file").allow("read"),
        "/allow_scopes/1",
    );
    admitted(
        &parent,
        &Policy::new().allow("read:file:/r/a").deny("execute"),
    );
}

#[test]
fn otherwise_allow_or_ask_lets_a_parent_delegate_the_rest() {
    let parent = under(
        &host(),
        &Policy::new().allow("read:file:/r/a").otherwise(Ask),
    );
    check(
        &under(&parent, &Policy::new().allow("write:file:/r/b")),
        "write:file:/r/b",
        &[],
        Ask,
    );
    let open = under(
        &host(),
        &Policy::new().ask("write:file:/r/a").otherwise(Allow),
    );
    check(
        &under(&open, &Policy::new().allow("write:file")),
        "write:file:/r/b",
        &[],
        Allow,
    );
    check(
        &under(&open, &Policy::new().allow("write:file")),
        "write:file:/r/a",
        &[],
        Ask,
    );
}

/// The flags that are true.
fn flags(authority: &Authority) -> Vec<Flag> {
    let mut flags = Flag::ALL.to_vec();
    flags.retain(|flag| authority.flag(*flag));
    flags
}

#[test]
fn defaults_of_a_configuration_are_restrictive() {
    let host = host();
    assert_eq!(flags(&host), [Flag::FollowSymlinks]);
    assert_eq!(*host.limits(), Limits::default());
    check(
        &Authority::configured(&Config::new()).unwrap(),
        "read:file:/r",
        &["*"],
        Deny,
    );
}

#[test]
fn flags_merge_by_and_or_or() {
    let open = configured(&json!({ "allow_escape": true, "network": true }));
    let silent = under(&open, &Policy::new());
    for worker in [&open, &silent] {
        let allowing = [Flag::AllowEscape, Flag::FollowSymlinks, Flag::Network];
        assert_eq!(flags(worker), allowing);
    }
    let closing = Policy::new()
        .allow_escape(false)
        .network(false)
        .follow_symlinks(false);
    let closing = closing
        .read_only(true)
        .strict_hardlinks(true)
        .require_preview(true)
        .require_approval(true);
    let child = under(&open, &closing);
    let grandchild = under(&child, &Policy::new());
    for worker in [&child, &grandchild] {
        let restricting = [
            Flag::ReadOnly,
            Flag::StrictHardlinks,
            Flag::RequirePreview,
            Flag::RequireApproval,
        ];
        assert_eq!(flags(worker), restricting);
    }
    admitted(&child, &closing);
    expands(&child, &Policy::new().allow_escape(true), "/allow_escape");
    expands(&child, &Policy::new().network(true), "/network");
    expands(
        &child,
        &Policy::new().follow_symlinks(true),
        "/follow_symlinks",
    );
    expands(&child, &Policy::new().read_only(false), "/read_only");
    expands(
        &child,
        &Policy::new().strict_hardlinks(false),
        "/strict_hardlinks",
    );
    expands(
        &child,
        &Policy::new().require_preview(false),
        "/require_preview",
    );
    expands(
        &child,
        &Policy::new().require_approval(false),
        "/require_approval",
    );
    let opening = Policy::new()
        .allow_escape(true)
        .network(true)
        .follow_symlinks(true);
    admitted(
        &open,
        &opening
            .read_only(false)
            .require_preview(false)
            .require_approval(false),
    );
}

fn budget(
    calls: Option<u64>,
    bytes_written: Option<u64>,
    files_touched: Option<u64>,
    children: Option<u64>,
) -> Budget {
    Budget {
        calls,
        bytes_written,
        files_touched,
        children,
        ..Budget::default()
    }
}

fn limited() -> Policy {
    Policy::new()
        .read_max_bytes(9)
        .write_max_bytes(8)
        .max_results(7)
        .max_calls(6)
        .ttl_ms(5)
        .min_interval_ms(4)
        .budget(budget(Some(9), None, Some(7), None))
}

#[test]
fn limits_merge_to_the_tighter() {
    let child = under(&host(), &limited());
    let two = Policy::new()
        .read_max_bytes(8)
        .ttl_ms(4)
        .min_interval_ms(5)
        .budget(budget(Some(8), Some(1), None, None));
    let expected = Limits {
        read_max_bytes: 8,
        write_max_bytes: 8,
        max_results: 7,
        max_calls: 6,
        ttl_ms: 4,
        min_interval_ms: 5,
        budget: budget(Some(8), Some(1), Some(7), None),
    };
    assert_eq!(*under(&child, &two).limits(), expected);
}

#[test]
fn looser_limits_are_rejected() {
    let child = under(&host(), &limited());
    admitted(&child, &limited());
    expands(
        &child,
        &Policy::new().write_max_bytes(9),
        "/write_max_bytes",
    );
    expands(&child, &Policy::new().max_results(0), "/max_results");
    expands(&child, &Policy::new().max_calls(7), "/max_calls");
    expands(&child, &Policy::new().ttl_ms(6), "/ttl_ms");
    expands(
        &child,
        &Policy::new().min_interval_ms(3),
        "/min_interval_ms",
    );
    expands(
        &child,
        &Policy::new().budget(budget(Some(10), None, None, None)),
        "/budget/calls",
    );
    expands(
        &child,
        &Policy::new().budget(budget(None, None, Some(8), None)),
        "/budget/files_touched",
    );
    admitted(
        &child,
        &Policy::new().budget(budget(None, Some(u64::MAX), Some(0), Some(5))),
    );
    let tight = under(
        &child,
        &Policy::new().budget(budget(None, Some(3), None, Some(2))),
    );
    expands(
        &tight,
        &Policy::new().budget(budget(None, Some(4), None, None)),
        "/budget/bytes_written",
    );
    expands(
        &tight,
        &Policy::new().budget(budget(None, None, None, Some(3))),
        "/budget/children",
    );
}

#[test]
fn wider_sets_and_access_levels_are_rejected() {
    let sets = Policy::new()
        .tools(["a", "b"])
        .verbs([Verb::Read])
        .write_modes([WriteMode::Append]);
    let child = under(&host(), &sets.clone().access(Access::Interact));
    let grandchild = under(&child, &Policy::new().tools(["b"]));
    assert!(grandchild.allows_tool("b") && !grandchild.allows_tool("a") && !child.allows_tool("c"));
    assert!(host().allows_tool("c") && host().allows_write_mode(WriteMode::Create));
    assert!(
        child.allows_write_mode(WriteMode::Append) && !child.allows_write_mode(WriteMode::Create)
    );
    assert!(!grandchild.allows_write_mode(WriteMode::Overwrite));
    assert_eq!(
        (child.access(), host().access()),
        (Access::Interact, Access::Full)
    );
    admitted(&child, &sets.access(Access::Read));
    expands(&child, &Policy::new().tools(["a", "c"]), "/tools/1");
    expands(
        &child,
        &Policy::new().verbs([Verb::Read, Verb::Write]),
        "/verbs/1",
    );
    expands(
        &child,
        &Policy::new().write_modes([WriteMode::Create]),
        "/write_modes/0",
    );
    expands(&child, &Policy::new().access(Access::Full), "/access");
    let error = grandchild
        .admit(&Policy::new().tools(["a"]), Origin::Human)
        .unwrap_err();
    assert_eq!((error.asked(), error.limit()), (&json!("a"), &json!(["b"])));
    let error = child
        .admit(&Policy::new().verbs([Verb::Execute]), Origin::Human)
        .unwrap_err();
    assert_eq!(
        (error.asked(), error.limit()),
        (&json!("execute"), &json!(["read"]))
    );
}

#[test]
fn configuration_errors_point_at_the_member() {
    let refuse = |value: serde_json::Value, kind, field: &str| {
        let error = Config::parse(&value).unwrap_err();
        assert_eq!((error.kind(), error.field()), (kind, field));
    };
    refuse(
        json!({ "rots": [] }),
        PolicyErrorKind::PolicyInvalid,
        "/rots",
    );
    refuse(
        json!({ "roots": [{ "path": "/r", "acess": "read" }] }),
        PolicyErrorKind::PolicyInvalid,
        "/roots/0/acess",
    );
    refuse(
        json!({ "roots": [{ "default": true }] }),
        PolicyErrorKind::PolicyInvalid,
        "/roots/0",
    );
    refuse(
        json!({ "grantable": ["x"] }),
        PolicyErrorKind::PolicyInvalid,
        "/grantable/0",
    );
    refuse(
        json!({ "protect": ["/x"] }),
        PolicyErrorKind::PolicyInvalid,
        "/protect/0",
    );
    let config = Config::parse(&json!({
        "roots": [{ "path": "/r" }, { "path": "/s", "default": true, "access": "read", "allow": [] }],
        "strict": true, "max_calls": 3,
    }));
    let config = config.unwrap();
    assert_eq!(config.namespace().default_root(), Some(&path("/s")));
    assert_eq!(config.policy, Policy::new().max_calls(3));
    check(
        &Authority::configured(&config).unwrap(),
        "read:file:/s/a",
        &[],
        Allow,
    );
    check(
        &Authority::configured(&config).unwrap(),
        "write:file:/s/a",
        &[],
        Deny,
    );
    let one = Config::new().root(RootConfig::new(path("/r")));
    assert_eq!(one.namespace().default_root(), Some(&path("/r")));
    assert_eq!(Config::new().namespace().default_root(), None);
    let two = one.root(RootConfig::new(path("/s")));
    assert_eq!(two.namespace().default_root(), None);
}

#[test]
fn invalid_glob_in_configuration_is_rejected() {
    let bad = RootConfig {
        deny: vec!["/x".to_owned()],
        ..RootConfig::new(path("/r"))
    };
    assert_eq!(
        Authority::configured(&Config::new().root(bad))
            .unwrap_err()
            .field(),
        "/roots/0/deny/0"
    );
    let policy = Config::new().policy(Policy::new().allow("fly"));
    assert_eq!(
        Authority::configured(&policy).unwrap_err().field(),
        "/allow_scopes/0"
    );
}

#[test]
fn delegate_only_is_denied_to_the_worker_and_allowed_to_its_child() {
    let parent = under(
        &host(),
        &Policy::new()
            .allow("read:file")
            .delegate_only("write:file:/r/a"),
    );
    check(&parent, "write:file:/r/a/x", &["*"], Deny);
    check(&parent, "read:file:/r/a/x", &[], Allow);
    let child = under(&parent, &Policy::new().allow("write:file:/r/a"));
    check(&child, "write:file:/r/a/x", &[], Allow);
    check(&child, "write:file:/r/b", &["*"], Deny);
    check(&child, "read:file:/r/a", &[], Deny);
    expands(
        &parent,
        &Policy::new().allow("write:file:/r"),
        "/allow_scopes/0",
    );
    expands(
        &parent,
        &Policy::new().delegate_only("write:file:/r/b"),
        "/delegate_only/0",
    );
    let call = parent.overlay(
        &parent
            .admit(&Policy::new().allow("*:file"), Origin::Model)
            .err()
            .map_or_else(
                || unreachable!("the parent holds no such thing"),
                |_| parent.admit(&Policy::new(), Origin::Model).unwrap(),
            ),
    );
    check(&call, "write:file:/r/a/x", &[], Deny);
}

#[test]
fn delegate_only_does_not_override_deny_or_ask() {
    let handing = Policy::new().delegate_only("write:file:/r/a");
    let denied = under(&host(), &handing.clone().deny("write:file:/r/a/x"));
    let child = under(&denied, &Policy::new());
    check(&child, "write:file:/r/a/x", &["*"], Deny);
    check(&child, "write:file:/r/a/y", &[], Allow);
    let asked = under(&host(), &handing.ask("write:file:/r/a/x"));
    check(&asked, "write:file:/r/a/x", &["*"], Deny);
    check(
        &under(&asked, &Policy::new()),
        "write:file:/r/a/x",
        &[],
        Ask,
    );
}

#[test]
fn flags_access_and_verbs_deny_their_verbs() {
    let all = configured(&json!({
        "roots": [{ "path": "/" }], "allow": ["*"], "grantable": ["*"], "network": true, "allow_escape": true,
    }));
    let cases = [
        (Policy::new(), [Allow, Allow, Allow, Allow]),
        (Policy::new().read_only(true), [Allow, Deny, Deny, Allow]),
        (Policy::new().read_only(false), [Allow, Allow, Allow, Allow]),
        (
            Policy::new().require_approval(true),
            [Allow, Ask, Ask, Allow],
        ),
        (Policy::new().network(false), [Allow, Allow, Allow, Deny]),
        (
            Policy::new().access(Access::Read),
            [Allow, Deny, Deny, Allow],
        ),
        (
            Policy::new().access(Access::Interact),
            [Allow, Allow, Deny, Allow],
        ),
        (
            Policy::new().access(Access::Full),
            [Allow, Allow, Allow, Allow],
        ),
        (
            Policy::new().verbs([Verb::Write]),
            [Deny, Allow, Deny, Deny],
        ),
        (Policy::new().verbs([]), [Deny, Deny, Deny, Deny]),
    ];
    for (policy, expected) in cases {
        let worker = under(&all, &policy);
        let needs = [
            "read:file:/a",
            "write:file:/a",
            "execute:cli:ls",
            "read:network:host",
        ];
        for (need, expected) in needs.into_iter().zip(expected) {
            check(&worker, need, &[], expected);
        }
    }
}

#[test]
fn reaches_requires_every_layer_to_leave_something() {
    let two = configured(
        &json!({ "roots": [{ "path": "/r" }, { "path": "/s" }], "grantable": ["read:file:/new"] }),
    );
    let reach = |authority: &Authority| {
        ["/r", "/s", "/new", "/x"].map(|mount| authority.reaches(&path(mount)))
    };
    assert_eq!(reach(&two), [true, true, true, false]);
    assert_eq!(
        reach(&under(&two, &Policy::new().root("/r/a"))),
        [true, false, false, false]
    );
    assert_eq!(
        reach(&under(&two, &Policy::new().block("/r"))),
        [false, true, true, false]
    );
    assert_eq!(
        reach(&under(&two, &Policy::new().block("/r/a"))),
        [true, true, true, false]
    );
    assert_eq!(
        reach(&under(&two, &Policy::new().allow("read:file:/s/a"))),
        [false, true, false, false]
    );
    assert_eq!(
        reach(&under(&two, &Policy::new().ask("read:file:/r"))),
        [true, false, false, false]
    );
    assert_eq!(
        reach(&under(&two, &Policy::new().allow("read"))),
        [true, true, true, false]
    );
    assert_eq!(
        reach(&under(
            &two,
            &Policy::new().allow("read:file:/r").otherwise(Ask)
        )),
        [true, true, true, false]
    );
    assert_eq!(reach(&under(&two, &Policy::new().verbs([]))), [false; 4]);
    let handing = under(
        &two,
        &Policy::new()
            .allow("read:file:/s")
            .delegate_only("write:file:/r"),
    );
    assert_eq!(reach(&handing), [false, true, false, false]);
    assert_eq!(
        reach(&under(&handing, &Policy::new())),
        [true, true, false, false]
    );
}

#[test]
fn reaches_includes_grantable_files() {
    let reach = |authority: &Authority| {
        ["/r", "/s", "/new", "/x"].map(|mount| authority.reaches(&path(mount)))
    };
    for grantable in ["*", "read", "read:file"] {
        let anywhere = configured(&json!({ "grantable": [grantable] }));
        assert_eq!(reach(&anywhere), [true; 4], "{grantable}");
    }
    let elsewhere = configured(&json!({ "grantable": ["read:cli", "read:file:/new"] }));
    assert_eq!(reach(&elsewhere), [false, false, true, false]);
    let cli = configured(
        &json!({ "roots": [{ "path": "/r" }], "allow": ["execute:cli"], "grantable": ["read:cli"] }),
    );
    assert_eq!(reach(&cli), [true, false, false, false]);
    assert_eq!(
        reach(&under(&cli, &Policy::new().allow("execute:cli"))),
        [false; 4]
    );
}

#[test]
fn subtree_in_one_of_several_roots_is_held() {
    let parent = under(&host(), &Policy::new().root("/r/a").root("/r/b"));
    admitted(&parent, &Policy::new().root("/r/a/x"));
    admitted(&parent, &Policy::new().root("/r/b").allow("read:file:/r/a"));
    expands(
        &parent,
        &Policy::new().root("/r/b").root("/r/c"),
        "/roots/1/path",
    );
    expands(
        &parent,
        &Policy::new().allow("read:file:/r/c"),
        "/allow_scopes/0",
    );
}

#[test]
fn inherit_allows_everything_and_nothing_denies_the_rest() {
    let need = "read:file:/r/a";
    check(&under(&host(), &Policy::inherit()), need, &[], Allow);
    assert_eq!(Policy::inherit(), Policy::new());
    check(&under(&host(), &Policy::nothing()), need, &[], Deny);
    let some = Policy::nothing().allow(need);
    check(&under(&host(), &some), need, &[], Allow);
    check(&under(&host(), &some), "read:file:/r/b", &[], Deny);
}

#[test]
fn rejected_scope_is_answered_with_the_access_that_is_held() {
    let readable = under(&host(), &Policy::new().allow("read:file"));
    let write = Policy::new().allow("write:file:/r");
    let error = readable.admit(&write, Origin::Human).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("asked for: `write:file:/r`; held: `/r` (read only)"),
        "{text}"
    );
    assert_eq!(error.data("call")["limit"], serde_json::json!(["/r"]));

    let policy = Policy::new()
        .allow("read:file")
        .delegate_only("write:file:/r/src");
    let handed = under(&host(), &policy);
    let write = Policy::new().allow("write:file");
    let text = handed.admit(&write, Origin::Human).unwrap_err().to_string();
    assert!(
        text.ends_with("held: `/r` (read only), `/r/src` (read and write)"),
        "{text}"
    );
}

#[test]
fn rejected_policy_is_answered_with_open_folders_only() {
    let config = json!({ "roots": [{ "path": "/docs" }, { "path": "/app" }] });
    let reader = under(
        &configured(&config),
        &Policy::nothing().allow("read:file:/docs"),
    );
    let held = "; held: `/docs` (read only)";
    for (policy, held, limit) in [
        (Policy::new().root("/zzz"), held, json!(["/docs"])),
        (
            Policy::new().allow("read:file:/app"),
            held,
            json!(["/docs"]),
        ),
        (Policy::new().allow("execute:chat"), "", json!(null)),
    ] {
        let error = reader.admit(&policy, Origin::Model).unwrap_err();
        let text = error.to_string();
        let (_, after) = text.split_once("; asked for: ").unwrap();
        let (_, shown) = after.split_once('`').unwrap().1.split_once('`').unwrap();
        assert_eq!((shown, error.limit()), (held, &limit), "{text}");
    }
}

#[test]
fn rejected_scope_is_answered_with_who_can_allow_it() {
    let config = json!({ "roots": [{ "path": "/r" }], "allow": ["execute:chat"] });
    let host = configured(&config);
    let reader = under(&host, &Policy::nothing().allow("read:file:/r"));
    for (issuer, scope, advice) in [
        (
            &host,
            "execute:mail",
            "; the host allows it with `RuntimeBuilder::allow` (",
        ),
        (
            &reader,
            "execute:mail",
            "; the host allows it with `RuntimeBuilder::allow` (",
        ),
        (
            &reader,
            "execute:chat",
            "; the host allows it, but a policy of the issuer does not; ",
        ),
        (
            &host,
            "read:files:/r",
            "; did you mean the resource `file`?; ",
        ),
    ] {
        let policy = Policy::new().allow(scope);
        let error = issuer.admit(&policy, Origin::Model).unwrap_err();
        assert!(error.to_string().contains(advice), "{scope}: {error}");
    }
    admitted(&host, &Policy::new().allow("execute:chat"));
}

#[test]
fn policy_of_a_stranger_is_not_kept_with_the_last_child() {
    let host = host();
    for (origin, kept) in [
        (Origin::Model, false),
        (Origin::View, false),
        (Origin::Human, true),
        (Origin::Host, true),
    ] {
        let policy = Arc::new(Policy::new().deny_glob("*.key"));
        host.child(&policy, origin).unwrap();
        assert_eq!(Arc::strong_count(&policy) > 1, kept, "{origin:?}");
    }
}
