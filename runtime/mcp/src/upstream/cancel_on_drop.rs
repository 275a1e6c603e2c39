//! Guards that cancel requests and tasks at a server when they are dropped.

use rmcp::model::{
    CancelTaskParams, CancelledNotification, CancelledNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::{Peer, RoleClient};

use super::connection_state::ConnectionState;

/// A pending request; it is cancelled if this is dropped before the response.
pub(super) struct CancelRequestOnDrop<'s> {
    pub(super) state: &'s ConnectionState,
    pub(super) peer: &'s Peer<RoleClient>,
    pub(super) token: ProgressToken,
    pub(super) request: Option<RequestId>,
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        self.state.progress.remove(&self.token);
        let Some(id) = self.request.take() else {
            return;
        };
        let params = CancelledNotificationParam::new(Some(id), Some("nobody waits".to_owned()));
        let cancelled = CancelledNotification::new(params);
        let peer = self.peer.clone();
        // Without a runtime, there is no connection either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.send_notification(cancelled.into()).await });
        }
    }
}

/// A pending task; it is cancelled if this is dropped before its end.
pub(super) struct CancelTaskOnDrop<'s> {
    pub(super) peer: &'s Peer<RoleClient>,
    pub(super) task: Option<String>,
}

impl Drop for CancelTaskOnDrop<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let peer = self.peer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { peer.cancel_task(CancelTaskParams::new(task)).await });
        }
    }
}
