//! What a connected server sends of itself in, the server's state and the host's answers out.
#![expect(
    deprecated,
    reason = "MCP deprecates sampling, roots and logging, and servers of every revision may still send them"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    CustomNotification, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationCapability, ErrorCode, ErrorData, Implementation, ListRootsResult,
    LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};

use super::classify::cut;
use super::quiet::Quiet;
use super::server::Server;

/// What MCP's servers may ask of a host: one of these that comes as a custom request has parameters that do not fit it.
const KNOWN: &[&str] = &["elicitation/create", "sampling/createMessage", "roots/list"];

/// One connection's end on this side.
#[derive(Debug)]
pub(super) struct Client {
    server: Arc<Server>,
    quiet: Mutex<Quiet>,
}

impl Client {
    pub(super) fn new(server: &Arc<Server>) -> Self {
        Self {
            server: Arc::clone(server),
            quiet: Mutex::default(),
        }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let answers = self.server.hearing.answers();
        let mut capabilities = ClientCapabilities::default();
        if answers.forms || answers.visits {
            let mut elicitation = ElicitationCapability::default();
            elicitation.form = answers.forms.then(Default::default);
            elicitation.url = answers.visits.then(Default::default);
            capabilities.elicitation = Some(elicitation);
        }
        capabilities.sampling = answers.sampling.then(Default::default);
        capabilities.roots = answers.roots.then(Default::default);
        let tasks = (
            rmcp::model::TASKS_EXTENSION_ID.to_owned(),
            Default::default(),
        );
        capabilities.extensions = Some(BTreeMap::from([tasks]));
        ClientConfig::new(
            capabilities,
            Implementation::new("bailiwick", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.server.hearing.elicit(request).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.server.hearing.sample(params).await
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.server.hearing.roots()
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if KNOWN.contains(&method.as_str()) {
            let why = format!("the parameters do not fit `{method}`");
            return Err(ErrorData::invalid_params(why, None));
        }
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "there is no such method",
            None,
        ))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        if let Some(progress) = self.server.progress.get(&params.progress_token) {
            progress.step();
        }
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let lets_through = {
            let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
            quiet.lets_through()
        };
        if lets_through {
            let text = cut(&params.data.to_string(), 1024);
            let (server, level) = (&self.server.spec.name, &params.level);
            tracing::debug!(%server, ?level, text = %crate::escape(&text), "a server said");
        }
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.server.changed.notify_one();
    }

    async fn on_custom_notification(
        &self,
        _notification: CustomNotification,
        _context: NotificationContext<RoleClient>,
    ) {
    }
}
