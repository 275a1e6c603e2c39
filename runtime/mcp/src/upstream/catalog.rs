//! Lists and reads the resources and prompts of servers for workers, through the pipeline.
//!
//! A client of the gateway finds a resource of a server at [`address`] and a prompt as `SERVER__PROMPT`. Reading one is
//! a call that needs `read:mcp:SERVER:resources/read:URI` or `read:mcp:SERVER:prompts/get:PROMPT`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    ContentBlock, ErrorCode, GetPromptRequestParams, GetPromptResponse, JsonObject, MetaObject,
    Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, Resource,
    ResourceContents, ResourceTemplate,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::active_calls::ActiveCall;
use super::classify::{model_name, scope_segment, truncate};
use super::completion;
use super::pagination::{ListError, ListLimit, list_all};
use super::server::Server;
use super::tool_result::failed;
use bailiwick::capability::CallPermit;
use bailiwick::effect::Reply;
use bailiwick::error::{CallError, Code};
use bailiwick::id::ToolName;
use bailiwick::intent::IntentTemplate;
use bailiwick::scope::Scope;
use bailiwick::tool::{
    Arguments, Catalog, CatalogItem, Entry, GET_PROMPT, Job, READ_RESOURCE, Remote, RemoteContext,
    RemoteFuture, RemoteJob, RemoteReply, ToolSpec,
};

/// The largest number of resources, templates or prompts of one server.
const MAX_ITEMS: usize = 1024;
/// The longest name, address or description, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// How long a server may take to list them.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The prefix of resource addresses for clients of the gateway.
const SCHEME: &str = "mcp+";
/// The URI scheme of MCP Apps pages, and their media type.
pub(super) const PAGE_SCHEME: &str = "ui://";
const PAGE_MIME: &str = "text/html;profile=mcp-app";

/// The address of the resource `uri` of a server for clients of the gateway: `mcp+SERVER+URI`. Pages of MCP Apps keep
/// their scheme, which hosts require: `ui://REST` becomes `ui://mcp+SERVER+REST`.
pub(crate) fn address(server: &str, uri: &str) -> String {
    // URI schemes cannot contain `_`, and server names cannot contain `.`.
    let server = server.replace('_', ".");
    match uri.strip_prefix(PAGE_SCHEME) {
        Some(rest) => format!("{PAGE_SCHEME}{SCHEME}{server}+{rest}"),
        None => format!("{SCHEME}{server}+{uri}"),
    }
}

/// Parses an address into a server and the URI of its resource. Clients may have changed the case of the server's name.
pub(crate) fn resource_of(address: &str) -> Option<(String, Cow<'_, str>)> {
    let page = address.strip_prefix(PAGE_SCHEME);
    let (server, uri) = page
        .unwrap_or(address)
        .strip_prefix(SCHEME)?
        .split_once('+')?;
    let uri = match page {
        Some(_) => Cow::Owned(format!("{PAGE_SCHEME}{uri}")),
        None => Cow::Borrowed(uri),
    };
    Some((server.replace('.', "_"), uri))
}

/// The kind of a catalog entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CatalogKind {
    Resource,
    Prompt,
}

impl CatalogKind {
    const ALL: [Self; 2] = [Self::Resource, Self::Prompt];

    fn method(self) -> &'static str {
        match self {
            Self::Resource => READ_RESOURCE,
            Self::Prompt => GET_PROMPT,
        }
    }

    /// The name of the argument that selects the entry.
    fn key(self) -> &'static str {
        match self {
            Self::Resource => "uri",
            Self::Prompt => "name",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Resource => "Read a resource",
            Self::Prompt => "Get a prompt",
        }
    }

    fn intent(self) -> &'static str {
        match self {
            Self::Resource => "Read the resource {uri}",
            Self::Prompt => "Get the prompt {name}",
        }
    }

    /// The scope needed to read an entry of the server with this label.
    pub(super) fn need(self, label: &str, target: &str) -> Option<Scope> {
        let need = format!(
            "read:mcp:{label}:{}:{}",
            self.method(),
            scope_segment(target)
        );
        need.parse().ok()
    }
}

