//! Connects a server in the protocol version that both sides speak.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use rmcp::ClientHandler as _;
use rmcp::model::{ProtocolVersion, Tool};
use rmcp::service::{
    ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::bounded::{Bounded, Unsent};
use super::child::Child;
use super::client::Client;
use super::discovery::started;
use super::failure::ServerFailure;
#[cfg(feature = "http")]
use super::http::HttpThread;
use super::line::Line;
use super::lines::Lines;
use super::pages::{Most, Unpaged, paged};
use super::server::Server;
use super::spec::Reach;

/// The part of the time to connect after which a program that read `server/discover` and is silent is asked for a handshake.
const SILENCE: u32 = 6;

pub(super) type Service = RunningService<RoleClient, Client>;

/// What a connection needs while it lasts, beside the connection itself.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// The program behind it.
    child: Option<Child>,
    /// The thread that it is spoken to on.
    #[cfg(feature = "http")]
    thread: Option<HttpThread>,
}

impl Resources {
    /// Why the program ended, if it ends by itself in a moment.
    pub(super) async fn exit_cause(&self) -> Option<ServerFailure> {
        self.child.as_ref()?.exit_cause().await
    }

    /// Ends the program. The thread lasts until this goes: the end of a session is told on it.
    pub(super) async fn end_child(&mut self) {
        if let Some(child) = self.child.take() {
            child.end().await;
        }
    }
}

/// Connects a server over `line`. What it takes is left in `resources` however this ends.
pub(super) async fn connect(
    server: &Arc<Server>,
    mut lifecycle: ClientLifecycleMode,
    line: &Arc<Line>,
    resources: &mut Resources,
) -> Result<Service, ServerFailure> {
    let client = Client::new(server, line);
    let served = match &server.spec.reach {
        Reach::Child {
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
            let lines = Lines::new(stdout, server.bounds.message_bytes, line);
            let transport = AsyncRwTransport::new_client(lines, stdin);
            // The reader before it ends a connection whose lines are too long.
            let mut transport = transport.with_max_line_length(usize::MAX);
            let mut unanswered = None;
            if matches!(lifecycle, ClientLifecycleMode::Auto { .. }) {
                let silence = server.bounds.connect / SILENCE;
                unanswered = started(&mut transport, input, client.get_info(), silence).await;
            }
            if unanswered.is_some() {
                lifecycle = ClientLifecycleMode::Initialize;
            }
            let transport = Bounded::new(transport, server, line, Unsent::EndsAll);
            let transport = transport.dropping_answer(unanswered);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
        #[cfg(feature = "http")]
        Reach::Http(reach) => {
            let (thread, transport) = super::http::transport(server, reach, line)?;
            resources.thread = Some(thread);
            let transport = Bounded::new(transport, server, line, Unsent::FailsAlone);
            client.serve_with_lifecycle(transport, lifecycle).await
        }
        #[cfg(not(feature = "http"))]
        Reach::Http(_) => return Err(ServerFailure::Start(std::io::ErrorKind::Unsupported)),
    };
    let service = served.map_err(|error| {
        // What went wrong beneath says more than that the handshake failed for it.
        let cause = line.request_failure().or_else(|| line.end_cause());
        let cause = cause.filter(|cause| *cause != ServerFailure::Closed);
        cause.unwrap_or_else(|| ServerFailure::of_handshake(&error))
    })?;
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
    line: &Line,
) -> Result<Vec<Tool>, ServerFailure> {
    let most = Most {
        items: server.bounds.listed(),
        bytes: server.bounds.message_bytes,
    };
    let listed = paged(most, |page| async {
        let page = peer.list_tools(Some(page)).await?;
        Ok((page.tools, page.next_cursor))
    });
    listed.await.map_err(|error| match error {
        Unpaged::Page(error @ ServiceError::McpError(_)) => ServerFailure::of_request(&error),
        Unpaged::Page(error) => {
            let cause = line.request_failure().or_else(|| line.end_cause());
            cause.unwrap_or_else(|| ServerFailure::of_request(&error))
        }
        Unpaged::TooMuch => ServerFailure::TooManyTools,
    })
}
