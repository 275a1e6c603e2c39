//! Sends calls to third-party servers; no thread waits for the result.

use super::Shared;
use super::actor::WorkerMsg;
use super::admission::Done;
use super::future::while_open;
use super::jobs::outcome;
use crate::audit::Step as AuditStep;
use crate::call::Mode;
use crate::capability::{CallPermit, Interrupt, passes};
use crate::effect::{Preview, PreviewToken};
use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::pipeline::{CallInfo, Cleared, Step, arguments_hash, remote_token};
use crate::policy::{Authority, Verdict};
use crate::requests::CallRequests;
use crate::tool::{RemoteContext, RemoteJob, RemoteReply};
use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Context for requests that a server makes within a call.
#[derive(Debug)]
struct Context {
    shared: Arc<Shared>,
    info: Arc<CallInfo>,
    authority: Authority,
}

impl RemoteContext for Context {
    fn requests(&self) -> Option<&CallRequests> {
        self.info.requests.as_ref()
    }

    fn folders(&self) -> Vec<VirtualPath> {
        let folders = self.authority.open_folders().iter();
        let mut outermost: Vec<VirtualPath> = Vec::new();
        // Folders are in path order, so a folder comes after its ancestors.
        for folder in folders.filter(|folder| folder.read == Verdict::Allow) {
            if !outermost.iter().any(|outer| folder.path.starts_with(outer)) {
                outermost.push(folder.path.clone());
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

/// Maximum number of server previews that are remembered per worker.
const MAX_PREVIEWS: usize = 64;

/// The servers' preview tokens that one worker received, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Previews(Mutex<VecDeque<(PreviewToken, String)>>);

impl Previews {
    fn remember(&self, token: PreviewToken, server_token: String) {
        let mut all = self.0.lock();
        if all.len() >= MAX_PREVIEWS {
            all.pop_front();
        }
        all.push_back((token, server_token));
    }

    /// The server's token of the preview that a call is bound to; fails if it is the preview of another call.
    fn server_token(&self, info: &CallInfo) -> Result<Option<String>, CallError> {
        let (Mode::Apply, Some(token)) = (info.mode, info.preview_token) else {
            return Ok(None);
        };
        let server_token = {
            let all = self.0.lock();
            let found = all.iter().rev().find(|(own, _)| *own == token);
            found.map(|(_, server_token)| server_token.clone())
        };
        let server_token =
            server_token.filter(|server_token| remote_token(info, server_token) == token);
        let stale_preview = || {
            let message =
                "the preview is not known, or is one of another call; preview the call again";
            CallError::new(Code::StalePreview, message)
        };
        server_token.ok_or_else(stale_preview).map(Some)
    }
}

impl Shared {
    /// Sends a call to its server.
    pub(super) async fn carry(
        self: &Arc<Self>,
        step: &Step<Cleared>,
        job: Arc<dyn RemoteJob>,
        permit: CallPermit,
    ) -> Result<Done, Interrupt> {
        step.previewed()?;
        let info = step.info();
        let server_token = self.previews.server_token(info)?;
        let gates = permit.gates();
        let _passes = passes(&gates)?;
        permit.checkpoint()?;
        // Everything that may fail before sending comes first, so that a call is audited as sent only if it is sent.
        let context = Arc::new(Context {
            shared: Arc::clone(self),
            info: Arc::clone(info),
            authority: step.authority().clone(),
        });
        let carrying = Arc::clone(&job).carry(&permit, server_token, context)?;
        self.audit_sending(info, &*job, permit.is_preview()).await?;
        permit.mark_sent();
        let carried = while_open(&gates, &info.stop, carrying).await?;
        Ok(self.answered(info, &permit, &*job, carried))
    }

    /// Audits a call before it is sent.
    async fn audit_sending(
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
        let info = Arc::clone(info);
        self.waiting_for_audit(move |shared| shared.audit_commit(&info, sent))
            .await
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
                Done::Preview(Box::new(Preview {
                    base: VirtualPath::top(),
                    intent: self.intent(info, &[]),
                    changes: Vec::new(),
                    resources: Vec::new(),
                    reply,
                    token,
                    artifacts: Vec::new(),
                    undoable: false,
                    call: None,
                }))
            }
            _ => outcome(reply),
        }
    }
}
