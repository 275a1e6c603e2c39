//! A call as it was posted in, its needs and job under the authority that counts for it out.

use std::any::Any;
use std::sync::Arc;

use serde_json::Value;

use super::Shared;
use super::jobs::guarded;
use crate::call::{Call, Origin};
use crate::capability::Spent;
use crate::error::{CallError, Code};
use crate::pipeline::{Facts, Mode, Parsed, Step};
use crate::policy::{Authority, Explanation, Policy, Verdict};
use crate::scope::{ScopePattern, Verb};
use crate::tool::{Arguments, Entry};

/// A call that nobody looked at yet.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) facts: Arc<Facts>,
    /// Arguments of the tool's own type, in place of JSON.
    pub(super) typed: Option<Box<dyn Any + Send>>,
    /// A policy for this call alone.
    pub(super) policy: Option<Value>,
    /// What a person granted to this call alone, before it was made.
    pub(super) offered: Vec<ScopePattern>,
}

impl Request {
    /// Understands the call; its own policy is admitted against what its worker holds.
    pub(super) fn prepare(self, shared: &Shared) -> Result<Step<Parsed>, CallError> {
        let Self {
            facts,
            typed,
            policy,
            offered,
        } = self;
        let authority = match policy {
            None => shared.authority.clone(),
            Some(fragment) => narrowed(shared, &fragment, facts.origin)?,
        };
        let tool = facts.tool.as_str();
        let entry = shared
            .tool(tool)
            .filter(|entry| {
                let watched = facts.mode == Mode::Preview || facts.confirm;
                authority.allows_tool(tool) && entry.is_for(facts.origin, watched)
            })
            .ok_or_else(|| CallError::unknown_tool(tool))?;
        if facts.mode == Mode::Preview && !entry.mutates {
            return Err(CallError::new(
                Code::InvalidArguments,
                "this tool only reads; call it",
            ));
        }
        let authority = confirmed(authority, facts.confirm)?;
        let most = authority.limits().budget.calls;
        let spent = Spent {
            what: "calls",
            limit: 0,
        };
        // A call's own policy may leave it none; more than the one call it cannot limit.
        let charged = if most == Some(0) {
            Err(spent)
        } else {
            shared.meter.charge_call()
        };
        charged.map_err(|spent| CallError::new(Code::Budget, spent.to_string()))?;
        let arguments = match typed {
            Some(typed) => Arguments::Typed(typed),
            None => Arguments::Json(&facts.arguments),
        };
        let prepared = || Ok(entry.prepare(arguments, &shared.core.names)?);
        let (needs, job) = guarded(prepared).map_err(CallError::from)?;
        if facts.confirm && entry.mutates && needs.iter().all(|need| need.verb() == Verb::Read) {
            let message = "this call names no change that a person could allow";
            return Err(CallError::new(Code::PermissionDenied, message));
        }
        let holder = Arc::clone(&shared.holder);
        let step = || Ok(Step::new(facts, job, needs, authority, holder, offered));
        guarded(step).map_err(CallError::from)
    }
}

/// Says what decides on each need of a call, without looking at anything.
pub(super) fn explain(shared: &Shared, call: &Call) -> Result<Vec<Explanation>, CallError> {
    let fragment = call.meta.policy.as_ref();
    let authority = fragment.map_or_else(
        || Ok(shared.authority.clone()),
        |fragment| narrowed(shared, fragment, call.meta.origin),
    )?;
    explained(shared, call, authority)
}

/// The same under `authority`, which counts the call's own policy in.
pub(super) fn explained(
    shared: &Shared,
    call: &Call,
    authority: Authority,
) -> Result<Vec<Explanation>, CallError> {
    let meant = shared.meant(call);
    let (tool, arguments) = meant
        .as_ref()
        .map_or((&call.tool, &call.arguments), |(tool, arguments)| {
            (tool, arguments)
        });
    let tool = tool.as_str();
    let entry = shared
        .tool(tool)
        .filter(|entry| {
            authority.allows_tool(tool) && entry.is_for(call.meta.origin, call.meta.confirm)
        })
        .ok_or_else(|| CallError::unknown_tool(tool))?;
    let authority = confirmed(authority, call.meta.confirm)?;
    let prepared = || Ok(entry.prepare(Arguments::Json(arguments), &shared.core.names)?);
    let (needs, _) = guarded(prepared)?;
    Ok(needs
        .iter()
        .map(|need| authority.explain(need, &[]))
        .collect())
}

/// Narrows `authority` to the policy of a request, or to several.
pub(super) fn narrowed(
    shared: &Shared,
    fragment: &Value,
    origin: Origin,
) -> Result<Authority, CallError> {
    let fragments = match fragment {
        Value::Array(fragments) => fragments.as_slice(),
        fragment => std::slice::from_ref(fragment),
    };
    let (mut left, roots) = (shared.authority.clone(), &shared.core.roots);
    for fragment in fragments {
        let policy = Policy::parse(fragment)?.through_links(&left, |path| roots.real(path));
        let layer = left.admit_once(&policy, origin)?;
        left = left.overlay(&layer);
    }
    Ok(left)
}

/// The authority under which a call counts that a person must allow: each change must be asked for.
fn confirmed(authority: Authority, confirm: bool) -> Result<Authority, CallError> {
    if !confirm {
        return Ok(authority);
    }
    let asking = authority.admit(&Policy::new().require_approval(true), Origin::Host)?;
    Ok(authority.overlay(&asking))
}

/// Whether a policy leaves a tool: its name, and of another server's tool also what every call of it needs.
pub(super) fn is_left(entry: &Entry, authority: &Authority) -> bool {
    let remote = entry.remote.as_ref();
    let left = remote.is_none_or(|it| authority.judge(&it.need, &[]) != Verdict::Deny);
    left && authority.allows_tool(entry.name.as_str())
}
