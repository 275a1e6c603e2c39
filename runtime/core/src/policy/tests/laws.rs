//! Property tests on generated configurations, chains of policies, needs and grants.

use std::sync::{Arc, LazyLock};

use bailiwick_test_support::json::with_further_member;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::{cases, compiled, few_cases};
use crate::call::Origin;
use crate::config::{Config, Restriction, RootConfig};
use crate::path::VirtualPath;
use crate::policy::{Access, Authority, Fields, Layer, Policy, Verdict, VerdictCache};
use crate::scope::{Coverage, Scope, ScopePattern, Verb};

static HOST: LazyLock<Authority> = LazyLock::new(|| {
    let config = json!({
        "roots": [
            { "path": "/r", "deny": ["**/.git/**"], "immutable": ["*.lock"] },
            { "path": "/r/a", "access": "read" },
            { "path": "/s", "access": "read", "allow": ["a/**", "*.rs"] },
        ],
        "grantable": ["read:file", "write:file:/new", "execute:cli"],
        "allow": ["execute:cli:safe"],
        "network": true,
    });
    Authority::configured(&Config::parse(&config).unwrap()).unwrap()
});

const PATTERNS: &[&str] = &[
    "*",
    "read",
    "write",
    "read:file",
    "write:file",
    "write:file:/r",
    "read:file:/r/a",
    "write:file:/r/a/b",
    "read:file:/s",
    "write:file:/new",
    "execute:cli",
    "execute:cli:safe",
    "*:file:/r/b",
];

const GLOBS: &[&str] = &["**/*.key", "a/**", "b", "**/.env", "{a,b}/c", "*.rs", "**"];

const ROOTS: &[&str] = &["/r", "/r/a", "/r/a/b", "/s", "/new", "/r/b"];

pub(super) static NEEDS: LazyLock<Vec<Scope>> = LazyLock::new(|| {
    let paths = [
        "/",
        "/r",
        "/r/a",
        "/r/a/b",
        "/r/a/b/k.key",
        "/r/b",
        "/r/b/c",
        "/r/.git/config",
        "/r/x.lock",
        "/r/AGENTS.md",
        "/s",
        "/s/a",
        "/s/m.rs",
        "/s/b/.env",
        "/new/f",
        "/rr",
        "/R/A/B",
    ];
    let files = paths
        .iter()
        .flat_map(|path| ["read", "write"].map(|verb| format!("{verb}:file:{path}")));
    let others = [
        "execute:cli:safe:ls",
        "execute:cli:rm",
        "execute:cli",
        "read:network:x",
        "read:file",
        "execute:file:/r/a",
    ];
    files
        .chain(others.map(str::to_owned))
        .map(|text| text.parse().unwrap())
        .collect()
});

fn patterns(delegates: bool) -> impl Strategy<Value = Policy> {
    let some = || proptest::option::weighted(0.3, subsequence(PATTERNS, 0..4));
    let handed = if delegates {
        some().boxed()
    } else {
        Just(None).boxed()
    };
    let otherwise = proptest::option::weighted(0.3, select(&Verdict::ALL[..]));
    (some(), some(), some(), handed, otherwise).prop_map(|(allow, ask, deny, handed, otherwise)| {
        let parsed = |list: Option<Vec<&str>>| -> Option<Vec<ScopePattern>> {
            list.map(|list| list.into_iter().map(|text| text.parse().unwrap()).collect())
        };
        let mut policy = Policy::new();
        policy.fields.scopes.allow = parsed(allow);
        policy.fields.scopes.ask = parsed(ask);
        policy.fields.scopes.deny = parsed(deny);
        policy.fields.scopes.delegate_only = parsed(handed);
        policy.fields.scopes.otherwise = otherwise;
        policy
    })
}

fn globs() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        3 => Just(Vec::new()),
        1 => select(GLOBS).prop_map(|glob| vec![glob.to_owned()]),
    ]
}

fn subtree() -> impl Strategy<Value = Value> {
    let allow = proptest::option::weighted(0.3, globs());
    let blocked = proptest::option::weighted(0.3, any::<bool>());
    (select(ROOTS), blocked, allow, globs(), globs()).prop_map(|(path, blocked, allow, deny, immutable)| {
        json!({ "path": path, "blocked": blocked, "allow": allow, "deny": deny, "immutable": immutable })
    })
}

