//! Lists and reads the resources and prompts of servers for workers, through the pipeline.
//!
//! A client of the gateway finds a resource of a server at [`address`] and a prompt under `SERVER__PROMPT`. Reading one is
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

use super::answer::failed;
use super::callers::Caller;
use super::classify::{cut, model_name, segment};
use super::complete;
use super::pages::{Most, Unpaged, paged};
use super::server::Server;
use crate::capability::CallPermit;
use crate::effect::Reply;
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::intent::IntentTemplate;
use crate::scope::Scope;
use crate::tool::{
    Arguments, Catalog, CatalogItem, Entry, GET_PROMPT, Job, READ_RESOURCE, Remote, RemoteContext,
    RemoteFuture, RemoteJob, RemoteReply, ToolSpec,
};

/// The most resources, templates or prompts of one server.
const MOST: usize = 1024;
/// The longest name, address or description, in bytes.
const LONGEST: usize = 4096;
/// How long a server may take to list them.
const LISTING: Duration = Duration::from_secs(5);
/// What stands before the address of a resource, as clients of the gateway know it.
const SCHEME: &str = "mcp+";
/// What the addresses of the pages of MCP Apps begin with, and their media type.
pub(super) const PAGES: &str = "ui://";
const PAGE: &str = "text/html;profile=mcp-app";

/// Where clients of the gateway find the resource `uri` of a server: `mcp+SERVER+URI`. The pages of MCP Apps keep their scheme,
/// which hosts insist on: `ui://REST` is at `ui://mcp+SERVER+REST`.
pub(crate) fn address(server: &str, uri: &str) -> String {
    // No scheme holds `_`, and no name of a server holds `.`.
    let server = server.replace('_', ".");
    match uri.strip_prefix(PAGES) {
        Some(rest) => format!("{PAGES}{SCHEME}{server}+{rest}"),
        None => format!("{SCHEME}{server}+{uri}"),
    }
}

/// The server and the resource of it that an address names. Whoever keeps the address may have changed the case of the
/// server's name.
pub(crate) fn resource_of(address: &str) -> Option<(String, Cow<'_, str>)> {
    let page = address.strip_prefix(PAGES);
    let (server, uri) = page
        .unwrap_or(address)
        .strip_prefix(SCHEME)?
        .split_once('+')?;
    let uri = match page {
        Some(_) => Cow::Owned(format!("{PAGES}{uri}")),
        None => Cow::Borrowed(uri),
    };
    Some((server.replace('.', "_"), uri))
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Resource,
    Prompt,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Resource, Self::Prompt];

    fn method(self) -> &'static str {
        match self {
            Self::Resource => READ_RESOURCE,
            Self::Prompt => GET_PROMPT,
        }
    }

    /// The argument that says which.
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

    /// What reading one needs; `label` is the server in scopes.
    pub(super) fn need(self, label: &str, which: &str) -> Option<Scope> {
        let need = format!("read:mcp:{label}:{}:{}", self.method(), segment(which));
        need.parse().ok()
    }
}

/// Text of a server that deceives nobody.
fn plain(text: &str) -> String {
    cut(&crate::escape_lines(text), LONGEST)
}

fn plain_all(texts: [&mut Option<String>; 3]) {
    for text in texts {
        *text = text.as_deref().map(plain);
    }
}

/// Whether an address, or the name of a prompt, can be passed on as it is.
pub(super) fn is_usable(text: &str) -> bool {
    let visible = |c: char| !c.is_control() && !crate::is_deceptive(c);
    !text.is_empty() && text.len() <= LONGEST && text.chars().all(visible)
}

