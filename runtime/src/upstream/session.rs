//! Messages to a server by HTTP in, the same out, requests not before it can ask something back, and its answers if they are
//! of a fair size.
//!
//! A server asks back on a stream that is opened for each session. What it asks before that stream stands may be dropped,
//! as the reference SDK's servers do, and the call that it is asked for would wait for it in vain.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::timeout;

use super::pages::Weight;

/// How long a server may take to say whether it asks back before it is sent requests all the same.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest event where nobody says how long one may be, in bytes.
pub(super) const LONGEST_EVENT: usize = 8 << 20;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// A client that keeps the requests of a session until the server can ask back.
#[derive(Clone, Debug)]
pub(super) struct Session<C> {
    client: C,
    /// The session whose requests wait for its stream no more: it stands, was refused, or was waited for long enough.
    settled: watch::Sender<Option<Arc<str>>>,
}

impl<C: StreamableHttpClient> Session<C> {
    pub(super) fn new(client: C) -> Self {
        Self {
            client,
            settled: watch::Sender::default(),
        }
    }

    /// Waits until the stream of a session stands or is refused, but not for ever.
    async fn until_settled(&self, session: &Arc<str>) {
        let mut settled = self.settled.subscribe();
        let it = settled.wait_for(|settled| settled.as_ref() == Some(session));
        if timeout(PATIENCE, it).await.is_err() {
            self.settled.send_replace(Some(Arc::clone(session)));
        }
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for Session<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let most = LONGEST_EVENT;
        self.post_message_with_max_sse_event_size(to, message, session, token, headers, most)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        if let (JsonRpcMessage::Request(_), Some(session)) = (&message, &session) {
            self.until_settled(session).await;
        }
        let client = &self.client;
        let sent =
            client.post_message_with_max_sse_event_size(to, message, session, token, headers, most);
        let answer = sent.await?;
        match &answer {
            StreamableHttpPostResponse::Json(said, _) if !Weight::up_to(most).takes(said) => {
                let why = "it is longer than a message may be".into();
                Err(StreamableHttpError::UnexpectedServerResponse(why))
            }
            _ => Ok(answer),
        }
    }

    async fn delete_session(
        &self,
        to: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), StreamableHttpError<C::Error>> {
        self.client
            .delete_session(to, session, token, headers)
            .await
    }

    async fn get_stream(
        &self,
        to: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Events, StreamableHttpError<C::Error>> {
        let most = LONGEST_EVENT;
        self.get_stream_with_max_sse_event_size(to, session, last, token, headers, most)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> Result<Events, StreamableHttpError<C::Error>> {
        let of = session.clone();
        let client = &self.client;
        let events =
            client.get_stream_with_max_sse_event_size(to, session, last, token, headers, most);
        let events = events.await;
        if of.is_some() {
            self.settled.send_replace(of);
        }
        events
    }
}
