//! Keeps a server connected until it is given up or stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient, ServiceError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::ServerState;
#[cfg(feature = "oauth")]
use super::auth::Settled;
use super::backoff::Backoff;
use super::catalog::catalog;
use super::connect::{Resources, Service, connect, either_era, list};
use super::failure::ServerFailure;
use super::house::House;
use super::line::Line;
use super::pin_store::PinStore;
use super::server::{Live, Server};

/// A server that changes its list again and again is asked for it once in this time.
const SETTLE: Duration = Duration::from_millis(500);
/// How long it takes at most until a server that ends what is listened to is asked for it again.
const RELISTEN: Duration = Duration::from_secs(60);
/// How long a connection may take to end.
const CLOSING: Duration = Duration::from_secs(2);

/// How one connection ended.
enum End {
    Stopped,
    Failed(ServerFailure),
    Lost(ServerFailure),
}

/// Keeps one server connected.
pub(super) async fn keep(house: Arc<House>, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let mut backoff = Backoff::default();
    let mut handshake_only = false;
    let mut retries = server.retries();
    let parted = |state| house.parted(&server, state);
    loop {
        let began = Instant::now();
        let name = &server.spec.name;
        let told = (&mut retries, &mut stop);
        match life(&house, &server, &mut handshake_only, told).await {
            End::Stopped => return parted(ServerState::Stopped),
            End::Failed(failure) => {
                // Asked for what it does not know, a program may end, and a server say anything.
                handshake_only = !handshake_only && failure.is_of_lifecycle();
                tracing::warn!(server = %name, %failure, "a server is not connected");
                server.set_failure(Some(failure));
            }
            End::Lost(failure) => {
                tracing::warn!(server = %name, %failure, "the connection to a server was lost");
                server.set_failure(Some(failure));
            }
        }
        let given_up = match signed_in(&house, &server, &mut stop).await {
            Entry::Stopped => return parted(ServerState::Stopped),
            Entry::Open => {
                handshake_only = false;
                continue;
            }
            Entry::Closed => {
                server.set_failure(Some(ServerFailure::SignInRequired));
                true
            }
            Entry::Free => false,
        };
        let wait = backoff.ended(began.elapsed()).filter(|_| !given_up);
        let state = wait.map_or(ServerState::GivenUp, |_| ServerState::Waiting);
        parted(state);
        if wait.is_none() {
            backoff = Backoff::default();
        }
        let waited = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stopped(&mut stop) => return parted(ServerState::Stopped),
            // The server holds the sender.
            _ = retries.changed() => afresh(&server),
            () = waited => {}
        }
    }
}

/// Takes up the forms of tools that other processes approve, for as long as the servers are there.
pub(super) async fn follow_pins(
    house: Arc<House>,
    store: Arc<PinStore>,
    mut stop: watch::Receiver<bool>,
) {
    let mut changes = match store.changes() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "what other processes approve counts from the next start");
            return;
        }
    };
    loop {
        // What was stored before the watch began counts, too.
        let read = Arc::clone(&store);
        let read = tokio::task::spawn_blocking(move || read.reload()).await;
        if let Ok(Err(error)) = read {
            tracing::warn!(%error, "what another process approved does not count yet");
        }
        let mut changed = false;
        for server in &house.servers {
            changed |= server.reload_pins().await;
        }
        if changed {
            house.publish();
        }
        tokio::select! {
            () = stopped(&mut stop) => return,
            changed = changes.next() => {
                if changed.is_none() {
                    return;
                }
            }
        }
    }
}

