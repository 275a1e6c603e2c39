//! HTTP client of a server: adds access tokens, reports sign-in challenges, and limits responses and streams.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::auth::{Account, Challenge};
use super::connection_state::ConnectionState;
use super::failure::{ServerFailure, bare_status};
use super::line_reader::ValueCounter;
use super::pagination::SizeCounter;
use super::session::SessionStreams;

/// The default size limit of an event, in bytes.
const MAX_EVENT_BYTES: usize = 8 << 20;

type Headers = HashMap<HeaderName, HeaderValue>;
type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// The HTTP client of one connection.
#[derive(Clone, Debug)]
pub(super) struct HttpClient {
    client: reqwest::Client,
    account: Option<Arc<Account>>,
    streams: SessionStreams,
    state: Arc<ConnectionState>,
}

/// A message with its request parameters.
#[derive(Clone)]
struct OutgoingMessage {
    to: Arc<str>,
    message: ClientJsonRpcMessage,
    session: Option<Arc<str>>,
    headers: Headers,
    limit: usize,
}

impl HttpClient {
    pub(super) fn new(
        client: reqwest::Client,
        account: Option<Arc<Account>>,
        state: &Arc<ConnectionState>,
    ) -> Self {
        Self {
            client,
            account,
            streams: SessionStreams::default(),
            state: Arc::clone(state),
        }
    }

    async fn token(&self) -> Option<String> {
        self.account.as_ref()?.token().await
    }

    async fn send(
        &self,
        outgoing: OutgoingMessage,
        token: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let OutgoingMessage {
            to,
            message,
            session,
            headers,
            limit,
        } = outgoing;
        let client = &self.client;
        client
            .post_message_with_max_sse_event_size(to, message, session, token, headers, limit)
            .await
    }

    /// Sends with a token. A 401 without a challenge is converted into one, because the authorization server can be
    /// found at a well-known URL.
    async fn send_with_token(
        &self,
        outgoing: OutgoingMessage,
        token: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        match self.send(outgoing, token).await {
            Err(StreamableHttpError::UnexpectedServerResponse(text))
                if bare_status(&text) == Some(401) =>
            {
                let challenge = AuthRequiredError::new(String::new());
                Err(StreamableHttpError::AuthRequired(challenge))
            }
            answer => answer,
        }
    }

    /// Sends with the current token, and retries once with a refreshed token after a 401.
    async fn send_authenticated(
        &self,
        account: &Arc<Account>,
        outgoing: &OutgoingMessage,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let token = account.token().await;
        let answer = self.send_with_token(outgoing.clone(), token.clone()).await;
        let (Err(StreamableHttpError::AuthRequired(_)), Some(refused)) = (&answer, token) else {
            return answer;
        };
        match account.refresh_token(refused).await {
            Some(token) => self.send_with_token(outgoing.clone(), Some(token)).await,
            None => answer,
        }
    }

    async fn post(&self, outgoing: OutgoingMessage) -> Result<StreamableHttpPostResponse, Failed> {
        let Some(account) = &self.account else {
            return self.send(outgoing, None).await.map_err(redacted);
        };
        let mut answer = self.send_authenticated(account, &outgoing).await;
        if let Err(error @ StreamableHttpError::InsufficientScope(_)) = &answer
            && account.is_connected()
            && let Some(challenge) = Challenge::of(error, called_tool(&outgoing.message))
        {
            if account.request_scopes(challenge).await {
                answer = self.send_authenticated(account, &outgoing).await;
            }
            if let (Err(StreamableHttpError::InsufficientScope(_)), Some(refusal)) =
                (&answer, refusal(&outgoing.message))
            {
                return Ok(refusal);
            }
        }
        answer.map_err(|error| {
            account.record_challenge(&error);
            redacted(error)
        })
    }
}

/// The name of the called tool.
fn called_tool(message: &ClientJsonRpcMessage) -> Option<&str> {
    match message {
        ClientJsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => Some(&call.params.name),
            _ => None,
        },
        _ => None,
    }
}

