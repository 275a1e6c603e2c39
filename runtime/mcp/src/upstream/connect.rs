//! Connects to a server with a protocol version that both sides support.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use rmcp::ClientHandler as _;
use rmcp::model::{ProtocolVersion, Tool};
use rmcp::service::{
    ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::child::Child;
use super::client::Client;
use super::connection_state::ConnectionState;
use super::discovery::wait_for_start;
use super::failure::ServerFailure;
use super::http::HttpThread;
use super::line_reader::MaxLineReader;
use super::pagination::{ListError, ListLimit, list_all};
use super::server::Server;
use super::spec::TransportConfig;
use super::transport::{BoundedTransport, WriteFailure};

/// A program that has read `server/discover` must answer it within the connect timeout divided by this number.
/// Otherwise it gets a handshake.
const DISCOVER_TIMEOUT_DIVISOR: u32 = 6;

pub(super) type Service = RunningService<RoleClient, Client>;

/// The resources of a connection besides the connection itself.
#[derive(Debug, Default)]
pub(super) struct ConnectionResources {
    pub(super) child: Option<Child>,
    /// The thread that runs the HTTP transport. It sends the end of the session.
    thread: Option<HttpThread>,
}

/// Connects to a server. Started processes and threads are stored in `resources` even on failure.
pub(super) async fn connect(
    server: &Arc<Server>,
    mut lifecycle: ClientLifecycleMode,
    state: &Arc<ConnectionState>,
    resources: &mut ConnectionResources,
) -> Result<Service, ServerFailure> {
    let client = Client::new(server, state);
    let served = match &server.spec.transport {
        TransportConfig::Child {
            command,
            args,
            env,
            folder,
        } => {
            let name = server.spec.name.as_str().into();
            let child = Child::start(&name, command, args, env, folder.as_ref());
            let (child, stdout, stdin) =
                child.map_err(|error| ServerFailure::Start(error.kind()))?;
            resources.child = Some(child);
            let input = stdin.as_fd().try_clone_to_owned();
            let input = input.map_err(|error| ServerFailure::Start(error.kind()))?;
            let reader = MaxLineReader::new(stdout, server.bounds.message_bytes, state);
            let transport = AsyncRwTransport::new_client(reader, stdin);
            // `MaxLineReader` enforces the limit.
            let mut transport = transport.with_max_line_length(usize::MAX);
            let mut pending_discovery = None;
            if matches!(lifecycle, ClientLifecycleMode::Auto { .. }) {
                let discover_timeout = server.bounds.connect / DISCOVER_TIMEOUT_DIVISOR;
                pending_discovery =
                    wait_for_start(&mut transport, input, client.get_info(), discover_timeout)
                        .await;
            }
            if pending_discovery.is_some() {
                lifecycle = ClientLifecycleMode::Initialize;
            }
            let transport = BoundedTransport::new(transport, server, state, WriteFailure::Fatal);
            let transport = transport.ignoring_response_to(pending_discovery);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
        TransportConfig::Http(config) => {
            let (thread, transport) = super::http::transport(server, config, state)?;
            resources.thread = Some(thread);
            let transport =
                BoundedTransport::new(transport, server, state, WriteFailure::PerRequest);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
    };
    let service = served.map_err(|error| {
        // A failure of the transport is more specific than the handshake error.
        let cause = state.request_failure().or_else(|| state.end_cause());
        let cause = cause.filter(|cause| *cause != ServerFailure::Closed);
        cause.unwrap_or_else(|| ServerFailure::of_handshake(&error))
    })?;
    // Results depend on metadata that the response cache ignores.
    let cache = ClientCacheConfig::disabled();
    service.peer().set_response_cache_config(cache).await;
    Ok(service)
}

/// Tries the newest protocol version first, and falls back to a handshake.
pub(super) fn any_version() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// Lists all tools of the server, or fails.
pub(super) async fn list_tools(
    peer: &Peer<RoleClient>,
    server: &Server,
    state: &ConnectionState,
) -> Result<Vec<Tool>, ServerFailure> {
    let limit = ListLimit {
        items: server.bounds.max_listed(),
        bytes: server.bounds.message_bytes,
    };
    let listed = list_all(limit, |page| async {
        let page = peer.list_tools(Some(page)).await?;
        Ok((page.tools, page.next_cursor))
    });
    listed.await.map_err(|error| match error {
        ListError::Page(error @ ServiceError::McpError(_)) => ServerFailure::of_request(&error),
        ListError::Page(error) => {
            let cause = state.request_failure().or_else(|| state.end_cause());
            cause.unwrap_or_else(|| ServerFailure::of_request(&error))
        }
        ListError::TooMuch => ServerFailure::TooManyTools,
    })
}
