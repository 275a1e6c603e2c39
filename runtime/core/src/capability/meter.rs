//! Meters that charge the budgets of a worker and its ancestors, and refund unused amounts.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::budget::{Budget, Usage};
use crate::effect::Cost;
use crate::error::{CallError, Code};

/// A budget of a worker or of an ancestor is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the budget `{what}` is spent: {limit} allowed")]
pub struct BudgetExceeded {
    /// The field of [`Budget`] that limits it, such as `children`.
    pub what: &'static str,
    /// The limit.
    pub limit: u64,
}

impl From<BudgetExceeded> for CallError {
    fn from(error: BudgetExceeded) -> Self {
        Self::new(Code::Budget, error.to_string())
            .with("budget", error.what)
            .with("limit", error.limit)
    }
}

/// The field of the budget of memory.
const MEMORY: &str = "memory_bytes";

/// Amounts that were charged or are to be charged.
#[derive(Clone, Copy, Debug, Default)]
struct Amount {
    calls: u64,
    bytes: u64,
    files: u64,
    children: u64,
    cpu_ms: u64,
    wall_ms: u64,
    output_bytes: u64,
    processes: u64,
    memory: u64,
}

/// Amounts that one worker and its subtree were charged. A charge to a child is also charged to its parent.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Budget,
    /// Whether this budget or that of an ancestor limits calls. If not, they are not counted.
    limits_calls: bool,
    spent: Mutex<Amount>,
    parent: Option<Arc<Self>>,
}

/// A charge for an effect that is about to happen. Dropping it refunds all that was not kept.
#[derive(Debug)]
#[must_use]
pub(crate) struct Charge<'m> {
    meter: &'m Meter,
    unused: Amount,
}

impl Charge<'_> {
    /// Keeps the actual cost of an effect, which is at most what was charged.
    pub(crate) fn keep(&mut self, cost: Cost) {
        self.unused.bytes = self.unused.bytes.saturating_sub(cost.bytes);
        self.unused.files = self.unused.files.saturating_sub(cost.files);
    }

    /// Keeps the whole charge.
    pub(crate) fn keep_all(&mut self) {
        self.unused = Amount::default();
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.meter.give_back(self.unused);
    }
}

impl BudgetExceeded {
    /// Rejects an effect that costs more than `budget`, the budget of a single call, which has no meter.
    pub(crate) fn check(budget: Budget, cost: Cost) -> Result<(), Self> {
        Amount::default().plus(cost.into(), budget).map(drop)
    }
}

impl From<Usage> for Amount {
    fn from(usage: Usage) -> Self {
        let Usage {
            cpu_ms,
            wall_ms,
            output_bytes,
        } = usage;
        Self {
            cpu_ms,
            wall_ms,
            output_bytes,
            ..Self::default()
        }
    }
}

/// Processes that a command may have. They are given back when it is dropped.
#[derive(Debug)]
pub struct ProcessReservation {
    meter: Arc<Meter>,
    count: u64,
}

impl ProcessReservation {
    /// Returns how many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for ProcessReservation {
    fn drop(&mut self) {
        self.meter.give_back(Amount::of_processes(self.count));
    }
}

/// The memory of an effect that runs. It is given back when this is dropped.
#[derive(Debug)]
pub struct MemoryUse {
    meter: Arc<Meter>,
    bytes: u64,
    /// The budget of the call.
    of_call: Option<u64>,
}

impl MemoryUse {
    /// Sets how many bytes the effect uses now, even if that exceeds a budget.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if it uses more than before and exceeds a budget; the tool then ends the effect.
    pub fn set(&mut self, bytes: u64) -> Result<(), BudgetExceeded> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        let exceeded = self.meter.replace_memory(before, bytes);
        let of_call = self.of_call.filter(|limit| bytes > *limit);
        match exceeded.or(of_call) {
            Some(limit) if bytes > before => Err(BudgetExceeded {
                what: MEMORY,
                limit,
            }),
            _ => Ok(()),
        }
    }
}

impl Drop for MemoryUse {
    fn drop(&mut self) {
        self.meter.replace_memory(self.bytes, 0);
    }
}

impl From<Cost> for Amount {
    fn from(cost: Cost) -> Self {
        Self {
            bytes: cost.bytes,
            files: cost.files,
            ..Self::default()
        }
    }
}

