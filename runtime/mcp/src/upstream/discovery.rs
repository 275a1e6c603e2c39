//! Ends the wait for a response to `server/discover`, which servers of earlier protocol versions may never answer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rmcp::model::{
    ClientConfig, ClientRequest, DiscoverRequest, DiscoverRequestParams, ErrorCode, ErrorData,
    JsonRpcMessage, ProtocolVersion, RequestId, RequestMetaObject,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::io::ioctl_fionread;
use tokio::time::{Instant, interval, sleep_until, timeout};

/// The longest wait; rmcp waits 10 s by itself.
const MAX_WAIT: Duration = Duration::from_secs(9);

/// How often the input pipe of a starting program is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The id of the request that waits for the start of a program. rmcp uses numbers.
const START_ID: &str = "start";

/// Waits until a started program answers `server/discover`. The wait is unlimited until the program reads its input,
/// and lasts at most `discover_timeout` from then on. Returns the id of the request if the program did not answer it.
pub(super) async fn wait_for_start<T: Transport<RoleClient>>(
    transport: &mut T,
    input: OwnedFd,
    client: ClientConfig,
    discover_timeout: Duration,
) -> Option<RequestId> {
    let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
    let version = ProtocolVersion::V_2026_07_28;
    let meta =
        RequestMetaObject::with_client_context(version, client.client_info, client.capabilities);
    discover.extensions.insert(meta);
    let id = RequestId::String(START_ID.into());
    let request = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id.clone());
    // The next use of the connection reports its end.
    transport.send(request).await.ok()?;
    let response = async {
        while let Some(message) = transport.receive().await {
            if response_id(&message) == Some(&id) {
                break;
            }
            tokio::task::consume_budget().await;
        }
    };
    tokio::pin!(response);
    tokio::select! {
        biased;
        () = &mut response => return None,
        () = wait_until_read(&input) => {}
    }
    let timed_out = timeout(discover_timeout, response).await.is_err();
    timed_out.then(|| id.clone())
}

/// Returns once the program has read everything in the pipe.
async fn wait_until_read(pipe: &OwnedFd) {
    let mut polls = interval(POLL_INTERVAL);
    // An ioctl error counts as read.
    while ioctl_fionread(pipe).is_ok_and(|unread| unread > 0) {
        polls.tick().await;
    }
}

/// The id that a message of the server responds to.
fn response_id(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// The state of the request.
#[derive(Debug, Default)]
pub(super) enum Discovery {
    #[default]
    NotSent,
    Sent {
        id: RequestId,
        deadline: Instant,
    },
    /// The response is no longer awaited.
    Abandoned(RequestId),
}

impl Discovery {
    /// Registers an outgoing message. If it is the request, returns how long the server may take to answer, which
    /// leaves time for a handshake within `connect`.
    pub(super) fn on_send(
        &mut self,
        message: &TxJsonRpcMessage<RoleClient>,
        connect: Duration,
    ) -> Option<Duration> {
        let JsonRpcMessage::Request(request) = message else {
            return None;
        };
        if !matches!(request.request, ClientRequest::DiscoverRequest(_)) {
            return None;
        }
        let limit = MAX_WAIT.min(connect / 3);
        *self = Self::Sent {
            id: request.id.clone(),
            deadline: Instant::now() + limit,
        };
        Some(limit)
    }

    /// Returns once the deadline has passed.
    pub(super) async fn expired(&self) {
        match self {
            Self::Sent { deadline, .. } => sleep_until(*deadline).await,
            Self::NotSent | Self::Abandoned(_) => std::future::pending().await,
        }
    }

    /// The substitute for the server's response: method not found.
    pub(super) fn give_up(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Self::Sent { id, .. } = std::mem::take(self) else {
            return None;
        };
        *self = Self::Abandoned(id.clone());
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        Some(JsonRpcMessage::error(error, Some(id)))
    }

    /// Registers an incoming message. Returns whether it is a response that is no longer awaited.
    pub(super) fn is_abandoned(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        match (&self, response_id(message)) {
            (Self::Abandoned(abandoned), Some(id)) => abandoned == id,
            (Self::Sent { id: sent, .. }, Some(id)) if sent == id => {
                *self = Self::NotSent;
                false
            }
            _ => false,
        }
    }
}
