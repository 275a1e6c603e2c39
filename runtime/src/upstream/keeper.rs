//! A server in, its connections one after the other out, until it is given up or nobody wants it any more.

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
use super::child::Child;
use super::connect::{ConnectError, Service, connect, either_era, list};
use super::house::House;
use super::line::Line;
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
    Failed(ConnectError),
    Lost(&'static str),
}

/// Keeps one server connected.
pub(super) async fn keep(house: Arc<House>, server: Arc<Server>, mut stop: watch::Receiver<bool>) {
    let mut backoff = Backoff::default();
    let mut handshake_only = false;
    let parted = |state| house.parted(&server, state);
    loop {
        let began = Instant::now();
        let lifecycle = if handshake_only {
            ClientLifecycleMode::Initialize
        } else {
            either_era()
        };
        let name = &server.spec.name;
        match life(&house, &server, lifecycle, &mut stop).await {
            End::Stopped => return parted(ServerState::Stopped),
            End::Failed(error) => {
                // Asked for what it does not know, a program may end, and a server say anything.
                handshake_only = !handshake_only && matches!(error, ConnectError::Terms(_));
                tracing::warn!(server = %name, %error, "a server did not start");
            }
            End::Lost(why) => tracing::warn!(server = %name, why, "a server was lost"),
        }
        let given_up = match signed_in(&house, &server, &mut stop).await {
            Entry::Stopped => return parted(ServerState::Stopped),
            Entry::Open => {
                handshake_only = false;
                continue;
            }
            Entry::Closed => true,
            Entry::Free => false,
        };
        let wait = backoff.ended(began.elapsed());
        let Some(wait) = wait.filter(|_| !given_up) else {
            parted(ServerState::GivenUp);
            backoff = Backoff::default();
            tokio::select! {
                () = stopped(&mut stop) => return parted(ServerState::Stopped),
                () = server.retry.notified() => {
                    afresh(&server);
                    continue;
                }
            }
        };
        parted(ServerState::Waiting);
        tokio::select! {
            () = stopped(&mut stop) => return parted(ServerState::Stopped),
            () = server.retry.notified() => afresh(&server),
            () = sleep(wait) => {}
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

/// One connection from its beginning to its end; whatever was started for it has ended by then.
async fn life(
    house: &Arc<House>,
    server: &Arc<Server>,
    lifecycle: ClientLifecycleMode,
    stop: &mut watch::Receiver<bool>,
) -> End {
    let line = Arc::new(Line::default());
    let mut child = None;
    let begun = async {
        let service = connect(server, lifecycle, &line, &mut child).await?;
        let tools = list(service.peer(), server).await?;
        let tools = server.read(tools).await.ok_or(ConnectError::Late)?;
        Ok((service, tools))
    };
    let begun = tokio::select! {
        () = stopped(stop) => Err(End::Stopped),
        begun = timeout(server.bounds.connect, begun) => {
            begun.unwrap_or(Err(ConnectError::Late)).map_err(End::Failed)
        }
    };
    let (service, tools) = match begun {
        Ok(begun) => begun,
        Err(end) => {
            closed(None, child).await;
            return end;
        }
    };
    server.list(tools);
    let peer = service.peer().clone();
    let live = Live {
        peer: peer.clone(),
        line: Arc::clone(&line),
    };
    house.connected(server, live);
    let end = tokio::select! {
        () = stopped(stop) => End::Stopped,
        why = line.ended() => End::Lost(why),
        never = listening(server, &peer) => match never {},
        why = relisted(house, server, &peer) => End::Lost(why),
    };
    house.parted(server, ServerState::Waiting);
    line.end("the host ended the connection");
    closed(Some(service), child).await;
    end
}

async fn closed(service: Option<Service>, child: Option<Child>) {
    let closing = async {
        if let Some(mut service) = service {
            // What it came to concerns nobody any more.
            let _ = service.close_with_timeout(CLOSING).await;
        }
    };
    let ending = async {
        if let Some(child) = child {
            child.end().await;
        }
    };
    tokio::join!(closing, ending);
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
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(filter).await {
            Ok(mut subscription) => {
                // It may have changed while nobody listened.
                server.changed.notify_one();
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

/// Asks for the tools again whenever they may have changed; ends if the server does not say.
async fn relisted(house: &House, server: &Arc<Server>, peer: &Peer<RoleClient>) -> &'static str {
    loop {
        server.changed.notified().await;
        let listed = async {
            let tools = list(peer, server).await?;
            server.read(tools).await.ok_or(ConnectError::Late)
        };
        let listed = timeout(server.bounds.connect, listed).await;
        match listed.unwrap_or(Err(ConnectError::Late)) {
            Ok(tools) => server.list(tools),
            Err(ConnectError::TooMuch) => return "it lists more tools than it may have",
            Err(_) => return "it does not list its tools",
        }
        house.publish();
        sleep(SETTLE).await;
    }
}
