//! Notifications about changes of files and of the lists of tools, resources and prompts.
//!
//! A file is watched through a handle of its directory, opened beneath the worker's root, without ambient authority. A
//! worker's authority only changes by revocation, so it is checked once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientNotification, ClientRequest, ErrorData, ProtocolVersion, ResourceContents,
    ResourceUpdatedNotificationParam, ServerConfig, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, Peer, RequestContext, RoleServer, Service, ServiceError,
    SubscriptionContext, SubscriptionSendError, SubscriptionSink,
};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::call::is_stateless;
use super::meta::RequestOptions;
use super::requests::request_cancelled;
use super::resources::{DIRECTORY, authority, not_found};
use super::{Gateway, uri};
use crate::inotify::{Changes, Instance};
use crate::upstream::resource_of;
use bailiwick::call::{Call, CallMeta};
use bailiwick::effect::ContentHash;
use bailiwick::path::VirtualPath;
use bailiwick::policy::Verdict;
use bailiwick::worker::{ToolsChanges, Worker};

/// Maximum number of watched files per gateway.
const MAX_WATCHED_FILES: usize = 64;
/// Changes within this time are reported together.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// File watcher of a gateway.
#[derive(Debug)]
pub(super) struct FileWatcher {
    /// Linux limits the watches per user, so all connections share a limit.
    permits: Arc<Semaphore>,
    instance: Instance,
}

impl Default for FileWatcher {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_WATCHED_FILES)),
            instance: Instance::default(),
        }
    }
}

/// Subscriptions of one connection.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    files: Mutex<HashMap<String, TaskGuard>>,
    tools: Mutex<Option<TaskGuard>>,
}

