//! A command in, a connection to the process that it starts out.

use std::process::Stdio;
use std::time::Duration;

use bailiwick_examples::Failure;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::link::{self, Incoming, Link};

/// How long a process has to end once it closed its output.
const GRACE: Duration = Duration::from_secs(2);

/// Starts the process. It ends when its input is closed, or is ended by its id if it does not, or if the link is dropped.
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
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the process has no standard streams".into());
    };
    let (mut link, sent, received) = Link::new();
    link.tasks.spawn(link::write(stdin, sent));
    link.tasks.spawn(said(stderr, received.clone()));
    link.tasks.spawn(async move {
        link::read(stdout, &received).await;
        let reason = ended(child).await;
        // Nobody listens any more if it fails.
        let _ = received.send(Incoming::Ended(reason)).await;
    });
    Ok(link)
}

async fn ended(mut child: Child) -> String {
    match timeout(GRACE, child.wait()).await {
        Ok(Ok(status)) => format!("the server ended ({status})"),
        Ok(Err(error)) => format!("the server is lost: {error}"),
        Err(_) => match child.kill().await {
            Ok(()) => "the server closed its output, and was ended".to_owned(),
            Err(error) => format!("the server closed its output and cannot be ended: {error}"),
        },
    }
}

async fn said(stderr: impl AsyncRead + Unpin, received: mpsc::Sender<Incoming>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if received.send(Incoming::Said(line)).await.is_err() {
            return;
        }
    }
}
