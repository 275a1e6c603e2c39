//! A cleared call of another server's tool in, what the server answered out; no thread waits for it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::task::AbortHandle;

use super::Shared;
use super::actor::WorkerMsg;
use super::inbox::Done;
use super::jobs::{Ended, outcome, panicked};
use crate::audit::Step as AuditStep;
use crate::capability::{CallPermit, Halt, revoked};
use crate::effect::{Preview, PreviewToken};
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

/// How many previews of servers one worker is remembered to have been shown.
const MOST_PREVIEWS: usize = 64;

/// What servers call the previews that one worker was shown, the oldest first.
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

    /// What the server calls the preview that a call is tied to; refused if it is the preview of another.
    fn tied(&self, facts: &Facts) -> Result<Option<String>, CallError> {
        let (Mode::Apply, Some(token)) = (facts.mode, facts.token) else {
            return Ok(None);
        };
        let theirs = {
            let all = self.all();
            let found = all.iter().rev().find(|(ours, _)| *ours == token);
            found.map(|(_, theirs)| theirs.clone())
        };
        let theirs = theirs.filter(|theirs| remote_token(facts, theirs) == token);
        let stale = || {
            let message =
                "the preview is not known, or is one of another call; preview the call again";
            CallError::new(Code::StalePreview, message)
        };
        theirs.ok_or_else(stale).map(Some)
    }
}

/// Returns once one of these has.
async fn any<F: Future<Output = ()> + Unpin>(mut ends: Vec<F>) {
    std::future::poll_fn(|context| {
        let ended = |end: &mut F| Pin::new(end).poll(context).is_ready();
        if ends.iter_mut().any(ended) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
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
        let tied = self.previews.tied(facts)?;
        let gates = permit.gates();
        let passes = gates.iter().map(|gate| gate.pass().ok_or_else(revoked));
        let passes: Vec<_> = passes.collect::<Result<_, _>>()?;
        permit.checkpoint()?;
        // What is not sent is not said to be: all that may refuse it here has done so when it is written down.
        let carrying = Arc::clone(&job).carry(&permit, tied)?;
        self.note_sending(facts, &*job, permit.is_preview()).await?;
        permit.sent();
        // A revocation does not wait for a server: it ends the sending.
        drop(passes);
        let revocation = gates.iter().map(|gate| Box::pin(gate.closed()));
        let carried = tokio::select! {
            biased;
            // Nobody can tell how far the server came.
            () = any(revocation.collect()) => return Err(revoked().with("begun", true).into()),
            carried = carrying => carried?,
        };
        Ok(self.answered(facts, &permit, &*job, carried))
    }

    /// The log names a call before it is sent. It is waited for where waiting stops nobody.
    async fn note_sending(
        self: &Arc<Self>,
        facts: &Arc<Facts>,
        job: &dyn RemoteJob,
        preview: bool,
    ) -> Result<(), CallError> {
        let (server, tool_there) = job.target();
        let sent = AuditStep::Sent {
            server,
            tool_there,
            preview,
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
                self.previews.remember(token, shown);
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