/// Asks a server for what it has beside tools. A list that does not come, or is too long, is empty.
pub(super) async fn catalog(server: &Server, peer: &Peer<RoleClient>) -> Catalog {
    let capabilities = peer.peer_info().map(|info| info.capabilities.clone());
    let capabilities = capabilities.unwrap_or_default();
    let (resources, prompts) = (
        capabilities.resources.is_some(),
        capabilities.prompts.is_some(),
    );
    let most = Most {
        items: MOST,
        bytes: server.bounds.message_bytes,
    };
    let all_resources = paged(most, |page| async {
        let page = peer.list_resources(Some(page)).await?;
        Ok((page.resources, page.next_cursor))
    });
    let all_templates = paged(most, |page| async {
        let page = peer.list_resource_templates(Some(page)).await?;
        Ok((page.resource_templates, page.next_cursor))
    });
    let all_prompts = paged(most, |page| async {
        let page = peer.list_prompts(Some(page)).await?;
        Ok((page.prompts, page.next_cursor))
    });
    let listed = async {
        tokio::join!(
            list(server, resources, all_resources),
            list(server, resources, all_templates),
            list(server, prompts, all_prompts),
        )
    };
    let (resources, templates, prompts) = timeout(LISTING, listed).await.unwrap_or_default();
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

/// One list; empty if the server has none, or does not list it as it should.
async fn list<T>(
    server: &Server,
    has: bool,
    all: impl Future<Output = Result<Vec<T>, Unpaged<ServiceError>>>,
) -> Vec<T> {
    if !has {
        return Vec::new();
    }
    all.await.unwrap_or_else(|error| {
        // Servers with resources but no templates say so by this error.
        let has_none = matches!(
            &error,
            Unpaged::Page(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND
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
    let need = Kind::Resource
        .need(&server.label, &it.uri)
        .filter(|_| is_usable(&it.uri));
    it.uri = address(&server.spec.name, &it.uri);
    it.name = plain(&it.name);
    plain_all([&mut it.title, &mut it.description, &mut it.mime_type]);
    it.icons = None;
    it.meta = it
        .meta
        .as_ref()
        .and_then(|meta| of_page(it.mime_type.as_deref(), meta));
    item(need, it)
}

/// Of what is said of a page, what its host needs to show it; nothing of other resources.
fn of_page(mime: Option<&str>, meta: &MetaObject) -> Option<MetaObject> {
    let ui = meta.0.get("ui").filter(|_| mime == Some(PAGE))?;
    let fits = ui.is_object() && ui.to_string().len() <= LONGEST;
    fits.then(|| MetaObject(Map::from_iter([("ui".to_owned(), ui.clone())])))
}

fn template(server: &Server, mut it: ResourceTemplate) -> Option<CatalogItem> {
    // Which resource is read is judged when it is.
    let need = format!("read:mcp:{}", server.label).parse().ok();
    let need = need.filter(|_| is_usable(&it.uri_template));
    it.uri_template = address(&server.spec.name, &it.uri_template);
    it.name = plain(&it.name);
    plain_all([&mut it.title, &mut it.description, &mut it.mime_type]);
    (it.icons, it.meta) = (None, None);
    item(need, it)
}

/// The prompts under the names that clients know them by; of two that come to one name neither is offered.
fn prompts_of(server: &Server, prompts: Vec<Prompt>) -> BTreeMap<String, (String, CatalogItem)> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for prompt in &prompts {
        *taken
            .entry(model_name(&server.spec.name, &prompt.name))
            .or_default() += 1;
    }
    let offered = prompts.into_iter().filter_map(|mut it| {
        let name = model_name(&server.spec.name, &it.name);
        let there = std::mem::replace(&mut it.name, name.clone());
        let need = Kind::Prompt.need(&server.label, &there);
        let need = need.filter(|_| is_usable(&there) && taken.get(&name) == Some(&1));
        let mut none = None;
        plain_all([&mut it.title, &mut it.description, &mut none]);
        for argument in it.arguments.iter_mut().flatten() {
            argument.name = plain(&argument.name);
            let mut none = None;
            plain_all([&mut argument.title, &mut argument.description, &mut none]);
        }
        (it.icons, it.meta) = (None, None);
        Some((name, (there, item(need, it)?)))
    });
    offered.collect()
}

/// The entries by which workers read and complete what a server has. They are listed nowhere, and no tool has such a name.
pub(super) fn entries(server: &Arc<Server>) -> impl Iterator<Item = (ToolName, Arc<Entry>)> {
    let readers = Kind::ALL.into_iter().map(|kind| entry(server, kind));
    let all = readers.chain([complete::entry(server)]).flatten();
    all.map(|entry| (entry.name.clone(), Arc::new(entry)))
}

fn entry(server: &Arc<Server>, kind: Kind) -> Option<Entry> {
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
            let which = arguments.get(kind.key()).and_then(Value::as_str);
            let which = which.filter(|which| is_usable(which));
            let which =
                which.ok_or_else(|| invalid("that is not a name or address that can be read"))?;
            let need = kind.need(&server.label, which);
            let need =
                need.ok_or_else(|| invalid("that is not a name or address that can be read"))?;
            let given = arguments.get("arguments").and_then(Value::as_object);
            let read = Read {
                server: Arc::clone(&server),
                kind,
                which: which.to_owned(),
                arguments: given.cloned().unwrap_or_default(),
            };
            Ok((vec![need], Job::Remote(Arc::new(read))))
        }),
    })
}

