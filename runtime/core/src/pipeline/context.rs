//! Context of a call: its needs, grants and followed links.

use std::sync::Arc;

use serde_json::Value;

use super::WorkerHandles;
use crate::capability::{Gate, Interrupt};
use crate::error::{CallError, Code};
use crate::json::canonical;
use crate::path::VirtualPath;
use crate::policy::{Authority, Explanation, Flag, REPOSITORY_REASON, Verdict};
use crate::root::Root;
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use crate::tool::Job;

/// State of a call, which is extended while it passes through the pipeline.
#[derive(Debug)]
pub(super) struct CallContext {
    pub(super) job: Job,
    pub(super) needs: Vec<Scope>,
    pub(super) authority: Authority,
    pub(super) has_own_policy: bool,
    pub(super) handles: Arc<WorkerHandles>,
    pub(super) granted: Vec<Coverage>,
    /// Files that are protected because of the files around them, not because of their names.
    pub(super) protected: Vec<VirtualPath>,
    pub(super) grant_gates: Vec<Arc<Gate>>,
    pub(super) moved: Vec<(VirtualPath, VirtualPath)>,
    /// Directories outside the worker's roots that people granted for this call.
    pub(super) outside: Vec<Arc<Root>>,
    /// Grants for this call alone, given before it was made.
    pub(super) sent_grants: Vec<ScopePattern>,
    /// Needs that were covered by grants sent with the call.
    pub(super) needs_of_sent_grants: Vec<Scope>,
    /// Needs for which live grants were already looked up.
    pub(super) tried: Vec<Scope>,
    pub(super) rounds: u8,
}

impl CallContext {
    pub(super) fn arguments(&self, json: &Value) -> Value {
        match (json, &self.job) {
            (Value::Null, Job::Read(job)) => format!("{job:?}").into(),
            (Value::Null, Job::Write(job)) => format!("{job:?}").into(),
            (Value::Null, Job::Act(job)) => format!("{job:?}").into(),
            (Value::Null, Job::Remote(job)) => format!("{job:?}").into(),
            (json, _) => canonical(json.clone()),
        }
    }

    /// Handles an interrupt of a tool.
    pub(super) fn apply_interrupt(&mut self, interrupt: Interrupt) -> Result<(), CallError> {
        match interrupt {
            Interrupt::Failed(error) => Err(error),
            Interrupt::Needs(needs) => self.add_needs(needs),
            Interrupt::Protected(paths) => self.protect(paths),
            Interrupt::Moved { from, to } => self.follow(&from, &to),
            Interrupt::All(interrupts) => interrupts
                .into_iter()
                .try_for_each(|interrupt| self.apply_interrupt(interrupt)),
        }
    }

    fn add_needs(&mut self, needs: Vec<Scope>) -> Result<(), CallError> {
        let mut fresh = false;
        for need in needs {
            // A protected name requires its own grant, even if another need covers it.
            let same = |known: &Scope| known.detail() == need.detail();
            let mut known = self.needs.iter();
            if known.any(|known| same(known) && known.includes(&need)) {
                continue;
            }
            // The new need replaces those that it includes, such as a directory with everything in it.
            self.needs
                .retain(|known| !(same(known) && need.includes(known)));
            self.needs.push(need);
            fresh = true;
        }
        if !fresh {
            return Err(repeated());
        }
        Ok(())
    }

    /// Treats `paths` as changes of protected files.
    fn protect(&mut self, paths: Vec<VirtualPath>) -> Result<(), CallError> {
        let before = self.protected.len();
        for path in paths {
            let changes = |need: &Scope| need.verb() == Verb::Write && need.path() == Some(&path);
            if !self.needs.iter().any(changes) {
                self.needs.push(Scope::file(Verb::Write, path.clone()));
            }
            if !self.protected.contains(&path) {
                self.protected.push(path);
            }
        }
        if self.protected.len() == before {
            return Err(repeated());
        }
        Ok(())
    }

