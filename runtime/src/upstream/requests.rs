//! What a server asks of its host in, what a person or a rule of the host says out; without a host every answer is no.
#![expect(
    deprecated,
    reason = "MCP deprecates sampling, roots and logging, and servers of every revision may still ask"
)]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorCode, ErrorData, ListRootsResult, Role, SamplingMessage,
    SamplingMessageContentBlock, TextContent,
};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::active_calls::{ActiveCall, ActiveCalls};
use super::classify::truncate;
use super::elicitation;
use super::schema::{CompiledSchema, SchemaBudget};
use crate::audit::RequestOutcome;
use crate::path::VirtualPath;

/// The most questions of one server that are open at one time.
const MAX_OPEN_REQUESTS: usize = 4;
/// How long a person may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest text that a person is shown of a server, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// The most text that a model is to be given for a server, in bytes.
const MAX_PROMPT_BYTES: usize = 256 << 10;

/// An answer on its way.
pub type BoxFuture<'r, T> = Pin<Box<dyn Future<Output = T> + Send + 'r>>;

/// A question of a server to a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// Which server asks; show it.
    pub server: String,
    /// What it says, as text.
    pub message: String,
    /// What it wants.
    pub kind: ElicitationKind,
}

/// What a server wants of a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationKind {
    /// A form, as a flat JSON Schema whose fields are texts, numbers, choices, or yes and no; none asks for a secret. What of
    /// it is only read is text, and short; its names and values hold nothing that deceives.
    Form(Value),
    /// A visit to an address of the web, which the person opens themself. What they do there stays between them and it.
    Url(String),
}

/// What a person says to an [`Elicitation`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ElicitationResponse {
    /// Yes; the values of a form, nothing for a visit.
    Accept(Map<String, Value>),
    /// No.
    #[default]
    Decline,
    /// They would not say.
    Cancel,
}

/// Whose words a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    /// A person's, or a program's in their name.
    User,
    /// A model's.
    Assistant,
}

/// One text of a conversation that a server made up. It is a stranger's, whoever is said to have said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMessage {
    /// Who is to have said it.
    pub role: MessageRole,
    /// The text.
    pub text: String,
}

impl ServerMessage {
    pub(super) fn new(role: &Role, text: String) -> Self {
        let role = match role {
            Role::Assistant => MessageRole::Assistant,
            Role::User => MessageRole::User,
        };
        Self { role, text }
    }
}

/// How much a server cares for each, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Priorities {
    /// A low price.
    pub cost: Option<f32>,
    /// A quick answer.
    pub speed: Option<f32>,
    /// A good answer.
    pub intelligence: Option<f32>,
}

/// A server's wish that the host's model say something.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Which server asks; show it.
    pub server: String,
    /// What was said so far.
    pub messages: Vec<ServerMessage>,
    /// What the server would have stand first. The host may change it or leave it out.
    pub system_prompt: Option<String>,
    /// Names of models, the best first; hints.
    pub models: Vec<String>,
    /// What matters.
    pub priorities: Priorities,
    /// The most tokens.
    pub max_tokens: u32,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingResponse {
    /// Which model.
    pub model: String,
    /// Its words.
    pub text: String,
}

/// What this host answers servers at all. What it does not is not offered to them and refused if they ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of its own"
)]
#[non_exhaustive]
pub struct RequestCapabilities {
    /// Forms.
    pub forms: bool,
    /// Visits.
    pub urls: bool,
    /// Sampling.
    pub sampling: bool,
    /// Roots.
    pub roots: bool,
}

impl RequestCapabilities {
    /// Everything.
    pub const ALL: Self = Self {
        forms: true,
        urls: true,
        sampling: true,
        roots: true,
    };
}

