//! Resources, resource templates, prompts of servers, and completions.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams,
    GetPromptResult, Prompt, ReadResourceResult, Reference, Resource, ResourceContents,
    ResourceTemplate,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::apps::{AppPage, StyleSheet};
use super::worker_request::WorkerRequest;
use super::{Gateway, apps, convert, describe, prompts, uri};
use crate::upstream::{COMPLETE, resource_of};
use bailiwick::call::Asks;
use bailiwick::effect::{Content, Outcome};
use bailiwick::policy::Authority;
use bailiwick::tool::{Catalog, CatalogItem};
use bailiwick::worker::Worker;
use bailiwick::{CallError, Code};

const FILE_TEMPLATE: &str = "file:///{+path}";
pub(super) const DIRECTORY: &str = "inode/directory";
/// Maximum number of listed artifacts, newest first; others can still be read.
const MAX_ARTIFACTS: usize = 60;
/// Maximum number of completions in MCP.
const MAX_COMPLETIONS: usize = 100;

impl Gateway {
    pub(super) fn pages(&self) -> impl Iterator<Item = &AppPage> {
        apps::pages(self.state.files.is_some(), &self.state.pages)
    }
}

impl WorkerRequest<'_> {
    /// Lists the latest artifacts of the worker, its outermost open folders, and pages and their style sheets if the
    /// client supports views.
    /// A policy of the request hides folders and artifacts that it does not allow to read.
    pub(super) async fn list_resources(&self) -> Result<Vec<Resource>, ErrorData> {
        let (state, worker) = (&self.gateway.state, self.worker());
        let authority = self.authority().await?;
        let restricted = self.options.policy.is_some();
        let mut resources: Vec<Resource> = Vec::new();
        if state.manual.is_some() {
            resources.push(describe::help());
        }
        if state.files.is_some() {
            let open = authority.open_folders().iter();
            resources.extend(open.filter(|folder| folder.is_outermost()).map(|folder| {
                Resource::new(folder.path.address(), folder.path.as_str())
                    .with_mime_type(DIRECTORY)
                    .with_meta(describe::resource_meta("directory", true))
            }));
        }
        if self.views {
            resources.extend(self.gateway.pages().map(AppPage::listed));
            resources.extend(apps::STYLE_SHEETS.iter().map(StyleSheet::listed));
        }
        let mut artifacts = worker.artifacts();
        artifacts.retain(|made| !restricted || shows_only_readable(worker, &authority, &made.uri));
        resources.extend(artifacts.iter().take(MAX_ARTIFACTS).map(convert::artifact));
        for catalog in worker.catalogs(&authority) {
            resources.extend(parse_items(&catalog.resources));
        }
        Ok(resources)
    }

    pub(super) async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, ErrorData> {
        let mut templates = vec![
            ResourceTemplate::new("ui://{tool}/{id}", "artifact")
                .with_description("What a mutating call would change or changed, for people"),
        ];
        if self.gateway.state.files.is_some() {
            templates.push(
                ResourceTemplate::new(FILE_TEMPLATE, "file")
                    .with_description("A file or directory that the worker may read"),
            );
        }
        for catalog in self.catalogs().await? {
            templates.extend(parse_items(&catalog.templates));
        }
        Ok(templates)
    }

    /// The built-in prompts, and those of third-party servers.
    pub(super) async fn list_prompts(&self) -> Result<Vec<Prompt>, ErrorData> {
        let mut prompts = prompts::list();
        for catalog in self.catalogs().await? {
            prompts.extend(parse_items(catalog.prompts.values().map(|(_, item)| item)));
        }
        Ok(prompts)
    }

    /// Reads a resource. The error is the same for absent, forbidden and malformed URIs.
    pub(super) async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        if let Some((server, at_server)) = resource_of(uri) {
            return self.server_resource(uri, &server, &at_server).await;
        }
        if let Some(sheet) = apps::STYLE_SHEETS.iter().find(|sheet| sheet.uri == uri) {
            return Ok(uncached(vec![sheet.read()]));
        }
        let worker = self.worker();
        let page = self.gateway.pages().find(|page| page.uri == uri);
        let is_artifact = uri.starts_with("ui://") && page.is_none();
        if self.options.policy.is_some() && !uri.starts_with("file:") {
            let authority = self.authority().await?;
            if is_artifact && !shows_only_readable(worker, &authority, uri) {
                return Err(not_found(uri));
            }
        }
        let contents = if uri == describe::HELP {
            self.gateway.help().await?
        } else if let Some(page) = page {
            page.read()
        } else if is_artifact {
            if let Some(state) = self.review_state(uri).await {
                let contents = ResourceContents::text(state.to_string(), uri);
                return Ok(uncached(vec![contents.with_mime_type("application/json")]));
            }
            let artifact = worker.artifact(uri).map_err(|_| not_found(uri))?;
            apps::artifact_contents(artifact, uri)
        } else {
            let asks = self.gateway.state.asks_without_elicitation;
            let (contents, cut) = self.file(uri, asks).await?;
            if cut {
                let message = "the file is longer than a resource may be; read it in parts by the tool for files";
                return Err(read_error(uri, &CallError::new(Code::TooLarge, message)));
            }
            contents
        };
        Ok(uncached(vec![contents]))
    }

    /// Reads a resource of a third-party server, under the worker's policy.
    async fn server_resource(
        &self,
        uri: &str,
        server: &str,
        at_server: &str,
    ) -> Result<ReadResourceResult, ErrorData> {
        let catalogs = self.catalogs().await?;
        // Some clients change the case of a URI scheme.
        let matches = |it: &&Catalog| &*it.server == server;
        let matches_ignoring_case = |it: &&Catalog| it.server.eq_ignore_ascii_case(server);
        let found = catalogs.iter().find(matches);
        let found = found.or_else(|| catalogs.iter().find(matches_ignoring_case));
        let reader = found.ok_or_else(|| not_found(uri))?.resource_reader();
        let read = self.run_tool(&reader, json!({"uri": at_server})).await;
        let read = read.map_err(|error| server_error(&error))?;
        let output = read.structured().ok();
        let contents = output.and_then(|mut output| output.get_mut("contents").map(Value::take));
        let contents = contents.and_then(|it| serde_json::from_value(it).ok());
        let contents: Vec<ResourceContents> = contents.ok_or_else(|| not_found(uri))?;
        Ok(uncached(contents))
    }

    /// A prompt of a third-party server, under the worker's policy; `None` if there is no such prompt.
    pub(super) async fn server_prompt(
        &self,
        request: &GetPromptRequestParams,
    ) -> Result<Option<GetPromptResult>, ErrorData> {
        let catalogs = self.catalogs().await?;
        let found = catalogs.iter().find_map(|catalog| {
            let (name, _) = catalog.prompts.get(&request.name)?;
            Some((catalog.prompt_reader(), name))
        });
        let Some((reader, name)) = found else {
            return Ok(None);
        };
        let arguments = json!({"name": name, "arguments": request.arguments});
        let read = self.run_tool(&reader, arguments).await;
        let output = read.and_then(|read| read.structured());
        let output = output.map_err(|error| server_error(&error))?;
        let unreadable = |_| ErrorData::internal_error("the prompt cannot be read", None);
        serde_json::from_value(output).map(Some).map_err(unreadable)
    }

    /// A file or directory, and whether the content is truncated. `asks` says how a path that requires approval is handled.
    pub(super) async fn file(
        &self,
        uri: &str,
        asks: Asks,
    ) -> Result<(ResourceContents, bool), ErrorData> {
        let tools = self.gateway.state.files.as_ref();
        let tools = tools.ok_or_else(|| not_found(uri))?;
        let path = uri::to_path(uri).ok_or_else(|| not_found(uri))?;
        // The defaults of the tool are for models; a client gets as much as the tool permits.
        let unlimited = i64::MAX;
        let read = json!({"path": path.as_str(), "binary": true, "limit": unlimited, "max_bytes": unlimited});
        match self.run_tool_asking(tools.read, read, asks).await {
            Ok(outcome) => Ok((contents(&outcome, uri), is_cut(&outcome))),
            Err(error) if error.code() == Code::NotRegular => {
                let list = json!({"path": path.as_str()});
                let listing = self.run_tool_asking(tools.list, list, asks).await;
                let listing = listing.map_err(|error| read_error(uri, &error))?;
                let listing = ResourceContents::text(listing.text(), uri);
                Ok((listing.with_mime_type(DIRECTORY), false))
            }
            Err(error) => Err(read_error(uri, &error)),
        }
    }

    /// Completes a path from a listing of the worker, which has no denied names, or an argument of a third-party
    /// server's template or prompt by that server.
    pub(super) async fn complete(
        &self,
        request: &CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        if let Some((completer, arguments)) = self.completer(request).await? {
            // Completions never ask for approval.
            let completed = self.run_tool_asking(&completer, arguments, Asks::Refuse);
            return Ok(CompleteResult::new(server_completion(completed.await)));
        }
        let is_path = match &request.r#ref {
            Reference::Resource(template) => {
                template.uri == FILE_TEMPLATE && request.argument.name == "path"
            }
            Reference::Prompt(_) => request.argument.name == "path",
            _ => false,
        };
        let names = match &self.gateway.state.files {
            Some(tools) if is_path => self.names(tools.list, &request.argument.value).await,
            _ => Vec::new(),
        };
        let total = u32::try_from(names.len()).ok();
        let more = names.len() > MAX_COMPLETIONS;
        let shown = names.into_iter().take(MAX_COMPLETIONS).collect();
        let completion = CompletionInfo::with_pagination(shown, total, more)
            .map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(CompleteResult::new(completion))
    }

    /// The entry that completes an argument at a server, and its arguments; `None` if no server can.
    async fn completer(
        &self,
        request: &CompleteRequestParams,
    ) -> Result<Option<(String, Value)>, ErrorData> {
        // This also checks the policy of the request.
        let catalogs = self.catalogs().await?;
        let mut catalogs = catalogs.iter().filter(|catalog| catalog.completes);
        let found = match &request.r#ref {
            Reference::Prompt(prompt) => catalogs.find_map(|catalog| {
                let (name, _) = catalog.prompts.get(&prompt.name)?;
                Some((catalog, "prompt", Cow::Borrowed(name.as_str())))
            }),
            Reference::Resource(template) => resource_of(&template.uri).and_then(|(_, name)| {
                let matches = |item: &CatalogItem| {
                    let uri = item.shown.get("uriTemplate").and_then(Value::as_str);
                    uri == Some(template.uri.as_str())
                };
                let catalog = catalogs.find(|catalog| catalog.templates.iter().any(matches))?;
                Some((catalog, "template", name))
            }),
            _ => None,
        };
        Ok(found.map(|(catalog, kind, name)| {
            let others = request.context.as_ref().map(|it| &it.arguments);
            let arguments = json!({
                kind: name, "argument": request.argument.name, "value": request.argument.value, "others": others,
            });
            (format!("{}__{COMPLETE}", catalog.server), arguments)
        }))
    }

    /// Paths that begin with `typed`; empty if the directory cannot be listed.
    async fn names(&self, list: &str, typed: &str) -> Vec<String> {
        let (directory, _) = typed.rsplit_once('/').unwrap_or(("", typed));
        let arguments = match directory {
            "" => json!({}),
            directory => json!({"path": absolute(directory)}),
        };
        // Completions never ask for approval.
        let listing = self.run_tool_asking(list, arguments, Asks::Refuse).await;
        let output = listing.and_then(|listing| listing.structured());
        let output = output.unwrap_or_default();
        let entries = output.get("entries").and_then(Value::as_array);
        let names = entries
            .into_iter()
            .flatten()
            // `raw` means that the name is escaped. No tool opens such names.
            .filter(|entry| entry.get("raw").is_none())
            .filter_map(|entry| entry.get("name")?.as_str());
        names
            .map(|name| match directory {
                "" => name.to_owned(),
                directory => format!("{directory}/{name}"),
            })
            .filter(|path| path.starts_with(typed))
            .collect()
    }
}

