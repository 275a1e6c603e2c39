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

/// The answer of a client to each form.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decision {
    Yes,
    No,
    /// The form is cancelled.
    Nothing,
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
        let (action, content) = match self.decision {
            Decision::Yes => (ElicitationAction::Accept, "allow"),
            Decision::No => (ElicitationAction::Accept, "deny"),
            Decision::Nothing => (ElicitationAction::Cancel, "allow"),
        };
        Ok(ElicitResult::new(action).with_content(json!({"decision": content})))
    }
}

/// A client with a person behind it, and a server of its own.
pub(crate) struct Person {
    client: RunningService<RoleClient, ElicitationHandler>,
    asked: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
}

impl Person {
    /// One that can ask, and shows pages or does not.
    pub(crate) async fn new(decision: Decision, pages: bool) -> Self {
        Self::of(decision, pages, true).await
    }

    /// One that shows pages and cannot ask.
    pub(crate) async fn mute() -> Self {
        Self::of(Decision::Yes, true, false).await
    }

    async fn of(decision: Decision, pages: bool, asks: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        server::seed(folder.path()).unwrap();
        let gateway = server::gateway(folder.path().to_owned()).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(far);
            gateway.serve(reader, writer).await.unwrap();
            gateway.shutdown().await;
        });
        let mut capabilities = json!({});
        if asks {
            capabilities["elicitation"] = json!({"form": {}});
        }
        if pages {
            let mime = ["text/html;profile=mcp-app"];
            capabilities["extensions"] = json!({"io.modelcontextprotocol/ui": {"mimeTypes": mime}});
        }
        let mut config = ClientConfig::default();
        config.capabilities = serde_json::from_value(capabilities).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let behind = ElicitationHandler {
            config,
            decision,
            asked: Arc::clone(&asked),
        };
        let (reader, writer) = tokio::io::split(near);
        let transport = AsyncRwTransport::new_client(reader, writer);
        let client = serve_client(behind, transport).await.unwrap();
        Self {
            client,
            asked,
            folder,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("employees.json")
    }

    /// The employees as they stand on the disk.
    pub(crate) fn file(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    /// How often the person was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Each tool's name and `_meta`, sorted.
    pub(crate) async fn tools(&self) -> Vec<(String, Value)> {
        let tools = self.client.list_all_tools().await.unwrap();
        let named = tools
            .iter()
            .map(|tool| (tool.name.to_string(), json!(tool.meta)));
        let mut named: Vec<_> = named.collect();
        named.sort_by(|one, other| one.0.cmp(&other.0));
        named
    }

    /// The structured answer of a call; its code if it failed, or the error of the protocol.
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
        let read = self
            .client
            .read_resource(ReadResourceRequestParams::new(uri))
            .await;
        let read = json!(read.unwrap());
        assert_eq!(read["contents"][0]["mimeType"], "text/html;profile=mcp-app");
        read["contents"][0]["text"].as_str().unwrap().to_owned()
    }
}
