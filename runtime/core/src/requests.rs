//! Requests that third-party servers send to their host: input from a person, sampling, roots and sign-in.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::path::VirtualPath;

/// A boxed future, as returned by async methods of object-safe traits.
pub type BoxFuture<'r, T> = Pin<Box<dyn Future<Output = T> + Send + 'r>>;

/// A request of a server for input from a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Elicitation {
    /// The name of the server; show it.
    pub server: String,
    /// The message of the server, as text.
    pub message: String,
    /// The requested input.
    pub kind: ElicitationKind,
}

impl Elicitation {
    /// Creates a request.
    #[must_use]
    pub fn new(server: String, message: String, kind: ElicitationKind) -> Self {
        Self {
            server,
            message,
            kind,
        }
    }
}

/// The kind of input that a server requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ElicitationKind {
    /// A form: a flat JSON Schema with text, number, choice and boolean fields, none of which asks for a secret. Titles
    /// and descriptions are escaped and short; names and values contain no deceptive characters.
    Form(Value),
    /// A URL for the person to open. What they enter there is not shared with the host.
    Url(String),
}

/// The answer to an [`Elicitation`].
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ElicitationResponse {
    /// The person accepted; the values of the form, or nothing for a URL.
    Accept(Map<String, Value>),
    /// The person declined.
    #[default]
    Decline,
    /// The person dismissed the request.
    Cancel,
}

/// The role of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    /// A user, or a program on their behalf.
    User,
    /// A model.
    Assistant,
}

/// A message of a conversation from a server. The content is untrusted, whatever its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMessage {
    /// The role of the author.
    pub role: MessageRole,
    /// The text.
    pub text: String,
}

/// What a server prefers in a model, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Priorities {
    /// Low cost.
    pub cost: Option<f32>,
    /// Low latency.
    pub speed: Option<f32>,
    /// High intelligence.
    pub intelligence: Option<f32>,
}

/// A request of a server to sample the host's model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// The name of the server; show it.
    pub server: String,
    /// The conversation.
    pub messages: Vec<ServerMessage>,
    /// The system prompt that the server suggests. The host may change or omit it.
    pub system_prompt: Option<String>,
    /// Suggested models, in order of preference.
    pub models: Vec<String>,
    /// The model preferences.
    pub priorities: Priorities,
    /// The largest number of tokens.
    pub max_tokens: u32,
}

impl Sampling {
    /// Creates a request without preferences.
    #[must_use]
    pub fn new(server: String, messages: Vec<ServerMessage>, max_tokens: u32) -> Self {
        Self {
            server,
            messages,
            system_prompt: None,
            models: Vec::new(),
            priorities: Priorities::default(),
            max_tokens,
        }
    }
}

/// The sampled message.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingResponse {
    /// The name of the model.
    pub model: String,
    /// The text of the message.
    pub text: String,
}

/// The requests that a host supports. Unsupported requests are not declared to servers and are rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the capabilities are independent"
)]
#[non_exhaustive]
pub struct RequestCapabilities {
    /// Elicitation by forms.
    pub forms: bool,
    /// Elicitation by URLs.
    pub urls: bool,
    /// Sampling.
    pub sampling: bool,
    /// Roots.
    pub roots: bool,
}

impl RequestCapabilities {
    /// All requests.
    pub const ALL: Self = Self {
        forms: true,
        urls: true,
        sampling: true,
        roots: true,
    };
}

/// Handles requests of servers to their host, by asking a person or by a rule. Every method declines by default.
pub trait ServerRequests: Send + Sync + 'static {
    /// The supported requests.
    fn capabilities(&self) -> RequestCapabilities {
        RequestCapabilities::default()
    }

    /// Asks a person for input.
    fn elicit(&self, _request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        Box::pin(std::future::ready(ElicitationResponse::Decline))
    }

    /// Samples the host's model; `None` declines.
    fn sample(&self, _request: Sampling) -> BoxFuture<'_, Option<SamplingResponse>> {
        Box::pin(std::future::ready(None))
    }

    /// Asks a person to sign in or to grant more scopes, and opens [`SignIn::url`](SignIn::url) in their browser
    /// if they agree. The default reports that nobody is available.
    fn sign_in(&self, _request: SignIn) -> BoxFuture<'_, SignInAnswer> {
        Box::pin(std::future::ready(SignInAnswer::Unavailable))
    }

    /// The directories that are reported to a server, as virtual paths. Reporting them grants no access. Within a call,
    /// only directories that the call may read are reported.
    fn roots(&self, _server: &str) -> Vec<VirtualPath> {
        Vec::new()
    }
}

