//! Keeps a server connected until it is given up or stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use rmcp::service::{ClientLifecycleMode, Peer, RoleClient, ServiceError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::ServerState;
use super::auth::SignInOutcome;
use super::catalog::catalog;
use super::connect::{ConnectionResources, Service, any_version, connect, list_tools};
use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::pin_store::PinStore;
use super::registry::ServerRegistry;
use super::server::{Connection, Server};

/// The shortest interval between refreshes of a list.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// The longest delay before a closed subscription is opened again.
const MAX_RELISTEN_DELAY: Duration = Duration::from_secs(60);
/// How long a connection may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest and the longest delay before a server is connected again.
const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The number of consecutive failures after which a server is given up.
const MAX_FAILURES: u32 = 10;
/// A connection that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Exponential backoff: counts consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Registers the end of a connection after `uptime`. Returns the delay before the next attempt, or `None` to give
    /// up.
    fn next_delay(&mut self, uptime: Duration) -> Option<Duration> {
        if uptime >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures += 1;
        let delay = MIN_DELAY.saturating_mul(1 << (self.failures - 1).min(16));
        (self.failures <= MAX_FAILURES).then(|| delay.min(MAX_DELAY))
    }
}

/// Runs the connection task of one server.
pub(super) async fn supervise(
    registry: Arc<ServerRegistry>,
    server: Arc<Server>,
    mut stop: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::default();
    let mut handshake_only = false;
    let mut retries = server.retries();
    let disconnected = |state| registry.disconnected(&server, state);
    loop {
        let began = Instant::now();
        let signals = (&mut retries, &mut stop);
        let end = run_connection(&registry, &server, &mut handshake_only, signals).await;
        let Some(failure) = end else {
            return disconnected(ServerState::Stopped);
        };
        tracing::warn!(server = %server.spec.name, %failure, "a server is not connected");
        server.set_failure(Some(failure));
        let given_up = match sign_in(&registry, &server, &mut stop).await {
            None => return disconnected(ServerState::Stopped),
            Some(SignInOutcome::Completed) => {
                handshake_only = false;
                continue;
            }
            Some(SignInOutcome::Refused) => {
                server.set_failure(Some(ServerFailure::SignInRequired));
                true
            }
            Some(SignInOutcome::NotNeeded) => false,
        };
        let wait = backoff.next_delay(began.elapsed()).filter(|_| !given_up);
        let state = wait.map_or(ServerState::GivenUp, |_| ServerState::Waiting);
        disconnected(state);
        if wait.is_none() {
            backoff = Backoff::default();
        }
        tokio::select! {
            () = stopped(&mut stop) => return disconnected(ServerState::Stopped),
            // `server` holds the sender.
            _ = retries.changed() => reset_prompts(&server),
            () = sleep(wait.unwrap_or(Duration::MAX)) => {}
        }
    }
}

