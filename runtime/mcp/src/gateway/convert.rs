//! Conversions from the runtime's types to MCP types.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    Annotations, CallToolResult, ContentBlock, JsonObject, MetaObject, NumberOrString, Resource,
    ResourceContents, Role, Tool, ToolAnnotations,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use bailiwick::effect::{ArtifactRef, Content, Outcome, Preview, Reply, Utf8};
use bailiwick::tool::ToolInfo;
use bailiwick::worker::Done;
use bailiwick::{CallError, Code, describe};

/// A tool for clients that support views. `files` tells whether the file browser is served.
pub(super) fn tool_for_views(info: &ToolInfo, offered: &[ToolInfo], files: bool) -> Tool {
    let mut tool = tool(info, offered);
    super::apps::add_ui_meta(&mut tool, info, files);
    tool
}

/// A tool of the gateway itself, for views.
pub(super) fn gateway_tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
) -> Tool {
    let mut tool = Tool::new(name, description, object(input));
    tool.title = Some(title.to_owned());
    let annotations = ToolAnnotations::with_title(title);
    let annotations = annotations.read_only(true).destructive(false);
    tool.annotations = Some(annotations.idempotent(true).open_world(false));
    tool.with_meta(MetaObject(object(json!({"ui": {"visibility": ["app"]}}))))
}

/// A tool for `tools/list`, next to those that are `offered`.
pub(super) fn tool(info: &ToolInfo, offered: &[ToolInfo]) -> Tool {
    let spec = &info.spec;
    let mut tool = Tool::new(
        spec.name.clone(),
        spec.description.clone(),
        object(input_schema(info)),
    );
    tool.title = Some(spec.title.to_string());
    tool.output_schema = output_schema(info).map(|schema| object(schema).into());
    tool.annotations = Some(ToolAnnotations::from_raw(
        None,
        Some(!info.mutates),
        Some(spec.destructive),
        Some(spec.idempotent || !info.mutates),
        Some(spec.open_world),
    ));
    let mut meta = Map::new();
    if info.previews {
        meta.insert("previews".into(), true.into());
    }
    if !spec.intent.is_empty() {
        meta.insert("intentTemplate".into(), (*spec.intent).into());
    }
    if !spec.scopes.is_empty() {
        let scopes = spec.scopes.iter().map(|scope| Value::from(&**scope));
        meta.insert("scopes".into(), scopes.collect());
    }
    if !spec.group.is_empty() {
        meta.insert("group".into(), spec.group.into());
    }
    if let Some(priority) = spec.priority {
        meta.insert("priority".into(), priority.into());
    }
    meta.insert("dashdash".into(), describe::listed(info, offered));
    tool.with_meta(MetaObject(meta))
}

