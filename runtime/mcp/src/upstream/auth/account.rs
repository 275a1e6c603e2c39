//! Sign-in state of one server. People are asked one question at a time, and not repeatedly.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::super::address;
use super::super::classify::truncate;
use super::super::spec::HttpConfig;
use super::credentials::CredentialCache;
use super::flow::{AuthorizationResponse, OAuthFlow, single_param};
use super::sign_in_audit::SignInAudit;
use super::{OAuth, SignInError};
use bailiwick::audit::SignedInStep;
use bailiwick::permission::DecidedBy;
use bailiwick::requests::{ServerRequests, SignIn, SignInAnswer};

/// The timeout of the network requests between two prompts.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a person may take to answer.
const PERSON_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the same question is not repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(300);
/// The largest number of different prompts per server in that time.
const MAX_PROMPTS: usize = 4;
/// How often the same question is asked in that time after network failures.
const MAX_TRIES: usize = 2;
/// The longest header, in bytes.
const MAX_TEXT_BYTES: usize = 8 << 10;
/// The largest number of scopes in a prompt, and the longest, in bytes.
const MAX_SCOPES: (usize, usize) = (64, 128);

/// A request that the server rejected because it requires a sign-in.
#[derive(Clone)]
pub(in crate::upstream) struct Challenge {
    pub(super) header: String,
    /// The additional scopes, if a person is signed in already.
    pub(super) additional_scope: Option<String>,
    /// The tool whose call was rejected.
    pub(super) tool: Option<String>,
}

impl Challenge {
    /// The challenge in an error, if there is one. `tool` is the called tool.
    pub(in crate::upstream) fn of(
        error: &StreamableHttpError<reqwest::Error>,
        tool: Option<&str>,
    ) -> Option<Self> {
        let (header, additional_scope) = match error {
            StreamableHttpError::AuthRequired(error) => (&error.www_authenticate_header, None),
            StreamableHttpError::InsufficientScope(error) => {
                let scope = error.required_scope.clone().unwrap_or_default();
                (&error.www_authenticate_header, Some(scope))
            }
            _ => return None,
        };
        Some(Self {
            header: header.clone(),
            additional_scope,
            tool: tool.map(|tool| truncate(&bailiwick::text::escape(tool), MAX_TEXT_BYTES)),
        })
    }
}

/// The outcome of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum SignInOutcome {
    /// No sign-in was required, or nobody could be asked yet.
    NotNeeded,
    /// The sign-in was completed.
    Completed,
    /// The sign-in was refused.
    Refused,
}

/// The sign-in state of this host at one server.
pub(in crate::upstream) struct Account {
    server: String,
    address: String,
    host: Arc<dyn ServerRequests>,
    audit: Arc<SignInAudit>,
    /// The runtime of the host. Requests to the server run on another thread without logging.
    runtime: Handle,
    credentials: Arc<CredentialCache>,
    flow: tokio::sync::Mutex<OAuthFlow>,
    prompt_lock: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// Identifies a question: the issuer and the additional scopes.
type PromptKey = (String, Option<String>);

/// When a person was asked, how often, and the answer.
struct Prompt {
    at: Instant,
    tries: usize,
    answer: Result<(), SignInError>,
}

impl Prompt {
    fn may_retry(&self) -> bool {
        let failed = matches!(self.answer, Err(SignInError::TimedOut | SignInError::Token));
        failed && self.tries < MAX_TRIES
    }
}

#[derive(Default)]
struct State {
    challenge: Option<Challenge>,
    prompts: BTreeMap<PromptKey, Prompt>,
    connected: bool,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").finish_non_exhaustive()
    }
}

async fn with_timeout<T>(
    it: impl Future<Output = Result<T, SignInError>>,
) -> Result<T, SignInError> {
    timeout(NETWORK_TIMEOUT, it)
        .await
        .unwrap_or(Err(SignInError::TimedOut))
}

