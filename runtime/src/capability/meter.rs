//! A cost in, the budgets of a worker and all its ancestors charged out; or the one that is spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Budget;
use crate::effect::Cost;

/// Which budget of a worker or of one above it is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget of {what} is spent: {limit} allowed")]
pub struct Spent {
    /// What it counts, such as `children`.
    pub what: &'static str,
    /// How much of it was allowed.
    pub limit: u64,
}

/// What one worker and its subtree have spent. A child charges its parent too.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Budget,
    calls: AtomicU64,
    bytes: AtomicU64,
    files: AtomicU64,
    children: AtomicU64,
    parent: Option<Arc<Self>>,
}

impl Spent {
    /// Refuses an effect that alone costs more than `budget` allows: that of a single call has no meter.
    pub(crate) fn check(budget: Budget, cost: Cost) -> Result<(), Self> {
        let Budget {
            calls: _,
            bytes_written,
            files_touched,
            children: _,
        } = budget;
        let over = |what, limit: Option<u64>, spent| {
            let limit = limit.filter(|limit| spent > *limit);
            limit.map_or(Ok(()), |limit| Err(Self { what, limit }))
        };
        over("bytes written", bytes_written, cost.bytes)?;
        over("files touched", files_touched, cost.files)
    }
}

impl Meter {
    pub(crate) fn new(budget: Budget, parent: Option<Arc<Self>>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            budget,
            calls: zero(),
            bytes: zero(),
            files: zero(),
            children: zero(),
            parent,
        }
    }

    pub(crate) fn charge_call(&self) -> Result<(), Spent> {
        self.charge(1, "calls", |meter| (&meter.calls, meter.budget.calls))
    }

    pub(crate) fn charge_child(&self) -> Result<(), Spent> {
        self.charge(1, "children", |meter| {
            (&meter.children, meter.budget.children)
        })
    }

    /// Takes back the charge for a child that was not started.
    pub(crate) fn refund_child(&self) {
        self.refund(1, |meter| (&meter.children, None), None);
    }

    /// Charges both figures or neither.
    pub(crate) fn charge_effect(&self, cost: Cost) -> Result<(), Spent> {
        self.charge(cost.bytes, "bytes written", bytes_of)?;
        self.charge(cost.files, "files touched", |meter| {
            (&meter.files, meter.budget.files_touched)
        })
        .inspect_err(|_| self.refund(cost.bytes, bytes_of, None))
    }

    /// Charges this meter and every one above it, or none of them.
    fn charge(&self, amount: u64, what: &'static str, of: Account) -> Result<(), Spent> {
        let mut next = Some(self);
        while let Some(meter) = next {
            let (spent, limit) = of(meter);
            let before = spent.fetch_add(amount, Ordering::AcqRel);
            if let Some(limit) = limit.filter(|limit| before.saturating_add(amount) > *limit) {
                spent.fetch_sub(amount, Ordering::AcqRel);
                self.refund(amount, of, Some(meter));
                return Err(Spent { what, limit });
            }
            next = meter.parent.as_deref();
        }
        Ok(())
    }

    /// Takes a charge back from this meter up to, not including, `end`.
    fn refund(&self, amount: u64, of: Account, end: Option<&Self>) {
        let mut next = Some(self);
        while let Some(meter) =
            next.filter(|meter| !end.is_some_and(|end| std::ptr::eq(*meter, end)))
        {
            of(meter).0.fetch_sub(amount, Ordering::AcqRel);
            next = meter.parent.as_deref();
        }
    }
}

type Account = fn(&Meter) -> (&AtomicU64, Option<u64>);

fn bytes_of(meter: &Meter) -> (&AtomicU64, Option<u64>) {
    (&meter.bytes, meter.budget.bytes_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> (Arc<Meter>, Meter) {
        let budget = Budget {
            calls: Some(3),
            bytes_written: Some(10),
            files_touched: Some(2),
            ..Budget::default()
        };
        let parent = Arc::new(Meter::new(budget, None));
        let child = Meter::new(
            Budget {
                calls: Some(2),
                ..Budget::default()
            },
            Some(Arc::clone(&parent)),
        );
        (parent, child)
    }

    #[test]
    fn a_child_spends_its_parents_budget() {
        let (parent, child) = family();
        assert_eq!(child.charge_call(), Ok(()));
        assert_eq!(child.charge_call(), Ok(()));
        assert_eq!(
            child.charge_call(),
            Err(Spent {
                what: "calls",
                limit: 2
            })
        );
        assert_eq!(parent.charge_call(), Ok(()));
        assert_eq!(
            parent.charge_call(),
            Err(Spent {
                what: "calls",
                limit: 3
            })
        );
    }

    #[test]
    fn a_refused_charge_leaves_every_meter_as_it_was() {
        let (parent, child) = family();
        let over = Cost { bytes: 5, files: 3 };
        assert_eq!(
            child.charge_effect(over),
            Err(Spent {
                what: "files touched",
                limit: 2
            })
        );
        assert_eq!(
            child.charge_effect(Cost {
                bytes: 10,
                files: 2
            }),
            Ok(())
        );
        assert_eq!(
            parent.charge_effect(Cost { bytes: 1, files: 0 }),
            Err(Spent {
                what: "bytes written",
                limit: 10
            })
        );
    }

    #[test]
    fn sixty_four_callers_spend_exactly_the_budget() {
        let parent = Arc::new(Meter::new(
            Budget {
                calls: Some(100),
                ..Budget::default()
            },
            None,
        ));
        let children: Vec<_> = (0..64)
            .map(|_| Meter::new(Budget::default(), Some(Arc::clone(&parent))))
            .collect();
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = children
                .iter()
                .map(|child| {
                    scope.spawn(|| (0..10).filter(|_| child.charge_call().is_ok()).count())
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(granted, 100);
    }
}
