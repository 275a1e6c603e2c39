//! Worker actor; `handle` only dispatches messages to the call table.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::Shared;
use super::call_table::{CallTable, CompiledCall, OpenCall};
use super::jobs::Ended;
use super::prepare::UnparsedCall;
use crate::capability::{Interrupt, StopReason};
use crate::effect::Preview;
use crate::error::CallError;
use crate::id::CallId;
use crate::permission::Exclusion;
use crate::pipeline::{Granted, Judged};
use crate::tool::AnyPlan;

/// Message to a worker.
#[derive(Debug)]
pub(crate) enum WorkerMsg {
    /// A new call, already admitted.
    Call(UnparsedCall, Box<OpenCall>),
    /// The policy of a call was compiled and the call judged, or the call was rejected.
    Prepared(CallId, Box<Result<CompiledCall, CallError>>),
    /// A call was judged again under its own policy.
    Judged(CallId, Box<Judged>),
    /// The live grants that cover the needs of a call were looked up.
    GrantsChecked(CallId, Result<Option<Granted>, CallError>),
    /// The plan to show with the question is ready.
    Planned(CallId, Box<Result<(AnyPlan, Preview), Interrupt>>),
    /// The question of a call was answered; the answer may exclude changes.
    Answered(CallId, Result<(Granted, Option<Exclusion>), CallError>),
    /// A call has the slot of its tool that it waited for.
    SlotTaken(CallId),
    /// A mutating call holds its path locks.
    PathsLocked(CallId),
    /// The job of a call left the queue of the threads for tools.
    Started(CallId),
    /// The job of a call ended.
    Ended(CallId, Box<Ended>),
    /// The large result of a call was passed on.
    PassedOn(CallId),
    /// A call that runs as a future ended.
    FutureEnded(CallId, Box<Ended>),
    /// The server of a call started or stopped waiting for a person.
    Suspended(CallId, bool),
    /// Granted paths outside the roots are being opened. If the deadline was suspended for a question, it runs again.
    OpeningGranted(CallId),
    /// The deadline of a call has passed.
    Expired(CallId),
    /// The caller dropped the call.
    Cancel(CallId),
    /// The worker or an ancestor was resumed.
    Resumed,
    /// The worker was revoked; it ends once all calls are answered.
    Close,
    /// The worker had no call for a while; the actor ends unless there is one now.
    EndIfIdle,
}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for WorkerMsg {}

/// Worker actor; its data is in [`Shared`].
#[derive(Debug)]
pub(crate) struct WorkerActor;

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for WorkerActor {
    type Msg = WorkerMsg;
    type State = CallTable;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        _: ActorRef<WorkerMsg>,
        shared: Arc<Shared>,
    ) -> Result<CallTable, ActorProcessingErr> {
        Ok(CallTable::new(shared))
    }

    async fn handle(
        &self,
        me: ActorRef<WorkerMsg>,
        msg: WorkerMsg,
        calls: &mut CallTable,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            WorkerMsg::Call(request, call) => calls.receive(request, call),
            WorkerMsg::Prepared(call, step) => calls.prepared(call, *step),
            WorkerMsg::Judged(call, judged) => calls.judged_again(call, *judged),
            WorkerMsg::GrantsChecked(call, granted) => calls.grants_checked(call, granted),
            WorkerMsg::Planned(call, plan) => calls.planned(call, *plan),
            WorkerMsg::Answered(call, answer) => calls.question_answered(call, answer),
            WorkerMsg::SlotTaken(call) => calls.slot_taken(call),
            WorkerMsg::PathsLocked(call) => calls.paths_locked(call),
            WorkerMsg::Started(call) => calls.job_started(call),
            WorkerMsg::Ended(call, ended) => calls.job_ended(call, *ended),
            WorkerMsg::PassedOn(call) => calls.passed_on(call),
            WorkerMsg::FutureEnded(call, ended) => calls.future_ended(call, *ended),
            WorkerMsg::Suspended(call, suspended) => calls.suspend(call, suspended),
            WorkerMsg::OpeningGranted(call) => calls.opening_granted(call),
            WorkerMsg::Expired(call) => calls.abort(call, StopReason::Expired),
            WorkerMsg::Cancel(call) => calls.abort(call, StopReason::Cancelled),
            WorkerMsg::Resumed => calls.resumed(),
            WorkerMsg::Close => calls.close(),
            WorkerMsg::EndIfIdle => calls.end_if_idle(me.get_id()),
        }
        if calls.is_done() {
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        me: ActorRef<WorkerMsg>,
        calls: &mut CallTable,
    ) -> Result<(), ActorProcessingErr> {
        calls.end(me.get_id());
        Ok(())
    }
}
