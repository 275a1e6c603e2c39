//! HTTP client that adds access tokens to requests and reports sign-in challenges.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::Account;
use super::account::Challenge;
use crate::upstream::failure::bare_status;
use crate::upstream::session::MAX_EVENT_BYTES;

type Headers = HashMap<HeaderName, HeaderValue>;
type Failed = StreamableHttpError<reqwest::Error>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// An HTTP client with an access token.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct AuthenticatedClient {
    client: reqwest::Client,
    account: Option<Arc<Account>>,
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

impl AuthenticatedClient {
    pub(in crate::upstream) fn new(client: reqwest::Client, account: Option<Arc<Account>>) -> Self {
        Self { client, account }
    }

    async fn token(&self) -> Option<String> {
        self.account.as_ref()?.token().await
    }

    /// Sends with a token. A 401 without a challenge is converted into one, because the authorization server can be
    /// found at a well-known URL.
    async fn send_with_token(
        &self,
        outgoing: OutgoingMessage,
        token: Option<String>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let answer = self.send_once(outgoing, token).await;
        match answer {
            Err(StreamableHttpError::UnexpectedServerResponse(text))
                if bare_status(&text) == Some(401) =>
            {
                let challenge = AuthRequiredError::new(String::new());
                Err(StreamableHttpError::AuthRequired(challenge))
            }
            answer => answer,
        }
    }

    async fn send_once(
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
            return self.send_once(outgoing, None).await.map_err(redacted);
        };
        let mut answer = self.send_authenticated(account, &outgoing).await;
        if let Err(StreamableHttpError::InsufficientScope(error)) = &answer
            && account.is_connected()
        {
            let challenge = Challenge::insufficient_scope(error, called_tool(&outgoing.message));
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

impl StreamableHttpClient for AuthenticatedClient {
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
        let outgoing = OutgoingMessage {
            to,
            message,
            session,
            headers,
            limit,
        };
        self.post(outgoing).await
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
        let token = self.token().await;
        let client = &self.client;
        let events =
            client.get_stream_with_max_sse_event_size(to, session, last, token, headers, limit);
        events.await.map_err(redacted)
    }
}
