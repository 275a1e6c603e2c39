//! State of a worker that outlives its actors; audit events go through it.

use std::fmt;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use super::activity::Activity;
use super::admission::{Done, Load, ReplySender};
use super::deadline::DeadlineGuard;
use super::lifecycle::ActorState;
use super::pause::Pause;
use super::remote::Previews;
use crate::audit::{AuditError, AuditEvent, Step as AuditStep, wall_clock};
use crate::call::{Call, Mode, Origin};
use crate::capability::{Gate, Meter};
use crate::config::Namespace;
use crate::effect::{Change, PreviewToken};
use crate::error::CallError;
use crate::id::{ToolName, WorkerId};
use crate::monitor::{Event, EventKind};
use crate::path::VirtualPath;
use crate::permission::UsedGrants;
use crate::pipeline::{CallInfo, Judged, Parsed, Step, WorkerHandles};
use crate::policy::{Authority, Verdict, VerdictCache};
use crate::root::Root;
use crate::scope::Scope;
use crate::scope::ScopePattern;
use crate::supervisor::Core;
use crate::tool::Entry;

/// Maximum number of ignored grants of one call that are audited.
const MAX_IGNORED: usize = 16;

/// How a call was judged.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) judged: Judged,
    pub(super) needs: Arc<[Scope]>,
    /// The deciding layer and rule; `None` if all layers allow the call without a grant.
    pub(super) rule: Option<Arc<str>>,
}

/// State of one worker that outlives its actors.
pub(crate) struct Shared {
    pub(crate) id: WorkerId,
    /// Path of worker names, such as `main/tests`.
    pub(crate) agent: Arc<str>,
    pub(crate) session: Arc<str>,
    /// Its ancestors, from the nearest to the outermost.
    pub(crate) lineage: Arc<[WorkerId]>,
    pub(crate) authority: Authority,
    /// Resolves the paths of its calls.
    pub(crate) names: Namespace,
    pub(crate) meter: Arc<Meter>,
    pub(crate) core: Arc<Core>,
    pub(crate) handles: Arc<WorkerHandles>,
    pub(super) load: Load,
    pub(super) lost: Arc<AtomicU32>,
    pub(super) pause: Arc<Pause>,
    /// When it was started, in milliseconds since 1970.
    pub(super) started_at: u64,
    /// Held while the policy of a request other than a call is compiled.
    pub(super) compiling: OnceLock<Arc<tokio::sync::Mutex<()>>>,
    pub(super) activity: Activity,
    /// Previews that it received from third-party servers.
    pub(super) previews: Previews,
    /// The apps that are open beside it.
    pub(super) apps: super::apps::Apps,
    /// Deadline of the worker, if its policy sets one.
    end: OnceLock<DeadlineGuard>,
    /// When the last call was admitted.
    pub(super) last_admitted: Mutex<Option<Instant>>,
    pub(super) actor: RwLock<ActorState>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("id", &self.id)
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called in one place only")]
    pub(crate) fn new(
        id: WorkerId,
        name: &str,
        session: Option<String>,
        parent: Option<&Arc<Self>>,
        authority: Authority,
        names: Namespace,
        handles: WorkerHandles,
        meter: Meter,
        core: &Arc<Core>,
    ) -> Self {
        let agent = parent.map_or_else(
            || name.into(),
            |parent| format!("{}/{name}", parent.agent).into(),
        );
        let session = match (session, parent) {
            (Some(session), _) => session.into(),
            (None, Some(parent)) => Arc::clone(&parent.session),
            (None, None) => id.to_string().into(),
        };
        let lineage = Arc::clone(&handles.lineage);
        Self {
            id,
            agent,
            session,
            lineage,
            authority,
            names,
            meter: Arc::new(meter),
            core: Arc::clone(core),
            handles: Arc::new(handles),
            load: Load::default(),
            lost: Arc::default(),
            pause: Arc::new(Pause::beneath(parent.map(|parent| &parent.pause))),
            started_at: wall_clock(),
            compiling: OnceLock::new(),
            activity: Activity::default(),
            previews: Previews::default(),
            apps: super::apps::Apps::default(),
            end: OnceLock::new(),
            last_admitted: Mutex::default(),
            actor: RwLock::default(),
        }
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.handles.gate
    }

    /// The tool of that name: of the runtime or a third-party server, otherwise of an app.
    pub(crate) fn tool(&self, name: &str) -> Option<Arc<Entry>> {
        let tool = self.core.tools.get(name);

        tool.or_else(|| self.apps.get(name, &self.authority))
    }

    /// The tool and arguments that a call of the tool for apps names in its arguments.
    pub(super) fn resolve_call(&self, call: &Call) -> Option<(ToolName, Value)> {
        self.apps.resolve_call(&self.core.tools, call)
    }

    /// All tools, those of apps last.
    pub(super) fn tools(&self) -> Vec<Arc<Entry>> {
        let tools = self.core.tools.entries();

        self.apps.after(tools, &self.authority)
    }

