//! Starts a server as a child process, and ends its process group.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{Inbox, ServerError};
use super::transport::{self, CLOSED};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How long to wait for a process to exit after it closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval for polling the status meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long to wait for the end of standard error after the process has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum length of a line of standard error, in bytes. Longer lines are split.
const MAX_STDERR_LINE: u64 = 4 << 10;

/// Starts the process. When its input is closed, it should exit. Otherwise, or if the tasks are aborted, its group is killed.
pub(super) fn start(
    program: &OsStr,
    arguments: &[OsString],
    to_send: mpsc::Receiver<Value>,
    inbox: Arc<Inbox>,
) -> Result<JoinSet<()>, ServerError> {
    let not_started = |cause: io::Error| ServerError::Start {
        program: program.display().to_string(),
        cause: Arc::new(cause),
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(not_started)?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(not_started(io::ErrorKind::BrokenPipe.into()));
    };
    let process = Process::new(child);
    let mut tasks = JoinSet::new();
    tasks.spawn(transport::write(stdin, to_send));
    let (stderr_done_tx, stderr_done) = oneshot::channel::<()>();
    let stderr_inbox = Arc::clone(&inbox);
    tasks.spawn(async move {
        forward_stderr(stderr, &stderr_inbox).await;
        drop(stderr_done_tx);
    });
    tasks.spawn(async move {
        let closed = transport::read(stdout, &inbox).await;
        let reason = process.end(closed).await;
        // A process that left the group may keep standard error open.
        let _ = timeout(STDERR_TIMEOUT, stderr_done).await;
        inbox.on_end(&reason);
    });
    Ok(tasks)
}

/// A process and its process group.
struct Process {
    child: Child,
    /// The id of both. It is not reused until the process is reaped.
    group: Option<Pid>,
}

impl Process {
    fn new(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            group: id.and_then(Pid::from_raw),
        }
    }

    /// Returns whether the process exits before the timeout, without reaping it.
    async fn exits(&self) -> bool {
        let Some(process) = self.group else {
            return true;
        };
        let status = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let exited = async {
            while let Ok(None) = waitid(WaitId::Pid(process), status) {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(EXIT_TIMEOUT, exited).await.is_ok()
    }

    /// Ends the process group after the output was `closed` or failed; returns how the process ended, or why it was killed.
    async fn end(mut self, closed: Result<(), String>) -> String {
        let exited = self.exits().await;
        self.kill();
        let status = self.child.wait().await;
        self.group = None;
        match (closed, status) {
            (Err(reason), _) => format!("{reason}, and was killed"),
            (Ok(()), Ok(status)) if exited => format!("the server ended ({status})"),
            (Ok(()), Ok(_)) => format!("{CLOSED}, and was killed"),
            (Ok(()), Err(error)) => format!("cannot wait for the server: {error}"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // The group may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Forwards the lines of standard error.
async fn forward_stderr(stderr: impl AsyncRead + Unpin, inbox: &Inbox) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut reader).take(MAX_STDERR_LINE);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        inbox.log().stderr(line.trim_end().to_owned());
    }
}
