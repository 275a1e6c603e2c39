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

use super::callers::{Caller, Callers};
use super::classify::cut;
use super::elicit;
use super::shape::{Allowance, Shape};
use crate::audit::RequestOutcome;
use crate::path::VirtualPath;

/// The most questions of one server that are open at one time.
const MOST_OPEN: usize = 4;
/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest text that a person is shown of a server, in bytes.
const LONGEST_TEXT: usize = 4096;
/// The most text that a model is to be given for a server, in bytes.
const LONGEST_PROMPT: usize = 256 << 10;

/// An answer on its way.
pub type Requested<'r, T> = Pin<Box<dyn Future<Output = T> + Send + 'r>>;

/// A question of a server to a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// Which server asks; show it.
    pub server: String,
    /// What it says, as text.
    pub message: String,
    /// What it wants.
    pub wants: Wants,
}

/// What a server wants of a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Wants {
    /// A form, as a flat JSON Schema whose fields are texts, numbers, choices, or yes and no; none asks for a secret. What of
    /// it is only read is text, and short; its names and values hold nothing that deceives.
    Form(Value),
    /// A visit to an address of the web, which the person opens themself. What they do there stays between them and it.
    Visit(String),
}

/// What a person says to an [`Elicitation`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Elicited {
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
pub enum Speaker {
    /// A person's, or a program's in their name.
    User,
    /// A model's.
    Model,
}

/// One text of a conversation that a server made up. It is a stranger's, whoever is said to have said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Who is to have said it.
    pub by: Speaker,
    /// The text.
    pub text: String,
}

impl Said {
    pub(super) fn new(by: &Role, text: String) -> Self {
        let by = match by {
            Role::Assistant => Speaker::Model,
            Role::User => Speaker::User,
        };
        Self { by, text }
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
    pub messages: Vec<Said>,
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
pub struct Sampled {
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
pub struct Answers {
    /// Forms.
    pub forms: bool,
    /// Visits.
    pub visits: bool,
    /// Sampling.
    pub sampling: bool,
    /// Roots.
    pub roots: bool,
}

impl Answers {
    /// Everything.
    pub const ALL: Self = Self {
        forms: true,
        visits: true,
        sampling: true,
        roots: true,
    };
}

/// Whoever answers what servers ask of their host: a person through the host's user interface, or a rule. Every method
/// says no unless it is written.
pub trait ServerRequests: Send + Sync + 'static {
    /// Which requests are answered at all.
    fn answers(&self) -> Answers {
        Answers::default()
    }

    /// A server asks a person something.
    fn elicit(&self, _request: Elicitation) -> Requested<'_, Elicited> {
        Box::pin(std::future::ready(Elicited::Decline))
    }

    /// A server wants the host's model to say something. None is no.
    fn sample(&self, _request: Sampling) -> Requested<'_, Option<Sampled>> {
        Box::pin(std::future::ready(None))
    }

    /// A server requires that a person signs in, or allows it more. Asks the person, and opens
    /// [`SignIn::url`](super::SignIn::url) in their browser if they want it. A host without this method has nobody to ask.
    #[cfg(feature = "oauth")]
    fn sign_in(&self, _request: super::SignIn) -> Requested<'_, super::SignInAnswer> {
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
pub(super) struct Hearing {
    server: String,
    host: Arc<dyn ServerRequests>,
    /// Requests within calls are answered by the client that made the call.
    forwards: bool,
    open: Semaphore,
}

impl fmt::Debug for Hearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearing").finish_non_exhaustive()
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

impl Hearing {
    pub(super) fn new(server: &str, host: Arc<dyn ServerRequests>, forwards: bool) -> Self {
        Self {
            server: server.to_owned(),
            host,
            forwards,
            open: Semaphore::new(MOST_OPEN),
        }
    }

    /// What may be answered at all, which the server is told when it is connected.
    pub(super) fn answers(&self) -> Answers {
        let mut answers = self.host.answers();
        if self.forwards {
            (answers.forms, answers.visits, answers.roots) = (true, true, true);
        }
        answers
    }

    /// The call that a request belongs to, which did not say so.
    pub(super) fn caller(&self, callers: &Callers) -> Result<Option<Arc<Caller>>, ErrorData> {
        let caller = if self.forwards {
            callers.latest_of_one_client()?
        } else {
            callers.only()
        };
        if let Some(caller) = &caller {
            caller.count()?;
        }
        Ok(caller)
    }

