//! File watchers that share one inotify instance, because the system limits the instances per user.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// The inotify instance; it exists while something is watched.
#[derive(Debug, Default)]
pub(crate) struct Instance(Mutex<Weak<Hub>>);

/// Watches of one instance.
#[derive(Debug)]
struct Hub {
    inotify: AsyncFd<OwnedFd>,
    /// The watched names by watch descriptor. A directory has only one descriptor.
    directories: Mutex<HashMap<i32, Vec<Arc<Name>>>>,
}

#[derive(Debug)]
struct Name {
    name: String,
    sender: watch::Sender<()>,
}

/// Notifies of changes of one name.
#[derive(Debug)]
pub(crate) struct Changes {
    hub: Arc<Hub>,
    directory: i32,
    name: Weak<Name>,
    receiver: watch::Receiver<()>,
}

impl Instance {
    /// Watches `name` in `directory`, whether it exists or not.
    pub(crate) fn watch(&self, directory: &OwnedFd, name: String) -> Result<Changes, Errno> {
        let hub = {
            let mut held = self.0.lock();
            match held.upgrade() {
                Some(hub) => hub,
                None => {
                    let hub = Arc::new(Hub::open()?);
                    *held = Arc::downgrade(&hub);
                    hub
                }
            }
        };
        Hub::watch(hub, directory, name)
    }
}

impl Hub {
    fn open() -> Result<Self, Errno> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "the replacement needs `unsafe`")]
        let inotify = AsyncFd::new(inotify).map_err(|_| Errno::MFILE)?;
        Ok(Self {
            inotify,
            directories: Mutex::default(),
        })
    }

    fn watch(hub: Arc<Self>, directory: &OwnedFd, name: String) -> Result<Changes, Errno> {
        let events = WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE;
        let handle = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let (sender, receiver) = watch::channel(());
        let name = Arc::new(Name { name, sender });
        let mut directories = hub.directories.lock();
        // Holding the lock prevents other threads from removing the watch before it is in the table.
        let directory = inotify::add_watch(&hub.inotify, handle, events)?;
        let names = directories.entry(directory).or_default();
        let watched = Arc::downgrade(&name);
        names.push(name);
        drop(directories);
        Ok(Changes {
            hub,
            directory,
            name: watched,
            receiver,
        })
    }

    /// Reads pending events and notifies the watchers.
    fn drain(&self) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut directories = self.directories.lock();
        let mut events = Reader::new(self.inotify.get_ref().as_fd(), &mut buffer);
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // The lost events may be for any watcher.
                    let all = directories.values().flatten();
                    all.for_each(|name| name.sender.send_replace(()));
                }
                // The directory was removed; its watchers get no more events.
                Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                    if let Some(names) = directories.get_mut(&event.wd()) {
                        names.clear();
                    }
                }
                Ok(event) => {
                    let changed = event.file_name().map(|name| name.to_bytes());
                    let names = directories.get(&event.wd()).into_iter().flatten();
                    names
                        .filter(|name| changed == Some(name.name.as_bytes()))
                        .for_each(|name| name.sender.send_replace(()));
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Changes {
    /// Waits for a change; `None` if the name can no longer be watched.
    pub(crate) async fn next(&mut self) -> Option<()> {
        loop {
            tokio::select! {
                changed = self.receiver.changed() => return changed.ok(),
                ready = self.hub.inotify.readable() => {
                    // One waiter reads the events for all.
                    let mut ready = ready.ok()?;
                    self.hub.drain().ok()?;
                    ready.clear_ready();
                }
            }
        }
    }

    /// Discards the changes so far.
    pub(crate) fn gather(&mut self) -> Option<()> {
        self.hub.drain().ok()?;
        self.receiver.mark_unchanged();
        Some(())
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut directories = self.hub.directories.lock();
        let Some(names) = directories.get_mut(&self.directory) else {
            return;
        };
        names.retain(|name| Arc::as_ptr(name) != self.name.as_ptr());
        if names.is_empty() {
            directories.remove(&self.directory);
            // This fails if the directory was removed, which has ended the watch.
            let _ = inotify::remove_watch(&self.hub.inotify, self.directory);
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the files that are watched are changed here"
)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    struct TestDir(tempfile::TempDir, Instance);

    impl TestDir {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in ["one", "two"] {
                fs::create_dir(dir.path().join(name)).unwrap();
            }
            Self(dir, Instance::default())
        }

        fn watch(&self, path: &str) -> Changes {
            let (directory, name) = path.split_once('/').unwrap();
            let directory = File::open(self.0.path().join(directory)).unwrap();
            self.1.watch(&directory.into(), name.to_owned()).unwrap()
        }

        fn write(&self, path: &str) {
            fs::write(self.0.path().join(path), "x").unwrap();
        }
    }

    /// Whether a change was reported since the last check.
    fn has_changed(changes: &mut Changes) -> bool {
        changes.hub.drain().unwrap();
        let changed = changes.receiver.has_changed().unwrap_or(false);
        changes.receiver.mark_unchanged();
        changed
    }

    #[tokio::test]
    async fn watch_reports_only_changes_of_its_own_name() {
        let dir = TestDir::new();
        let paths = ["one/a", "one/b", "two/a"];
        let mut all = paths.map(|path| dir.watch(path));
        assert!(all.iter().all(|one| Arc::ptr_eq(&one.hub, &all[0].hub)));
        for (index, path) in paths.iter().enumerate() {
            dir.write(path);
            for (other, changes) in all.iter_mut().enumerate() {
                assert_eq!(
                    has_changed(changes),
                    index == other,
                    "{path} and {}",
                    paths[other]
                );
            }
        }
        dir.write("one/c");
        assert!(!all.iter_mut().any(has_changed));
    }

    #[tokio::test]
    async fn change_wakes_every_waiter_of_its_name() {
        let dir = TestDir::new();
        let (mut one, mut same) = (dir.watch("one/a"), dir.watch("one/a"));
        let mut other = dir.watch("two/a");
        dir.write("one/a");
        for changes in [&mut one, &mut same] {
            let change = tokio::time::timeout(Duration::from_secs(30), changes.next()).await;
            assert_eq!(change, Ok(Some(())));
            changes.gather().unwrap();
            assert!(!has_changed(changes));
        }
        assert!(!has_changed(&mut other));
    }

    #[tokio::test]
    async fn directory_watch_ends_with_its_last_name() {
        let dir = TestDir::new();
        let first = dir.watch("one/a");
        let mut second = dir.watch("one/b");
        let instance = Arc::downgrade(&first.hub);
        drop(first);
        dir.write("one/b");
        assert!(has_changed(&mut second));
        let number = second.directory;
        let other = dir.watch("two/a");
        drop(second);
        assert!(!other.hub.directories.lock().contains_key(&number));
        assert_eq!(
            inotify::remove_watch(&other.hub.inotify, number),
            Err(Errno::INVAL)
        );
        drop(other);
        assert!(instance.upgrade().is_none());
        let mut anew = dir.watch("one/a");
        dir.write("one/a");
        assert!(has_changed(&mut anew));
    }

    #[tokio::test]
    async fn removed_directory_ends_only_its_own_watches() {
        let dir = TestDir::new();
        let (mut gone, mut left) = (dir.watch("one/a"), dir.watch("two/a"));
        fs::remove_dir(dir.0.path().join("one")).unwrap();
        assert!(!has_changed(&mut gone));
        assert_eq!(gone.next().await, None);
        drop(gone);
        dir.write("two/a");
        assert!(has_changed(&mut left));
    }
}
