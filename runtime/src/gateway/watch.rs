//! A path that the client may read in, word of each change at it out; and word of new artifacts and other tools likewise.
//!
//! A file is watched through the handle of its directory, opened beneath the worker's root, so that no name is resolved
//! by ambient authority. A worker's own authority never changes but by its revocation, so it is judged once.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ErrorData, ResourceContents, ResourceUpdatedNotificationParam, SubscriptionFilter,
};
use rmcp::service::{Peer, RoleServer, SubscriptionContext};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::inotify::{Changes, Instance};
use super::meta::Extras;
use super::requests::withdrawn;
use super::resources::{DIRECTORY, absent};
use super::{Gateway, uri};
use crate::call::Call;
use crate::effect::ContentHash;
use crate::path::VirtualPath;
use crate::policy::Verdict;
use crate::worker::{ToolsChanges, Worker};

/// How many files all connections of a gateway may watch together.
const MOST: usize = 64;
/// What comes within this time is one change.
const GATHER: Duration = Duration::from_millis(50);

/// What all connections of a gateway watch with.
#[derive(Debug)]
pub(super) struct Watching {
    /// The system gives a user few watches, so all connections of a gateway share a bound.
    places: Arc<Semaphore>,
    instance: Instance,
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST)),
            instance: Instance::default(),
        }
    }
}

/// What one connection watches. How much that may be is bounded for all connections together.
#[derive(Debug, Default)]
pub(super) struct Watches {
    files: Mutex<HashMap<String, Running>>,
    artifacts: Mutex<Option<Running>>,
    tools: Mutex<Option<Running>>,
}

