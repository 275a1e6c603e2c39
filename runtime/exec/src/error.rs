//! Errors of starting a sandbox.

use std::io;

use serde::{Deserialize, Serialize};

use crate::spec::Layer;

/// Error of [`spawn`](crate::spawn).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The helper cannot be started.
    #[error("cannot start the sandbox helper {program}")]
    Helper {
        /// The helper's path, or `this program`.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// The program cannot be a helper, because it does not call [`init`](crate::init) first.
    #[error("{program} does not call `bailiwick_exec::init()` first in `main`")]
    NotInitialized {
        /// The helper's path, or `this program`.
        program: String,
    },
    /// A step of building the sandbox failed; the program was not started.
    #[error("cannot {stage}: {message}")]
    Setup {
        /// The step.
        stage: Stage,
        /// The cause.
        message: String,
    },
    /// This machine does not support a required layer; the program was not started.
    #[error("this machine does not support a sandbox with {layer}: {reason}")]
    Missing {
        /// The layer.
        layer: Layer,
        /// Why it is missing, or what needs it.
        reason: String,
    },
    /// Overlayfs is missing, and the directories are too large to be copied; the program was not started.
    #[error(
        "its files are too large to be copied, which is needed without overlayfs: more than {limit}"
    )]
    TooLarge {
        /// The limit that they exceed, see [`SandboxSpec::copy`](crate::SandboxSpec::copy).
        limit: String,
    },
    /// The self-test got through a layer.
    #[error("the sandbox does not confine programs with {layer}: {reason}")]
    Broken {
        /// The layer.
        layer: Layer,
        /// What the self-test could do.
        reason: String,
    },
    /// The helper ended without a report.
    #[error("the sandbox ended before it reported the result of the program")]
    Lost,
    /// The connection to the helper failed.
    #[error("the connection to the sandbox failed")]
    Io(#[from] io::Error),
}

/// A step of building a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Reading the description.
    Description,
    /// Closing inherited descriptors.
    Descriptors,
    /// Creating namespaces.
    Namespaces,
    /// Mounting the directories.
    Mounts,
    /// Copying directories where overlayfs is missing.
    Copy,
    /// Connecting the proxy.
    Network,
    /// Setting the limits.
    Limits,
    /// Dropping the capabilities.
    Capabilities,
    /// Applying the Landlock rules.
    Landlock,
    /// Applying the seccomp filter.
    Seccomp,
    /// Starting the program.
    Program,
}

impl Stage {
    /// Its name in the details of an error of `run_command`.
    pub(crate) fn name(self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Description => "read the description of the sandbox",
            Self::Descriptors => "close inherited descriptors",
            Self::Namespaces => "create namespaces",
            Self::Mounts => "mount the directories of the sandbox",
            Self::Copy => "copy the files of the sandbox",
            Self::Network => "connect the proxy",
            Self::Limits => "set resource limits",
            Self::Capabilities => "drop capabilities",
            Self::Landlock => "apply Landlock rules",
            Self::Seccomp => "apply the seccomp filter",
            Self::Program => "start the program",
        })
    }
}
