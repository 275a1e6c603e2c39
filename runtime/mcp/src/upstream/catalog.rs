//! Lists the resources and prompts of servers for workers.
//!
//! A client of the gateway finds a resource of a server at [`address`] and a prompt as `SERVER__PROMPT`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::{ErrorCode, MetaObject, Prompt, Resource, ResourceTemplate};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Map;
use tokio::time::timeout;

use super::classify::{count_names, model_name, scope_segment, truncate};
use super::pagination::{ListError, ListLimit, list_all};
use super::server::Server;
use bailiwick::scope::Scope;
use bailiwick::tool::{Catalog, CatalogItem, GET_PROMPT, READ_RESOURCE};

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
pub(super) const PAGE_MIME: &str = "text/html;profile=mcp-app";

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

/// The scope needed to read a resource or to get a prompt (`method`) of a server.
pub(super) fn need(server: &Server, method: &str, target: &str) -> Option<Scope> {
    let target = scope_segment(target);
    let need = format!("read:mcp:{}:{method}:{target}", server.label);
    need.parse().ok()
}

/// Escapes and truncates text of a server.
pub(super) fn sanitize(text: &str) -> String {
    truncate(&bailiwick::text::escape_lines(text), MAX_TEXT_BYTES)
}

fn sanitize_all<const N: usize>(texts: [&mut Option<String>; N]) {
    for text in texts {
        *text = text.as_deref().map(sanitize);
    }
}

/// Whether a URI, or the name of a prompt, can be passed on unchanged.
pub(super) fn is_usable(text: &str) -> bool {
    let visible = |c: char| !c.is_control() && !bailiwick::text::is_deceptive(c);
    !text.is_empty() && text.len() <= MAX_TEXT_BYTES && text.chars().all(visible)
}

fn limit(server: &Server) -> ListLimit {
    ListLimit {
        items: MAX_ITEMS,
        bytes: server.bounds.message_bytes,
    }
}

/// Lists all resources of a server, or fails.
pub(super) async fn list_resources(
    server: &Server,
    peer: &Peer<RoleClient>,
) -> Result<Vec<Resource>, ListError<ServiceError>> {
    let pages = list_all(limit(server), |page| async {
        let page = peer.list_resources(Some(page)).await?;
        Ok((page.resources, page.next_cursor))
    });
    pages.await
}

async fn list_templates(
    server: &Server,
    peer: &Peer<RoleClient>,
) -> Result<Vec<ResourceTemplate>, ListError<ServiceError>> {
    let pages = list_all(limit(server), |page| async {
        let page = peer.list_resource_templates(Some(page)).await?;
        Ok((page.resource_templates, page.next_cursor))
    });
    pages.await
}

/// Lists all prompts of a server, or fails.
pub(super) async fn list_prompts(
    server: &Server,
    peer: &Peer<RoleClient>,
) -> Result<Vec<Prompt>, ListError<ServiceError>> {
    let pages = list_all(limit(server), |page| async {
        let page = peer.list_prompts(Some(page)).await?;
        Ok((page.prompts, page.next_cursor))
    });
    pages.await
}

/// Lists the resources, templates and prompts of a server. A list that fails or is too long is empty.
pub(super) async fn catalog(server: &Server, peer: &Peer<RoleClient>) -> Catalog {
    let capabilities = peer.peer_info().map(|info| info.capabilities.clone());
    let capabilities = capabilities.unwrap_or_default();
    let (has_resources, has_prompts) = (
        capabilities.resources.is_some(),
        capabilities.prompts.is_some(),
    );
    let listed = async {
        tokio::join!(
            list_or_empty(server, has_resources, list_resources(server, peer)),
            list_or_empty(server, has_resources, list_templates(server, peer)),
            list_or_empty(server, has_prompts, list_prompts(server, peer)),
        )
    };
    let (resources, templates, prompts) = timeout(LIST_TIMEOUT, listed).await.unwrap_or_default();
    let resources = resources.into_iter().filter_map(|it| resource(server, it));
    let templates = templates.into_iter().filter_map(|it| template(server, it));
    Catalog {
        server: server.spec.name.as_str().into(),
        completes: capabilities.completions.is_some(),
        resources: resources.collect(),
        templates: templates.collect(),
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
    let need = need(server, READ_RESOURCE, &it.uri).filter(|_| is_usable(&it.uri));
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
pub(super) fn page_meta(mime: Option<&str>, meta: &MetaObject) -> Option<MetaObject> {
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
    let names = prompts.iter().map(|prompt| prompt.name.as_str());
    let name_counts = count_names(&server.spec.name, names);
    let offered = prompts.into_iter().filter_map(|mut it| {
        let name = model_name(&server.spec.name, &it.name);
        let original = std::mem::replace(&mut it.name, name.clone());
        let need = need(server, GET_PROMPT, &original);
        let need = need.filter(|_| is_usable(&original) && name_counts.get(&name) == Some(&1));
        sanitize_all([&mut it.title, &mut it.description]);
        for argument in it.arguments.iter_mut().flatten() {
            argument.name = sanitize(&argument.name);
            sanitize_all([&mut argument.title, &mut argument.description]);
        }
        (it.icons, it.meta) = (None, None);
        Some((name, (original, item(need, it)?)))
    });
    offered.collect()
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
