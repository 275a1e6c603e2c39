//! The runtime: the public entry point, which spawns workers.

mod builder;
mod roots;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::activity::{CallLog, EndedQuestion, RecentCall};
use crate::artifact::{Artifact, Reader};
use crate::audit::{MemoryAudit, Record};
use crate::error::CallError;
use crate::id::{CallId, WorkerId};
use crate::journal::{ChangedFile, Journal, JournalView, Recovered, changed_files};
use crate::monitor::{Events, Metrics};
use crate::supervisor::{Core, Revoked, SpawnError};
use crate::tool::RemoteServers;
use crate::worker::{Worker, WorkerSpec};

pub use builder::{BuildError, BuildFault, RuntimeBuilder};

/// State shared by the handles of one runtime. Dropping the last handle revokes all authority.
#[derive(Debug)]
struct RuntimeInner {
    core: Arc<Core>,
    /// The default audit.
    memory: Option<MemoryAudit>,
    /// Keeps the journal locked until the shutdown.
    journal_lock: Mutex<Option<Journal>>,
    /// Changes that an earlier crash interrupted.
    recovered: Vec<Recovered>,
    /// Keeps the servers connected while the runtime exists.
    _servers: Option<Arc<dyn RemoteServers>>,
}

impl Drop for RuntimeInner {
    fn drop(&mut self) {
        self.core.close();
    }
}

/// The entry point: spawns workers and reads their artifacts.
///
/// Cloning it is cheap. When the last clone is dropped, all workers are revoked.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<RuntimeInner>,
}

/// Handle of a runtime that does not keep it alive, from [`Runtime::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakRuntime(Weak<RuntimeInner>);

impl WeakRuntime {
    /// Returns the runtime, unless its last handle was dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(|inner| Runtime { inner })
    }
}