/// Declines all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyRequests;

impl ServerRequests for DenyRequests {}

/// Handles the requests that servers send within calls of one client: see
/// [`CallMeta::requests`](crate::CallMeta::requests). Clones belong to the same client.
///
/// In protocol versions with a handshake, a server does not say which call its request belongs to. While calls of
/// several clients are active at a server, its requests are rejected.
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
    /// Creates a handler for the calls of one client. `handler` answers all requests except requests for roots, which
    /// are answered with the folders that the call may read.
    #[must_use]
    pub fn new(handler: impl ServerRequests) -> Self {
        Self::of_client(&Arc::default(), handler)
    }

    /// Creates a handler for a call of `client`.
    #[doc(hidden)]
    pub fn of_client(client: &Arc<()>, handler: impl ServerRequests) -> Self {
        Self {
            handler: Arc::new(handler),
            client: Arc::clone(client),
        }
    }

    /// Returns the handler.
    #[doc(hidden)]
    #[must_use]
    pub fn handler(&self) -> &dyn ServerRequests {
        &*self.handler
    }

    /// Identifies the client while one of its calls is active.
    #[doc(hidden)]
    #[must_use]
    pub fn client(&self) -> *const () {
        Arc::as_ptr(&self.client)
    }
}

/// A server requires that a person signs in or grants it more scopes. The decision is recorded in the audit before it
/// takes effect, and applies to all workers that have the server's tools.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignIn {
    /// The name of the server; show it.
    pub server: String,
    /// The configured address of the server; show it.
    pub address: String,
    /// The authorization server, where the person signs in; show it.
    pub issuer: String,
    /// The requested scopes, as the server names them.
    pub scopes: Vec<String>,
    /// Whether a person is signed in already and the server requests more scopes.
    pub more: bool,
    /// The server's name of the tool whose call requires more scopes; `None` for a first sign-in. Show it.
    pub tool: Option<String>,
    /// The host of `url`; show it.
    pub opens: String,
    /// The URL to open in the person's browser: `https`, or a URL on this machine if the server runs on it.
    pub url: String,
}

impl SignIn {
    /// Creates the request of a first sign-in at `server` with `address`: the page `url` of `issuer`, whose host is
    /// `opens`.
    #[must_use]
    pub fn new(
        server: String,
        address: String,
        issuer: String,
        opens: String,
        url: String,
    ) -> Self {
        Self {
            server,
            address,
            issuer,
            scopes: Vec::new(),
            more: false,
            tool: None,
            opens,
            url,
        }
    }
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other fields are intended only for the person and their browser.
        f.debug_struct("SignIn")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .field("opens", &self.opens)
            .finish_non_exhaustive()
    }
}

/// The answer to a sign-in request ([`ServerRequests::sign_in`]). The audit records who decided: a person declined, or
/// nobody was available.
///
/// [`ServerRequests::sign_in`]: ServerRequests::sign_in
#[derive(Clone, PartialEq, Eq)]
pub enum SignInAnswer {
    /// The person followed [`SignIn::url`]; this is the full URL that their browser was finally redirected to.
    Completed(String),
    /// The person declined.
    Declined,
    /// Nobody could be asked, or nobody answered.
    Unavailable,
}

impl fmt::Debug for SignInAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL contains a code, which is as sensitive as a password.
        f.write_str(match self {
            Self::Completed(_) => "Completed(..)",
            Self::Declined => "Declined",
            Self::Unavailable => "Unavailable",
        })
    }
}
