//! Hidden entries through which workers read resources, get prompts and complete arguments of servers.
//!
//! Reading a resource is a call that needs `read:mcp:SERVER:resources/read:URI`, and getting a prompt one that needs
//! `read:mcp:SERVER:prompts/get:PROMPT`. Completing an argument needs the scope of its prompt or resource template,
//! because the server learns the typed text.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    ArgumentInfo, CompleteRequestParams, CompletionContext, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, JsonObject, PromptMessage, PromptReference, ReadResourceRequestParams,
    ReadResourceResponse, Reference, Resource, ResourceContents,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};

use super::active_calls::ActiveCall;
use super::catalog::{PAGE_MIME, PAGE_SCHEME, address, is_usable, need, page_meta, sanitize};
use super::server::Server;
use super::tool_result::failed;
use bailiwick::effect::Reply;
use bailiwick::intent::IntentTemplate;
use bailiwick::tool::{
    Arguments, CallPermit, Entry, GET_PROMPT, Job, READ_RESOURCE, RemoteContext, RemoteFuture,
    RemoteJob, RemoteReply, ToolName, ToolSpec,
};
use bailiwick::{CallError, Code};

pub(crate) const COMPLETE: &str = "completion/complete";
/// The largest number of values in an MCP completion.
const MAX_VALUES: usize = 100;

/// A request of a hidden entry.
#[derive(Debug)]
enum CatalogRequest {
    Read(ReadResourceRequestParams),
    Get(GetPromptRequestParams),
    Complete(CompleteRequestParams),
}

/// A request, and the method and target that its scope names.
type ParsedRequest<'a> = (CatalogRequest, &'static str, &'a str);

/// A hidden entry.
struct HiddenEntry {
    method: &'static str,
    title: &'static str,
    intent: Option<&'static str>,
    parse: fn(&JsonObject) -> Option<ParsedRequest<'_>>,
    /// The error for arguments that cannot be parsed.
    invalid: &'static str,
}

const ENTRIES: &[HiddenEntry] = &[
    HiddenEntry {
        method: READ_RESOURCE,
        title: "Read a resource",
        intent: Some("Read the resource {uri}"),
        parse: parse_read,
        invalid: "that is not a name or address that can be read",
    },
    HiddenEntry {
        method: GET_PROMPT,
        title: "Get a prompt",
        intent: Some("Get the prompt {name}"),
        parse: parse_get,
        invalid: "that is not a name or address that can be read",
    },
    HiddenEntry {
        method: COMPLETE,
        title: "Complete an argument",
        intent: None,
        parse: parse_complete,
        invalid: "that is not an argument that can be completed",
    },
];

/// The hidden entries of a server. Their names cannot collide with tools.
pub(super) fn entries(server: &Arc<Server>) -> impl Iterator<Item = (ToolName, Arc<Entry>)> {
    let entries = ENTRIES.iter().filter_map(|hidden| entry(server, hidden));
    entries.map(|entry| (entry.name.clone(), Arc::new(entry)))
}

fn entry(server: &Arc<Server>, hidden: &'static HiddenEntry) -> Option<Entry> {
    let method = hidden.method;
    let reads = format!("read:mcp:{}", server.label).parse().ok()?;
    let remote = server.remote(method, reads);
    let entry_name = format!("{}__{method}", server.spec.name);
    let server = Arc::clone(server);
    Some(Entry {
        name: ToolName::new(&entry_name),
        spec: ToolSpec::new("", hidden.title, ""),
        intent: hidden
            .intent
            .and_then(|intent| IntentTemplate::parse(intent).ok()),
        input_schema: json!({"type": "object"}).into(),
        output_schema: json!({"type": "object"}).into(),
        mutates: false,
        remote: Some(remote),
        prepare: Box::new(move |arguments: Arguments<'_>, _: &_| {
            let invalid = |why| CallError::new(Code::InvalidArguments, why);
            let Arguments::Json(Value::Object(arguments)) = arguments else {
                return Err(invalid("the arguments must be a JSON object"));
            };
            let unusable = || invalid(hidden.invalid);
            let (request, scope_method, target) = (hidden.parse)(arguments).ok_or_else(unusable)?;
            let need = need(&server, scope_method, target).ok_or_else(unusable)?;
            let call = CatalogCall {
                server: Arc::clone(&server),
                method,
                request,
            };
            Ok((vec![need], Job::Remote(Arc::new(call))))
        }),
    })
}

