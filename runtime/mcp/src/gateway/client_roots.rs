//! Requests roots from a client if the command line names none.
#![expect(
    deprecated,
    reason = "MCP deprecates roots, and clients of every revision may still declare them"
)]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, ListRootsRequest, ListRootsResult,
};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, watch};

use super::call::is_stateless;
use super::{Gateway, Trust, uri};

/// How long a client may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of roots of a client.
const MAX_ROOTS: usize = 64;
/// Hint for people: the alternative to naming a root on the command line.
pub(super) const HINT: &str = "Or connect a client that names its workspace folders (MCP roots)";
/// Key of the request in an input-required result.
const RESPONSE_KEY: &str = "roots";

/// State of a client's roots.
#[derive(Clone, Debug, Default)]
enum RootsState {
    /// Not requested.
    #[default]
    Unused,
    /// Requested, not yet answered.
    Pending,
    /// Served, or there are none.
    Known,
    /// Cannot be served.
    Refused(ErrorData),
}

/// The roots of one client.
#[derive(Debug, Default)]
pub(super) struct ClientRoots {
    state: watch::Sender<RootsState>,
    /// The client's configuration without roots.
    configuration: OnceLock<Map<String, Value>>,
    /// Held while a request for roots is pending.
    asking: Mutex<()>,
    /// Held by the one that waits to request the roots next.
    next: Mutex<()>,
}

impl ClientRoots {
    /// Makes requests wait until the client has named its roots.
    pub(super) fn expect(&self, configuration: Map<String, Value>) {
        // It is set at most once, by the handshake.
        let _ = self.configuration.set(configuration);
        self.state.send_replace(RootsState::Pending);
    }

    pub(super) fn are_expected(&self) -> bool {
        !matches!(*self.state.borrow(), RootsState::Unused)
    }

    /// Waits until the roots are known, if they were requested.
    pub(super) async fn wait(&self) -> Result<(), ErrorData> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, RootsState::Pending));
        // After the timeout there is no root, and calls say so.
        if let Ok(Ok(state)) = tokio::time::timeout(ANSWER_TIMEOUT, known).await
            && let RootsState::Refused(error) = &*state
        {
            return Err(error.clone());
        }
        Ok(())
    }
}

impl Gateway {
    /// Whether the roots of a client with these capabilities are requested.
    pub(super) fn needs_client_roots(&self, capabilities: &ClientCapabilities) -> bool {
        self.state.client_roots && capabilities.roots.is_some()
    }

    /// Requests the roots of a stateful client, and serves them. Returns false at once if another request for them is about
    /// to be sent.
    pub(super) async fn request_roots(&self, peer: &Peer<RoleServer>) -> bool {
        let roots = &self.session.roots;
        let Ok(next) = roots.next.try_lock() else {
            return false;
        };
        let _lock = roots.asking.lock().await;
        drop(next);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, peer.list_roots()).await;
        let state = match answer {
            Ok(Ok(listed)) => self.serve_roots(&listed).await,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the client did not name its roots");
                RootsState::Known
            }
            Err(_) => {
                tracing::warn!("the client did not name its roots in time");
                RootsState::Known
            }
        };
        roots.state.send_replace(state);
        true
    }

    /// The request for roots that a stateless client must answer before its call is made; `None` once it has.
    pub(super) async fn roots_required(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<InputRequiredResult>, ErrorData> {
        let roots = &self.session.roots;
        if !self.state.client_roots || !is_stateless(context) || roots.are_expected() {
            return Ok(None);
        }
        let capabilities = context.client_capabilities();
        if !capabilities.is_some_and(|capabilities| self.needs_client_roots(&capabilities)) {
            return Ok(None);
        }
        let answer = request.input_responses.as_ref();
        let Some(answer) = answer.and_then(|answers| answers.get(RESPONSE_KEY)) else {
            let request = InputRequest::ListRoots(ListRootsRequest::default());
            let requests = InputRequests::from([(RESPONSE_KEY.to_owned(), request)]);
            return Ok(Some(InputRequiredResult::new(Some(requests), None)));
        };
        let listed: ListRootsResult = serde_json::from_value(answer.clone()).map_err(|_| {
            let reason = "the answer to `roots/list` is not a list of roots";
            ErrorData::invalid_params(reason, Some(json!({"field": "/inputResponses/roots"})))
        })?;
        let _lock = roots.asking.lock().await;
        if !roots.are_expected() {
            let state = self.serve_roots(&listed).await;
            roots.state.send_replace(state);
        }
        Ok(None)
    }

    /// Replaces the client's backend with one for these roots.
    async fn serve_roots(&self, listed: &ListRootsResult) -> RootsState {
        let mut paths: Vec<_> = Vec::new();
        for root in listed.roots.iter().take(MAX_ROOTS) {
            match uri::to_path(&root.uri) {
                Some(path) if !paths.contains(&path) => paths.push(path),
                Some(_) => {}
                None => {
                    let uri = bailiwick::text::escape(&root.uri);
                    tracing::warn!(%uri, "a root of the client is not a directory of this machine");
                }
            }
        }
        let backend = if paths.is_empty() {
            Ok(None)
        } else {
            let roots = paths.iter().enumerate();
            let roots = roots
                .map(|(index, path)| json!({"path": path, "default": index == 0, "optional": true}))
                .collect();
            let configuration = self.session.roots.configuration.get().cloned();
            let mut configuration = configuration.unwrap_or_default();
            configuration.insert("roots".to_owned(), roots);
            self.state.create_backend(configuration).await.map(Some)
        };
        let (backend, state) = match backend {
            Ok(backend) => (backend.map(Arc::new), RootsState::Known),
            Err(error) => {
                tracing::warn!(%error, "no root of the client can be served");
                (None, RootsState::Refused(error))
            }
        };
        self.replace_backend(backend);
        state
    }
}

/// Rejects keys that widen the configuration, unless the client is a trusted host.
pub(super) fn reject_widening_keys(
    configuration: &Map<String, Value>,
    trust: Trust,
) -> Result<(), ErrorData> {
    let mut widening = ["grantable", "allow"].into_iter();
    let Some(key) = widening.find(|key| trust != Trust::Host && configuration.contains_key(*key))
    else {
        return Ok(());
    };
    let reason = format!("/{key} is refused: only a trusted host may configure it");
    let data = json!({
        "kind": "policy_scope", "code": "POLICY_INVALID", "field": format!("/{key}"), "layer": "initialize",
    });
    Err(ErrorData::invalid_params(reason, Some(data)))
}
