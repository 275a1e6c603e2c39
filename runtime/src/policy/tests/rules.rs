//! Rules that the vectors leave open: protected names, handing on, grants, limits, globs, explanations.

use serde_json::json;

use crate::VirtualPath;
use crate::call::Origin;
use crate::capability::Budget;
use crate::config::{Config, RootConfig};
use crate::policy::{
    Access, Authority, LayerName, Limits, Policy, PolicyErrorKind, Verdict, WriteMode,
};
use crate::scope::{ScopePattern, Verb};

use Verdict::{Allow, Ask, Deny};

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

fn configured(value: &serde_json::Value) -> Authority {
    Authority::configured(&Config::parse(value).unwrap()).unwrap()
}

fn host() -> Authority {
    configured(&json!({ "roots": [{ "path": "/r" }], "grantable": ["*:file"] }))
}

#[track_caller]
fn under(issuer: &Authority, policy: &Policy) -> Authority {
    issuer.narrow(&issuer.admit(policy, Origin::Human).unwrap())
}

#[track_caller]
fn check(authority: &Authority, need: &str, granted: &[&str], expected: Verdict) {
    let granted: Vec<ScopePattern> = granted.iter().map(|text| text.parse().unwrap()).collect();
    let need = need.parse().unwrap();
    let explained = authority.explain(&need, &granted);
    assert_eq!(
        authority.judge(&need, &granted),
        expected,
        "{need}: {explained}"
    );
    assert_eq!(explained.verdict, expected, "{need}: {explained}");
}

#[track_caller]
fn expands(issuer: &Authority, policy: &Policy, field: &str) {
    let error = issuer.admit(policy, Origin::Human).unwrap_err();
    assert_eq!(
        (error.kind(), error.field()),
        (PolicyErrorKind::PolicyExpansion, field),
        "{error}"
    );
}

#[track_caller]
fn admitted(issuer: &Authority, policy: &Policy) {
    assert_eq!(issuer.admit(policy, Origin::Human).map(|_| ()), Ok(()));
}

#[test]
fn a_protected_file_needs_a_grant_that_names_it() {
    for name in [
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/hooks",
        ".git/modules/a/b/config",
        ".gitmodules",
        ".vscode/tasks.json",
        ".vscode",
        ".cursor/mcp.json",
        "AGENTS.md",
        "agents.MD",
        "d/e/.mcp.json",
        ".github/workflows/ci.yml",
        ".cargo/config.toml",
        ".bashrc",
        ".ssh/id",
        ".CL\u{200b}AUDE/x",
        "sub/.git",
    ] {
        let need = format!("write:file:/r/{name}");
        check(&host(), &need, &[], Ask);
        check(&host(), &need, &["*"], Ask);
        check(&host(), &need, &["write:file"], Ask);
        check(&host(), &need, &["write:file:/r"], Ask);
        check(&host(), &need, &[&format!("read:file:/r/{name}")], Ask);
        check(&host(), &need, &[&need], Allow);
        check(&host(), &format!("read:file:/r/{name}"), &[], Allow);
    }
    check(
        &host(),
        "write:file:/r/.git/hooks/pre-commit",
        &["write:file:/r/.git/hooks"],
        Ask,
    );
    check(&host(), "write:file:/new/.envrc", &["write:file:/new"], Ask);
    check(
        &host(),
        "write:file:/new/.envrc",
        &["write:file:/new/.envrc"],
        Allow,
    );
}

#[test]
fn ordinary_names_are_not_protected() {
    for name in [
        ".git/objects/ab",
        ".gitignore",
        "git",
        ".github/x",
        "AGENTS.md.txt",
        ".cargo/x",
        "x.git",
    ] {
        check(&host(), &format!("write:file:/r/{name}"), &[], Allow);
    }
}

