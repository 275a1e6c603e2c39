//! Sends calls to third-party servers; no thread waits for the result.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::task::AbortHandle;

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::Done;
use super::jobs::{Ended, outcome, panicked};
use crate::audit::Step as AuditStep;
use crate::capability::{CallPermit, Gate, Interrupt, revoked};
use crate::effect::{Preview, PreviewToken};
use crate::error::{CallError, Code};
use crate::id::CallId;
use crate::path::VirtualPath;
use crate::pipeline::{CallInfo, Cleared, Mode, Step, Work, arguments_hash, remote_token};
#[cfg(feature = "mcp")]
use crate::policy::{Authority, Verdict};
use crate::tool::{RemoteContext, RemoteFuture, RemoteJob, RemoteReply};

/// Task of a call that was sent to a server; dropping it cancels the call.
#[derive(Debug)]
pub(super) struct RemoteTask(AbortHandle);

impl Drop for RemoteTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Context for requests that a server makes within a call.
#[derive(Debug)]
struct Context {
    shared: Arc<Shared>,
    info: Arc<CallInfo>,
    #[cfg(feature = "mcp")]
    authority: Authority,
}

impl RemoteContext for Context {
    #[cfg(feature = "mcp")]
    fn requests(&self) -> Option<&crate::CallRequests> {
        self.info.requests.as_ref()
    }

    #[cfg(feature = "mcp")]
    fn folders(&self) -> Vec<VirtualPath> {
        let folders = self.authority.open_folders().into_iter();
        let mut outermost: Vec<VirtualPath> = Vec::new();
        // Folders are in path order, so a folder comes after its ancestors.
        for folder in folders.filter(|folder| folder.read == Verdict::Allow) {
            if !outermost.iter().any(|outer| folder.path.starts_with(outer)) {
                outermost.push(folder.path);
            }
        }
        outermost
    }

    fn suspend(&self, suspended: bool) {
        self.shared
            .post(WorkerMsg::Suspended(self.info.id, suspended));
    }

    fn record(&self, step: AuditStep) {
        // The call is audited already, and the audit counts missing records.
        let _ = self.shared.audit(&self.info, step);
    }
}

/// Reports the end of the task to the worker when dropped.
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
        let carried = WorkerMsg::RemoteEnded(self.call, Box::new(ended));
        // A worker that has ended has answered the call.
        self.shared.post(carried);
    }
}

/// How many previews of servers are remembered per worker.
const MOST_PREVIEWS: usize = 64;

/// The servers' tokens of previews that one worker received, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Previews(Mutex<VecDeque<(PreviewToken, String)>>);

impl Previews {
    fn all(&self) -> MutexGuard<'_, VecDeque<(PreviewToken, String)>> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, token: PreviewToken, theirs: String) {
        let mut all = self.all();
        if all.len() >= MOST_PREVIEWS {
            all.pop_front();
        }
        all.push_back((token, theirs));
    }

    /// The server's token of the preview that a call is bound to; an error if it is the preview of another call.
    fn tied(&self, info: &CallInfo) -> Result<Option<String>, CallError> {
        let (Mode::Apply, Some(token)) = (info.mode, info.token) else {
            return Ok(None);
        };
        let theirs = {
            let all = self.all();
            let found = all.iter().rev().find(|(ours, _)| *ours == token);
            found.map(|(_, theirs)| theirs.clone())
        };
        let theirs = theirs.filter(|theirs| remote_token(info, theirs) == token);
        let stale_preview = || {
            let message =
                "the preview is not known, or is one of another call; preview the call again";
            CallError::new(Code::StalePreview, message)
        };
        theirs.ok_or_else(stale_preview).map(Some)
    }
}

/// Polls a remote call while all of `gates` are open. A revocation does not wait for the server: it waits only for the
/// current poll, and no other follows.
async fn while_open(
    gates: &[Arc<Gate>],
    mut carrying: RemoteFuture,
) -> Result<RemoteReply, Interrupt> {
    let closed = gates.iter().map(|gate| Box::pin(gate.closed()));
    let mut closed: Vec<_> = closed.collect();
    std::future::poll_fn(|context| {
        let is_closed = closed
            .iter_mut()
            .any(|one| one.as_mut().poll(context).is_ready());
        let passes = gates.iter().map(|gate| gate.pass());
        match passes.collect::<Option<Vec<_>>>() {
            Some(_passes) if !is_closed => carrying.as_mut().poll(context),
            // The server may have carried it out.
            Some(_) | None => Poll::Ready(Err(revoked().with("begun", true).into())),
        }
    })
    .await
}

