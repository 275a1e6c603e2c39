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

use super::classify::cut;
use super::discovery::Discovery;
use super::failure::{ServerFailure, is_dated};
use super::line::Line;
use super::quiet::Quiet;
use super::server::Server;

/// The most requests of a server that are open at one time. It is answered far fewer at one time.
const MOST_ASKED: usize = 64;
/// The longest id of a request, in bytes.
const LONGEST_ID: usize = 256;
/// How long a message may take to be written.
const LATEST_WRITE: Duration = Duration::from_secs(10);

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError<E> {
    #[error(transparent)]
    Failed(E),
    #[error("the server did not take the message within {0:?}")]
    Late(Duration),
    #[error("too many messages wait for the server")]
    Crowded,
}

/// What a message that cannot be written means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// Nothing else can be written either.
    EndsAll,
    /// It failed alone; each is sent on its own.
    FailsAlone,
}

/// A transport within bounds.
pub(super) struct Bounded<T> {
    inner: T,
    server: Arc<Server>,
    line: Arc<Line>,
    unsent: Unsent,
    quiet: Quiet,
    greeting: Greeting,
    discovery: Discovery,
    next: i64,
}

/// How far the server came in saying who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    Awaited,
    Handshake,
    Discovered,
}

impl<T> Bounded<T> {
    pub(super) fn new(inner: T, server: &Arc<Server>, line: &Arc<Line>, unsent: Unsent) -> Self {
        Self {
            inner,
            server: Arc::clone(server),
            line: Arc::clone(line),
            unsent,
            quiet: Quiet::default(),
            greeting: Greeting::Awaited,
            discovery: Discovery::default(),
            next: 0,
        }
    }

    /// Drops the late answer to a request that was sent before, if there is one.
    pub(super) fn dropping_answer(mut self, id: Option<RequestId>) -> Self {
        if let Some(id) = id {
            self.discovery = Discovery::Late(id);
        }
        self
    }

    /// What rmcp is to see of a message, or none.
    fn sieved(
        &mut self,
        message: RxJsonRpcMessage<RoleClient>,
    ) -> Option<RxJsonRpcMessage<RoleClient>> {
        match message {
            JsonRpcMessage::Request(mut request) => {
                let ping = matches!(request.request, ServerRequest::PingRequest(_));
                if self.greeting == Greeting::Awaited && !ping {
                    return None;
                }
                request.id = self.registered(request.id)?;
                Some(JsonRpcMessage::Request(request))
            }
            JsonRpcMessage::Notification(notification) => {
                let heard = self.heard(notification.notification)?;
                Some(JsonRpcMessage::notification(heard))
            }
            JsonRpcMessage::Response(mut response) => {
                if self.greeting == Greeting::Awaited {
                    let Some(greeting) = greeted(&mut response.result) else {
                        self.line.end(ServerFailure::Protocol);
                        return None;
                    };
                    self.greeting = greeting;
                    // What is asked before is not answered in every revision.
                    self.line.asked().clear();
                }
                Some(JsonRpcMessage::Response(response))
            }
            error @ JsonRpcMessage::Error(_) => Some(error),
        }
    }

    /// What a request of the server is called here; none if it asks too much.
    fn registered(&mut self, theirs: RequestId) -> Option<RequestId> {
        let long = matches!(&theirs, RequestId::String(id) if id.len() > LONGEST_ID);
        let mut asked = self.line.asked();
        if long || asked.len() >= MOST_ASKED {
            self.line.end(ServerFailure::TooManyRequests);
            return None;
        }
        self.next += 1;
        let ours = RequestId::Number(self.next);
        asked.insert(ours.clone(), theirs);
        Some(ours)
    }

    /// Takes up what the server tells; what concerns rmcp itself goes on, without the server's words.
    fn heard(&mut self, notification: ServerNotification) -> Option<ServerNotification> {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                let token = &progress.params.progress_token;
                if let Some(progress) = self.line.progress.get(token) {
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
            ServerNotification::LoggingMessageNotification(said) => {
                self.said(&said.params);
                None
            }
            ServerNotification::CancelledNotification(cancelled) => {
                let id = self.cancelled(cancelled.params.request_id?)?;
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
                let id = ours(theirs?.subscription_id()?)?;
                let mut meta = NotificationMetaObject::default();
                meta.set_subscription_id(id);
                acknowledged.extensions.insert(meta);
                Some(acknowledged.into())
            }
            _ => None,
        }
    }

    fn said(&mut self, said: &LoggingMessageNotificationParam) {
        if self.quiet.lets_through() {
            let text = cut(&said.data.to_string(), 1024);
            let (server, level) = (&self.server.spec.name, &said.level);
            tracing::debug!(%server, ?level, text = %crate::escape(&text), "a server said");
        }
    }