fn text<'a>(arguments: &'a JsonObject, key: &str) -> Option<&'a str> {
    arguments.get(key).and_then(Value::as_str)
}

fn parse_read(arguments: &JsonObject) -> Option<ParsedRequest<'_>> {
    let uri = text(arguments, "uri").filter(|uri| is_usable(uri))?;
    let params = ReadResourceRequestParams::new(uri);
    Some((CatalogRequest::Read(params), READ_RESOURCE, uri))
}

fn parse_get(arguments: &JsonObject) -> Option<ParsedRequest<'_>> {
    let name = text(arguments, "name").filter(|name| is_usable(name))?;
    let values = arguments.get("arguments").and_then(Value::as_object);
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = Some(values.cloned().unwrap_or_default());
    Some((CatalogRequest::Get(params), GET_PROMPT, name))
}

fn parse_complete(arguments: &JsonObject) -> Option<ParsedRequest<'_>> {
    let (method, target) = match (text(arguments, "prompt"), text(arguments, "template")) {
        (Some(prompt), None) => (GET_PROMPT, prompt),
        (None, Some(template)) => (READ_RESOURCE, template),
        _ => return None,
    };
    let (name, value) = (text(arguments, "argument")?, text(arguments, "value")?);
    if ![target, name].into_iter().all(is_usable) {
        return None;
    }
    let reference = if method == GET_PROMPT {
        Reference::Prompt(PromptReference::new(target))
    } else {
        Reference::for_resource(target)
    };
    let mut params = CompleteRequestParams::new(reference, ArgumentInfo::new(name, value));
    if let Some(others) = arguments.get("others").filter(|it| !it.is_null()) {
        let mut context = CompletionContext::new();
        context.arguments = Some(serde_json::from_value(others.clone()).ok()?);
        params.context = Some(context);
    }
    Some((CatalogRequest::Complete(params), method, target))
}

/// One call of a hidden entry.
#[derive(Debug)]
struct CatalogCall {
    server: Arc<Server>,
    method: &'static str,
    request: CatalogRequest,
}

impl RemoteJob for CatalogCall {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        (self.server.spec.name.as_str().into(), self.method.into())
    }

    fn carry(
        self: Arc<Self>,
        _: &CallPermit,
        _: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        let slot = self.server.call_slot()?;
        let connection = self.server.connection()?;
        Ok(Box::pin(async move {
            let _slot = slot;
            let state = &connection.state;
            let guard = state.active_calls.begin(ActiveCall::new(context));
            let output = tokio::select! {
                biased;
                output = self.send(&connection.peer) => output,
                _ = state.ended() => Err(self.server.unavailable()),
            };
            guard.answered();
            let reply = Reply {
                content: Vec::new(),
                output: Arc::new(output?),
            };
            Ok(RemoteReply {
                reply,
                preview: None,
            })
        }))
    }

    fn mutates(&self) -> bool {
        false
    }
}

fn unusable() -> CallError {
    let message =
        "the response of the server cannot be used: it is too large, invalid, or a question";
    CallError::new(Code::ServerFault, message)
}

