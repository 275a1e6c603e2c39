//! Runs a server as a child process and stops its process group.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::failure::ServerFailure;
use crate::rate::{Rate, RateLimiter};

/// The environment variables of the host that a server inherits.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG"];
/// How long a server may take to exit after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// The longest interval between checks for the exit.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait for the exit status, and for the end of the log.
const FINAL_WAIT: Duration = Duration::from_millis(100);
/// The rate at which messages of a server are logged.
pub(super) const LOG_RATE: Rate = Rate {
    calls: 100,
    per: Duration::from_secs(10),
};
/// The longest logged line of a server's standard error, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// A server process in its own process group. Processes that leave the group cannot be stopped.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    /// The process group, whose number is that of the process. The number cannot be reused before the process is
    /// reaped.
    group: Option<Pid>,
    log: JoinHandle<()>,
}

impl Child {
    pub(super) fn start(
        server: &Arc<str>,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        folder: Option<&PathBuf>,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut start = Command::new(command);
        start.args(args).env_clear();
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                start.env(name, value);
            }
        }
        start.envs(env);
        if let Some(folder) = folder {
            start.current_dir(folder);
        }
        start
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut process = start.spawn()?;
        let group = process.id().and_then(|id| i32::try_from(id).ok());
        let group = group.and_then(Pid::from_raw);
        let missing = || io::Error::other("the program has no streams");
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stdin = process.stdin.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let log = tokio::spawn(forward_log(Arc::clone(server), stderr));
        Ok((
            Self {
                process,
                group,
                log,
            },
            stdout,
            stdin,
        ))
    }

    /// Stops the server and its process group, and waits until it has ended.
    pub(super) async fn end(mut self) {
        self.signal(Signal::TERM);
        let _ = timeout(GRACE, self.exited()).await;
        // Its child processes may still be running in the group.
        self.signal(Signal::KILL);
        if timeout(GRACE, self.process.wait()).await.is_ok() {
            self.group = None;
        }
        // A process outside the group may keep the pipe open.
        let _ = timeout(FINAL_WAIT, &mut self.log).await;
    }

    /// Returns once the process has exited, without reaping it, so its number is not reused.
    async fn exited(&self) {
        let Some(process) = self.group else {
            return;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut pause = Duration::from_millis(1);
        while let Ok(None) = waitid(WaitId::Pid(process), options) {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// The exit status of the process, if it exits soon. Its output may be closed shortly before.
    pub(super) async fn exit_cause(&self) -> Option<ServerFailure> {
        timeout(FINAL_WAIT, self.exited()).await.ok()?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group?), options).ok()??;
        let exited = status.exit_status().map(ServerFailure::Exited);
        exited.or_else(|| status.terminating_signal().map(ServerFailure::Signalled))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The group may be empty already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.log.abort();
    }
}

/// Logs the standard error of a server at a limited rate. The rest is read and dropped, so the server never blocks.
async fn forward_log(server: Arc<str>, mut stderr: impl AsyncRead + Unpin) {
    let limiter = RateLimiter::new(&LOG_RATE);
    let mut chunk = vec![0; 4096];
    let mut line = Vec::new();
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            return;
        }
        for byte in chunk.iter().take(read) {
            if *byte != b'\n' {
                if line.len() < MAX_LOG_LINE {
                    line.push(*byte);
                }
                continue;
            }
            if limiter.take().is_ok() {
                let text = String::from_utf8_lossy(&line);
                tracing::debug!(%server, text = %bailiwick::text::escape(&text), "a server logged");
            }
            line.clear();
        }
    }
}
