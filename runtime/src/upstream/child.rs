//! A command in, a running server out that is ended with everything it started.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};

use super::quiet::Quiet;

/// What of the host's environment a server gets.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG"];
/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// The longest line of a server's own log that is kept, in bytes.
const LONGEST_LINE: usize = 1024;

/// A server that runs as a program of its own, in a process group of its own.
#[derive(Debug)]
pub(super) struct Child {
    process: Process,
    group: Option<Pid>,
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
        tokio::spawn(logged(Arc::clone(server), stderr));
        Ok((Self { process, group }, stdout, stdin))
    }

    /// Ends the server and whatever it started. Its input is closed by now, so it may end by itself first.
    pub(super) async fn end(mut self) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(GRACE, self.process.wait())
            .await
            .is_ok()
        {
            // Its number may be another's from now on.
            self.group = None;
        }
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
        // As long as nobody waited for the process its number is its own.
        self.signal(Signal::KILL);
    }
}

/// Keeps what the server logs, as far as a log may grow; the rest is read and dropped, so that the server never waits.
async fn logged(server: Arc<str>, mut stderr: impl AsyncRead + Unpin) {
    let mut quiet = Quiet::default();
    let mut chunk = vec![0; 4096];
    let mut line = Vec::new();
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            return;
        }
        for byte in chunk.iter().take(read) {
            if *byte != b'\n' {
                if line.len() < LONGEST_LINE {
                    line.push(*byte);
                }
                continue;
            }
            if quiet.lets_through() {
                let text = String::from_utf8_lossy(&line);
                tracing::debug!(%server, text = %crate::escape(&text), "a server logged");
            }
            line.clear();
        }
    }
}