/// Whoever answers what servers ask of their host: a person through the host's user interface, or a rule. Every method
/// says no unless it is written.
pub trait ServerRequests: Send + Sync + 'static {
    /// Which requests are answered at all.
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::default()
    }

    /// A server asks a person something.
    fn elicit(&self, _request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        Box::pin(std::future::ready(ElicitationResponse::Decline))
    }

    /// A server wants the host's model to say something. None is no.
    fn sample(&self, _request: Sampling) -> BoxFuture<'_, Option<SamplingResponse>> {
        Box::pin(std::future::ready(None))
    }

    /// A server requires that a person signs in, or allows it more. Asks the person, and opens
    /// [`SignIn::url`](super::SignIn::url) in their browser if they want it. A host without this method has nobody to ask.
    #[cfg(feature = "oauth")]
    fn sign_in(&self, _request: super::SignIn) -> BoxFuture<'_, super::SignInAnswer> {
        Box::pin(std::future::ready(super::SignInAnswer::Unavailable))
    }

    /// The directories that a server is told of, as workers know them. It learns names; it may do nothing by them. Within a
    /// call the server is told only of what the call may read of them.
    fn roots(&self, _server: &str) -> Vec<VirtualPath> {
        Vec::new()
    }
}

/// Says no to everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyRequests;

impl ServerRequests for DenyRequests {}

/// Answers the requests that servers make within calls of one client: see [`CallMeta::requests`](crate::CallMeta::requests).
/// Clones are of the same client.
///
/// A server of a revision with a handshake does not say which call its request is about. While calls of several clients are
/// under way at it, such requests are refused.
#[derive(Clone)]
pub struct CallRequests {
    handler: Arc<dyn ServerRequests>,
    client: Arc<()>,
}

impl fmt::Debug for CallRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRequests").finish_non_exhaustive()
    }
}

impl CallRequests {
    /// Requests are answered by `handler`, except for roots: a server is told of the folders that the call may read.
    #[must_use]
    pub fn new(handler: impl ServerRequests) -> Self {
        Self::of_client(&Arc::default(), handler)
    }

    /// The same, for one of the calls of `client`.
    pub(crate) fn of_client(client: &Arc<()>, handler: impl ServerRequests) -> Self {
        Self {
            handler: Arc::new(handler),
            client: Arc::clone(client),
        }
    }

    /// Names the client for as long as one of its calls is under way.
    pub(super) fn client(&self) -> *const () {
        Arc::as_ptr(&self.client)
    }
}

/// The requests of one server, each checked before the host or a client hears of it.
pub(super) struct ServerRequestHandler {
    server: String,
    host: Arc<dyn ServerRequests>,
    /// Requests within calls are answered by the client that made the call.
    forwards: bool,
    open: Semaphore,
}

impl fmt::Debug for ServerRequestHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequestHandler")
            .finish_non_exhaustive()
    }
}

fn refused(why: &'static str) -> ErrorData {
    ErrorData::invalid_params(why, None)
}

fn unsupported(reason: String) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, reason, None)
}

const ELICIT: &str = "elicitation/create";
const SAMPLE: &str = "sampling/createMessage";
const ROOTS: &str = "roots/list";

impl ServerRequestHandler {
    pub(super) fn new(server: &str, host: Arc<dyn ServerRequests>, forwards: bool) -> Self {
        Self {
            server: server.to_owned(),
            host,
            forwards,
            open: Semaphore::new(MAX_OPEN_REQUESTS),
        }
    }

    /// What may be answered at all, which the server is told when it is connected.
    pub(super) fn capabilities(&self) -> RequestCapabilities {
        let mut capabilities = self.host.capabilities();
        if self.forwards {
            (capabilities.forms, capabilities.urls, capabilities.roots) = (true, true, true);
        }
        capabilities
    }

    /// The call that a request belongs to, which did not say so.
    pub(super) fn active_call(
        &self,
        calls: &ActiveCalls,
    ) -> Result<Option<Arc<ActiveCall>>, ErrorData> {
        let call = if self.forwards {
            calls.latest_of_one_client()?
        } else {
            calls.single()
        };
        if let Some(call) = &call {
            call.count_request()?;
        }
        Ok(call)
    }

    /// What is answered within a call.
    pub(super) fn capabilities_within(&self, call: &ActiveCall) -> RequestCapabilities {
        let mut capabilities = self.handler(Some(call)).capabilities();
        capabilities.roots = self.capabilities().roots;
        capabilities
    }