    /// What is answered within a call.
    pub(super) fn answers_within(&self, caller: &Caller) -> Answers {
        let mut answers = self.handler(Some(caller)).answers();
        answers.roots = self.answers().roots;
        answers
    }

    /// Who answers requests within a call in place of the host.
    fn forwarded<'h>(&self, caller: Option<&'h Caller>) -> Option<&'h CallRequests> {
        caller.filter(|_| self.forwards).and_then(Caller::requests)
    }

    /// Who answers a request.
    fn handler<'h>(&'h self, caller: Option<&'h Caller>) -> &'h dyn ServerRequests {
        let requests = self.forwarded(caller);
        requests.map_or(&*self.host, |requests| &*requests.handler)
    }

    /// Why a request is not answered.
    fn unsupported(&self, caller: Option<&Caller>, method: &str) -> ErrorData {
        unsupported(if self.forwarded(caller).is_some() {
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
        caller: Option<&Caller>,
    ) -> Result<ElicitResult, ErrorData> {
        let record = self.record(caller, ELICIT);
        let elicited = self.elicited(request, caller).await;
        record.end(elicited.as_ref().map(|result| match result.action {
            ElicitationAction::Accept => RequestOutcome::Accepted,
            ElicitationAction::Decline => RequestOutcome::Declined,
            _ => RequestOutcome::Cancelled,
        }));
        elicited
    }

    fn record<'r>(&'r self, caller: Option<&'r Caller>, method: &'static str) -> RequestRecord<'r> {
        RequestRecord {
            server: &self.server,
            caller,
            method,
        }
    }

    async fn elicited(
        &self,
        request: ElicitRequestParams,
        caller: Option<&Caller>,
    ) -> Result<ElicitResult, ErrorData> {
        let handler = self.handler(caller);
        let answers = handler.answers();
        let (message, wants) = match request {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } if answers.forms => {
                let schema = serde_json::to_value(requested_schema);
                let schema = schema.map_err(|_| refused("the form is no schema"))?;
                let form = elicit::form(&schema).map_err(|unasked| refused(unasked.why()))?;
                (message, Wants::Form(form))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } if answers.visits => {
                elicit::url(&url).map_err(|unasked| refused(unasked.why()))?;
                (message, Wants::Visit(url))
            }
            _ => return Err(self.unsupported(caller, ELICIT)),
        };
        let _open = self.place()?;
        let request = Elicitation {
            server: self.server.clone(),
            message: cut(&crate::escape_lines(&message), LONGEST_TEXT),
            wants: wants.clone(),
        };
        let _waiting = caller.map(Caller::wait);
        let said = tokio::time::timeout(PATIENCE, handler.elicit(request)).await;
        Ok(match said.unwrap_or(Elicited::Cancel) {
            Elicited::Accept(values) => accepted(&wants, values).await,
            Elicited::Decline => ElicitResult::new(ElicitationAction::Decline),
            Elicited::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    pub(super) async fn sample(
        &self,
        request: CreateMessageRequestParams,
        caller: Option<&Caller>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let record = self.record(caller, SAMPLE);
        let sampled = self.sampled(request, caller).await;
        record.end(sampled.as_ref().map(|_| RequestOutcome::Accepted));
        sampled
    }

    async fn sampled(
        &self,
        request: CreateMessageRequestParams,
        caller: Option<&Caller>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let handler = self.handler(caller);
        if !handler.answers().sampling {
            return Err(self.unsupported(caller, SAMPLE));
        }
        let request = self.sampling(request)?;
        let _open = self.place()?;
        let _waiting = caller.map(Caller::wait);
        let said = tokio::time::timeout(PATIENCE, handler.sample(request)).await;
        let Sampled { model, text } = said
            .unwrap_or_default()
            .ok_or_else(|| refused("a person refused this"))?;
        let text = SamplingMessageContentBlock::Text(TextContent::new(text));
        let message = SamplingMessage::new(Role::Assistant, text);
        Ok(CreateMessageResult::new(message, model))
    }

    fn sampling(&self, request: CreateMessageRequestParams) -> Result<Sampling, ErrorData> {
        if request.tools.is_some_and(|tools| !tools.is_empty()) {
            return Err(refused("no tools are given to the model"));
        }
        let mut left = LONGEST_PROMPT;
        let mut taken = |text: &str| {
            left = left.checked_sub(text.len())?;
            Some(crate::escape_lines(text).into_owned())
        };
        let mut messages = Vec::new();
        for message in request.messages {
            for block in message.content.into_vec() {
                let SamplingMessageContentBlock::Text(block) = block else {
                    return Err(refused("only text is given to the model"));
                };
                let text = taken(&block.text).ok_or_else(|| refused("the prompt is too long"))?;
                messages.push(Said::new(&message.role, text));
            }
        }
        let first = request.system_prompt.as_deref().map(&mut taken);
        let first = first.map(|first| first.ok_or_else(|| refused("the prompt is too long")));
        let system_prompt = first.transpose()?;
        let wishes = request.model_preferences.unwrap_or_default();
        let hints = wishes.hints.unwrap_or_default().into_iter().take(16);
        let models = hints.filter_map(|hint| hint.name);
        Ok(Sampling {
            server: self.server.clone(),
            messages,
            system_prompt,
            models: models.map(|name| cut(&crate::escape(&name), 256)).collect(),
            priorities: Priorities {
                cost: wishes.cost_priority,
                speed: wishes.speed_priority,
                intelligence: wishes.intelligence_priority,
            },
            max_tokens: request.max_tokens,
        })
    }

    /// What a server is told within `callers`, which it may be about to serve: what the host names, as far as all of them
    /// may read it.
    pub(super) fn roots(&self, callers: &[Arc<Caller>]) -> Result<ListRootsResult, ErrorData> {
        if !self.answers().roots {
            return Err(self.unsupported(None, ROOTS));
        }
        let of_host = self.host.answers().roots;
        let mut roots = of_host.then(|| self.host.roots(&self.server));
        for caller in callers {
            let folders = caller.folders();
            roots = Some(match roots {
                Some(roots) => common(&roots, &folders),
                None => folders,
            });
            self.record(Some(caller), ROOTS)
                .end(Ok(RequestOutcome::Accepted));
        }
        let roots = roots.unwrap_or_default();
        let root = |path: &VirtualPath| rmcp::model::Root::new(path.address());
        Ok(ListRootsResult::new(roots.iter().map(root).collect()))
    }

    fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ErrorData> {
        let busy = |_| refused("too many questions of this server are open");
        self.open.try_acquire().map_err(busy)
    }
}

/// Records how a request ended; one that is dropped before its end was cancelled.
struct RequestRecord<'r> {
    server: &'r str,
    /// None once it is recorded, or if there is no call to record it with.
    caller: Option<&'r Caller>,
    method: &'static str,
}