#[test]
fn a_protected_file_that_a_policy_also_asks_about_still_needs_its_own_grant() {
    let worker = under(&host(), &Policy::new().ask("write"));
    check(&worker, "write:file:/r/AGENTS.md", &["write"], Ask);
    check(
        &worker,
        "write:file:/r/AGENTS.md",
        &["write:file:/r/AGENTS.md"],
        Allow,
    );
    check(&worker, "write:file:/r/a", &["write"], Allow);
}

#[test]
fn more_names_can_be_protected() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }], "protect": ["policy/**"] }));
    check(
        &host,
        "write:file:/r/policy/a",
        &["write:file:/r/policy"],
        Ask,
    );
    check(&host, "write:file:/r/POLICY/a", &[], Ask);
    check(&host, "write:file:/r/policies", &[], Allow);
    check(&host, "write:file:/r/AGENTS.md", &[], Ask);
}

#[test]
fn what_may_only_be_handed_on_is_denied_to_the_worker_and_open_to_its_child() {
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
fn handing_on_does_not_pass_a_deny_or_an_ask_of_the_same_worker() {
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
fn a_child_may_hold_what_its_parent_must_ask_for() {
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
fn a_parent_that_leaves_the_rest_open_or_asked_holds_the_rest() {
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

#[test]
fn who_is_spawned_without_a_policy_asks_for_everything() {
    let worker = under(&host(), &Policy::ask_for_everything());
    check(&worker, "read:file:/r/a", &[], Ask);
    check(&worker, "read:file:/r/a", &["read:file:/r"], Allow);
    check(&worker, "write:file:/x", &[], Ask);
    check(&worker, "execute:cli:ls", &["*"], Deny);
}

#[test]
fn a_root_for_reading_asks_to_be_written_only_where_that_can_be_granted() {
    let config = |grantable| {
        let root = RootConfig::read_only(path("/r"));
        let config = Config {
            grantable,
            ..Config::new().root(root)
        };
        Authority::configured(&config).unwrap()
    };
    check(&config(vec![]), "read:file:/r/a", &[], Allow);
    check(&config(vec![]), "write:file:/r/a", &["*"], Deny);
    check(
        &config(vec!["write:file:/r".parse().unwrap()]),
        "write:file:/r/a",
        &[],
        Ask,
    );
    check(&config(vec![]), "execute:file:/r/a", &["*"], Deny);
    check(
        &config(vec!["execute:file:/r".parse().unwrap()]),
        "execute:file:/r/a",
        &[],
        Ask,
    );
}

#[test]
fn what_the_allow_globs_of_a_configured_root_leave_out_cannot_be_granted() {
    let root = RootConfig {
        allow: vec!["src/**".to_owned()],
        ..RootConfig::new(path("/r"))
    };
    let config = Config::new().root(root).grantable(ScopePattern::ANY);
    let host = Authority::configured(&config).unwrap();
    check(&host, "read:file:/r/src/a", &[], Allow);
    check(&host, "read:file:/r/b", &["*"], Deny);
    check(&host, "read:file:/x", &["*"], Allow);
    let wider = Authority::configured(&config.root(RootConfig::new(path("/r/b")))).unwrap();
    check(&wider, "read:file:/r/b", &[], Allow);
    check(&wider, "read:file:/r/c", &["*"], Deny);
}

#[test]
fn a_blocked_root_is_closed_to_all() {
    let blocked = RootConfig {
        blocked: true,
        ..RootConfig::new(path("/r/s"))
    };
    let config = Config::new()
        .root(RootConfig::new(path("/r")))
        .root(blocked);
    let host = Authority::configured(&config.grantable(ScopePattern::ANY)).unwrap();
    check(&host, "read:file:/r/s/a", &["*"], Deny);
    check(&host, "read:file:/r/a", &[], Allow);
    assert!(!host.reaches(&path("/r/s")));
    assert!(host.reaches(&path("/r")));
    let open = json!({ "roots": [{ "path": "/r/s", "blocked": false }] });
    expands(&host, &Policy::parse(&open).unwrap(), "/roots/0/blocked");
    admitted(
        &host,
        &Policy::parse(&json!({ "roots": [{ "path": "/r/a", "blocked": false }] })).unwrap(),
    );
    admitted(&host, &Policy::new().block("/r/s"));
    let child = under(&host, &Policy::new().block("/r/t"));
    expands(
        &child,
        &Policy::parse(&json!({ "roots": [{ "path": "/r/t/u", "blocked": false }] })).unwrap(),
        "/roots/0/blocked",
    );
}

#[test]
fn globs_of_overlapping_roots_are_joined() {
    let outer = RootConfig {
        deny: vec!["in/x".to_owned()],
        ..RootConfig::new(path("/r"))
    };
    let inner = RootConfig {
        deny: vec!["y".to_owned()],
        ..RootConfig::new(path("/r/in"))
    };
    let host = Authority::configured(&Config::new().root(outer).root(inner)).unwrap();
    check(&host, "read:file:/r/in/x", &[], Deny);
    check(&host, "read:file:/r/in/y", &[], Deny);
    check(&host, "read:file:/r/y", &[], Allow);
}

#[test]
fn globs_for_all_roots_hold_in_each_and_at_any_depth_outside() {
    let worker = under(
        &host(),
        &Policy::new().deny_glob("secret").immutable_glob("k/*"),
    );
    check(&worker, "read:file:/r/secret/a", &[], Deny);
    check(&worker, "read:file:/r/a/secret", &[], Allow);
    check(&worker, "write:file:/r/k/a", &[], Deny);
    check(&worker, "write:file:/r/k/a/b", &[], Deny);
    check(&worker, "write:file:/r/k", &[], Allow);
    check(&worker, "read:file:/r/k/a", &[], Allow);
    check(&worker, "read:file:/new/secret", &["*"], Deny);
    check(&worker, "read:file:/new/a/secret/b", &["*"], Deny);
    check(&worker, "write:file:/new/k/a", &["*"], Deny);
    check(&worker, "read:file:/new/k/a", &["*"], Allow);
}

#[test]
fn a_deny_glob_covers_what_it_names_in_every_form() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "**/.git/**",
            &[".git", ".git/x", "a/.git", "a/.GIT/b/c"],
            &["git", ".gitx", "a"],
        ),
        ("{a/**,b}", &["a", "a/x", "b", "b/y"], &["c", "aa"]),
        ("a/**/**", &["a", "a/b"], &["b"]),
        ("?", &["a", "A/b"], &["ab"]),
        ("\\[\u{e9}", &["[\u{e9}", "[E\u{301}"], &["\u{e9}"]),
        ("STRASSE", &["stra\u{df}e", "Strasse"], &["strase"]),
        ("e\u{301}", &["\u{e9}", "\u{c9}/x"], &["e"]),
        ("[!a]", &["b"], &["a"]),
        ("x{,y}", &["x", "xy"], &["xz"]),
        ("**", &["", "a", "a/b"], &[]),
    ];
    for (glob, denied, open) in cases {
        let worker = under(&host(), &Policy::new().deny_glob(glob));
        for name in *denied {
            check(&worker, &format!("read:file:/r/{name}"), &["*"], Deny);
        }
        for name in *open {
            check(&worker, &format!("read:file:/r/{name}"), &[], Allow);
        }
    }
}

#[test]
fn globs_that_cost_too_much_or_protect_nothing_are_refused() {
    let refused = |glob: &str| {
        let error = host()
            .admit(&Policy::new().deny_glob(glob), Origin::Human)
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.field()),
            (PolicyErrorKind::PolicyInvalid, "/deny/0"),
            "{glob}"
        );
    };
    let long = "a".repeat(513);
    for glob in [
        "",
        "/a",
        "a/",
        "./a",
        "a/../b",
        "a//b",
        "a\nb",
        "{a",
        "[z-a]",
        "x[\u{df}]",
        "{a,b}{c,d}{e,f}{g,h}{i,j}",
        &long,
    ] {
        refused(glob);
    }
    refused("{a,b,c,d,e,f,g,h,i}{a,b,c,d,e,f,g,h,i}");
    admitted(
        &host(),
        &Policy::new()
            .deny_glob(&"a".repeat(512))
            .deny_glob("{a,b}{c,d}{e,f}{g,h}"),
    );
    let list = Policy::parse(&json!({ "deny": vec!["a"; 1025] })).unwrap();
    assert_eq!(
        host().admit(&list, Origin::Human).unwrap_err().field(),
        "/deny"
    );
}