impl Runtime {
    /// Returns a builder.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::new()
    }

    /// Starts a top-level worker.
    ///
    /// # Errors
    /// [`SpawnError::Policy`] if its policy requests more than is configured; see [`SpawnError`] for the others.
    pub async fn spawn(&self, spec: WorkerSpec) -> Result<Worker, SpawnError> {
        self.inner.core.spawn(None, spec).await.map(Worker::new)
    }

    /// Reads an artifact of any worker, for people.
    ///
    /// # Errors
    /// `NOT_FOUND` if it does not exist.
    pub fn artifact(&self, uri: &str) -> Result<Artifact, CallError> {
        self.inner.core.artifacts.get(uri, Reader::Host)
    }

    /// Returns the live workers, which were neither revoked nor stopped, in the order in which they were started.
    #[must_use]
    pub fn workers(&self) -> Vec<Worker> {
        let registry = self.inner.core.registry.iter();
        let live = registry.filter(|entry| !entry.gate().is_closed());
        let mut workers: Vec<Worker> = live
            .map(|entry| Worker::new(entry.value().clone()))
            .collect();
        workers.sort_by_key(Worker::id);
        workers
    }

    /// Returns a handle that does not keep the runtime alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(&self.inner))
    }

    /// Returns the recent calls of all workers, also of those that have ended, the newest first. It is empty unless
    /// [`RuntimeBuilder::keep_calls`] was set.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use bailiwick::activity::KeepCalls;
    /// use bailiwick::{Code, Runtime, WorkerSpec};
    /// let (runtime, _grants) = Runtime::builder().keep_calls(KeepCalls::default()).build().await?;
    /// let worker = runtime.spawn(WorkerSpec::new("main")).await?;
    /// let _ = worker.call("no_such_tool", serde_json::json!({})).await;
    /// worker.revoke().await;
    /// let calls = runtime.recent_calls();
    /// assert_eq!((&*calls[0].agent, calls[0].code()), ("main", Some(Code::UnknownTool)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn recent_calls(&self) -> Vec<Arc<RecentCall>> {
        let calls = self.inner.core.audit.monitor().calls();
        calls.map(CallLog::calls).unwrap_or_default()
    }

    /// Returns one of the recent calls.
    #[must_use]
    pub fn recent_call(&self, call: CallId) -> Option<Arc<RecentCall>> {
        self.inner.core.audit.monitor().calls()?.call(call)
    }

    /// Returns the last 200 questions that have ended, the newest first, with what became of the calls. It is empty
    /// unless [`RuntimeBuilder::keep_calls`] was set.
    #[must_use]
    pub fn ended_questions(&self) -> Vec<EndedQuestion> {
        let calls = self.inner.core.audit.monitor().calls();
        calls.map(CallLog::questions).unwrap_or_default()
    }

    /// Returns a receiver of the events of the runtime from now on.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use bailiwick::monitor::EventKind;
    /// use bailiwick::{Runtime, WorkerSpec};
    /// let (runtime, _grants) = Runtime::builder().build().await?;
    /// let mut events = runtime.events();
    /// runtime.spawn(WorkerSpec::new("main")).await?;
    /// let event = events.recv().await?;
    /// assert_eq!(&*event.agent, "main");
    /// assert!(matches!(event.kind, EventKind::WorkerStarted { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        self.inner.core.audit.monitor().subscribe()
    }

    /// Returns what the operating system enforces besides the checks of the runtime, as in
    /// [`Status::layers`](crate::worker::Status::layers).
    #[must_use]
    pub fn layers(&self) -> Vec<crate::worker::LayerStatus> {
        self.inner.core.layers()
    }

    /// Returns the counters of the runtime.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let core = &self.inner.core;
        let workers = self.workers();
        let running = workers.iter().map(|it| u64::from(it.in_flight()));
        Metrics {
            running: running.sum(),
            workers: workers.len(),
            queued_io: core.io.queued() + core.io_outside.queued(),
            queued_cpu: core.cpu.queued(),
            ..core.audit.monitor().counters()
        }
    }

    /// Returns the files that a worker and its descendants changed in this runtime, in path order, also after they have
    /// ended. Changes that were undone, and files that have their old content again, are left out. It is empty without
    /// [`RuntimeBuilder::journal`].
    ///
    /// It reports what calls did: what others changed in the meantime is not considered.
    #[must_use]
    pub fn changes(&self, worker: WorkerId) -> Vec<ChangedFile> {
        let journal = self.inner.core.journal.clone();
        let view = journal.map(|journal| JournalView::new(journal, Some(worker)));
        view.map(|view| changed_files(&view.entries()))
            .unwrap_or_default()
    }

    /// Returns the changes that a crash of an earlier runtime interrupted, and what became of them when this one was built.
    #[must_use]
    pub fn recovered(&self) -> &[Recovered] {
        &self.inner.recovered
    }

    /// Returns the change journal, if there is one. This handle does not keep the journal locked.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.inner.core.journal.as_ref()
    }

    /// Returns the last 4,096 audit records, the oldest first. Returns `None` if [`RuntimeBuilder::audit`] set another
    /// sink; the host reads that sink itself. [`Runtime::flush_audit`] waits for records that are not written yet.
    #[must_use]
    pub fn audit_records(&self) -> Option<Vec<Record>> {
        self.inner.memory.as_ref().map(MemoryAudit::records)
    }

    /// Waits until all audit events so far are written.
    ///
    /// # Errors
    /// [`AuditError`](crate::audit::AuditError) if the audit cannot be written.
    pub async fn flush_audit(&self) -> Result<(), crate::audit::AuditError> {
        self.inner.core.audit.flush().await
    }

    /// Revokes and ends all workers, waits until the audit is written, and closes the grant store and the change journal,
    /// unless the host keeps a handle of its own to the journal. Spawning a worker afterwards fails with
    /// [`SpawnError::Closed`].
    pub async fn shutdown(&self) -> Revoked {
        let all = self.inner.core.revoke_all().await;
        self.inner.core.broker.close_store().await;
        self.inner.journal_lock.lock().take();
        if let Err(error) = self.flush_audit().await {
            tracing::error!(?error, "the last records of the audit are lost");
        }
        all
    }
}
