//! Carries out calls of act tools.

use std::sync::Arc;

use super::Shared;
use super::admission::Done;
use super::future::while_open;
use super::jobs::{artifacts, catch_tool_panic, planned_step};
use crate::audit::Step as AuditStep;
use crate::call::Mode;
use crate::capability::{ActRecords, StopReason, passes};
use crate::effect::Outcome;
use crate::error::CallError;
use crate::pipeline::{Cleared, Step};
use crate::tool::ActJob;

impl Shared {
    pub(super) async fn act(
        self: &Arc<Self>,
        step: Step<Cleared>,
        job: Arc<dyn ActJob>,
    ) -> Result<Done, CallError> {
        let plan = catch_tool_panic(|| Ok(step.plan_act(&*job))).map_err(CallError::from)?;
        let planned = step.planned(job, plan)?;
        let (info, token) = (Arc::clone(planned.info()), planned.token());
        let (job, plan, permit) = planned.permit();
        let recorder = Box::new({
            let (shared, info) = (Arc::clone(self), Arc::clone(&info));
            move |details| {
                let details = Box::new(details);
                shared.audit(&info, AuditStep::Recorded { details })
            }
        });
        let records = Arc::new(ActRecords::new(
            recorder,
            Arc::clone(&self.meter),
            self.core.path_locks.clone(),
        ));
        let permit = permit.recording(Arc::clone(&records));
        let gates = permit.gates();
        let _passes = passes(&gates)?;
        permit.reading().checkpoint()?;
        let planned = planned_step(token, &plan);
        let applying = AuditStep::Applying {
            token,
            bytes: plan.cost.bytes,
            files: plan.cost.files,
        };
        self.waiting_for_audit({
            let info = Arc::clone(&info);
            move |shared| {
                shared.audit_commit(&info, planned)?;
                shared.audit_commit(&info, applying)
            }
        })
        .await?;
        let acted = while_open(&gates, &info.stop, job.act(permit)).await;
        // A permit that the tool kept is void from now on.
        info.stop
            .raise(if gates.iter().any(|gate| gate.is_closed()) {
                StopReason::Revoked
            } else {
                StopReason::Cancelled
            });
        let reply = acted.map_err(|error| info.stop.with_effect(error))?;
        // The effect is complete, so nothing after it may fail the call.
        let recorded = self.audit_applied(&info, token);
        if let Err(error) = &recorded {
            tracing::error!(%error, call = %info.id, "an effect was made and could not be recorded");
        }
        let intent = || self.intent(&info, &[]);
        let kept = records.take_kept();
        Ok(Done::Outcome(Outcome {
            artifacts: artifacts(self, &info, &plan, Mode::Apply, intent, kept),
            reply,
            changes: plan.changes,
            resources: plan.resources,
            recorded: recorded.is_ok(),
        }))
    }
}
