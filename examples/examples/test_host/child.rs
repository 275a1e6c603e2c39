//! A command in, a connection to the process that it starts out.

use std::process::Stdio;
use std::time::Duration;

use bailiwick_examples::Failure;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::link::{self, Incoming, Link};

/// How long a process has to end once it closed its output.
const GRACE: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);
/// The longest line of its standard error that is shown as one.
const MOST_SAID: u64 = 64 << 10;

/// Starts the process. It ends when its input is closed; if it does not, or the link is dropped, it is ended with its group.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn start(command: &[String]) -> Result<Link, Failure> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the process has no standard streams".into());
    };
    let process = Process::of(child);
    let (mut link, sent, received) = Link::new();
    link.tasks.spawn(link::write(stdin, sent));
    link.tasks.spawn(said(stderr, received.clone()));
    link.tasks.spawn(async move {
        link::read(stdout, &received).await;
        let reason = process.ended().await;
        // Nobody listens any more if it fails.
        let _ = received.send(Incoming::Ended(reason)).await;
    });
    Ok(link)
}

/// A process and the group that it began; all of that ends with it.
struct Process {
    child: Child,
    /// The number of both. It is nobody else's until the process is waited for.
    group: Option<Pid>,
}

impl Process {
    fn of(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self {
            child,
            group: id.and_then(Pid::from_raw),
        }
    }

    /// Waits until it ended by itself, for as long as it may take; whether it did.
    async fn exited(&self) -> bool {
        let Some(process) = self.group else {
            return true;
        };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let exited = async {
            while let Ok(None) = waitid(WaitId::Pid(process), look) {
                sleep(LOOK).await;
            }
        };
        timeout(GRACE, exited).await.is_ok()
    }

    /// Ends what is left of it, and says how it ended.
    async fn ended(mut self) -> String {
        let by_itself = self.exited().await;
        self.kill();
        let status = self.child.wait().await;
        self.group = None;
        match status {
            Ok(status) if by_itself => format!("the server ended ({status})"),
            Ok(_) => "the server closed its output, and was ended".to_owned(),
            Err(error) => format!("the server is lost: {error}"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // A group that is gone needs no signal.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn said(stderr: impl AsyncRead + Unpin, received: mpsc::Sender<Incoming>) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        let mut piece = (&mut reader).take(MOST_SAID);
        match piece.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if received.send(Incoming::Said(line)).await.is_err() {
            return;
        }
    }
}
