//! MCP request handler.
#![expect(
    deprecated,
    reason = "MCP deprecates logging and roots, and clients of every revision may still use them"
)]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, DiscoverResult, ErrorCode, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Map, json};

use super::backend::Backend;
use super::call::is_stateless;
use super::meta::PREFIX;
use super::pagination::listed;
use super::{Gateway, Trust, apps, client_roots, convert, describe, log, prompts};

/// Methods of MCP. rmcp reports a request of such a method as a custom request if its parameters are invalid.
const METHODS: &[&str] = &[
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
];

/// Methods that the stateless revisions do not have.
const STATEFUL_METHODS: &[&str] = &[
    "initialize",
    "ping",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
];

impl ServerHandler for Gateway {
    /// The name and capabilities, which rmcp also asks for in other requests than the handshake.
    fn get_info(&self) -> ServerConfig {
        let identity = &self.state.info;
        let mut info = InitializeResult::new(self.capabilities(false));
        info.server_info = Implementation::new(identity.name.clone(), identity.version.clone())
            .with_title(identity.title.clone());
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if self.has_begun() {
            let reason = "this connection had its handshake already";
            return Err(ErrorData::invalid_request(reason, None));
        }
        let mut info = self.negotiate_initialize(&request)?;
        let experimental = request.capabilities.experimental.as_ref();
        let declares = |key: &str| experimental.is_some_and(|keys| keys.contains_key(key));
        info.capabilities = self.capabilities(declares("policy") || declares("configuration"));
        let configuration = experimental
            .and_then(|keys| keys.get("configuration"))
            .cloned();
        let client = &request.client_info.name;
        self.begin_session(client, configuration, &request.capabilities)
            .await?;
        // The description depends on the backend, which exists only now.
        self.describe(&mut info);
        // The peer's protocol version must be the negotiated one.
        let mut peer = request;
        peer.protocol_version = info.protocol_version.clone();
        context.peer.set_peer_info(peer);
        Ok(info)
    }

