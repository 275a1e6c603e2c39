//! Lists of tools, verbs and write modes; layers intersect.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::authority::Authority;
use super::error::PolicyError;
use super::need::Need;
use super::verdict::{Rule, Ruling};
use crate::scope::Verb;

/// How a file may come to be written.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// A file that was not there.
    Create,
    /// A file that was there, anew.
    Overwrite,
    /// More at the end of a file.
    Append,
}

impl WriteMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Create, Self::Overwrite, Self::Append];

    /// Returns the mode as written in a policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Overwrite => "overwrite",
            Self::Append => "append",
        }
    }
}

/// Lists that restrict a known set; an absent list does not restrict it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sets {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<BTreeSet<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verbs: Option<BTreeSet<Verb>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_modes: Option<BTreeSet<WriteMode>>,
}

impl Sets {
    pub(crate) fn judge(&self, need: &Need<'_>) -> Ruling {
        Ruling::deny_if(!has(self.verbs.as_ref(), &need.verb()), Rule::Verbs)
    }

    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.contains(name))
    }

    pub(crate) fn has_mode(&self, mode: WriteMode) -> bool {
        has(self.write_modes.as_ref(), &mode)
    }

    pub(crate) fn has_verb(&self, verb: Verb) -> bool {
        has(self.verbs.as_ref(), &verb)
    }

    /// Whether any verb is left.
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
            tools.as_ref(),
            |tool| issuer.allows_tool(tool),
            String::as_str,
            issuer.tools(),
        )?;
        let held = |names: Vec<&'static str>| Some(names);
        let verbs_held = Verb::ALL.into_iter().filter(|verb| issuer.has_verb(*verb));
        admit(
            "verbs",
            verbs.as_ref(),
            |verb| issuer.has_verb(*verb),
            |verb| verb.as_str(),
            held(verbs_held.map(Verb::as_str).collect()),
        )?;
        let modes_held = WriteMode::ALL
            .into_iter()
            .filter(|mode| issuer.allows_write_mode(*mode));
        admit(
            "write_modes",
            write_modes.as_ref(),
            |mode| issuer.allows_write_mode(*mode),
            |mode| mode.as_str(),
            held(modes_held.map(WriteMode::as_str).collect()),
        )
    }
}

fn has<T: Ord>(set: Option<&BTreeSet<T>>, member: &T) -> bool {
    set.is_none_or(|set| set.contains(member))
}

fn admit<T: Ord>(
    key: &str,
    set: Option<&BTreeSet<T>>,
    held: impl Fn(&T) -> bool,
    name: impl Fn(&T) -> &str,
    limit: Option<Vec<&str>>,
) -> Result<(), PolicyError> {
    let mut members = set.into_iter().flatten().enumerate();
    match members.find(|(_, member)| !held(member)) {
        Some((index, member)) => Err(PolicyError::expansion(
            format!("/{key}/{index}"),
            "is not among what the issuer holds",
            name(member),
            limit.map_or(Value::Null, Value::from),
        )),
        None => Ok(()),
    }
}

impl Sets {
    /// Each key, and whether the policy sets it.
    pub(crate) fn present(&self) -> [(&'static str, bool); 3] {
        let Self {
            tools,
            verbs,
            write_modes,
        } = self;
        [
            ("tools", tools.is_some()),
            ("verbs", verbs.is_some()),
            ("write_modes", write_modes.is_some()),
        ]
    }
}