impl Amount {
    /// Adds both, if `budget` allows the sum.
    fn plus(self, more: Self, budget: Budget) -> Result<Self, BudgetExceeded> {
        let Budget {
            calls,
            bytes_written,
            files_touched,
            children,
            cpu_ms,
            wall_ms,
            output_bytes,
            processes,
            memory_bytes,
        } = budget;
        let sum = |what, spent: u64, more: u64, limit: Option<u64>| {
            let sum = spent.saturating_add(more);
            let over = limit.filter(|limit| more > 0 && sum > *limit);
            over.map_or(Ok(sum), |limit| Err(BudgetExceeded { what, limit }))
        };
        Ok(Self {
            calls: sum("calls", self.calls, more.calls, calls)?,
            bytes: sum("bytes_written", self.bytes, more.bytes, bytes_written)?,
            files: sum("files_touched", self.files, more.files, files_touched)?,
            children: sum("children", self.children, more.children, children)?,
            cpu_ms: sum("cpu_ms", self.cpu_ms, more.cpu_ms, cpu_ms)?,
            wall_ms: sum("wall_ms", self.wall_ms, more.wall_ms, wall_ms)?,
            output_bytes: sum(
                "output_bytes",
                self.output_bytes,
                more.output_bytes,
                output_bytes,
            )?,
            processes: sum("processes", self.processes, more.processes, processes)?,
            memory: sum(MEMORY, self.memory, more.memory, memory_bytes)?,
        })
    }

    fn usage(self) -> Usage {
        Usage {
            cpu_ms: self.cpu_ms,
            wall_ms: self.wall_ms,
            output_bytes: self.output_bytes,
        }
    }

    fn of_processes(processes: u64) -> Self {
        Self {
            processes,
            ..Self::default()
        }
    }

    fn minus(self, less: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(less.calls),
            bytes: self.bytes.saturating_sub(less.bytes),
            files: self.files.saturating_sub(less.files),
            children: self.children.saturating_sub(less.children),
            cpu_ms: self.cpu_ms.saturating_sub(less.cpu_ms),
            wall_ms: self.wall_ms.saturating_sub(less.wall_ms),
            output_bytes: self.output_bytes.saturating_sub(less.output_bytes),
            processes: self.processes.saturating_sub(less.processes),
            memory: self.memory.saturating_sub(less.memory),
        }
    }
}

impl Meter {
    pub(crate) fn new(budget: Budget, parent: Option<Arc<Self>>) -> Self {
        let is_limit = |calls| calls != u64::MAX;
        let above = parent.as_ref().is_some_and(|parent| parent.limits_calls);
        Self {
            limits_calls: above || budget.calls.is_some_and(is_limit),
            budget,
            spent: Mutex::default(),
            parent,
        }
    }

    pub(crate) fn charge_call(&self) -> Result<(), BudgetExceeded> {
        if !self.limits_calls {
            return Ok(());
        }
        self.add(Amount {
            calls: 1,
            ..Amount::default()
        })
    }