    /// Who answers requests within a call in place of the host.
    fn call_requests<'h>(&self, call: Option<&'h ActiveCall>) -> Option<&'h CallRequests> {
        call.filter(|_| self.forwards)
            .and_then(ActiveCall::requests)
    }

    /// Who answers a request.
    fn handler<'h>(&'h self, call: Option<&'h ActiveCall>) -> &'h dyn ServerRequests {
        let requests = self.call_requests(call);
        requests.map_or(&*self.host, |requests| &*requests.handler)
    }

    /// Why a request is not answered.
    fn unsupported(&self, call: Option<&ActiveCall>, method: &str) -> ErrorData {
        unsupported(if self.call_requests(call).is_some() {
            format!("the client that made the call does not support `{method}` in this form")
        } else if self.forwards {
            format!("`{method}` is answered only within a call of a client that supports it")
        } else {
            format!("`{method}` is not supported")
        })
    }

    pub(super) async fn elicit(
        &self,
        request: ElicitRequestParams,
        call: Option<&ActiveCall>,
    ) -> Result<ElicitResult, ErrorData> {
        let record = self.record(call, ELICIT);
        let result = self.run_elicitation(request, call).await;
        record.end(result.as_ref().map(|result| match result.action {
            ElicitationAction::Accept => RequestOutcome::Accepted,
            ElicitationAction::Decline => RequestOutcome::Declined,
            _ => RequestOutcome::Cancelled,
        }));
        result
    }

    fn record<'r>(
        &'r self,
        call: Option<&'r ActiveCall>,
        method: &'static str,
    ) -> RequestRecord<'r> {
        RequestRecord {
            server: &self.server,
            call,
            method,
        }
    }

    async fn run_elicitation(
        &self,
        request: ElicitRequestParams,
        call: Option<&ActiveCall>,
    ) -> Result<ElicitResult, ErrorData> {
        let handler = self.handler(call);
        let capabilities = handler.capabilities();
        let (message, kind) = match request {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } if capabilities.forms => {
                let schema = serde_json::to_value(requested_schema);
                let schema = schema.map_err(|_| refused("the form is no schema"))?;
                let form = elicitation::check_form(&schema)
                    .map_err(|rejection| refused(rejection.reason()))?;
                (message, ElicitationKind::Form(form))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } if capabilities.urls => {
                elicitation::check_url(&url).map_err(|rejection| refused(rejection.reason()))?;
                (message, ElicitationKind::Url(url))
            }
            _ => return Err(self.unsupported(call, ELICIT)),
        };
        let _open = self.slot()?;
        let request = Elicitation {
            server: self.server.clone(),
            message: truncate(&crate::escape_lines(&message), MAX_TEXT_BYTES),
            kind: kind.clone(),
        };
        let _suspension = call.map(ActiveCall::suspend_deadline);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, handler.elicit(request)).await;
        Ok(match answer.unwrap_or(ElicitationResponse::Cancel) {
            ElicitationResponse::Accept(values) => accept(&kind, values).await,
            ElicitationResponse::Decline => ElicitResult::new(ElicitationAction::Decline),
            ElicitationResponse::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    pub(super) async fn sample(
        &self,
        request: CreateMessageRequestParams,
        call: Option<&ActiveCall>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let record = self.record(call, SAMPLE);
        let result = self.run_sampling(request, call).await;
        record.end(result.as_ref().map(|_| RequestOutcome::Accepted));
        result
    }

    async fn run_sampling(
        &self,
        request: CreateMessageRequestParams,
        call: Option<&ActiveCall>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let handler = self.handler(call);
        if !handler.capabilities().sampling {
            return Err(self.unsupported(call, SAMPLE));
        }
        let request = self.sampling_request(request)?;
        let _open = self.slot()?;
        let _suspension = call.map(ActiveCall::suspend_deadline);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, handler.sample(request)).await;
        let SamplingResponse { model, text } = answer
            .unwrap_or_default()
            .ok_or_else(|| refused("a person refused this"))?;
        let text = SamplingMessageContentBlock::Text(TextContent::new(text));
        let message = SamplingMessage::new(Role::Assistant, text);
        Ok(CreateMessageResult::new(message, model))
    }

    fn sampling_request(&self, request: CreateMessageRequestParams) -> Result<Sampling, ErrorData> {
        if request.tools.is_some_and(|tools| !tools.is_empty()) {
            return Err(refused("no tools are given to the model"));
        }
        let mut left = MAX_PROMPT_BYTES;
        let mut take_text = |text: &str| {
            left = left.checked_sub(text.len())?;
            Some(crate::escape_lines(text).into_owned())
        };
        let mut messages = Vec::new();
        for message in request.messages {
            for block in message.content.into_vec() {
                let SamplingMessageContentBlock::Text(block) = block else {
                    return Err(refused("only text is given to the model"));
                };
                let text =
                    take_text(&block.text).ok_or_else(|| refused("the prompt is too long"))?;
                messages.push(ServerMessage::new(&message.role, text));
            }
        }
        let first = request.system_prompt.as_deref().map(&mut take_text);
        let first = first.map(|first| first.ok_or_else(|| refused("the prompt is too long")));
        let system_prompt = first.transpose()?;
        let preferences = request.model_preferences.unwrap_or_default();
        let hints = preferences.hints.unwrap_or_default().into_iter().take(16);
        let models = hints.filter_map(|hint| hint.name);
        Ok(Sampling {
            server: self.server.clone(),
            messages,
            system_prompt,
            models: models
                .map(|name| truncate(&crate::escape(&name), 256))
                .collect(),
            priorities: Priorities {
                cost: preferences.cost_priority,
                speed: preferences.speed_priority,
                intelligence: preferences.intelligence_priority,
            },
            max_tokens: request.max_tokens,
        })
    }

    /// What a server is told within `calls`, which it may be about to serve: what the host names, as far as all of them
    /// may read it.
    pub(super) fn roots(&self, calls: &[Arc<ActiveCall>]) -> Result<ListRootsResult, ErrorData> {
        if !self.capabilities().roots {
            return Err(self.unsupported(None, ROOTS));
        }
        let of_host = self.host.capabilities().roots;
        let mut roots = of_host.then(|| self.host.roots(&self.server));
        for call in calls {
            let folders = call.folders();
            roots = Some(match roots {
                Some(roots) => intersection(&roots, &folders),
                None => folders,
            });
            self.record(Some(call), ROOTS)
                .end(Ok(RequestOutcome::Accepted));
        }
        let roots = roots.unwrap_or_default();
        let root = |path: &VirtualPath| rmcp::model::Root::new(path.address());
        Ok(ListRootsResult::new(roots.iter().map(root).collect()))
    }

    fn slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ErrorData> {
        let busy = |_| refused("too many questions of this server are open");
        self.open.try_acquire().map_err(busy)
    }
}

