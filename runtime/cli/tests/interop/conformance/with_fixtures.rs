//! Adds the suite's fixtures to a gateway.
//!
//! Every request goes to the gateway unless it names a fixture, and lists are the gateway's with the fixtures behind.
#![expect(
    deprecated,
    reason = "the older revision's suite asks for logs, sampling and subscriptions"
)]

use std::borrow::Cow;

use bailiwick_mcp::gateway::Gateway;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ClientCapabilities,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, DiscoverResult,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, Reference, RequestStateCodec, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{fixtures, questions};

/// Which list a fixture says has changed.
#[derive(Clone, Copy, Debug)]
enum Changed {
    Tools,
    Prompts,
}

/// A gateway with the fixtures of the suite.
#[derive(Clone)]
pub(super) struct WithFixtures {
    gateway: Gateway,
    changes: broadcast::Sender<Changed>,
    codec: RequestStateCodec,
}

impl WithFixtures {
    /// Returns a function that adds the fixtures to a gateway. All gateways share the state of the fixtures.
    pub(super) fn wrapper() -> impl Fn(Gateway) -> Self {
        let (changes, _) = broadcast::channel(16);
        let codec = RequestStateCodec::try_new([7; 32]).unwrap();
        move |gateway| Self {
            gateway,
            changes: changes.clone(),
            codec: codec.clone(),
        }
    }

    /// The response of a fixture, or `None` if the tool belongs to the gateway.
    async fn fixture(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<CallToolResponse>, ErrorData> {
        let name = request.name.as_ref();
        if let Some(answer) = fixtures::answer(name) {
            return Ok(Some(answer.into()));
        }
        if questions::asks(name) {
            return self.questioned(request, context).map(Some);
        }
        if let Some(form) = fixtures::form(name) {
            let form = serde_json::from_value(form).unwrap();
            let answer = context.peer.create_elicitation(form).await;
            let answer = answer.map(|answer| serde_json::to_value(answer).unwrap());
            return Ok(Some(answer_result(answer)));
        }
        match name {
            "test_sampling" => {
                let prompt = request.arguments.as_ref().map(|given| &given["prompt"]);
                let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
                let params = json!({"messages": [message], "maxTokens": 100});
                let params = serde_json::from_value(params).unwrap();
                let answer = context.peer.create_message(params).await;
                let answer = answer.map(|answer| serde_json::to_value(answer).unwrap());
                return Ok(Some(answer_result(answer)));
            }
            "test_streaming_elicitation" => {
                let same = CallToolRequestParams::new("test_input_required_result_elicitation");
                return self.questioned(&same, context).map(Some);
            }
            "test_missing_capability" => {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            "test_tool_with_progress" => progress(context).await,
            "test_tool_with_logging" | "test_logging_tool" => log(context).await,
            "test_trigger_tool_change" => self.changed(Changed::Tools),
            "test_trigger_prompt_change" => self.changed(Changed::Prompts),
            _ => return Ok(None),
        }
        Ok(Some(done("Done")))
    }

    fn changed(&self, changed: Changed) {
        // Nobody may be listening.
        let _ = self.changes.send(changed);
    }

    fn questioned(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let next = questions::next(
            &self.codec,
            &request.name,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
            context.client_capabilities().as_ref(),
        )?;
        let responses = || json!(request.input_responses).to_string();
        Ok(next.map_or_else(|| done(&format!("state-ok: {}", responses())), Into::into))
    }
}

fn done(text: &str) -> CallToolResponse {
    fixtures::result(json!([fixtures::text(text)]), false).into()
}

/// What a client was asked and answered, as a tool's result.
fn answer_result(answer: Result<Value, rmcp::ServiceError>) -> CallToolResponse {
    match answer {
        Ok(answer) => done(&answer.to_string()),
        Err(error) => fixtures::result(json!([fixtures::text(&error.to_string())]), true).into(),
    }
}

async fn progress(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else {
        return;
    };
    for done in [0.0, 50.0, 100.0] {
        let progress = ProgressNotificationParam::new(token.clone(), done).with_total(100.0);
        context.peer.notify_progress(progress).await.unwrap();
    }
}

/// Sends what a tool logs, to a stateless client only if its request asks for logs.
async fn log(context: &RequestContext<RoleServer>) {
    let stateless = context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    if stateless && context.meta.log_level().is_none() {
        return;
    }
    for step in ["started", "processing data", "completed"] {
        let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(step));
        context.peer.notify_logging_message(line).await.unwrap();
    }
}

/// What the fixtures can do beyond the gateway.
fn extend(capabilities: &mut ServerCapabilities) {
    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    capabilities.prompts.get_or_insert_default().list_changed = Some(true);
}

impl ServerHandler for WithFixtures {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.gateway.get_info();
        extend(&mut info.capabilities);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.gateway.supported_protocol_versions()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut info = self.gateway.initialize(request, context).await?;
        extend(&mut info.capabilities);
        Ok(info)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut found = self.gateway.discover(context).await?;
        extend(&mut found.capabilities);
        Ok(found)
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.gateway.ping(context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut list = self.gateway.list_tools(request, context).await?;
        list.tools.extend(fixtures::tools());
        Ok(list)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let fixture = fixtures::tools().into_iter().find(|tool| tool.name == name);
        fixture.or_else(|| self.gateway.get_tool(name))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.fixture(&request, &context).await? {
            Some(response) => Ok(response),
            None => self.gateway.call_tool(request, context).await,
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut list = self.gateway.list_resources(request, context).await?;
        list.resources.extend(fixtures::resources());
        Ok(list)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut list = self
            .gateway
            .list_resource_templates(request, context)
            .await?;
        list.resource_templates.push(fixtures::template());
        Ok(list)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match fixtures::resource(&request.uri) {
            Some(resource) => Ok(resource.into()),
            None => self.gateway.read_resource(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut list = self.gateway.list_prompts(request, context).await?;
        list.prompts.extend(fixtures::prompts());
        Ok(list)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let Some(prompt) = fixtures::prompt(&request.name, &arguments) else {
            return self.gateway.get_prompt(request, context).await;
        };
        let next = questions::next(
            &self.codec,
            &request.name,
            request.input_responses.as_ref(),
            request.request_state.as_deref(),
            context.client_capabilities().as_ref(),
        )?;
        Ok(next.map_or_else(|| prompt.into(), Into::into))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match &request.r#ref {
            Reference::Prompt(prompt) if prompt.name.starts_with("test_") => {
                Ok(CompleteResult::default())
            }
            _ => self.gateway.complete(request, context).await,
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.gateway.on_initialized(context).await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = self.gateway.accepted_subscription_filter(requested)?;
        accepted.tools_list_changed = requested.tools_list_changed;
        accepted.prompts_list_changed = requested.prompts_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let (mut changes, sink) = (self.changes.subscribe(), context.sink().clone());
        let fixtures = async {
            while let Ok(changed) = changes.recv().await {
                // What this client did not ask to hear of, the sink refuses.
                let _ = match changed {
                    Changed::Tools => sink.notify_tool_list_changed().await,
                    Changed::Prompts => sink.notify_prompt_list_changed().await,
                };
            }
            Ok(())
        };
        tokio::select! {
            ended = self.gateway.listen(context) => ended,
            ended = fixtures => ended,
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match fixtures::resource(&request.uri) {
            Some(_) => Ok(()),
            None => self.gateway.subscribe(request, context).await,
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.gateway.unsubscribe(request, context).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.gateway.set_level(request, context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.gateway.get_task(request, context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.gateway.update_task(request, context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.gateway.cancel_task(request, context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.gateway.on_custom_request(request, context).await
    }
}
