//! Prepares calls: validates arguments, applies the policy of the call and computes its needs.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Shared;
use super::call_table::check_interval;
use super::jobs::catch_panic;
use super::preview_arguments;
use crate::call::{Call, Mode, Origin};
use crate::capability::BudgetExceeded;
use crate::config::Namespace;
use crate::error::{CallError, Code};
use crate::pipeline::{CallInfo, Parsed, Step, explain_needs};
use crate::policy::{Authority, Explanation, Flag, Policy, Verdict};
use crate::scope::{ScopePattern, Verb};
use crate::tool::{Arguments, Entry, Job};

/// A call that is not parsed yet.
#[derive(Debug)]
pub(crate) struct UnparsedCall {
    pub(super) info: Arc<CallInfo>,
    /// Arguments of the tool's own type, instead of JSON.
    pub(super) typed: Option<Box<dyn Any + Send>>,
    /// A policy for this call alone.
    pub(super) policy: Option<Value>,
    /// Grants for this call alone, given before it was made.
    pub(super) sent_grants: Vec<ScopePattern>,
}

impl UnparsedCall {
    /// Parses the call; its own policy is checked against its worker's authority. `since_previous` is the time since the previous call.
    pub(super) fn prepare(
        self,
        shared: &Shared,
        since_previous: Option<Duration>,
    ) -> Result<Step<Parsed>, CallError> {
        let Self {
            info,
            typed,
            policy,
            sent_grants,
        } = self;
        let has_own_policy = policy.is_some();
        let (authority, names) = match policy {
            None => (shared.authority.clone(), Cow::Borrowed(&shared.names)),
            Some(fragment) => {
                let authority = narrowed(shared, &fragment, info.origin)?;
                // The interval of the worker's policies was checked when the call was received.
                check_interval(authority.limits(), since_previous)?;
                let names = narrowed_names(shared, &fragment, info.origin, &authority)?;
                (authority, Cow::Owned(names))
            }
        };
        let tool = info.tool.as_str();
        let entry = shared
            .tool(tool)
            .filter(|entry| {
                let watched = info.mode == Mode::Preview || info.confirm;
                authority.allows_tool(tool) && entry.is_for(info.origin, watched)
            })
            .ok_or_else(|| CallError::unknown_tool(tool))?;
        if info.mode == Mode::Preview && !entry.mutates {
            return Err(CallError::new(
                Code::InvalidArguments,
                "this tool changes nothing, so it has no preview; call it without one",
            ));
        }
        if lacks_preview(&entry, &authority) {
            return Err(unpreviewable(tool));
        }
        let authority = confirmed(authority, info.confirm)?;
        // The policy of a call can forbid the call itself; it cannot limit others.
        if authority.limits().budget.calls == Some(0) {
            let spent = BudgetExceeded {
                what: "calls",
                limit: 0,
            };
            return Err(spent.into());
        }
        shared.meter.charge_call()?;
        let arguments = match typed {
            Some(typed) => Arguments::Typed(typed),
            None => Arguments::Json(&info.arguments),
        };
        let (needs, job) = catch_panic(|| entry.prepare(arguments, &names), Err)?;
        if !info.excluded.is_empty() && (info.mode == Mode::Preview || !job.is_divisible()) {
            let message = "changes can be excluded only from a call that applies them, of a tool that can divide its changes";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        // The needs of a planned change may be found by its plan, those of an act are never found later.
        let is_change = entry.mutates && (info.confirm || matches!(job, Job::Act(_)));
        if is_change && needs.iter().all(|need| need.verb() == Verb::Read) {
            let message =
                "this call declares no change, so there is nothing that a person could allow";
            return Err(CallError::new(Code::PermissionDenied, message));
        }
        let handles = Arc::clone(&shared.handles);
        let step = Step::new(
            info,
            job,
            needs,
            authority,
            has_own_policy,
            handles,
            sent_grants,
        );
        catch_panic(|| Ok(step.with_also_needs()), Err)
    }
}

/// Explains the verdict on each need of a call, without reading the file system.
pub(super) fn explain(shared: &Shared, call: &Call) -> Result<Vec<Explanation>, CallError> {
    let fragment = call.meta.policy.as_ref();
    let authority = fragment.map_or_else(
        || Ok(shared.authority.clone()),
        |fragment| narrowed(shared, fragment, call.meta.origin),
    )?;
    explained(shared, call, authority)
}

/// Like [`explain`], under `authority`, which includes the call's own policy.
pub(super) fn explained(
    shared: &Shared,
    call: &Call,
    authority: Authority,
) -> Result<Vec<Explanation>, CallError> {
    let mut call = call.clone();
    preview_arguments::take(shared, &mut call)?;
    let resolved = shared.resolve_call(&call);
    let (tool, arguments) = resolved
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
    let names = match &call.meta.policy {
        None => Cow::Borrowed(&shared.names),
        Some(fragment) => {
            let names = narrowed_names(shared, fragment, call.meta.origin, &authority)?;
            Cow::Owned(names)
        }
    };
    let arguments = Arguments::Json(arguments);
    let (needs, job) = catch_panic(|| entry.prepare(arguments, &names), Err)?;
    let explained = || Ok(explain_needs(&job, needs, &authority, &shared.handles));
    catch_panic(explained, Err)
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
        shared.core.tools.check_names(policy.named_tools())?;
        let layer = left.admit_once(&policy, origin)?;
        left = left.overlay(&layer);
    }
    Ok(left)
}