/// A task that ends when this goes.
#[derive(Debug)]
struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gateway {
    /// Tells a client with a handshake of each change at `uri` until it unsubscribes or goes.
    pub(super) async fn subscribed(
        &self,
        uri: &str,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watched = self.watched(uri).await?;
        let address = uri.to_owned();
        let task = tokio::spawn(async move {
            while watched.changed().await.is_some() {
                let update = ResourceUpdatedNotificationParam::new(address.clone());
                if peer.notify_resource_updated(update).await.is_err() {
                    return;
                }
            }
        });
        let running = Running(task.abort_handle());
        lock(&self.session.watches.files).insert(uri.to_owned(), running);
        Ok(())
    }

    pub(super) fn unsubscribed(&self, uri: &str) {
        lock(&self.session.watches.files).remove(uri);
    }

    /// Tells a client with a handshake of new artifacts until it goes.
    pub(super) async fn tell_of_artifacts(&self, peer: Peer<RoleServer>) {
        let Ok(served) = self.served().await else {
            return;
        };
        let mut artifacts = served.artifacts();
        // What is served must not live for this task's sake.
        drop(served);
        let task = tokio::spawn(async move {
            while artifacts.changed().await.is_ok() {
                tokio::time::sleep(GATHER).await;
                artifacts.mark_unchanged();
                if peer.notify_resource_list_changed().await.is_err() {
                    return;
                }
            }
        });
        *lock(&self.session.watches.artifacts) = Some(Running(task.abort_handle()));
    }

    /// Tells a client with a handshake of each change of what it is offered until it goes.
    pub(super) async fn tell_of_tools(&self, peer: Peer<RoleServer>) {
        let Ok(served) = self.served().await else {
            return;
        };
        let mut offered = Offered::to(served.worker());
        drop(served);
        let task = tokio::spawn(async move {
            while offered.changed().await.is_some() {
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
        *lock(&self.session.watches.tools) = Some(Running(task.abort_handle()));
    }

    /// What of a stateless client's wishes can be met at all.
    pub(super) fn listenable(&self, wished: &SubscriptionFilter) -> SubscriptionFilter {
        let mut filter = SubscriptionFilter::new();
        filter.resources_list_changed = wished.resources_list_changed;
        filter.tools_list_changed = wished.tools_list_changed;
        filter.resource_subscriptions = wished
            .resource_subscriptions
            .as_ref()
            .map(|uris| uris.iter().take(MOST).cloned().collect());
        filter
    }

    /// Tells a stateless client what it listens for until it gives up.
    ///
    /// What it may not read is never told of, like what never changes.
    pub(super) async fn told(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let served = self.served().await?;
        let mut running = Vec::new();
        let uris = context.accepted().resource_subscriptions.clone();
        for uri in uris.into_iter().flatten() {
            let Ok(mut watched) = self.watched(&uri).await else {
                continue;
            };
            let sink = context.sink().clone();
            let task = tokio::spawn(async move {
                while watched.changed().await.is_some() {
                    if sink.notify_resource_updated(uri.clone()).await.is_err() {
                        return;
                    }
                }
            });
            running.push(Running(task.abort_handle()));
        }
        let mut artifacts = served.artifacts();
        let mut offered = Offered::to(served.worker());
        drop(served);
        let listed = context.accepted().resources_list_changed == Some(true);
        let mut tools = context.accepted().tools_list_changed == Some(true);
        loop {
            tokio::select! {
                () = withdrawn(context.request_context()) => return Ok(()),
                changed = offered.changed(), if tools => {
                    tools = changed.is_some();
                    if tools && context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
                changed = artifacts.changed(), if listed => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    tokio::time::sleep(GATHER).await;
                    artifacts.mark_unchanged();
                    if context.sink().notify_resource_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Begins to watch what the client may read; anything else is absent.
    async fn watched(&self, uri: &str) -> Result<Watched, ErrorData> {
        let tools = self.desk.files.as_ref().ok_or_else(|| absent(uri))?;
        let path = uri::path(uri).ok_or_else(|| absent(uri))?;
        // Reading it once is the check, and the record of it in the audit.
        let (contents, _) = self.file(uri, Extras::default()).await?;
        if is_directory(&contents) {
            let reason = "a directory is not watched; name the files in it";
            return Err(ErrorData::invalid_params(reason, Some(json!({"uri": uri}))));
        }
        let watching = &self.desk.watching;
        let place = Arc::clone(&watching.places).try_acquire_owned();
        let place = place.map_err(|_| {
            let reason = format!("one server watches {MOST} resources");
            ErrorData::invalid_params(reason, None)
        })?;
        let worker = self.served().await?.worker().clone();
        let read = Call::new(tools.read, json!({"path": path.as_str()}));
        let needs = worker.explain(&read).map_err(|_| absent(uri))?;
        // What a grant alone lets it read may be closed again, and nobody would tell.
        if needs.iter().any(|need| need.verdict != Verdict::Allow) {
            return Err(absent(uri));
        }
        let (desk, holder) = (Arc::clone(&self.desk), worker.clone());
        // A file system that hangs must not hold up an async thread.
        let watching = tokio::task::spawn_blocking(move || {
            let (directory, name) = holder.directory_of(&path).ok_or(Errno::NOENT)?;
            desk.watching.instance.watch(&directory, name)
        });
        let changes = watching.await.unwrap_or(Err(Errno::CANCELED));
        let changes = changes.map_err(|errno| {
            let reason = format!("this resource cannot be watched: {errno}");
            ErrorData::internal_error(reason, Some(json!({"uri": uri})))
        })?;
        Ok(Watched {
            changes,
            worker,
            _place: place,
        })
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

/// A file being watched.
struct Watched {
    changes: Changes,
    worker: Worker,
    _place: OwnedSemaphorePermit,
}

impl Watched {
    /// Returns once it changed, or none when it can no longer be watched.
    async fn changed(&mut self) -> Option<()> {
        self.changes.next().await?;
        tokio::time::sleep(GATHER).await;
        self.changes.gather()?;
        (!self.worker.status().revoked).then_some(())
    }
}

/// What a worker is offered, as its client knows it.
struct Offered {
    worker: Worker,
    /// A hash of them: a client may listen many times, and all schemas of a worker are long.
    known: ContentHash,
    changes: ToolsChanges,
    /// A change was heard of and is not looked at.
    heard: bool,
}

impl Offered {
    fn to(worker: &Worker) -> Self {
        Self {
            changes: worker.tools_changes(),
            known: Self::hash(worker),
            worker: worker.clone(),
            heard: false,
        }
    }

    fn hash(worker: &Worker) -> ContentHash {
        ContentHash::of(format!("{:?}", worker.tools()).as_bytes())
    }

    /// Returns once it is another, or none if it will never be. What a policy leaves out is not told of by this
    /// either. Whoever stops waiting misses nothing.
    async fn changed(&mut self) -> Option<()> {
        loop {
            if !self.heard {
                tokio::select! {
                    () = self.worker.revoked() => return None,
                    heard = self.changes.next() => heard?,
                }
                self.heard = true;
            }
            tokio::time::sleep(GATHER).await;
            self.changes.mark_seen();
            self.heard = false;
            let now = Self::hash(&self.worker);
            if now != self.known {
                self.known = now;
                return Some(());
            }
        }
    }
}

impl Worker {
    /// The directory that holds `path`, and the name in it; none for the top of a root.
    fn directory_of(&self, path: &VirtualPath) -> Option<(OwnedFd, String)> {
        let (root, rest) = self.root_of(path)?;
        let (parent, name) = rest.rsplit_once('/').unwrap_or((".", rest));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let opened = match openat2(root.dir(), parent, flags, Mode::empty(), how) {
            // Sandboxes forbid it in place of not having it.
            Err(Errno::NOSYS | Errno::PERM) => step_by_step(root.dir().as_fd(), parent),
            opened => opened,
        };
        let opened = opened.ok()?;
        (!name.is_empty()).then(|| (opened, name.to_owned()))
    }
}

/// Opens a directory beneath another where the system has no `openat2`: no link is followed, and no mount is crossed.
fn step_by_step(top: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
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
#[expect(clippy::disallowed_methods, reason = "folders to open are made here")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn without_openat2_no_link_and_no_parent_is_followed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", top.path().join("link")).unwrap();
        let held = fs::File::open(top.path()).unwrap();
        for (path, opens) in [
            (".", true),
            ("a/b", true),
            ("link", false),
            ("link/b", false),
            ("a/..", false),
            ("none", false),
        ] {
            let opened = step_by_step(held.as_fd(), path);
            assert_eq!(opened.is_ok(), opens, "{path}: {opened:?}");
        }
        let opened = step_by_step(held.as_fd(), "a/b").unwrap();
        let same = fs::File::open(top.path().join("a/b")).unwrap();
        assert_eq!(fstat(&opened).unwrap().st_ino, fstat(&same).unwrap().st_ino);
    }

    #[test]
    fn without_openat2_no_mount_is_crossed() {
        let top = fs::File::open("/").unwrap();
        assert_eq!(step_by_step(top.as_fd(), "proc").unwrap_err(), Errno::XDEV);
    }
}
