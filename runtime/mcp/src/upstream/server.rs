//! State of one server across connections: its tools, its state and its active calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use rmcp::model::Tool;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::classify::{ListedTool, OfferedTool, classify, model_name, scope_segment};
use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::pin_store::{PinStore, PinStoreError};
use super::pins::{Fingerprint, Pins};
use super::requests::ServerRequestHandler;
use super::spec::ServerSpec;
use super::{Bounds, ServerState, ServerTool};
use bailiwick::scope::Scope;
use bailiwick::tool::{Catalog, Remote};
use bailiwick::{CallError, Code};

/// A configured server; it outlives its connections.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    /// The name in scopes.
    pub(super) label: Arc<str>,
    pub(super) bounds: Bounds,
    pub(super) handler: ServerRequestHandler,
    /// The sign-in state, if the server supports it.
    pub(super) account: Option<Arc<super::auth::Account>>,
    /// Slots for concurrent calls.
    pub(super) call_slots: Arc<Semaphore>,
    /// Notified when the list of tools may have changed.
    pub(super) changed: Notify,
    /// Notified when the lists of resources and prompts may have changed.
    pub(super) catalog_changed: Notify,
    /// The resources and prompts.
    catalog: ArcSwap<Catalog>,
    /// Notified when a person retries the server.
    retry: watch::Sender<()>,
    pub(super) state: watch::Sender<ServerState>,
    connection: ArcSwapOption<Connection>,
    /// Why the last connection failed or ended, unless the server is connected.
    failure: Mutex<Option<ServerFailure>>,
    /// The store of approved tools.
    pin_store: Option<Arc<PinStore>>,
    /// Held while approvals change.
    approving: tokio::sync::Mutex<()>,
    tools: Mutex<Tools>,
}

/// The current connection of a server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) peer: Peer<RoleClient>,
    pub(super) state: Arc<ConnectionState>,
}

#[derive(Debug, Default)]
struct Tools {
    pins: Pins,
    /// Whether the pins are not saved yet.
    unsaved: bool,
    listed: Vec<ListedTool>,
}

impl Server {
    pub(super) fn new(
        spec: ServerSpec,
        bounds: Bounds,
        handler: ServerRequestHandler,
        pin_store: Option<Arc<PinStore>>,
    ) -> Self {
        let label: Arc<str> = spec.label().into();
        let stored = pin_store
            .as_ref()
            .and_then(|store| store.fingerprints(&label));
        let tools = Tools {
            pins: Pins::new(stored, approved(&spec)),
            ..Tools::default()
        };
        Self {
            label,
            handler,
            account: None,
            bounds,
            call_slots: Arc::new(Semaphore::new(bounds.calls)),
            changed: Notify::new(),
            catalog_changed: Notify::new(),
            catalog: ArcSwap::default(),
            retry: watch::Sender::default(),
            state: watch::Sender::new(ServerState::Starting),
            connection: ArcSwapOption::empty(),
            failure: Mutex::default(),
            pin_store,
            approving: tokio::sync::Mutex::default(),
            tools: Mutex::new(tools),
            spec,
        }
    }

    /// Sets or removes the connection. The registry sets the state.
    pub(super) fn set_connection(&self, connection: Option<Connection>) {
        if let Some(account) = &self.account {
            account.set_connected(connection.is_some());
        }
        self.connection.store(connection.map(Arc::new));
    }