/// The namespace of a call with the policy `fragment`, narrowed to `authority`. The configuration of a stateless client,
/// the first of several policies, changes the working directory, as for a session. A policy for one call does not, since
/// the model that wrote the path may not know it.
fn narrowed_names(
    shared: &Shared,
    fragment: &Value,
    origin: Origin,
    authority: &Authority,
) -> Result<Namespace, CallError> {
    let names = &shared.names;
    let begins = match fragment.as_array().and_then(|fragments| fragments.first()) {
        None => names.clone(),
        Some(configuration) => {
            let configured = names.narrowed(None, &narrowed(shared, configuration, origin)?);
            match configured.moved_from(names) {
                Some(cwd) if shared.core.roots.is_file(cwd) => configured.above(),
                _ => configured,
            }
        }
    };
    Ok(names.narrowed(begins.default_root().cloned(), authority))
}

/// The authority of a call that a person must confirm: every change requires approval.
fn confirmed(authority: Authority, confirm: bool) -> Result<Authority, CallError> {
    if !confirm {
        return Ok(authority);
    }
    let asking = authority.admit(&Policy::new().require_approval(true), Origin::Host)?;
    Ok(authority.overlay(&asking))
}

/// Whether `authority` allows a tool: its name, some of its needs, and previews if they are required.
pub(super) fn is_left(entry: &Entry, authority: &Authority) -> bool {
    let left = match &entry.remote {
        Some(remote) => authority.judge(&remote.need, &[]) != Verdict::Deny,
        None => may_succeed(entry, authority),
    };
    left && authority.allows_tool(entry.name.as_str()) && !lacks_preview(entry, authority)
}

/// Whether changes must be previewed and the tool is mutating and has no previews.
fn lacks_preview(entry: &Entry, authority: &Authority) -> bool {
    authority.flag(Flag::RequirePreview) && entry.mutates && !entry.previews()
}

fn unpreviewable(tool: &str) -> CallError {
    let message = format!(
        "`{tool}` cannot be called: the policy requires a preview of each change, and this tool has no previews; use \
         another tool"
    );
    CallError::new(Code::PermissionDenied, message)
}

/// Whether some of the declared needs of a tool are not denied. A mutating tool needs more than to read.
fn may_succeed(entry: &Entry, authority: &Authority) -> bool {
    // A tool with an invalid scope cannot be registered.
    let kinds = entry.spec.scopes.iter();
    let kinds: Vec<ScopePattern> = kinds.filter_map(|kind| kind.parse().ok()).collect();
    let changing = |kind: &&ScopePattern| kind.verb() != Some(Verb::Read);
    let changes = entry.mutates && kinds.iter().any(|kind| changing(&kind));
    let mut needed = kinds.iter().filter(|kind| !changes || changing(kind));
    kinds.is_empty() || needed.any(|kind| authority.may_need(kind))
}