/// A person wants a server tried again, and may be asked again what they were asked.
fn afresh(server: &Server) {
    #[cfg(feature = "oauth")]
    if let Some(account) = &server.account {
        account.afresh();
    }
    #[cfg(not(feature = "oauth"))]
    let _ = server;
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
async fn signed_in(house: &House, server: &Server, stop: &mut watch::Receiver<bool>) -> Entry {
    let Some(account) = server.account.as_ref().filter(|account| account.wants()) else {
        return Entry::Free;
    };
    house.parted(server, ServerState::SigningIn);
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
async fn signed_in(_: &House, _: &Server, _: &mut watch::Receiver<bool>) -> Entry {
    Entry::Free
}

/// Returns once nobody wants the servers any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Whoever could say so is gone: that says it, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// One connection from its beginning to its end; whatever was started for it has ended by then. `handshake_only` becomes
/// whether the server turned out to want a handshake, which the next connection then begins with.
async fn life(
    house: &Arc<House>,
    server: &Arc<Server>,
    handshake_only: &mut bool,
    (retries, stop): (&mut watch::Receiver<()>, &mut watch::Receiver<bool>),
) -> End {
    let line = Arc::new(Line::default());
    let mut resources = Resources::default();
    let lifecycle = if *handshake_only {
        ClientLifecycleMode::Initialize
    } else {
        either_era()
    };
    let begun = async {
        let service = connect(server, lifecycle, &line, &mut resources).await?;
        let tools = list(service.peer(), server, &line).await?;
        server.take(tools).await?;
        server.set_catalog(catalog(server, service.peer()).await);
        Ok(service)
    };
    let most = server.bounds.connect;
    let begun = tokio::select! {
        () = stopped(stop) => Err(End::Stopped),
        begun = timeout(most, begun) => {
            begun.unwrap_or(Err(ServerFailure::Timeout(most))).map_err(End::Failed)
        }
    };
    let service = match begun {
        Ok(begun) => begun,
        Err(end) => return closed(None, resources, end).await,
    };
    let peer = service.peer().clone();
    let info = peer.peer_info();
    *handshake_only = info.is_none_or(|info| info.protocol_version.has_initialize());
    server.set_failure(None);
    let live = Live {
        peer: peer.clone(),
        line: Arc::clone(&line),
    };
    house.connected(server, live);
    // Whoever wanted it tried again has what they wanted.
    retries.mark_unchanged();
    let end = tokio::select! {
        () = stopped(stop) => End::Stopped,
        why = line.ended() => End::Lost(why),
        never = listening(server, &peer) => match never {},
        never = catalogued(house, server, &peer) => match never {},
        why = relisted(house, server, &peer, &line) => End::Lost(why),
    };
    house.parted(server, ServerState::Waiting);
    line.end(ServerFailure::Ended);
    closed(Some(service), resources, end).await
}

/// Ends what a connection consists of. Returns how it ended, by the end of its program if that is why.
async fn closed(service: Option<Service>, mut resources: Resources, end: End) -> End {
    let cause = match &end {
        End::Failed(ServerFailure::Closed) | End::Lost(ServerFailure::Closed) => {
            resources.exit_cause().await
        }
        _ => None,
    };
    let closing = async {
        if let Some(mut service) = service {
            // What it came to concerns nobody any more.
            let _ = service.close_with_timeout(CLOSING).await;
        }
    };
    tokio::join!(closing, resources.end_child());
    match (end, cause) {
        (End::Failed(_), Some(cause)) => End::Failed(cause),
        (End::Lost(_), Some(cause)) => End::Lost(cause),
        (end, _) => end,
    }
}

/// Hears of changes where a server tells of them only to those that listen, for as long as the connection lasts.
async fn listening(server: &Server, peer: &Peer<RoleClient>) -> Infallible {
    let info = peer.peer_info();
    let stateless = info.is_some_and(|info| !info.protocol_version.has_initialize());
    if !stateless {
        return std::future::pending().await;
    }
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        let filter = SubscriptionFilter::builder()
            .tools_list_changed()
            .resources_list_changed()
            .prompts_list_changed()
            .build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                // It may have changed while nobody listened.
                server.changed.notify_one();
                server.catalog_changed.notify_one();
                // What it tells is heard before it comes here; this waits for the end.
                while let Ok(Some(_)) = subscription.next().await {}
            }
            // It does not offer this.
            Err(ServiceError::McpError(_)) => return std::future::pending().await,
            Err(_) => {}
        }
        sleep(backoff.ended(began.elapsed()).unwrap_or(RELISTEN)).await;
    }
}

/// Asks for resources and prompts again whenever they may have changed.
async fn catalogued(house: &House, server: &Server, peer: &Peer<RoleClient>) -> Infallible {
    loop {
        server.catalog_changed.notified().await;
        server.set_catalog(catalog(server, peer).await);
        house.publish();
        sleep(SETTLE).await;
    }
}

/// Asks for the tools again whenever they may have changed; ends if the server does not say.
async fn relisted(
    house: &House,
    server: &Arc<Server>,
    peer: &Peer<RoleClient>,
    line: &Line,
) -> ServerFailure {
    let most = server.bounds.connect;
    loop {
        server.changed.notified().await;
        let listed = async { server.take(list(peer, server, line).await?).await };
        let listed = timeout(most, listed).await;
        if let Err(failure) = listed.unwrap_or(Err(ServerFailure::Timeout(most))) {
            return failure;
        }
        house.publish();
        sleep(SETTLE).await;
    }
}
