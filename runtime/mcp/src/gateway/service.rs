//! The gateway as a service of line transports.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use rmcp::model::{
    CallToolRequestParams, ClientNotification, ClientRequest, ErrorData, ProtocolVersion,
    ServerConfig, ServerResult,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, Service};

use super::Gateway;
use super::call::{CallAnswer, is_stateless};

/// A gateway that answers requests whose handlers panic, and starts subscriptions before they are acknowledged.
///
/// rmcp sends the acknowledgement before it calls [`rmcp::ServerHandler::listen`], and a client may change a file as
/// soon as it reads that. Over HTTP rmcp accepts only a handler, so there the watches start after the acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct GatewayService(pub(super) Gateway);

impl GatewayService {
    async fn handle(
        &self,
        request: ClientRequest,
        mut context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        if let ClientRequest::SubscriptionsListenRequest(listen) = &request
            && is_stateless(&context)
        {
            let requested = &listen.params.notifications;
            self.0.prepare_subscription(requested, &mut context).await?;
        }
        let is_handshake = matches!(request, ClientRequest::InitializeRequest(_));
        let peer = is_handshake.then(|| context.peer.clone());
        let result = self.0.handle_request(request, context).await;
        if let (Some(peer), Ok(_)) = (peer, &result) {
            // A second handshake fails.
            let _ = self.0.session.peer.set(peer);
        }
        result
    }

    /// Makes a tool call; the answer is not converted. Unlike [`Service::handle_request`], it does not catch panics.
    pub(super) fn call(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallAnswer, ErrorData>> {
        self.0.call(call, context)
    }

    /// The client, after the handshake.
    pub(super) fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.0.session.peer.get()
    }
}

impl Service<RoleServer> for GatewayService {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let handled = AssertUnwindSafe(self.handle(request, context)).catch_unwind();
        handled.await.unwrap_or_else(|_| Err(panicked()))
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        Service::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Service::supported_protocol_versions(&self.0)
    }
}

/// The answer to a request that panicked.
pub(super) fn panicked() -> ErrorData {
    ErrorData::internal_error("the request failed by a fault of the server", None)
}
