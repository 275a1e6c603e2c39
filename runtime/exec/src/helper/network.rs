//! The network of a sandbox: a loopback interface on which the proxy of the host listens.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::proxy::PORT;

/// Index of the loopback interface of each namespace.
const LOOPBACK: i32 = 1;

/// Listens on the loopback interface. The socket is for the proxy of the host.
pub(super) fn listen() -> io::Result<OwnedFd> {
    raise_loopback()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT))?;
    Ok(listener.into())
}

/// Raises the loopback interface with a message of the routing protocol of netlink.
fn raise_loopback() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &raise_request(), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 64];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    match error_number(answer) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `RTM_NEWLINK` for the loopback interface: a header (length, type, flags, number, sender) and the interface (family,
/// type, index, flags, changed flags).
fn raise_request() -> Vec<u8> {
    const LENGTH: u32 = 32;
    // `NLM_F_REQUEST` and `NLM_F_ACK`.
    const FLAGS: u16 = 1 | 4;
    let up = libc::IFF_UP.cast_unsigned();
    let mut request = Vec::new();
    request.extend(LENGTH.to_ne_bytes());
    request.extend(libc::RTM_NEWLINK.to_ne_bytes());
    request.extend(FLAGS.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(LOOPBACK.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    request
}

/// The error number of an answer, which follows its header of 16 bytes and is negative or 0.
fn error_number(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..6)?.try_into().ok()?;
    let number = answer.get(16..20)?.try_into().ok()?;
    (i32::from(u16::from_ne_bytes(kind)) == libc::NLMSG_ERROR).then(|| i32::from_ne_bytes(number))
}
