//! Ends the wait for an answer to `server/discover`, which servers of earlier protocol versions may not answer at all.

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

/// How long a server may take at most; rmcp waits 10 s by itself.
const MAX_WAIT: Duration = Duration::from_secs(9);

/// How often a program that is starting is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The id of the request that waits for the start of a program. Ids of rmcp are numbers.
const START_ID: &str = "start";

/// Waits until a program that was started answers `server/discover`. Until it reads its input, it may take as long as its caller
/// waits; from then on, `silence`. Returns the id of the request if the program did not answer it.
pub(super) async fn wait_for_start<T: Transport<RoleClient>>(
    transport: &mut T,
    input: OwnedFd,
    client: ClientConfig,
    silence: Duration,
) -> Option<RequestId> {
    let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
    let version = ProtocolVersion::V_2026_07_28;
    let meta =
        RequestMetaObject::with_client_context(version, client.client_info, client.capabilities);
    discover.extensions.insert(meta);
    let id = RequestId::String(START_ID.into());
    let request = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id.clone());
    // How the connection ended is told to whoever uses it next.
    transport.send(request).await.ok()?;
    let answered = async {
        while let Some(message) = transport.receive().await {
            if answered_id(&message) == Some(&id) {
                break;
            }
            tokio::task::consume_budget().await;
        }
    };
    tokio::pin!(answered);
    tokio::select! {
        biased;
        () = &mut answered => return None,
        () = wait_until_read(&input) => {}
    }
    let timed_out = timeout(silence, answered).await.is_err();
    timed_out.then(|| id.clone())
}

/// Returns once all that was written to a pipe is read.
async fn wait_until_read(pipe: &OwnedFd) {
    let mut polls = interval(POLL_INTERVAL);
    // What cannot be asked counts as read.
    while ioctl_fionread(pipe).is_ok_and(|unread| unread > 0) {
        polls.tick().await;
    }
}

/// The id of the request that a message of the server answers.
fn answered_id(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// What became of the request.
#[derive(Debug, Default)]
pub(super) enum Discovery {
    #[default]
    NotSent,
    Sent {
        id: RequestId,
        deadline: Instant,
    },
    /// Nobody waits for its answer any more.
    Abandoned(RequestId),
}

impl Discovery {
    /// Takes up a message that is sent. Returns how long the server may take to answer it, if it is the request: so that
    /// there is time for a handshake within `connect`.
    pub(super) fn on_send(
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
        let limit = MAX_WAIT.min(connect / 3);
        *self = Self::Sent {
            id: request.id.clone(),
            deadline: Instant::now() + limit,
        };
        Some(limit)
    }

    /// Returns once the server took too long.
    pub(super) async fn expired(&self) {
        match self {
            Self::Sent { deadline, .. } => sleep_until(*deadline).await,
            Self::NotSent | Self::Abandoned(_) => std::future::pending().await,
        }
    }

    /// The answer in place of the server's: that it knows no such method.
    pub(super) fn give_up(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Self::Sent { id, .. } = std::mem::take(self) else {
            return None;
        };
        *self = Self::Abandoned(id.clone());
        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        Some(JsonRpcMessage::error(error, Some(id)))
    }

    /// Takes up a message of the server. Returns whether it is an answer that nobody waits for any more.
    pub(super) fn is_abandoned(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        match (&self, answered_id(message)) {
            (Self::Abandoned(abandoned), Some(id)) => abandoned == id,
            (Self::Sent { id: sent, .. }, Some(id)) if sent == id => {
                *self = Self::NotSent;
                false
            }
            _ => false,
        }
    }
}
