//! Calls that wait for approval.

use std::sync::Arc;

use serde_json::Value;

use super::context::CallContext;
use super::{Granted, Parsed, Step, Waiting};
use crate::capability::ReadPermit;
use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::policy::Verdict;
use crate::scope::{Coverage, Scope, ScopePattern, Verb};
use crate::text::listed;
use crate::tool::{Job, WriteJob};

impl Step<Waiting> {
    /// The arguments as people see them: canonical JSON, or the `Debug` form of typed arguments.
    pub(crate) fn arguments(&self) -> Value {
        self.context.arguments(&self.info.arguments)
    }

    /// Whether parts of the change can be excluded.
    pub(crate) fn is_divisible(&self) -> bool {
        self.context.job.is_divisible()
    }

    /// Exactly the needs that require approval, sorted.
    pub(crate) fn asks(&self) -> &[Scope] {
        &self.state.asks
    }

    /// The needs to change protected files, each with the reason why it is protected.
    pub(crate) fn protected(&self) -> Vec<(Scope, &'static str)> {
        let asks = self.state.asks.iter();
        asks.filter_map(|need| Some((need.clone(), self.context.protection_reason(need)?)))
            .collect()
    }

    /// Why the needs require approval, each reason once.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let asks = self.state.asks.iter();
        let explained = asks.map(|need| self.context.explain_ask(need).to_string());
        let mut reasons: Vec<String> = explained.collect();
        reasons.sort_unstable();
        reasons.dedup();
        reasons
    }

    /// Marks the needs that require approval as looked up in the live grants. Returns whether one was not yet. A grant may
    /// cover a need and still not satisfy it, such as the grant of a folder for a protected name in it.
    pub(crate) fn take_untried_needs(&mut self) -> bool {
        let tried = &mut self.context.tried;
        let fresh: Vec<_> = self
            .state
            .asks
            .iter()
            .filter(|need| !tried.contains(need))
            .cloned()
            .collect();
        tried.extend_from_slice(&fresh);
        !fresh.is_empty()
    }

    /// Splits the needs that require approval: the grants sent with the call that cover some of them, and the uncovered needs.
    pub(crate) fn match_sent_grants(&self) -> (Vec<ScopePattern>, Vec<Scope>) {
        let sent = &self.context.sent_grants;
        let used = |pattern: &&ScopePattern| self.state.asks.iter().any(|need| pattern.binds(need));
        let covered = |need: &&Scope| sent.iter().any(|pattern| pattern.binds(need));
        let rest = self.state.asks.iter().filter(|need| !covered(need));
        (
            sent.iter().filter(used).cloned().collect(),
            rest.cloned().collect(),
        )
    }

    /// The `SCOPE_REQUIRED` error for calls that cannot ask. It also names the needs that were covered by grants sent with
    /// this call, since the next call needs them again.
    pub(crate) fn scope_required(&self) -> CallError {
        let mut needs = self.state.asks.clone();
        needs.extend(self.context.needs_of_sent_grants.iter().cloned());
        needs.sort();
        needs.dedup();
        let mut message = must_allow(&needs);
        for (need, reason) in self.protected() {
            let path = need.path().map_or("/", VirtualPath::as_str);
            message.push_str(&format!("; `{path}` is protected: {reason}"));
        }
        CallError::new(Code::ScopeRequired, message).requesting(needs)
    }

    /// The job and permit to plan a mutating call before anybody is asked; `None` if its targets may not be read.
    pub(crate) fn early_plan(&self) -> Option<(Arc<dyn WriteJob>, ReadPermit)> {
        let Job::Write(job) = &self.context.job else {
            return None;
        };
        let CallContext {
            needs,
            authority,
            granted,
            ..
        } = &*self.context;
        let readable =
            |need: &Scope| authority.judge(&need.with_verb(Verb::Read), granted) == Verdict::Allow;
        if !needs.iter().all(readable) {
            return None;
        }
        // Planning changes nothing, so it may assume that the writes will be approved.
        let supposed = needs
            .iter()
            .filter(|need| need.verb() == Verb::Write)
            .map(Coverage::of);
        let supposed = granted.iter().cloned().chain(supposed).collect();
        Some((
            Arc::clone(job),
            ReadPermit::mint(self.permit_scope(supposed)),
        ))
    }

    /// Adds grants to the call, which is then judged again.
    pub(crate) fn granted(mut self, granted: Granted) -> Step<Parsed> {
        let Granted { used, outside } = granted;
        let replayed = |need: &&Scope| used.brought.iter().any(|grant| grant.binds(need));
        let asks = self.state.asks.iter();
        self.context
            .needs_of_sent_grants
            .extend(asks.filter(replayed).cloned());
        self.context.granted.extend(used.patterns);
        self.context.grant_gates.extend(used.gates);
        self.context.outside.extend(outside);
        self.at(Parsed)
    }
}

fn must_allow(needs: &[Scope]) -> String {
    let listed = listed(needs.iter().map(Scope::without_marks), ", ");
    format!("a person must allow {listed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approval_message_entries_cannot_be_forged() {
        let check = |needs: &[&str], expected: &str| {
            let needs: Vec<Scope> = needs.iter().map(|need| need.parse().unwrap()).collect();
            assert_eq!(
                must_allow(&needs),
                format!("a person must allow {expected}")
            );
        };
        check(&["write:file:/r/z"], "write:file:/r/z");
        check(
            &["write:file:/r/z, read:file:/etc/shadow"],
            r#""write:file:/r/z, read:file:/etc/shadow""#,
        );
        check(
            &[
                r#"read:file:/r/z", "read:file:/etc/shadow"#,
                "write:file:/r",
            ],
            r#""read:file:/r/z\", \"read:file:/etc/shadow", "write:file:/r""#,
        );
    }
}
