//! A server in, its connections one after the other out, until it is given up or nobody wants it any more.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::connect::{ConnectError, Connection, connect, either_era, list};
use super::server::Server;
use super::spec::Reach;
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
                // A program may end when it is asked for what it does not know.
                let program = matches!(server.spec.reach, Reach::Child { .. });
                handshake_only =
                    program && !handshake_only && matches!(error, ConnectError::Terms(_));
                tracing::warn!(server = %name, %error, "a server did not start");
            }
            End::Lost => tracing::warn!(server = %name, "a server was lost"),
        }
        let Some(wait) = backoff.ended(began.elapsed()) else {
            server.parted(ServerState::GivenUp);
            backoff = Backoff::default();
            tokio::select! {
                () = stopped(&mut stop) => return server.parted(ServerState::Stopped),
                () = server.retry.notified() => continue,
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
        let tools = server.read(tools).await.ok_or(ConnectError::Late)?;
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
async fn relisted(house: &House, server: &Arc<Server>, peer: &Peer<RoleClient>) {
    loop {
        server.changed.notified().await;
        let listed = async {
            let tools = list(peer, server.bounds.tools).await.ok()?;
            server.read(tools).await
        };
        let Ok(Some(tools)) = timeout(server.bounds.connect, listed).await else {
            return;
        };
        server.list(tools);
        house.publish();
        sleep(SETTLE).await;
    }
}
