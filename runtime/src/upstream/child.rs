//! Runs a server as a child process and ends it with everything that it started.

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
use super::log_limiter::LogLimiter;

/// What of the host's environment a server gets.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG"];
/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile, at least.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long its last words may take once it has ended.
const FINAL_WAIT: Duration = Duration::from_millis(100);
/// The longest line of a server's own log that is kept, in bytes.
const MAX_LOG_LINE: usize = 1024;

/// A server that runs as a program of its own, in a process group of its own. What leaves that group is out of reach.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    /// The group has the number of the process. It is nobody else's as long as nobody waited for the process.
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

    /// Ends the server and whatever it started, and waits until it has ended.
    pub(super) async fn end(mut self) {
        self.signal(Signal::TERM);
        let _ = timeout(GRACE, self.exited()).await;
        // What it started may live on without it, and is still of its group.
        self.signal(Signal::KILL);
        if timeout(GRACE, self.process.wait()).await.is_ok() {
            self.group = None;
        }
        // Somebody outside the group may hold the pipe for as long as they like.
        let _ = timeout(FINAL_WAIT, &mut self.log).await;
    }

    /// Returns once the process has ended, and leaves it unreaped: its number stays its own.
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

    /// Why the process ended, if it ends by itself in a moment. It may close its output a little earlier.
    pub(super) async fn exit_cause(&self) -> Option<ServerFailure> {
        timeout(FINAL_WAIT, self.exited()).await.ok()?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group?), options).ok()??;
        let exited = status.exit_status().map(ServerFailure::Exited);
        exited.or_else(|| status.terminating_signal().map(ServerFailure::Signalled))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that is gone needs no signal.
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

/// Keeps what the server logs, as far as a log may grow; the rest is read and dropped, so that the server never waits.
async fn forward_log(server: Arc<str>, mut stderr: impl AsyncRead + Unpin) {
    let mut limiter = LogLimiter::default();
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
            if limiter.allow() {
                let text = String::from_utf8_lossy(&line);
                tracing::debug!(%server, text = %crate::escape(&text), "a server logged");
            }
            line.clear();
        }
    }
}