/// Whether `authority` allows to read everything that the artifact at `uri` shows.
pub(super) fn shows_only_readable(worker: &Worker, authority: &Authority, uri: &str) -> bool {
    use bailiwick::policy::Verdict;
    use bailiwick::scope::{Scope, Verb};
    worker.review(uri).is_some_and(|review| {
        let mut changes = review.changes().iter();
        changes.all(|change| {
            let mut paths = std::iter::once(&change.path).chain(&change.to);
            paths.all(|path| {
                let need = Scope::file(Verb::Read, path.clone());
                authority.judge(&need, &[]) == Verdict::Allow
            })
        })
    })
}

/// A result that is private and not cacheable.
fn uncached(contents: Vec<ResourceContents>) -> ReadResourceResult {
    ReadResourceResult::new(contents)
        .with_ttl_ms(0)
        .with_cache_scope(CacheScope::Private)
}

/// The template's `path` follows a slash, so the typed text has no leading one.
fn absolute(directory: &str) -> String {
    if directory.starts_with('/') {
        directory.to_owned()
    } else {
        format!("/{directory}")
    }
}

/// Whether the tool truncated the file.
fn is_cut(outcome: &Outcome) -> bool {
    let output = outcome.structured().unwrap_or_default();
    let file = output.pointer("/files/0").unwrap_or(&output);
    file["next_offset"].is_u64() || file["line_cut"] == true
}