impl CatalogCall {
    async fn send(&self, peer: &Peer<RoleClient>) -> Result<Value, CallError> {
        let failed = |error| self.call_error(&error);
        match &self.request {
            CatalogRequest::Read(params) => {
                let read = peer.read_resource_once(params.clone()).await;
                let ReadResourceResponse::Complete(mut read) = read.map_err(failed)? else {
                    return Err(unusable());
                };
                let mut left = self.server.bounds.result_bytes;
                for part in &mut read.contents {
                    self.convert(part, true, &mut left).ok_or_else(unusable)?;
                }
                Ok(json!({ "contents": read.contents }))
            }
            CatalogRequest::Get(params) => {
                let prompt = peer.get_prompt_once(params.clone()).await;
                let GetPromptResponse::Complete(prompt) = prompt.map_err(failed)? else {
                    return Err(unusable());
                };
                let mut left = self.server.bounds.result_bytes;
                let messages = prompt.messages.into_iter().map(|message| {
                    let content = self.block(message.content, &mut left)?;
                    Some(PromptMessage::new(message.role, content))
                });
                let messages = messages.collect::<Option<Vec<_>>>().ok_or_else(unusable)?;
                let mut output = Map::new();
                output.insert("messages".into(), json!(messages));
                if let Some(description) = prompt.description {
                    output.insert("description".into(), sanitize(&description).into());
                }
                Ok(Value::Object(output))
            }
            CatalogRequest::Complete(params) => {
                let completed = peer.complete(params.clone()).await.map_err(failed)?;
                let completion = completed.completion;
                let values = completion.values.into_iter().filter(|it| is_usable(it));
                let values: Vec<String> = values.take(MAX_VALUES).collect();
                Ok(json!({
                    "values": values, "total": completion.total, "has_more": completion.has_more,
                }))
            }
        }
    }

    /// Converts a failed request into a call error.
    fn call_error(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) => failed(&error.message),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => {
                self.server.unavailable()
            }
            _ => unusable(),
        }
    }

    fn address(&self, uri: &str) -> String {
        address(&self.server.spec.name, uri)
    }

    /// Converts a part of a resource for clients of the gateway; `None` if it is too large or invalid. Clients render
    /// `pages` in a sandbox and do not show them to models.
    fn convert(&self, part: &mut ResourceContents, pages: bool, left: &mut usize) -> Option<()> {
        let (uri, mime_type, meta, bytes) = match part {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta,
                ..
            } => {
                let bytes = text.len();
                let is_page =
                    uri.starts_with(PAGE_SCHEME) && mime_type.as_deref() == Some(PAGE_MIME);
                if !(is_page && pages) {
                    *text = bailiwick::text::escape_lines(text).into_owned();
                }
                (uri, mime_type, meta, bytes)
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                meta,
                ..
            } => {
                STANDARD.decode(&*blob).ok()?;
                (uri, mime_type, meta, blob.len())
            }
            _ => return None,
        };
        *left = left.checked_sub(bytes + 64)?;
        if !is_usable(uri) {
            return None;
        }
        *uri = self.address(uri);
        *meta = meta
            .as_ref()
            .and_then(|meta| page_meta(mime_type.as_deref(), meta));
        *mime_type = mime_type.as_deref().map(sanitize);
        Some(())
    }

    /// Converts a block of a prompt. Images and audio are omitted.
    fn block(&self, block: ContentBlock, left: &mut usize) -> Option<ContentBlock> {
        match block {
            ContentBlock::Text(block) => {
                *left = left.checked_sub(block.text.len() + 64)?;
                Some(ContentBlock::text(bailiwick::text::escape_lines(
                    &block.text,
                )))
            }
            ContentBlock::Resource(mut block) => {
                self.convert(&mut block.resource, false, left)?;
                Some(ContentBlock::resource(block.resource))
            }
            ContentBlock::ResourceLink(link) => {
                *left = left.checked_sub(link.uri.len() + 64)?;
                let link = Resource::new(self.address(&link.uri), sanitize(&link.name));
                Some(ContentBlock::resource_link(link))
            }
            _ => Some(ContentBlock::text("[what is not text is left out]")),
        }
    }
}
