//! Starts helpers, and that of the next sandbox ahead.

use std::sync::Arc;

use rustix::process::{Gid, Uid, getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{CapabilitySets, capabilities};
use tokio::sync::Mutex;

use crate::error::ExecError;
use crate::helper::OUTER;
use crate::process::{Helper, Process, launch};

/// Starts helpers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launcher {
    helper: Helper,
    /// A helper of a sandbox with namespaces that waits for its description.
    next: Arc<Mutex<Option<(Credentials, Process)>>>,
}

/// What a process can do, as far as its children inherit that.
#[derive(Debug, PartialEq, Eq)]
struct Credentials {
    users: [Uid; 2],
    groups: [Gid; 2],
    others: Vec<Gid>,
    capabilities: CapabilitySets,
}

impl Credentials {
    fn of_this_thread() -> rustix::io::Result<Self> {
        Ok(Self {
            users: [getuid(), geteuid()],
            groups: [getgid(), getegid()],
            others: getgroups()?,
            capabilities: capabilities(None)?,
        })
    }
}

impl Launcher {
    pub(crate) fn new(helper: Helper) -> Self {
        Self {
            helper,
            next: Arc::default(),
        }
    }

    /// Starts the helper of the next sandbox with namespaces, unless there is one. Needs a tokio runtime. Blocks.
    pub(crate) fn launch_ahead(&self) {
        // A sandbox that is started meanwhile waits for this helper, which takes less time than to start another one.
        let mut next = self.next.blocking_lock();
        // Without it, the next sandbox is started as the first one.
        if next.is_none()
            && let Ok(credentials) = Credentials::of_this_thread()
            && let Ok(process) = launch(&self.helper, OUTER)
        {
            *next = Some((credentials, process));
        }
    }

    /// Starts a helper, or takes the one that was started ahead. Returns when it waits for the description of a sandbox.
    pub(crate) async fn launch(&self, role: &str) -> Result<Process, ExecError> {
        // It may have ended, and this process may have other rights than when it was started.
        if role == OUTER
            && let Some((credentials, process)) = self.take().await
            && Credentials::of_this_thread().is_ok_and(|own| own == credentials)
            && let Ok(mut process) = process.ready(&self.helper).await
            && process.is_running()
        {
            return Ok(process);
        }
        launch(&self.helper, role)?.ready(&self.helper).await
    }

    async fn take(&self) -> Option<(Credentials, Process)> {
        self.next.lock().await.take()
    }
}
