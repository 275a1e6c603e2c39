//! Delays requests of an HTTP session until its server-to-client stream is open, and limits the size of responses.
//!
//! A server sends its requests on a stream that the client opens per session. Requests sent before the stream is open
//! may be dropped, as by servers of the reference SDK, and the call that depends on them would never end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection_state::ConnectionState;
use super::failure::ServerFailure;
use super::line_reader::ValueCounter;
use super::pagination::SizeCounter;
use crate::rate::{Rate, RateLimiter};

/// How long requests wait for the stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// Limits how often streams are opened, for servers that close them at once.
const STREAM_RATE: Rate = Rate {
    calls: 16,
    per: Duration::from_secs(8),
};
/// The default size limit of an event, in bytes.
pub(super) const MAX_EVENT_BYTES: usize = 8 << 20;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Converts an error of the client.
type Cause<C> = fn(&StreamableHttpError<<C as StreamableHttpClient>::Error>) -> ServerFailure;

/// An HTTP client that delays the requests of a session until its stream is open.
#[derive(Clone, Debug)]
pub(super) struct SessionClient<C: StreamableHttpClient> {
    client: C,
    /// The session whose requests no longer wait: its stream is open or was rejected, or the wait timed out.
    ready_session: watch::Sender<Option<Arc<str>>>,
    state: Arc<ConnectionState>,
    cause: Cause<C>,
    streams: Arc<RateLimiter>,
}

impl<C: StreamableHttpClient> SessionClient<C> {
    pub(super) fn new(client: C, state: &Arc<ConnectionState>, cause: Cause<C>) -> Self {
        Self {
            client,
            cause,
            state: Arc::clone(state),
            ready_session: watch::Sender::default(),
            streams: Arc::new(RateLimiter::new(&STREAM_RATE)),
        }
    }

    /// Waits until the stream of a session is open or rejected, or for the timeout.
    async fn wait_for_stream(&self, session: &Arc<str>) {
        let mut ready_session = self.ready_session.subscribe();
        let it = ready_session.wait_for(|ready_session| ready_session.as_ref() == Some(session));
        if timeout(STREAM_TIMEOUT, it).await.is_err() {
            self.ready_session.send_replace(Some(Arc::clone(session)));
        }
    }
}

impl<C: StreamableHttpClient + Sync> StreamableHttpClient for SessionClient<C> {
    type Error = C::Error;

    async fn post_message(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        let limit = MAX_EVENT_BYTES;
        self.post_message_with_max_sse_event_size(to, message, session, token, headers, limit)
            .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<C::Error>> {
        if let (JsonRpcMessage::Request(_), Some(session)) = (&message, &session) {
            self.wait_for_stream(session).await;
        }
        let client = &self.client;
        let sent = client
            .post_message_with_max_sse_event_size(to, message, session, token, headers, limit);
        let answer = sent.await;
        let failure = answer.as_ref().err().map(self.cause);
        self.state.set_request_failure(failure);
        let answer = answer?;
        match &answer {
            StreamableHttpPostResponse::Json(answer, _)
                if !SizeCounter::with_limit(limit).add(answer) =>
            {
                let why = "it is longer than a message may be".into();
                Err(StreamableHttpError::UnexpectedServerResponse(why))
            }
            _ => Ok(match answer {
                StreamableHttpPostResponse::Sse(events, session) => {
                    StreamableHttpPostResponse::Sse(limit_values(events, &self.state), session)
                }
                answer => answer,
            }),
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
        let limit = MAX_EVENT_BYTES;
        self.get_stream_with_max_sse_event_size(to, session, last, token, headers, limit)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        to: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        limit: usize,
    ) -> Result<Events, StreamableHttpError<C::Error>> {
        while let Err(wait) = self.streams.take() {
            sleep(Duration::from_millis(wait)).await;
        }
        let of = session.clone();
        let client = &self.client;
        let events =
            client.get_stream_with_max_sse_event_size(to, session, last, token, headers, limit);
        let events = events.await;
        if of.is_some() {
            self.ready_session.send_replace(of);
        }
        Ok(limit_values(events?, &self.state))
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
    use std::io;

    use futures_util::{FutureExt, stream};
    use rmcp::model::{ClientRequest, ListToolsRequest, RequestId};

    use super::*;

    /// A server that accepts all messages, and closes each stream at once if it opens any.
    #[derive(Clone)]
    struct Server {
        opens: bool,
    }

    impl StreamableHttpClient for Server {
        type Error = io::Error;

        async fn post_message(
            &self,
            _: Arc<str>,
            _: ClientJsonRpcMessage,
            _: Option<Arc<str>>,
            _: Option<String>,
            _: Headers,
        ) -> Result<StreamableHttpPostResponse, StreamableHttpError<io::Error>> {
            Ok(StreamableHttpPostResponse::Accepted)
        }

        async fn delete_session(
            &self,
            _: Arc<str>,
            _: Arc<str>,
            _: Option<String>,
            _: Headers,
        ) -> Result<(), StreamableHttpError<io::Error>> {
            Ok(())
        }

        async fn get_stream(
            &self,
            _: Arc<str>,
            _: Option<Arc<str>>,
            _: Option<String>,
            _: Option<String>,
            _: Headers,
        ) -> Result<Events, StreamableHttpError<io::Error>> {
            if !self.opens {
                return std::future::pending().await;
            }
            Ok(stream::empty().boxed())
        }
    }

    fn session(opens: bool) -> SessionClient<Server> {
        SessionClient::new(Server { opens }, &Arc::default(), |_| ServerFailure::Closed)
    }

    impl SessionClient<Server> {
        async fn send_request(&self, session: &str) {
            let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
            let list = ClientJsonRpcMessage::request(list, RequestId::Number(1));
            let session = Some(session.into());
            let sent = self.post_message("/".into(), list, session, None, Headers::new());
            sent.await.unwrap();
        }

        async fn open_stream(&self, session: &str) {
            let session = Some(session.into());
            let opened = self.get_stream("/".into(), session, None, None, Headers::new());
            drop(opened.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reopening_streams_is_rate_limited() {
        let session = session(true);
        for _ in 0..STREAM_RATE.calls {
            session.open_stream("one").now_or_never().unwrap();
        }
        // Requests of the session are not delayed.
        session.send_request("one").now_or_never().unwrap();
        let mut more = 0;
        let opening = async {
            loop {
                session.open_stream("one").await;
                more += 1;
            }
        };
        assert!(timeout(STREAM_RATE.per, opening).await.is_err());
        assert!((1..=STREAM_RATE.calls).contains(&more), "{more}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_a_bounded_time_for_each_session_stream() {
        let session = session(false);
        for name in ["one", "two", "one", "two"] {
            assert!(session.open_stream(name).now_or_never().is_none());
            let both =
                async { tokio::join!(session.send_request(name), session.send_request(name)) };
            timeout(STREAM_TIMEOUT + Duration::from_millis(1), both)
                .await
                .unwrap();
            session.send_request(name).now_or_never().unwrap();
        }
    }

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
