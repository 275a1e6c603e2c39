//! Tools of the gateway for views: review rows, previews, and calls that need confirmation.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, Tool};
use rmcp::service::{RequestContext, RoleServer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::cancelled;
use super::convert::{self, CallFailure};
use super::meta::RequestOptions;
use super::requests::request_cancelled;
use super::resources::shows_only_readable;
use super::worker_request::WorkerRequest;
use bailiwick::call::{Asks, Call, CallMeta, Origin};
use bailiwick::effect::{Change, ContentHash, Entry, Op};
use bailiwick::policy::Verdict;
use bailiwick::{CallError, Code, VirtualPath};

const REVIEW_ROWS: &str = "review_rows";
const PREVIEW_CALL: &str = "preview_call";
const COMMIT_CALL: &str = "commit_call";
/// Suffix of a review's URI that requests the state of its files.
const STATE_SUFFIX: &str = ".state";
/// Maximum number of files per review whose state is checked.
const MAX_FILES: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewArgs {
    uri: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewArgs {
    tool: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitArgs {
    tool: String,
    #[serde(default)]
    arguments: JsonObject,
    preview_token: Option<String>,
}

/// The tools.
pub(super) fn tools() -> [Tool; 3] {
    let read = json!({
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "Such an address"}},
        "required": ["uri"],
        "additionalProperties": false,
    });
    let preview = json!({
        "type": "object",
        "properties": {
            "tool": {"type": "string", "description": "The tool that would be called"},
            "arguments": {"type": "object", "description": "With these arguments"},
        },
        "required": ["tool"],
        "additionalProperties": false,
    });
    let mut commit = preview.clone();
    if let Some(properties) = commit.get_mut("properties").and_then(Value::as_object_mut) {
        let token = json!({"type": "string", "description": "Of the preview that is carried out; STALE_PREVIEW if it would do anything else now"});
        properties.insert("preview_token".into(), token);
    }
    let mut tools = [
        (REVIEW_ROWS, "Read a review", "Reads `ui://TOOL/ID.rows` or `ui://TOOL/ID.state`, for views whose host offers them no resources.", read),
        (PREVIEW_CALL, "Preview a call", "Says what a call would change, and changes nothing.", preview),
        (COMMIT_CALL, "Ask for a call", "Asks a person to allow a call that changes something, and makes it if they do.", commit),
    ]
    .map(|(name, title, description, schema)| convert::gateway_tool(name, title, description, schema));
    if let Some(annotations) = tools.last_mut().and_then(|tool| tool.annotations.as_mut()) {
        annotations.read_only_hint = Some(false);
        annotations.destructive_hint = Some(true);
        annotations.idempotent_hint = Some(false);
    }
    tools
}

impl WorkerRequest<'_> {
    /// Audits that a call of a view is rejected.
    fn reject(&self, tool: &str, arguments: &impl Serialize, error: CallError) -> CallError {
        self.worker().refuse_view(tool, json!(arguments), error)
    }

    /// Rejects tools that are unknown or only read.
    fn require_mutating(&self, tool: &str, arguments: &impl Serialize) -> Result<(), CallError> {
        let error = if self.worker().tool(tool).is_none() {
            CallError::unknown_tool(tool)
        } else if self.worker().mutates(tool) {
            return Ok(());
        } else {
            let message = "this tool changes nothing, so there is nothing to preview or to allow";
            CallError::new(Code::InvalidArguments, message)
        };
        Err(self.reject(tool, arguments, error))
    }

    /// Parses the arguments of `name`, a tool of the gateway that makes calls.
    fn parse_call<T: DeserializeOwned>(
        &self,
        name: &str,
        arguments: Option<&JsonObject>,
    ) -> Result<T, CallError> {
        let parsed = parse_arguments(arguments.cloned());
        parsed.map_err(|error| self.reject(name, &arguments, error))
    }

    /// Returns the call in a `commit_call` request; a person must allow it. Returns other requests unchanged.
    pub(super) fn commit_request(
        &mut self,
        mut request: CallToolRequestParams,
    ) -> Result<CallToolRequestParams, CallError> {
        if request.name != COMMIT_CALL || self.worker().has_tool(COMMIT_CALL) {
            return Ok(request);
        }
        let arguments = request.arguments.take();
        let commit: CommitArgs = self.parse_call(COMMIT_CALL, arguments.as_ref())?;
        self.require_mutating(&commit.tool, &commit.arguments)?;
        if let Some(token) = commit.preview_token {
            let invalid = |_| {
                let error = CallError::new(Code::InvalidArguments, "not a preview token");
                self.reject(&commit.tool, &commit.arguments, error)
            };
            self.options.preview_token = Some(token.parse().map_err(invalid)?);
        }
        self.options.origin = Origin::View;
        self.options.confirm = true;
        request.name = commit.tool.into();
        request.arguments = Some(commit.arguments);
        Ok(request)
    }

    /// Calls one of [`tools`] or [`super::Gateway::file_browser_tools`], until the client cancels; `None` for any other name.
    pub(super) async fn call_view_tool(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<CallToolResult>, CallFailure> {
        if self.worker().has_tool(&request.name) {
            return Ok(None);
        }
        self.audit_ignored_grants(request);
        let answer = tokio::select! {
            biased;
            answer = self.run_view_tool(request) => answer?,
            () = request_cancelled(context) => return Err(cancelled().into()),
        };
        Ok(answer.map(|value| {
            let name: &str = &request.name;
            let mut result = CallToolResult::success(vec![ContentBlock::text(name)]);
            result.structured_content = Some(value);
            result
        }))
    }

    /// Audits that grants which came with a call of a tool of the gateway are ignored.
    fn audit_ignored_grants(&self, request: &CallToolRequestParams) {
        let ignored = &self.options.ignored_grants;
        if ignored.is_empty() || !self.gateway_tools().any(|tool| tool.name == request.name) {
            return;
        }
        let call = Call::new(&request.name, Value::Null).meta(CallMeta {
            origin: Origin::View,
            ..self.options.call_meta()
        });
        self.worker().audit_ignored_grants(&call, ignored);
    }

    async fn run_view_tool(
        &self,
        request: &CallToolRequestParams,
    ) -> Result<Option<Value>, CallError> {
        let arguments = request.arguments.clone();
        let answer = match &*request.name {
            REVIEW_ROWS => self.read_review(parse_arguments(arguments)?).await?,
            PREVIEW_CALL => {
                let preview = self.parse_call(PREVIEW_CALL, arguments.as_ref())?;
                self.preview_call(preview).await?
            }
            name => return self.call_file_browser_tool(name, arguments),
        };
        Ok(Some(answer))
    }

    async fn read_review(&self, ReviewArgs { uri }: ReviewArgs) -> Result<Value, CallError> {
        let (worker, options) = (self.worker(), &self.options);
        let not_found =
            || CallError::new(Code::NotFound, "unknown review; it may have been evicted");
        if let Some(policy) = &options.policy {
            let authority = worker.authority_under(Some(policy), options.origin).await?;
            if !shows_only_readable(worker, &authority, &uri) {
                return Err(not_found());
            }
        }
        if let Some(state) = self.review_state(&uri).await {
            return Ok(state);
        }
        let rows = uri.contains(".rows");
        let artifact = worker.artifact(&uri).ok().filter(|_| rows);
        let read = artifact.and_then(|artifact| serde_json::from_slice(&artifact.bytes).ok());
        read.ok_or_else(not_found)
    }

    /// Compares the files of a call with its review: with their state before the call for a preview, else after it.
    /// `None` if `uri` does not request that.
    ///
    /// The files are checked with the worker's read tool, so the state of a file that the worker may not read is
    /// `unknown`. Each check is a normal call: it is authorized, audited and counted.
    pub(super) async fn review_state(&self, uri: &str) -> Option<Value> {
        let review = self.worker().review(uri.strip_suffix(STATE_SUFFIX)?)?;
        let mut states = Vec::new();
        for change in review.changes() {
            states.push(if states.len() < MAX_FILES {
                self.state(change, review.is_preview()).await
            } else {
                "unknown"
            });
        }
        Some(json!({ "changes": states }))
    }

    async fn state(&self, change: &Change, preview: bool) -> &'static str {
        let (path, expected) = match (preview, change.op, &change.to) {
            (true, ..) => (&change.path, change.before),
            (false, Op::Move | Op::Copy, Some(to)) => (to, change.after),
            (false, ..) => (&change.path, change.after),
        };
        if change.diff.hidden || !self.may_read(path) {
            return "unknown";
        }
        match expected {
            Entry::File { hash, .. } => match self.has_hash(path, Some(&hash)).await {
                Ok(true) => "same",
                Ok(false) => "changed",
                Err(error) if error.code() == Code::NotFound => "changed",
                Err(_) => "unknown",
            },
            Entry::Absent => match self.has_hash(path, None).await {
                Err(error) if error.code() == Code::NotFound => "same",
                Ok(_) => "changed",
                Err(error) if error.code() == Code::NotRegular => "changed",
                Err(_) => "unknown",
            },
            Entry::Directory { .. } => "unknown",
        }
    }

    /// Whether the worker may read the path, so that a missing file is known to be missing.
    fn may_read(&self, path: &VirtualPath) -> bool {
        let Some(files) = &self.gateway.state.files else {
            return false;
        };
        let call = Call::new(files.read, json!({"path": path.as_str()}));
        let explained = self.worker().explain(&call);
        explained.is_ok_and(|needs| needs.iter().all(|need| need.verdict == Verdict::Allow))
    }

    /// Whether the file has that hash; without one, only whether it can be read.
    async fn has_hash(
        &self,
        path: &VirtualPath,
        hash: Option<&ContentHash>,
    ) -> Result<bool, CallError> {
        let files = self.gateway.state.files.as_ref();
        let read = files.ok_or_else(|| CallError::new(Code::Internal, "no files are served"))?;
        let mut arguments = json!({"path": path.as_str(), "limit": 1});
        if let (Some(hash), Value::Object(arguments)) = (hash, &mut arguments) {
            arguments.insert("known_hash".into(), hash.to_string().into());
        }
        // The policy and grants of the request are for its own call.
        let check = WorkerRequest {
            gateway: self.gateway,
            backend: Arc::clone(&self.backend),
            options: RequestOptions {
                origin: Origin::View,
                ..RequestOptions::default()
            },
            views: self.views,
        };
        let read = check.run_tool(read.read, arguments).await?;
        let output = read.structured()?;
        Ok(output.pointer("/files/0/unchanged") == Some(&Value::Bool(true)))
    }

    /// The review of a previewed call.
    async fn preview_call(&self, preview: PreviewArgs) -> Result<Value, CallError> {
        let PreviewArgs { tool, arguments } = preview;
        self.require_mutating(&tool, &arguments)?;
        let call = Call::new(&tool, arguments).meta(CallMeta {
            origin: Origin::View,
            asks: Asks::Refuse,
            ..self.options.call_meta()
        });
        let preview = self.worker().submit_preview(call).await?;
        let mut artifacts = preview.artifacts.iter();
        let uri = artifacts
            .find(|made| made.name == "review")
            .map(|made| &made.uri);
        Ok(json!({
            "intent": preview.intent,
            "review": uri,
            "output": preview.reply.structured()?,
            "preview_token": preview.token,
        }))
    }
}

pub(super) fn parse_arguments<T: DeserializeOwned>(
    arguments: Option<JsonObject>,
) -> Result<T, CallError> {
    let read = serde_json::from_value(Value::Object(arguments.unwrap_or_default()));
    read.map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))
}
