//! Options in, a server of the file tools out.

use bailiwick::{
    AuditFileError, BuildError, ConfigSource, JsonLines, Policy, Runtime, RuntimeBuilder,
};
use serde_json::Value;

use crate::cli::{Options, Trust};

/// Why a server ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// What was configured cannot be served.
    #[error(transparent)]
    Input(#[from] BuildError),
    /// The audit cannot be written.
    #[error("cannot write the audit file")]
    Audit(#[from] AuditFileError),
    /// This build has no transport for it.
    #[error("this build cannot serve MCP over {0}")]
    Unserved(String),
}

/// Puts together the runtime of one connection; `initialize` is the configuration that its client sent, if any.
pub(crate) fn builder(
    options: &Options,
    initialize: Option<Value>,
) -> Result<RuntimeBuilder, BuildError> {
    let mut sources = options.sources.clone();
    let mut policy = Policy::new();
    match (initialize, options.trust) {
        (None, _) => {}
        (Some(said), Trust::Host) => sources = sources.with(ConfigSource::Initialize, said)?,
        (Some(said), Trust::Agent) => policy = Policy::parse(&said)?,
    }
    let effective = sources.effective()?;
    for note in effective.notes() {
        tracing::warn!("{note}");
    }
    let builder = Runtime::builder()
        .configured(effective.config)
        .policy(policy)
        .tools(bailiwick_fs::tools());
    Ok(match &options.config_file {
        Some(file) => builder.keep_out(file),
        None => builder,
    })
}

/// Serves until the other end is gone.
pub(crate) async fn run(options: Options) -> Result<(), ServeError> {
    let mut builder = builder(&options, None)?;
    if let Some(file) = &options.audit {
        builder = builder.audit(JsonLines::append(file)?);
    }
    let (runtime, _grants) = builder.build().await?;
    runtime.shutdown().await;
    let transport = options
        .http
        .map_or("stdio".to_owned(), |at| format!("http://{at}"));
    Err(ServeError::Unserved(transport))
}