fn policy_with(delegates: bool) -> impl Strategy<Value = Policy> {
    let roots = proptest::option::weighted(0.4, proptest::collection::vec(subtree(), 0..3));
    let verbs = proptest::option::weighted(0.2, subsequence(&Verb::ALL[..], 0..=3));
    let access = proptest::option::weighted(0.2, select(&Access::ALL[..]));
    let flags = proptest::option::weighted(0.3, any::<[bool; 3]>());
    let limit = proptest::option::weighted(0.3, 0..3_u64);
    (
        patterns(delegates),
        roots,
        globs(),
        globs(),
        verbs,
        access,
        flags,
        limit,
    )
        .prop_map(
            |(scopes, roots, deny, immutable, verbs, access, flags, limit)| {
                let mut policy = Policy::parse(&json!({ "roots": roots })).unwrap();
                policy.fields.scopes = scopes.fields.scopes;
                policy.fields.deny = deny;
                policy.fields.immutable = immutable;
                policy.fields.sets.verbs = verbs.map(|verbs| verbs.into_iter().collect());
                policy.fields.access = access;
                if let Some([read_only, approval, network]) = flags {
                    policy = policy
                        .read_only(read_only)
                        .require_approval(approval)
                        .network(network);
                }
                match limit {
                    Some(limit) => policy.max_calls(limit).min_interval_ms(limit),
                    None => policy,
                }
            },
        )
}

pub(super) fn layer(delegates: bool) -> impl Strategy<Value = Layer> {
    policy_with(delegates).prop_map(|policy| compiled(&policy))
}

pub(super) fn chain(delegates: bool) -> impl Strategy<Value = Authority> {
    proptest::collection::vec(layer(delegates), 0..3).prop_map(|layers| {
        layers
            .iter()
            .fold(HOST.clone(), |parent, layer| parent.narrow(layer))
    })
}

pub(super) fn need() -> impl Strategy<Value = Scope> {
    select(&NEEDS[..])
}

pub(super) fn grants() -> impl Strategy<Value = Vec<Coverage>> {
    subsequence(PATTERNS, 0..3)
        .prop_map(|list| list.into_iter().map(|text| text.parse().unwrap()).collect())
}

fn roots() -> impl Strategy<Value = Vec<RootConfig>> {
    let root = (
        select(ROOTS),
        select(&Access::ALL[..]),
        globs(),
        globs(),
        globs(),
        proptest::bool::weighted(0.2),
    );
    let root = root.prop_map(
        |(path, access, allow, deny, immutable, blocked)| RootConfig {
            access,
            allow,
            deny,
            immutable,
            blocked,
            ..RootConfig::new(VirtualPath::parse(path, None).unwrap())
        },
    );
    proptest::collection::vec(root, 0..4)
}

pub(super) fn configuration() -> impl Strategy<Value = Config> {
    let patterns = || {
        subsequence(PATTERNS, 0..3)
            .prop_map(|list| list.into_iter().map(|text| text.parse().unwrap()).collect())
    };
    let restriction = (roots(), policy_with(true));
    let restriction = restriction.prop_map(|(roots, policy)| Restriction { roots, policy });
    (
        (roots(), any::<bool>()),
        patterns(),
        patterns(),
        globs(),
        any::<bool>(),
        policy_with(true),
        proptest::collection::vec(restriction, 0..3),
    )
        .prop_map(
            |((mut roots, default), grantable, allow, protect, strict, policy, restrictions)| {
                if let Some(first) = roots.first_mut() {
                    first.default = default;
                }
                Config {
                    roots,
                    grantable,
                    allow,
                    protect,
                    strict,
                    policy,
                    restrictions,
                }
            },
        )
}

fn top() -> Layer {
    compiled(&Policy::new())
}

