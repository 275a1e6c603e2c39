//! Wraps a transport with limits on server requests, outgoing messages and logging.
//!
//! rmcp accepts any number of requests, queues responses without a limit, and logs notifications as received. This
//! wrapper detects servers that send requests without reading, and handles their notifications.
#![expect(
    deprecated,
    reason = "MCP deprecates logging, but servers of all versions may send it"
)]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, DiscoverResult, Implementation,
    InitializeResult, JsonRpcMessage, LoggingMessageNotificationParam, NotificationMetaObject,
    RequestId, ServerCapabilities, ServerNotification, ServerRequest, ServerResult,
    SubscriptionFilter, SubscriptionsAcknowledgedNotificationParams, TASKS_EXTENSION_ID,
};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::timeout;

use super::child::LOG_RATE;
use super::classify::truncate;
use super::connection_state::ConnectionState;
use super::discovery::Discovery;
use super::failure::{ServerFailure, is_version_name};
use super::server::Server;
use crate::rate::RateLimiter;

/// The largest number of pending requests of a server. Far fewer are answered concurrently.
const MAX_PENDING: usize = 64;
/// The longest id of a request, in bytes.
const MAX_ID_BYTES: usize = 256;
/// How long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError<E> {
    #[error(transparent)]
    Failed(E),
    #[error("the server did not accept the message within {0:?}")]
    TimedOut(Duration),
    #[error("too many messages are queued for the server")]
    QueueFull,
}

/// The effect of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFailure {
    /// The connection is closed.
    Fatal,
    /// Only this request fails, because each has its own HTTP request.
    PerRequest,
}

/// A transport with limits.
pub(super) struct BoundedTransport<T> {
    inner: T,
    server: Arc<Server>,
    state: Arc<ConnectionState>,
    on_write_failure: WriteFailure,
    log_limiter: RateLimiter,
    handshake: HandshakeState,
    discovery: Discovery,
    next_id: i64,
}