    /// Sets the deadline of the worker, which holds for all its actors.
    pub(crate) fn end_with(&self, end: DeadlineGuard) {
        // A worker is started once, so none is set yet.
        let _ = self.end.set(end);
    }

    /// Judges a call and audits the verdict before it takes effect.
    pub(super) fn judge(&self, step: Step<Parsed>) -> Judged {
        let info = Arc::clone(step.info());
        // The authority of a call with a policy of its own is not that of its worker, so its verdicts are not cached.
        let mut verdicts = VerdictCache::new(self.authority.clone());
        let judged = self
            .judge_unrecorded(step, &mut verdicts)
            .and_then(|judgement| {
                let (verdict, judged) = (judgement.judged.verdict(), judgement.judged);
                self.record_verdict(&info, verdict, judgement.needs, judgement.rule)?;
                Ok(judged)
            });
        judged.unwrap_or_else(Judged::Rejected)
    }

    /// Judges a call. The verdict must be recorded before it takes effect.
    ///
    /// # Errors
    /// `CANCELLED` if the worker was revoked.
    pub(super) fn judge_unrecorded(
        &self,
        step: Step<Parsed>,
        verdicts: &mut VerdictCache,
    ) -> Result<Judgement, CallError> {
        if self.gate().is_closed() {
            return Err(self.gate().error());
        }
        let (info, needs): (_, Arc<[Scope]>) = (Arc::clone(step.info()), step.needs().into());
        let (judged, why) = step.judge(verdicts);
        let verdict = judged.verdict();
        self.log_judged(&info, &needs, verdict);
        let CallInfo { id: call, tool, .. } = &*info;
        tracing::debug!(worker = %self.id, agent = %self.agent, %call, %tool, verdict = verdict.as_str(), "checked");
        Ok(Judgement {
            judged,
            needs,
            rule: why.map(|why| why.to_string().into()),
        })
    }

    /// Audits the verdict on a call; on an error it must not take effect.
    pub(super) fn record_verdict(
        &self,
        info: &CallInfo,
        verdict: Verdict,
        needs: Arc<[Scope]>,
        rule: Option<Arc<str>>,
    ) -> Result<(), CallError> {
        let step = AuditStep::Judged {
            verdict,
            needs,
            rule,
        };
        self.audit(info, step)
    }

    /// Audits the use of grants sent with a call. The broker audits uses of live grants, and answers are audited already.
    pub(super) fn audit_used_grants(
        &self,
        info: &CallInfo,
        granted: &UsedGrants,
    ) -> Result<(), CallError> {
        if granted.brought.is_empty() {
            return Ok(());
        }
        let grants = [].into();
        let brought = granted.brought.as_slice().into();
        self.audit(info, AuditStep::GrantUsed { grants, brought })
    }

    /// Audits how a call ended and answers it. It is not an error if the caller stopped waiting. `allowed` are the needs of
    /// a call whose verdict is not recorded yet.
    pub(super) fn answer(
        &self,
        info: &Arc<CallInfo>,
        reply_tx: ReplySender,
        admitted_at: Instant,
        mut result: Result<Done, CallError>,
        allowed: Option<Arc<[Scope]>>,
    ) {
        if let Ok(done) = &result {
            let verdict_recorded = allowed.is_none();
            let finished = AuditStep::Finished {
                code: None,
                bytes: done.bytes(),
                allowed,
            };
            let recorded = self.audit(info, finished);
            // Otherwise the result is valid: verdict and effect were audited before, and the audit counts missing records.
            if !verdict_recorded && let Err(error) = recorded {
                result = Err(error);
            }
        }
        let CallInfo { id: call, tool, .. } = &**info;
        let code = result
            .as_ref()
            .map_or_else(|error| error.code().as_str(), |_| "OK");
        tracing::debug!(worker = %self.id, agent = %self.agent, %call, %tool, code, "ended");
        match &result {
            Err(error) => self.audit_error(info, error),
            Ok(done) => self.changed(done.changes()),
        }
        self.observe_end(info, Some(admitted_at), result.as_ref());
        drop(reply_tx.send(result));
    }

    /// Reports the end of a call to the monitor and in the worker's activity. `admitted_at` is `None` if the call ended
    /// before it was received.
    fn observe_end(
        &self,
        info: &Arc<CallInfo>,
        admitted_at: Option<Instant>,
        result: Result<&Done, &CallError>,
    ) {
        let now = Instant::now();
        self.log_end(info, result);
        let result = result.map(Done::bytes).map_err(CallError::code);
        self.end_activity(info, result.err(), now);
        let preview = info.mode == Mode::Preview;
        self.core.audit.monitor().count_end(preview, result);
        self.observe(|| EventKind::CallEnded {
            call: info.id,
            tool: info.tool.clone(),
            preview,
            code: result.err(),
            duration: admitted_at.map_or(Duration::ZERO, |at| now.duration_since(at)),
        });
    }