    /// The resources and prompts.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    pub(super) fn set_catalog(&self, catalog: Catalog) {
        self.catalog.store(Arc::new(catalog));
    }

    /// A hidden entry of the server that needs `need`.
    pub(super) fn remote(&self, tool: &str, need: Scope) -> Remote {
        let name = self.spec.name.as_str();
        Remote {
            server: name.into(),
            shown: format!("{name}, {}", self.spec.place()).into(),
            tool: tool.into(),
            need,
            previews: false,
            listed: false,
            views: false,
        }
    }

    /// Takes a call slot, or fails.
    pub(super) fn call_slot(&self) -> Result<OwnedSemaphorePermit, CallError> {
        let slots = Arc::clone(&self.call_slots);
        slots.try_acquire_owned().map_err(|_| {
            let error = CallError::new(Code::Busy, "too many calls to this server are in flight");
            error.with("retry_after_ms", 100)
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.load().is_some()
    }

    /// The current connection, or an error.
    pub(super) fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.connection
            .load_full()
            .ok_or_else(|| self.unavailable())
    }

    /// Retries the server at once, unless it is connected.
    pub(super) fn retry(&self) {
        // The borrow prevents a state change meanwhile.
        let state = self.state.borrow();
        if *state != ServerState::Ready {
            self.retry.send_replace(());
        }
    }

    /// Notified when a person retries the server.
    pub(super) fn retries(&self) -> watch::Receiver<()> {
        self.retry.subscribe()
    }

    /// Why the last connection failed or ended, unless the server is connected.
    pub(super) fn failure(&self) -> Option<ServerFailure> {
        self.failure.lock().clone()
    }

    pub(super) fn set_failure(&self, failure: Option<ServerFailure>) {
        *self.failure.lock() = failure;
    }

    pub(super) fn unavailable(&self) -> CallError {
        let name = &self.spec.name;
        let cause = self.failure();
        let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
        let hint = match *self.state.borrow() {
            ServerState::Ready => "the call or its answer was lost; try later",
            ServerState::GivenUp => {
                "it failed too often and is left alone until a person retries it"
            }
            ServerState::Stopped => "it was ended",
            _ => "it is started again, try later",
        };
        let message = format!("the server `{name}` cannot be reached{cause}: {hint}");
        CallError::new(Code::ServerGone, message)
    }

    /// Sets the listed tools, and saves new approvals in the pin store.
    pub(super) async fn set_tools(self: &Arc<Self>, tools: Vec<Tool>) -> Result<(), ServerFailure> {
        let server = Arc::clone(self);
        let read = move || {
            let provider = server.spec.provider(&server.label);
            classify(&tools, provider, server.bounds.tools)
        };
        // Classification is CPU-bound.
        let read = tokio::task::spawn_blocking(read).await;
        let listed = read.map_err(|_| ServerFailure::Protocol)?;
        let _approving = self.approving.lock().await;
        let unsaved = {
            let mut tools = self.tools.lock();
            tools.listed = listed;
            tools.check_pins();
            tools.unsaved.then(|| tools.pins.clone())
        };
        if let Some(pins) = unsaved {
            let saved = self.save(pins).await;
            saved.map_err(|error| ServerFailure::PinStore(error.kind()))?;
            self.tools.lock().unsaved = false;
        }
        Ok(())
    }

    /// Approves a definition of a tool by its displayed name; false if the server lists another definition.
    pub(super) async fn approve(
        &self,
        shown: &str,
        fingerprint: Fingerprint,
    ) -> Result<bool, PinStoreError> {
        let _approving = self.approving.lock().await;
        let (name, mut pins) = {
            let tools = self.tools.lock();
            let mut listed = tools.listed.iter();
            let fits = |it: &&ListedTool| {
                bailiwick::text::escape(&it.tool) == shown
                    && it.fingerprint == fingerprint
                    && it.usable.is_ok()
            };
            let Some(name) = listed.find(fits).map(|it| it.name.clone()) else {
                return Ok(false);
            };
            (name, tools.pins.clone())
        };
        pins.approve(&name, fingerprint);
        self.save(pins.clone()).await?;
        let mut tools = self.tools.lock();
        tools.pins = pins;
        tools.check_pins();
        Ok(true)
    }

    /// Reloads the approvals from the pin store; returns whether they changed.
    pub(super) async fn reload_pins(&self) -> bool {
        let Some(store) = self.pin_store.clone() else {
            return false;
        };
        let _approving = self.approving.lock().await;
        let label = Arc::clone(&self.label);
        let stored = tokio::task::spawn_blocking(move || store.fingerprints(&label)).await;
        let Ok(Some(stored)) = stored else {
            return false;
        };
        let pins = Pins::new(Some(stored), approved(&self.spec));
        let mut tools = self.tools.lock();
        if pins == tools.pins {
            return false;
        }
        tools.pins = pins;
        tools.check_pins();
        true
    }

    async fn save(&self, pins: Pins) -> Result<(), PinStoreError> {
        let Some(store) = self.pin_store.clone() else {
            return Ok(());
        };
        let label = Arc::clone(&self.label);
        let saved =
            tokio::task::spawn_blocking(move || store.save(&label, pins.fingerprints())).await;
        saved.unwrap_or_else(|_| Err(PinStoreError::writer_lost()))
    }

    pub(super) fn server_tools(&self) -> Vec<ServerTool> {
        let tools = self.tools.lock();
        tools
            .listed
            .iter()
            .map(ListedTool::to_server_tool)
            .collect()
    }

    /// The mark of each listed tool by its name in scopes; `None` for withheld tools.
    pub(super) fn marks(&self) -> Vec<(String, Option<String>)> {
        let mark = |it: &ListedTool| {
            let mark = it.offer().is_ok().then(|| it.fingerprint.mark());
            (format!("{}:{}", self.label, scope_segment(&it.tool)), mark)
        };
        self.tools.lock().listed.iter().map(mark).collect()
    }

    pub(super) fn offers(&self) -> Vec<Arc<OfferedTool>> {
        self.tools.lock().offers().cloned().collect()
    }

    /// Whether this definition of the tool is still offered.
    pub(super) fn still_offers(&self, offer: &OfferedTool) -> bool {
        self.tools.lock().offers().any(|now| now.is_same(offer))
    }

    /// Whether a tool has the name of this resource, so that their scopes would be ambiguous.
    pub(super) fn has_tool(&self, resource: &str) -> bool {
        let tools = self.tools.lock();
        let mut listed = tools.listed.iter();
        listed.any(|it| scope_segment(&it.tool) == resource)
    }
}

