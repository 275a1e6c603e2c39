//! Handles requests of servers to their host: elicitation, sampling and roots.
#![expect(
    deprecated,
    reason = "MCP deprecates sampling and roots, but servers of all versions may use them"
)]

use std::borrow::Cow;
use std::fmt;
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
use super::schema::SchemaValidator;
use bailiwick::VirtualPath;
use bailiwick::audit::RequestOutcome;
use bailiwick::requests::{
    CallRequests, Elicitation, ElicitationKind, ElicitationResponse, MessageRole, Priorities,
    RequestCapabilities, Sampling, SamplingResponse, ServerMessage, ServerRequests,
};

/// The largest number of concurrent requests of one server.
const MAX_OPEN_REQUESTS: usize = 4;
/// How long a person may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest message for a person, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// The longest prompt for a model, in bytes.
const MAX_PROMPT_BYTES: usize = 256 << 10;

/// A message of the conversation that a server sends.
pub(super) fn server_message(role: &Role, text: String) -> ServerMessage {
    let role = match role {
        Role::Assistant => MessageRole::Assistant,
        Role::User => MessageRole::User,
    };
    ServerMessage { role, text }
}

/// Validates the requests of one server and passes them to the host or to a client.
pub(super) struct ServerRequestHandler {
    server: String,
    host: Arc<dyn ServerRequests>,
    /// Whether requests within calls are forwarded to the client that made the call.
    forwards: bool,
    open: Semaphore,
}

impl fmt::Debug for ServerRequestHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequestHandler")
            .finish_non_exhaustive()
    }
}

fn refused(why: impl Into<Cow<'static, str>>) -> ErrorData {
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

    /// The capabilities that are declared to the server.
    pub(super) fn capabilities(&self) -> RequestCapabilities {
        let mut capabilities = self.host.capabilities();
        if self.forwards {
            (capabilities.forms, capabilities.urls, capabilities.roots) = (true, true, true);
        }
        capabilities
    }

    /// The call to assign a request to, for protocol versions in which requests do not name it.
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

    /// The capabilities within a call.
    pub(super) fn capabilities_within(&self, call: &ActiveCall) -> RequestCapabilities {
        let mut capabilities = self.handler(Some(call)).capabilities();
        capabilities.roots = self.capabilities().roots;
        capabilities
    }

    /// The handler of the client that made the call, if requests are forwarded.
    fn call_requests<'h>(&self, call: Option<&'h ActiveCall>) -> Option<&'h CallRequests> {
        call.filter(|_| self.forwards)
            .and_then(ActiveCall::requests)
    }

    /// The handler of a request.
    fn handler<'h>(&'h self, call: Option<&'h ActiveCall>) -> &'h dyn ServerRequests {
        let requests = self.call_requests(call);
        requests.map_or(&*self.host, |requests| requests.handler())
    }

    /// The error for an unsupported request.
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
                let schema = schema.map_err(|_| refused("the form is not a schema"))?;
                let form =
                    elicitation::check_form(&schema).map_err(|it| refused(it.to_string()))?;
                (message, ElicitationKind::Form(form))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } if capabilities.urls => {
                elicitation::check_url(&url).map_err(|it| refused(it.to_string()))?;
                (message, ElicitationKind::Url(url))
            }
            _ => return Err(self.unsupported(call, ELICIT)),
        };
        let _open = self.slot()?;
        let message = truncate(&bailiwick::text::escape_lines(&message), MAX_TEXT_BYTES);
        let request = Elicitation::new(self.server.clone(), message, kind.clone());
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
            Some(bailiwick::text::escape_lines(text).into_owned())
        };
        let mut messages = Vec::new();
        for message in request.messages {
            for block in message.content.into_vec() {
                let SamplingMessageContentBlock::Text(block) = block else {
                    return Err(refused("only text is given to the model"));
                };
                let text =
                    take_text(&block.text).ok_or_else(|| refused("the prompt is too long"))?;
                messages.push(server_message(&message.role, text));
            }
        }
        let first = request.system_prompt.as_deref().map(&mut take_text);
        let first = first.map(|first| first.ok_or_else(|| refused("the prompt is too long")));
        let system_prompt = first.transpose()?;
        let preferences = request.model_preferences.unwrap_or_default();
        let hints = preferences.hints.unwrap_or_default().into_iter().take(16);
        let models = hints.filter_map(|hint| hint.name);
        let mut sampling = Sampling::new(self.server.clone(), messages, request.max_tokens);
        sampling.system_prompt = system_prompt;
        sampling.models = models
            .map(|name| truncate(&bailiwick::text::escape(&name), 256))
            .collect();
        sampling.priorities = Priorities {
            cost: preferences.cost_priority,
            speed: preferences.speed_priority,
            intelligence: preferences.intelligence_priority,
        };
        Ok(sampling)
    }

    /// The roots to report while `calls` are active: the directories of the host that all of the calls may read.
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

/// Records the outcome of a request; dropping it records a cancellation.
struct RequestRecord<'r> {
    server: &'r str,
    /// `None` once the outcome is recorded, or without a call.
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

/// The directories contained in both lists.
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

/// Accepts the values if they match the form, and cancels the request if not.
async fn accept(kind: &ElicitationKind, values: Map<String, Value>) -> ElicitResult {
    let mut result = ElicitResult::new(ElicitationAction::Accept);
    match kind {
        ElicitationKind::Url(_) => {}
        ElicitationKind::Form(schema) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            let named = |key: &String| fields.is_some_and(|fields| fields.contains_key(key));
            let values = values.keys().all(named).then_some(Value::Object(values));
            let validator = SchemaValidator::new(schema.clone()).await;
            let (Some(values), Ok(validator)) = (values, validator) else {
                return ElicitResult::new(ElicitationAction::Cancel);
            };
            if validator.is_valid(values.clone()).await != Ok(true) {
                return ElicitResult::new(ElicitationAction::Cancel);
            }
            result.content = Some(values);
        }
        _ => return ElicitResult::new(ElicitationAction::Cancel),
    }
    result
}
