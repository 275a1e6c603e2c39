//! Reads the results of the conformance suite.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::installed::package;

/// How checks ended: `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED`, `INFO`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) tally: BTreeMap<String, usize>,
    pub(crate) failed: Vec<String>,
}

/// The scenarios that a revision requires of one side (`server:` or `client:`), in the suite's own list.
pub(crate) fn required(revision: &str, side: &str) -> Vec<String> {
    let folder = "@modelcontextprotocol/conformance/requirements";
    let list = package(&format!("{folder}/{revision}.yaml"));
    let list = std::fs::read_to_string(list).unwrap();
    let servers = list.lines().skip_while(|line| *line != side).skip(1);
    let servers = servers.take_while(|line| line.is_empty() || line.starts_with("  - "));
    let names = servers.filter_map(|line| line.strip_prefix("  - "));
    names.map(ToOwned::to_owned).collect()
}

impl Verdict {
    /// Adds up the checks of one scenario, whose folders below `out` begin with `name`; how many there were.
    pub(crate) fn add(&mut self, out: &Path, name: &str) -> usize {
        let (below, name) = name.rsplit_once('/').unwrap_or((".", name));
        let mut seen = 0;
        for folder in std::fs::read_dir(out.join(below)).unwrap() {
            let folder = folder.unwrap();
            let file = folder.file_name();
            // What follows the name is the time of the run.
            let time = file.to_str().unwrap().strip_prefix(name);
            if !time.is_some_and(|time| time.starts_with("-20")) {
                continue;
            }
            let checks = std::fs::read(folder.path().join("checks.json")).unwrap();
            let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
            for check in checks {
                seen += 1;
                let status = check["status"].as_str().unwrap();
                *self.tally.entry(status.to_owned()).or_default() += 1;
                if status == "FAILURE" || status == "WARNING" {
                    let (id, message) = (&check["id"], &check["errorMessage"]);
                    self.failed
                        .push(format!("{status} {name}: {id}: {message}"));
                }
            }
        }
        seen
    }
}
