//! Ends the wait for an answer to `server/discover`, which servers of earlier protocol versions may not answer at all.

use std::time::Duration;

use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use tokio::time::{Instant, sleep_until};

/// How long a server may take at most; rmcp waits 10 s by itself.
const LATEST: Duration = Duration::from_secs(9);

/// What became of the request.
#[derive(Debug, Default)]
pub(super) enum Discovery {
    #[default]
    Unsent,
    Sent {
        id: RequestId,
        until: Instant,
    },
    /// Nobody waits for its answer any more.
    Late(RequestId),
}

impl Discovery {
    /// Takes up a message that is sent. Returns how long the server may take to answer it, if it is the request: so that
    /// there is time for a handshake within `connect`.
    pub(super) fn sent(
        &mut self,
        message: &TxJsonRpcMessage<RoleClient>,
        connect: Duration,
    ) -> Option<Duration> {
        let JsonRpcMessage::Request(request) = message else {
            return None;
        };
        let ClientRequest::DiscoverRequest(_) = &request.request else {
            return None;
        };
        let limit = LATEST.min(connect / 3);
        *self = Self::Sent {
            id: request.id.clone(),
            until: Instant::now() + limit,
        };
        Some(limit)
    }

    /// Returns once the server took too long.
    pub(super) async fn expired(&self) {
        match self {
            Self::Sent { until, .. } => sleep_until(*until).await,
            Self::Unsent | Self::Late(_) => std::future::pending().await,
        }
    }

    /// The answer in place of the server's: that it knows no such method.
    pub(super) fn give_up(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Self::Sent { id, .. } = std::mem::take(self) else {
            return None;
        };
        *self = Self::Late(id.clone());
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        Some(JsonRpcMessage::error(error, Some(id)))
    }

    /// Takes up a message of the server. Returns whether it is an answer that nobody waits for any more.
    pub(super) fn is_late(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        match (&self, id) {
            (Self::Late(late), Some(id)) => late == id,
            (Self::Sent { id: sent, .. }, Some(id)) if sent == id => {
                *self = Self::Unsent;
                false
            }
            _ => false,
        }
    }
}