#[test]
fn a_need_for_files_as_a_whole_is_denied() {
    check(&host(), "read:file", &["*"], Deny);
    let open = configured(&json!({ "allow": ["read:mcp"], "grantable": ["write:mcp"] }));
    check(&open, "read:mcp", &[], Allow);
    check(&open, "write:mcp", &[], Ask);
    check(&open, "execute:mcp", &["*"], Deny);
    check(
        &under(&open, &Policy::new().deny("read:mcp:evil")),
        "read:mcp",
        &[],
        Deny,
    );
    check(
        &under(&open, &Policy::new().deny("read:mcp:evil")),
        "read:mcp:good",
        &[],
        Allow,
    );
    check(
        &under(&open, &Policy::new().deny("write:mcp:evil")),
        "read:mcp",
        &[],
        Allow,
    );
    check(
        &under(&open, &Policy::new().deny("read:cli:evil")),
        "read:mcp",
        &[],
        Allow,
    );
}

#[test]
fn roots_and_path_denies_do_not_speak_of_other_resources() {
    let open = configured(&json!({ "roots": [{ "path": "/r" }], "allow": ["read:mcp"] }));
    let worker = under(&open, &Policy::new().root("/r").deny("*:file:/r"));
    check(&worker, "read:mcp:x", &[], Allow);
    check(&worker, "read:file:/r/a", &[], Deny);
}

