//! Budget for compiling the globs of one policy.

use super::error::PolicyError;
use crate::call::Origin;

/// Remaining budget for the globs of one policy. It depends on how much its author is trusted.
#[derive(Debug)]
pub(crate) struct PatternBudget {
    /// Remaining lists.
    lists: usize,
    /// Remaining bytes of globs that are matched by their names, counting every alternative in braces.
    names: usize,
    /// Remaining bytes of other globs, counting every alternative in braces.
    wildcards: usize,
    /// Whether compiled lists are cached.
    keeps: bool,
    /// Size of the compiled lists in bytes.
    held: usize,
}

/// Cost of one list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PatternCost {
    pub(crate) names: usize,
    pub(crate) wildcards: usize,
}

impl PatternBudget {
    /// The budget of a configuration.
    pub(crate) fn configuration() -> Self {
        Self {
            lists: 4096,
            names: 4 << 20,
            wildcards: 256 << 10,
            keeps: true,
            held: 0,
        }
    }

    /// The budget of a worker's policy, by its author.
    pub(crate) fn of(origin: Origin) -> Self {
        match origin {
            Origin::Human | Origin::Host => Self {
                lists: 256,
                names: 1 << 20,
                wildcards: 64 << 10,
                ..Self::configuration()
            },
            Origin::Model | Origin::View => Self {
                lists: 32,
                names: 256 << 10,
                wildcards: 8 << 10,
                ..Self::configuration()
            },
        }
    }

    /// This budget for the policy of one call, which is not cached.
    pub(crate) fn once(self) -> Self {
        Self {
            keeps: false,
            ..self
        }
    }

    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Size in bytes of the lists compiled under this budget.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Rejects a list at `at` that exceeds the remaining budget.
    pub(crate) fn check(&self, cost: PatternCost, at: &str) -> Result<(), PolicyError> {
        let over = |what: &str| {
            let reason = format!("is too much for one policy: its globs have too many {what}");
            Err(PolicyError::invalid(at, reason))
        };
        if self.lists == 0 {
            over("lists")
        } else if cost.names > self.names {
            over("bytes")
        } else if cost.wildcards > self.wildcards {
            over("bytes with wildcards")
        } else {
            Ok(())
        }
    }

    /// Charges a list that was compiled or found in the cache.
    pub(crate) fn charge(
        &mut self,
        cost: PatternCost,
        held: usize,
        at: &str,
    ) -> Result<(), PolicyError> {
        self.check(cost, at)?;
        self.lists -= 1;
        self.names -= cost.names;
        self.wildcards -= cost.wildcards;
        self.held += held;
        Ok(())
    }
}
