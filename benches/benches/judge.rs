//! The cost of authorizing one need under five layers with 100 globs and 20 grants.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::hint::black_box;
use std::time::Duration;

use bailiwick::config::RootConfig;
use bailiwick::policy::{Authority, VerdictCache, glob_builds};
use bailiwick::scope::Coverage;
use bailiwick::{Config, Origin, Policy, Scope, Verb, Verdict, VirtualPath};
use bailiwick_benches::{Benchmark, Target};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

const BATCH: u32 = 5_000;
const LAYERS: usize = 5;
const GLOBS: usize = 20;

fn main() {
    let authority = authority();
    let grants: Vec<Coverage> = (0..20)
        .map(|n| format!("write:file:/r/granted/{n}").parse().unwrap())
        .collect();
    let path = |text: &str| VirtualPath::parse(text, None).unwrap();
    let allowed = Scope::file(Verb::Read, path("/r/src/policy/narrow.rs"));
    let granted = Scope::file(Verb::Write, path("/r/granted/19/notes.md"));
    assert_eq!(authority.judge(&allowed, &grants), Verdict::Allow);
    assert_eq!(authority.judge(&granted, &[]), Verdict::Ask);
    assert_eq!(authority.judge(&granted, &grants), Verdict::Allow);

    let (single, layered) = (one_set(), globs_of_layers());
    let built = glob_builds();
    Benchmark::new(
        "judge one need, 5 layers, 100 globs, 20 grants",
        Duration::from_secs(8),
    )
    .case("GlobSet of the 100 globs alone", Target::None, BATCH, |n| {
        for _ in 0..n {
            assert!(!single.is_match(black_box("src/policy/narrow.rs")));
        }
    })
    .case("5 GlobSets of 20 globs", Target::None, BATCH, |n| {
        for _ in 0..n {
            let path = black_box("src/policy/narrow.rs");
            assert!(!layered.iter().any(|set| set.is_match(path)));
        }
    })
    .case(
        "Authority::judge, allowed",
        Target::Nanos(400.0),
        BATCH,
        |n| {
            for _ in 0..n {
                let verdict = authority.judge(black_box(&allowed), &grants);
                assert_eq!(verdict, Verdict::Allow);
            }
        },
    )
    .case(
        "VerdictCache::judge, cached",
        Target::Nanos(60.0),
        BATCH,
        |n| {
            let mut cache = VerdictCache::new(authority.clone());
            for _ in 0..n {
                let verdict = cache.judge(&authority, black_box(&allowed), &[]);
                assert_eq!(verdict, Verdict::Allow);
            }
        },
    )
    .case(
        "Authority::judge, by the last grant",
        Target::None,
        BATCH,
        |n| {
            for _ in 0..n {
                let verdict = authority.judge(black_box(&granted), &grants);
                assert_eq!(verdict, Verdict::Allow);
            }
        },
    )
    .run();
    assert_eq!(glob_builds(), built, "judging compiles no glob");
}

/// Typical globs: names, directories and extensions.
fn globs(layer: usize) -> Vec<String> {
    (0..GLOBS)
        .map(|n| match n % 4 {
            0 => format!("**/.secret-{layer}-{n}"),
            1 => format!("private-{layer}-{n}/**"),
            2 => format!("**/*.key{layer}{n}"),
            _ => format!("build/**/out-{layer}-{n}/*.o"),
        })
        .collect()
}

fn authority() -> Authority {
    let config = Config::new().root(RootConfig::new(VirtualPath::parse("/r", None).unwrap()));
    let host = Authority::configured(&config).unwrap();
    (0..LAYERS).fold(host, |authority, layer| {
        let open = Policy::new().allow("read:file:/r").ask("write:file:/r");
        let policy = globs(layer)
            .iter()
            .fold(open, |policy, glob| policy.deny_glob(glob));
        let layer = authority.admit(&policy, Origin::Human).unwrap();
        authority.narrow(&layer)
    })
}

fn set_of(globs: impl IntoIterator<Item = String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let mut glob = GlobBuilder::new(&glob);
        set.add(glob.literal_separator(true).build().unwrap());
    }
    set.build().unwrap()
}

fn one_set() -> GlobSet {
    set_of((0..LAYERS).flat_map(globs))
}

fn globs_of_layers() -> Vec<GlobSet> {
    (0..LAYERS).map(|layer| set_of(globs(layer))).collect()
}