/// The name with some letters spelt otherwise, though a file system may take it for the same.
fn respelt(text: &str, choices: &[u8]) -> String {
    let mut spelt = String::new();
    for (c, choice) in text.chars().zip(choices.iter().cycle()) {
        match choice % 4 {
            0 => spelt.extend(c.to_uppercase()),
            1 if c == 'k' => spelt.push('\u{212a}'),
            1 | 2 if c != '/' => spelt.extend([c, '\u{200d}']),
            _ => spelt.push(c),
        }
    }
    spelt
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn configuration_round_trip_keeps_all_verdicts(
        config in configuration(),
        granted in grants(),
    ) {
        let read = Config::parse(&config.to_json()).unwrap();
        let [one, other] = [&config, &read].map(|config| Authority::configured(config).unwrap());
        for need in &*NEEDS {
            prop_assert_eq!(one.judge(need, &granted), other.judge(need, &granted), "{}", need);
            let [why, same] = [&one, &other].map(|authority| authority.explain(need, &granted));
            prop_assert_eq!((why.verdict, why.layer, why.grant), (same.verdict, same.layer, same.grant));
            prop_assert_eq!(one.protects(need), other.protects(need), "{}", need);
        }
        prop_assert_eq!(one.limits(), other.limits());
        prop_assert_eq!(one.flags(), other.flags());
        prop_assert_eq!((one.access(), one.is_strict()), (other.access(), other.is_strict()));
        prop_assert_eq!(one.max_grantable(), other.max_grantable());
        prop_assert_eq!(one.open_folders(), other.open_folders());
        prop_assert_eq!(one.level(), other.level());
        let default = |config: &Config| config.namespace().default_root().cloned();
        prop_assert_eq!(default(&config), default(&read));
        prop_assert_eq!(read.to_json(), config.to_json());
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn overlay_never_widens(a in chain(true), p in layer(true), need in need(), grants in grants()) {
        prop_assert!(a.overlay(&p).judge(&need, &grants) >= a.judge(&need, &grants));
        prop_assert!(a.session(&p).judge(&need, &grants) >= a.judge(&need, &grants));
    }

    #[test]
    fn child_never_exceeds_its_parent(a in chain(false), p in layer(false), need in need(), grants in grants()) {
        prop_assert!(a.narrow(&p).judge(&need, &grants) >= a.judge(&need, &grants));
        prop_assert!(a.narrow(&p).judge(&need, &grants) >= HOST.judge(&need, &grants));
    }

    #[test]
    fn child_never_exceeds_what_its_parent_may_delegate(a in chain(true), p in layer(true), need in need(), grants in grants()) {
        prop_assert!(a.narrow(&p).judge(&need, &grants) >= a.narrow(&top()).judge(&need, &grants));
    }

    #[test]
    fn cached_verdicts_are_those_of_the_authority(
        a in chain(false),
        p in layer(false),
        order in proptest::collection::vec((any::<bool>(), need(), grants()), 1..40),
    ) {
        let narrowed = a.narrow(&p);
        let mut cache = VerdictCache::new(narrowed.clone());
        for (own, need, grants) in order {
            let authority = if own { &narrowed } else { &a };
            let verdict = cache.judge(authority, &need, &grants);
            prop_assert_eq!(verdict, authority.judge(&need, &grants), "{}", need);
        }
    }

    #[test]
    fn child_does_not_depend_on_earlier_children(
        a in chain(false),
        p in policy_with(false),
        q in policy_with(false),
        need in need(),
        grants in grants(),
    ) {
        for policy in [&p, &p, &q, &p] {
            for origin in [Origin::Human, Origin::Host, Origin::Model] {
                let child = a.child(&Arc::new(policy.clone()), origin);
                let alone = a.admit(policy, origin).map(|layer| a.narrow(&layer));
                match (child, alone) {
                    (Ok(child), Ok(alone)) => {
                        prop_assert_eq!(child.judge(&need, &grants), alone.judge(&need, &grants));
                        prop_assert_eq!(child.limits(), alone.limits());
                        prop_assert_eq!(child.open_folders(), alone.open_folders());
                    }
                    (child, alone) => prop_assert_eq!(child.err(), alone.err()),
                }
            }
        }
    }

    #[test]
    fn layers_are_commutative_and_idempotent(a in chain(true), p in layer(true), q in layer(true), need in need(), grants in grants()) {
        let judge = |authority: &Authority| {
            (authority.judge(&need, &grants), *authority.limits(), authority.flags(), authority.access())
        };
        let pq = a.overlay(&p).overlay(&q);
        prop_assert_eq!(judge(&pq), judge(&a.overlay(&q).overlay(&p)));
        prop_assert_eq!(judge(&a.overlay(&p).overlay(&p)), judge(&a.overlay(&p)));
        prop_assert_eq!(judge(&pq.overlay(&p)), judge(&pq));
        prop_assert_eq!(judge(&a.overlay(&top())), judge(&a));
    }

    #[test]
    fn verdict_is_the_maximum_of_all_layers(a in chain(true), p in layer(true), q in layer(true), need in need()) {
        let both = a.overlay(&p).overlay(&q).judge(&need, &[]);
        prop_assert_eq!(both, a.overlay(&p).judge(&need, &[]).max(a.overlay(&q).judge(&need, &[])));
    }

    #[test]
    fn order_of_list_entries_is_irrelevant(policy in policy_with(true), need in need()) {
        let mut turned = policy.clone();
        let lists = &mut turned.fields.scopes;
        for list in [&mut lists.allow, &mut lists.ask, &mut lists.deny, &mut lists.delegate_only] {
            list.iter_mut().for_each(|list| list.reverse());
        }
        turned.fields.roots.iter_mut().for_each(|roots| roots.reverse());
        let judge = |policy: &Policy| HOST.overlay(&compiled(policy)).judge(&need, &[]);
        prop_assert_eq!(judge(&policy), judge(&turned));
    }

    #[test]
    fn deny_scope_overrides_the_rest_of_a_policy(policy in policy_with(true), need in need(), grants in grants()) {
        let denied = policy.deny(&need.to_string()).allow("*");
        let worker = HOST.narrow(&compiled(&denied));
        prop_assert_eq!(worker.judge(&need, &grants), Verdict::Deny);
    }

    #[test]
    fn grants_only_turn_ask_into_allow(a in chain(true), need in need(), grants in grants()) {
        let before = a.judge(&need, &[]);
        let after = a.judge(&need, &grants);
        match before {
            Verdict::Ask => prop_assert!(after <= Verdict::Ask),
            Verdict::Allow | Verdict::Deny => prop_assert_eq!(after, before),
        }
        prop_assert!(after == before || grants.iter().any(|grant| grant.covers(&need)));
    }

    #[test]
    fn explanation_agrees_with_the_verdict_and_its_grant_suffices(a in chain(true), need in need(), grants in grants()) {
        let explained = a.explain(&need, &grants);
        prop_assert_eq!(explained.verdict, a.judge(&need, &grants));
        if let Some(grant) = explained.grant {
            prop_assert_eq!(a.judge(&need, &[grant]), Verdict::Allow);
        }
    }

    #[test]
    fn unreached_mount_denies_everything(a in chain(true), prefix in select(ROOTS), need in need()) {
        let prefix = crate::VirtualPath::parse(prefix, None).unwrap();
        let beneath = need.path().is_some_and(|path| path.starts_with(&prefix));
        prop_assert!(!beneath || a.reaches(&prefix) || a.judge(&need, &[]) == Verdict::Deny);
    }

    #[test]
    fn unknown_keys_are_rejected(policy in policy_with(true), key in "[a-z_]{1,12}", junk in any::<bool>()) {
        prop_assume!(crate::policy::keys::Key::find(&key).is_none());
        let mut value = serde_json::to_value(&policy).unwrap();
        prop_assert_eq!(&Policy::parse(&value).unwrap(), &policy);
        value.as_object_mut().unwrap().insert(key.clone(), junk.into());
        let error = Policy::parse(&value).unwrap_err();
        prop_assert_eq!(error.field(), format!("/{key}"));
    }

    #[test]
    fn unknown_keys_are_rejected_at_any_depth(policy in policy_with(true)) {
        let value = serde_json::to_value(&policy).unwrap();
        for value in with_further_member(&value, "unknown key") {
            prop_assert!(Policy::parse(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn denied_name_is_denied_in_every_spelling(
        policy in policy_with(false),
        path in select(&["/r/a/b", "/r/a/b/k.key", "/r/b/c", "/r/.git/config", "/r/x.lock", "/s/b/.env", "/s/m.rs"][..]),
        choices in proptest::collection::vec(any::<u8>(), 16),
    ) {
        let Fields { roots, deny, immutable, scopes, .. } = policy.fields;
        let fields = Fields {
            roots: roots.map(|roots| {
                let blocked = roots.into_iter().map(|root| crate::policy::PolicyRoot { blocked: Some(true), allow: None, ..root });
                blocked.collect()
            }),
            deny,
            immutable,
            scopes: crate::policy::scopes::ScopeLists { deny: scopes.deny, ..Default::default() },
            ..Fields::default()
        };
        let closing = Policy { fields, ..Policy::new() };
        let closed = HOST.overlay(&compiled(&closing));
        let spelt = crate::VirtualPath::parse(&respelt(path, &choices), None).unwrap();
        let path = crate::VirtualPath::parse(path, None).unwrap();
        for verb in [Verb::Read, Verb::Write] {
            let written = closed.judge(&Scope::file(verb, path.clone()), &[]);
            let otherwise = closed.judge(&Scope::file(verb, spelt.clone()), &[]);
            let plain = HOST.judge(&Scope::file(verb, path.clone()), &[]);
            prop_assert!(written == plain || written == Verdict::Deny);
            prop_assert!(written != Verdict::Deny || plain == Verdict::Deny || otherwise == Verdict::Deny, "{:?}", spelt);
        }
    }
}
