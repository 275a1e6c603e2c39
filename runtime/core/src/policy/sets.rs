//! Lists of tools, verbs and write modes. The lists of several layers are intersected.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::authority::Authority;
use super::error::PolicyError;
use crate::scope::{Verb, words};

words! {
    /// How a call writes a file.
    pub enum WriteMode {
        /// Create a file that does not exist.
        Create = "create",
        /// Replace the content of an existing file.
        Overwrite = "overwrite",
        /// Append to an existing file.
        Append = "append",
    }
}

/// Lists that restrict a known set; an absent list does not restrict it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sets {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<BTreeSet<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verbs: Option<BTreeSet<Verb>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_modes: Option<BTreeSet<WriteMode>>,
}

impl Sets {
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(name))
    }

    pub(crate) fn has_mode(&self, mode: WriteMode) -> bool {
        has(self.write_modes.as_ref(), &mode)
    }

    pub(crate) fn has_verb(&self, verb: Verb) -> bool {
        has(self.verbs.as_ref(), &verb)
    }

    /// Whether any verb is allowed.
    pub(crate) fn reaches(&self) -> bool {
        self.verbs.as_ref().is_none_or(|verbs| !verbs.is_empty())
    }

    /// Rejects members that the issuer does not have.
    pub(crate) fn admit(&self, issuer: &Authority) -> Result<(), PolicyError> {
        let Self {
            tools,
            verbs,
            write_modes,
        } = self;
        admit(
            "tools",
            tools,
            |tool| issuer.allows_tool(tool),
            || json!(issuer.tools()),
        )?;
        let has_verb = |verb: &Verb| issuer.has_verb(*verb);
        admit("verbs", verbs, has_verb, || held(Verb::ALL, has_verb))?;
        let has_mode = |mode: &WriteMode| issuer.allows_write_mode(*mode);
        admit("write_modes", write_modes, has_mode, || {
            held(WriteMode::ALL, has_mode)
        })
    }
}

fn held<T: Serialize>(all: impl IntoIterator<Item = T>, has: impl Fn(&T) -> bool) -> Value {
    all.into_iter().filter(has).map(|one| json!(one)).collect()
}

fn has<T: Ord>(set: Option<&BTreeSet<T>>, member: &T) -> bool {
    set.is_none_or(|set| set.contains(member))
}

/// Rejects members of `set` that the issuer does not have. `limit` contains those that it has.
fn admit<T: Ord + Serialize>(
    key: &str,
    set: &Option<BTreeSet<T>>,
    has: impl Fn(&T) -> bool,
    limit: impl Fn() -> Value,
) -> Result<(), PolicyError> {
    let mut members = set.iter().flatten().enumerate();
    match members.find(|(_, member)| !has(member)) {
        Some((index, member)) => Err(PolicyError::expansion(
            format!("/{key}/{index}"),
            "is not among what the issuer holds",
            json!(member),
            limit(),
        )),
        None => Ok(()),
    }
}
