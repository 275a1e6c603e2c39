//! Budget for compiling the globs of one policy.

use super::error::PolicyError;
use crate::call::Origin;

/// What is left for the globs of one policy. It is the smaller the less whoever wrote the policy is trusted.
#[derive(Debug)]
pub(crate) struct PatternBudget {
    /// Lists that are left.
    lists: usize,
    /// Bytes of plain names that are left, every alternative in braces counted.
    names: usize,
    /// Bytes of globs with wildcards that are left, every alternative in braces counted.
    wildcards: usize,
    /// Whether compiled lists are kept for policies to come.
    keeps: bool,
    /// Bytes that the compiled lists hold.
    held: usize,
}

/// What one list costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PatternCost {
    pub(crate) names: usize,
    pub(crate) wildcards: usize,
}

impl PatternBudget {
    /// For what people configure.
    pub(crate) fn configuration() -> Self {
        Self {
            lists: 4096,
            names: 4 << 20,
            wildcards: 256 << 10,
            keeps: true,
            held: 0,
        }
    }

    /// For the policy of a worker, by who wrote it.
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

    /// The same for the policy of one call, of which nothing is kept.
    pub(crate) fn once(self) -> Self {
        Self {
            keeps: false,
            ..self
        }
    }

    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// The bytes that the lists hold which were compiled under this budget.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Refuses a list at `at` that costs more than is left.
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

    /// Charges a list that was compiled, or found compiled.
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
