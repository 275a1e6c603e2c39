//! Messages to a server by HTTP in, the same out, requests not before it can ask something back, and its answers if they are
//! of a fair size.
//!
//! A server asks back on a stream that is opened for each session. What it asks before that stream stands may be dropped,
//! as the reference SDK's servers do, and the call that it is asked for would wait for it in vain.

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

use super::failure::ServerFailure;
use super::line::Line;
use super::lines::ValueCounter;
use super::pages::Weight;
use crate::rate::{Rate, RateLimiter};

/// How long a server may take to say whether it asks back before it is sent requests all the same.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often streams are opened, so that a server that ends each at once is not asked for the next without a pause.
const STREAMS: Rate = Rate {
    calls: 16,
    per: Duration::from_secs(8),
};
/// The longest event where nobody says how long one may be, in bytes.
pub(super) const LONGEST_EVENT: usize = 8 << 20;

type Headers = HashMap<HeaderName, HeaderValue>;
type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Reads why a request failed.
type Cause<C> = fn(&StreamableHttpError<<C as StreamableHttpClient>::Error>) -> ServerFailure;

/// A client that keeps the requests of a session until the server can ask back.
#[derive(Clone, Debug)]
pub(super) struct Session<C: StreamableHttpClient> {
    client: C,
    /// The session whose requests wait for its stream no more: it stands, was refused, or was waited for long enough.
    settled: watch::Sender<Option<Arc<str>>>,
    line: Arc<Line>,
    cause: Cause<C>,
    streams: Arc<RateLimiter>,
}

impl<C: StreamableHttpClient> Session<C> {
    pub(super) fn new(client: C, line: &Arc<Line>, cause: Cause<C>) -> Self {
        Self {
            client,
            cause,
            line: Arc::clone(line),
            settled: watch::Sender::default(),
            streams: Arc::new(RateLimiter::new(&STREAMS)),
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
        let answer = sent.await;
        let failure = answer.as_ref().err().map(self.cause);
        self.line.set_request_failure(failure);
        let answer = answer?;
        match &answer {
            StreamableHttpPostResponse::Json(said, _) if !Weight::up_to(most).takes(said) => {
                let why = "it is longer than a message may be".into();
                Err(StreamableHttpError::UnexpectedServerResponse(why))
            }
            _ => Ok(match answer {
                StreamableHttpPostResponse::Sse(events, session) => {
                    StreamableHttpPostResponse::Sse(bounded(events, &self.line), session)
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
        while let Err(wait) = self.streams.take() {
            sleep(Duration::from_millis(wait)).await;
        }
        let of = session.clone();
        let client = &self.client;
        let events =
            client.get_stream_with_max_sse_event_size(to, session, last, token, headers, most);
        let events = events.await;
        if of.is_some() {
            self.settled.send_replace(of);
        }
        Ok(bounded(events?, &self.line))
    }
}

/// Ends the connection, and the stream, at an event with too many values; no event is parsed before.
fn bounded(events: Events, line: &Arc<Line>) -> Events {
    let line = Arc::clone(line);
    let fits = move |event: &Result<Sse, SseError>| {
        let mut values = ValueCounter::default();
        if let Ok(Sse {
            data: Some(data), ..
        }) = event
        {
            values.feed(data.as_bytes());
        }
        if values.exceeds_limit() {
            line.end(ServerFailure::TooManyValues);
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

    /// A server that takes what it is sent, and ends each stream at once if it opens any.
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

    fn session(opens: bool) -> Session<Server> {
        Session::new(Server { opens }, &Arc::default(), |_| ServerFailure::Closed)
    }

    impl Session<Server> {
        async fn asks(&self, session: &str) {
            let list = ClientRequest::ListToolsRequest(ListToolsRequest::default());
            let list = ClientJsonRpcMessage::request(list, RequestId::Number(1));
            let session = Some(session.into());
            let sent = self.post_message("/".into(), list, session, None, Headers::new());
            sent.await.unwrap();
        }

        async fn opens(&self, session: &str) {
            let session = Some(session.into());
            let opened = self.get_stream("/".into(), session, None, None, Headers::new());
            drop(opened.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_end_at_once_are_opened_so_many_times_and_then_with_pauses() {
        let session = session(true);
        for _ in 0..STREAMS.calls {
            session.opens("one").now_or_never().unwrap();
        }
        // Requests of the session go on.
        session.asks("one").now_or_never().unwrap();
        let mut more = 0;
        let opening = async {
            loop {
                session.opens("one").await;
                more += 1;
            }
        };
        assert!(timeout(STREAMS.per, opening).await.is_err());
        assert!((1..=STREAMS.calls).contains(&more), "{more}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_longer_than_it_may_however_often_the_session_is_another() {
        let session = session(false);
        for name in ["one", "two", "one", "two"] {
            assert!(session.opens(name).now_or_never().is_none());
            let both = async { tokio::join!(session.asks(name), session.asks(name)) };
            timeout(PATIENCE + Duration::from_millis(1), both)
                .await
                .unwrap();
            session.asks(name).now_or_never().unwrap();
        }
    }

    #[tokio::test]
    async fn an_event_with_too_many_values_ends_the_connection() {
        for (values, cause) in [(1000, None), (100_000, Some(ServerFailure::TooManyValues))] {
            let event = |data: String| Ok(Sse::default().data(data));
            let array = format!("[{}]", vec!["1"; values].join(","));
            let events = [event("{}".to_owned()), event(array), event("{}".to_owned())];
            let line = Arc::default();
            let seen = bounded(stream::iter(events).boxed(), &line).count().await;
            assert_eq!(seen, if cause.is_none() { 3 } else { 1 });
            assert_eq!(line.end_cause(), cause);
        }
    }
}