/// Formats a URL for people.
fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    // Both succeed for URLs with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    bailiwick::text::escape(url.as_str()).into_owned()
}

impl Account {
    /// Returns `None` if the host configured an `Authorization` header.
    pub(in crate::upstream) async fn open(
        (server, label): (&str, &str),
        config: &HttpConfig,
        oauth: &OAuth,
        (host, audit): (&Arc<dyn ServerRequests>, &Arc<SignInAudit>),
    ) -> Option<Arc<Self>> {
        let mut headers = config.headers.keys();
        if headers.any(|header| header.eq_ignore_ascii_case("authorization")) {
            return None;
        }
        let url = address::parse_http_url(&config.url)?;
        let flow = OAuthFlow::open((server, label), &url, config, oauth).await?;
        Some(Arc::new(Self {
            server: server.to_owned(),
            address: display_url(&url),
            host: Arc::clone(host),
            audit: Arc::clone(audit),
            runtime: Handle::current(),
            credentials: flow.credentials(),
            flow: tokio::sync::Mutex::new(flow),
            prompt_lock: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Whether calls may wait for a person, which requires an established connection.
    pub(in crate::upstream) fn is_connected(&self) -> bool {
        self.state.lock().connected
    }

    pub(in crate::upstream) fn set_connected(&self, connected: bool) {
        let mut state = self.state.lock();
        state.connected = connected;
        if connected {
            state.challenge = None;
        }
    }

    /// Allows all questions again, because a person retries the server.
    pub(in crate::upstream) fn reset_prompts(&self) {
        self.state.lock().prompts.clear();
    }

    /// The OAuth flow, unless it is busy for too long.
    async fn flow(&self) -> Option<tokio::sync::MutexGuard<'_, OAuthFlow>> {
        timeout(NETWORK_TIMEOUT, self.flow.lock()).await.ok()
    }

    /// The access token, if there is one.
    pub(in crate::upstream) async fn token(self: &Arc<Self>) -> Option<String> {
        let account = Arc::clone(self);
        let token = async move {
            // A valid token needs no authorization server, which may be slow.
            match account.credentials.token().await {
                None => account.flow().await?.token().await,
                token => token,
            }
        };
        self.runtime.spawn(token).await.ok().flatten()
    }

    /// A new token after the server rejected `refused`.
    pub(in crate::upstream) async fn refresh_token(
        self: &Arc<Self>,
        refused: String,
    ) -> Option<String> {
        let account = Arc::clone(self);
        let refreshed = async move { account.flow().await?.refresh(&refused).await };
        self.runtime.spawn(refreshed).await.ok().flatten()
    }

    /// Stores a challenge until the connection has ended.
    pub(in crate::upstream) fn record_challenge(
        &self,
        error: &StreamableHttpError<reqwest::Error>,
    ) {
        let challenge = Challenge::of(error, None);
        if let Some(challenge) = challenge.filter(|it| it.header.len() <= MAX_TEXT_BYTES) {
            self.state.lock().challenge = Some(challenge);
        }
    }

    /// Asks a person for the additional scopes that a connected server requires.
    pub(in crate::upstream) async fn request_scopes(
        self: &Arc<Self>,
        challenge: Challenge,
    ) -> bool {
        let account = Arc::clone(self);
        // The prompt continues if the call times out; the next call uses the granted scopes.
        let task = self.runtime.spawn(async move {
            let allowed = account.prompt_once(&challenge).await;
            if let Err(error) = allowed {
                let server = &account.server;
                tracing::warn!(%server, %error, "a server wants more than it has");
            }
            allowed.is_ok()
        });
        task.await.unwrap_or(false)
    }

    /// Whether the server rejected the connection and requires a sign-in.
    pub(in crate::upstream) fn needs_sign_in(&self) -> bool {
        self.state.lock().challenge.is_some()
    }

    /// Runs the sign-in that the server requires for a connection.
    pub(in crate::upstream) async fn sign_in(&self) -> SignInOutcome {
        let Some(challenge) = self.state.lock().challenge.take() else {
            return SignInOutcome::NotNeeded;
        };
        let Err(error) = self.prompt_once(&challenge).await else {
            return SignInOutcome::Completed;
        };
        tracing::warn!(server = %self.server, %error, "nobody is signed in at a server");
        match error {
            SignInError::Discovery | SignInError::TimedOut | SignInError::Token => {
                SignInOutcome::NotNeeded
            }
            _ => SignInOutcome::Refused,
        }
    }

    async fn prompt_once(&self, challenge: &Challenge) -> Result<(), SignInError> {
        let began = Instant::now();
        let _lock = self.prompt_lock.lock().await;
        let Some((request, expected)) = with_timeout(self.sign_in_request(challenge)).await? else {
            return Ok(());
        };
        let key = (request.issuer.clone(), challenge.additional_scope.clone());
        let tries = {
            let mut state = self.state.lock();
            state
                .prompts
                .retain(|_, prompt| prompt.at.elapsed() < REPEAT_AFTER);
            match state.prompts.get(&key) {
                // A concurrent call asked the same question.
                Some(prompt) if prompt.at >= began => return prompt.answer,
                Some(prompt) if prompt.may_retry() => prompt.tries + 1,
                Some(_) => return Err(SignInError::AlreadyAsked),
                None if state.prompts.len() >= MAX_PROMPTS => {
                    return Err(SignInError::AlreadyAsked);
                }
                None => 1,
            }
        };
        let answer = self.prompt(request, &expected).await;
        let at = Instant::now();
        let prompt = Prompt { at, tries, answer };
        self.state.lock().prompts.insert(key, prompt);
        answer
    }

    async fn prompt(&self, request: SignIn, state: &str) -> Result<(), SignInError> {
        let mut record = SignedInStep {
            server: self.server.as_str().into(),
            issuer: request.issuer.as_str().into(),
            scopes: request.scopes.clone(),
            tool_there: request.tool.as_deref().map(Into::into),
            allowed: false,
            by: DecidedBy::Nobody,
        };
        let answer = timeout(PERSON_TIMEOUT, self.host.sign_in(request)).await;
        let response = match answer.unwrap_or(SignInAnswer::Unavailable) {
            SignInAnswer::Completed(address) => AuthorizationResponse::read(&address, state),
            SignInAnswer::Declined => Err(SignInError::Declined),
            SignInAnswer::Unavailable => Err(SignInError::Unavailable),
        };
        record.allowed = response.is_ok();
        record.by = match &response {
            Ok(_) | Err(SignInError::Declined) => DecidedBy::Person,
            Err(SignInError::Unavailable | SignInError::Rejected) => DecidedBy::Nobody,
            // The redirect does not match the request.
            Err(_) => DecidedBy::Host,
        };
        with_timeout(async {
            let recorded = self.audit.record(record).await;
            let response = response?;
            recorded.map_err(|_| SignInError::Unrecorded)?;
            self.flow.lock().await.exchange(&response, state).await
        })
        .await
    }

    /// The sign-in request and its expected state; `None` if no prompt is needed.
    async fn sign_in_request(
        &self,
        challenge: &Challenge,
    ) -> Result<Option<(SignIn, String)>, SignInError> {
        let Some(wanted) = self
            .flow
            .lock()
            .await
            .authorization_request(challenge)
            .await?
        else {
            return Ok(None);
        };
        let state = single_param(&wanted.url, "state")?.ok_or(SignInError::State)?;
        let (max_scopes, max_bytes) = MAX_SCOPES;
        if wanted.scopes.len() > max_scopes
            || wanted.scopes.iter().any(|scope| scope.len() > max_bytes)
        {
            return Err(SignInError::TooManyScopes);
        }
        let scopes = wanted.scopes.iter();
        let mut request = SignIn::new(
            self.server.clone(),
            self.address.clone(),
            truncate(&bailiwick::text::escape(&wanted.issuer), MAX_TEXT_BYTES),
            truncate(
                &bailiwick::text::escape(wanted.url.authority()),
                MAX_TEXT_BYTES,
            ),
            bailiwick::text::escape(wanted.url.as_str()).into_owned(),
        );
        request.scopes = scopes
            .map(|scope| bailiwick::text::escape(scope).into_owned())
            .collect();
        request.more = challenge.additional_scope.is_some();
        request.tool = challenge.tool.clone();
        Ok(Some((request, state)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::future::{pending, ready};

    use super::*;
    use bailiwick::audit::{Audit, MemoryAudit, Step};
    use bailiwick::requests::BoxFuture;

    /// A host that always gives the same answer, or never answers.
    struct Host(Option<SignInAnswer>);

    impl ServerRequests for Host {
        fn sign_in(&self, _: SignIn) -> BoxFuture<'_, SignInAnswer> {
            match self.0.clone() {
                Some(answer) => Box::pin(ready(answer)),
                None => Box::pin(pending()),
            }
        }
    }

    /// A host that does not implement sign-in.
    struct Absent;

    impl ServerRequests for Absent {}

    fn request() -> SignIn {
        let mut request = SignIn::new(
            "s".to_owned(),
            "http://127.0.0.1:1/mcp".to_owned(),
            "http://127.0.0.1:1".to_owned(),
            "127.0.0.1:1".to_owned(),
            "http://127.0.0.1:1/authorize".to_owned(),
        );
        request.scopes = Vec::new();
        request
    }

    /// The recorded decision for `host`: the error, whether it was allowed, and who decided.
    async fn recorded(host: impl ServerRequests) -> (SignInError, bool, DecidedBy) {
        let config = HttpConfig {
            url: "http://127.0.0.1:1/mcp".to_owned(),
            headers: BTreeMap::new(),
            #[cfg(feature = "tls")]
            authorities: Vec::new(),
        };
        let oauth = OAuth::new("http://127.0.0.1:2/");
        let host: Arc<dyn ServerRequests> = Arc::new(host);
        let audit = Arc::default();
        let account = Account::open(("s", "s~1"), &config, &oauth, (&host, &audit)).await;
        let error = account
            .unwrap()
            .prompt(request(), "state")
            .await
            .unwrap_err();
        let log = MemoryAudit::new(10);
        let log_audit = Audit::start(log.clone(), 10).unwrap();
        audit.attach(&log_audit).await.unwrap();
        let records = log.records();
        let [record] = records.as_slice() else {
            panic!("{records:?}");
        };
        match &record.event().step {
            Step::SignedIn(step) => (error, step.allowed, step.by),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn denied_sign_in_is_recorded_with_its_decider() {
        let back = |query: &str| SignInAnswer::Completed(format!("http://127.0.0.1:2/?{query}"));
        for (answer, error, by) in [
            (
                Some(SignInAnswer::Declined),
                SignInError::Declined,
                DecidedBy::Person,
            ),
            (
                Some(back("error=access_denied&state=state")),
                SignInError::Declined,
                DecidedBy::Person,
            ),
            (
                Some(SignInAnswer::Unavailable),
                SignInError::Unavailable,
                DecidedBy::Nobody,
            ),
            (None, SignInError::Unavailable, DecidedBy::Nobody),
            (
                Some(back("error=server_error&state=state")),
                SignInError::Rejected,
                DecidedBy::Nobody,
            ),
            (
                Some(back("code=c&state=another")),
                SignInError::State,
                DecidedBy::Host,
            ),
        ] {
            assert_eq!(recorded(Host(answer)).await, (error, false, by));
        }
        let absent = recorded(Absent).await;
        assert_eq!(absent, (SignInError::Unavailable, false, DecidedBy::Nobody));
    }
}