fn contents(outcome: &Outcome, uri: &str) -> ResourceContents {
    match outcome.reply.content.first() {
        Some(Content::Image { bytes, mime } | Content::Audio { bytes, mime }) => {
            ResourceContents::blob(STANDARD.encode(bytes), uri).with_mime_type(*mime)
        }
        Some(Content::Blob { bytes, .. }) => ResourceContents::blob(STANDARD.encode(bytes), uri)
            .with_mime_type("application/octet-stream"),
        _ => ResourceContents::text(outcome.text(), uri),
    }
}

/// The error is the same for absent and forbidden resources. The SDK chooses the error code of the client's revision.
pub(super) fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": uri})))
}

/// The completions of a server; empty if it fails.
fn server_completion(completed: Result<Outcome, CallError>) -> CompletionInfo {
    let output = completed.and_then(|outcome| outcome.structured());
    let output = output.unwrap_or_default();
    let values = output.get("values").cloned().unwrap_or_default();
    let mut completion = CompletionInfo::default();
    completion.values = serde_json::from_value(values).unwrap_or_default();
    let total = output.get("total").and_then(Value::as_u64);
    completion.total = total.and_then(|total| u32::try_from(total).ok());
    completion.has_more = output.get("has_more").and_then(Value::as_bool);
    completion
}