/// The progress of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeState {
    Pending,
    Initialized,
    Discovered,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(
        inner: T,
        server: &Arc<Server>,
        state: &Arc<ConnectionState>,
        on_write_failure: WriteFailure,
    ) -> Self {
        Self {
            inner,
            server: Arc::clone(server),
            state: Arc::clone(state),
            on_write_failure,
            log_limiter: RateLimiter::new(&LOG_RATE),
            handshake: HandshakeState::Pending,
            discovery: Discovery::default(),
            next_id: 0,
        }
    }

    /// Ignores a late response to an earlier request, if there is one.
    pub(super) fn ignoring_response_to(mut self, id: Option<RequestId>) -> Self {
        if let Some(id) = id {
            self.discovery = Discovery::Abandoned(id);
        }
        self
    }

    /// Filters and rewrites a message for rmcp; `None` drops it.
    fn filter(
        &mut self,
        message: RxJsonRpcMessage<RoleClient>,
    ) -> Option<RxJsonRpcMessage<RoleClient>> {
        match message {
            JsonRpcMessage::Request(mut request) => {
                let ping = matches!(request.request, ServerRequest::PingRequest(_));
                if self.handshake == HandshakeState::Pending && !ping {
                    return None;
                }
                request.id = self.register_request(request.id)?;
                Some(JsonRpcMessage::Request(request))
            }
            JsonRpcMessage::Notification(notification) => {
                let notification = self.on_notification(notification.notification)?;
                Some(JsonRpcMessage::notification(notification))
            }
            JsonRpcMessage::Response(mut response) => {
                if self.handshake == HandshakeState::Pending {
                    let Some(handshake) = sanitize_handshake(&mut response.result) else {
                        self.state.end(ServerFailure::Protocol);
                        return None;
                    };
                    self.handshake = handshake;
                    // Earlier requests are not answered in every protocol version.
                    self.state.pending_requests.lock().clear();
                }
                Some(JsonRpcMessage::Response(response))
            }
            error @ JsonRpcMessage::Error(_) => Some(error),
        }
    }

    /// Assigns a local id to a request of the server; `None` beyond the limits.
    fn register_request(&mut self, server_id: RequestId) -> Option<RequestId> {
        let too_long = matches!(&server_id, RequestId::String(id) if id.len() > MAX_ID_BYTES);
        let mut pending = self.state.pending_requests.lock();
        if too_long || pending.len() >= MAX_PENDING {
            self.state.end(ServerFailure::TooManyRequests);
            return None;
        }
        self.next_id += 1;
        let local_id = RequestId::Number(self.next_id);
        pending.insert(local_id.clone(), server_id);
        Some(local_id)
    }

    /// Handles a notification; returns the ones that rmcp needs, without text of the server.
    fn on_notification(&mut self, notification: ServerNotification) -> Option<ServerNotification> {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let token = &progress.params.progress_token;
                if let Some(progress) = self.state.progress.get(token) {
                    progress.step();
                }
                None
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.server.changed.notify_one();
                None
            }
            ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_) => {
                self.server.catalog_changed.notify_one();
                None
            }
            ServerNotification::LoggingMessageNotification(message) => {
                self.log_message(&message.params);
                None
            }
            ServerNotification::CancelledNotification(cancelled) => {
                let id = self.on_cancelled(cancelled.params.request_id?)?;
                let params = CancelledNotificationParam::new(Some(id), None);
                Some(CancelledNotification::new(params).into())
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(mut acknowledged) => {
                let mut filter = SubscriptionFilter::new();
                let accepted = &acknowledged.params.notifications;
                filter.tools_list_changed = accepted.tools_list_changed;
                filter.resources_list_changed = accepted.resources_list_changed;
                filter.prompts_list_changed = accepted.prompts_list_changed;
                acknowledged.params = SubscriptionsAcknowledgedNotificationParams::new(filter);
                let server_id = acknowledged.extensions.get::<NotificationMetaObject>();
                let id = own_id(server_id?.subscription_id()?)?;
                let mut meta = NotificationMetaObject::default();
                meta.set_subscription_id(id);
                acknowledged.extensions.insert(meta);
                Some(acknowledged.into())
            }
            _ => None,
        }
    }

    fn log_message(&mut self, message: &LoggingMessageNotificationParam) {
        if self.log_limiter.take().is_ok() {
            let text = truncate(&message.data.to_string(), 1024);
            let (server, level) = (&self.server.spec.name, &message.level);
            tracing::debug!(%server, ?level, text = %bailiwick::text::escape(&text), "a server said");
        }
    }

    /// The local id of a cancelled request, or the id of a subscription without a handshake.
    fn on_cancelled(&self, id: RequestId) -> Option<RequestId> {
        if self.handshake == HandshakeState::Discovered {
            return own_id(id);
        }
        let mut pending = self.state.pending_requests.lock();
        let found = pending.iter().find(|(_, server_id)| **server_id == id);
        let found = found.map(|(local_id, _)| local_id.clone())?;
        pending.remove(&found);
        Some(found)
    }

    /// Restores the server's request id in a response.
    fn outgoing(&self, message: TxJsonRpcMessage<RoleClient>) -> TxJsonRpcMessage<RoleClient> {
        let mut message = message;
        let answered = match &mut message {
            JsonRpcMessage::Response(response) => Some(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut(),
            _ => None,
        };
        if let Some(id) = answered
            && let Some(server_id) = self.state.pending_requests.lock().remove(id)
        {
            *id = server_id;
        }
        message
    }
}

/// Returns the id if it can be one of ours.
fn own_id(id: RequestId) -> Option<RequestId> {
    matches!(id, RequestId::Number(_)).then_some(id)
}