    pub(crate) fn charge_child(&self) -> Result<Charge<'_>, BudgetExceeded> {
        self.charge(Amount {
            children: 1,
            ..Amount::default()
        })
    }

    /// Checks that this meter and all its ancestors can afford an effect now, without charging it.
    pub(crate) fn affords(&self, cost: Cost) -> Result<(), BudgetExceeded> {
        let mut next = Some(self);
        while let Some(meter) = next {
            let spent = meter.spent.lock();
            spent.plus(cost.into(), meter.budget)?;
            next = meter.parent.as_deref();
        }
        Ok(())
    }

    /// Charges bytes and files, or neither.
    pub(crate) fn charge_effect(&self, cost: Cost) -> Result<Charge<'_>, BudgetExceeded> {
        self.charge(cost.into())
    }

    fn charge(&self, amount: Amount) -> Result<Charge<'_>, BudgetExceeded> {
        self.add(amount)?;
        Ok(Charge {
            meter: self,
            unused: amount,
        })
    }

    /// Charges this meter and all its ancestors, or none of them. A meter stays locked until its ancestors accept the
    /// charge, so a charge that is rejected is never visible. Locks are always taken from child to parent.
    fn add(&self, amount: Amount) -> Result<(), BudgetExceeded> {
        let mut spent = self.spent.lock();
        let sum = spent.plus(amount, self.budget)?;
        if let Some(parent) = &self.parent {
            parent.add(amount)?;
        }
        *spent = sum;
        Ok(())
    }

    /// Charges what a command took, even if that exceeds a budget. `call` is the budget of the single call, of which `before`
    /// was taken.
    pub(crate) fn charge_usage(
        &self,
        usage: Usage,
        (call, before): (Budget, &mut Usage),
    ) -> Result<(), BudgetExceeded> {
        *before = before.plus(usage);
        let over = |total: Usage, budget| Amount::default().plus(total.into(), budget).err();
        let mut exceeded = over(*before, call);
        let mut next = Some(self);
        while let Some(meter) = next {
            let mut spent = meter.spent.lock();
            let total = spent.usage().plus(usage);
            exceeded = exceeded.or(over(total, meter.budget));
            *spent = Amount {
                calls: spent.calls,
                bytes: spent.bytes,
                files: spent.files,
                children: spent.children,
                processes: spent.processes,
                memory: spent.memory,
                ..total.into()
            };
            next = meter.parent.as_deref();
        }
        exceeded.map_or(Ok(()), Err)
    }

    /// Reserves processes, at most `most` and as many as this meter and all its ancestors have left.
    pub(crate) fn reserve_processes(
        self: &Arc<Self>,
        most: u64,
    ) -> Result<ProcessReservation, BudgetExceeded> {
        let mut count = most;
        loop {
            let added = self.add(Amount::of_processes(count));
            match added {
                Ok(()) => {
                    let meter = Arc::clone(self);
                    return Ok(ProcessReservation { meter, count });
                }
                Err(exceeded) if count <= 1 => return Err(exceeded),
                Err(_) => count = self.processes_left().clamp(1, count - 1),
            }
        }
    }

    fn processes_left(&self) -> u64 {
        let mut least = u64::MAX;
        let mut next = Some(self);
        while let Some(meter) = next {
            let spent = meter.spent.lock().processes;
            let left = meter
                .budget
                .processes
                .map(|limit| limit.saturating_sub(spent));
            least = least.min(left.unwrap_or(u64::MAX));
            next = meter.parent.as_deref();
        }
        least
    }

    /// The memory of an effect, which uses none yet; `None` if neither the call nor this meter or an ancestor limits it.
    pub(crate) fn memory_use(self: &Arc<Self>, of_call: Option<u64>) -> Option<MemoryUse> {
        let mut meters = std::iter::successors(Some(self), |meter| meter.parent.as_ref());
        let is_limited =
            of_call.is_some() || meters.any(|meter| meter.budget.memory_bytes.is_some());
        is_limited.then(|| MemoryUse {
            meter: Arc::clone(self),
            bytes: 0,
            of_call,
        })
    }

    /// Replaces the memory of an effect in this meter and all its ancestors. Returns the first limit that is exceeded then.
    fn replace_memory(&self, before: u64, now: u64) -> Option<u64> {
        let mut exceeded = None;
        let mut next = Some(self);
        while let Some(meter) = next {
            let mut spent = meter.spent.lock();
            spent.memory = spent.memory.saturating_sub(before).saturating_add(now);
            let limit = meter.budget.memory_bytes;
            exceeded = exceeded.or(limit.filter(|limit| spent.memory > *limit));
            next = meter.parent.as_deref();
        }
        exceeded
    }

    fn give_back(&self, amount: Amount) {
        let mut next = Some(self);
        while let Some(meter) = next {
            let mut spent = meter.spent.lock();
            *spent = spent.minus(amount);
            next = meter.parent.as_deref();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn budget_error_has_the_field_and_its_limit() {
        let (_, meter) = family();
        let cost = Cost {
            bytes: 11,
            files: 1,
        };
        let error = CallError::from(meter.affords(cost).unwrap_err());
        let details = serde_json::Value::Object(error.details().clone());
        assert_eq!(details, json!({ "budget": "bytes_written", "limit": 10 }));
    }

    #[test]
    fn child_charges_its_parents_budget() {
        let (parent, child) = family();
        assert_eq!(child.charge_call(), Ok(()));
        assert_eq!(child.charge_call(), Ok(()));
        assert_eq!(
            child.charge_call(),
            Err(BudgetExceeded {
                what: "calls",
                limit: 2
            })
        );
        assert_eq!(parent.charge_call(), Ok(()));
        assert_eq!(
            parent.charge_call(),
            Err(BudgetExceeded {
                what: "calls",
                limit: 3
            })
        );
    }

    #[test]
    fn rejected_charge_changes_no_meter() {
        let (parent, child) = family();
        let over = Cost { bytes: 5, files: 3 };
        let refused = |meter: &Meter, cost| meter.charge_effect(cost).unwrap_err();
        let files = BudgetExceeded {
            what: "files_touched",
            limit: 2,
        };
        assert_eq!(refused(&child, over), files);
        let all = Cost {
            bytes: 10,
            files: 2,
        };
        child.charge_effect(all).unwrap().keep(all);
        let bytes = BudgetExceeded {
            what: "bytes_written",
            limit: 10,
        };
        assert_eq!(refused(&parent, Cost { bytes: 1, files: 0 }), bytes);
    }

    #[test]
    fn unused_charge_is_refunded_to_every_meter() {
        let (parent, child) = family();
        let all = Cost {
            bytes: 10,
            files: 2,
        };
        drop(child.charge_effect(all).unwrap());
        drop(parent.charge_effect(all).unwrap());
        let mut charge = child.charge_effect(all).unwrap();
        charge.keep(Cost { bytes: 0, files: 1 });
        drop(charge);
        assert!(parent.charge_effect(all).is_err());
        let rest = Cost {
            bytes: 10,
            files: 1,
        };
        parent.charge_effect(rest).unwrap().keep(rest);
    }

    #[test]
    fn charge_rejected_by_a_parent_is_never_visible() {
        let budget = |bytes_written| Budget {
            bytes_written: Some(bytes_written),
            ..Budget::default()
        };
        let parent = Arc::new(Meter::new(budget(10), None));
        let child = Meter::new(budget(100), Some(parent));
        let cost = |bytes| Cost { bytes, files: 0 };
        let rounds = u64::from(crate::cases::cases(1000).cases);
        std::thread::scope(|scope| {
            let large = scope.spawn(|| {
                for _ in 0..rounds {
                    assert!(child.charge_effect(cost(100)).is_err());
                }
            });
            while !large.is_finished() {
                drop(child.charge_effect(cost(1)).unwrap());
            }
        });
    }

    #[test]
    fn what_a_command_took_is_charged_to_all_ancestors_even_beyond_their_budgets() {
        let budget = Budget {
            cpu_ms: Some(100),
            ..Budget::default()
        };
        let parent = Arc::new(Meter::new(budget, None));
        let child = || Meter::new(Budget::default(), Some(Arc::clone(&parent)));
        let (one, other) = (child(), child());
        let usage = |cpu_ms| Usage {
            cpu_ms,
            ..Usage::default()
        };
        let none = Budget::default();
        let mut call = Usage::default();
        assert_eq!(one.charge_usage(usage(90), (none, &mut call)), Ok(()));
        let exceeded = other.charge_usage(usage(20), (none, &mut call));
        assert_eq!(exceeded.unwrap_err().limit, 100);
        assert_eq!(parent.spent.lock().cpu_ms, 110);
        // The budget of the call counts what the call took so far.
        let mut call = Usage::default();
        let own = Budget {
            cpu_ms: Some(10),
            ..none
        };
        let free = Meter::new(none, None);
        assert_eq!(free.charge_usage(usage(8), (own, &mut call)), Ok(()));
        assert!(free.charge_usage(usage(8), (own, &mut call)).is_err());
        // It stays exceeded.
        let nothing = Usage::default();
        assert!(free.charge_usage(nothing, (own, &mut call)).is_err());
    }

    #[test]
    fn processes_are_shared_by_a_subtree_and_given_back() {
        let budget = Budget {
            processes: Some(10),
            ..Budget::default()
        };
        let parent = Arc::new(Meter::new(budget, None));
        let child = Arc::new(Meter::new(Budget::default(), Some(Arc::clone(&parent))));
        let first = child.reserve_processes(7).unwrap();
        let second = parent.reserve_processes(7).unwrap();
        assert_eq!((first.count(), second.count()), (7, 3));
        let exceeded = child.reserve_processes(7).unwrap_err();
        assert_eq!((exceeded.what, exceeded.limit), ("processes", 10));
        drop(first);
        assert_eq!(child.reserve_processes(9).unwrap().count(), 7);
    }

    #[test]
    fn memory_is_shared_by_a_subtree_and_given_back() {
        let budget = Budget {
            memory_bytes: Some(10),
            ..Budget::default()
        };
        let parent = Arc::new(Meter::new(budget, None));
        let child = Arc::new(Meter::new(Budget::default(), Some(Arc::clone(&parent))));
        let mut first = child.memory_use(None).unwrap();
        let mut second = parent.memory_use(None).unwrap();
        assert_eq!(first.set(7), Ok(()));
        assert_eq!(second.set(3), Ok(()));
        let exceeded = BudgetExceeded {
            what: MEMORY,
            limit: 10,
        };
        assert_eq!(first.set(8), Err(exceeded));
        // The command that did not grow goes on.
        assert_eq!(second.set(3), Ok(()));
        drop(first);
        assert_eq!(second.set(10), Ok(()));
        drop(second);
        assert_eq!(parent.spent.lock().memory, 0);
    }

    #[test]
    fn memory_is_limited_by_the_budget_of_the_call_or_not_at_all() {
        let free = Arc::new(Meter::new(Budget::default(), None));
        assert!(free.memory_use(None).is_none());
        let mut of_call = free.memory_use(Some(5)).unwrap();
        assert_eq!(of_call.set(5), Ok(()));
        assert_eq!(of_call.set(6).unwrap_err().limit, 5);
    }

    #[test]
    fn concurrent_callers_spend_exactly_the_budget() {
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
