//! A cleared call of another server's tool in, what the server answered out; no thread waits for it.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::Shared;
use super::actor::WorkerMsg;
use super::foreign::any;
use super::inbox::Done;
use super::jobs::{Ended, outcome, panicked};
use crate::audit::Step as AuditStep;
use crate::capability::{CallPermit, Halt, revoked};
use crate::effect::Preview;
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::path::VirtualPath;
use crate::pipeline::{Cleared, Facts, Mode, Step, Work, remote_token};
use crate::tool::{Carried, RemoteJob};

/// A call under way at a server; dropping it cancels the call.
#[derive(Debug)]
pub(super) struct Sending(AbortHandle);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the worker how the sending ended, however it ends.
struct Report {
    shared: Arc<Shared>,
    call: CallId,
    ended: Option<Ended>,
}

impl Report {
    fn end(mut self, ended: Ended) {
        self.ended = Some(ended);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let ended = self.ended.take();
        let ended = ended.unwrap_or_else(|| Ended::Done(Err(panicked())));
        let carried = WorkerMsg::Carried(self.call, Box::new(ended));
        // A worker that is gone answered the call when it went.
        self.shared.post(carried);
    }
}

/// Refuses a call that is tied to the preview of another.
fn as_shown(facts: &Facts, job: &dyn RemoteJob) -> Result<(), CallError> {
    let (Mode::Apply, Some(token)) = (facts.mode, facts.token) else {
        return Ok(());
    };
    let shown = job.shown(token);
    if shown.is_some_and(|shown| remote_token(facts, &shown) == token) {
        return Ok(());
    }
    let message = "the preview is not known, or is one of another call; preview the call again";
    Err(CallError::new(Code::StalePreview, message))
}

impl Shared {
    /// Sends a call to its server.
    pub(super) fn send(self: &Arc<Self>, call: CallId, step: Step<Cleared>) -> Sending {
        let report = Report {
            shared: Arc::clone(self),
            call,
            ended: None,
        };
        let task = tokio::spawn(async move {
            let carried = report.shared.carry(&step).await;
            report.end(match carried {
                Ok(done) => Ended::Done(Ok(done)),
                Err(Halt::Failed(error)) => Ended::Done(Err(error)),
                Err(halt) => Ended::Halted(step, halt),
            });
        });
        Sending(task.abort_handle())
    }

    async fn carry(self: &Arc<Self>, step: &Step<Cleared>) -> Result<Done, Halt> {
        let Work::Remote(job, permit) = step.work() else {
            return Err(CallError::new(Code::Internal, "the call is for no server").into());
        };
        step.previewed()?;
        let facts = step.facts();
        as_shown(facts, &*job)?;
        self.note_sending(facts, &permit).await?;
        let gates = permit.gates();
        let passes = gates.iter().map(|gate| gate.pass().ok_or_else(revoked));
        let passes: Vec<_> = passes.collect::<Result<_, _>>()?;
        permit.checkpoint()?;
        permit.sent();
        // A revocation does not wait for a server: it ends the sending.
        drop(passes);
        let revocation = gates.iter().map(|gate| Box::pin(gate.closed()));
        let carried = tokio::select! {
            biased;
            () = any(revocation.collect()) => return Err(revoked().into()),
            carried = Arc::clone(&job).carry(&permit) => carried?,
        };
        Ok(self.answered(facts, &permit, &*job, carried))
    }

    /// The log names a call before it is sent. It is waited for where waiting stops nobody.
    async fn note_sending(
        self: &Arc<Self>,
        facts: &Arc<Facts>,
        permit: &CallPermit,
    ) -> Result<(), CallError> {
        let entry = self.tool(facts.tool.as_str());
        let Some(remote) = entry.as_ref().and_then(|entry| entry.remote.as_ref()) else {
            let message = "the server offers this tool no longer";
            return Err(CallError::new(Code::UnknownTool, message));
        };
        let sent = AuditStep::Sent {
            server: Arc::clone(&remote.server),
            tool_there: Arc::clone(&remote.tool),
            preview: permit.is_preview(),
        };
        let (shared, facts) = (Arc::clone(self), Arc::clone(facts));
        let written = tokio::task::spawn_blocking(move || shared.audit_commit(&facts, sent));
        written.await.unwrap_or_else(|_| Err(panicked()))
    }

    fn answered(
        &self,
        facts: &Facts,
        permit: &CallPermit,
        job: &dyn RemoteJob,
        carried: Carried,
    ) -> Done {
        let Carried { reply, preview } = carried;
        match preview {
            Some(shown) if permit.is_preview() && job.mutates() => {
                let token = remote_token(facts, &shown);
                job.remember(token, &shown);
                Done::Preview(Preview {
                    base: VirtualPath::top(),
                    intent: self.intent(facts, &[]),
                    changes: Vec::new(),
                    reply,
                    token,
                    artifacts: Vec::new(),
                })
            }
            _ => outcome(reply),
        }
    }
}
