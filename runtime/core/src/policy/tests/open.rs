//! Tests of open folders: everything that may be used is reachable from them.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::{cases, compiled, configured, under};
use crate::policy::{Authority, Policy, Verdict};
use crate::scope::{Scope, Verb};

use Verdict::{Allow, Deny};

const PATHS: &[&str] = &[
    "/r", "/r/a", "/r/a/b", "/r/a/b/c", "/r/a/x", "/r/b", "/r/b/a", "/s", "/s/a", "/s/a/b",
];

fn shown(authority: &Authority) -> Vec<String> {
    let open = authority.open_folders();
    open.iter().map(ToString::to_string).collect()
}

fn verdict(authority: &Authority, verb: Verb, path: &str) -> Verdict {
    authority.judge(&Scope::file(verb, super::path(path)), &[])
}

/// The path and the folders above it, from the top down.
fn on_the_way(path: &str) -> impl Iterator<Item = &str> {
    let cuts = path.match_indices('/').map(|(at, _)| at).skip(1);
    cuts.chain([path.len()]).map(|at| path.get(..at).unwrap())
}

/// Whether `path` is reachable from an outermost folder through readable folders.
fn is_reached(authority: &Authority, path: &str) -> bool {
    let outermost = authority.open_folders();
    let mut outermost = outermost.iter().filter(|folder| folder.is_outermost());
    outermost.any(|folder| {
        let begins = super::path(path).starts_with(&folder.path);
        let mut way = on_the_way(path).filter(|step| step.len() >= folder.path.as_str().len());
        begins && way.all(|step| verdict(authority, Verb::Read, step) != Deny)
    })
}

#[test]
fn open_folders_follow_the_policy() {
    let host =
        configured(&json!({ "roots": [{ "path": "/r" }, { "path": "/s", "access": "read" }] }));
    assert_eq!(shown(&host), ["`/r` (read and write)", "`/s` (read only)"]);
    let policy = Policy::new().root("/r/src").root("/s");
    assert_eq!(
        shown(&under(&host, &policy)),
        ["`/r/src` (read and write)", "`/s` (read only)"]
    );
    let policy = Policy::new()
        .allow("read:file:/r/src")
        .ask("write:file:/r/src/parser");
    assert_eq!(
        shown(&under(&host, &policy)),
        [
            "`/r/src` (read only)",
            "`/r/src/parser` (read; writes need approval)"
        ]
    );
    let policy = Policy::new().root("/r").block("/r/a").root("/r/a/b");
    assert_eq!(
        shown(&under(&host, &policy)),
        ["`/r` (read and write)", "`/r/a/b` (read and write)"]
    );
    let policy = json!({ "roots": [{ "path": "/r", "allow": ["src/**", "docs/a.txt", "*.md"] }] });
    let policy = Policy::parse(&policy).unwrap();
    assert_eq!(
        shown(&under(&host, &policy)),
        [
            "`/r/docs/a.txt` (read and write)",
            "`/r/src` (read and write)"
        ]
    );
    assert_eq!(shown(&under(&host, &Policy::new().verbs([]))), [""; 0]);
}

/// A root of a configuration or policy, without `allow` globs, which may allow files in folders that cannot be read.
fn root(configured: bool) -> impl Strategy<Value = Value> {
    let globs = subsequence(vec!["b", "a/b", "c/**"], 0..2);
    let flags = (any::<bool>(), any::<bool>());
    (select(PATHS), globs, flags).prop_map(move |(path, deny, (blocked, read))| {
        let mut root = json!({ "path": path, "deny": deny, "blocked": blocked && path != "/r" });
        if configured && read {
            root["access"] = json!("read");
        }
        root
    })
}

fn pattern() -> impl Strategy<Value = String> {
    let verbs = select(vec!["read", "write", "*"]);
    let place = prop_oneof![
        Just(String::new()),
        select(PATHS).prop_map(|path| format!(":{path}"))
    ];
    (verbs, place).prop_map(|(verb, place)| format!("{verb}:file{place}"))
}

