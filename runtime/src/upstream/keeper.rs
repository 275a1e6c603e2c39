//! A server in, its connections one after the other out, until it is given up or nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

#[cfg(feature = "oauth")]
use super::auth::Settled;
use super::backoff::Backoff;
use super::connect::{ConnectError, Connection, connect, either_era, list};
use super::server::Server;
use super::{House, ServerState};

/// A server that changes its list again and again is asked for it once in this time.
const SETTLE: Duration = Duration::from_millis(500);

/// How one connection ended.
enum End {
    Stopped,
    Failed(ConnectError),
    Lost,
}

/// Keeps one server connected.
pub(super) async fn keep(house: Arc<House>, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let mut backoff = Backoff::default();
    let mut handshake_only = false;
    loop {
        let began = Instant::now();
        let lifecycle = if handshake_only {
            ClientLifecycleMode::Initialize
        } else {
            either_era()
        };
        let name = &server.spec.name;
        match life(&house, &server, lifecycle, &mut stop).await {
            End::Stopped => return server.parted(ServerState::Stopped),
            End::Failed(error) => {
                // Asked for what it does not know, a program may end, and a server say anything.
                handshake_only = !handshake_only && matches!(error, ConnectError::Terms(_));
                tracing::warn!(server = %name, %error, "a server did not start");
            }
            End::Lost => tracing::warn!(server = %name, "a server was lost"),
        }
        let given_up = match signed_in(&server, &mut stop).await {
            Entry::Stopped => return server.parted(ServerState::Stopped),
            Entry::Open => {
                handshake_only = false;
                continue;
            }
            Entry::Closed => true,
            Entry::Free => false,
        };
        let wait = backoff.ended(began.elapsed());
        let Some(wait) = wait.filter(|_| !given_up) else {
            server.parted(ServerState::GivenUp);
            backoff = Backoff::default();
            tokio::select! {
                () = stopped(&mut stop) => return server.parted(ServerState::Stopped),
                () = server.retry.notified() => {
                    #[cfg(feature = "oauth")]
                    if let Some(account) = &server.account {
                        account.afresh();
                    }
                    continue;
                }
            }
        };
        server.parted(ServerState::Waiting);
        tokio::select! {
            () = stopped(&mut stop) => return server.parted(ServerState::Stopped),
            () = server.retry.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

/// How a server stands to whoever would be let in.
#[cfg_attr(not(feature = "oauth"), expect(dead_code, reason = "nobody signs in"))]
enum Entry {
    /// It asked for nobody.
    Free,
    /// A person signed in.
    Open,
    /// Nobody did.
    Closed,
    /// Nobody wants the servers any more.
    Stopped,
}

/// Sees to it that a person signs in where the server wants one.
#[cfg(feature = "oauth")]
async fn signed_in(server: &Server, stop: &mut watch::Receiver<bool>) -> Entry {
    let Some(account) = server.account.as_ref().filter(|account| account.wants()) else {
        return Entry::Free;
    };
    server.parted(ServerState::SigningIn);
    tokio::select! {
        () = stopped(stop) => Entry::Stopped,
        settled = account.settle() => match settled {
            Settled::Nothing => Entry::Free,
            Settled::Done => Entry::Open,
            Settled::Refused => Entry::Closed,
        },
    }
}

#[cfg(not(feature = "oauth"))]
async fn signed_in(_: &Server, _: &mut watch::Receiver<bool>) -> Entry {
    Entry::Free
}

/// Returns once nobody wants the servers any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Whoever could say so is gone: that says it, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One connection from its beginning to its end.
async fn life(
    house: &Arc<House>,
    server: &Arc<Server>,
    lifecycle: ClientLifecycleMode,
    stop: &mut watch::Receiver<bool>,
) -> End {
    let patience = server.bounds.connect;
    let begun = async {
        let connection = connect(server, lifecycle).await?;
        let tools = list(connection.service.peer(), server.bounds.tools).await?;
        Ok((connection, tools))
    };
    let begun = tokio::select! {
        () = stopped(stop) => return End::Stopped,
        begun = timeout(patience, begun) => begun.unwrap_or(Err(ConnectError::Late)),
    };
    let (Connection { service, child }, tools) = match begun {
        Ok(begun) => begun,
        Err(error) => return End::Failed(error),
    };
    server.list(tools);
    house.publish();
    let (peer, ending) = (service.peer().clone(), service.cancellation_token());
    server.connected(peer.clone());
    let end = tokio::select! {
        () = stopped(stop) => End::Stopped,
        _ = service.waiting() => End::Lost,
        () = server.broken.notified() => End::Lost,
        () = told(server, &peer) => End::Lost,
        () = relisted(house, server, &peer) => End::Lost,
    };
    server.parted(ServerState::Waiting);
    ending.cancel();
    if let Some(child) = child {
        child.end().await;
    }
    end
}

/// Hears of changes where a server tells of them only to those that listen; ends never.
async fn told(server: &Server, peer: &Peer<RoleClient>) {
    let info = peer.peer_info();
    let stateless = info.is_some_and(|info| !info.protocol_version.has_initialize());
    if stateless {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        if let Ok(mut subscription) = peer.listen(filter).await {
            while let Ok(Some(_)) = subscription.next().await {
                server.changed.notify_one();
            }
        }
    }
    std::future::pending().await
}

/// Asks for the tools again whenever they may have changed; ends if the server does not say.
async fn relisted(house: &House, server: &Server, peer: &Peer<RoleClient>) {
    loop {
        server.changed.notified().await;
        let listed = timeout(server.bounds.connect, list(peer, server.bounds.tools)).await;
        let Ok(Ok(tools)) = listed else {
            return;
        };
        server.list(tools);
        house.publish();
        sleep(SETTLE).await;
    }
}
