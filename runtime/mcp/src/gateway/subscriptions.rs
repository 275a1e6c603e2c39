//! Notifications about changes of files and of the lists of tools, resources and prompts.
//!
//! A file is watched through a handle of its directory, opened beneath the worker's root, without ambient authority. A
//! worker's authority only changes by revocation, so it is checked once.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    ErrorData, NotificationNoParam, ResourceContents, ResourceUpdatedNotificationParam,
    ServerNotification, SubscriptionFilter,
};
use rmcp::service::{Peer, RequestContext, RoleServer, SubscriptionContext, SubscriptionSendError};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::requests::request_cancelled;
use super::resources::{DIRECTORY, not_found};
use super::worker_request::WorkerRequest;
use super::{Gateway, uri};
use crate::inotify::{Changes, Instance};
use crate::upstream::resource_of;
use bailiwick::VirtualPath;
use bailiwick::call::{Asks, Call};
use bailiwick::effect::ContentHash;
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

/// Subscriptions of one connection. Dropping a task ends it.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    files: Mutex<HashMap<String, FileSubscription>>,
    lists: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A subscription to a file.
#[derive(Debug)]
struct FileSubscription {
    /// The permit of the watched file, until the task ends.
    permit: Weak<OwnedSemaphorePermit>,
    _task: AbortOnDropHandle<()>,
}

impl Subscriptions {
    /// The permit of the file at `uri`, if it is watched.
    pub(super) fn permit(&self, uri: &str) -> Option<Arc<OwnedSemaphorePermit>> {
        self.files.lock().get(uri)?.permit.upgrade()
    }

    /// Adds a subscription, or replaces that to the same file, and removes those whose tasks have ended.
    fn insert(&self, uri: String, subscription: FileSubscription) {
        let mut files = self.files.lock();
        files.retain(|_, file| file.permit.strong_count() > 0);
        files.insert(uri, subscription);
    }
}

impl Gateway {
    /// Notifies a stateful client of changes of the file at `uri` until it unsubscribes or disconnects.
    pub(super) fn subscribe_file(
        &self,
        uri: String,
        mut watched: WatchedFile,
        peer: Peer<RoleServer>,
    ) {
        let (address, permit) = (uri.clone(), Arc::downgrade(&watched.permit));
        let task = tokio::spawn(async move {
            while watched.changed().await.is_some() {
                let update = ResourceUpdatedNotificationParam::new(address.clone());
                if peer.notify_resource_updated(update).await.is_err() {
                    return;
                }
            }
        });
        let subscription = FileSubscription {
            permit,
            _task: AbortOnDropHandle::new(task),
        };
        self.session.subscriptions.insert(uri, subscription);
    }

