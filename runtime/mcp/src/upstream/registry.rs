//! Registry of all servers, which publishes their tools in one table.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::watch;

use super::ServerState;
use super::catalog_calls;
use super::classify::OfferedTool;
use super::server::{Connection, Server};
use super::tool_call::ToolCall;
use bailiwick::scope::{Marks, Verb};
use bailiwick::tool::{Arguments, Entry, Job, Remote, RemoteJob, RemoteTools};
use bailiwick::{CallError, Code};

/// State shared by the handles and the connection tasks.
#[derive(Debug)]
pub(super) struct ServerRegistry {
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) table: Arc<RemoteTools>,
    /// Held while the table is rebuilt, so that an older snapshot never replaces a newer one.
    publishing: Mutex<()>,
    /// Notified when the table may have changed.
    pub(super) published: watch::Sender<()>,
}

impl ServerRegistry {
    pub(super) fn new(servers: Vec<Arc<Server>>) -> Self {
        Self {
            servers,
            table: Arc::default(),
            publishing: Mutex::default(),
            published: watch::Sender::default(),
        }
    }

    /// Sets the connection of a server and publishes its tools.
    pub(super) fn connected(&self, server: &Server, connection: Connection) {
        server.set_connection(Some(connection));
        self.publish_then(|| server.state.send_replace(ServerState::Ready));
    }

    /// Removes the connection of a server and its tools.
    pub(super) fn disconnected(&self, server: &Server, state: ServerState) {
        server.set_connection(None);
        self.publish_then(|| server.state.send_replace(state));
    }

    /// Publishes the current tools of all servers.
    pub(super) fn publish(&self) {
        self.publish_then(|| ());
    }

    /// Publishes the current tools and then runs `then`, so that the tools are visible to whoever observes the new
    /// state.
    fn publish_then<T>(&self, then: impl FnOnce() -> T) {
        let _publishing = self.publishing.lock();
        let entries = self.servers.iter().flat_map(|server| {
            let is_connected = server.is_connected();
            let offers = server.offers().into_iter();
            let tools = offers.map(move |offer| {
                (
                    offer.name.clone(),
                    Arc::new(entry(server, &offer, is_connected)),
                )
            });
            tools.chain(catalog_calls::entries(server))
        });
        let connected = self.servers.iter().filter(|server| server.is_connected());
        let catalogs = connected.map(|server| server.catalog());
        self.table
            .replace(entries.collect(), catalogs.collect(), self.marks());
        then();
        self.published.send_replace(());
    }

    /// The marks of the servers and tools.
    fn marks(&self) -> Marks {
        let tools = self.servers.iter().flat_map(|server| server.marks());
        Marks {
            servers: self
                .servers
                .iter()
                .map(|it| Arc::clone(&it.label))
                .collect(),
            tools: tools.collect(),
        }
    }
}

fn entry(server: &Arc<Server>, offer: &Arc<OfferedTool>, is_connected: bool) -> Entry {
    let remote = Remote {
        previews: offer.preview,
        listed: is_connected,
        views: offer.views,
        ..server.remote(&offer.tool, offer.need.clone())
    };
    let server = Arc::clone(server);
    remote_entry(offer, remote, move |offer, arguments| {
        Arc::new(ToolCall::new(&server, offer, arguments))
    })
}

/// Creates the table entry of a remote tool; `job` creates a call.
pub(crate) fn remote_entry(
    offer: &Arc<OfferedTool>,
    remote: Remote,
    job: impl Fn(&Arc<OfferedTool>, Map<String, Value>) -> Arc<dyn RemoteJob> + Send + Sync + 'static,
) -> Entry {
    Entry {
        name: offer.name.clone(),
        spec: offer.spec.clone(),
        intent: offer.intent.clone(),
        input_schema: offer.input_schema.clone().into(),
        output_schema: offer.output_schema.clone().into(),
        mutates: offer.verb != Verb::Read,
        remote: Some(remote),
        prepare: Box::new({
            let offer = Arc::clone(offer);
            move |arguments: Arguments<'_>, _: &_| {
                let invalid = |why| CallError::new(Code::InvalidArguments, why);
                let arguments = match arguments {
                    Arguments::Json(Value::Object(map)) => map.clone(),
                    Arguments::Json(Value::Null) => Map::new(),
                    Arguments::Json(_) => return Err(invalid("the arguments must be an object")),
                    Arguments::Typed(_) => return Err(invalid("the arguments must be JSON")),
                };
                let job = job(&offer, arguments);
                Ok((vec![offer.need.clone()], Job::Remote(job)))
            }
        }),
    }
}
