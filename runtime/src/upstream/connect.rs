//! How a server is reached in, a connection that speaks the revision of both sides out.

use std::sync::Arc;

use rmcp::model::{ProtocolVersion, Tool};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer,
    RoleClient, RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::child::Child;
use super::client::Client;
use super::lines::Lines;
use super::pages::paged;
use super::server::Server;
use super::spec::Reach;

/// The most pages of a list that are asked for.
const MOST_PAGES: usize = 64;

/// Why a server is not connected. What it says stays out of it: it may hold what a person configured.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the program cannot be started: {0}")]
    Start(#[source] std::io::Error),
    #[cfg(feature = "http")]
    #[error("the client cannot be made")]
    Http,
    #[error("the server and this host did not come to terms")]
    Terms(#[source] Box<ClientInitializeError>),
    #[error("the server does not list its tools")]
    Tools(#[source] Box<ServiceError>),
    #[error("the server did not answer in time")]
    Late,
}

/// A connection, and the program behind it if it is one.
pub(super) struct Connection {
    pub(super) service: RunningService<RoleClient, Client>,
    pub(super) child: Option<Child>,
}

pub(super) async fn connect(
    server: &Arc<Server>,
    lifecycle: ClientLifecycleMode,
) -> Result<Connection, ConnectError> {
    let terms = |error| ConnectError::Terms(Box::new(error));
    let client = Client::new(server);
    let (service, child) = match &server.spec.reach {
        Reach::Child {
            command,
            args,
            env,
            folder,
        } => {
            let name = server.spec.name.as_str().into();
            let started = Child::start(&name, command, args, env, folder.as_ref());
            let (child, stdout, stdin) = started.map_err(ConnectError::Start)?;
            let most = server.bounds.message_bytes;
            let transport = AsyncRwTransport::new_client(Lines::new(stdout, most), stdin);
            // The reader before it ends a connection whose lines are too long.
            let transport = transport.with_max_line_length(usize::MAX);
            let service = client.serve_with_lifecycle(transport, lifecycle).await;
            (service.map_err(terms)?, Some(child))
        }
        #[cfg(feature = "http")]
        Reach::Http(reach) => {
            let transport = super::http::transport(server, reach)?;
            let service = client.serve_with_lifecycle(transport, lifecycle).await;
            (service.map_err(terms)?, None)
        }
        #[cfg(not(feature = "http"))]
        Reach::Http(_) => return Err(ConnectError::Late),
    };
    // What a call answers depends on what goes with it, which the cache does not look at.
    let cache = ClientCacheConfig::disabled();
    service.peer().set_response_cache_config(cache).await;
    Ok(Connection { service, child })
}

/// The newest revision first; a server that knows none of these is asked for a handshake.
pub(super) fn either_era() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// What the server lists, as far as there is room.
pub(super) async fn list(peer: &Peer<RoleClient>, most: usize) -> Result<Vec<Tool>, ConnectError> {
    let page = |page| async {
        let page = peer.list_tools(Some(page)).await;
        let page = page.map_err(|error| ConnectError::Tools(Box::new(error)))?;
        Ok((page.tools, page.next_cursor))
    };
    paged(most, MOST_PAGES, page).await
}