fn input_schema(info: &ToolInfo) -> Value {
    let mut schema = Value::clone(&info.input_schema);
    strip_schema(&mut schema, strip_dialect);
    if let Value::Object(map) = &mut schema {
        // MCP requires an object schema, also for tools without arguments.
        map.entry("type").or_insert_with(|| "object".into());
        map.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

/// The schema of successful results without descriptions, which `ai_help` has; `None` if the tool has none.
///
/// No member is required, since some clients check errors against the schema, too.
fn output_schema(info: &ToolInfo) -> Option<Value> {
    let mut schema = Value::clone(&info.output_schema);
    strip_schema(&mut schema, strip_dialect);
    let root = schema.as_object_mut()?;
    root.get("properties")?
        .as_object()
        .filter(|it| !it.is_empty())?;
    root.shift_remove("required");
    root.shift_remove("additionalProperties");
    strip_schema(&mut schema, |node| drop(node.shift_remove("description")));
    Some(schema)
}

/// Calls `strip` with the members of every subschema.
fn strip_schema(schema: &mut Value, strip: fn(&mut JsonObject)) {
    match schema {
        Value::Object(node) => {
            strip(node);
            for (key, inner) in node {
                match (key.as_str(), inner) {
                    // Names of members and definitions are not keywords.
                    ("properties" | "$defs", Value::Object(members)) => {
                        let members = members.values_mut();
                        members.for_each(|member| strip_schema(member, strip));
                    }
                    (_, inner) => strip_schema(inner, strip),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip_schema(item, strip)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes the dialect's name and non-standard formats, which some validators reject.
fn strip_dialect(node: &mut JsonObject) {
    node.remove("$schema");
    let rust = |format: &str| {
        format.starts_with("uint") || format.starts_with("int") || format == "double"
    };
    if node.get("format").and_then(Value::as_str).is_some_and(rust) {
        node.remove("format");
    }
}

/// The members of an object.
pub(super) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Which links and artifacts a result contains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultLinks {
    /// The client's revision has resource links.
    pub(crate) supported: bool,
    /// Links the review page.
    pub(crate) review: bool,
    /// Names artifacts that are not linked in `_meta`. Some clients pass all of `_meta` to their model.
    pub(crate) artifacts: bool,
}

impl ResultLinks {
    pub(crate) const ALL: Self = Self {
        supported: true,
        review: true,
        artifacts: true,
    };
}

/// Converts the result of a call.
pub(super) fn done(done: &Done, links: ResultLinks) -> Result<CallToolResult, CallError> {
    match done {
        Done::Preview(it) => preview(it, links),
        Done::Outcome(it) => outcome(it, links),
    }
}

/// Whether a result has only text and structured content, as that of most reads.
pub(super) fn is_plain(done: &Done) -> bool {
    let Done::Outcome(outcome) = done else {
        return false;
    };
    let mut content = outcome.reply.content.iter();
    content.all(|content| matches!(content, Content::Text(_)))
        && outcome.artifacts.is_empty()
        && outcome.recorded
        && !outcome.has_changes()
}

/// The response with a plain result, as rmcp would encode it. No values are built from the text.
pub(super) fn encode_plain(id: &NumberOrString, done: &Done) -> Result<Vec<u8>, CallError> {
    #[derive(Serialize)]
    #[serde(tag = "type", rename = "text")]
    struct Text<'t> {
        text: &'t Utf8,
    }
    let reply = reply(done);
    let texts = reply.content.iter().filter_map(|content| match content {
        Content::Text(text) => {
            text.escape_once();
            Some(Text { text })
        }
        _ => None,
    });
    let texts: Vec<Text<'_>> = texts.collect();
    let mut response = Vec::with_capacity(encoded_size(done));
    response.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    write_json(&mut response, id);
    response.extend_from_slice(br#","result":{"content":"#);
    write_json(&mut response, &texts);
    let end = response.len();
    response.extend_from_slice(br#","structuredContent":"#);
    let start = response.len();
    reply.write_structured(&mut response)?;
    if response.get(start..) == Some(b"null") {
        response.truncate(end);
    }
    response.extend_from_slice(br#","isError":false}}"#);
    Ok(response)
}

/// Appends text or a number, which does not fail.
fn write_json(text: &mut Vec<u8>, value: &impl Serialize) {
    let _ = serde_json::to_writer(text, value);
}

/// About the bytes of a response with this result, if its structured content is the same text again.
pub(super) fn encoded_size(done: &Done) -> usize {
    let content = reply(done).content.iter().map(Content::len);
    1024 + content.sum::<usize>().saturating_mul(9) / 4
}

fn reply(done: &Done) -> &Reply {
    match done {
        Done::Preview(preview) => &preview.reply,
        Done::Outcome(outcome) => &outcome.reply,
    }
}

/// Converts the outcome of a call.
pub(crate) fn outcome(outcome: &Outcome, links: ResultLinks) -> Result<CallToolResult, CallError> {
    let mut result = match result(&outcome.reply, &outcome.artifacts, links) {
        // The change was made even if its output cannot be converted.
        Err(_) if outcome.has_changes() => CallToolResult::success(blocks(&outcome.reply, links)),
        result => result?,
    };
    if !outcome.recorded {
        result.content.push(ContentBlock::text(
            "The change was made, but the audit could not record it. Further calls are refused until it can.",
        ));
        let meta = result.meta.get_or_insert_default();
        meta.0.insert("recorded".into(), false.into());
    }
    Ok(result)
}

/// Converts a preview.
fn preview(preview: &Preview, links: ResultLinks) -> Result<CallToolResult, CallError> {
    let mut result = result(&preview.reply, &preview.artifacts, links)?;
    let meta = result.meta.get_or_insert_default();
    meta.0.insert("preview".into(), true.into());
    meta.0.insert("undoable".into(), preview.undoable.into());
    meta.0
        .insert("preview_token".into(), preview.token.to_string().into());
    Ok(result)
}

fn result(
    reply: &Reply,
    artifacts: &[ArtifactRef],
    links: ResultLinks,
) -> Result<CallToolResult, CallError> {
    let mut blocks = blocks(reply, links);
    let mut meta = None;
    let review = artifacts.iter().find(|made| made.name == "review");
    match review.or(artifacts.first()).filter(|_| links.review) {
        Some(shown) => {
            let others = artifacts.iter().filter(|made| made.uri != shown.uri);
            blocks.push(resource_link(shown, others));
        }
        None if links.artifacts && !artifacts.is_empty() => {
            meta = Some(MetaObject(artifacts_meta(artifacts.iter())));
        }
        None => {}
    }
    let mut result = CallToolResult::success(blocks);
    result.structured_content = Some(reply.structured()?).filter(|output| !output.is_null());
    result.meta = meta;
    Ok(result)
}

/// The artifacts in `_meta` form.
fn artifacts_meta<'a>(artifacts: impl Iterator<Item = &'a ArtifactRef>) -> JsonObject {
    let artifacts: Value = artifacts
        .map(|made| json!({"uri": made.uri, "name": made.name, "mimeType": super::apps::artifact_mime(made.mime)}))
        .collect();
    Map::from_iter([("artifacts".to_owned(), artifacts)])
}

/// The content blocks of a reply.
fn blocks(reply: &Reply, links: ResultLinks) -> Vec<ContentBlock> {
    let content = reply.content.iter();
    content.map(|content| block(content, links)).collect()
}

fn block(content: &Content, links: ResultLinks) -> ContentBlock {
    match content {
        Content::Link {
            server,
            uri,
            name,
            mime,
        } => {
            let address = crate::upstream::address(server, uri);
            if !links.supported {
                return ContentBlock::text(format!("[{name}: {address}]"));
            }
            let mut resource = Resource::new(address, name.clone());
            resource.mime_type.clone_from(mime);
            ContentBlock::resource_link(resource)
        }
        Content::Text(text) => ContentBlock::text(text.as_str()),
        Content::Image { bytes, mime } => ContentBlock::image(STANDARD.encode(bytes), *mime),
        Content::Audio { bytes, mime } => ContentBlock::audio(STANDARD.encode(bytes), *mime),
        Content::Blob { path, bytes } => ContentBlock::resource(
            ResourceContents::blob(STANDARD.encode(bytes), path.address())
                .with_mime_type("application/octet-stream"),
        ),
        _ => ContentBlock::text("[content that this server cannot send]"),
    }
}

fn resource_link<'a>(
    shown: &ArtifactRef,
    others: impl Iterator<Item = &'a ArtifactRef>,
) -> ContentBlock {
    let mut resource = artifact(shown);
    resource
        .meta
        .get_or_insert_default()
        .0
        .extend(artifacts_meta(others));
    ContentBlock::resource_link(resource)
}

/// An artifact as a resource; its audience is people.
pub(super) fn artifact(artifact: &ArtifactRef) -> Resource {
    let for_people = Annotations::default()
        .with_audience(vec![Role::User])
        .with_priority(0.5);
    Resource::new(artifact.uri.clone(), artifact.name)
        .with_title(artifact.title.clone())
        .with_mime_type(super::apps::artifact_mime(artifact.mime))
        .with_annotations(for_people)
        .with_meta(super::describe::resource_meta("artifact", false))
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailure {
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The request is invalid, or cannot be answered.
    #[error(transparent)]
    Request(#[from] ErrorData),
}

impl CallFailure {
    pub(super) fn into_response<T: From<CallToolResult>>(self) -> Result<T, ErrorData> {
        match self {
            Self::Call(error) => failure(&error).map(Into::into),
            Self::Request(error) => Err(error),
        }
    }
}

/// Converts an error to an error result for the model, or to a protocol error if the request itself is invalid.
pub(crate) fn failure(error: &CallError) -> Result<CallToolResult, ErrorData> {
    match error.code() {
        Code::PolicyExpansion | Code::PolicyInvalid | Code::UnknownTool => {
            return Err(request_error(error));
        }
        _ => {}
    }
    let mut structured = Map::new();
    structured.insert("code".into(), error.code().as_str().into());
    structured.insert("message".into(), error.message().into());
    for (key, value) in error.details() {
        structured
            .entry(key.as_str())
            .or_insert_with(|| value.clone());
    }
    if let Some(ms) = error
        .details()
        .get("retry_after_ms")
        .and_then(Value::as_u64)
    {
        structured.insert("retryAfter".into(), ms.div_ceil(1000).into());
    }
    let mut meta = Map::new();
    if !error.requested_scopes().is_empty() {
        let scopes: Vec<_> = error
            .requested_scopes()
            .iter()
            .map(ToString::to_string)
            .collect();
        meta.insert("requested_scopes".into(), scopes.into());
    }
    if error.code() == Code::PermissionDenied {
        let by = error.details().get("denied_by").cloned();
        meta.insert("denied_by".into(), by.unwrap_or_else(|| "policy".into()));
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(error.to_string())]);
    result.structured_content = Some(Value::Object(structured));
    Ok(result.with_meta((!meta.is_empty()).then_some(MetaObject(meta))))
}

/// Converts an error to a protocol error.
pub(super) fn request_error(error: &CallError) -> ErrorData {
    let mut data = error.details().clone();
    data.insert("code".into(), error.code().as_str().into());
    if matches!(error.code(), Code::PolicyExpansion | Code::PolicyInvalid) {
        data.insert("layer".into(), "call".into());
    }
    ErrorData::invalid_params(error.message().to_owned(), Some(Value::Object(data)))
}
