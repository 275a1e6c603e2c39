//! Sizes of the thread pools and the number of supervisors.

use std::os::fd::AsFd as _;
use std::sync::{Arc, LazyLock};

use ractor::Actor;

use super::BuildFault;
use crate::config::Config;
use crate::path::VirtualPath;
use crate::policy::Access;
use crate::root::RootTable;
use crate::supervisor::{Core, Supervisor};
use crate::worker::{ConfineFiles, Confinement, PoolSize};

/// Number of processors, which takes several system calls to find out.
static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// A pool whose threads run up to `jobs` jobs of one worker.
pub(super) fn io(threads: usize, jobs: u32) -> PoolSize {
    PoolSize {
        threads,
        hard_cap: threads * 2,
        queue: 4096,
        per_root: (threads * 3 / 4).max(1),
        // With 0, the lookups that a new worker waits for would never run.
        per_worker: usize::try_from(jobs).unwrap_or(usize::MAX).max(1),
    }
}

pub(super) fn cpu() -> PoolSize {
    PoolSize {
        threads: *CORES,
        hard_cap: *CORES,
        queue: 4096,
        per_root: *CORES,
        per_worker: *CORES,
    }
}

/// The rules that confine the I/O threads to the roots. They can open nothing else, also not for the runtime itself.
pub(super) fn confinement(
    mode: ConfineFiles,
    config: &Config,
    roots: &RootTable,
) -> Result<Arc<Confinement>, BuildFault> {
    let is_read_only = |mount: &VirtualPath| {
        let mut configured = config.roots.iter();
        configured.any(|root| root.mount == *mount && root.access == Access::Read)
    };
    let open: Vec<_> = roots
        .iter()
        .map(|root| (root.dir().as_fd(), !is_read_only(root.mount())))
        .collect();
    let confinement = Confinement::new(mode, &open).map_err(BuildFault::Confinement)?;
    Ok(Arc::new(confinement))
}

/// Actors cannot be started outside a tokio runtime.
pub(super) fn in_tokio() -> Result<(), BuildFault> {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.map(drop).map_err(|_| BuildFault::NoTokio)
}

/// Starts one supervisor per CPU core.
pub(super) async fn supervise(core: &Arc<Core>) -> Result<(), BuildFault> {
    let mut supervisors = Vec::new();
    for _ in 0..*CORES {
        let started = Actor::spawn(None, Supervisor, Arc::downgrade(core)).await;
        let (supervisor, _) = started.map_err(|error| BuildFault::Start(error.into()))?;
        supervisors.push(supervisor);
    }
    // The core is not shared yet, so this sets the supervisors for the first time.
    let _ = core.supervisors.set(supervisors);
    Ok(())
}
