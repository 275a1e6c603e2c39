//! Answers requests of a connected server.
#![expect(
    deprecated,
    reason = "MCP deprecates sampling and roots, but servers of all versions may use them"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    CustomRequest, CustomResult, ElicitRequestParams, ElicitResult, ElicitationCapability,
    ErrorCode, ErrorData, Implementation, ListRootsResult,
};
use rmcp::service::{RequestContext, RoleClient};

use super::connection_state::ConnectionState;
use super::server::Server;
use bailiwick::requests::RequestCapabilities;

/// The supported request methods. rmcp reports one of these as a custom request if its parameters are invalid.
const SUPPORTED_METHODS: &[&str] = &["elicitation/create", "sampling/createMessage", "roots/list"];

/// The client side of one connection.
#[derive(Debug)]
pub(super) struct Client {
    server: Arc<Server>,
    state: Arc<ConnectionState>,
}

impl Client {
    pub(super) fn new(server: &Arc<Server>, state: &Arc<ConnectionState>) -> Self {
        Self {
            server: Arc::clone(server),
            state: Arc::clone(state),
        }
    }

    /// Awaits the answer unless the server cancels its request or disconnects.
    async fn until_cancelled<T>(
        &self,
        context: &RequestContext<RoleClient>,
        answer: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {}
            _ = self.state.ended() => {}
            answer = answer => return answer,
        }
        Err(ErrorData::invalid_request(
            "nobody waits for the answer",
            None,
        ))
    }
}

/// The client capabilities that are declared to a server.
pub(super) fn client_capabilities(capabilities: RequestCapabilities) -> ClientCapabilities {
    let mut declared = ClientCapabilities::default();
    if capabilities.forms || capabilities.urls {
        let mut elicitation = ElicitationCapability::default();
        elicitation.form = capabilities.forms.then(Default::default);
        elicitation.url = capabilities.urls.then(Default::default);
        declared.elicitation = Some(elicitation);
    }
    declared.sampling = capabilities.sampling.then(Default::default);
    declared.roots = capabilities.roots.then(Default::default);
    let tasks = (
        rmcp::model::TASKS_EXTENSION_ID.to_owned(),
        Default::default(),
    );
    declared.extensions = Some(BTreeMap::from([tasks]));
    declared
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = client_capabilities(self.server.handler.capabilities());
        ClientConfig::new(
            capabilities,
            Implementation::new("bailiwick", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let handler = &self.server.handler;
        let call = handler.active_call(&self.state.active_calls)?;
        let answer = handler.elicit(request, call.as_deref());
        self.until_cancelled(&context, answer).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let handler = &self.server.handler;
        let call = handler.active_call(&self.state.active_calls)?;
        let answer = handler.sample(params, call.as_deref());
        self.until_cancelled(&context, answer).await
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let calls = self.state.active_calls.all();
        for call in &calls {
            call.count_request()?;
        }
        self.server.handler.roots(&calls)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if SUPPORTED_METHODS.contains(&method.as_str()) {
            let why = format!("the parameters do not fit `{method}`");
            return Err(ErrorData::invalid_params(why, None));
        }
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "there is no such method",
            None,
        ))
    }
}
