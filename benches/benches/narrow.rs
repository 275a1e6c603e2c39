//! The cost of narrowing a worker by a cached or new policy fragment.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::hint::black_box;
use std::time::Duration;

use bailiwick::config::RootConfig;
use bailiwick::policy::Authority;
use bailiwick::{Config, Origin, Policy, VirtualPath};
use bailiwick_benches::{Benchmark, Target};
use globset::{GlobBuilder, GlobSetBuilder};

fn main() {
    let config = Config::new().root(RootConfig::new(VirtualPath::parse("/r", None).unwrap()));
    let host = Authority::configured(&config).unwrap();
    let cached = policy(&globs(0));
    let mut fresh = 0;
    let mut next = || {
        fresh += 1;
        globs(fresh)
    };
    let narrow = |policy: &Policy| {
        let layer = host.admit(policy, Origin::Model).unwrap();
        black_box(host.narrow(&layer));
    };
    narrow(&cached);
    let baseline = |globs: &[String]| {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let mut glob = GlobBuilder::new(glob);
            set.add(glob.literal_separator(true).build().unwrap());
        }
        black_box(set.build().unwrap());
    };
    let same = globs(0);
    Benchmark::new("narrow by a fragment with 10 globs", Duration::from_secs(8))
        .case("GlobSet of the 10 globs", Target::None, 20, |n| {
            for _ in 0..n {
                baseline(&same);
            }
        })
        .case(
            "admit and narrow, seen before",
            Target::Nanos(1_500.0),
            2_000,
            |n| {
                for _ in 0..n {
                    narrow(black_box(&cached));
                }
            },
        )
        .case(
            "admit and narrow, new",
            Target::Nanos(1_500_000.0),
            10,
            |n| {
                for _ in 0..n {
                    narrow(&policy(&next()));
                }
            },
        )
        .run();
}

fn globs(fragment: u32) -> Vec<String> {
    (0..10)
        .map(|n| match n % 3 {
            0 => format!("**/.secret-{fragment}-{n}"),
            1 => format!("private-{fragment}-{n}/**"),
            _ => format!("**/*.key{fragment}{n}"),
        })
        .collect()
}

fn policy(globs: &[String]) -> Policy {
    let open = Policy::new().allow("read:file:/r");
    globs
        .iter()
        .fold(open, |policy, glob| policy.deny_glob(glob))
}