/// Records how a request ended; one that is dropped before its end was cancelled.
struct RequestRecord<'r> {
    server: &'r str,
    /// None once it is recorded, or if there is no call to record it with.
    call: Option<&'r ActiveCall>,
    method: &'static str,
}

impl RequestRecord<'_> {
    fn end(mut self, outcome: Result<RequestOutcome, &ErrorData>) {
        let (outcome, reason) = match outcome {
            Ok(outcome) => (outcome, None),
            Err(error) => (RequestOutcome::Refused, Some(error.message.as_ref())),
        };
        if let Some(call) = self.call.take() {
            call.record(self.server, self.method, outcome, reason);
        }
    }
}

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.record(self.server, self.method, RequestOutcome::Cancelled, None);
        }
    }
}

/// What is in a directory of both lists.
fn intersection(some: &[VirtualPath], others: &[VirtualPath]) -> Vec<VirtualPath> {
    let mut intersection: Vec<VirtualPath> = Vec::new();
    for one in some {
        for other in others {
            let inner = if one.starts_with(other) { one } else { other };
            let both = inner.starts_with(one) && inner.starts_with(other);
            if both && !intersection.contains(inner) {
                intersection.push(inner.clone());
            }
        }
    }
    intersection
}

/// A yes with values that fit the form, each of one of its fields; else it counts as no answer.
async fn accept(kind: &ElicitationKind, values: Map<String, Value>) -> ElicitResult {
    let mut result = ElicitResult::new(ElicitationAction::Accept);
    match kind {
        ElicitationKind::Url(_) => {}
        ElicitationKind::Form(schema) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            let named = |key: &String| fields.is_some_and(|fields| fields.contains_key(key));
            let values = values.keys().all(named).then_some(Value::Object(values));
            let compiled = CompiledSchema::of(schema, &mut SchemaBudget::default()).map(Arc::new);
            let (Some(values), Ok(compiled)) = (values, compiled) else {
                return ElicitResult::new(ElicitationAction::Cancel);
            };
            if compiled.is_valid(values.clone()).await != Some(true) {
                return ElicitResult::new(ElicitationAction::Cancel);
            }
            result.content = Some(values);
        }
    }
    result
}