/// Reloads the pin store when other processes approve tools, until shutdown.
pub(super) async fn follow_pins(
    registry: Arc<ServerRegistry>,
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
        // Includes changes stored before the watch started.
        let read = Arc::clone(&store);
        let read = tokio::task::spawn_blocking(move || read.reload()).await;
        if let Ok(Err(error)) = read {
            tracing::warn!(%error, "what another process approved does not count yet");
        }
        let mut changed = false;
        for server in &registry.servers {
            changed |= server.reload_pins().await;
        }
        if changed {
            registry.publish();
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

/// Allows another sign-in prompt, because a person retries the server.
fn reset_prompts(server: &Server) {
    if let Some(account) = &server.account {
        account.reset_prompts();
    }
}

/// Asks a person to sign in if the server requires it; `None` if the servers are being stopped.
async fn sign_in(
    registry: &ServerRegistry,
    server: &Server,
    stop: &mut watch::Receiver<bool>,
) -> Option<SignInOutcome> {
    let account = server.account.as_ref();
    let Some(account) = account.filter(|account| account.needs_sign_in()) else {
        return Some(SignInOutcome::NotNeeded);
    };
    registry.disconnected(server, ServerState::SigningIn);
    tokio::select! {
        () = stopped(stop) => None,
        outcome = account.sign_in() => Some(outcome),
    }
}

/// Returns when the servers are being stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A closed channel means shutdown, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Runs one connection from start to end, and stops everything that was started for it. Returns why it failed or ended,
/// or `None` if the servers are being stopped. Sets `handshake_only` if the next connection requires a handshake.
async fn run_connection(
    registry: &Arc<ServerRegistry>,
    server: &Arc<Server>,
    handshake_only: &mut bool,
    (retries, stop): (&mut watch::Receiver<()>, &mut watch::Receiver<bool>),
) -> Option<ServerFailure> {
    let state = Arc::new(ConnectionState::default());
    let mut resources = ConnectionResources::default();
    let lifecycle = if *handshake_only {
        ClientLifecycleMode::Initialize
    } else {
        any_version()
    };
    let started = async {
        let service = connect(server, lifecycle, &state, &mut resources).await?;
        let tools = list_tools(service.peer(), server, &state).await?;
        server.set_tools(tools).await?;
        server.set_catalog(catalog(server, service.peer()).await);
        Ok(service)
    };
    let limit = server.bounds.connect;
    let started = tokio::select! {
        () = stopped(stop) => Err(None),
        started = timeout(limit, started) => {
            started.unwrap_or(Err(ServerFailure::Timeout(limit))).map_err(Some)
        }
    };
    let service = match started {
        Ok(started) => started,
        Err(failure) => {
            // A server that does not know `server/discover` may exit or return any error.
            let may_depend = failure.as_ref().map(ServerFailure::may_depend_on_lifecycle);
            *handshake_only = !*handshake_only && may_depend == Some(true);
            return close(None, resources, failure).await;
        }
    };
    let peer = service.peer().clone();
    let info = peer.peer_info();
    *handshake_only = info.is_none_or(|info| info.protocol_version.has_initialize());
    server.set_failure(None);
    let connection = Connection {
        peer: peer.clone(),
        state: Arc::clone(&state),
    };
    registry.connected(server, connection);
    // Pending retries are satisfied by this connection.
    retries.mark_unchanged();
    let end = tokio::select! {
        () = stopped(stop) => None,
        why = state.ended() => Some(why),
        never = listen_for_changes(server, &peer) => match never {},
        never = refresh_catalog(registry, server, &peer) => match never {},
        why = refresh_tools(registry, server, &peer, &state) => Some(why),
    };
    registry.disconnected(server, ServerState::Waiting);
    state.end(ServerFailure::Ended);
    close(Some(service), resources, end).await
}

/// Closes the connection and stops its process. Replaces the cause by the exit status, if the process exited.
async fn close(
    service: Option<Service>,
    mut resources: ConnectionResources,
    mut cause: Option<ServerFailure>,
) -> Option<ServerFailure> {
    let child = resources.child.take();
    if let (Some(ServerFailure::Closed), Some(child)) = (&cause, &child) {
        cause = child.exit_cause().await.or(cause);
    }
    let closing = async {
        if let Some(mut service) = service {
            // The result is irrelevant.
            let _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
        }
    };
    let ending = async {
        if let Some(child) = child {
            child.end().await;
        }
    };
    tokio::join!(closing, ending);
    cause
}

/// Subscribes to list changes at stateless servers, for the lifetime of the connection.
async fn listen_for_changes(server: &Server, peer: &Peer<RoleClient>) -> Infallible {
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
                // The lists may have changed before the subscription.
                server.changed.notify_one();
                server.catalog_changed.notify_one();
                // The transport handles the notifications; this waits for the end.
                while let Ok(Some(_)) = subscription.next().await {}
            }
            // Subscriptions are not supported.
            Err(ServiceError::McpError(_)) => return std::future::pending().await,
            Err(_) => {}
        }
        let delay = backoff.next_delay(began.elapsed());
        sleep(delay.unwrap_or(MAX_RELISTEN_DELAY)).await;
    }
}

/// Refreshes resources and prompts after changes.
async fn refresh_catalog(
    registry: &ServerRegistry,
    server: &Server,
    peer: &Peer<RoleClient>,
) -> Infallible {
    loop {
        server.catalog_changed.notified().await;
        server.set_catalog(catalog(server, peer).await);
        registry.publish();
        sleep(REFRESH_INTERVAL).await;
    }
}

/// Refreshes the tools after changes; returns if the server fails to list them.
async fn refresh_tools(
    registry: &ServerRegistry,
    server: &Arc<Server>,
    peer: &Peer<RoleClient>,
    state: &ConnectionState,
) -> ServerFailure {
    let limit = server.bounds.connect;
    loop {
        server.changed.notified().await;
        let listed = async {
            let tools = list_tools(peer, server, state).await?;
            server.set_tools(tools).await
        };
        let listed = timeout(limit, listed).await;
        if let Err(failure) = listed.unwrap_or(Err(ServerFailure::Timeout(limit))) {
            return failure;
        }
        registry.publish();
        sleep(REFRESH_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::from_fn(|| backoff.next_delay(Duration::ZERO)).collect();
        assert_eq!(waits.len(), MAX_FAILURES as usize);
        assert_eq!(waits.first(), Some(&MIN_DELAY));
        assert_eq!(waits.last(), Some(&MAX_DELAY));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn stable_server_resets_the_backoff() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.next_delay(Duration::ZERO);
        }
        assert_eq!(backoff.next_delay(STABLE_AFTER), Some(MIN_DELAY));
        assert_eq!(backoff.next_delay(Duration::ZERO), Some(MIN_DELAY * 2));
    }
}
