//! Spawns workers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Core;
use crate::audit::{AuditEvent, Step as AuditStep};
use crate::budget::Budget;
use crate::call::Origin;
use crate::capability::{BudgetExceeded, Charge, CloseReason, Gate, Meter};
use crate::config::Namespace;
use crate::error::{CallError, Code};
use crate::id::{WorkerId, is_agent_name};
use crate::journal::JournalView;
use crate::path::VirtualPath;
use crate::permission::DecidedBy;
use crate::pipeline::WorkerHandles;
use crate::policy::{Authority, Policy, PolicyError, Verdict};
use crate::root::CachedKind;
use crate::scope::{Scope, Verb};
use crate::worker::{OF_CLIENTS, Shared, WorkerSpec};

/// Why a worker was not started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The policy requests more than the parent has, or is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The parent was revoked or stopped.
    #[error("the parent worker has ended")]
    Orphan,
    /// The runtime is shut down.
    #[error("the runtime is shut down")]
    Closed,
    /// The budget of children is exceeded.
    #[error(transparent)]
    Budget(#[from] BudgetExceeded),
    /// The delegation depth limit is exceeded.
    #[error("delegation depth limit ({0}) exceeded")]
    TooDeep(usize),
    /// The working directory is not a path, or is not open to the worker.
    #[error(
        "the working directory `{0}` is not open to the worker: choose a folder that its policy allows"
    )]
    Cwd(String),
    /// The name has control characters, `/`, or no characters at all, or begins with `~`.
    #[error(
        "invalid worker name: expected 1 to 64 visible characters without `/`, the first not `~`"
    )]
    Name,
    /// Too many policies wait to be compiled; try again later.
    #[error("too many policies wait to be compiled; try again later")]
    Busy,
    /// The audit cannot take the event.
    #[error(transparent)]
    Audit(#[from] crate::audit::AuditError),
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

impl SpawnError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Policy(error) => error.code(),
            Self::Orphan | Self::Closed => Code::Cancelled,
            Self::Audit(error) => error.code(),
            Self::Budget(_) | Self::TooDeep(_) => Code::Budget,
            Self::Name | Self::Cwd(_) => Code::InvalidArguments,
            Self::Busy => Code::Busy,
        }
    }
}