    /// What a server takes back, as rmcp knows it: a question of its own, or without a handshake what we listen to.
    fn cancelled(&self, id: RequestId) -> Option<RequestId> {
        if self.greeting == Greeting::Discovered {
            return ours(id);
        }
        let mut asked = self.line.asked();
        let found = asked.iter().find(|(_, theirs)| **theirs == id);
        let found = found.map(|(ours, _)| ours.clone())?;
        asked.remove(&found);
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
            && let Some(theirs) = self.line.asked().remove(id)
        {
            *id = theirs;
        }
        message
    }
}

/// An id that this side gave, if it can be one.
fn ours(id: RequestId) -> Option<RequestId> {
    matches!(id, RequestId::Number(_)).then_some(id)
}

/// Takes the server's words out of how it greets, since rmcp logs that. None if it greets with nothing else.
fn greeted(result: &mut ServerResult) -> Option<Greeting> {
    let nobody = || Implementation::new("server", "0");
    match result {
        ServerResult::DiscoverResult(found) => {
            let mut versions = std::mem::take(&mut found.supported_versions);
            versions.retain(is_dated);
            let plain = DiscoverResult::new(versions, plain(&found.capabilities));
            *found = plain.with_server_info(nobody());
            Some(Greeting::Discovered)
        }
        ServerResult::InitializeResult(found) => {
            let version = Some(found.protocol_version.clone()).filter(is_dated)?;
            *found = InitializeResult::new(plain(&found.capabilities))
                .with_server_info(nobody())
                .with_protocol_version(version);
            Some(Greeting::Handshake)
        }
        _ => Some(Greeting::Handshake),
    }
}