/// Aborts a task on drop.
#[derive(Debug)]
struct TaskGuard(AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gateway {
    /// Notifies a stateful client of changes of the file at `uri` until it unsubscribes or disconnects.
    pub(super) async fn subscribe_file(
        &self,
        uri: &str,
        options: &RequestOptions,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watch_file(uri, options).await?;
        let address = uri.to_owned();
        let task = tokio::spawn(async move {
            while watched.changed().await.is_some() {
                let update = ResourceUpdatedNotificationParam::new(address.clone());
                if peer.notify_resource_updated(update).await.is_err() {
                    return;
                }
            }
        });
        let guard = TaskGuard(task.abort_handle());
        lock(&self.session.subscriptions.files).insert(uri.to_owned(), guard);
        Ok(())
    }

    pub(super) fn unsubscribe_file(&self, uri: &str) {
        lock(&self.session.subscriptions.files).remove(uri);
    }

    /// Notifies a stateful client of changes of its lists until it disconnects.
    pub(super) async fn notify_list_changes(&self, peer: Peer<RoleServer>) {
        let Ok(backend) = self.backend().await else {
            return;
        };
        let mut lists = OfferedLists::new(backend.worker());
        drop(backend);
        let task = tokio::spawn(async move {
            while let Some(changed) = lists.changed().await {
                let sent = async {
                    if changed.tools {
                        peer.notify_tool_list_changed().await?;
                    }
                    if changed.resources {
                        peer.notify_resource_list_changed().await?;
                    }
                    if changed.prompts {
                        peer.notify_prompt_list_changed().await?;
                    }
                    Ok::<_, ServiceError>(())
                };
                if sent.await.is_err() {
                    return;
                }
            }
        });
        *lock(&self.session.subscriptions.tools) = Some(TaskGuard(task.abort_handle()));
    }

    /// The part of a stateless client's filter that is supported.
    pub(super) fn supported_filter(&self, requested: &SubscriptionFilter) -> SubscriptionFilter {
        let mut filter = SubscriptionFilter::new();
        // New artifacts send no notification: the result of the call names them.
        filter.resources_list_changed = requested.resources_list_changed;
        filter.tools_list_changed = requested.tools_list_changed;
        filter.prompts_list_changed = requested.prompts_list_changed;
        // Only files are watched.
        let watched = requested.resource_subscriptions.as_ref();
        filter.resource_subscriptions = watched
            .filter(|_| self.state.files.is_some())
            .map(|uris| uris.iter().take(MAX_WATCHED_FILES).cloned().collect());
        filter
    }

    /// Starts to watch what a stateless client subscribes to. Files that it may not read never send a notification.
    async fn begin_subscription(
        &self,
        requested: &SubscriptionFilter,
        context: &RequestContext<RoleServer>,
    ) -> Result<Subscription, ErrorData> {
        let backend = self.backend().await?;
        let options = RequestOptions::read(&context.meta, self.state.trust)?;
        authority(backend.worker(), &options).await?;
        let lists = OfferedLists::new(backend.worker());
        let mut files = Vec::new();
        for uri in self
            .supported_filter(requested)
            .resource_subscriptions
            .into_iter()
            .flatten()
        {
            if let Ok(watched) = self.watch_file(&uri, &options).await {
                files.push((uri, watched));
            }
        }
        Ok(Subscription { files, lists })
    }

    /// Sends notifications to a stateless client until it cancels the request.
    pub(super) async fn serve_subscription(
        &self,
        context: SubscriptionContext,
    ) -> Result<(), ErrorData> {
        let requested = context.accepted();
        let prepared = context
            .request_context()
            .extensions
            .get::<PreparedSubscription>();
        let prepared = prepared.and_then(|prepared| lock(&prepared.0).take());
        let Subscription { files, mut lists } = match prepared {
            Some(prepared) => prepared,
            None => {
                let context = context.request_context();
                self.begin_subscription(requested, context).await?
            }
        };
        let accepted = context.accepted().resource_subscriptions.clone();
        let accepted = accepted.unwrap_or_default();
        let mut tasks = Vec::new();
        for (uri, mut watched) in files {
            if !accepted.contains(&uri) {
                continue;
            }
            let sink = context.sink().clone();
            let task = tokio::spawn(async move {
                while watched.changed().await.is_some() {
                    if sink.notify_resource_updated(uri.clone()).await.is_err() {
                        return;
                    }
                }
            });
            tasks.push(TaskGuard(task.abort_handle()));
        }
        let listed = context.accepted().resources_list_changed == Some(true);
        let wanted = ChangedLists {
            tools: context.accepted().tools_list_changed == Some(true),
            resources: listed,
            prompts: context.accepted().prompts_list_changed == Some(true),
        };
        let mut active = wanted.tools || wanted.resources || wanted.prompts;
        loop {
            tokio::select! {
                () = request_cancelled(context.request_context()) => return Ok(()),
                changed = lists.changed(), if active => {
                    active = changed.is_some();
                    let changed = changed.unwrap_or_default();
                    let sent = changed.notify(context.sink(), wanted);
                    if sent.await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Starts to watch a file that the client may read; any other is not found.
    async fn watch_file(
        &self,
        uri: &str,
        options: &RequestOptions,
    ) -> Result<WatchedFile, ErrorData> {
        if resource_of(uri).is_some() {
            let reason = "resources of third-party servers cannot be subscribed to";
            return Err(ErrorData::invalid_params(reason, Some(json!({"uri": uri}))));
        }
        let tools = self.state.files.as_ref().ok_or_else(|| not_found(uri))?;
        let path = uri::to_path(uri).ok_or_else(|| not_found(uri))?;
        // Reading the file checks the authority and creates an audit record.
        let (contents, _) = self.file(uri, options).await?;
        if is_directory(&contents) {
            let reason = "a directory is not watched; name the files in it";
            return Err(ErrorData::invalid_params(reason, Some(json!({"uri": uri}))));
        }
        let watcher = &self.state.watcher;
        let permit = Arc::clone(&watcher.permits).try_acquire_owned();
        let permit = permit.map_err(|_| {
            let reason = format!("one server watches {MAX_WATCHED_FILES} resources");
            ErrorData::invalid_params(reason, None)
        })?;
        let worker = self.backend().await?.worker().clone();
        let read = Call::new(tools.read, json!({"path": path.as_str()})).meta(CallMeta {
            origin: options.origin,
            policy: options.policy.clone(),
            ..CallMeta::default()
        });
        let needs = worker.explain_later(&read).await;
        let needs = needs.map_err(|_| not_found(uri))?;
        // Access by a grant does not suffice, because a grant may end without a notification.
        if needs.iter().any(|need| need.verdict != Verdict::Allow) {
            return Err(not_found(uri));
        }
        let (state, holder) = (Arc::clone(&self.state), worker.clone());
        // Opening the directory may block.
        let watch_task = tokio::task::spawn_blocking(move || {
            let (directory, name) = directory_of(&holder, &path).ok_or(Errno::NOENT)?;
            state.watcher.instance.watch(&directory, name)
        });
        let changes = watch_task.await.unwrap_or(Err(Errno::CANCELED));
        let changes = changes.map_err(|errno| {
            let reason = format!("this resource cannot be watched: {errno}");
            ErrorData::internal_error(reason, Some(json!({"uri": uri})))
        })?;
        Ok(WatchedFile {
            changes,
            worker,
            _permit: permit,
        })
    }
}

/// What a stateless client subscribes to.
struct Subscription {
    files: Vec<(String, WatchedFile)>,
    lists: OfferedLists,
}

/// A subscription that was started before the acknowledgement, in the request's extensions.
#[derive(Clone)]
struct PreparedSubscription(Arc<Mutex<Option<Subscription>>>);

/// Service that starts subscriptions before they are acknowledged.
///
/// rmcp sends the acknowledgement before it calls [`rmcp::ServerHandler::listen`], and a client may change a file as
/// soon as it reads that. Over HTTP rmcp accepts only a handler, so there the watches start after the acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionService<S> {
    pub(super) gateway: Gateway,
    pub(super) service: S,
}

impl<S: Service<RoleServer>> Service<RoleServer> for SubscriptionService<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if let ClientRequest::SubscriptionsListenRequest(listen) = &request
            && is_stateless(&context)
        {
            let requested = &listen.params.notifications;
            let prepared = self.gateway.begin_subscription(requested, &context).await?;
            let prepared = PreparedSubscription(Arc::new(Mutex::new(Some(prepared))));
            context.extensions.insert(prepared);
        }
        self.service.handle_request(request, context).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.service
            .handle_notification(notification, context)
            .await
    }

    fn get_info(&self) -> ServerConfig {
        self.service.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.service.supported_protocol_versions()
    }
}

fn is_directory(contents: &ResourceContents) -> bool {
    match contents {
        ResourceContents::TextResourceContents { mime_type, .. } => {
            mime_type.as_deref() == Some(DIRECTORY)
        }
        _ => false,
    }
}

/// A watched file.
struct WatchedFile {
    changes: Changes,
    worker: Worker,
    _permit: OwnedSemaphorePermit,
}

impl WatchedFile {
    /// Completes after a change; `None` if the file can no longer be watched.
    async fn changed(&mut self) -> Option<()> {
        self.changes.next().await?;
        tokio::time::sleep(DEBOUNCE).await;
        self.changes.gather()?;
        (!self.worker.status().revoked).then_some(())
    }
}

/// Lists that changed.
#[derive(Clone, Copy, Debug, Default)]
struct ChangedLists {
    tools: bool,
    resources: bool,
    prompts: bool,
}

impl ChangedLists {
    /// Notifies a stateless client of the lists in `wanted`.
    async fn notify(
        self,
        sink: &SubscriptionSink,
        wanted: Self,
    ) -> Result<(), SubscriptionSendError> {
        if wanted.tools && self.tools {
            sink.notify_tool_list_changed().await?;
        }
        if wanted.resources && self.resources {
            sink.notify_resource_list_changed().await?;
        }
        if wanted.prompts && self.prompts {
            sink.notify_prompt_list_changed().await?;
        }
        Ok(())
    }
}

/// The lists of a worker, to detect changes.
struct OfferedLists {
    worker: Worker,
    /// Hashes of tools, resources and prompts, since the lists may be long.
    hashes: [ContentHash; 3],
    changes: ToolsChanges,
    /// A change was signalled and not yet examined.
    pending: bool,
}

impl OfferedLists {
    fn new(worker: &Worker) -> Self {
        Self {
            changes: worker.tools_changes(),
            hashes: Self::hashes(worker),
            worker: worker.clone(),
            pending: false,
        }
    }

    fn hashes(worker: &Worker) -> [ContentHash; 3] {
        let catalogs = worker.own_catalogs();
        let resources = catalogs
            .iter()
            .map(|it| (&it.server, &it.resources, &it.templates));
        let prompts = catalogs.iter().map(|it| &it.prompts);
        let hash = |shown: String| ContentHash::of(shown.as_bytes());
        [
            hash(format!("{:?}", worker.tools())),
            hash(format!("{:?}", resources.collect::<Vec<_>>())),
            hash(format!("{:?}", prompts.collect::<Vec<_>>())),
        ]
    }

    /// Completes after a visible change; `None` if there can be no more. Cancel safe.
    async fn changed(&mut self) -> Option<ChangedLists> {
        loop {
            if !self.pending {
                tokio::select! {
                    () = self.worker.revoked() => return None,
                    pending = self.changes.next() => pending?,
                }
                self.pending = true;
            }
            tokio::time::sleep(DEBOUNCE).await;
            self.changes.mark_seen();
            self.pending = false;
            let now = Self::hashes(&self.worker);
            let [tools, resources, prompts] =
                std::array::from_fn(|list| now.get(list) != self.hashes.get(list));
            self.hashes = now;
            if tools || resources || prompts {
                return Some(ChangedLists {
                    tools,
                    resources,
                    prompts,
                });
            }
        }
    }
}

/// The directory that holds `path`, and the name in it; `None` for a root.
fn directory_of(worker: &Worker, path: &VirtualPath) -> Option<(OwnedFd, String)> {
    let (root, rest) = worker.root_of(path)?;
    let (parent, name) = rest.rsplit_once('/').unwrap_or((".", rest));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let opened = match openat2(root.dir(), parent, flags, Mode::empty(), how) {
        // Sandboxes may forbid `openat2` with `EPERM`.
        Err(Errno::NOSYS | Errno::PERM) => open_components(root.dir().as_fd(), parent),
        opened => opened,
    };
    let opened = opened.ok()?;
    (!name.is_empty()).then(|| (opened, name.to_owned()))
}

/// Opens a directory beneath `top` name by name, for kernels without `openat2`. Links and mounts are errors.
fn open_components(top: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut opened = openat(top, ".", flags, Mode::empty())?;
    let device = fstat(&opened)?.st_dev;
    for name in path.split('/').filter(|name| *name != ".") {
        if name == ".." || name.is_empty() {
            return Err(Errno::INVAL);
        }
        opened = openat(&opened, name, flags, Mode::empty())?;
        if fstat(&opened)?.st_dev != device {
            return Err(Errno::XDEV);
        }
    }
    Ok(opened)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests create the folders")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_openat2_no_link_and_no_parent_is_followed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
        let mutex = fs::File::open(top.path()).unwrap();
        for (path, opens) in [
            (".", true),
            ("a/b", true),
            ("link", false),
            ("link/b", false),
            ("a/..", false),
            ("none", false),
        ] {
            let opened = open_components(mutex.as_fd(), path);
            assert_eq!(opened.is_ok(), opens, "{path}: {opened:?}");
        }
        let opened = open_components(mutex.as_fd(), "a/b").unwrap();
        let same = fs::File::open(top.path().join("a/b")).unwrap();
        assert_eq!(fstat(&opened).unwrap().st_ino, fstat(&same).unwrap().st_ino);
    }

    #[test]
    fn without_openat2_no_mount_is_crossed() {
        let top = fs::File::open("/").unwrap();
        assert_eq!(
            open_components(top.as_fd(), "proc").unwrap_err(),
            Errno::XDEV
        );
    }
}