impl Tools {
    fn offers(&self) -> impl Iterator<Item = &Arc<OfferedTool>> {
        self.listed.iter().filter_map(|it| it.offer().ok())
    }

    /// Compares the listed tools with the approved ones.
    fn check_pins(&mut self) {
        for it in &mut self.listed {
            it.unapproved = self.pins.check(&it.name, it.fingerprint).err();
        }
        let offers = self.listed.iter().filter(|it| it.offer().is_ok());
        let first = offers.map(|it| (it.name.clone(), it.fingerprint));
        self.unsaved |= self.pins.approve_first(first);
    }
}

/// The fingerprints that the host approved, by the names of the tools for models.
fn approved(spec: &ServerSpec) -> BTreeMap<String, Fingerprint> {
    let approved = spec.approved.iter();
    approved
        .map(|(tool, fingerprint)| (model_name(&spec.name, tool), *fingerprint))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Map;

    use super::super::WithheldReason;
    use super::*;
    use bailiwick::requests::DenyRequests;

    fn server() -> Arc<Server> {
        let handler = ServerRequestHandler::new("s", Arc::new(DenyRequests), false);
        let spec = ServerSpec::stdio("s", "x");
        Arc::new(Server::new(spec, Bounds::default(), handler, None))
    }

    async fn list(server: &Arc<Server>, names: &[&'static str]) -> Vec<Result<(), WithheldReason>> {
        let tools = names.iter().map(|name| Tool::new(*name, "", Map::new()));
        server.set_tools(tools.collect()).await.unwrap();
        let seen = server.server_tools().into_iter();
        seen.map(|tool| tool.offered.map(|_| ())).collect()
    }

    #[tokio::test]
    async fn replaced_and_new_tools_are_withheld_until_approved() {
        let server = server();
        assert_eq!(list(&server, &["a.b", "c"]).await, [Ok(()), Ok(())]);
        assert_eq!(
            list(&server, &["a/b", "c", "d"]).await,
            [
                Err(WithheldReason::Changed),
                Ok(()),
                Err(WithheldReason::New)
            ]
        );
        let other = server.server_tools().remove(0);
        assert!(!server.approve("a.b", other.fingerprint).await.unwrap());
        assert!(server.approve("a/b", other.fingerprint).await.unwrap());
        assert_eq!(list(&server, &["a/b"]).await, [Ok(())]);
        assert_eq!(
            list(&server, &["a.b"]).await,
            [Err(WithheldReason::Changed)]
        );
    }

    #[tokio::test]
    async fn colliding_tools_cannot_be_approved() {
        let server = server();
        let twin = Err(WithheldReason::Collision);
        assert_eq!(list(&server, &["a.b", "a/b"]).await, [twin, twin]);
        let tool = server.server_tools().remove(0);
        assert!(!server.approve("a.b", tool.fingerprint).await.unwrap());
        assert_eq!(list(&server, &["a/b"]).await, [Ok(())]);
    }

    #[test]
    fn unavailable_error_says_whether_the_server_restarts() {
        let handler = ServerRequestHandler::new("s", Arc::new(DenyRequests), false);
        let server = Server::new(
            ServerSpec::stdio("s", "x"),
            Bounds::default(),
            handler,
            None,
        );
        for (state, hint) in [
            (ServerState::Waiting, "started again"),
            (ServerState::GivenUp, "left alone"),
            (ServerState::Stopped, "was ended"),
        ] {
            server.state.send_replace(state);
            server.set_failure(Some(ServerFailure::Exited(3)));
            let unavailable = server.unavailable();
            assert!(
                unavailable.message().contains("exit status 3"),
                "{unavailable}"
            );
            assert!(unavailable.message().contains(hint), "{unavailable}");
            assert_eq!(unavailable.code(), Code::ServerGone);
        }
    }
}
