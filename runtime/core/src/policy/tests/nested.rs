//! Tests of nested roots against an oracle without globs or layers.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::{cases, check, compiled, configured, path, under};
use crate::config::{Config, RootConfig};
use crate::policy::{Authority, Policy, Verdict};
use crate::scope::{Coverage, Scope};

use Verdict::{Allow, Ask, Deny};

/// Rules of one root. Each of its lists names `k`, at any depth.
#[derive(Clone, Copy, Debug)]
struct Root {
    path: &'static str,
    writable: bool,
    blocked: bool,
    /// Only files named `k` are open in it.
    allow: bool,
    /// Files named `k` are denied.
    deny: bool,
    /// Files named `k` cannot be changed.
    immutable: bool,
}

impl Root {
    /// All roots at `path`; a policy has no access level.
    fn every(path: &'static str, access: &[bool]) -> Vec<Option<Self>> {
        let mut all = vec![None];
        for &writable in access {
            for bits in 0..16_u8 {
                all.push(Some(Self {
                    path,
                    writable,
                    blocked: bits & 1 != 0,
                    allow: bits & 2 != 0,
                    deny: bits & 4 != 0,
                    immutable: bits & 8 != 0,
                }));
            }
        }
        all
    }

    fn holds(&self, path: &str) -> bool {
        let mut names = path.split('/');
        self.path.split('/').all(|name| names.next() == Some(name))
    }

    fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("path".into(), self.path.into());
        let mut add = |said: bool, key: &str, value: Value| {
            said.then(|| members.insert(key.into(), value));
        };
        add(!self.writable, "access", "read".into());
        add(self.blocked, "blocked", true.into());
        add(self.allow, "allow", json!(["**/k"]));
        add(self.deny, "deny", json!(["**/k"]));
        add(self.immutable, "immutable", json!(["**/k"]));
        members.into()
    }
}

const PLACES: [&str; 3] = ["/r", "/r/a", "/r/a/b"];

const PATHS: &[&str] = &[
    "/r", "/r/k", "/r/x", "/r/a", "/r/a/k", "/r/a/x", "/r/a/b", "/r/a/b/k", "/r/a/b/x", "/o/k",
];

/// The innermost root that contains the path.
fn innermost<'r>(roots: &'r [Root], path: &str) -> Option<&'r Root> {
    let holding = roots.iter().filter(|root| root.holds(path));
    holding.max_by_key(|root| root.path.len())
}

/// The verdict of the deny lists of all roots that contain the path, and of the innermost root. `outside` is the verdict
/// on paths that no root allows.
fn oracle(roots: &[Root], write: bool, path: &str, outside: Verdict) -> Verdict {
    let named = path.ends_with("/k");
    let taken = |root: &Root| named && (root.deny || root.immutable && write);
    if roots.iter().any(|root| root.holds(path) && taken(root)) {
        return Deny;
    }
    match innermost(roots, path) {
        Some(root) if root.blocked || root.allow && !named => Deny,
        Some(root) if root.writable || !write => Allow,
        Some(_) | None => outside,
    }
}

fn combined(all: &[Vec<Option<Root>>; 3], mut visit: impl FnMut(&[Root])) {
    let [outer, middle, inner] = all;
    for outer in outer {
        for middle in middle {
            for inner in inner {
                let roots: Vec<Root> = [*outer, *middle, *inner].into_iter().flatten().collect();
                visit(&roots);
            }
        }
    }
}

fn needs() -> Vec<(bool, &'static str, Scope)> {
    let both = PATHS
        .iter()
        .flat_map(|path| [(false, *path), (true, *path)]);
    both.map(|(write, path)| {
        let verb = if write { "write" } else { "read" };
        (write, path, format!("{verb}:file:{path}").parse().unwrap())
    })
    .collect()
}

fn array(roots: &[Root]) -> Value {
    roots.iter().map(Root::json).collect()
}

#[test]
fn innermost_configured_root_decides() {
    let needs = needs();
    let granted: Vec<Coverage> = vec!["*:file:/r/a".parse().unwrap()];
    let mut seen = 0_u64;
    combined(
        &PLACES.map(|path| Root::every(path, &[true, false])),
        |roots| {
            let config = json!({ "roots": array(roots), "grantable": ["*:file:/r/a"] });
            let host = Authority::configured(&Config::parse(&config).unwrap()).unwrap();
            for (write, path, need) in &needs {
                let grantable = *path == "/r/a" || path.starts_with("/r/a/");
                let outside = if grantable { Ask } else { Deny };
                let expected = oracle(roots, *write, path, outside);
                assert_eq!(host.judge(need, &[]), expected, "{need} in {config}");
                let expected = if expected == Ask { Allow } else { expected };
                assert_eq!(
                    host.judge(need, &granted),
                    expected,
                    "{need} granted in {config}"
                );
            }
            for path in PATHS {
                let had = |need: &(bool, &str, Scope)| {
                    need.1.starts_with(path) && host.judge(&need.2, &[]) != Deny
                };
                let reached = host.reaches(&super::path(path));
                assert!(reached || !needs.iter().any(had), "{path} in {config}");
            }
            seen += 1;
        },
    );
    assert_eq!(seen, 33 * 33 * 33);
}

