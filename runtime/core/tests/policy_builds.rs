//! Counts the glob sets compiled for policies. Alone in its process, since the counter is shared.

use bailiwick::config::RootConfig;
use bailiwick::policy::{Authority, glob_builds};
use bailiwick::{Config, Origin, Policy, Scope, Verdict, VirtualPath};
use serde_json::json;

#[test]
fn repeated_policy_compiles_no_glob_set() {
    let root = RootConfig::new(VirtualPath::parse("/r", None).unwrap());
    let host = Authority::configured(&Config::new().root(root)).unwrap();
    let fragment = json!({
        "roots": [{ "path": "/r/a", "allow": ["**/*.rs"], "deny": ["**/*.key"] }],
        "immutable": ["**/*.lock"],
    });
    let need: Scope = "read:file:/r/a/x.rs".parse().unwrap();
    let call = || {
        let policy = Policy::parse(&fragment).unwrap();
        let layer = host.admit(&policy, Origin::Model).unwrap();
        assert_eq!(host.overlay(&layer).judge(&need, &[]), Verdict::Allow);
    };
    let before = glob_builds();
    call();
    let after_the_first = glob_builds();
    assert_eq!(after_the_first, before + 3);
    for _ in 0..1_000 {
        call();
    }
    assert_eq!(glob_builds(), after_the_first);
}