/// Escapes and truncates text of a server.
fn sanitize(text: &str) -> String {
    truncate(&bailiwick::escape_lines(text), MAX_TEXT_BYTES)
}

fn sanitize_all(texts: [&mut Option<String>; 3]) {
    for text in texts {
        *text = text.as_deref().map(sanitize);
    }
}

/// Whether a URI, or the name of a prompt, can be passed on unchanged.
pub(super) fn is_usable(text: &str) -> bool {
    let visible = |c: char| !c.is_control() && !bailiwick::is_deceptive(c);
    !text.is_empty() && text.len() <= MAX_TEXT_BYTES && text.chars().all(visible)
}

/// Lists the resources, templates and prompts of a server. A list that fails or is too long is empty.
pub(super) async fn catalog(server: &Server, peer: &Peer<RoleClient>) -> Catalog {
    let capabilities = peer.peer_info().map(|info| info.capabilities.clone());
    let capabilities = capabilities.unwrap_or_default();
    let (resources, prompts) = (
        capabilities.resources.is_some(),
        capabilities.prompts.is_some(),
    );
    let limit = ListLimit {
        items: MAX_ITEMS,
        bytes: server.bounds.message_bytes,
    };
    let all_resources = list_all(limit, |page| async {
        let page = peer.list_resources(Some(page)).await?;
        Ok((page.resources, page.next_cursor))
    });
    let all_templates = list_all(limit, |page| async {
        let page = peer.list_resource_templates(Some(page)).await?;
        Ok((page.resource_templates, page.next_cursor))
    });
    let all_prompts = list_all(limit, |page| async {
        let page = peer.list_prompts(Some(page)).await?;
        Ok((page.prompts, page.next_cursor))
    });
    let listed = async {
        tokio::join!(
            list_or_empty(server, resources, all_resources),
            list_or_empty(server, resources, all_templates),
            list_or_empty(server, prompts, all_prompts),
        )
    };
    let (resources, templates, prompts) = timeout(LIST_TIMEOUT, listed).await.unwrap_or_default();
    let name = &server.spec.name;
    Catalog {
        server: name.as_str().into(),
        completes: capabilities.completions.is_some(),
        resources: resources
            .into_iter()
            .filter_map(|it| resource(server, it))
            .collect(),
        templates: templates
            .into_iter()
            .filter_map(|it| template(server, it))
            .collect(),
        prompts: prompts_of(server, prompts),
    }
}