#[test]
fn flags_levels_and_verbs_close_what_they_name() {
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
fn what_a_configuration_leaves_unsaid_is_closed() {
    let host = host();
    assert!(!host.allows_escape() && !host.allows_network() && host.follows_symlinks());
    assert!(!host.read_only() && !host.requires_preview() && !host.requires_approval());
    assert_eq!(*host.limits(), Limits::default());
    check(
        &Authority::configured(&Config::new()).unwrap(),
        "read:file:/r",
        &["*"],
        Deny,
    );
}

#[test]
fn every_flag_is_joined_its_own_way() {
    let open = configured(&json!({ "allow_escape": true, "network": true }));
    assert!(open.allows_escape() && open.allows_network() && open.follows_symlinks());
    let closing = Policy::new()
        .allow_escape(false)
        .network(false)
        .follow_symlinks(false);
    let closing = closing
        .read_only(true)
        .require_preview(true)
        .require_approval(true);
    let child = under(&open, &closing);
    let grandchild = under(&child, &Policy::new());
    for worker in [&child, &grandchild] {
        assert!(!worker.allows_escape() && !worker.allows_network() && !worker.follows_symlinks());
        assert!(worker.read_only() && worker.requires_preview() && worker.requires_approval());
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

#[test]
fn every_limit_is_joined_to_the_tighter() {
    let budget = |calls, bytes_written, files_touched, children| Budget {
        calls,
        bytes_written,
        files_touched,
        children,
    };
    let one = Policy::new()
        .read_max_bytes(9)
        .write_max_bytes(8)
        .max_results(7)
        .max_calls(6)
        .ttl_ms(5)
        .min_interval_ms(4);
    let one = one.budget(budget(Some(9), None, Some(7), None));
    let child = under(&host(), &one);
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
    admitted(&child, &one);
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
fn sets_and_levels_may_only_shrink() {
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
fn a_mount_is_reached_only_if_every_layer_leaves_something_of_it() {
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
fn an_explanation_names_the_layer_the_rule_and_the_smallest_grant() {
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
            explained.grant.map(|grant| grant.to_string()),
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
        "deny: configuration: no configured root holds it with that access (roots)"
    );
}

#[test]
fn an_explanation_tells_globs_of_one_root_from_those_of_all() {
    let root = json!({ "path": "/r", "deny": ["a"], "immutable": ["i"] });
    let policy = json!({ "roots": [root], "deny": ["b"], "immutable": ["j"] });
    let worker = under(&host(), &Policy::parse(&policy).unwrap());
    let pattern = |need: &str| worker.explain(&need.parse().unwrap(), &[]).pattern;
    assert_eq!(pattern("read:file:/r/a").as_deref(), Some("a"));
    assert_eq!(pattern("read:file:/r/b").as_deref(), Some("b"));
    assert_eq!(pattern("write:file:/r/i").as_deref(), Some("i"));
    assert_eq!(pattern("write:file:/r/j").as_deref(), Some("j"));
}

fn strict(allow: &[&str]) -> Authority {
    let allow: Vec<_> = allow.iter().collect();
    configured(
        &json!({ "strict": true, "roots": [{ "path": "/r", "allow": allow }, { "path": "/s" }] }),
    )
}

fn asking(root: &str, allow: &[&str]) -> Policy {
    Policy::parse(&json!({ "roots": [{ "path": root, "allow": allow }] })).unwrap()
}

#[track_caller]
fn witnessed(issuer: &Authority, policy: &Policy) -> String {
    let error = issuer.admit(policy, Origin::Model).unwrap_err();
    assert_eq!(
        (error.kind(), error.field()),
        (PolicyErrorKind::PolicyExpansion, "/roots/0/allow")
    );
    let witness = error.witness_path().unwrap().to_owned();
    let child = Authority::configured(&Config::new().root(RootConfig::new(path("/")))).unwrap();
    let need = format!("read:file:{witness}");
    check(&under(&child, policy), &need, &[], Allow);
    check(issuer, &need, &[], Deny);
    witness
}

#[test]
fn strict_mode_refuses_a_wider_allow_with_a_path_that_shows_it() {
    let issuer = strict(&["src/**", "*.md"]);
    assert_eq!(witnessed(&issuer, &asking("/r", &["src/**", "*"])), "/r/a");
    assert_eq!(witnessed(&issuer, &asking("/r", &["**/*.md"])), "/r/a/.md");
    witnessed(&issuer, &asking("/r", &["**"]));
    witnessed(&issuer, &asking("/r/doc", &["x"]));
    witnessed(&strict(&["src/*.rs"]), &asking("/r/src", &["*.{rs,c}"]));
}

#[test]
fn strict_mode_admits_what_is_included() {
    let issuer = strict(&["src/**", "*.md"]);
    admitted(&issuer, &asking("/r", &["src/**"]));
    admitted(
        &issuer,
        &asking("/r", &["src/*.rs", "READ*.md", "{src,src/a}/x"]),
    );
    admitted(&issuer, &asking("/r/src", &["**"]));
    admitted(&issuer, &asking("/r/src", &["a/**"]));
    admitted(&issuer, &asking("/s", &["**"]));
    admitted(&issuer, &asking("/r", &[]));
    admitted(&issuer, &Policy::new().root("/r"));
}

#[test]
fn strict_mode_compares_with_every_layer() {
    let child = under(&strict(&[]), &asking("/r", &["a/**", "b"]));
    admitted(&child, &asking("/r", &["a/x"]));
    assert_eq!(witnessed(&child, &asking("/r", &["c", "b"])), "/r/c");
    let lax = configured(&json!({ "roots": [{ "path": "/r", "allow": ["a"] }] }));
    admitted(&lax, &asking("/r", &["**"]));
}

#[test]
fn a_configuration_is_read_or_refused_at_its_place() {
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
        "strict": true, "otel_endpoint": "http://localhost", "max_calls": 3,
    }));
    let config = config.unwrap();
    assert_eq!(config.namespace().default_root(), Some(&path("/s")));
    assert_eq!(config.policy, Policy::new().max_calls(3));
    assert_eq!(config.otel_endpoint.as_deref(), Some("http://localhost"));
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
fn a_configuration_with_a_bad_glob_gives_no_authority() {
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
