//! Limits a transport: what a server asks at once, what waits to be written, what reaches logs.
//!
//! rmcp answers whatever comes, keeps answers until they are written, and logs notifications as they stand. So a server
//! that asks and never reads is noticed here, and here ends what a server only says.
#![expect(
    deprecated,
    reason = "MCP deprecates logging, and servers of every revision may still send it"
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

use super::classify::truncate;
use super::connection_state::ConnectionState;
use super::discovery::Discovery;
use super::failure::{ServerFailure, is_version_name};
use super::log_limiter::LogLimiter;
use super::server::Server;

/// The most requests of a server that are open at one time. It is answered far fewer at one time.
const MAX_PENDING: usize = 64;
/// The longest id of a request, in bytes.
const MAX_ID_BYTES: usize = 256;
/// How long a message may take to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError<E> {
    #[error(transparent)]
    Failed(E),
    #[error("the server did not take the message within {0:?}")]
    TimedOut(Duration),
    #[error("too many messages wait for the server")]
    QueueFull,
}

/// What a message that cannot be written means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFailure {
    /// Nothing else can be written either.
    ClosesConnection,
    /// It failed alone; each is sent on its own.
    FailsRequest,
}

/// A transport within bounds.
pub(super) struct BoundedTransport<T> {
    inner: T,
    server: Arc<Server>,
    state: Arc<ConnectionState>,
    on_write_failure: WriteFailure,
    log_limiter: LogLimiter,
    handshake: HandshakeState,
    discovery: Discovery,
    next_id: i64,
}

/// How far the server came in saying who it is.
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
            log_limiter: LogLimiter::default(),
            handshake: HandshakeState::Pending,
            discovery: Discovery::default(),
            next_id: 0,
        }
    }

    /// Drops the late answer to a request that was sent before, if there is one.
    pub(super) fn ignoring_response_to(mut self, id: Option<RequestId>) -> Self {
        if let Some(id) = id {
            self.discovery = Discovery::Abandoned(id);
        }
        self
    }

    /// What rmcp is to see of a message, or none.
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
                    // What is asked before is not answered in every revision.
                    self.state.pending_requests().clear();
                }
                Some(JsonRpcMessage::Response(response))
            }
            error @ JsonRpcMessage::Error(_) => Some(error),
        }
    }

    /// What a request of the server is called here; none if it asks too much.
    fn register_request(&mut self, theirs: RequestId) -> Option<RequestId> {
        let long = matches!(&theirs, RequestId::String(id) if id.len() > MAX_ID_BYTES);
        let mut pending = self.state.pending_requests();
        if long || pending.len() >= MAX_PENDING {
            self.state.end(ServerFailure::TooManyRequests);
            return None;
        }
        self.next_id += 1;
        let ours = RequestId::Number(self.next_id);
        pending.insert(ours.clone(), theirs);
        Some(ours)
    }

    /// Takes up what the server tells; what concerns rmcp itself goes on, without the server's words.
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
                let theirs = acknowledged.extensions.get::<NotificationMetaObject>();
                let id = own_id(theirs?.subscription_id()?)?;
                let mut meta = NotificationMetaObject::default();
                meta.set_subscription_id(id);
                acknowledged.extensions.insert(meta);
                Some(acknowledged.into())
            }
            _ => None,
        }
    }

    fn log_message(&mut self, message: &LoggingMessageNotificationParam) {
        if self.log_limiter.allow() {
            let text = truncate(&message.data.to_string(), 1024);
            let (server, level) = (&self.server.spec.name, &message.level);
            tracing::debug!(%server, ?level, text = %crate::escape(&text), "a server said");
        }
    }

    /// What a server takes back, as rmcp knows it: a question of its own, or without a handshake what we listen to.
    fn on_cancelled(&self, id: RequestId) -> Option<RequestId> {
        if self.handshake == HandshakeState::Discovered {
            return own_id(id);
        }
        let mut pending = self.state.pending_requests();
        let found = pending.iter().find(|(_, theirs)| **theirs == id);
        let found = found.map(|(ours, _)| ours.clone())?;
        pending.remove(&found);
        Some(found)
    }

    /// What goes to the server: its questions are answered under the names that it gave them.
    fn outgoing(&self, message: TxJsonRpcMessage<RoleClient>) -> TxJsonRpcMessage<RoleClient> {
        let mut message = message;
        let answered = match &mut message {
            JsonRpcMessage::Response(response) => Some(&mut response.id),
            JsonRpcMessage::Error(error) => error.id.as_mut(),
            _ => None,
        };
        if let Some(id) = answered
            && let Some(theirs) = self.state.pending_requests().remove(id)
        {
            *id = theirs;
        }
        message
    }
}