/// Returns a list, or an empty one if the server does not support or answer it.
async fn list_or_empty<T>(
    server: &Server,
    has: bool,
    all: impl Future<Output = Result<Vec<T>, ListError<ServiceError>>>,
) -> Vec<T> {
    if !has {
        return Vec::new();
    }
    all.await.unwrap_or_else(|error| {
        // Servers with resources but without templates return this error.
        let has_none = matches!(
            &error,
            ListError::Page(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND
        );
        if !has_none {
            tracing::warn!(server = %server.spec.name, "a list of a server is left out: it is too long, or was not answered");
        }
        Vec::new()
    })
}

fn item(need: Option<Scope>, shown: impl serde::Serialize) -> Option<CatalogItem> {
    Some(CatalogItem {
        need: need?,
        shown: serde_json::to_value(shown).ok()?,
    })
}

fn resource(server: &Server, mut it: Resource) -> Option<CatalogItem> {
    let need = CatalogKind::Resource
        .need(&server.label, &it.uri)
        .filter(|_| is_usable(&it.uri));
    it.uri = address(&server.spec.name, &it.uri);
    it.name = sanitize(&it.name);
    sanitize_all([&mut it.title, &mut it.description, &mut it.mime_type]);
    it.icons = None;
    it.meta = it
        .meta
        .as_ref()
        .and_then(|meta| page_meta(it.mime_type.as_deref(), meta));
    item(need, it)
}

/// The metadata that a host needs to show a page; `None` for other resources.
fn page_meta(mime: Option<&str>, meta: &MetaObject) -> Option<MetaObject> {
    let ui = meta.0.get("ui").filter(|_| mime == Some(PAGE_MIME))?;
    let fits = ui.is_object() && ui.to_string().len() <= MAX_TEXT_BYTES;
    fits.then(|| MetaObject(Map::from_iter([("ui".to_owned(), ui.clone())])))
}

fn template(server: &Server, mut it: ResourceTemplate) -> Option<CatalogItem> {
    // The resource is judged when it is read.
    let need = format!("read:mcp:{}", server.label).parse().ok();
    let need = need.filter(|_| is_usable(&it.uri_template));
    it.uri_template = address(&server.spec.name, &it.uri_template);
    it.name = sanitize(&it.name);
    sanitize_all([&mut it.title, &mut it.description, &mut it.mime_type]);
    (it.icons, it.meta) = (None, None);
    item(need, it)
}

/// The prompts by their names for clients. Prompts with colliding names are dropped.
fn prompts_of(server: &Server, prompts: Vec<Prompt>) -> BTreeMap<String, (String, CatalogItem)> {
    let mut name_counts: BTreeMap<String, usize> = BTreeMap::new();
    for prompt in &prompts {
        *name_counts
            .entry(model_name(&server.spec.name, &prompt.name))
            .or_default() += 1;
    }
    let offered = prompts.into_iter().filter_map(|mut it| {
        let name = model_name(&server.spec.name, &it.name);
        let original = std::mem::replace(&mut it.name, name.clone());
        let need = CatalogKind::Prompt.need(&server.label, &original);
        let need = need.filter(|_| is_usable(&original) && name_counts.get(&name) == Some(&1));
        let mut none = None;
        sanitize_all([&mut it.title, &mut it.description, &mut none]);
        for argument in it.arguments.iter_mut().flatten() {
            argument.name = sanitize(&argument.name);
            let mut none = None;
            sanitize_all([&mut argument.title, &mut argument.description, &mut none]);
        }
        (it.icons, it.meta) = (None, None);
        Some((name, (original, item(need, it)?)))
    });
    offered.collect()
}

/// The hidden entries through which workers read and complete what a server offers. Their names cannot collide with
/// tools.
pub(super) fn entries(server: &Arc<Server>) -> impl Iterator<Item = (ToolName, Arc<Entry>)> {
    let readers = CatalogKind::ALL.into_iter().map(|kind| entry(server, kind));
    let all = readers.chain([completion::entry(server)]).flatten();
    all.map(|entry| (entry.name.clone(), Arc::new(entry)))
}

fn entry(server: &Arc<Server>, kind: CatalogKind) -> Option<Entry> {
    let name = server.spec.name.as_str();
    let remote = Remote {
        server: name.into(),
        shown: format!("the server `{name}`").into(),
        tool: kind.method().into(),
        need: format!("read:mcp:{}", server.label).parse().ok()?,
        previews: false,
        listed: false,
        views: false,
    };
    let entry_name = format!("{name}__{}", kind.method());
    let server = Arc::clone(server);
    Some(Entry {
        name: ToolName::new(&entry_name),
        spec: ToolSpec::new("", kind.title(), ""),
        intent: IntentTemplate::parse(kind.intent()).ok(),
        input_schema: json!({"type": "object"}),
        output_schema: json!({"type": "object"}),
        mutates: false,
        remote: Some(remote),
        prepare: Box::new(move |arguments: Arguments<'_>, _: &_| {
            let Arguments::Json(Value::Object(arguments)) = arguments else {
                return Err(invalid("the arguments must be a JSON object"));
            };
            let target = arguments.get(kind.key()).and_then(Value::as_str);
            let target = target.filter(|target| is_usable(target));
            let target =
                target.ok_or_else(|| invalid("that is not a name or address that can be read"))?;
            let need = kind.need(&server.label, target);
            let need =
                need.ok_or_else(|| invalid("that is not a name or address that can be read"))?;
            let values = arguments.get("arguments").and_then(Value::as_object);
            let read = CatalogRead {
                server: Arc::clone(&server),
                kind,
                target: target.to_owned(),
                arguments: values.cloned().unwrap_or_default(),
            };
            Ok((vec![need], Job::Remote(Arc::new(read))))
        }),
    })
}