    async fn discover(
        &self,
        _context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        // If the backend cannot be created, the next request returns the error.
        let _ = self.backend().await;
        let mut info = self.get_info();
        self.describe(&mut info);
        Ok(DiscoverResult::from_server_info(
            self.supported_protocol_versions().into_owned(),
            info,
        ))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.worker_request(&context).await?.list_tools().await?;
        Ok(listed!(ListToolsResult, tools, request.as_ref()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let backend = self.open_backend()?;
        let tool = backend.worker().tool(name)?;
        // The schema mentions only one other tool: the one that undoes this tool.
        let undo_tool = tool.spec.reverse;
        let undo_tool = undo_tool.and_then(|undo_tool| backend.worker().tool(undo_tool.tool));
        Some(convert::tool(&tool, undo_tool.as_slice()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await?.into_response()
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let worker_request = self.worker_request(&context).await?;
        let resources = worker_request.list_resources().await?;
        Ok(listed!(ListResourcesResult, resources, request.as_ref()))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let worker_request = self.worker_request(&context).await?;
        let templates = worker_request.list_resource_templates().await?;
        Ok(listed!(
            ListResourceTemplatesResult,
            templates,
            request.as_ref()
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let worker_request = self.worker_request(&context).await?;
        let read = worker_request.read_resource(&request.uri).await;
        read.map(Into::into)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let worker_request = self.worker_request(&context).await?;
        // A new subscription replaces that to the same file.
        let permit = self.session.subscriptions.permit(&request.uri);
        let watched = worker_request.watch_file(&request.uri, permit).await?;
        self.subscribe_file(request.uri, watched, context.peer);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.unsubscribe_file(&request.uri);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.session.roots.are_expected() && !self.request_roots(&context.peer).await {
            return;
        }
        self.notify_list_changes(context.peer).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        if !self.session.roots.are_expected() || !self.request_roots(&context.peer).await {
            return;
        }
        self.notify_list_changes(context.peer.clone()).await;
        // A failure to send shows at the next message.
        let _ = context.peer.notify_resource_list_changed().await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(self.supported_filter(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.serve_subscription(context).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let backend = self.backend().await?;
        let task = self.state.tasks.get(&request.task_id, &backend.name)?;
        Ok(GetTaskResult::new(task))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let backend = self.backend().await?;
        self.state.tasks.update(&request.task_id, &backend.name)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let backend = self.backend().await?;
        self.state.tasks.cancel(&request.task_id, &backend.name)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if is_stateless(&context) {
            return Err(method_not_found("logging/setLevel"));
        }
        let level = log::severity(request.level);
        self.session.log_level.store(level, Ordering::Relaxed);
        Ok(())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.worker_request(&context).await?.list_prompts().await?;
        Ok(listed!(ListPromptsResult, prompts, request.as_ref()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        // This also checks the policy of the request, which has no effect on the built-in prompts.
        let worker_request = self.worker_request(&context).await?;
        if let Some(prompt) = worker_request.server_prompt(&request).await? {
            return Ok(prompt.into());
        }
        prompts::get(&request.name, request.arguments.as_ref()).map(Into::into)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.worker_request(&context)
            .await?
            .complete(&request)
            .await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        if method == describe::METHOD && self.state.manual.is_some() {
            return self.ai_help(request.params.as_ref(), &context).await;
        }
        let removed = is_stateless(&context) && STATEFUL_METHODS.contains(&method);
        if removed || !METHODS.contains(&method) {
            return Err(method_not_found(method));
        }
        let reason = format!("the parameters do not fit `{method}`");
        Err(ErrorData::invalid_params(reason, None))
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

fn method_not_found(method: &str) -> ErrorData {
    let reason = format!("unknown method `{}`", bailiwick::text::escape(method));
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, reason, None)
}

impl Gateway {
    /// Adds the instructions and the description to the result of a handshake.
    fn describe(&self, info: &mut ServerConfig) {
        let backend = self.open_backend();
        info.instructions = Some(self.instructions(backend.as_deref()));
        let mut meta = Map::new();
        let described = backend.and_then(|backend| self.description(backend.worker()));
        if let Some(described) = described {
            meta.insert("dashdash".into(), described.dashdash());
        }
        info.meta = (!meta.is_empty()).then_some(MetaObject(meta));
    }

    /// Instructions for the model: those of the host, and the worker's open folders.
    fn instructions(&self, backend: Option<&Backend>) -> String {
        let text = &self.state.info.instructions;
        if self.session.roots.are_expected() {
            return format!(
                "{text}\nOpen to you: the roots of your client, which `list_roots` names."
            );
        }
        match backend.filter(|_| self.state.files.is_some()) {
            Some(backend) => {
                let orientation = capitalized(&backend.worker().orientation());
                if self.state.client_roots && backend.worker().has_no_root() {
                    format!("{text}\n{orientation}. {}.", client_roots::HINT)
                } else {
                    format!("{text}\n{orientation}.")
                }
            }
            None => text.clone(),
        }
    }

    /// The server's capabilities. `literal` is for clients of the proposals' dialect, which expect a plain `true` where
    /// MCP requires an object.
    fn capabilities(&self, literal: bool) -> ServerCapabilities {
        let policy = if literal {
            json!({"enabled": true, "literal": true})
        } else {
            json!({"enabled": true})
        };
        let mut experimental = BTreeMap::from([("policy".to_owned(), convert::object(policy))]);
        let configures = self.state.trust == Trust::Host || self.state.client_roots;
        if configures && self.state.decorator.has_schema() {
            experimental.insert("configuration".into(), Map::new());
        }
        let own = ["policy", "preview", "scopes"].map(|name| format!("{PREFIX}{name}"));
        let names = own.into_iter().chain([apps::APPS_EXTENSION.to_owned()]);
        let extensions = names.map(|name| (name, Map::new()));
        let mut capabilities = ServerCapabilities::builder()
            .enable_experimental_with(experimental)
            .enable_extensions_with(extensions.collect())
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        // Only files can be subscribed to.
        if self.state.files.is_none()
            && let Some(resources) = &mut capabilities.resources
        {
            resources.subscribe = None;
        }
        capabilities
    }
}
