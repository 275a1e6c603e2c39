//! An address in, what stands there and the worker may see out; names and completions likewise.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, ListResourceTemplatesResult,
    ListResourcesResult, PaginatedRequestParams, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};

use super::apps::AppPage;
use super::meta::Extras;
use super::pages::listed;
use super::{Gateway, apps, convert, describe, uri};
use crate::call::{Call, CallMeta};
use crate::effect::{Content, Outcome};
use crate::error::{CallError, Code};

const FILES: &str = "file:///{+path}";
pub(super) const DIRECTORY: &str = "inode/directory";
/// The most that MCP lets one completion name.
const MOST_COMPLETIONS: usize = 100;

impl Gateway {
    /// The artifacts of this connection's worker, the directories it was given, and the pages for a client of `views`.
    pub(super) async fn resources(
        &self,
        request: Option<PaginatedRequestParams>,
        views: bool,
    ) -> Result<ListResourcesResult, ErrorData> {
        let served = self.served().await?;
        let worker = served.worker();
        let mut resources: Vec<Resource> = Vec::new();
        if self.desk.manual.is_some() {
            resources.push(describe::help());
        }
        if self.desk.files.is_some() {
            resources.extend(worker.mounts().iter().map(|mount| {
                Resource::new(uri::of_file(mount), mount.as_str())
                    .with_mime_type(DIRECTORY)
                    .with_meta(describe::of_resource("directory", true))
            }));
        }
        if views {
            resources.extend(self.pages().map(AppPage::listed));
        }
        resources.extend(worker.artifacts().iter().map(convert::artifact));
        Ok(listed!(ListResourcesResult, resources, request.as_ref()))
    }

    pub(super) fn resource_templates(
        &self,
        request: Option<&PaginatedRequestParams>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut templates = vec![
            ResourceTemplate::new("ui://{tool}/{id}", "artifact")
                .with_description("What a mutating call would change or changed, for people"),
        ];
        if self.desk.files.is_some() {
            templates.push(
                ResourceTemplate::new(FILES, "file")
                    .with_description("A file or directory that the worker may read"),
            );
        }
        Ok(listed!(ListResourceTemplatesResult, templates, request))
    }

    fn pages(&self) -> impl Iterator<Item = &AppPage> {
        apps::pages(self.desk.files.is_some(), &self.desk.pages)
    }

    /// Reads a resource; what is absent, forbidden and malformed is told apart by nobody.
    pub(super) async fn resource(
        &self,
        uri: &str,
        extras: Extras,
    ) -> Result<ReadResourceResult, ErrorData> {
        if !uri.starts_with("file:") {
            extras.without_policy()?;
        }
        let contents = if uri == describe::HELP {
            self.help().await?
        } else if let Some(page) = self.pages().find(|page| page.uri == uri) {
            page.read()
        } else if uri.starts_with("ui://") {
            let served = self.served().await?;
            #[cfg(feature = "ui")]
            if let Some(state) = self.review_state(&served, uri).await {
                let contents = ResourceContents::text(state.to_string(), uri);
                return Ok(fresh(contents.with_mime_type("application/json")));
            }
            let worker = served.worker();
            let artifact = worker.artifact(uri).map_err(|_| absent(uri))?;
            let contents = match String::from_utf8(artifact.bytes.to_vec()) {
                Ok(text) => ResourceContents::text(text, uri),
                Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
            };
            apps::of_artifact(contents.with_mime_type(artifact.mime), artifact.mime)
        } else {
            let (contents, cut) = self.file(uri, extras).await?;
            if cut {
                let message = "the file is longer than a resource may be; read it in parts by the tool for files";
                return Err(refused(uri, &CallError::new(Code::TooLarge, message)));
            }
            contents
        };
        Ok(fresh(contents))
    }

    /// A file or directory, and whether only its beginning is there.
    pub(super) async fn file(
        &self,
        uri: &str,
        extras: Extras,
    ) -> Result<(ResourceContents, bool), ErrorData> {
        let tools = self.desk.files.as_ref().ok_or_else(|| absent(uri))?;
        let path = uri::path(uri).ok_or_else(|| absent(uri))?;
        let read = json!({"path": path.as_str(), "binary": true});
        match self.look(tools.read, read, &extras).await {
            Ok(outcome) => Ok((contents(&outcome, uri), is_cut(&outcome))),
            Err(error) if error.code() == Code::NotRegular => {
                let list = json!({"path": path.as_str()});
                let listing = self.look(tools.list, list, &extras).await;
                let listing = listing.map_err(|error| refused(uri, &error))?;
                let listing = ResourceContents::text(listing.text(), uri);
                Ok((listing.with_mime_type(DIRECTORY), false))
            }
            Err(error) => Err(refused(uri, &error)),
        }
    }