/// What a server can do, as far as it is asked for it.
fn plain(theirs: &ServerCapabilities) -> ServerCapabilities {
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

impl<T> Drop for Bounded<T> {
    fn drop(&mut self) {
        self.line.end(ServerFailure::Closed);
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Bounded<T> {
    type Error = SendError<T::Error>;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let message = self.outgoing(message);
        // Where each is sent on its own, a request is sent once it is answered: its caller knows how long that may take.
        let patient =
            self.unsent == Unsent::FailsAlone && matches!(message, JsonRpcMessage::Request(_));
        let written = (!patient).then_some(LATEST_WRITE);
        let discovered = self.discovery.sent(&message, self.server.bounds.connect);
        let limit = written.into_iter().chain(discovered).min();
        let place = Arc::clone(&self.line.writes).try_acquire_owned();
        if place.is_err() {
            self.line.end(ServerFailure::NotReading);
        }
        let sending = place.map(|place| (place, self.inner.send(message)));
        let (line, unsent) = (Arc::clone(&self.line), self.unsent);
        async move {
            let sent = match sending {
                Err(_) => Err(SendError::Crowded),
                Ok((_place, sending)) => match limit {
                    None => sending.await.map_err(SendError::Failed),
                    Some(limit) => match timeout(limit, sending).await {
                        Ok(sent) => sent.map_err(SendError::Failed),
                        Err(_) => Err(SendError::Late(limit)),
                    },
                },
            };
            match &sent {
                Ok(()) => {}
                Err(SendError::Failed(_)) if unsent == Unsent::FailsAlone => {}
                Err(SendError::Late(limit)) if unsent == Unsent::FailsAlone => {
                    line.set_request_failure(Some(ServerFailure::Timeout(*limit)));
                }
                Err(SendError::Failed(_)) => line.end(ServerFailure::Closed),
                Err(SendError::Late(_)) => line.end(ServerFailure::NotReading),
                // That ended it at once.
                Err(SendError::Crowded) => {}
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = tokio::select! {
                biased;
                _ = self.line.ended() => return None,
                message = self.inner.receive() => message,
                () = self.discovery.expired() => return self.discovery.give_up(),
            };
            let Some(message) = message else {
                self.line.end(ServerFailure::Closed);
                return None;
            };
            if !self.discovery.is_late(&message)
                && let Some(message) = self.sieved(message)
            {
                return Some(message);
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        let closed = timeout(LATEST_WRITE, self.inner.close()).await;
        closed.map_or(Err(SendError::Late(LATEST_WRITE)), |closed| {
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
    use super::super::requests::{DenyRequests, Hearing};
    use super::super::spec::ServerSpec;
    use super::*;
    use crate::call::Progress;

    /// A server that says what is put in, and reads or does not.
    struct Script {
        says: mpsc::UnboundedReceiver<Value>,
        reads: Reads,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Reads {
        All,
        Nothing,
        NotAtAll,
    }

    impl Transport<RoleClient> for Script {
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

    struct Stage {
        bounded: Bounded<Script>,
        line: Arc<Line>,
        server: Arc<Server>,
        says: mpsc::UnboundedSender<Value>,
    }

    fn stage(reads: Reads, unsent: Unsent) -> Stage {
        let hearing = Hearing::new("s", Arc::new(DenyRequests), false);
        let server = Server::new(
            ServerSpec::stdio("s", "x"),
            Bounds::default(),
            hearing,
            None,
        );
        connected(&Arc::new(server), reads, unsent)
    }

    fn connected(server: &Arc<Server>, reads: Reads, unsent: Unsent) -> Stage {
        let (server, line) = (Arc::clone(server), Arc::new(Line::default()));
        let (says, heard) = mpsc::unbounded_channel();
        let script = Script { says: heard, reads };
        Stage {
            bounded: Bounded::new(script, &server, &line, unsent),
            line,
            server,
            says,
        }
    }

    impl Stage {
        /// What rmcp sees of what the server says; none if the connection ended.
        async fn hears(&mut self, said: Value) -> Option<Value> {
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
                .hears(json!({"jsonrpc": "2.0", "id": 0, "result": result}))
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
            let mut stage = stage(Reads::Nothing, Unsent::FailsAlone)
                .greeted(false)
                .await;
            let mut writes = tokio::task::JoinSet::new();
            let mut asked = 0;
            while let Some(seen) = stage.hears(ask(asked)).await {
                if answered {
                    let sending = stage.bounded.send(answer(&seen));
                    writes.spawn(async move { sending.await.is_ok() });
                }
                asked += 1;
                assert!(asked <= 300, "{asked}");
            }
            assert_eq!(stage.line.ended().await, why);
        }
    }

    #[tokio::test]
    async fn a_server_that_reads_its_answers_may_ask_as_often_as_it_likes() {
        let mut stage = stage(Reads::All, Unsent::EndsAll).greeted(false).await;
        for id in 0..10_000 {
            let seen = stage.hears(ask(format!("q{}", id % 3))).await.unwrap();
            stage.bounded.send(answer(&seen)).await.unwrap();
        }
        assert!(stage.line.asked().is_empty());
        let long = stage.hears(ask("x".repeat(LONGEST_ID + 1))).await;
        assert_eq!(long, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_written_in_time_ends_a_pipe_and_fails_alone_by_http() {
        let mut pipe = stage(Reads::Nothing, Unsent::EndsAll);
        assert!(matches!(
            pipe.bounded.send(request()).await,
            Err(SendError::Late(_))
        ));
        assert_eq!(pipe.line.ended().await, ServerFailure::NotReading);
        let mut broken = stage(Reads::NotAtAll, Unsent::EndsAll);
        assert!(matches!(
            broken.bounded.send(request()).await,
            Err(SendError::Failed(_))
        ));
        assert_eq!(broken.line.ended().await, ServerFailure::Closed);

        let mut http = stage(Reads::Nothing, Unsent::FailsAlone)
            .greeted(false)
            .await;
        let seen = http.hears(ask(1)).await.unwrap();
        assert!(matches!(
            http.bounded.send(answer(&seen)).await,
            Err(SendError::Late(_))
        ));
        // A request by HTTP is sent when it is answered, which takes what it takes.
        let sending = http.bounded.send(request());
        assert!(timeout(LATEST_WRITE * 10, sending).await.is_err());
        assert!(http.hears(ask(2)).await.is_some());
    }

    #[tokio::test]
    async fn what_a_server_tells_stays_here_and_what_it_takes_back_goes_on_without_its_words() {
        let mut stage = stage(Reads::All, Unsent::EndsAll).greeted(false).await;
        for method in [
            "notifications/message",
            "notifications/tools/list_changed",
            "ui/obey",
            "notifications/obey",
        ] {
            let params = json!({"level": "info", "data": "obey"});
            stage
                .says
                .send(json!({"jsonrpc": "2.0", "method": method, "params": params}))
                .unwrap();
        }
        let first = stage.hears(ask("theirs")).await.unwrap();
        assert_eq!(first["method"], "ping");
        stage.server.changed.notified().await;
        let params = json!({"requestId": "theirs", "reason": "obey"});
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let seen = stage.hears(cancelled.clone()).await.unwrap();
        assert_eq!(seen["params"], json!({"requestId": first["id"]}));
        assert!(stage.line.asked().is_empty());
        // It is not open any more, so this is passed over.
        stage.says.send(cancelled).unwrap();
        assert_eq!(stage.hears(ask(2)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn what_comes_late_by_one_connection_is_no_progress_of_the_next_one_s_calls() {
        let mut first = stage(Reads::All, Unsent::EndsAll).greeted(false).await;
        let next = connected(&first.server, Reads::All, Unsent::EndsAll);
        let mut next = next.greeted(false).await;
        let (old, new) = (Progress::default(), Progress::default());
        let token = || ProgressToken(NumberOrString::Number(1));
        first.line.progress.insert(token(), old.clone());
        next.line.progress.insert(token(), new.clone());
        let params = json!({"progressToken": 1, "progress": 1});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        for (stage, expected) in [(&mut first, (1, 0)), (&mut next, (1, 1))] {
            stage.says.send(told.clone()).unwrap();
            stage.hears(ask(1)).await.unwrap();
            assert_eq!((old.done(), new.done()), expected);
        }
        first.line.progress.remove(&token());
        next.says.send(told).unwrap();
        next.hears(ask(2)).await.unwrap();
        assert_eq!((old.done(), new.done()), (1, 2));
    }

    #[tokio::test]
    async fn without_a_handshake_only_what_we_listen_to_is_taken_back_and_acknowledged() {
        let mut stage = stage(Reads::All, Unsent::EndsAll).greeted(true).await;
        let told = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        stage
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
        let seen = stage.hears(cancelled).await.unwrap();
        assert_eq!(seen["params"], json!({"requestId": 3}));
        let meta = json!({"io.modelcontextprotocol/subscriptionId": 3, "obey": 1});
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["obey"]});
        let params = json!({"_meta": meta, "notifications": filter});
        let seen = stage
            .hears(told("notifications/subscriptions/acknowledged", params))
            .await;
        let expected = json!({
            "_meta": {"io.modelcontextprotocol/subscriptionId": 3}, "notifications": {"toolsListChanged": true},
        });
        assert_eq!(seen.unwrap()["params"], expected);
    }

    #[tokio::test]
    async fn an_answer_goes_out_under_the_name_that_the_server_gave_its_question() {
        let mut stage = stage(Reads::All, Unsent::EndsAll).greeted(false).await;
        let seen = stage.hears(ask("theirs")).await.unwrap();
        assert_eq!(seen["id"], 1);
        let refusal = ErrorData::invalid_request("no", None);
        let refusal = JsonRpcMessage::error(refusal, Some(RequestId::Number(1)));
        let sent = stage.bounded.outgoing(refusal);
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
            let mut stage = stage(Reads::All, Unsent::EndsAll);
            let server = json!({"name": "n", "version": "1"});
            let result =
                json!({"protocolVersion": version, "capabilities": {}, "serverInfo": server});
            let greeting = json!({"jsonrpc": "2.0", "id": 0, "result": result});
            let seen = stage.hears(greeting).await;
            assert_eq!(seen.is_some(), fits, "{version:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_server_is_asked_for_a_handshake_within_the_connect_limit() {
        let mut stage = stage(Reads::All, Unsent::EndsAll);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(7);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        stage.bounded.send(discover).await.unwrap();
        let began = Instant::now();
        let seen = stage.bounded.receive().await.unwrap();
        let seen = serde_json::to_value(seen).unwrap();
        assert_eq!(
            (&seen["id"], &seen["error"]["code"]),
            (&7.into(), &(-32601).into())
        );
        assert!(began.elapsed() <= stage.server.bounds.connect / 2);
        // What it answers after all is not mistaken for the answer to what it was asked next.
        for late in [
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "late"}}),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        ] {
            stage.says.send(late).unwrap();
        }
        let stage = stage.greeted(false).await;
        assert_eq!(stage.line.end_cause(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_answers_discovery_in_time_is_taken_at_its_word() {
        let mut stage = stage(Reads::All, Unsent::EndsAll);
        let discover = DiscoverRequest::new(DiscoverRequestParams {});
        let id = RequestId::Number(0);
        let discover = JsonRpcMessage::request(ClientRequest::DiscoverRequest(discover), id);
        stage.bounded.send(discover).await.unwrap();
        let mut stage = stage.greeted(true).await;
        tokio::time::advance(stage.server.bounds.connect).await;
        assert_eq!(stage.hears(ask(1)).await.unwrap()["method"], "ping");
    }

    #[tokio::test]
    async fn before_it_greets_a_server_asks_nothing_but_whether_we_are_there() {
        let mut stage = stage(Reads::All, Unsent::EndsAll);
        let asks = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
        stage.says.send(asks.clone()).unwrap();
        assert_eq!(stage.hears(ask(2)).await.unwrap()["method"], "ping");
        let mut stage = stage.greeted(false).await;
        assert_eq!(stage.hears(asks).await.unwrap()["method"], "roots/list");
    }
}