/// The response to a call that lacks scopes. The connection stays open.
fn refusal(message: &ClientJsonRpcMessage) -> Option<StreamableHttpPostResponse> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let error = ErrorData::invalid_request("it needs more than a person allowed it", None);
    let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
    Some(StreamableHttpPostResponse::Json(answer, None))
}

/// Removes text of the server from an error, because it may contain the token, and errors are logged.
fn redacted(error: Failed) -> Failed {
    match error {
        StreamableHttpError::AuthRequired(_) => {
            StreamableHttpError::AuthRequired(AuthRequiredError::new(String::new()))
        }
        StreamableHttpError::InsufficientScope(_) => {
            StreamableHttpError::InsufficientScope(InsufficientScopeError::new(String::new(), None))
        }
        StreamableHttpError::UnexpectedServerResponse(text) => {
            let status = bare_status(&text).map(|status| format!("HTTP {status}"));
            let text = status.map_or("it is not of MCP".into(), Into::into);
            StreamableHttpError::UnexpectedServerResponse(text)
        }
        StreamableHttpError::UnexpectedContentType(_) => {
            StreamableHttpError::UnexpectedContentType(None)
        }
        error => error,
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let limit = MAX_EVENT_BYTES;
        self.post_message_with_max_sse_event_size(to, message, session, token, headers, limit)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        if let (JsonRpcMessage::Request(_), Some(session)) = (&message, &session) {
            self.streams.wait_until_open(session).await;
        }
        let outgoing = OutgoingMessage {
            to,
            message,
            session,
            headers,
            limit,
        };
        let answer = self.post(outgoing).await;
        let failure = answer.as_ref().err().map(ServerFailure::of_http);
        self.state.set_request_failure(failure);
        match answer? {
            StreamableHttpPostResponse::Json(answer, _)
                if !SizeCounter::with_limit(limit).add(&answer) =>
            {
                let why = "it is longer than a message may be".into();
                Err(StreamableHttpError::UnexpectedServerResponse(why))
            }
            StreamableHttpPostResponse::Sse(events, session) => {
                let events = limit_values(events, &self.state);
                Ok(StreamableHttpPostResponse::Sse(events, session))
            }
            answer => Ok(answer),
        }
    }

    async fn delete_session(
        &self,
        to: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        headers: Headers,
    ) -> Result<(), Failed> {
        let token = self.token().await;
        let ended = self.client.delete_session(to, session, token, headers);
        ended.await.map_err(redacted)
    }

    async fn get_stream(
        &self,
        to: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, Failed> {
        let limit = MAX_EVENT_BYTES;
        self.get_stream_with_max_sse_event_size(to, session, last, token, headers, limit)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, Failed> {
        let open = async {
            let (token, session, client) = (self.token().await, session.clone(), &self.client);
            client
                .get_stream_with_max_sse_event_size(to, session, last, token, headers, limit)
                .await
        };
        let events = self.streams.open(session.clone(), open).await;
        Ok(limit_values(events.map_err(redacted)?, &self.state))
    }
}

/// Ends the connection and the stream at an event with too many values, before it is parsed.
fn limit_values(events: Events, state: &Arc<ConnectionState>) -> Events {
    let state = Arc::clone(state);
    let fits = move |event: &Result<Sse, SseError>| {
        let mut values = ValueCounter::default();
        if let Ok(Sse {
            data: Some(data), ..
        }) = event
        {
            values.feed(data.as_bytes());
        }
        if values.exceeds_limit() {
            state.end(ServerFailure::TooManyValues);
        }
        std::future::ready(!values.exceeds_limit())
    };
    events.take_while(fits).boxed()
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn event_with_too_many_values_closes_the_connection() {
        for (values, cause) in [(1000, None), (100_000, Some(ServerFailure::TooManyValues))] {
            let event = |data: String| Ok(Sse::default().data(data));
            let array = format!("[{}]", vec!["1"; values].join(","));
            let events = [event("{}".to_owned()), event(array), event("{}".to_owned())];
            let state = Arc::default();
            let seen = limit_values(stream::iter(events).boxed(), &state)
                .count()
                .await;
            assert_eq!(seen, if cause.is_none() { 3 } else { 1 });
            assert_eq!(state.end_cause(), cause);
        }
    }
}
