//! What a browser of files asks in, what a worker may do by its policies and what its calls changed out.

use std::borrow::Cow;

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::meta::Extras;
use super::{Gateway, convert};
use crate::error::{CallError, Code};
use crate::path::VirtualPath;
use crate::scope::Verb;
use crate::worker::Worker;

const AUTHORITY: &str = "authority";
/// Of how many paths is told at once, and of how many changes at all.
const MOST: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    paths: Vec<String>,
    #[serde(default)]
    worker: Option<String>,
}

/// The tools for such a browser.
fn tools() -> [Tool; 1] {
    let authority = json!({
        "type": "object",
        "properties": {
            "paths": {"type": "array", "items": {"type": "string"}, "maxItems": MOST},
            "worker": {"type": "string", "description": "One of the workers that an answer named; this one if left out"},
        },
        "required": ["paths"],
        "additionalProperties": false,
    });
    [
        (
            AUTHORITY,
            "Authority",
            "Says of each path whether a worker's policies let it be read and written, ask a person, or deny it. It is told of policies, not of files.",
            authority,
        ),
    ]
    .map(|(name, title, description, schema)| {
        let schema = match schema {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        };
        convert::for_views(name, title, description, schema)
    })
}

impl Gateway {
    /// The same for this connection: none where no files are served.
    pub(super) fn browsers(&self) -> Vec<Tool> {
        let files = self.desk.files.as_ref();
        files.map_or_else(Vec::new, |_| tools().into())
    }

    /// Answers a view that calls one of [`Gateway::browsers`]; none if it calls another.
    pub(super) fn browsed(
        &self,
        request: &CallToolRequestParams,
        worker: &Worker,
        extras: &Extras,
    ) -> Option<Result<CallToolResult, ErrorData>> {
        self.desk.files.as_ref()?;
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let answer = match &*request.name {
            AUTHORITY => understood(&arguments).and_then(|asked| authority(worker, &asked)),
            _ => return None,
        };
        // What is told here is the worker's own, not what a policy for one call leaves of it.
        if let Err(error) = extras.without_policy() {
            return Some(Err(error));
        }
        Some(match answer {
            Ok(told) => {
                let mut result =
                    CallToolResult::success(vec![ContentBlock::text(told.to_string())]);
                result.structured_content = Some(told);
                Ok(result)
            }
            Err(error) => convert::failure(&error),
        })
    }
}

fn authority(worker: &Worker, asked: &Asked) -> Result<Value, CallError> {
    if asked.paths.len() > MOST {
        let message = "too many paths at once; ask for at most 1000";
        return Err(CallError::new(Code::InvalidArguments, message));
    }
    let mut workers = vec![worker.clone()];
    workers.extend(worker.beneath());
    let chosen = match &asked.worker {
        None => Some(worker),
        Some(name) => workers.iter().find(|one| one.agent() == name),
    };
    let chosen = chosen.ok_or_else(|| {
        let message = "there is no such worker; it may have ended";
        CallError::new(Code::NotFound, message)
    })?;
    let paths: Vec<Value> = asked
        .paths
        .iter()
        .map(|path| rights(chosen, path))
        .collect();
    let names: Vec<&str> = workers.iter().map(Worker::agent).collect();
    Ok(json!({"worker": chosen.agent(), "workers": names, "paths": paths}))
}

fn rights(worker: &Worker, text: &str) -> Value {
    let path = VirtualPath::parse(text, None);
    let judge = |verb| {
        let judged = path.as_ref().map(|path| worker.judge(verb, path));
        judged.unwrap_or_default().as_str()
    };
    json!({"path": text, "read": judge(Verb::Read), "write": judge(Verb::Write)})
}

fn understood<T: for<'de> Deserialize<'de>>(arguments: &Value) -> Result<T, CallError> {
    T::deserialize(arguments)
        .map_err(|error| CallError::new(Code::InvalidArguments, Cow::from(error.to_string())))
}
