//! Slots of tools that limit their concurrent calls (`ToolSpec::max_concurrent_calls`), shared by all workers of a runtime.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::busy;
use crate::error::CallError;
use crate::id::{CallId, ToolName};
use crate::tool::ToolSet;

/// Maximum number of calls that wait for a slot of one tool.
const MAX_WAITING: usize = 1024;

/// The slots of one tool. Calls that find none free wait, first come, first served.
pub(crate) struct ToolSlots {
    tool: ToolName,
    most: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken: u32,
    waiting: VecDeque<(CallId, Arc<Shared>)>,
}

/// A call's slot, or its request for one. Dropping it gives the slot back or withdraws the request.
pub(super) struct ToolSlot {
    slots: Arc<ToolSlots>,
    call: CallId,
    /// Whether the worker was told that the slot is taken.
    pub(super) taken: bool,
}

impl ToolSlots {
    /// The slots of the tools that have a limit.
    pub(crate) fn of(tools: &ToolSet) -> BTreeMap<ToolName, Arc<Self>> {
        let limited = tools.entries().filter_map(|entry| {
            let slots = Self {
                tool: entry.name.clone(),
                most: entry.spec.max_concurrent_calls?.max(1),
                state: Mutex::default(),
            };
            Some((entry.name.clone(), Arc::new(slots)))
        });
        limited.collect()
    }

    /// Takes a slot for a call, or requests one: then its worker is notified once the slot is taken.
    ///
    /// # Errors
    /// `BUSY` if too many calls wait.
    pub(super) fn request(
        self: &Arc<Self>,
        call: CallId,
        worker: &Arc<Shared>,
    ) -> Result<ToolSlot, CallError> {
        let mut state = self.state.lock();
        let taken = state.taken < self.most;
        if taken {
            state.taken += 1;
        } else if state.waiting.len() < MAX_WAITING {
            state.waiting.push_back((call, Arc::clone(worker)));
        } else {
            return Err(self.busy(worker, &format!("{MAX_WAITING} calls are already waiting")));
        }
        Ok(ToolSlot {
            slots: Arc::clone(self),
            call,
            taken,
        })
    }

    fn busy(&self, worker: &Shared, state: &str) -> CallError {
        let reason = format!(
            "`{}` runs at most {} calls at once, and {state} (`ToolSpec::max_concurrent_calls`)",
            self.tool, self.most
        );
        busy(worker, &reason)
    }
}

impl ToolSlot {
    /// The error for a call of `worker` that waited too long.
    pub(super) fn not_taken_in_time(&self, worker: &Shared) -> CallError {
        self.slots.busy(worker, "none of them ended in time")
    }
}

impl Drop for ToolSlot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        let request = state
            .waiting
            .iter()
            .position(|(call, _)| *call == self.call);
        let (withdrawn, next) = match request {
            Some(index) => (state.waiting.remove(index), None),
            None => (None, state.waiting.pop_front()),
        };
        if request.is_none() && next.is_none() {
            state.taken -= 1;
        }
        // Outside the lock: a worker whose last handle is dropped may have slots, too.
        drop(state);
        drop(withdrawn);
        if let Some((call, worker)) = next {
            worker.post(WorkerMsg::SlotTaken(call));
        }
    }
}