    /// Reports that a call was received.
    pub(super) fn report_received(&self, info: &Arc<CallInfo>, admitted_at: Instant) {
        self.activity.begin(info, admitted_at);
        self.log_received(info);
        self.observe(|| EventKind::CallStarted {
            call: info.id,
            tool: info.tool.clone(),
            preview: info.mode == Mode::Preview,
        });
    }

    /// Sends an event if there are subscribers.
    fn observe(&self, kind: impl FnOnce() -> EventKind) {
        let monitor = self.core.audit.monitor();
        if monitor.is_watched() {
            monitor.send(Event {
                worker: Some(self.id),
                agent: Arc::clone(&self.agent),
                kind: kind(),
            });
        }
    }

    /// Audits and reports that a call was denied or failed before it was received.
    pub(super) fn reject(&self, info: &Arc<CallInfo>, error: &CallError) {
        self.audit_error(info, error);
        self.observe_end(info, None, Err(error));
    }

    /// Audits that a call was denied or failed. The answer is valid even if the audit is full.
    fn audit_error(&self, info: &CallInfo, error: &CallError) {
        let begun = info.stop.has_begun() || info.stop.has_begun_elsewhere();
        let code = Some(error.code());
        let steps = [
            AuditStep::without_result(error, begun),
            AuditStep::Finished {
                code,
                bytes: 0,
                allowed: None,
            },
        ];
        let events = steps.map(|step| self.event(Some(info), step)).into();
        let audit = &self.core.audit;
        let _ = if begun {
            audit.record_effect(events)
        } else {
            audit.record_all(events)
        };
    }

    /// Audits that grants of an untrusted client were ignored; the audit counts missing records.
    pub(super) fn ignored_grants(&self, call: &Call, brought: &[ScopePattern]) {
        let brought = brought.iter().take(MAX_IGNORED).cloned().collect();
        let event = AuditEvent {
            tool: Some(call.tool.clone()),
            origin: call.meta.origin,
            ..self.event(None, AuditStep::IgnoredGrants { brought })
        };
        let _ = self.core.audit.record(event);
    }

    fn event(&self, info: Option<&CallInfo>, step: AuditStep) -> AuditEvent {
        AuditEvent {
            worker: Some(self.id),
            agent: Arc::clone(&self.agent),
            call: info.map(|info| info.id),
            tool: info.map(|info| info.tool.clone()),
            origin: info.map_or(Origin::Host, |info| info.origin),
            step,
        }
    }

    /// Audits a step of a call; on an error the step must not happen.
    pub(super) fn audit(&self, info: &CallInfo, step: AuditStep) -> Result<(), CallError> {
        self.core
            .audit
            .record(self.event(Some(info), step))
            .map_err(CallError::from)
    }

    /// Audits a step of a call and waits until it is written; only on pool threads.
    pub(super) fn audit_commit(&self, info: &CallInfo, step: AuditStep) -> Result<(), CallError> {
        self.core
            .audit
            .commit(self.event(Some(info), step))
            .map_err(CallError::from)
    }

    /// Audits a step that has happened and waits until it is written; only on pool threads. After an error the step is
    /// written later.
    pub(super) fn audit_effect(&self, info: &CallInfo, step: AuditStep) -> Result<(), AuditError> {
        self.core.audit.commit_effect(self.event(Some(info), step))
    }

    /// Audits without waiting that an effect is complete.
    pub(super) fn audit_applied(
        &self,
        info: &CallInfo,
        token: PreviewToken,
    ) -> Result<(), AuditError> {
        let applied = self.event(Some(info), AuditStep::Applied { token });
        self.core.audit.record_effect(vec![applied])
    }

    /// Audits a step of the worker; on an error the step must not happen.
    pub(crate) fn record(&self, step: AuditStep) -> Result<(), AuditError> {
        self.core.audit.record(self.event(None, step))
    }

    /// Like [`Self::record`], for a step that `origin` caused.
    pub(crate) fn record_by(&self, origin: Origin, step: AuditStep) -> Result<(), AuditError> {
        self.core.audit.record(AuditEvent {
            origin,
            ..self.event(None, step)
        })
    }

    /// Audits a step of the worker that happens in any case; the audit counts missing records.
    pub(crate) fn audit_best_effort(&self, step: AuditStep) {
        let _ = self.record(step);
    }

    /// The root that contains all changes of a call, or the top of the namespace.
    pub(super) fn base(&self, changes: &[Change]) -> VirtualPath {
        crate::artifact::base(changes, self.handles.roots.iter().map(Root::mount))
    }

    /// The root of the first path that a call needs.
    pub(super) fn root_of(&self, needs: &[Scope]) -> Option<VirtualPath> {
        let path = needs.iter().find_map(Scope::path)?;
        self.handles
            .roots
            .find(path)
            .map(|(root, _)| root.mount().clone())
    }
}