impl Shared {
    /// Sends a call to its server.
    pub(super) fn send(self: &Arc<Self>, call: CallId, step: Step<Cleared>) -> RemoteTask {
        let report = Report {
            shared: Arc::clone(self),
            call,
            ended: None,
        };
        let task = tokio::spawn(async move {
            let carried = report.shared.carry(&step).await;
            report.end(match carried {
                Ok(done) => Ended::Done(Ok(done)),
                Err(Interrupt::Failed(error)) => Ended::Done(Err(error)),
                Err(interrupt) => Ended::Interrupted(step, interrupt),
            });
        });
        RemoteTask(task.abort_handle())
    }

    async fn carry(self: &Arc<Self>, step: &Step<Cleared>) -> Result<Done, Interrupt> {
        let Work::Remote(job, permit) = step.work() else {
            return Err(CallError::new(Code::Internal, "the call is for no server").into());
        };
        step.previewed()?;
        let info = step.info();
        let tied = self.previews.tied(info)?;
        let gates = permit.gates();
        let passes = gates.iter().map(|gate| gate.pass().ok_or_else(revoked));
        let passes: Vec<_> = passes.collect::<Result<_, _>>()?;
        permit.checkpoint()?;
        // Everything that may fail before sending comes first, so that only calls that are sent are audited as such.
        let context = Arc::new(Context {
            shared: Arc::clone(self),
            info: Arc::clone(info),
            #[cfg(feature = "mcp")]
            authority: step.authority().clone(),
        });
        let carrying = Arc::clone(&job).carry(&permit, tied, context)?;
        self.note_sending(info, &*job, permit.is_preview()).await?;
        permit.sent();
        drop(passes);
        let carried = while_open(&gates, carrying).await?;
        Ok(self.answered(info, &permit, &*job, carried))
    }

    /// Audits a call before it is sent. The audit is awaited on a blocking thread.
    async fn note_sending(
        self: &Arc<Self>,
        info: &Arc<CallInfo>,
        job: &dyn RemoteJob,
        preview: bool,
    ) -> Result<(), CallError> {
        let (server, tool_there) = job.target();
        let sent = AuditStep::RemoteCall {
            server,
            tool_there,
            preview,
            arguments_sha256: arguments_hash(&info.arguments),
        };
        let (shared, info) = (Arc::clone(self), Arc::clone(info));
        let written = tokio::task::spawn_blocking(move || shared.audit_commit(&info, sent));
        written.await.unwrap_or_else(|_| Err(panicked()))
    }

    fn answered(
        &self,
        info: &CallInfo,
        permit: &CallPermit,
        job: &dyn RemoteJob,
        carried: RemoteReply,
    ) -> Done {
        let RemoteReply { reply, preview } = carried;
        match preview {
            Some(shown) if permit.is_preview() && job.mutates() => {
                let token = remote_token(info, &shown);
                self.previews.remember(token, shown);
                Done::Preview(Preview {
                    base: VirtualPath::top(),
                    intent: self.intent(info, &[]),
                    changes: Vec::new(),
                    resources: Vec::new(),
                    reply,
                    token,
                    artifacts: Vec::new(),
                })
            }
            _ => outcome(reply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    #[test]
    fn no_step_of_a_remote_call_runs_after_its_gate_is_closed_and_idle() {
        let gates = [Arc::<Gate>::default(), Arc::default()];
        let steps = Arc::new(AtomicUsize::new(0));
        let context = &mut Context::from_waker(Waker::noop());
        let carrying: RemoteFuture = {
            let (gates, steps) = (gates.clone(), Arc::clone(&steps));
            Box::pin(std::future::poll_fn(move |_| {
                steps.fetch_add(1, Ordering::SeqCst);
                // A concurrent revocation would wait.
                for gate in &gates {
                    let idle = std::pin::pin!(gate.idle());
                    let context = &mut Context::from_waker(Waker::noop());
                    assert!(idle.poll(context).is_pending());
                }
                Poll::Pending
            }))
        };
        let mut call = Box::pin(while_open(&gates, carrying));
        assert!(call.as_mut().poll(context).is_pending());
        assert!(call.as_mut().poll(context).is_pending());
        gates[1].close();
        let Poll::Ready(Err(Interrupt::Failed(error))) = call.as_mut().poll(context) else {
            panic!("the call goes on");
        };
        assert_eq!(error.code(), Code::Cancelled);
        assert_eq!(steps.load(Ordering::SeqCst), 2);
    }
}
