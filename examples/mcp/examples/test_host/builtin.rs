//! A server of the file tools on a small tree of its own, in this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bailiwick::{
    About, AskLimits, ConfigSource, ConfigSources, Deferred, FileTools, Gateway, OpenError, Opener,
    Policy, Runtime, Served, Trust, WorkerSpec, config_schema,
};
use bailiwick_cli::check::Target;
use bailiwick_examples::BoxError;
use serde_json::{Value, json};
use tokio::io::DuplexStream;

const PATIENCE: Duration = Duration::from_secs(600);

/// What the tools' own examples speak of, and something to look at.
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

struct Tree {
    folder: tempfile::TempDir,
    elicit: bool,
}

impl Tree {
    fn new(elicit: bool) -> Result<Self, BoxError> {
        let folder = tempfile::tempdir()?;
        for (name, text) in FILES {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
            fs::write(file, text)?;
        }
        Ok(Self { folder, elicit })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("repo")
    }

    async fn served(&self, configuration: Option<Value>) -> Result<Served, OpenError> {
        let own = json!({"roots": [{"path": self.root(), "default": true}], "deny": ["**/.env"]});
        let mut sources = ConfigSources::new()
            .with(ConfigSource::File, own)
            .map_err(bailiwick::BuildError::from)?;
        if let Some(said) = configuration {
            let said = sources.with(ConfigSource::Initialize, said);
            sources = said.map_err(bailiwick::BuildError::from)?;
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
                .asks(AskLimits::default(), PATIENCE);
        }
        let (runtime, grants) = builder.build().await?;
        let spec = WorkerSpec::new("client").policy(Policy::new());
        let worker = runtime.spawn(spec).await?;
        Ok(Served::new(runtime, &worker, Some(grants)))
    }
}

impl Opener for Tree {
    fn open(
        &self,
        configuration: Option<Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Served, OpenError>> + Send + '_>> {
        Box::pin(self.served(configuration))
    }
}

/// A server on a tree that lasts as long as the connection.
pub(crate) fn target(elicit: bool) -> Target {
    Target::in_process("file tools on a tree of its own", move |stream| {
        serve(stream, elicit)
    })
}

async fn serve(stream: DuplexStream, elicit: bool) -> Result<(), BoxError> {
    let about = About {
        name: "bailiwick".into(),
        title: "Bailiwick files".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        instructions: "The file tools on a small tree; `list_roots` says where it is.".into(),
    };
    let mut gateway = Gateway::opening(Tree::new(elicit)?, Trust::Host, about)
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
    // The response to a handshake that was refused says why.
    let _ = gateway.serve(reader, writer).await;
    gateway.shutdown().await;
    Ok(())
}