    /// Calls a reading tool for the client.
    pub(super) async fn look(
        &self,
        tool: &str,
        arguments: Value,
        extras: &Extras,
    ) -> Result<Outcome, CallError> {
        if self.session.bucket.take().is_err() {
            let reason = "requests come too fast; wait and try again";
            return Err(CallError::new(Code::RateLimited, reason));
        }
        let served = self.served().await;
        let served = served.map_err(|error| CallError::new(Code::Internal, error.message))?;
        let call = Call::new(tool, arguments).meta(CallMeta {
            origin: extras.origin,
            policy: extras.policy.clone(),
            preview_token: None,
            deadline: None,
            progress: None,
            asks: self.desk.asking.of_reads(),
            confirm: false,
        });
        match served.grants() {
            Some(grants) if !extras.granted.is_empty() => {
                grants
                    .submit(served.worker(), call, extras.granted.clone())
                    .await
            }
            _ => served.worker().submit(call).await,
        }
    }

    /// Completes a path by the names that the worker's own listing shows, and so by no denied one.
    pub(super) async fn completed(
        &self,
        request: &CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        let is_path = match &request.r#ref {
            Reference::Resource(template) => {
                template.uri == FILES && request.argument.name == "path"
            }
            Reference::Prompt(_) => request.argument.name == "path",
            _ => false,
        };
        let names = match (&self.desk.files, is_path) {
            (Some(tools), true) => self.names(tools.list, &request.argument.value).await,
            _ => Vec::new(),
        };
        let total = u32::try_from(names.len()).ok();
        let more = names.len() > MOST_COMPLETIONS;
        let shown = names.into_iter().take(MOST_COMPLETIONS).collect();
        let completion = CompletionInfo::with_pagination(shown, total, more)
            .map_err(|reason| ErrorData::internal_error(reason, None))?;
        Ok(CompleteResult::new(completion))
    }

    /// The paths that begin with `typed`; none if the directory cannot be listed.
    async fn names(&self, list: &str, typed: &str) -> Vec<String> {
        let (directory, _) = typed.rsplit_once('/').unwrap_or(("", typed));
        let arguments = match directory {
            "" => json!({}),
            directory => json!({"path": absolute(directory)}),
        };
        let Ok(listing) = self.look(list, arguments, &Extras::default()).await else {
            return Vec::new();
        };
        let Ok(output) = listing.structured() else {
            return Vec::new();
        };
        let entries = output.get("entries").and_then(Value::as_array);
        let names = entries
            .into_iter()
            .flatten()
            // A name that had to be escaped is one that no tool opens.
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

/// What was read, which is the client's own and stale at once.
fn fresh(contents: ResourceContents) -> ReadResourceResult {
    ReadResourceResult::new(vec![contents])
        .with_ttl_ms(0)
        .with_cache_scope(CacheScope::Private)
}

/// The template's `path` follows a slash, so what is typed lacks its first one.
fn absolute(directory: &str) -> String {
    if directory.starts_with('/') {
        directory.to_owned()
    } else {
        format!("/{directory}")
    }
}

/// Whether the reading tool left out the end of a file.
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
        Some(Content::Text(_)) | None => ResourceContents::text(outcome.text(), uri),
    }
}

/// One answer for what is not there and what is not the client's; MCP's revisions number it differently, which the
/// SDK sees to.
pub(super) fn absent(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": uri})))
}

fn refused(uri: &str, error: &CallError) -> ErrorData {
    match error.code() {
        // Beneath a file there is nothing, and to say so would tell that the file is there.
        Code::NotFound
        | Code::NotDirectory
        | Code::PermissionDenied
        | Code::ScopeRequired
        | Code::UnknownTool => absent(uri),
        Code::PolicyExpansion | Code::PolicyInvalid => convert::request_error(error),
        _ => {
            let data = json!({"uri": uri, "code": error.code().as_str()});
            ErrorData::internal_error(error.message().to_owned(), Some(data))
        }
    }
}
