//! Transfers bytes between a program and its target.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::request::{Client, Kind};

/// Size of the buffer of each direction.
const BUFFER: usize = 16 << 10;

/// Answers the request of a program that is connected, and transfers bytes until both directions are closed.
pub(super) async fn relay(
    mut client: Client,
    mut server: TcpStream,
    kind: &Kind,
    sent: &AtomicU64,
    received: &AtomicU64,
) -> io::Result<()> {
    if let Kind::Forward { head } = kind {
        server.write_all(head).await?;
        sent.fetch_add(head.len() as u64, Ordering::Relaxed);
    } else {
        client.accept(kind).await?;
    }
    let (from_server, to_server) = server.into_split();
    let to = copy(client.reader, to_server, sent);
    let from = copy(from_server, client.writer, received);
    tokio::try_join!(to, from)?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    counter: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..length).unwrap_or_default())
            .await?;
        counter.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Waits until no counter changes for the given time, or for up to twice that time.
pub(super) async fn idle(counters: [&AtomicU64; 2], time: Duration) {
    let read = || counters.map(|counter| counter.load(Ordering::Relaxed));
    loop {
        let before = read();
        tokio::time::sleep(time).await;
        if read() == before {
            return;
        }
    }
}