/// Removes text of the server from the handshake, because rmcp logs it; `None` if it is invalid.
fn sanitize_handshake(result: &mut ServerResult) -> Option<HandshakeState> {
    let server_info = || Implementation::new("server", "0");
    match result {
        ServerResult::DiscoverResult(found) => {
            let mut versions = std::mem::take(&mut found.supported_versions);
            versions.retain(is_version_name);
            let plain = DiscoverResult::new(versions, used_capabilities(&found.capabilities));
            *found = plain.with_server_info(server_info());
            Some(HandshakeState::Discovered)
        }
        ServerResult::InitializeResult(found) => {
            let version = Some(found.protocol_version.clone()).filter(is_version_name)?;
            *found = InitializeResult::new(used_capabilities(&found.capabilities))
                .with_server_info(server_info())
                .with_protocol_version(version);
            Some(HandshakeState::Initialized)
        }
        _ => Some(HandshakeState::Initialized),
    }
}

/// The capabilities that this host uses.
fn used_capabilities(server: &ServerCapabilities) -> ServerCapabilities {
    let mut used = ServerCapabilities::default();
    used.tools = server.tools.clone();
    used.resources = server.resources.clone();
    used.prompts = server.prompts.clone();
    used.completions = server.completions.as_ref().map(|_| Default::default());
    used.logging = server.logging.as_ref().map(|_| Default::default());
    if server.supports_tasks() {
        let tasks = (TASKS_EXTENSION_ID.to_owned(), Default::default());
        used.extensions = Some([tasks].into());
    }
    used
}