pub(super) fn invalid(why: &str) -> CallError {
    CallError::new(Code::InvalidArguments, why)
}

/// One read of a resource or prompt.
#[derive(Debug)]
struct CatalogRead {
    server: Arc<Server>,
    kind: CatalogKind,
    target: String,
    /// The arguments of the prompt.
    arguments: JsonObject,
}

impl RemoteJob for CatalogRead {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        (
            self.server.spec.name.as_str().into(),
            self.kind.method().into(),
        )
    }

    fn carry(
        self: Arc<Self>,
        _: &CallPermit,
        _: Option<String>,
        context: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        let server = Arc::clone(&self.server);
        run_request(server, context, move |peer| async move {
            match self.kind {
                CatalogKind::Resource => self.resource(&peer).await,
                CatalogKind::Prompt => self.prompt(&peer).await,
            }
        })
    }

    fn mutates(&self) -> bool {
        false
    }
}

/// Runs a request other than a tool call. It takes a call slot, and fails when the connection ends.
pub(super) fn run_request<F>(
    server: Arc<Server>,
    context: Arc<dyn RemoteContext>,
    request: impl FnOnce(Peer<RoleClient>) -> F + Send + 'static,
) -> Result<RemoteFuture, CallError>
where
    F: Future<Output = Result<Value, CallError>> + Send,
{
    let slot = server.call_slot()?;
    let connection = server.connection()?;
    Ok(Box::pin(async move {
        let _slot = slot;
        let guard = connection
            .state
            .active_calls
            .begin(ActiveCall::new(context));
        let output = tokio::select! {
            biased;
            output = request(connection.peer.clone()) => output,
            _ = connection.state.ended() => Err(server.unavailable()),
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

/// Converts a failed request into a call error.
pub(super) fn request_error(server: &Server, error: &ServiceError) -> CallError {
    match error {
        ServiceError::McpError(error) => failed(&error.message),
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => server.unavailable(),
        _ => unusable(),
    }
}

fn unusable() -> CallError {
    let message =
        "the response of the server cannot be used: it is too large, invalid, or a question";
    CallError::new(Code::ServerFault, message)
}

impl CatalogRead {
    async fn resource(&self, peer: &Peer<RoleClient>) -> Result<Value, CallError> {
        let params = ReadResourceRequestParams::new(self.target.clone());
        let read = peer.read_resource_once(params).await;
        let ReadResourceResponse::Complete(read) =
            read.map_err(|error| request_error(&self.server, &error))?
        else {
            return Err(unusable());
        };
        let mut left = self.server.bounds.result_bytes;
        let parts = read
            .contents
            .iter()
            .map(|part| self.contents(part, &mut left));
        let parts = parts.collect::<Option<Vec<_>>>().ok_or_else(unusable)?;
        Ok(json!({ "contents": parts }))
    }

    /// Converts a part of a resource for clients of the gateway; `None` if it is too large or invalid.
    fn contents(&self, part: &ResourceContents, left: &mut usize) -> Option<ResourceContents> {
        let mut take = |bytes: usize| {
            *left = left.checked_sub(bytes + 64)?;
            Some(())
        };
        let (uri, mime, meta, read) = match part {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                meta,
                ..
            } => {
                take(text.len())?;
                let is_page =
                    uri.starts_with(PAGE_SCHEME) && mime_type.as_deref() == Some(PAGE_MIME);
                // Clients render pages in a sandbox and do not show them to models.
                let text = if is_page && self.kind == CatalogKind::Resource {
                    text.clone()
                } else {
                    bailiwick::escape_lines(text).into_owned()
                };
                (
                    uri,
                    mime_type,
                    meta,
                    ResourceContents::text(text, address(&self.server.spec.name, uri)),
                )
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                meta,
                ..
            } => {
                take(blob.len())?;
                STANDARD.decode(blob).ok()?;
                (
                    uri,
                    mime_type,
                    meta,
                    ResourceContents::blob(blob.clone(), address(&self.server.spec.name, uri)),
                )
            }
            _ => return None,
        };
        let read = match mime {
            Some(mime) => read.with_mime_type(sanitize(mime)),
            None => read,
        };
        let read = match meta
            .as_ref()
            .and_then(|meta| page_meta(mime.as_deref(), meta))
        {
            Some(meta) => read.with_meta(meta),
            None => read,
        };
        is_usable(uri).then_some(read)
    }

    async fn prompt(&self, peer: &Peer<RoleClient>) -> Result<Value, CallError> {
        let mut params = GetPromptRequestParams::new(self.target.clone());
        params.arguments = Some(self.arguments.clone());
        let prompt = peer.get_prompt_once(params).await;
        let GetPromptResponse::Complete(prompt) =
            prompt.map_err(|error| request_error(&self.server, &error))?
        else {
            return Err(unusable());
        };
        let mut left = self.server.bounds.result_bytes;
        let messages = prompt.messages.into_iter().map(|message| {
            let content = self.block(message.content, &mut left)?;
            Some(PromptMessage::new(message.role, content))
        });
        let messages = messages.collect::<Option<Vec<_>>>().ok_or_else(unusable)?;
        let mut output = Map::new();
        output.insert(
            "messages".into(),
            serde_json::to_value(messages).map_err(|_| unusable())?,
        );
        if let Some(description) = prompt.description {
            output.insert("description".into(), sanitize(&description).into());
        }
        Ok(Value::Object(output))
    }

    /// Converts a block of a prompt. Images and audio are omitted.
    fn block(&self, block: ContentBlock, left: &mut usize) -> Option<ContentBlock> {
        match block {
            ContentBlock::Text(block) => {
                *left = left.checked_sub(block.text.len() + 64)?;
                Some(ContentBlock::text(bailiwick::escape_lines(&block.text)))
            }
            ContentBlock::Resource(block) => self
                .contents(&block.resource, left)
                .map(ContentBlock::resource),
            ContentBlock::ResourceLink(link) => {
                *left = left.checked_sub(link.uri.len() + 64)?;
                let link = Resource::new(
                    address(&self.server.spec.name, &link.uri),
                    sanitize(&link.name),
                );
                Some(ContentBlock::resource_link(link))
            }
            _ => Some(ContentBlock::text("[what is not text is left out]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_addresses_round_trip() {
        for server in ["notes", "My-Server_2", "9"] {
            for uri in ["demo://a/b?c=+d", "file:///x", "x", "ui://page/a+b.html"] {
                let address = address(server, uri);
                assert_eq!(
                    address.starts_with(PAGE_SCHEME),
                    uri.starts_with(PAGE_SCHEME)
                );
                assert_eq!(resource_of(&address), Some((server.to_owned(), uri.into())));
                let (scheme, _) = address.split_once(':').unwrap_or((&address, ""));
                let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
                assert!(scheme.chars().all(plain), "{address}");
            }
        }
        for other in ["file:///x", "mcp+x", "ui://a/b", "ui://mcp+a"] {
            assert_eq!(resource_of(other), None, "{other}");
        }
    }
}