/// The entries of a catalog that parse as `T`.
fn parse_items<'a, T: DeserializeOwned>(
    items: impl IntoIterator<Item = &'a CatalogItem>,
) -> impl Iterator<Item = T> {
    let items = items.into_iter();
    items.filter_map(|item| serde_json::from_value(item.shown.clone()).ok())
}

/// The error of a server's resource or prompt. It may have details, since the client can list it.
pub(super) fn server_error(error: &CallError) -> ErrorData {
    let scopes: Vec<String> = error
        .requested_scopes()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut error = convert::request_error(error);
    if let (false, Some(Value::Object(data))) = (scopes.is_empty(), &mut error.data) {
        data.insert("requested_scopes".into(), scopes.into());
    }
    error
}

fn read_error(uri: &str, error: &CallError) -> ErrorData {
    match error.code() {
        // This code would reveal that a file exists.
        Code::NotFound
        | Code::NotDirectory
        | Code::PermissionDenied
        | Code::ScopeRequired
        | Code::UnknownTool => not_found(uri),
        Code::PolicyExpansion | Code::PolicyInvalid => convert::request_error(error),
        _ => {
            let data = json!({"uri": uri, "code": error.code().as_str()});
            ErrorData::internal_error(error.message().to_owned(), Some(data))
        }
    }
}
