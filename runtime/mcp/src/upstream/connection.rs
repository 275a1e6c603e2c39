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
use super::backoff::Backoff;
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

/// How one connection ended.
enum End {
    Stopped,
    Failed(ServerFailure),
    Lost(ServerFailure),
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
        let name = &server.spec.name;
        let signals = (&mut retries, &mut stop);
        match run_connection(&registry, &server, &mut handshake_only, signals).await {
            End::Stopped => return disconnected(ServerState::Stopped),
            End::Failed(failure) => {
                // A server that does not know `server/discover` may exit or return any error.
                handshake_only = !handshake_only && failure.may_depend_on_lifecycle();
                tracing::warn!(server = %name, %failure, "a server is not connected");
                server.set_failure(Some(failure));
            }
            End::Lost(failure) => {
                tracing::warn!(server = %name, %failure, "the connection to a server was lost");
                server.set_failure(Some(failure));
            }
        }
        let given_up = match sign_in_if_required(&registry, &server, &mut stop).await {
            SignInResult::Stopped => return disconnected(ServerState::Stopped),
            SignInResult::SignedIn => {
                handshake_only = false;
                continue;
            }
            SignInResult::Refused => {
                server.set_failure(Some(ServerFailure::SignInRequired));
                true
            }
            SignInResult::NotRequired => false,
        };
        let wait = backoff.next_delay(began.elapsed()).filter(|_| !given_up);
        let state = wait.map_or(ServerState::GivenUp, |_| ServerState::Waiting);
        disconnected(state);
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
            () = stopped(&mut stop) => return disconnected(ServerState::Stopped),
            // `server` holds the sender.
            _ = retries.changed() => reset_prompts(&server),
            () = waited => {}
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

/// The result of a sign-in.
enum SignInResult {
    /// The server did not require a sign-in, or nobody could be asked yet.
    NotRequired,
    SignedIn,
    Refused,
    /// The servers are being stopped.
    Stopped,
}

/// Asks a person to sign in if the server requires it.
async fn sign_in_if_required(
    registry: &ServerRegistry,
    server: &Server,
    stop: &mut watch::Receiver<bool>,
) -> SignInResult {
    let account = server.account.as_ref();
    let Some(account) = account.filter(|account| account.needs_sign_in()) else {
        return SignInResult::NotRequired;
    };
    registry.disconnected(server, ServerState::SigningIn);
    tokio::select! {
        () = stopped(stop) => SignInResult::Stopped,
        outcome = account.sign_in() => match outcome {
            SignInOutcome::NotNeeded => SignInResult::NotRequired,
            SignInOutcome::Completed => SignInResult::SignedIn,
            SignInOutcome::Refused => SignInResult::Refused,
        },
    }
}

/// Returns when the servers are being stopped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A closed channel means shutdown, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Runs one connection from start to end, and stops everything that was started for it. Sets `handshake_only` if the
/// server requires a handshake, for the next connection.
async fn run_connection(
    registry: &Arc<ServerRegistry>,
    server: &Arc<Server>,
    handshake_only: &mut bool,
    (retries, stop): (&mut watch::Receiver<()>, &mut watch::Receiver<bool>),
) -> End {
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
        () = stopped(stop) => Err(End::Stopped),
        started = timeout(limit, started) => {
            started.unwrap_or(Err(ServerFailure::Timeout(limit))).map_err(End::Failed)
        }
    };
    let service = match started {
        Ok(started) => started,
        Err(end) => return close(None, resources, end).await,
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
        () = stopped(stop) => End::Stopped,
        why = state.ended() => End::Lost(why),
        never = listen_for_changes(server, &peer) => match never {},
        never = refresh_catalog(registry, server, &peer) => match never {},
        why = refresh_tools(registry, server, &peer, &state) => End::Lost(why),
    };
    registry.disconnected(server, ServerState::Waiting);
    state.end(ServerFailure::Ended);
    close(Some(service), resources, end).await
}

/// Closes the connection and stops its process. Replaces the cause by the exit status, if the process exited.
async fn close(service: Option<Service>, mut resources: ConnectionResources, end: End) -> End {
    let cause = match &end {
        End::Failed(ServerFailure::Closed) | End::Lost(ServerFailure::Closed) => {
            resources.exit_cause().await
        }
        _ => None,
    };
    let closing = async {
        if let Some(mut service) = service {
            // The result is irrelevant.
            let _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
        }
    };
    tokio::join!(closing, resources.end_child());
    match (end, cause) {
        (End::Failed(_), Some(cause)) => End::Failed(cause),
        (End::Lost(_), Some(cause)) => End::Lost(cause),
        (end, _) => end,
    }
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
