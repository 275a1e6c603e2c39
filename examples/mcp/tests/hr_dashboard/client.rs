//! An MCP client that answers elicitation requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::model::{
    CallToolRequestParams, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, ReadResourceRequestParams,
};
use rmcp::service::{RequestContext, RoleClient, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientHandler, serve_client};
use serde_json::{Value, json};

use crate::server;

/// The response to an elicitation request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision {
    Allow,
    Deny,
    /// Dismisses the form.
    Dismiss,
}

#[derive(Clone)]
struct ElicitationHandler {
    config: ClientConfig,
    decision: Decision,
    asked: Arc<AtomicUsize>,
}

impl ClientHandler for ElicitationHandler {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        _question: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let (action, choice) = match self.decision {
            Decision::Allow => (ElicitationAction::Accept, "allow"),
            Decision::Deny => (ElicitationAction::Accept, "deny"),
            Decision::Dismiss => (ElicitationAction::Cancel, "allow"),
        };
        Ok(ElicitResult::new(action).with_content(json!({"decision": choice})))
    }
}

/// A client, and the server that it is connected to.
pub(crate) struct TestClient {
    client: RunningService<RoleClient, ElicitationHandler>,
    asked: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
}

impl TestClient {
    /// Connects a client with elicitation. `pages` says whether it supports MCP Apps.
    pub(crate) async fn new(decision: Decision, pages: bool) -> Self {
        Self::connect(decision, pages, true).await
    }

    /// Connects a client with MCP Apps and without elicitation.
    pub(crate) async fn without_elicitation() -> Self {
        Self::connect(Decision::Allow, true, false).await
    }

    async fn connect(decision: Decision, pages: bool, elicits: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        server::seed(folder.path()).unwrap();
        let gateway = server::gateway(folder.path().to_owned()).unwrap();
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(server_end);
            gateway.serve(reader, writer).await.unwrap();
            gateway.shutdown().await;
        });
        let mut capabilities = json!({});
        if elicits {
            capabilities["elicitation"] = json!({"form": {}});
        }
        if pages {
            let mime = ["text/html;profile=mcp-app"];
            capabilities["extensions"] = json!({"io.modelcontextprotocol/ui": {"mimeTypes": mime}});
        }
        let mut config = ClientConfig::default();
        config.capabilities = serde_json::from_value(capabilities).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let handler = ElicitationHandler {
            config,
            decision,
            asked: Arc::clone(&asked),
        };
        let (reader, writer) = tokio::io::split(client_end);
        let transport = AsyncRwTransport::new_client(reader, writer);
        let client = serve_client(handler, transport).await.unwrap();
        Self {
            client,
            asked,
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("employees.json")
    }

    /// The content of the employees file.
    pub(crate) fn file(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    /// The number of elicitation requests.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Each tool's name and `_meta`, sorted.
    pub(crate) async fn tools(&self) -> Vec<(String, Value)> {
        let tools = self.client.list_all_tools().await.unwrap();
        let tools = tools
            .iter()
            .map(|tool| (tool.name.to_string(), json!(tool.meta)));
        let mut tools: Vec<_> = tools.collect();
        tools.sort_by(|one, other| one.0.cmp(&other.0));
        tools
    }

    /// The structured output of a call, or the code of its error, or the protocol error.
    pub(crate) async fn call(&self, name: &'static str, arguments: Value) -> Result<Value, String> {
        let Value::Object(arguments) = arguments else {
            panic!("{arguments}");
        };
        let params = CallToolRequestParams::new(name).with_arguments(arguments);
        let result = match self.client.call_tool(params).await {
            Ok(result) => result,
            Err(ServiceError::McpError(error)) => return Err(json!(error).to_string()),
            Err(error) => panic!("{error}"),
        };
        let output = result.structured_content.unwrap();
        if result.is_error == Some(true) {
            return Err(output["code"].as_str().unwrap().to_owned());
        }
        Ok(output)
    }

    /// The text of a page.
    pub(crate) async fn page(&self, uri: &str) -> String {
        let result = self
            .client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await;
        let result = json!(result.unwrap());
        assert_eq!(
            result["contents"][0]["mimeType"],
            "text/html;profile=mcp-app"
        );
        result["contents"][0]["text"].as_str().unwrap().to_owned()
    }
}
