//! A target in, a client that has met its server out.

use std::str::FromStr;

use bailiwick_examples::Failure;
use serde_json::{Map, Value, json};

use super::cli::Target;
use super::client::Client;
use super::link::Link;
use super::{builtin, child, streamable};

/// What the other end is told of who connects.
const NAME: &str = "bailiwick-test-host";

/// How a client and a server meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Era {
    /// By `initialize`.
    #[default]
    Handshake,
    /// Each request says what it needs to.
    Stateless,
}

impl Era {
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Self::Handshake => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

impl FromStr for Era {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let known = [Self::Handshake, Self::Stateless];
        let found = known.into_iter().find(|era| era.revision() == text);
        found.ok_or_else(|| "the revision must be 2025-11-25 or 2026-07-28".into())
    }
}

/// How to connect.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Connection {
    pub(crate) era: Era,
    /// Sent as `experimental.configuration`.
    pub(crate) configuration: Option<Value>,
}

impl Connection {
    fn capabilities(&self) -> Value {
        let mut capabilities = json!({
            "elicitation": {"form": {}},
            "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
        });
        if let (Some(configuration), Value::Object(members)) =
            (&self.configuration, &mut capabilities)
        {
            members.insert(
                "experimental".to_owned(),
                json!({"configuration": configuration}),
            );
        }
        capabilities
    }

    /// What each request of the stateless revision carries.
    pub(crate) fn stamp(&self) -> Map<String, Value> {
        let mut stamp = Map::new();
        if self.era == Era::Stateless {
            for (key, value) in [
                ("protocolVersion", json!(self.era.revision())),
                ("clientCapabilities", self.capabilities()),
                ("clientInfo", info()),
            ] {
                stamp.insert(format!("io.modelcontextprotocol/{key}"), value);
            }
        }
        stamp
    }

    /// Meets the server; what it says of itself.
    ///
    /// # Errors
    /// What the server objects to, or that it is gone.
    pub(crate) async fn greet(&self, client: &Client) -> Result<Value, Failure> {
        if self.era == Era::Stateless {
            return result(client.request("server/discover", json!({})).await?);
        }
        let params = json!({
            "protocolVersion": self.era.revision(),
            "capabilities": self.capabilities(),
            "clientInfo": info(),
        });
        let greeting = result(client.request("initialize", params).await?)?;
        client.notify("notifications/initialized");
        Ok(greeting)
    }
}

fn info() -> Value {
    json!({"name": NAME, "version": env!("CARGO_PKG_VERSION")})
}

/// The result of a response, or its error in words.
pub(crate) fn result(mut response: Value) -> Result<Value, Failure> {
    if let Some(error) = response.get("error") {
        let code = error.get("code").cloned().unwrap_or_default();
        let message = error.get("message").and_then(Value::as_str);
        return Err(format!("error {code}: {}", message.unwrap_or("without words")).into());
    }
    let result = response.get_mut("result").map(Value::take);
    result.ok_or_else(|| "a response without a result".into())
}

/// Opens a connection.
///
/// # Errors
/// If a process or a tree cannot be made.
pub(crate) fn open(target: &Target) -> Result<Link, Failure> {
    match target {
        Target::Own { elicit } => builtin::open(*elicit),
        Target::Command(command) => child::start(command),
        Target::Url { url, bearer } => Ok(streamable::open(url, bearer.as_deref())),
    }
}
