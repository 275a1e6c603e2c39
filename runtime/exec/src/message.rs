//! Messages between the host and its helpers, over a socket pair.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use crate::error::Stage;
use crate::spec::Layer;

/// Maximum length of a message, in bytes.
const MAX_LENGTH: usize = 8 << 20;
/// Maximum number of descriptors in a message.
const MAX_DESCRIPTORS: usize = 8;

/// What a helper reports to the host, one JSON object per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The helper waits for the description of the sandbox.
    Ready,
    /// The sandbox has these layers, and not those that are missing, for these reasons. The helper waits for [`GO`].
    Built {
        layers: Vec<Layer>,
        missing: Vec<(Layer, String)>,
    },
    /// The program was started.
    Started,
    /// A required layer is missing; the program was not started.
    Missing { layer: Layer, reason: String },
    /// Directories exceed this limit of copies; the program was not started.
    TooLarge { limit: String },
    /// A step failed; the program was not started.
    Failed { stage: Stage, message: String },
    /// The program ended with this wait status.
    Exited { status: i32 },
    /// All processes took this CPU time so far; the last report includes those that have ended. They use this memory, in
    /// bytes.
    Used { cpu: Duration, memory: u64 },
}

/// What the host sends when the program may start.
pub(crate) const GO: u8 = b'g';

/// Sends a length-prefixed message with descriptors.
pub(crate) fn send(socket: &UnixStream, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_head(socket, body.len(), fds)?;
    let mut socket = socket;
    socket.write_all(body)
}

/// Sends the length of a message, and the descriptors.
pub(crate) fn send_head(
    socket: impl AsFd,
    length: usize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let prefix = length.to_be_bytes();
    let sent = rustix::net::sendmsg(
        socket,
        &[IoSlice::new(&prefix)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    if sent != prefix.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// Waits until the program may start.
pub(crate) fn wait_for_go(socket: &UnixStream) -> io::Result<()> {
    let mut go = [0];
    let mut socket = socket;
    socket.read_exact(&mut go)?;
    if go == [GO] {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Receives a message of [`send`].
pub(crate) fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut prefix = [0; 4];
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut prefix)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes != prefix.len() || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let length = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
    if length > MAX_LENGTH {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    let mut socket = socket;
    socket.read_exact(&mut body)?;
    Ok((body, fds))
}

/// Sends a report. A host that is gone does not read it.
pub(crate) fn report(socket: &UnixStream, report: &Report) {
    let mut socket = socket;
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = socket.write_all(&line);
    }
}
