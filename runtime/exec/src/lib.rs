//! Runs commands in a sandbox of Linux namespaces, Landlock and seccomp.
//!
//! A sandbox is described by a [`SandboxSpec`]: the program, the directories that it sees and may change, its
//! environment and its limits. [`spawn`] starts it in two steps, so that no code of the host runs between `fork` and
//! `exec`:
//!
//! 1. The *outer helper* is the host's own binary, started again. It closes all inherited descriptors, creates the
//!    namespaces and starts the inner helper.
//! 2. The *inner helper* is process 1 of the new PID namespace. It creates a mount namespace, mounts the directories,
//!    drops all capabilities, applies Landlock and seccomp, starts the program and reaps processes. When the program ends,
//!    or when the host closes its socket or dies, the inner helper exits, and the kernel kills every process that is left.
//!
//! If the machine allows no namespaces and the host accepts that ([`SandboxSpec::optional`]), a supervisor replaces the
//! inner helper. It runs the program on the files of the host, confined by Landlock, seccomp and limits, and kills its
//! descendants one by one. A sandbox that hides files, or shows them at other paths, is refused there.
//!
//! A program has no network unless a [`Proxy`] makes its connections: [`spawn_with_proxy`].
//!
//! A host calls [`init`] first in `main`, and [`self_test`] before it relies on sandboxes:
//!
//! ```no_run
//! bailiwick_exec::init();
//! // The rest of `main`.
//! ```
#![cfg(target_os = "linux")]

mod clock;
mod commands;
mod copied;
mod error;
mod helper;
mod launcher;
mod message;
mod mount_table;
mod output;
mod overlay;
mod process;
mod programs;
mod proxy;
mod self_test;
mod spec;
mod view;

pub use bailiwick::worker::LayerState;
pub use commands::{ChangedFile, CommandChanges, CommandOutput, Commands, TOOL_NAMES};
pub use error::{ExecError, Stage};
pub use helper::init;
pub use overlay::{AppliedChanges, ApplyChanges, ChangeKind, DroppedChange};
pub use process::{Exit, Helper, Process, Stdio, spawn, spawn_with_proxy};
pub use proxy::{
    ConnectionReport, Deciding, Decision, Outcome, Proxy, ProxyLimits, ProxyPolicy, Resolving,
    Target,
};
pub use self_test::{SelfTest, self_test};
pub use spec::{CopyLimits, Layer, Limits, Mount, Network, SandboxSpec};
