//! Reports calls to the record of recent calls, if the runtime keeps one.

use std::sync::Arc;

use super::Shared;
use super::activity::CallState;
use super::admission::{Done, MAX_NESTING, json_size};
use crate::activity::{CallLog, CancelCause, Received, RecentCall};
use crate::audit::wall_clock;
use crate::call::Mode;
use crate::capability::StopReason;
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::permission::{Request, UsedGrants};
use crate::pipeline::CallInfo;
use crate::policy::Verdict;
use crate::scope::Scope;

impl Shared {
    pub(super) fn recent_calls(&self) -> Option<&CallLog> {
        self.core.audit.monitor().calls()
    }

    /// Reports that a call was received.
    pub(super) fn log_received(&self, info: &CallInfo) {
        let Some(calls) = self.recent_calls() else {
            return;
        };
        let now = wall_clock();
        let row = RecentCall {
            call: info.id,
            worker: self.id,
            agent: Arc::clone(&self.agent),
            session: Arc::clone(&self.session),
            tool: info.tool.clone(),
            server: self.server_of(info),
            origin: info.origin,
            preview: info.mode == Mode::Preview,
            mutates: self
                .tool(info.tool.as_str())
                .is_some_and(|entry| entry.mutates),
            intent: self.intent(info, &[]),
            at: now,
            state: CallState::Preparing,
            since: now,
            message: None,
            denied_by: None,
            cancelled_by: None,
            needs: Vec::new(),
            needs_omitted: 0,
            asked: Vec::new(),
            asked_omitted: 0,
            question: None,
            allowed_by: Vec::new(),
            files: 0,
            added: 0,
            removed: 0,
            applied: false,
            content: None,
        };
        // Rendering recurses, and a call that nests too deeply was rejected.
        let renderable = json_size(&info.arguments, MAX_NESTING).is_some();
        let arguments = renderable.then_some(&info.arguments);
        calls.begin(Received { row, arguments });
    }

    /// Reports the verdict on a call.
    pub(super) fn log_judged(&self, info: &CallInfo, needs: &[Scope], verdict: Verdict) {
        if let Some(calls) = self.recent_calls() {
            let intent = self.intent(info, needs);
            calls.judged(info.id, needs, &intent, verdict == Verdict::Allow);
        }
    }

    /// Reports the grants that a call uses.
    pub(super) fn log_granted(&self, call: CallId, used: &UsedGrants) {
        if let Some(calls) = self.recent_calls() {
            calls.granted(call, &used.grants, &used.brought);
        }
    }

    /// Reports that the question of a call was answered and the call continues, with the sentence about what remains of it
    /// if the answer excludes something.
    pub(super) fn log_approved(&self, call: CallId, remaining: Option<&str>) {
        if let Some(calls) = self.recent_calls() {
            calls.approved(call, remaining);
        }
    }

    /// Reports a call that requires approval, and what it would change.
    pub(super) fn log_asking(&self, request: &Request) {
        if let Some(calls) = self.recent_calls() {
            let preview = request.preview.as_ref();
            let changes = preview.map_or(&[][..], |preview| &preview.changes);
            let resources = preview.map_or(&[][..], |preview| &preview.resources);
            calls.asking(
                request.call,
                &request.sentence,
                &request.needs,
                (changes, resources),
            );
        }
    }

    /// Reports the state of a call.
    pub(super) fn log_state(&self, call: CallId, state: CallState) {
        if let Some(calls) = self.recent_calls() {
            calls.enter(call, state, wall_clock());
        }
    }

    /// Reports an effect that was made after its call had been answered.
    pub(super) fn log_late_effect(&self, call: CallId, done: &Done) {
        if let (Some(calls), Done::Outcome(outcome)) = (self.recent_calls(), done) {
            calls.applied_late(call, &outcome.changes, &outcome.resources);
        }
    }

    /// Why a call was cancelled.
    fn cancel_cause(&self, info: &CallInfo, error: &CallError) -> Option<CancelCause> {
        if error.code() != Code::Cancelled {
            None
        } else if self.gate().is_closed() {
            Some(CancelCause::WorkerEnded)
        } else {
            match info.stop.reason() {
                Some(StopReason::Cancelled) => Some(CancelCause::Caller),
                Some(StopReason::Revoked) => Some(CancelCause::GrantRevoked),
                Some(StopReason::Expired) | None => None,
            }
        }
    }

    /// Reports the end of a call.
    pub(super) fn log_end(&self, info: &CallInfo, result: Result<&Done, &CallError>) {
        let Some(calls) = self.recent_calls() else {
            return;
        };
        // A call that was rejected at once was not received.
        if !calls.has(info.id) {
            self.log_received(info);
        }
        let now = wall_clock();
        match result {
            Err(error) => calls.failed(info.id, error, self.cancel_cause(info, error), now),
            Ok(Done::Outcome(outcome)) => {
                let changes = (outcome.changes.as_slice(), outcome.resources.as_slice());
                let applied = outcome.has_changes();
                calls.succeeded(info.id, changes, &outcome.reply, applied, now);
            }
            Ok(Done::Preview(preview)) => {
                let changes = (preview.changes.as_slice(), preview.resources.as_slice());
                calls.succeeded(info.id, changes, &preview.reply, false, now);
            }
        }
    }
}