    /// The verdict on `need`, of which `verdict` is that of the authority. A change of a protected file requires a grant that
    /// names the file.
    pub(super) fn unless_protected(&self, need: &Scope, verdict: Verdict) -> Verdict {
        let names = |grant: &Coverage| grant.covers(need) && grant.path() == need.path();
        if self.is_protected(need) && !self.granted.iter().any(names) {
            verdict.max(Verdict::Ask)
        } else {
            verdict
        }
    }

    /// The needs that grants allow. A grant may cover more than the call needs, such as a folder for a file in it. A tool that
    /// acts gets what it needs, since people saw only that.
    pub(super) fn granted_needs(&self) -> Vec<Coverage> {
        let is_granted = |need: &&Scope| {
            self.granted.iter().any(|grant| grant.covers(need))
                && self.unless_protected(need, self.authority.judge(need, &self.granted))
                    == Verdict::Allow
        };
        let needs = self.needs.iter().filter(is_granted);
        needs.map(Coverage::of).collect()
    }

    /// Whether `need` would change a file that is protected because of the files around it.
    fn is_protected(&self, need: &Scope) -> bool {
        let path = need.path().filter(|_| need.verb() == Verb::Write);
        path.is_some_and(|path| self.protected.contains(path))
    }

    /// Explains why `need` requires approval.
    pub(super) fn explain_ask(&self, need: &Scope) -> Explanation {
        let why = self.authority.explain(need, &self.granted);
        if why.verdict == Verdict::Allow {
            Explanation::of_protected(&self.authority, need)
        } else {
            why
        }
    }

    /// Why the file that `need` changes is protected; `None` if it is not.
    pub(super) fn protection_reason(&self, need: &Scope) -> Option<&'static str> {
        let by_name = self.authority.protection_reason(need);
        by_name.or_else(|| self.is_protected(need).then_some(REPOSITORY_REASON))
    }

    /// Replaces a requested path by the path that it resolves to.
    fn follow(&mut self, from: &VirtualPath, to: &VirtualPath) -> Result<(), CallError> {
        if !self.authority.flag(Flag::FollowSymlinks) {
            return Err(CallError::not_found(from));
        }
        let mut judged = false;
        for need in &mut self.needs {
            if need.path() == Some(from) {
                *need = need.at(to.clone());
                judged = true;
            }
        }
        if !judged {
            // No need names the path, for example because it is an ancestor of one. The target is judged for everything
            // that the tool could do there.
            self.needs.push(Scope::file(Verb::Read, to.clone()));
            if matches!(self.job, Job::Write(_)) {
                self.needs.push(Scope::file(Verb::Write, to.clone()));
            }
        }
        for (_, actual) in self.moved.iter_mut().filter(|(_, actual)| actual == from) {
            *actual = to.clone();
        }
        self.moved.push((from.clone(), to.clone()));
        Ok(())
    }

    /// The error for a denied need. The error for a path that was found while the tool ran must be the same as for a
    /// path that does not exist.
    pub(super) fn refusal(&self, need: &Scope) -> CallError {
        match (
            self.moved.iter().find(|(_, to)| need.path() == Some(to)),
            need.path(),
        ) {
            (Some((asked, _)), _) => CallError::not_found(asked),
            (None, Some(path)) if self.rounds > 0 => CallError::not_found(path),
            (None, _) => {
                let mut message = refusal_text(need);
                if need.resource().is_network() {
                    let why = self.authority.explain(need, &self.granted);
                    if why.key == Flag::Network.as_str() {
                        message = format!("{message}: {}", why.rule);
                    }
                }
                CallError::new(Code::PermissionDenied, message).denying(need)
            }
        }
    }
}

fn refusal_text(need: &Scope) -> String {
    match need.path() {
        Some(path) => format!(
            "this worker may not {} `{}`",
            need.verb(),
            crate::text::escape(path.as_str())
        ),
        None => format!(
            "this worker may not {}",
            crate::text::escape(&need.without_marks())
        ),
    }
}

/// The error for a tool that needs again what it has.
fn repeated() -> CallError {
    CallError::new(
        Code::Internal,
        "the tool requested what this call already has",
    )
}