impl<T> Drop for BoundedTransport<T> {
    fn drop(&mut self) {
        self.state.end(ServerFailure::Closed);
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = SendError<T::Error>;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let message = self.outgoing(message);
        // An HTTP request completes with its response, and its caller has its own timeout.
        let waits_for_response = self.on_write_failure == WriteFailure::PerRequest
            && matches!(message, JsonRpcMessage::Request(_));
        let write_limit = (!waits_for_response).then_some(WRITE_TIMEOUT);
        let discovery_limit = self.discovery.on_send(&message, self.server.bounds.connect);
        let limit = write_limit.into_iter().chain(discovery_limit).min();
        let slot = Arc::clone(&self.state.write_slots).try_acquire_owned();
        if slot.is_err() {
            self.state.end(ServerFailure::NotReading);
        }
        let sending = slot.map(|slot| (slot, self.inner.send(message)));
        let (state, on_write_failure) = (Arc::clone(&self.state), self.on_write_failure);
        async move {
            // If the queue is full, the connection was ended above.
            let (_slot, sending) = sending.map_err(|_| SendError::QueueFull)?;
            let sent = match limit {
                None => Ok(sending.await),
                Some(limit) => timeout(limit, sending).await.map_err(|_| limit),
            };
            let is_fatal = on_write_failure == WriteFailure::Fatal;
            match sent {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    if is_fatal {
                        state.end(ServerFailure::Closed);
                    }
                    Err(SendError::Failed(error))
                }
                Err(limit) => {
                    if is_fatal {
                        state.end(ServerFailure::NotReading);
                    } else {
                        state.set_request_failure(Some(ServerFailure::Timeout(limit)));
                    }
                    Err(SendError::TimedOut(limit))
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = tokio::select! {
                biased;
                _ = self.state.ended() => return None,
                message = self.inner.receive() => message,
                () = self.discovery.expired() => return self.discovery.give_up(),
            };
            let Some(message) = message else {
                self.state.end(ServerFailure::Closed);
                return None;
            };
            if !self.discovery.is_abandoned(&message)
                && let Some(message) = self.filter(message)
            {
                return Some(message);
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        let closed = timeout(WRITE_TIMEOUT, self.inner.close()).await;
        closed.map_or(Err(SendError::TimedOut(WRITE_TIMEOUT)), |closed| {
            closed.map_err(SendError::Failed)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rmcp::model::{
        ClientRequest, ClientResult, DiscoverRequest, DiscoverRequestParams, ErrorData,
        JsonRpcRequest, JsonRpcVersion2_0, ListToolsRequest, NumberOrString, ProgressToken,
    };
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::super::Bounds;
    use super::super::requests::ServerRequestHandler;
    use super::super::spec::ServerSpec;
    use super::*;
    use bailiwick::call::Progress;
    use bailiwick::requests::DenyRequests;

    /// A scripted server, which reads messages or not.
    struct ScriptedServer {
        sends: mpsc::UnboundedReceiver<Value>,
        reads: Reads,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Reads {
        All,
        Nothing,
        NotAtAll,
    }

    impl Transport<RoleClient> for ScriptedServer {
        type Error = io::Error;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = io::Result<()>> + Send + 'static {
            let reads = self.reads;
            async move {
                match reads {
                    Reads::All => Ok(()),
                    Reads::Nothing => std::future::pending().await,
                    Reads::NotAtAll => Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            Some(serde_json::from_value(self.sends.recv().await?).unwrap())
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Fixture {
        bounded: BoundedTransport<ScriptedServer>,
        state: Arc<ConnectionState>,
        server: Arc<Server>,
        sends: mpsc::UnboundedSender<Value>,
    }

    fn fixture(reads: Reads, on_write_failure: WriteFailure) -> Fixture {
        let handler = ServerRequestHandler::new("s", Arc::new(DenyRequests), false);
        let server = Server::new(
            ServerSpec::stdio("s", "x"),
            Bounds::default(),
            handler,
            None,
        );
        connected(&Arc::new(server), reads, on_write_failure)
    }

    fn connected(server: &Arc<Server>, reads: Reads, on_write_failure: WriteFailure) -> Fixture {
        let (server, state) = (Arc::clone(server), Arc::new(ConnectionState::default()));
        let (sends, scripted) = mpsc::unbounded_channel();
        let script = ScriptedServer {
            sends: scripted,
            reads,
        };
        Fixture {
            bounded: BoundedTransport::new(script, &server, &state, on_write_failure),
            state,
            server,
            sends,
        }
    }

    impl Fixture {
        /// What rmcp receives for a message of the server; `None` if the connection ended.
        async fn receives(&mut self, message: Value) -> Option<Value> {
            self.sends.send(message).unwrap();
            let received = self.bounded.receive().await?;
            Some(serde_json::to_value(received).unwrap())
        }

        async fn after_handshake(mut self, modern: bool) -> Self {
            let result = if modern {
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                       "instructions": "obey", "capabilities": {"tools": {}, "extensions": {"obey": {}}},
                       "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "obey", "version": "obey"}}})
            } else {
                json!({"protocolVersion": "2025-11-25", "instructions": "obey", "serverInfo": {"name": "obey", "version": "obey"},
                       "capabilities": {"tools": {"listChanged": true}, "experimental": {"obey": {}}, "logging": {"obey": 1}}})
            };
            let received = self
                .receives(json!({"jsonrpc": "2.0", "id": 0, "result": result}))
                .await;
            let received = received.unwrap();
            assert!(!received.to_string().contains("obey"), "{received}");
            assert!(received["result"]["capabilities"]["tools"].is_object());
            self
        }
    }

    fn ping(id: impl Into<Value>) -> Value {
        json!({"jsonrpc": "2.0", "id": id.into(), "method": "ping"})
    }

    fn answer(received: &Value) -> TxJsonRpcMessage<RoleClient> {
        let id = serde_json::from_value(received["id"].clone()).unwrap();
        JsonRpcMessage::response(ClientResult::empty(()), id)
    }

    fn request() -> TxJsonRpcMessage<RoleClient> {
        JsonRpcMessage::Request(JsonRpcRequest {
            jsonrpc: JsonRpcVersion2_0,
            id: RequestId::Number(7),
            request: ClientRequest::ListToolsRequest(ListToolsRequest::default()),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_does_not_read_is_disconnected() {
        for (answered, why) in [
            (false, ServerFailure::TooManyRequests),
            (true, ServerFailure::NotReading),
        ] {
            let mut peer = fixture(Reads::Nothing, WriteFailure::PerRequest)
                .after_handshake(false)
                .await;
            let mut writes = tokio::task::JoinSet::new();
            let mut sent = 0;
            while let Some(received) = peer.receives(ping(sent)).await {
                if answered {
                    let sending = peer.bounded.send(answer(&received));
                    writes.spawn(async move { sending.await.is_ok() });
                }
                sent += 1;
                assert!(sent <= 300, "{sent}");
            }
            assert_eq!(peer.state.ended().await, why);
        }
    }

    #[tokio::test]
    async fn server_that_reads_responses_may_send_any_number_of_requests() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal)
            .after_handshake(false)
            .await;
        for id in 0..10_000 {
            let received = peer.receives(ping(format!("q{}", id % 3))).await.unwrap();
            peer.bounded.send(answer(&received)).await.unwrap();
        }
        assert!(peer.state.pending_requests.lock().is_empty());
        let too_long = peer.receives(ping("x".repeat(MAX_ID_BYTES + 1))).await;
        assert_eq!(too_long, None);
    }

    #[tokio::test(start_paused = true)]
    async fn write_timeout_closes_a_pipe_and_fails_one_http_request() {
        let mut pipe = fixture(Reads::Nothing, WriteFailure::Fatal);
        assert!(matches!(
            pipe.bounded.send(request()).await,
            Err(SendError::TimedOut(_))
        ));
        assert_eq!(pipe.state.ended().await, ServerFailure::NotReading);
        let mut broken = fixture(Reads::NotAtAll, WriteFailure::Fatal);
        assert!(matches!(
            broken.bounded.send(request()).await,
            Err(SendError::Failed(_))
        ));
        assert_eq!(broken.state.ended().await, ServerFailure::Closed);

        let mut http = fixture(Reads::Nothing, WriteFailure::PerRequest)
            .after_handshake(false)
            .await;
        let received = http.receives(ping(1)).await.unwrap();
        assert!(matches!(
            http.bounded.send(answer(&received)).await,
            Err(SendError::TimedOut(_))
        ));
        // An HTTP request completes with its response, without a write timeout.
        let sending = http.bounded.send(request());
        assert!(timeout(WRITE_TIMEOUT * 10, sending).await.is_err());
        assert!(http.receives(ping(2)).await.is_some());
    }

    #[tokio::test]
    async fn notifications_are_not_forwarded_and_cancellation_reasons_are_dropped() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal)
            .after_handshake(false)
            .await;
        for method in [
            "notifications/message",
            "notifications/tools/list_changed",
            "ui/obey",
            "notifications/obey",
        ] {
            let params = json!({"level": "info", "data": "obey"});
            peer.sends
                .send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
                .unwrap();
        }
        let first = peer.receives(ping("theirs")).await.unwrap();
        assert_eq!(first["method"], "ping");
        peer.server.changed.notified().await;
        let params = json!({"requestId": "theirs", "reason": "obey"});
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let received = peer.receives(cancelled.clone()).await.unwrap();
        assert_eq!(received["params"], json!({"requestId": first["id"]}));
        assert!(peer.state.pending_requests.lock().is_empty());
        // The request is no longer pending, so this is ignored.
        peer.sends.send(cancelled).unwrap();
        assert_eq!(peer.receives(ping(2)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn progress_of_an_old_connection_does_not_reach_new_calls() {
        let mut first = fixture(Reads::All, WriteFailure::Fatal)
            .after_handshake(false)
            .await;
        let next = connected(&first.server, Reads::All, WriteFailure::Fatal);
        let mut next = next.after_handshake(false).await;
        let (old, new) = (Progress::default(), Progress::default());
        let token = || ProgressToken(NumberOrString::Number(1));
        first.state.progress.insert(token(), old.clone());
        next.state.progress.insert(token(), new.clone());
        let params = json!({"progressToken": 1, "progress": 1});
        let notification =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        for (peer, expected) in [(&mut first, (1, 0)), (&mut next, (1, 1))] {
            peer.sends.send(notification.clone()).unwrap();
            peer.receives(ping(1)).await.unwrap();
            assert_eq!((old.done(), new.done()), expected);
        }
        first.state.progress.remove(&token());
        next.sends.send(notification).unwrap();
        next.receives(ping(2)).await.unwrap();
        assert_eq!((old.done(), new.done()), (1, 2));
    }

    #[tokio::test]
    async fn only_subscriptions_are_cancelled_and_acknowledged_without_a_handshake() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal)
            .after_handshake(true)
            .await;
        let notification = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        peer.sends
            .send(notification(
                "notifications/cancelled",
                json!({"requestId": "obey"}),
            ))
            .unwrap();
        let cancelled = notification(
            "notifications/cancelled",
            json!({"requestId": 3, "reason": "obey"}),
        );
        let received = peer.receives(cancelled).await.unwrap();
        assert_eq!(received["params"], json!({"requestId": 3}));
        let meta = json!({"io.modelcontextprotocol/subscriptionId": 3, "obey": 1});
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["obey"]});
        let params = json!({"_meta": meta, "notifications": filter});
        let received = peer
            .receives(notification(
                "notifications/subscriptions/acknowledged",
                params,
            ))
            .await;
        let expected = json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": 3}, "notifications": {"toolsListChanged": true},
        });
        assert_eq!(received.unwrap()["params"], expected);
    }

    #[tokio::test]
    async fn responses_use_the_servers_request_id() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal)
            .after_handshake(false)
            .await;
        let received = peer.receives(ping("theirs")).await.unwrap();
        assert_eq!(received["id"], 1);
        let refusal = ErrorData::invalid_request("no", None);
        let refusal = JsonRpcMessage::error(refusal, Some(RequestId::Number(1)));
        let sent = peer.bounded.outgoing(refusal);
        let sent: TxJsonRpcMessage<RoleClient> = sent;
        assert_eq!(serde_json::to_value(sent).unwrap()["id"], "theirs");
    }

    #[tokio::test]
    async fn invalid_protocol_version_closes_the_connection() {
        for (version, fits) in [
            ("2025-11-25", true),
            ("obey\nme", false),
            ("DRAFT-2026-v1", true),
        ] {
            let mut peer = fixture(Reads::All, WriteFailure::Fatal);
            let server = json!({"name": "n", "version": "1"});
            let result =
                json!({"protocolVersion": version, "capabilities": {}, "serverInfo": server});
            let response = json!({"jsonrpc": "2.0", "id": 0, "result": result});
            let received = peer.receives(response).await;
            assert_eq!(received.is_some(), fits, "{version:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_gets_a_handshake_within_the_connect_limit() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(7);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        peer.bounded.send(discover).await.unwrap();
        let began = Instant::now();
        let received = peer.bounded.receive().await.unwrap();
        let received = serde_json::to_value(received).unwrap();
        assert_eq!(
            (&received["id"], &received["error"]["code"]),
            (&7.into(), &(-32601).into())
        );
        assert!(began.elapsed() <= peer.server.bounds.connect / 2);
        // A late response is not mistaken for the response to the next request.
        for late in [
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "late"}}),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        ] {
            peer.sends.send(late).unwrap();
        }
        let peer = peer.after_handshake(false).await;
        assert_eq!(peer.state.end_cause(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_answers_discovery_needs_no_handshake() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(0);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        peer.bounded.send(discover).await.unwrap();
        let mut peer = peer.after_handshake(true).await;
        tokio::time::advance(peer.server.bounds.connect).await;
        assert_eq!(peer.receives(ping(1)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn only_pings_are_answered_before_the_handshake() {
        let mut peer = fixture(Reads::All, WriteFailure::Fatal);
        let roots = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
        peer.sends.send(roots.clone()).unwrap();
        assert_eq!(peer.receives(ping(2)).await.unwrap()["method"], "ping");
        let mut peer = peer.after_handshake(false).await;
        assert_eq!(peer.receives(roots).await.unwrap()["method"], "roots/list");
    }
}
