//! `bailiwick doctor`: reports what this machine and this installation can enforce.

mod facts;
mod probe;
mod report;

use std::io;
use std::path::PathBuf;

use bailiwick::{BuildError, BuildFault, Config, Runtime};
use bailiwick_exec::{Helper, LayerState};

use crate::error_chain;
pub(crate) use report::Report;

/// Probes the machine.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn run(config: Config) -> io::Result<Report> {
    let roots = config.roots.iter();
    let roots: Vec<PathBuf> = roots.map(|root| root.mount.as_str().into()).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let accepted = if roots.is_empty() {
        None
    } else {
        let opened = runtime.block_on(open_roots(config));
        Some(opened.map(|()| roots.len()).map_err(|error| reason(&error)))
    };
    let sandbox = runtime.block_on(bailiwick_exec::self_test(&Helper::CurrentExe));
    let file_tools = runtime.block_on(file_tools());
    let facts = probe::facts(&roots, accepted, file_tools, sandbox.layers);
    Ok(report::report(&facts))
}

/// Opens the roots as `serve` does.
async fn open_roots(config: Config) -> Result<(), BuildError> {
    let (runtime, _grants) = Runtime::builder().configured(config).build().await?;
    runtime.shutdown().await;
    Ok(())
}

/// Whether a runtime can confine file tools with Landlock.
async fn file_tools() -> LayerState {
    match Runtime::builder().build().await {
        Ok((runtime, _grants)) => {
            let layers = runtime.layers();
            runtime.shutdown().await;
            let mut layers = layers.into_iter().map(|layer| layer.state);
            layers.next().unwrap_or(LayerState::NotTested)
        }
        Err(error) => LayerState::Missing(reason(&error)),
    }
}

fn reason(error: &BuildError) -> String {
    let faults = error.faults().iter().map(|fault| match fault {
        BuildFault::Configured { source, .. } => error_chain(source),
        fault => error_chain(fault),
    });
    faults.collect::<Vec<_>>().join("; ")
}
