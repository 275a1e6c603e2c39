//! What a connected server asks in, the host's answers out, for as long as somebody waits for them.
#![expect(
    deprecated,
    reason = "MCP deprecates sampling and roots, and servers of every revision may still ask for them"
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

use super::line::Line;
use super::requests::Answers;
use super::server::Server;

/// What MCP's servers may ask of a host: one of these that comes as a custom request has parameters that do not fit it.
const KNOWN: &[&str] = &["elicitation/create", "sampling/createMessage", "roots/list"];

/// One connection's end on this side.
#[derive(Debug)]
pub(super) struct Client {
    server: Arc<Server>,
    line: Arc<Line>,
}

impl Client {
    pub(super) fn new(server: &Arc<Server>, line: &Arc<Line>) -> Self {
        Self {
            server: Arc::clone(server),
            line: Arc::clone(line),
        }
    }

    /// The answer, unless the server takes its question back or goes: then nobody is asked any longer.
    async fn wanted<T>(
        &self,
        context: &RequestContext<RoleClient>,
        answer: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {}
            _ = self.line.ended() => {}
            answer = answer => return answer,
        }
        Err(ErrorData::invalid_request(
            "nobody waits for the answer",
            None,
        ))
    }
}

/// What is declared to a server.
pub(super) fn capabilities(answers: Answers) -> ClientCapabilities {
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
    capabilities
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = capabilities(self.server.hearing.answers());
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
        let hearing = &self.server.hearing;
        let caller = hearing.caller(&self.line.callers)?;
        let answer = hearing.elicit(request, caller.as_deref());
        self.wanted(&context, answer).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let hearing = &self.server.hearing;
        let caller = hearing.caller(&self.line.callers)?;
        let answer = hearing.sample(params, caller.as_deref());
        self.wanted(&context, answer).await
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let callers = self.line.callers.all();
        for caller in &callers {
            caller.count()?;
        }
        self.server.hearing.roots(&callers)
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
}
