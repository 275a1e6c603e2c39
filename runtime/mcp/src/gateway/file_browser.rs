//! Tools of the file browser: rights of paths, and files changed by calls.

use std::collections::HashMap;

use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::meta::RequestOptions;
use super::{Gateway, convert};
use bailiwick::effect::Op;
use bailiwick::error::{CallError, Code};
use bailiwick::path::VirtualPath;
use bailiwick::policy::Verdict;
use bailiwick::scope::Verb;
use bailiwick::worker::Worker;

const AUTHORITY_TOOL: &str = "authority";
const CHANGED_FILES_TOOL: &str = "changed_files";
/// Maximum number of paths per request, and of changes per result.
const MAX_ITEMS: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityArgs {
    paths: Vec<String>,
    #[serde(default)]
    worker: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArgs {}

fn tools() -> [Tool; 2] {
    let authority = json!({
        "type": "object",
        "properties": {
            "paths": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_ITEMS},
            "worker": {"type": "string", "description": "One of the workers that an answer named; this one if left out"},
        },
        "required": ["paths"],
        "additionalProperties": false,
    });
    let changed = json!({"type": "object", "properties": {}, "additionalProperties": false});
    [
        (
            AUTHORITY_TOOL,
            "Authority",
            "Returns for each path whether a worker's policies allow reading and writing, ask a person, or deny it. It reads policies, not files.",
            authority,
        ),
        (
            CHANGED_FILES_TOOL,
            "Changed files",
            "Lists what the calls of this worker, and of those beneath it, changed, as far as their reviews are kept.",
            changed,
        ),
    ]
    .map(|(name, title, description, schema)| {
        let schema = match schema {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        };
        convert::gateway_tool(name, title, description, schema)
    })
}

impl Gateway {
    /// The tools; none if no files are served.
    pub(super) fn file_browser_tools(&self) -> Vec<Tool> {
        let files = self.state.files.as_ref();
        files.map_or_else(Vec::new, |_| tools().into())
    }

    /// Calls one of [`Gateway::file_browser_tools`]; `None` for any other name.
    pub(super) fn call_file_browser_tool(
        &self,
        worker: &Worker,
        name: &str,
        arguments: &Value,
        options: &RequestOptions,
    ) -> Option<Result<Value, CallError>> {
        self.state.files.as_ref()?;
        let answer = match name {
            AUTHORITY_TOOL => parse_arguments(arguments).and_then(|args| authority(worker, &args)),
            CHANGED_FILES_TOOL => parse_arguments(arguments).map(|NoArgs {}| changed_files(worker)),
            _ => return None,
        };
        if options.policy.is_some() {
            let message = "this tells what a worker's own policies say; send the call without one";
            return Some(Err(CallError::new(Code::PolicyInvalid, message)));
        }
        Some(answer)
    }
}

fn authority(worker: &Worker, args: &AuthorityArgs) -> Result<Value, CallError> {
    if args.paths.len() > MAX_ITEMS {
        let message = "too many paths at once; ask for at most 1000";
        return Err(CallError::new(Code::InvalidArguments, message));
    }
    let mut workers = vec![worker.clone()];
    workers.extend(worker.beneath());
    let chosen = match &args.worker {
        None => Some(worker),
        Some(name) => workers.iter().find(|one| worker_label(one) == *name),
    };
    let chosen = chosen.ok_or_else(|| {
        let message = "there is no such worker; it may have ended";
        CallError::new(Code::NotFound, message)
    })?;
    let paths: Vec<Value> = args.paths.iter().map(|path| rights(chosen, path)).collect();
    let names: Vec<String> = workers.iter().map(worker_label).collect();
    Ok(json!({"worker": worker_label(chosen), "workers": names, "paths": paths}))
}

/// The name with the id, since siblings may have equal names.
fn worker_label(worker: &Worker) -> String {
    format!("{} ({})", worker.agent(), worker.id())
}

fn rights(worker: &Worker, text: &str) -> Value {
    let path = worker.path(text);
    let judge = |verb| {
        let judged = path.as_ref().map(|path| worker.judge(verb, path));
        judged.unwrap_or_default().as_str()
    };
    json!({"path": text, "read": judge(Verb::Read), "write": judge(Verb::Write)})
}

/// Changes of one file by all calls.
struct ChangedFile {
    op: Op,
    added: usize,
    removed: usize,
    calls: u64,
    review: String,
}

/// Files that calls changed and the worker may read, latest first.
fn changed_files(worker: &Worker) -> Value {
    let mut order = Vec::new();
    let mut found: HashMap<VirtualPath, ChangedFile> = HashMap::new();
    let artifacts = worker.artifacts();
    for made in artifacts.iter().filter(|made| made.name == "review") {
        let Some(review) = worker.review(&made.uri) else {
            continue;
        };
        if review.is_preview() {
            continue;
        }
        for change in review.changes() {
            let path = change.to.as_ref().unwrap_or(&change.path);
            let visible = !change.diff.hidden && worker.judge(Verb::Read, path) == Verdict::Allow;
            if !visible || change.op == Op::MakeDirectory {
                continue;
            }
            if let Some(known) = found.get_mut(path) {
                known.added += change.diff.added;
                known.removed += change.diff.removed;
                known.calls += 1;
            } else if order.len() < MAX_ITEMS {
                order.push(path.clone());
                let first = ChangedFile {
                    op: change.op,
                    added: change.diff.added,
                    removed: change.diff.removed,
                    calls: 1,
                    review: made.uri.clone(),
                };
                found.insert(path.clone(), first);
            }
        }
    }
    let changes = order.iter().filter_map(|path| {
        let ChangedFile {
            op,
            added,
            removed,
            calls,
            review,
        } = found.get(path)?;
        let diff = format!("{review}.diff");
        Some(json!({
            "path": path, "op": op, "added": added, "removed": removed, "calls": calls, "review": review, "diff": diff,
        }))
    });
    json!({"changes": changes.collect::<Vec<_>>()})
}

fn parse_arguments<T: for<'de> Deserialize<'de>>(arguments: &Value) -> Result<T, CallError> {
    T::deserialize(arguments)
        .map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))
}
