//! Tools of the file browser: rights of paths, and files changed by calls.

use std::collections::HashMap;

use rmcp::model::{JsonObject, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::view_tools::parse_arguments;
use super::worker_request::WorkerRequest;
use super::{Gateway, convert};
use bailiwick::effect::Op;
use bailiwick::policy::Verdict;
use bailiwick::scope::Verb;
use bailiwick::worker::Worker;
use bailiwick::{CallError, Code, VirtualPath};

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
            "Returns for each path whether a worker's policies allow reading and writing, ask a person, or deny it, and the folders that listings leave out. It reads policies, not files.",
            authority,
        ),
        (
            CHANGED_FILES_TOOL,
            "Changed files",
            "Lists what the calls of this worker, and of those beneath it, changed, as far as their reviews are kept.",
            changed,
        ),
    ]
    .map(|(name, title, description, schema)| convert::gateway_tool(name, title, description, schema))
}

impl Gateway {
    /// The tools; none if no files are served.
    pub(super) fn file_browser_tools(&self) -> Vec<Tool> {
        let files = self.state.files.as_ref();
        files.map_or_else(Vec::new, |_| tools().into())
    }
}

impl WorkerRequest<'_> {
    /// Calls one of [`Gateway::file_browser_tools`]; `None` for any other name.
    pub(super) fn call_file_browser_tool(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
    ) -> Result<Option<Value>, CallError> {
        if self.gateway.state.files.is_none()
            || ![AUTHORITY_TOOL, CHANGED_FILES_TOOL].contains(&name)
        {
            return Ok(None);
        }
        if self.options.policy.is_some() {
            let message = "this tells what a worker's own policies say; send the call without one";
            return Err(CallError::new(Code::PolicyInvalid, message));
        }
        if name == AUTHORITY_TOOL {
            return authority(self.worker(), &parse_arguments(arguments)?).map(Some);
        }
        let NoArgs {} = parse_arguments(arguments)?;
        Ok(Some(changed_files(self.worker())))
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
    Ok(json!({
        "worker": worker_label(chosen),
        "workers": names,
        "paths": paths,
        "unlisted": unlisted(worker),
    }))
}

/// Paths that listings leave out although the worker knows them from its open folders: folders inside readable ones whose
/// reads are denied or need approval, and the open folders in them.
fn unlisted(worker: &Worker) -> Vec<VirtualPath> {
    let readable = |path: &VirtualPath| worker.judge(Verb::Read, path) == Verdict::Allow;
    let mut paths = Vec::new();
    for folder in worker.open_folders() {
        let next = |path: &VirtualPath| path.parent();
        let way: Vec<VirtualPath> =
            std::iter::successors(Some(folder.path.clone()), next).collect();
        let Some(outermost) = way.iter().rposition(readable) else {
            continue;
        };
        for pair in way.windows(2).take(outermost) {
            if let [path, above] = pair
                && !(readable(path) && readable(above))
            {
                paths.push(path.clone());
            }
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths.truncate(MAX_ITEMS);
    paths
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
#[derive(Serialize)]
struct ChangedFile<'a> {
    path: &'a VirtualPath,
    op: Op,
    added: usize,
    removed: usize,
    calls: u64,
    /// The latest review.
    review: &'a str,
    diff: String,
}

/// Files that calls changed and the worker may read, latest first.
fn changed_files(worker: &Worker) -> Value {
    let mut artifacts = worker.artifacts();
    artifacts.retain(|made| made.name == "review");
    let reviews = artifacts
        .iter()
        .filter_map(|made| Some((&*made.uri, worker.review(&made.uri)?)));
    let reviews: Vec<_> = reviews.filter(|(_, review)| !review.is_preview()).collect();
    let mut files: Vec<ChangedFile> = Vec::new();
    let mut indices: HashMap<&VirtualPath, usize> = HashMap::new();
    for (uri, review) in &reviews {
        for change in review.changes() {
            let path = change.to.as_ref().unwrap_or(&change.path);
            let visible = !change.diff.hidden && worker.judge(Verb::Read, path) == Verdict::Allow;
            if !visible || change.op == Op::MakeDirectory {
                continue;
            }
            if let Some(known) = indices.get(path).and_then(|index| files.get_mut(*index)) {
                known.added += change.diff.added;
                known.removed += change.diff.removed;
                known.calls += 1;
            } else if files.len() < MAX_ITEMS {
                indices.insert(path, files.len());
                files.push(ChangedFile {
                    path,
                    op: change.op,
                    added: change.diff.added,
                    removed: change.diff.removed,
                    calls: 1,
                    review: uri,
                    diff: format!("{uri}.diff"),
                });
            }
        }
    }
    json!({"changes": files})
}
