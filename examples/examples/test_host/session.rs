//! A target in, the one connection to it that is alive out, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use bailiwick_examples::Failure;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::checks::{self, Check};
use super::cli::Target;
use super::client::Client;
use super::connect::{Connection, open};
use super::facts::Facts;
use super::wire::Wire;

/// How long a server has to be met and to list what it has.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that was met.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) facts: Facts,
    pub(crate) connection: Connection,
}

enum State {
    Connecting,
    Connected(Arc<Connected>),
    Failed(String),
}

struct Now {
    connection: Connection,
    state: State,
}

/// The server that is tried, connected to or not.
pub(crate) struct Session {
    target: Target,
    attended: bool,
    pub(crate) wire: Arc<Wire>,
    now: Mutex<Now>,
    /// Held while one connection takes the place of another.
    turn: Mutex<()>,
}

impl Session {
    /// Nothing is connected yet. Where it is `attended`, what the server asks waits for a person.
    pub(crate) fn new(target: Target, attended: bool) -> Self {
        Self {
            target,
            attended,
            wire: Arc::new(Wire::new()),
            now: Mutex::new(Now {
                connection: Connection::default(),
                state: State::Connecting,
            }),
            turn: Mutex::default(),
        }
    }

    /// Ends the connection that there is, and connects anew.
    pub(crate) async fn connect(&self, connection: Connection) {
        let _turn = self.turn.lock().await;
        self.wire.state("connecting");
        let before = {
            let mut now = self.now.lock().await;
            now.connection = connection.clone();
            std::mem::replace(&mut now.state, State::Connecting)
        };
        if let State::Connected(before) = before {
            before.client.close().await;
        }
        let state = match self.connected(connection).await {
            Ok(connected) => State::Connected(Arc::new(connected)),
            Err(failure) => State::Failed(failure.to_string()),
        };
        self.now.lock().await.state = state;
        self.wire.state("settled");
    }

    async fn connected(&self, connection: Connection) -> Result<Connected, Failure> {
        let link = open(&self.target)?;
        let client = Client::over(link, &self.wire, connection.stamp(), self.attended);
        let met = async {
            let greeting = connection.greet(&client).await?;
            Facts::of(&client, greeting).await
        };
        let met = timeout(PATIENCE, met).await;
        match met.unwrap_or_else(|_| Err("the server does not answer".into())) {
            Ok(facts) => Ok(Connected {
                client,
                facts,
                connection,
            }),
            Err(failure) => {
                client.close().await;
                Err(failure)
            }
        }
    }

    /// The server, if it is there.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) async fn server(&self) -> Result<Arc<Connected>, String> {
        match &self.now.lock().await.state {
            State::Connecting => Err("the server is not connected yet".to_owned()),
            State::Failed(reason) => Err(reason.clone()),
            State::Connected(connected) => match connected.client.ended() {
                Some(reason) => Err(reason),
                None => Ok(Arc::clone(connected)),
            },
        }
    }

    /// What the page shows of the connection.
    pub(crate) async fn told(&self) -> Value {
        let now = self.now.lock().await;
        let mut told = json!({
            "status": "connecting",
            "target": self.target.to_string(),
            "revision": now.connection.era.revision(),
            "configuration": now.connection.configuration,
        });
        let more = match &now.state {
            State::Connecting => json!({}),
            State::Failed(reason) => json!({"status": "failed", "reason": reason}),
            State::Connected(connected) => match connected.client.ended() {
                Some(reason) => {
                    json!({"status": "ended", "reason": reason, "facts": connected.facts})
                }
                None => json!({"status": "ready", "facts": connected.facts}),
            },
        };
        if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
            told.extend(more);
        }
        told
    }

    /// Connects, tries the server, and says what came of it.
    pub(crate) async fn checked(&self, connection: Connection) -> Vec<Check> {
        self.connect(connection).await;
        self.checks().await
    }

    /// Tries the server that is connected.
    pub(crate) async fn checks(&self) -> Vec<Check> {
        match self.server().await {
            Ok(connected) => checks::all(&connected, &self.wire).await,
            Err(reason) => vec![Check::fail("connect", reason)],
        }
    }

    pub(crate) async fn close(&self) {
        let _turn = self.turn.lock().await;
        let closed = State::Failed("the host is closed".to_owned());
        let state = std::mem::replace(&mut self.now.lock().await.state, closed);
        if let State::Connected(connected) = state {
            connected.client.close().await;
        }
    }
}