pub(super) fn invalid(why: &str) -> CallError {
    CallError::new(Code::InvalidArguments, why)
}

/// One reading.
#[derive(Debug)]
struct Read {
    server: Arc<Server>,
    kind: Kind,
    which: String,
    /// What a prompt is filled in with.
    arguments: JsonObject,
}

impl RemoteJob for Read {
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
        carried(server, context, move |peer| async move {
            match self.kind {
                Kind::Resource => self.resource(&peer).await,
                Kind::Prompt => self.prompt(&peer).await,
            }
        })
    }

    fn mutates(&self) -> bool {
        false
    }
}

/// Carries out a request that is not a call of a tool: it takes a place among the calls, and ends with the connection.
pub(super) fn carried<F>(
    server: Arc<Server>,
    context: Arc<dyn RemoteContext>,
    request: impl FnOnce(Peer<RoleClient>) -> F + Send + 'static,
) -> Result<RemoteFuture, CallError>
where
    F: Future<Output = Result<Value, CallError>> + Send,
{
    let place = server.place()?;
    let live = server.live()?;
    Ok(Box::pin(async move {
        let _place = place;
        let entered = live.line.callers.enter(Caller::new(context));
        let output = tokio::select! {
            biased;
            output = request(live.peer.clone()) => output,
            _ = live.line.ended() => Err(server.gone()),
        };
        entered.answered();
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

/// Why such a request came to nothing.
pub(super) fn broke(server: &Server, error: &ServiceError) -> CallError {
    match error {
        ServiceError::McpError(error) => failed(&error.message),
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => server.gone(),
        _ => unusable(),
    }
}

fn unusable() -> CallError {
    let message = "the server's answer cannot be used: it is too large, invalid, or a question";
    CallError::new(Code::ServerFault, message)
}

impl Read {
    async fn resource(&self, peer: &Peer<RoleClient>) -> Result<Value, CallError> {
        let params = ReadResourceRequestParams::new(self.which.clone());
        let read = peer.read_resource_once(params).await;
        let ReadResourceResponse::Complete(read) =
            read.map_err(|error| broke(&self.server, &error))?
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

    /// A part of a resource for clients of the gateway; none if it is too much, or is not valid.
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
                let is_page = uri.starts_with(PAGES) && mime_type.as_deref() == Some(PAGE);
                // A client shows a page in a sandbox, and to no model.
                let text = if is_page && self.kind == Kind::Resource {
                    text.clone()
                } else {
                    crate::escape_lines(text).into_owned()
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
            Some(mime) => read.with_mime_type(plain(mime)),
            None => read,
        };
        let read = match meta
            .as_ref()
            .and_then(|meta| of_page(mime.as_deref(), meta))
        {
            Some(meta) => read.with_meta(meta),
            None => read,
        };
        is_usable(uri).then_some(read)
    }

    async fn prompt(&self, peer: &Peer<RoleClient>) -> Result<Value, CallError> {
        let mut params = GetPromptRequestParams::new(self.which.clone());
        params.arguments = Some(self.arguments.clone());
        let prompt = peer.get_prompt_once(params).await;
        let GetPromptResponse::Complete(prompt) =
            prompt.map_err(|error| broke(&self.server, &error))?
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
            output.insert("description".into(), plain(&description).into());
        }
        Ok(Value::Object(output))
    }

    /// A block of a prompt. Pictures and sounds are left out.
    fn block(&self, block: ContentBlock, left: &mut usize) -> Option<ContentBlock> {
        match block {
            ContentBlock::Text(block) => {
                *left = left.checked_sub(block.text.len() + 64)?;
                Some(ContentBlock::text(crate::escape_lines(&block.text)))
            }
            ContentBlock::Resource(block) => self
                .contents(&block.resource, left)
                .map(ContentBlock::resource),
            ContentBlock::ResourceLink(link) => {
                *left = left.checked_sub(link.uri.len() + 64)?;
                let link = Resource::new(
                    address(&self.server.spec.name, &link.uri),
                    plain(&link.name),
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
    fn an_address_names_one_server_and_one_resource_and_is_a_uri() {
        for server in ["notes", "My-Server_2", "9"] {
            for uri in ["demo://a/b?c=+d", "file:///x", "x", "ui://page/a+b.html"] {
                let address = address(server, uri);
                assert_eq!(address.starts_with(PAGES), uri.starts_with(PAGES));
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
