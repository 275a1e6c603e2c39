//! Expected outcomes of the checks.

use std::collections::BTreeMap;

/// How each check ended, and its detail.
pub(crate) type Checks = BTreeMap<String, (String, String)>;

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

/// Every check, all with the same outcome but those that are named.
pub(crate) fn expected<'a>(
    most: &'a str,
    except: &[(&'a str, &'a str)],
) -> BTreeMap<&'a str, &'a str> {
    let mut all: BTreeMap<&str, &str> = ALL.into_iter().map(|check| (check, most)).collect();
    all.extend(except.iter().copied());
    all
}

pub(crate) fn outcomes(checks: &Checks) -> BTreeMap<&str, &str> {
    let outcomes = checks.iter();
    outcomes
        .map(|(check, (outcome, _))| (check.as_str(), outcome.as_str()))
        .collect()
}