impl From<SpawnError> for CallError {
    fn from(error: SpawnError) -> Self {
        match error {
            SpawnError::Policy(error) => error.into(),
            SpawnError::Audit(error) => error.into(),
            SpawnError::Budget(error) => error.into(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

/// How long a working directory is assumed to still be a directory.
pub(super) const DIRECTORY_TTL: Duration = Duration::from_secs(1);

/// The last working directory that was seen to be a directory, since many workers often start in the same one.
///
/// If a file replaces it meanwhile, a worker that may use only that file has the path of the file as its working directory instead
/// of the folder that contains it, and its children inherit that. Only relative paths are affected; no authority depends on it.
#[derive(Debug, Default)]
pub(crate) struct LastDirectory(Mutex<Option<(VirtualPath, Instant)>>);

impl LastDirectory {
    fn is(&self, path: &VirtualPath) -> bool {
        let last = self.0.lock();
        let last = last.as_ref().filter(|(last, _)| last == path);
        last.is_some_and(|(_, seen)| seen.elapsed() < DIRECTORY_TTL)
    }

    fn set(&self, path: VirtualPath) {
        let replaced = self.0.lock().replace((path, Instant::now()));
        // Freed after the lock is released.
        drop(replaced);
    }
}

/// A worker that is being started. Dropping it undoes what was done so far, since the start failed and nobody has a handle
/// of the worker.
struct Starting<'c> {
    core: &'c Arc<Core>,
    parent: Option<&'c Arc<Shared>>,
    /// The charge to its parent.
    charge: Option<Charge<'c>>,
    registered: Option<Arc<Shared>>,
}

impl Starting<'_> {
    /// Registers the worker and adds it to the tree.
    fn register(&mut self, shared: &Arc<Shared>) -> Result<(), SpawnError> {
        let (id, parent) = (shared.id, self.parent.map(|parent| parent.id));
        // Register the worker before it is in the tree, so that a revocation finds it.
        self.core.registry.insert(id, Arc::clone(shared));
        let gate = Arc::clone(&shared.handles.gate);
        let registered = self.core.tree.lock().insert(id, parent, gate);
        match registered {
            Ok(()) => self.registered = Some(Arc::clone(shared)),
            Err(_) => drop(self.core.registry.remove(&id)),
        }
        registered
    }

    fn done(mut self) {
        self.registered = None;
        if let Some(charge) = &mut self.charge {
            charge.keep_all();
        }
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.registered.take() {
            if shared.gate().close(CloseReason::WorkerRevoked) {
                shared.audit_best_effort(AuditStep::Revoked);
            }
            shared.close();
            self.core.registry.remove(&shared.id);
            self.core.tree.lock().ended(shared.id);
        }
    }
}

impl Core {
    /// Starts a child of `parent`, or a top-level worker. A rejected start is audited, too.
    pub(crate) async fn spawn(
        self: &Arc<Self>,
        parent: Option<&Arc<Shared>>,
        spec: WorkerSpec,
    ) -> Result<Arc<Shared>, SpawnError> {
        let origin = spec.origin;
        let spawned = self.admitted(parent, spec).await;
        if let Err(error) = &spawned {
            let event = AuditEvent {
                worker: parent.map(|parent| parent.id),
                agent: parent.map_or_else(|| Arc::from(""), |parent| Arc::clone(&parent.agent)),
                call: None,
                tool: None,
                origin,
                step: AuditStep::without_result(
                    &CallError::new(error.code(), error.to_string()),
                    false,
                ),
            };
            // The rejection is valid even if the audit is full; the audit counts missing records.
            let _ = self.audit.record(event);
        }
        spawned
    }

    /// Resolves links among the subtrees that a policy names, on a pool thread.
    async fn through_links(
        &self,
        policy: Arc<Policy>,
        issuer: &Authority,
    ) -> Result<Arc<Policy>, SpawnError> {
        if !policy.names_subtrees() {
            return Ok(policy);
        }
        let (roots, issuer) = (Arc::clone(&self.roots), issuer.clone());
        let look = move || {
            let policy = Arc::unwrap_or_clone(policy);
            policy.through_links(&issuer, |path| roots.real(path))
        };
        let looked = self.io.run(&Arc::default(), look).await;
        looked.map(Arc::new).ok_or(SpawnError::Busy)
    }

    async fn admitted(
        self: &Arc<Self>,
        parent: Option<&Arc<Shared>>,
        spec: WorkerSpec,
    ) -> Result<Arc<Shared>, SpawnError> {
        let WorkerSpec {
            name,
            session,
            cwd,
            policy,
            budget,
            origin,
            of_client,
            for_people,
        } = spec;
        if !is_agent_name(&name) || name.starts_with(OF_CLIENTS) != of_client {
            return Err(SpawnError::Name);
        }
        let issuer = parent.map_or(&self.authority, |parent| &parent.authority);
        let policy = policy.unwrap_or_else(|| Arc::new(Policy::ask_for_everything()));
        let policy = self.through_links(policy, issuer).await?;
        self.tools.check_names(policy.named_tools())?;
        let (authority, names) = self.narrowed(parent, &policy, origin, cwd).await?;
        let depth = parent.map_or(0, |parent| parent.lineage.len() + 1);
        if depth > self.max_depth {
            return Err(SpawnError::TooDeep(self.max_depth));
        }
        let charge = parent.map(|parent| parent.meter.charge_child());
        let mut starting = Starting {
            core: self,
            parent,
            charge: charge.transpose()?,
            registered: None,
        };
        let limits = authority.limits();
        let budget = budget.tighter(limits.budget).tighter(Budget {
            calls: Some(limits.max_calls),
            ..Budget::default()
        });
        let id = WorkerId(self.workers.fetch_add(1, Ordering::Relaxed));
        let meter = Meter::new(budget, parent.map(|parent| Arc::clone(&parent.meter)));
        let names = names.of_worker(id);
        let lineage = |parent: &Arc<Shared>| {
            let above = parent.lineage.iter().copied();
            std::iter::once(parent.id).chain(above).collect()
        };
        let handles = WorkerHandles {
            roots: self.roots.reached_by(&authority),
            gate: Arc::new(Gate::default()),
            lineage: parent.map(lineage).unwrap_or_default(),
            journal: self.journal.clone().map(|journal| {
                let worker = (!for_people).then_some(id);
                JournalView::new(journal, worker)
            }),
        };
        let shared = Arc::new(Shared::new(
            id, &name, session, parent, authority, names, handles, meter, self,
        ));
        starting.register(&shared)?;
        let spawned = AuditStep::Spawned {
            parent: parent.map(|parent| parent.id),
            session: Arc::clone(&shared.session),
            policy,
        };
        shared.record_by(origin, spawned)?;
        if shared.gate().is_closed() {
            // It was revoked together with its parent.
            return Err(SpawnError::Orphan);
        }
        self.limit_life(&shared);
        starting.done();
        Ok(shared)
    }

    /// The authority of a child of `parent` under `policy`, and its namespace.
    async fn narrowed(
        &self,
        parent: Option<&Arc<Shared>>,
        policy: &Arc<Policy>,
        origin: Origin,
        cwd: Option<String>,
    ) -> Result<(Authority, Namespace), SpawnError> {
        let issuer = parent.map_or(&self.authority, |parent| &parent.authority);
        let above = parent.map_or(&self.names, |parent| &parent.names);
        let closed = |text: &str| SpawnError::Cwd(crate::text::escape(text).into());
        // A relative path is relative to the working directory of the parent.
        let parsed = |text: String| above.path(&text).map_err(|_| closed(&text));
        let cwd = cwd.map(parsed).transpose()?;
        let (issuer, policy, names) = (issuer.clone(), Arc::clone(policy), above.clone());
        let narrow = move || {
            let authority = issuer.child(&policy, origin)?;
            if let Some(cwd) = &cwd {
                let need = Scope::file(Verb::Read, cwd.clone());
                if authority.judge(&need, &[]) == Verdict::Deny {
                    return Err(closed(cwd.as_str()));
                }
            }
            let names = names.narrowed(cwd, &authority);
            Ok((authority, names))
        };
        let (authority, names) = match origin {
            Origin::Human | Origin::Host => narrow()?,
            // An untrusted policy is compiled on the CPU pool, not on the host's own threads. The open folders are found there as
            // well, since that takes longer the more paths the policy names.
            Origin::Model | Origin::View => {
                let narrow = move || {
                    let narrowed = narrow()?;
                    let _ = narrowed.0.open_folders();
                    Ok::<_, SpawnError>(narrowed)
                };
                let narrowed = self.cpu.run(&Arc::default(), narrow).await;
                narrowed.ok_or(SpawnError::Busy)??
            }
        };
        Ok((authority, self.above_file(above, names).await))
    }

    /// If only a single file is open to a worker, the folder that contains the file becomes the working directory.
    async fn above_file(&self, parent: &Namespace, names: Namespace) -> Namespace {
        let cwd = names.moved_from(parent);
        let Some(cwd) = cwd.filter(|cwd| !self.last_directory.is(cwd)).cloned() else {
            return names;
        };
        match self.roots.cached_kind(&cwd) {
            CachedKind::Directory => self.last_directory.set(cwd),
            CachedKind::Root | CachedKind::Missing => {}
            CachedKind::Unknown => {
                let (roots, path) = (Arc::clone(&self.roots), cwd.clone());
                let look = move || roots.file_type(&path);
                match self.io.run(&Arc::default(), look).await.flatten() {
                    Some(found) if found.is_file() => return names.above(),
                    Some(found) if found.is_dir() => self.last_directory.set(cwd),
                    Some(_) | None => {}
                }
            }
        }
        names
    }

    /// Revokes a worker when the lifetime in its policy has passed.
    fn limit_life(self: &Arc<Self>, shared: &Shared) {
        let ttl_ms = shared.authority.limits().ttl_ms;
        if ttl_ms == u64::MAX {
            return;
        }
        let (core, id, executor) = (
            Arc::downgrade(self),
            shared.id,
            self.actors.executor.clone(),
        );
        let end = move || {
            if let Some(core) = core.upgrade() {
                let why = CloseReason::WorkerExpired;
                executor.spawn(async move { core.revoke(id, why, DecidedBy::Host).await });
            }
        };
        shared.end_with(self.deadlines.arm(Duration::from_millis(ttl_ms), end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn last_directory_is_kept_for_a_second() {
        let [a, b] = ["/a", "/b"].map(|path| VirtualPath::parse(path, None).unwrap());
        let last = LastDirectory::default();
        assert!(!last.is(&a));
        last.set(a.clone());
        assert!(last.is(&a) && !last.is(&b));
        tokio::time::advance(DIRECTORY_TTL - Duration::from_millis(1)).await;
        assert!(last.is(&a));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!last.is(&a));
        last.set(a.clone());
        last.set(b.clone());
        assert!(last.is(&b) && !last.is(&a));
    }
}
