//! The standard streams of a command.

use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bailiwick::tool::{Act, ActProgress};
use bailiwick::worker::Usage;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::output::Excerpt;
use crate::process::Stdio;

/// Bytes of each output stream that are kept at its beginning, and at its end.
const KEPT_OUTPUT: usize = 16 << 10;
/// The same for the artifacts that people can read.
const LONG_OUTPUT: usize = 512 << 10;
/// Maximum length of a line in a progress message, in bytes.
const MAX_LINE: usize = 1 << 10;

/// The standard streams of a command, and the tasks that record its output.
pub(super) struct Streams {
    pub(super) stdio: Stdio,
    pub(super) stdout: JoinHandle<Output>,
    pub(super) stderr: JoinHandle<Output>,
}

impl Streams {
    /// The streams of this process if `inherit` is set; otherwise `stdin` is the text for standard input, and the output
    /// is recorded.
    pub(super) fn new(
        inherit: bool,
        stdin: &str,
        progress: &ActProgress,
        act: &Arc<Act>,
    ) -> io::Result<Self> {
        let (stdin, (stdout, stdout_end), (stderr, stderr_end)) = if inherit {
            let stdin = io::stdin().as_fd().try_clone_to_owned()?;
            (stdin, unrecorded(io::stdout())?, unrecorded(io::stderr())?)
        } else {
            let stdin = input(stdin)?;
            let stream = || stream(progress.clone(), Arc::clone(act));
            (stdin, stream()?, stream()?)
        };
        let stdio = Stdio {
            stdin,
            stdout: stdout_end,
            stderr: stderr_end,
        };
        Ok(Self {
            stdio,
            stdout,
            stderr,
        })
    }
}

/// The beginning and the end of an output stream.
pub(super) struct Output {
    /// For the reply.
    pub(super) short: Excerpt,
    /// For people.
    pub(super) long: Excerpt,
}

/// Reads a stream of the command until its end.
fn stream(progress: ActProgress, act: Arc<Act>) -> io::Result<(JoinHandle<Output>, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    let mut reader = pipe::Receiver::from_owned_fd(reader.into())?;
    let read = async move {
        let [short, long] = [KEPT_OUTPUT, LONG_OUTPUT].map(Excerpt::new);
        let mut output = Output { short, long };
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            let bytes = buffer.get(..length).unwrap_or_default();
            output.short.push(bytes);
            output.long.push(bytes);
            // If that exceeds the budget, the command is killed when it is charged next.
            let _ = act.charge(Usage {
                output_bytes: bytes.len() as u64,
                ..Usage::default()
            });
            if let Some(line) = last_line(bytes) {
                progress.message(&line);
            }
            progress.step();
        }
        output
    };
    Ok((tokio::spawn(read), writer.into()))
}

/// The last line that is not blank, as far as it is near the end.
fn last_line(bytes: &[u8]) -> Option<String> {
    let end = bytes.len().saturating_sub(MAX_LINE);
    let text = String::from_utf8_lossy(bytes.get(end..)?);
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_owned)
}

/// A stream of this process, of which nothing is recorded.
fn unrecorded(stream: impl AsFd) -> io::Result<(JoinHandle<Output>, OwnedFd)> {
    let stream = stream.as_fd().try_clone_to_owned()?;
    let [short, long] = [0, 0].map(Excerpt::new);
    Ok((tokio::spawn(async { Output { short, long } }), stream))
}

/// A file in memory with the text for standard input.
fn input(text: &str) -> io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("stdin", flags)?);
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