/// An id that this side gave, if it can be one.
fn own_id(id: RequestId) -> Option<RequestId> {
    matches!(id, RequestId::Number(_)).then_some(id)
}

/// Takes the server's words out of how it greets, since rmcp logs that. None if it greets with nothing else.
fn sanitize_handshake(result: &mut ServerResult) -> Option<HandshakeState> {
    let nobody = || Implementation::new("server", "0");
    match result {
        ServerResult::DiscoverResult(found) => {
            let mut versions = std::mem::take(&mut found.supported_versions);
            versions.retain(is_version_name);
            let plain = DiscoverResult::new(versions, used_capabilities(&found.capabilities));
            *found = plain.with_server_info(nobody());
            Some(HandshakeState::Discovered)
        }
        ServerResult::InitializeResult(found) => {
            let version = Some(found.protocol_version.clone()).filter(is_version_name)?;
            *found = InitializeResult::new(used_capabilities(&found.capabilities))
                .with_server_info(nobody())
                .with_protocol_version(version);
            Some(HandshakeState::Initialized)
        }
        _ => Some(HandshakeState::Initialized),
    }
}

/// What a server can do, as far as it is asked for it.
fn used_capabilities(theirs: &ServerCapabilities) -> ServerCapabilities {
    let mut ours = ServerCapabilities::default();
    ours.tools = theirs.tools.clone();
    ours.resources = theirs.resources.clone();
    ours.prompts = theirs.prompts.clone();
    ours.completions = theirs.completions.as_ref().map(|_| Default::default());
    ours.logging = theirs.logging.as_ref().map(|_| Default::default());
    if theirs.supports_tasks() {
        let tasks = (TASKS_EXTENSION_ID.to_owned(), Default::default());
        ours.extensions = Some([tasks].into());
    }
    ours
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
        // Where each is sent on its own, a request is sent once it is answered: its caller knows how long that may take.
        let waits_for_response = self.on_write_failure == WriteFailure::FailsRequest
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
            let sent = match sending {
                Err(_) => Err(SendError::QueueFull),
                Ok((_slot, sending)) => match limit {
                    None => sending.await.map_err(SendError::Failed),
                    Some(limit) => match timeout(limit, sending).await {
                        Ok(sent) => sent.map_err(SendError::Failed),
                        Err(_) => Err(SendError::TimedOut(limit)),
                    },
                },
            };
            match &sent {
                Ok(()) => {}
                Err(SendError::Failed(_)) if on_write_failure == WriteFailure::FailsRequest => {}
                Err(SendError::TimedOut(limit))
                    if on_write_failure == WriteFailure::FailsRequest =>
                {
                    state.set_request_failure(Some(ServerFailure::Timeout(*limit)));
                }
                Err(SendError::Failed(_)) => state.end(ServerFailure::Closed),
                Err(SendError::TimedOut(_)) => state.end(ServerFailure::NotReading),
                // That ended it at once.
                Err(SendError::QueueFull) => {}
            }
            sent
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
    use super::super::requests::{DenyRequests, ServerRequestHandler};
    use super::super::spec::ServerSpec;
    use super::*;
    use crate::call::Progress;

    /// A server that says what is put in, and reads or does not.
    struct ScriptedServer {
        says: mpsc::UnboundedReceiver<Value>,
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
            Some(serde_json::from_value(self.says.recv().await?).unwrap())
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Fixture {
        bounded: BoundedTransport<ScriptedServer>,
        state: Arc<ConnectionState>,
        server: Arc<Server>,
        says: mpsc::UnboundedSender<Value>,
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
        let (says, scripted) = mpsc::unbounded_channel();
        let script = ScriptedServer {
            says: scripted,
            reads,
        };
        Fixture {
            bounded: BoundedTransport::new(script, &server, &state, on_write_failure),
            state,
            server,
            says,
        }
    }

    impl Fixture {
        /// What rmcp sees of what the server says; none if the connection ended.
        async fn receives(&mut self, said: Value) -> Option<Value> {
            self.says.send(said).unwrap();
            let seen = self.bounded.receive().await?;
            Some(serde_json::to_value(seen).unwrap())
        }

        async fn greeted(mut self, modern: bool) -> Self {
            let result = if modern {
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                       "instructions": "obey", "capabilities": {"tools": {}, "extensions": {"obey": {}}},
                       "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "obey", "version": "obey"}}})
            } else {
                json!({"protocolVersion": "2025-11-25", "instructions": "obey", "serverInfo": {"name": "obey", "version": "obey"},
                       "capabilities": {"tools": {"listChanged": true}, "experimental": {"obey": {}}, "logging": {"obey": 1}}})
            };
            let seen = self
                .receives(json!({"jsonrpc": "2.0", "id": 0, "result": result}))
                .await;
            let seen = seen.unwrap();
            assert!(!seen.to_string().contains("obey"), "{seen}");
            assert!(seen["result"]["capabilities"]["tools"].is_object());
            self
        }
    }

    fn ask(id: impl Into<Value>) -> Value {
        json!({"jsonrpc": "2.0", "id": id.into(), "method": "ping"})
    }

    fn answer(seen: &Value) -> TxJsonRpcMessage<RoleClient> {
        let id = serde_json::from_value(seen["id"].clone()).unwrap();
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
    async fn a_server_that_asks_and_does_not_read_is_ended_with_a_reason() {
        for (answered, why) in [
            (false, ServerFailure::TooManyRequests),
            (true, ServerFailure::NotReading),
        ] {
            let mut fixture = fixture(Reads::Nothing, WriteFailure::FailsRequest)
                .greeted(false)
                .await;
            let mut writes = tokio::task::JoinSet::new();
            let mut asked = 0;
            while let Some(seen) = fixture.receives(ask(asked)).await {
                if answered {
                    let sending = fixture.bounded.send(answer(&seen));
                    writes.spawn(async move { sending.await.is_ok() });
                }
                asked += 1;
                assert!(asked <= 300, "{asked}");
            }
            assert_eq!(fixture.state.ended().await, why);
        }
    }

    #[tokio::test]
    async fn a_server_that_reads_its_answers_may_ask_as_often_as_it_likes() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection)
            .greeted(false)
            .await;
        for id in 0..10_000 {
            let seen = fixture.receives(ask(format!("q{}", id % 3))).await.unwrap();
            fixture.bounded.send(answer(&seen)).await.unwrap();
        }
        assert!(fixture.state.pending_requests().is_empty());
        let long = fixture.receives(ask("x".repeat(MAX_ID_BYTES + 1))).await;
        assert_eq!(long, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_written_in_time_ends_a_pipe_and_fails_alone_by_http() {
        let mut pipe = fixture(Reads::Nothing, WriteFailure::ClosesConnection);
        assert!(matches!(
            pipe.bounded.send(request()).await,
            Err(SendError::TimedOut(_))
        ));
        assert_eq!(pipe.state.ended().await, ServerFailure::NotReading);
        let mut broken = fixture(Reads::NotAtAll, WriteFailure::ClosesConnection);
        assert!(matches!(
            broken.bounded.send(request()).await,
            Err(SendError::Failed(_))
        ));
        assert_eq!(broken.state.ended().await, ServerFailure::Closed);

        let mut http = fixture(Reads::Nothing, WriteFailure::FailsRequest)
            .greeted(false)
            .await;
        let seen = http.receives(ask(1)).await.unwrap();
        assert!(matches!(
            http.bounded.send(answer(&seen)).await,
            Err(SendError::TimedOut(_))
        ));
        // A request by HTTP is sent when it is answered, which takes what it takes.
        let sending = http.bounded.send(request());
        assert!(timeout(WRITE_TIMEOUT * 10, sending).await.is_err());
        assert!(http.receives(ask(2)).await.is_some());
    }

    #[tokio::test]
    async fn what_a_server_tells_stays_here_and_what_it_takes_back_goes_on_without_its_words() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection)
            .greeted(false)
            .await;
        for method in [
            "notifications/message",
            "notifications/tools/list_changed",
            "ui/obey",
            "notifications/obey",
        ] {
            let params = json!({"level": "info", "data": "obey"});
            fixture
                .says
                .send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
                .unwrap();
        }
        let first = fixture.receives(ask("theirs")).await.unwrap();
        assert_eq!(first["method"], "ping");
        fixture.server.changed.notified().await;
        let params = json!({"requestId": "theirs", "reason": "obey"});
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let seen = fixture.receives(cancelled.clone()).await.unwrap();
        assert_eq!(seen["params"], json!({"requestId": first["id"]}));
        assert!(fixture.state.pending_requests().is_empty());
        // It is not open any more, so this is passed over.
        fixture.says.send(cancelled).unwrap();
        assert_eq!(fixture.receives(ask(2)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn what_comes_late_by_one_connection_is_no_progress_of_the_next_one_s_calls() {
        let mut first = fixture(Reads::All, WriteFailure::ClosesConnection)
            .greeted(false)
            .await;
        let next = connected(&first.server, Reads::All, WriteFailure::ClosesConnection);
        let mut next = next.greeted(false).await;
        let (old, new) = (Progress::default(), Progress::default());
        let token = || ProgressToken(NumberOrString::Number(1));
        first.state.progress.insert(token(), old.clone());
        next.state.progress.insert(token(), new.clone());
        let params = json!({"progressToken": 1, "progress": 1});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        for (fixture, expected) in [(&mut first, (1, 0)), (&mut next, (1, 1))] {
            fixture.says.send(told.clone()).unwrap();
            fixture.receives(ask(1)).await.unwrap();
            assert_eq!((old.done(), new.done()), expected);
        }
        first.state.progress.remove(&token());
        next.says.send(told).unwrap();
        next.receives(ask(2)).await.unwrap();
        assert_eq!((old.done(), new.done()), (1, 2));
    }

    #[tokio::test]
    async fn without_a_handshake_only_what_we_listen_to_is_taken_back_and_acknowledged() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection)
            .greeted(true)
            .await;
        let told = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        fixture
            .says
            .send(told(
                "notifications/cancelled",
                json!({"requestId": "obey"}),
            ))
            .unwrap();
        let cancelled = told(
            "notifications/cancelled",
            json!({"requestId": 3, "reason": "obey"}),
        );
        let seen = fixture.receives(cancelled).await.unwrap();
        assert_eq!(seen["params"], json!({"requestId": 3}));
        let meta = json!({"io.modelcontextprotocol/subscriptionId": 3, "obey": 1});
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["obey"]});
        let params = json!({"_meta": meta, "notifications": filter});
        let seen = fixture
            .receives(told("notifications/subscriptions/acknowledged", params))
            .await;
        let expected = json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": 3}, "notifications": {"toolsListChanged": true},
        });
        assert_eq!(seen.unwrap()["params"], expected);
    }

    #[tokio::test]
    async fn an_answer_goes_out_under_the_name_that_the_server_gave_its_question() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection)
            .greeted(false)
            .await;
        let seen = fixture.receives(ask("theirs")).await.unwrap();
        assert_eq!(seen["id"], 1);
        let refusal = ErrorData::invalid_request("no", None);
        let refusal = JsonRpcMessage::error(refusal, Some(RequestId::Number(1)));
        let sent = fixture.bounded.outgoing(refusal);
        let sent: TxJsonRpcMessage<RoleClient> = sent;
        assert_eq!(serde_json::to_value(sent).unwrap()["id"], "theirs");
    }

    #[tokio::test]
    async fn a_server_that_greets_with_no_revision_is_ended() {
        for (version, fits) in [
            ("2025-11-25", true),
            ("obey\nme", false),
            ("DRAFT-2026-v1", true),
        ] {
            let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection);
            let server = json!({"name": "n", "version": "1"});
            let result =
                json!({"protocolVersion": version, "capabilities": {}, "serverInfo": server});
            let greeting = json!({"jsonrpc": "2.0", "id": 0, "result": result});
            let seen = fixture.receives(greeting).await;
            assert_eq!(seen.is_some(), fits, "{version:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_is_asked_for_a_handshake_within_the_connect_limit() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(7);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        fixture.bounded.send(discover).await.unwrap();
        let began = Instant::now();
        let seen = fixture.bounded.receive().await.unwrap();
        let seen = serde_json::to_value(seen).unwrap();
        assert_eq!(
            (&seen["id"], &seen["error"]["code"]),
            (&7.into(), &(-32601).into())
        );
        assert!(began.elapsed() <= fixture.server.bounds.connect / 2);
        // What it answers after all is not mistaken for the answer to what it was asked next.
        for late in [
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "late"}}),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        ] {
            fixture.says.send(late).unwrap();
        }
        let fixture = fixture.greeted(false).await;
        assert_eq!(fixture.state.end_cause(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_answers_discovery_in_time_is_taken_at_its_word() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(0);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        fixture.bounded.send(discover).await.unwrap();
        let mut fixture = fixture.greeted(true).await;
        tokio::time::advance(fixture.server.bounds.connect).await;
        assert_eq!(fixture.receives(ask(1)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn before_it_greets_a_server_asks_nothing_but_whether_we_are_there() {
        let mut fixture = fixture(Reads::All, WriteFailure::ClosesConnection);
        let asks = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
        fixture.says.send(asks.clone()).unwrap();
        assert_eq!(fixture.receives(ask(2)).await.unwrap()["method"], "ping");
        let mut fixture = fixture.greeted(false).await;
        assert_eq!(
            fixture.receives(asks).await.unwrap()["method"],
            "roots/list"
        );
    }
}
