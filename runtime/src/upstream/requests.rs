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

use super::classify::cut;
use super::elicit;
use super::shape::{Allowance, Shape};
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

    /// A server lets nobody in whom a person did not sign in. The answer is the whole address that the browser was led
    /// back to from [`SignIn::url`](super::SignIn::url), none is no.
    #[cfg(feature = "oauth")]
    fn sign_in(&self, _request: super::SignIn) -> Requested<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// The directories that a server is told of, as workers know them. It learns names; it may do nothing by them.
    fn roots(&self, _server: &str) -> Vec<VirtualPath> {
        Vec::new()
    }
}

/// Says no to everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyRequests;

impl ServerRequests for DenyRequests {}

/// The requests of one server, each checked before the host hears of it.
pub(super) struct Hearing {
    server: String,
    host: Arc<dyn ServerRequests>,
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

fn unanswered(method: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
}

impl Hearing {
    pub(super) fn new(server: &str, host: Arc<dyn ServerRequests>) -> Self {
        Self {
            server: server.to_owned(),
            host,
            open: Semaphore::new(MOST_OPEN),
        }
    }

    pub(super) fn answers(&self) -> Answers {
        self.host.answers()
    }

    pub(super) async fn elicit(
        &self,
        request: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData> {
        let answers = self.host.answers();
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
            _ => return Err(unanswered("elicitation/create")),
        };
        let _open = self.place()?;
        let request = Elicitation {
            server: self.server.clone(),
            message: cut(&crate::escape_lines(&message), LONGEST_TEXT),
            wants: wants.clone(),
        };
        let said = tokio::time::timeout(PATIENCE, self.host.elicit(request)).await;
        Ok(match said.unwrap_or(Elicited::Cancel) {
            Elicited::Accept(values) => accepted(&wants, values).await,
            Elicited::Decline => ElicitResult::new(ElicitationAction::Decline),
            Elicited::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    pub(super) async fn sample(
        &self,
        request: CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.host.answers().sampling {
            return Err(unanswered("sampling/createMessage"));
        }
        let request = self.sampling(request)?;
        let _open = self.place()?;
        let said = tokio::time::timeout(PATIENCE, self.host.sample(request)).await;
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

    pub(super) fn roots(&self) -> Result<ListRootsResult, ErrorData> {
        if !self.host.answers().roots {
            return Err(unanswered("roots/list"));
        }
        let roots = self.host.roots(&self.server);
        let root = |path: &VirtualPath| rmcp::model::Root::new(path.address());
        Ok(ListRootsResult::new(roots.iter().map(root).collect()))
    }

    fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ErrorData> {
        let busy = |_| refused("too many questions of this server are open");
        self.open.try_acquire().map_err(busy)
    }
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