#[test]
fn innermost_policy_root_decides() {
    let needs = needs();
    let host = configured(&json!({ "roots": [{ "path": "/" }] }));
    let mut seen = 0_u64;
    combined(&PLACES.map(|path| Root::every(path, &[true])), |roots| {
        let policy = Policy::parse(&json!({ "roots": array(roots) })).unwrap();
        let worker = under(&host, &policy);
        // A policy that only blocks paths allows the rest.
        let open = !roots.is_empty() && roots.iter().all(|root| root.blocked);
        for (write, path, need) in &needs {
            let expected = oracle(roots, *write, path, if open { Allow } else { Deny });
            assert_eq!(worker.judge(need, &[]), expected, "{need} under {policy:?}");
        }
        seen += 1;
    });
    assert_eq!(seen, 17 * 17 * 17);
}

#[test]
fn nested_read_only_root_denies_writes() {
    let host = configured(&json!({ "roots": [
        { "path": "/repo" },
        { "path": "/repo/vendor", "access": "read" },
    ] }));
    check(&host, "write:file:/repo/vendor/x", &["*"], Deny);
    check(&host, "write:file:/repo/vendor", &["*"], Deny);
    check(&host, "read:file:/repo/vendor/x", &[], Allow);
    check(&host, "write:file:/repo/vendored", &[], Allow);
    check(&host, "write:file:/repo/src/x", &[], Allow);
}

#[test]
fn nested_writable_root_allows_writes() {
    let host = configured(&json!({ "roots": [
        { "path": "/repo/out" },
        { "path": "/repo", "access": "read" },
    ] }));
    check(&host, "write:file:/repo/out/x", &[], Allow);
    check(&host, "write:file:/repo/x", &["*"], Deny);
    check(&host, "read:file:/repo/x", &[], Allow);
}

#[test]
fn nested_root_decides_in_every_spelling() {
    let config = Config::new()
        .root(RootConfig::new(path("/repo")))
        .root(RootConfig::read_only(path("/repo/Vendor")))
        .root(RootConfig {
            blocked: true,
            ..RootConfig::new(path("/repo/keys"))
        });
    let host = Authority::configured(&config).unwrap();
    check(&host, "write:file:/repo/vendor/x", &[], Deny);
    check(&host, "read:file:/repo/vendor/x", &[], Allow);
    check(&host, "read:file:/repo/KEYS/x", &[], Deny);
    check(&host, "write:file:/repo/src/X", &[], Allow);
}

#[test]
fn roots_with_two_spellings_of_one_path_must_both_allow() {
    let config = Config::new()
        .root(RootConfig::new(path("/repo/out")))
        .root(RootConfig::read_only(path("/repo/OUT")))
        .root(RootConfig::new(path("/repo/src")));
    let host = Authority::configured(&config).unwrap();
    check(&host, "write:file:/repo/out/x", &[], Deny);
    check(&host, "read:file:/repo/out/x", &[], Allow);
    check(&host, "write:file:/repo/src/x", &[], Allow);

    let policy = Policy::new()
        .root("/repo/src")
        .block("/repo/SRC")
        .root("/repo/out");
    let worker = host.overlay(&compiled(&policy));
    check(&worker, "read:file:/repo/src/x", &[], Deny);
    check(&worker, "read:file:/repo/SRC/x", &[], Deny);
    check(&worker, "read:file:/repo/out/x", &[], Allow);
}

proptest! {
    #![proptest_config(cases())]

    /// The verdict does not depend on the order of the roots.
    #[test]
    fn order_of_nested_roots_is_irrelevant(
        said in proptest::collection::vec((select(&PLACES[..]), any::<[bool; 5]>()), 0..5),
        need in select(needs()),
    ) {
        let root = |(path, [writable, blocked, allow, deny, immutable]): &(&'static str, [bool; 5])| Root {
            path, writable: *writable, blocked: *blocked, allow: *allow, deny: *deny, immutable: *immutable,
        };
        let mut roots: Vec<Root> = said.iter().map(root).collect();
        let judge = |roots: &[Root]| {
            let host = configured(&json!({ "roots": array(roots), "grantable": ["write:file:/r/a"] }));
            host.judge(&need.2, &[])
        };
        let written = judge(&roots);
        roots.reverse();
        prop_assert_eq!(judge(&roots), written);
    }

    /// A grant turns ask into allow, and nothing else.
    #[test]
    fn closing_a_nested_root_never_widens(
        said in proptest::collection::vec((select(&PLACES[..2]), any::<[bool; 5]>()), 0..3),
        need in select(needs()),
    ) {
        let root = |(path, [writable, blocked, allow, deny, immutable]): &(&'static str, [bool; 5])| Root {
            path, writable: *writable, blocked: *blocked, allow: *allow, deny: *deny, immutable: *immutable,
        };
        let outer: Vec<Root> = said.iter().map(root).collect();
        let judge = |blocked, writable| {
            let inner = Root { path: "/r/a/b", writable, blocked, allow: false, deny: false, immutable: false };
            let roots: Vec<Root> = outer.iter().copied().chain([inner]).collect();
            configured(&json!({ "roots": array(&roots) })).judge(&need.2, &[])
        };
        prop_assert!(judge(true, true) >= judge(false, false));
        prop_assert!(judge(false, false) >= judge(false, true));
    }
}
