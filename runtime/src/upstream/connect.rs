//! How a server is reached in, a connection that speaks the revision of both sides out.

use std::sync::Arc;

use rmcp::model::{ProtocolVersion, Tool};
use rmcp::service::{
    ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer,
    RoleClient, RunningService, ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::bounded::{Bounded, Unsent};
use super::child::Child;
use super::client::Client;
use super::line::Line;
use super::lines::Lines;
use super::pages::{Most, Unpaged, paged};
use super::server::Server;
use super::spec::Reach;

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
    #[error("the server lists more tools than it may have")]
    TooMuch,
    #[error("the server did not answer in time")]
    Late,
}

pub(super) type Service = RunningService<RoleClient, Client>;

/// Connects a server over `line`. The program behind it, if it is one, is left in `child` however this ends.
pub(super) async fn connect(
    server: &Arc<Server>,
    lifecycle: ClientLifecycleMode,
    line: &Arc<Line>,
    child: &mut Option<Child>,
) -> Result<Service, ConnectError> {
    let client = Client::new(server, line);
    let served = match &server.spec.reach {
        Reach::Child {
            command,
            args,
            env,
            folder,
        } => {
            let name = server.spec.name.as_str().into();
            let started = Child::start(&name, command, args, env, folder.as_ref());
            let (started, stdout, stdin) = started.map_err(ConnectError::Start)?;
            *child = Some(started);
            let most = server.bounds.message_bytes;
            let transport = AsyncRwTransport::new_client(Lines::new(stdout, most), stdin);
            // The reader before it ends a connection whose lines are too long.
            let transport = transport.with_max_line_length(usize::MAX);
            let transport = Bounded::new(transport, server, line, Unsent::EndsAll);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
        #[cfg(feature = "http")]
        Reach::Http(reach) => {
            let transport = super::http::transport(server, reach)?;
            let transport = Bounded::new(transport, server, line, Unsent::FailsAlone);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
        #[cfg(not(feature = "http"))]
        Reach::Http(_) => return Err(ConnectError::Late),
    };
    let service = served.map_err(|error| ConnectError::Terms(Box::new(error)))?;
    // What a call answers depends on what goes with it, which the cache does not look at.
    let cache = ClientCacheConfig::disabled();
    service.peer().set_response_cache_config(cache).await;
    Ok(service)
}

/// The newest revision first; a server that knows none of these is asked for a handshake.
pub(super) fn either_era() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

/// What the server lists: all of it, or an error.
pub(super) async fn list(
    peer: &Peer<RoleClient>,
    server: &Server,
) -> Result<Vec<Tool>, ConnectError> {
    let most = Most {
        items: server.bounds.pins(),
        bytes: server.bounds.message_bytes,
    };
    let listed = paged(most, |page| async {
        let page = peer.list_tools(Some(page)).await?;
        Ok((page.tools, page.next_cursor))
    });
    listed.await.map_err(|error| match error {
        Unpaged::Page(error) => ConnectError::Tools(Box::new(error)),
        Unpaged::TooMuch => ConnectError::TooMuch,
    })
}
