//! Worker actor; `handle` only dispatches messages to the call table.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::Shared;
use super::admission::Incoming;
use super::call_table::{CallTable, Prepared};
use super::jobs::Ended;
use crate::capability::{Interrupt, StopReason};
use crate::effect::{ExcludedHunks, Preview};
use crate::error::CallError;
use crate::id::CallId;
use crate::pipeline::{Granted, Judged};
use crate::tool::AnyPlan;

/// What reaches a worker.
#[derive(Debug)]
pub(crate) enum WorkerMsg {
    /// A new call, already admitted.
    Call(Box<Incoming>),
    /// The policy that came with a call was compiled and the call judged, or refused.
    Prepared(CallId, Box<Result<Prepared, CallError>>),
    /// A call was judged again under the policy that came with it.
    Judged(CallId, Box<Judged>),
    /// Whether live grants cover what a call must ask for.
    UsedGrants(CallId, Result<Option<Granted>, CallError>),
    /// The plan that is shown with the question.
    Planned(CallId, Box<Result<(AnyPlan, Preview), Interrupt>>),
    /// What a person said, and what of the change they left out.
    Answered(CallId, Result<(Granted, Vec<ExcludedHunks>), CallError>),
    /// A mutating call has its paths for itself now.
    PathsLocked(CallId),
    /// A pool thread is done with a call.
    Ended(CallId, Box<Ended>),
    /// A server answered a call, or did not.
    RemoteEnded(CallId, Box<Ended>),
    /// The server of a call waits for a person, or does so no more.
    Suspended(CallId, bool),
    /// The time of a call is over.
    Expired(CallId),
    /// Nobody waits for a call any more.
    Cancel(CallId),
    /// The worker's authority is gone; it ends once everybody is answered.
    Close,
}

// These messages never leave the process.
#[cfg(feature = "ractor-cluster")]
impl ractor::Message for WorkerMsg {}

/// The actor; everything it needs is in [`Shared`].
#[derive(Debug)]
pub(crate) struct WorkerActor;

#[cfg_attr(feature = "ractor-async-trait", ractor::async_trait)]
impl Actor for WorkerActor {
    type Msg = WorkerMsg;
    type State = CallTable;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        me: ActorRef<WorkerMsg>,
        shared: Arc<Shared>,
    ) -> Result<CallTable, ActorProcessingErr> {
        shared.attach(me);
        Ok(CallTable::new(shared))
    }

    async fn handle(
        &self,
        me: ActorRef<WorkerMsg>,
        msg: WorkerMsg,
        calls: &mut CallTable,
    ) -> Result<(), ActorProcessingErr> {
        match msg {
            WorkerMsg::Call(incoming) => calls.receive(*incoming),
            WorkerMsg::Prepared(call, step) => calls.prepared(call, *step),
            WorkerMsg::Judged(call, judged) => calls.judged_again(call, *judged),
            WorkerMsg::UsedGrants(call, granted) => calls.used(call, granted),
            WorkerMsg::Planned(call, plan) => calls.planned(call, *plan),
            WorkerMsg::Answered(call, answer) => calls.answered(call, answer),
            WorkerMsg::PathsLocked(call) => calls.paths_locked(call),
            WorkerMsg::Ended(call, ended) => calls.ended(call, *ended),
            WorkerMsg::RemoteEnded(call, ended) => calls.remote_ended(call, *ended),
            WorkerMsg::Suspended(call, suspended) => calls.suspend(call, suspended),
            WorkerMsg::Expired(call) => calls.abort(call, StopReason::Expired),
            WorkerMsg::Cancel(call) => calls.abort(call, StopReason::Cancelled),
            WorkerMsg::Close => calls.close(),
        }
        if calls.is_over() {
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<WorkerMsg>,
        calls: &mut CallTable,
    ) -> Result<(), ActorProcessingErr> {
        calls.stopped();
        Ok(())
    }
}