    pub(super) fn unsubscribe_file(&self, uri: &str) {
        self.session.subscriptions.files.lock().remove(uri);
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
                for notification in changed {
                    if peer.send_notification(notification).await.is_err() {
                        return;
                    }
                }
            }
        });
        *self.session.subscriptions.lists.lock() = Some(AbortOnDropHandle::new(task));
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

    /// Starts to watch what a stateless client subscribes to, and stores that in the request's extensions.
    pub(super) async fn prepare_subscription(
        &self,
        requested: &SubscriptionFilter,
        context: &mut RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let prepared = self.begin_subscription(requested, context).await?;
        let prepared = PreparedSubscription(Arc::new(Mutex::new(Some(prepared))));
        context.extensions.insert(prepared);
        Ok(())
    }

    /// Starts to watch what a stateless client subscribes to. Files that it may not read never send a notification.
    async fn begin_subscription(
        &self,
        requested: &SubscriptionFilter,
        context: &RequestContext<RoleServer>,
    ) -> Result<Subscription, ErrorData> {
        let request = self.worker_request(context).await?;
        // The policy of the request must be valid.
        request.authority().await?;
        let lists = OfferedLists::new(request.worker());
        let mut files = Vec::new();
        let supported = self.supported_filter(requested);
        for uri in supported.resource_subscriptions.into_iter().flatten() {
            if let Ok(watched) = request.watch_file(&uri, None).await {
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
        let request = context.request_context();
        let prepared = request.extensions.get::<PreparedSubscription>();
        let prepared = prepared.and_then(|prepared| prepared.0.lock().take());
        let Subscription { files, mut lists } = match prepared {
            Some(prepared) => prepared,
            None => self.begin_subscription(context.accepted(), request).await?,
        };
        let accepted = context.accepted().resource_subscriptions.iter().flatten();
        let accepted: HashSet<&String> = accepted.collect();
        // Dropping the set ends its tasks.
        let mut tasks = JoinSet::new();
        for (uri, mut watched) in files {
            if !accepted.contains(&uri) {
                continue;
            }
            let sink = context.sink().clone();
            tasks.spawn(async move {
                while watched.changed().await.is_some() {
                    if sink.notify_resource_updated(uri.clone()).await.is_err() {
                        return;
                    }
                }
            });
        }
        let mut active = true;
        loop {
            let changed = tokio::select! {
                () = request_cancelled(request) => return Ok(()),
                changed = lists.changed(), if active => changed,
            };
            active = changed.is_some();
            for notification in changed.into_iter().flatten() {
                match context.sink().send(notification).await {
                    // The client asked for other lists.
                    Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
                    Err(_) => return Ok(()),
                }
            }
        }
    }
}

impl WorkerRequest<'_> {
    /// Starts to watch a file that the client may read; any other is not found. Takes a permit unless it is given one.
    pub(super) async fn watch_file(
        &self,
        uri: &str,
        permit: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Result<WatchedFile, ErrorData> {
        if resource_of(uri).is_some() {
            let reason = "resources of third-party servers cannot be subscribed to";
            return Err(ErrorData::invalid_params(reason, Some(json!({"uri": uri}))));
        }
        let state = &self.gateway.state;
        let tools = state.files.as_ref().ok_or_else(|| not_found(uri))?;
        let path = uri::to_path(uri).ok_or_else(|| not_found(uri))?;
        // Reading the file checks the authority and creates an audit record. Nobody is asked: a file that requires approval is
        // not watched.
        let (contents, _) = self.file(uri, Asks::Refuse).await?;
        let mime = match &contents {
            ResourceContents::TextResourceContents { mime_type, .. } => mime_type.as_deref(),
            _ => None,
        };
        if mime == Some(DIRECTORY) {
            let reason = "a directory is not watched; name the files in it";
            return Err(ErrorData::invalid_params(reason, Some(json!({"uri": uri}))));
        }
        let permit = match permit {
            Some(permit) => permit,
            None => {
                let permit = Arc::clone(&state.watcher.permits).try_acquire_owned();
                Arc::new(permit.map_err(|_| {
                    let reason = format!("one server watches {MAX_WATCHED_FILES} resources");
                    ErrorData::invalid_params(reason, None)
                })?)
            }
        };
        let worker = self.worker().clone();
        let read =
            Call::new(tools.read, json!({"path": path.as_str()})).meta(self.options.call_meta());
        let needs = worker.explain_later(&read).await;
        let needs = needs.map_err(|_| not_found(uri))?;
        // Access by a grant does not suffice, because a grant may end without a notification.
        if needs.iter().any(|need| need.verdict != Verdict::Allow) {
            return Err(not_found(uri));
        }
        let (state, holder) = (Arc::clone(state), worker.clone());
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
            permit,
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

/// A watched file.
pub(super) struct WatchedFile {
    changes: Changes,
    worker: Worker,
    permit: Arc<OwnedSemaphorePermit>,
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

/// The lists of a worker, to detect changes.
struct OfferedLists {
    worker: Worker,
    /// Hashes of tools, resources and prompts, since the lists may be long.
    hashes: [ContentHash; 3],
    changes: ToolsChanges,
}

impl OfferedLists {
    fn new(worker: &Worker) -> Self {
        Self {
            changes: worker.tools_changes(),
            hashes: Self::hashes(worker),
            worker: worker.clone(),
        }
    }

    fn hashes(worker: &Worker) -> [ContentHash; 3] {
        let catalogs = worker.own_catalogs();
        let resources = catalogs
            .iter()
            .map(|it| (&it.server, &it.resources, &it.templates));
        let prompts = catalogs.iter().map(|it| &it.prompts);
        let tools = worker.tools();
        // The runtime's own tools do not change, and their schemas may not be made yet.
        let tools = tools.iter().map(|tool| {
            let changeable = tool.provider.is_some().then_some(tool);
            (&tool.spec.name, changeable)
        });
        let hash = |shown: String| ContentHash::of(shown.as_bytes());
        [
            hash(format!("{:?}", tools.collect::<Vec<_>>())),
            hash(format!("{:?}", resources.collect::<Vec<_>>())),
            hash(format!("{:?}", prompts.collect::<Vec<_>>())),
        ]
    }

    /// Completes after a visible change, with its notifications; `None` if there can be no more.
    async fn changed(&mut self) -> Option<Vec<ServerNotification>> {
        loop {
            tokio::select! {
                () = self.worker.revoked() => return None,
                changed = self.changes.next() => changed?,
            }
            tokio::time::sleep(DEBOUNCE).await;
            self.changes.mark_seen();
            let now = Self::hashes(&self.worker);
            let before = std::mem::replace(&mut self.hashes, now);
            let notifications = [
                ServerNotification::ToolListChangedNotification(NotificationNoParam::default()),
                ServerNotification::ResourceListChangedNotification(NotificationNoParam::default()),
                ServerNotification::PromptListChangedNotification(NotificationNoParam::default()),
            ];
            let lists = notifications.into_iter().zip(before).zip(now);
            let changed = lists.filter(|((_, before), now)| before != now);
            let changed: Vec<_> = changed.map(|((notification, _), _)| notification).collect();
            if !changed.is_empty() {
                return Some(changed);
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

    #[tokio::test]
    async fn ended_subscriptions_are_removed() {
        let subscriptions = Subscriptions::default();
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::new(permits.try_acquire_owned().unwrap());
        for (uri, permit) in [
            ("file:///ended", Weak::new()),
            ("file:///watched", Arc::downgrade(&permit)),
            ("file:///new", Arc::downgrade(&permit)),
        ] {
            let _task = AbortOnDropHandle::new(tokio::spawn(async {}));
            subscriptions.insert(uri.to_owned(), FileSubscription { permit, _task });
        }
        let files = subscriptions.files.lock();
        let mut uris: Vec<_> = files.keys().collect();
        uris.sort();
        assert_eq!(uris, ["file:///new", "file:///watched"]);
    }

    #[test]
    fn without_openat2_no_link_and_no_parent_is_followed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
        let directory = fs::File::open(top.path()).unwrap();
        for (path, opens) in [
            (".", true),
            ("a/b", true),
            ("link", false),
            ("link/b", false),
            ("a/..", false),
            ("none", false),
        ] {
            let opened = open_components(directory.as_fd(), path);
            assert_eq!(opened.is_ok(), opens, "{path}: {opened:?}");
        }
        let opened = open_components(directory.as_fd(), "a/b").unwrap();
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
