//! Outcomes of `bailiwick check`.

use std::collections::BTreeMap;

/// The outcome and the detail of each check.
pub type Checks = BTreeMap<String, (String, String)>;

const ALL: [&str; 15] = [
    "apps",
    "configuration.schema",
    "connect",
    "dashdash",
    "lists",
    "methods.unknown",
    "policy.expansion",
    "preview",
    "tools.annotations",
    "tools.intents",
    "tools.names",
    "tools.result",
    "tools.schemas",
    "tools.unknown",
    "wire.form",
];

/// The outcome `most` for every check except those in `except`.
pub fn expected<'a>(most: &'a str, except: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let mut all: BTreeMap<&str, &str> = ALL.into_iter().map(|check| (check, most)).collect();
    all.extend(except.iter().copied());
    all
}

/// The outcome of each check.
pub fn outcomes(checks: &Checks) -> BTreeMap<&str, &str> {
    let outcomes = checks.iter();
    outcomes
        .map(|(check, (outcome, _))| (check.as_str(), outcome.as_str()))
        .collect()
}
