//! Tests of policies: properties, vectors and a small model.

mod access;
mod entries;
mod explain;
mod keys;
mod laws;
mod model;
mod narrowing;
mod nested;
mod open;
mod rules;
mod statements;
mod strict;
mod vectors;

use proptest::test_runner::Config as Cases;

use super::patterns::PatternBudget;
use super::{Authority, Layer, Limits, Policy, PolicyErrorKind, Verdict};
use crate::VirtualPath;
use crate::call::Origin;
use crate::config::Config;
use crate::scope::Coverage;

/// How many cases a law is tried on: `BAILIWICK_CASES`, else five thousand.
pub(crate) fn cases() -> Cases {
    let cases = std::env::var("BAILIWICK_CASES").ok();
    Cases {
        failure_persistence: None,
        ..Cases::with_cases(cases.and_then(|cases| cases.parse().ok()).unwrap_or(5_000))
    }
}

/// How many cases a law is tried on whose cases take long: a tenth.
pub(crate) fn few_cases() -> Cases {
    let all = cases();
    Cases {
        cases: all.cases / 10,
        ..all
    }
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

fn configured(value: &serde_json::Value) -> Authority {
    Authority::configured(&Config::parse(value).unwrap()).unwrap()
}

fn host() -> Authority {
    configured(&serde_json::json!({ "roots": [{ "path": "/r" }], "grantable": ["*:file"] }))
}

/// A layer that nobody admitted.
fn compiled(policy: &Policy) -> Layer {
    let mut budget = PatternBudget::configuration();
    policy.compile(Limits::UNLIMITED, &mut budget).unwrap()
}

#[track_caller]
fn under(issuer: &Authority, policy: &Policy) -> Authority {
    issuer.narrow(&issuer.admit(policy, Origin::Human).unwrap())
}

#[track_caller]
fn check(authority: &Authority, need: &str, granted: &[&str], expected: Verdict) {
    let granted: Vec<Coverage> = granted.iter().map(|text| text.parse().unwrap()).collect();
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
