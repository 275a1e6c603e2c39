//! Calls of views, audited as such.

use std::sync::Arc;

use ractor::ActorCell;
use serde_json::{Value, json};

use super::apps::Apps;
use super::{Worker, prepare};
use crate::audit::Step;
use crate::call::{Mode, Origin};
use crate::capability::CallControl;
use crate::error::{CallError, Code};
use crate::id::{QuestionId, ToolName};
use crate::pipeline::{CallInfo, arguments_hash};
use crate::policy::Verdict;
use crate::scope::Scope;
use crate::tool::{Entry, RemoteTools};

/// Name in the audit of reads that a page makes at its server.
const READ: &str = "resources/read";

#[doc(hidden)]
impl Worker {
    #[must_use]
    pub fn apps(&self) -> &Apps {
        &self.shared.apps
    }

    /// Returns the supervisor that its actor is linked to.
    #[must_use]
    pub fn supervisor(&self) -> Option<ActorCell> {
        self.shared.core.supervisor_of(self.shared.id)
    }

    /// Whether a question waits for an answer; true if the broker has ended.
    pub async fn is_asked(&self, question: QuestionId) -> bool {
        let asked = self.shared.core.broker.question(question).await;
        !matches!(asked, Ok(None))
    }

    /// Returns whether the runtime was built with these remote tools.
    pub fn is_offered(&self, remote: &Arc<RemoteTools>) -> bool {
        self.shared.core.tools.are_of(remote)
    }

    /// Returns the runtime's tool of that name, or the tool of a server by its name at the server.
    #[must_use]
    pub fn tool_for_views(&self, server: Option<&str>, tool: &str) -> Option<Arc<Entry>> {
        let tools = &self.shared.core.tools;
        let entry = match server {
            Some(server) => tools.of_server(server, tool),
            None => tools.own(tool).cloned(),
        };
        let reached = |entry: &Arc<Entry>| {
            entry.is_for(Origin::View, true) && prepare::is_left(entry, &self.shared.authority)
        };
        entry.filter(reached)
    }

    /// Audits a call of an unknown tool.
    #[must_use]
    pub fn reject_unknown_tool(&self, tool: &str, origin: Origin) -> CallError {
        self.refuse(tool, origin, CallError::unknown_tool(tool))
    }

    /// Audits that a call exceeded the rate limit of its connection.
    #[must_use]
    pub fn reject_rate_limited(
        &self,
        tool: &str,
        origin: Origin,
        retry_after_ms: u64,
    ) -> CallError {
        let message = "calls come too fast; try again later";
        let error = CallError::new(Code::RateLimited, message);
        let error = error.with("retry_after_ms", retry_after_ms);
        self.refuse(tool, origin, error)
    }

    fn refuse(&self, tool: &str, origin: Origin, error: CallError) -> CallError {
        let info = CallInfo {
            origin,
            ..self.of_view(tool, Value::Null)
        };
        self.shared.reject(&Arc::new(info), &error);
        error
    }

    /// Audits that a view's call was rejected before its tool was known.
    #[must_use]
    pub fn refuse_view(&self, tool: &str, arguments: Value, error: CallError) -> CallError {
        let info = Arc::new(self.of_view(tool, arguments));
        self.shared.reject(&info, &error);
        error
    }

    /// Judges and audits a page's read from its server, which is called `label` in scopes. Nobody is asked about it.
    /// Call [`Worker::view_read`] with its result.
    pub fn view_reads(
        &self,
        server: &str,
        label: &str,
        uri: &str,
    ) -> Result<Arc<CallInfo>, CallError> {
        let info = Arc::new(self.of_view(READ, json!({ "uri": uri })));
        let judged = self.judge_reading(&info, server, label);
        judged.inspect_err(|error| self.shared.reject(&info, error))?;
        Ok(info)
    }

    fn judge_reading(&self, info: &CallInfo, server: &str, label: &str) -> Result<(), CallError> {
        if self.shared.gate().is_closed() {
            return Err(self.shared.gate().error());
        }
        let need: Scope = format!("read:mcp:{label}")
            .parse()
            .map_err(|_| CallError::new(Code::Internal, "the server has no name"))?;
        let why = self.shared.authority.explain(&need, &[]);
        let verdict = why.verdict;
        let step = Step::Judged {
            verdict,
            needs: [need.clone()].into(),
            rule: (verdict != Verdict::Allow).then(|| why.to_string().into()),
        };
        self.shared.audit(info, step)?;
        match verdict {
            Verdict::Allow => {}
            Verdict::Ask => {
                let message = "reading this server's resources needs approval, and nobody is asked";
                return Err(CallError::new(Code::ScopeRequired, message).requesting(vec![need]));
            }
            Verdict::Deny => {
                let message = format!("the policy denies `{}`", need.without_marks());
                return Err(CallError::new(Code::PermissionDenied, message));
            }
        }
        let step = Step::RemoteCall {
            server: server.into(),
            tool_there: READ.into(),
            preview: false,
            arguments_sha256: arguments_hash(&info.arguments),
        };
        self.shared.audit(info, step)
    }

    /// Audits how a page's read ended: the number of bytes, or an error.
    pub fn view_read(&self, info: &Arc<CallInfo>, ended: Result<u64, &CallError>) {
        match ended {
            Ok(bytes) => {
                // The read was audited before; the audit counts missing records.
                let _ = self.shared.audit(
                    info,
                    Step::Finished {
                        code: None,
                        bytes,
                        allowed: None,
                    },
                );
            }
            Err(error) => self.shared.reject(info, error),
        }
    }

    fn of_view(&self, tool: &str, arguments: Value) -> CallInfo {
        CallInfo {
            id: self.shared.core.next_call(),
            worker: self.shared.id,
            tool: ToolName::new(tool),
            origin: Origin::View,
            mode: Mode::Apply,
            preview_token: None,
            excluded: Vec::new(),
            preview_key: self.shared.core.preview_key,
            confirm: false,
            arguments,
            stop: Arc::new(CallControl::with_progress(None)),
            requests: None,
        }
    }
}
