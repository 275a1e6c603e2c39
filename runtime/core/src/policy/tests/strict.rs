//! Tests of `strict`.

use serde_json::json;

use super::{admitted, check, configured, path, under};
use crate::call::Origin;
use crate::config::{Config, RootConfig};
use crate::policy::{Authority, Policy, PolicyErrorKind, Verdict};

use Verdict::{Allow, Deny};

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
    let witness = error.data("call")["witness"].as_str().unwrap().to_owned();
    let child = Authority::configured(&Config::new().root(RootConfig::new(path("/")))).unwrap();
    let need = format!("read:file:{witness}");
    check(&under(&child, policy), &need, &[], Allow);
    check(issuer, &need, &[], Deny);
    witness
}

#[test]
fn strict_mode_rejects_a_wider_allow_with_a_witness() {
    let issuer = strict(&["src/**", "*.md"]);
    assert_eq!(witnessed(&issuer, &asking("/r", &["src/**", "*"])), "/r/a");
    let notes = strict(&["notes/*.md"]);
    let deeper = witnessed(&notes, &asking("/r/notes", &["*.md"]));
    assert_eq!(deeper, "/r/notes/a/.md");
    witnessed(&issuer, &asking("/r", &["**"]));
    witnessed(&issuer, &asking("/r/doc", &["x"]));
    witnessed(&strict(&["src/*.rs"]), &asking("/r/src", &["*.{rs,c}"]));
    witnessed(&strict(&["??.rs"]), &asking("/r", &["\u{e9}.rs"]));
    witnessed(&strict(&["?.rs"]), &asking("/r", &["\u{e9}.rs", "??.rs"]));
}

#[test]
fn strict_mode_admits_included_globs() {
    let issuer = strict(&["src/**", "*.md"]);
    admitted(&issuer, &asking("/r", &["src/**"]));
    admitted(
        &issuer,
        &asking("/r", &["src/*.rs", "READ*.md", "{src,src/a}/x"]),
    );
    admitted(&issuer, &asking("/r/src", &["**"]));
    admitted(&issuer, &asking("/r/src", &["a/**"]));
    admitted(&issuer, &asking("/r", &["**/*.md"]));
    admitted(&issuer, &asking("/r/doc", &["*.md"]));
    admitted(&strict(&["notes/*.md"]), &asking("/r", &["notes/a.md"]));
    admitted(&issuer, &asking("/s", &["**"]));
    admitted(&issuer, &asking("/r", &[]));
    admitted(&issuer, &Policy::new().root("/r"));
    admitted(&strict(&["{**,a}"]), &asking("/r", &["**"]));
    admitted(&strict(&["?.rs"]), &asking("/r", &["\u{e9}.rs", "[!a].rs"]));
    admitted(&strict(&["?*"]), &asking("/r", &["*"]));
}

#[test]
fn strict_mode_compares_with_every_layer() {
    let child = under(&strict(&[]), &asking("/r", &["a/**", "b"]));
    admitted(&child, &asking("/r", &["a/x"]));
    assert_eq!(witnessed(&child, &asking("/r", &["c", "b"])), "/r/c");
    let lax = configured(&json!({ "roots": [{ "path": "/r", "allow": ["a"] }] }));
    admitted(&lax, &asking("/r", &["**"]));
}