fn policy() -> impl Strategy<Value = Policy> {
    let list = || proptest::collection::vec(pattern(), 0..3);
    let lists = (list(), list(), list(), list());
    let roots = proptest::option::of(proptest::collection::vec(root(false), 1..3));
    let otherwise = select(vec!["allow", "ask", "deny"]);
    (lists, roots, otherwise).prop_map(|((allow, ask, deny, handed), roots, otherwise)| {
        let mut policy = json!({
            "allow_scopes": allow, "ask_scopes": ask, "deny_scopes": deny, "delegate_only": handed,
            "otherwise": otherwise,
        });
        if let Some(roots) = roots {
            policy["roots"] = json!(roots);
        }
        Policy::parse(&policy).unwrap()
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn open_folders_are_usable_and_usable_paths_are_reached(
        roots in proptest::collection::vec(root(true), 1..4),
        policies in proptest::collection::vec(policy(), 0..3),
    ) {
        let mut worker = configured(&json!({ "roots": roots }));
        for policy in &policies {
            worker = worker.narrow(&compiled(policy));
        }
        let open = worker.open_folders();
        for folder in open {
            let path = folder.path.as_str();
            prop_assert_eq!(verdict(&worker, Verb::Read, path), folder.read);
            prop_assert_eq!(verdict(&worker, Verb::Write, path), folder.write);
            prop_assert!((folder.read, folder.write) != (Deny, Deny), "{}", path);
            prop_assert!(!folder.is_outermost() || is_reached(&worker, path), "{}", path);
        }
        for path in PATHS {
            if verdict(&worker, Verb::Read, path) != Deny {
                prop_assert!(is_reached(&worker, path), "{} from {:?}", path, open);
            }
            if verdict(&worker, Verb::Write, path) == Allow {
                let holds = open.iter().any(|folder| {
                    folder.write == Allow && super::path(path).starts_with(&folder.path)
                });
                prop_assert!(holds, "{} in {:?}", path, open);
            }
        }
    }

    #[test]
    fn verdicts_in_a_uniform_subtree_are_equal(
        roots in proptest::collection::vec(root(true), 1..4),
        policies in proptest::collection::vec(policy(), 0..3),
    ) {
        let mut worker = configured(&json!({ "roots": roots }));
        for policy in &policies {
            worker = worker.narrow(&compiled(policy));
        }
        for top in PATHS.iter().filter(|top| worker.is_uniform(&super::path(top), &[])) {
            let beneath = PATHS.iter().filter(|path| super::path(path).starts_with(&super::path(top)));
            for path in beneath {
                let verdicts = |path| {
                    let write = verdict(&worker, Verb::Write, path);
                    (verdict(&worker, Verb::Read, path), write == Deny)
                };
                prop_assert_eq!(verdicts(path), verdicts(top), "{} in {}", path, top);
            }
        }
    }
}

#[test]
fn subtree_is_uniform_unless_a_rule_may_match_beneath_it() {
    let host =
        configured(&json!({ "roots": [{ "path": "/r" }, { "path": "/r/b", "access": "read" }] }));
    let uniform = |authority: &Authority, path| authority.is_uniform(&super::path(path), &[]);
    assert!(!uniform(&host, "/r"));
    assert!(uniform(&host, "/r/a"));
    assert!(uniform(&host, "/r/b"));
    for rule in [
        Policy::new().deny_glob("**/.env"),
        Policy::new().immutable_glob("x"),
        Policy::new().allow("read:file:/r/a/b"),
        Policy::new().ask("write:file:/r/a/b/c"),
        Policy::new().deny("write:file:/R/A/b"),
        Policy::new().root("/r").block("/r/a/b"),
    ] {
        assert!(!uniform(&under(&host, &rule), "/r/a"), "{rule:?}");
    }
    let granted: Scope = "read:file:/r/a/x".parse().unwrap();
    let granted = [crate::scope::Coverage::of(&granted)];
    assert!(!host.is_uniform(&super::path("/r/a"), &granted));
    assert!(host.is_uniform(&super::path("/r/a/b"), &granted));
}
