//! Policies: any JSON is parsed or rejected with the place of the error, and a child with a policy is allowed nothing
//! that its parent is not.
//!
//! An input is an object with `config`, `policies` (each one below the one before) and `needs`.
#![no_main]

use bailiwick::json::read_json;
use bailiwick::policy::{Authority, PolicyError};
use bailiwick::scope::Coverage;
use bailiwick::{Config, Origin, Policy, Scope, Verdict};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The error names a member that exists, or could.
fn check(error: &PolicyError) {
    let field = error.field();
    assert!(field.is_empty() || field.starts_with('/'), "{field}");
    assert!(!error.to_string().is_empty());
}

/// What is judged: all needs, without and with a grant for exactly that need.
fn verdicts(authority: &Authority, needs: &[Scope]) -> Vec<(Verdict, Verdict)> {
    let judged = needs.iter().map(|need| {
        let grants = [Coverage::of(need)];
        (authority.judge(need, &[]), authority.judge(need, &grants))
    });
    judged.collect()
}

fuzz_target!(|input: &[u8]| {
    let Ok(document) = read_json::<Value>(input) else {
        return;
    };
    let empty = Vec::new();
    let list = |key: &str| {
        document
            .get(key)
            .and_then(Value::as_array)
            .unwrap_or(&empty)
    };
    let needs = list("needs").iter().filter_map(Value::as_str);
    let needs: Vec<Scope> = needs.filter_map(|need| need.parse().ok()).collect();
    let config = match Config::parse(document.get("config").unwrap_or(&Value::Null)) {
        Ok(config) => config,
        Err(error) => {
            check(&error);
            Config::new()
        }
    };
    let mut authority = match Authority::configured(&config) {
        Ok(authority) => authority,
        Err(error) => return check(&error),
    };
    for policy in list("policies").iter().take(4) {
        let layer = match Policy::parse(policy)
            .and_then(|policy| authority.admit(&policy, Origin::Model))
        {
            Ok(layer) => layer,
            Err(error) => {
                check(&error);
                continue;
            }
        };
        let child = authority.narrow(&layer);
        let (above, below) = (verdicts(&authority, &needs), verdicts(&child, &needs));
        for ((need, above), below) in needs.iter().zip(above).zip(below) {
            assert!(
                below.0 >= above.0 && below.1 >= above.1,
                "{need}: {above:?}, {below:?}"
            );
            assert!(below.1 <= below.0, "a grant made {need} stricter");
            let _ = child.explain(need, &[]);
        }
        for tool in ["read_file", "write_file"] {
            assert!(authority.allows_tool(tool) || !child.allows_tool(tool));
        }
        let _ = (child.statements(), child.open_folders());
        authority = child;
    }
});
