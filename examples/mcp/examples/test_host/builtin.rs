//! The built-in server: the file tools on a temporary directory, in this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bailiwick::config::{ConfigSource, ConfigSources, config_schema};
use bailiwick::permission::AskLimits;
use bailiwick::{Deferred, Policy, Runtime, WorkerSpec};
use bailiwick_cli::check::Target;
use bailiwick_examples::BoxError;
use bailiwick_mcp::gateway::{
    Backend, BackendError, BackendFactory, FileTools, Gateway, GatewayInfo, Trust,
};
use serde_json::{Value, json};
use tokio::io::DuplexStream;

const QUESTION_TIMEOUT: Duration = Duration::from_secs(600);

/// The files, including those in the tools' examples.
const FILES: &[(&str, &str)] = &[
    ("repo/README.md", "# Demo\n"),
    ("repo/notes.txt", "one\ntwo\nthree\n"),
    (
        "repo/src/limits.rs",
        "pub const RETRIES: u32 = 3;\npub const DEPTH: u32 = 8;\n",
    ),
    ("repo/.env", "SECRET=1\n"),
    ("outside/todo.txt", "beyond the root\n"),
];

struct DemoServer {
    dir: tempfile::TempDir,
    elicit: bool,
}

impl DemoServer {
    fn new(elicit: bool) -> Result<Self, BoxError> {
        let dir = tempfile::tempdir()?;
        for (name, text) in FILES {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
            fs::write(file, text)?;
        }
        Ok(Self { dir, elicit })
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    async fn open_runtime(&self, configuration: Option<Value>) -> Result<Backend, BackendError> {
        let own = json!({"roots": [{"path": self.root(), "default": true}], "deny": ["**/.env"]});
        let mut sources = ConfigSources::new()
            .with(ConfigSource::File, own)
            .map_err(bailiwick::BuildError::from)?;
        if let Some(configuration) = configuration {
            let with_client = sources.with(ConfigSource::Initialize, configuration);
            sources = with_client.map_err(bailiwick::BuildError::from)?;
        }
        let effective = sources.effective().map_err(bailiwick::BuildError::from)?;
        let mut builder = Runtime::builder()
            .configured(effective.config)
            .grantable("read:file")
            .grantable("write:file")
            .tools(bailiwick_fs::tools());
        if self.elicit {
            builder = builder
                .approver(Deferred)
                .asks(AskLimits::default(), QUESTION_TIMEOUT);
        }
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("client").policy(Policy::inherit());
        let worker = runtime.spawn(spec).await?;
        Ok(Backend::new(runtime, &worker, Some(grants)))
    }
}

impl BackendFactory for DemoServer {
    fn create(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Backend, BackendError>> + Send + '_>> {
        Box::pin(self.open_runtime(configuration))
    }
}

/// A server with a temporary directory that lasts as long as the connection.
pub(crate) fn target(elicit: bool) -> Target {
    Target::in_process("built-in file tools", move |stream| serve(stream, elicit))
}

async fn serve(stream: DuplexStream, elicit: bool) -> Result<(), BoxError> {
    let about = GatewayInfo {
        name: "bailiwick".into(),
        title: "Bailiwick files".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: "File tools on a small directory; call `list_roots` first.".into(),
    };
    let mut gateway = Gateway::with_factory(DemoServer::new(elicit)?, Trust::Host, about)
        .files(FileTools {
            read: "read_file",
            list: "list_directory",
        })
        .config_schema(config_schema())
        .manual(bailiwick_cli::server_doc());
    if elicit {
        gateway = gateway.ask_client()?;
    }
    let gateway = gateway.build();
    let (reader, writer) = tokio::io::split(stream);
    // A rejected handshake was answered with the reason.
    let _ = gateway.serve(reader, writer).await;
    gateway.shutdown().await;
    Ok(())
}