impl RequestRecord<'_> {
    fn end(mut self, outcome: Result<RequestOutcome, &ErrorData>) {
        let (outcome, reason) = match outcome {
            Ok(outcome) => (outcome, None),
            Err(error) => (RequestOutcome::Refused, Some(error.message.as_ref())),
        };
        if let Some(caller) = self.caller.take() {
            caller.record(self.server, self.method, outcome, reason);
        }
    }
}

impl Drop for RequestRecord<'_> {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            caller.record(self.server, self.method, RequestOutcome::Cancelled, None);
        }
    }
}

/// What is in a directory of both lists.
fn common(some: &[VirtualPath], others: &[VirtualPath]) -> Vec<VirtualPath> {
    let mut common: Vec<VirtualPath> = Vec::new();
    for one in some {
        for other in others {
            let inner = if one.starts_with(other) { one } else { other };
            let both = inner.starts_with(one) && inner.starts_with(other);
            if both && !common.contains(inner) {
                common.push(inner.clone());
            }
        }
    }
    common
}

/// A yes with values that fit the form, each of one of its fields; else it counts as no answer.
async fn accepted(wants: &Wants, values: Map<String, Value>) -> ElicitResult {
    let mut result = ElicitResult::new(ElicitationAction::Accept);
    match wants {
        Wants::Visit(_) => {}
        Wants::Form(schema) => {
            let fields = schema.get("properties").and_then(Value::as_object);
            let named = |key: &String| fields.is_some_and(|fields| fields.contains_key(key));
            let values = values.keys().all(named).then_some(Value::Object(values));
            let shape = Shape::of(schema, &mut Allowance::default()).map(Arc::new);
            let (Some(values), Ok(shape)) = (values, shape) else {
                return ElicitResult::new(ElicitationAction::Cancel);
            };
            if shape.fits(values.clone()).await != Some(true) {
                return ElicitResult::new(ElicitationAction::Cancel);
            }
            result.content = Some(values);
        }
    }
    result
}
