//! State of one server across connections: its tools, its state and its active calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use rmcp::model::Tool;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::classify::{
    ListedTool, OfferedTool, WithheldReason, classify, model_name, scope_segment,
};
use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::pin_store::{PinStore, PinStoreError};
use super::pins::{Fingerprint, PinStatus, Pins};
use super::requests::ServerRequestHandler;
use super::spec::ServerSpec;
use super::{Bounds, ServerState, ServerTool};
use bailiwick::error::{CallError, Code};
use bailiwick::tool::Catalog;

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
    offers: BTreeMap<Arc<str>, Arc<OfferedTool>>,
    seen: Vec<ServerTool>,
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

    fn tools(&self) -> MutexGuard<'_, Tools> {
        // Nothing that can panic runs under the lock.
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Takes a call slot, or fails.
    pub(super) fn call_slot(&self) -> Result<OwnedSemaphorePermit, CallError> {
        let slots = Arc::clone(&self.call_slots);
        slots.try_acquire_owned().map_err(|_| {
            let error = CallError::new(Code::Busy, "too many calls of this server are under way");
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
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }

    pub(super) fn set_failure(&self, failure: Option<ServerFailure>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
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
        let read = move || classify(&tools, server.spec.provider(&server.label));
        // Classification is CPU-bound.
        let read = tokio::task::spawn_blocking(read).await;
        let listed = read.map_err(|_| ServerFailure::Protocol)?;
        let _approving = self.approving.lock().await;
        let unsaved = {
            let mut tools = self.tools();
            tools.listed = listed;
            self.update_offers(&mut tools);
            tools.unsaved.then(|| tools.pins.clone())
        };
        if let Some(pins) = unsaved {
            let saved = self.save(pins).await;
            saved.map_err(|error| ServerFailure::PinStore(error.kind()))?;
            self.tools().unsaved = false;
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
            let tools = self.tools();
            let mut listed = tools.listed.iter();
            let fits = |it: &&ListedTool| {
                bailiwick::escape(&it.tool) == shown
                    && it.fingerprint == fingerprint
                    && it.offer.is_ok()
            };
            let Some(name) = listed.find(fits).map(|it| it.name.clone()) else {
                return Ok(false);
            };
            (name, tools.pins.clone())
        };
        pins.approve(&name, fingerprint);
        self.save(pins.clone()).await?;
        let mut tools = self.tools();
        tools.pins = pins;
        self.update_offers(&mut tools);
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
        let mut tools = self.tools();
        if pins == tools.pins {
            return false;
        }
        tools.pins = pins;
        self.update_offers(&mut tools);
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

    /// Splits the listed tools into offered and withheld tools.
    fn update_offers(&self, tools: &mut Tools) {
        let Tools {
            pins,
            unsaved,
            listed,
            offers: offered,
            seen,
        } = tools;
        offered.clear();
        seen.clear();
        let mut first = BTreeMap::new();
        for (index, it) in listed.iter().enumerate() {
            let within_limit = |offer| {
                let within_limit = index < self.bounds.tools;
                within_limit.then_some(offer).ok_or(WithheldReason::TooMany)
            };
            let pinned = |offer| match pins.status(&it.name, it.fingerprint) {
                PinStatus::Approved => Ok(offer),
                PinStatus::First => {
                    first.insert(it.name.clone(), it.fingerprint);
                    Ok(offer)
                }
                PinStatus::Changed => Err(WithheldReason::Changed),
                PinStatus::New => Err(WithheldReason::New),
            };
            let offer = it.offer.clone().and_then(within_limit).and_then(pinned);
            seen.push(it.to_server_tool(&offer));
            if let Ok(offer) = offer {
                offered.insert(Arc::clone(&offer.tool), offer);
            }
        }
        *unsaved |= !first.is_empty();
        pins.approve_first(first);
    }

    pub(super) fn server_tools(&self) -> Vec<ServerTool> {
        self.tools().seen.clone()
    }

    /// The mark of each listed tool by its name in scopes; `None` for withheld tools.
    pub(super) fn marks(&self) -> Vec<(String, Option<String>)> {
        let tools = self.tools();
        let mark = |(it, seen): (&ListedTool, &ServerTool)| {
            let mark = seen.offered.is_ok().then(|| it.fingerprint.mark());
            (format!("{}:{}", self.label, scope_segment(&it.tool)), mark)
        };
        tools.listed.iter().zip(&tools.seen).map(mark).collect()
    }

    pub(super) fn offers(&self) -> Vec<Arc<OfferedTool>> {
        self.tools().offers.values().cloned().collect()
    }

    /// Whether this definition of the tool is still offered.
    pub(super) fn still_offers(&self, offer: &OfferedTool) -> bool {
        let tools = self.tools();
        let now = tools.offers.get(&offer.tool);
        now.is_some_and(|now| now.fingerprint == offer.fingerprint)
    }

    /// Whether a tool has the name of this resource, so that their scopes would be ambiguous.
    pub(super) fn has_tool(&self, resource: &str) -> bool {
        let tools = self.tools();
        let mut listed = tools.listed.iter();
        listed.any(|it| scope_segment(&it.tool) == resource)
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
