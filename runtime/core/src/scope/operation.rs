//! Operations on a resource, and the reach of needs and grants.

use std::fmt;
use std::ops::BitOr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Verb, words};

words! {
    /// Operation on a resource. Each belongs to one [`Verb`]; scopes are written with verbs only, and grants have operations
    /// in addition to their pattern.
    pub enum Operation {
        /// Read its content, names and sizes, and check whether it exists.
        Read = "read",
        /// Create it where nothing exists.
        Create = "create",
        /// Change its content.
        Change = "change",
        /// Remove it.
        Delete = "delete",
        /// Move it away or rename it.
        Move = "move",
        /// Run it.
        Execute = "execute",
    }
}

impl Operation {
    /// Returns the verb that it belongs to.
    #[must_use]
    pub const fn verb(self) -> Verb {
        match self {
            Self::Read => Verb::Read,
            Self::Create | Self::Change | Self::Delete | Self::Move => Verb::Write,
            Self::Execute => Verb::Execute,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operations(u8);

impl Operations {
    /// Every operation of `verb`, or of every verb.
    #[must_use]
    pub fn of(verb: Option<Verb>) -> Self {
        let all = Operation::ALL.into_iter();
        all.filter(|operation| verb.is_none_or(|verb| operation.verb() == verb))
            .collect()
    }

    /// Returns whether every operation of `other` is in it.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the operations that are in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of operations.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Iterates over its operations.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        let all = Operation::ALL.into_iter();
        all.filter(move |operation| self.0 & operation.bit() != 0)
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        let bits = operations.into_iter().map(Operation::bit);
        Self(bits.fold(0, BitOr::bitor))
    }
}

impl From<Operation> for Operations {
    fn from(operation: Operation) -> Self {
        Self(operation.bit())
    }
}

impl BitOr for Operations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Words for people, such as `create or change`.
impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.len();
        for operation in self.iter() {
            f.write_str(operation.as_str())?;
            left -= 1;
            f.write_str(match left {
                0 => "",
                1 => " or ",
                _ => ", ",
            })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Operations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Operations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Operation>::deserialize(deserializer).map(|all| all.into_iter().collect())
    }
}

/// Reach of a need or a grant.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Only the named resource.
    #[default]
    Exact,
    /// The named resource and everything beneath it.
    Beneath,
}
