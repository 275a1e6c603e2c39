//! A gateway over a temporary directory.

use std::ops::Deref;
use std::path::PathBuf;
use std::pin::Pin;

use bailiwick::{Deferred, Policy, Runtime, ToolSet, Worker, WorkerSpec};
use bailiwick_mcp::gateway::{
    Backend, BackendError, BackendFactory, FileTools, Gateway, GatewayBuilder, Trust,
};
use serde_json::{Value, json};

use crate::client::{Client, info};
use crate::temp_files::TempFiles;

/// Serves a directory as `/r`. Of a client's configuration it uses the policy.
struct RootFactory {
    path: PathBuf,
    tools: fn() -> ToolSet,
    /// Whether questions wait for the client of the gateway.
    asks: bool,
}

impl BackendFactory for RootFactory {
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(async move {
            let policy = Policy::parse(&configuration.unwrap_or_else(|| json!({})))?;
            let mut builder = Runtime::builder()
                .root("r", &self.path)
                .grantable("read:file")
                .grantable("write:file")
                .tools((self.tools)())
                .policy(policy.deny_glob("**/secret/**"));
            if self.asks {
                builder = builder.approver(Deferred);
            }
            let (runtime, grants) = builder.build().await?;
            let worker = runtime
                .spawn(WorkerSpec::new("client").policy(Policy::new()))
                .await?;
            Ok(Backend::new(runtime, &worker, Some(grants)))
        })
    }
}

/// A temporary directory with the root `r`, which is served as `/r`, and a file outside it.
#[derive(Debug)]
pub struct Workspace {
    files: TempFiles,
    tools: fn() -> ToolSet,
}

impl Deref for Workspace {
    type Target = TempFiles;

    fn deref(&self) -> &TempFiles {
        &self.files
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Workspace {
    /// A directory that is served with the file tools.
    pub fn new() -> Self {
        Self::with(bailiwick_fs::tools)
    }

    /// A directory that is served with these tools.
    pub fn with(tools: fn() -> ToolSet) -> Self {
        let files = TempFiles::new(&[
            ("r/a.txt", "one\ntwo\nthree\n"),
            ("r/src/lib.rs", "fn main() {}\n"),
            ("r/secret/key", "hidden"),
            ("outside/f", "theirs"),
        ]);
        Self { files, tools }
    }

    /// A gateway whose clients have this trust.
    pub fn gateway(&self, trust: Trust) -> GatewayBuilder {
        self.builder(trust, false)
    }

    /// A gateway that asks its clients for approval.
    pub fn asking_gateway(&self, trust: Trust) -> Gateway {
        self.builder(trust, true).ask_client().unwrap().build()
    }

    fn builder(&self, trust: Trust, asks: bool) -> GatewayBuilder {
        let files = FileTools {
            read: "read_file",
            list: "list_directory",
        };
        let factory = RootFactory {
            path: self.path("r"),
            tools: self.tools,
            asks,
        };
        Gateway::with_factory(factory, trust, info())
            .files(files)
            .config_schema(&json!({"type": "object"}))
    }

    /// A worker with the file tools and the root, and its runtime.
    pub async fn worker(&self) -> (Runtime, Worker) {
        let builder = Runtime::builder().root("r", self.path("r"));
        let (runtime, _) = builder.tools(bailiwick_fs::tools()).build().await.unwrap();
        let spec = WorkerSpec::new("agent").policy(Policy::new());
        let worker = runtime.spawn(spec).await.unwrap();
        (runtime, worker)
    }

    /// A client of a gateway whose clients have this trust.
    pub fn client(&self, trust: Trust) -> Client {
        Client::new(&self.gateway(trust).build())
    }
}
