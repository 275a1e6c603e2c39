//! Connection options: the MCP revision and the client's capabilities.

use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::client::{Client, ServerError};

/// The client name.
const NAME: &str = "bailiwick-check";

/// The revisions with a handshake.
const WITH_HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A supported MCP revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revision {
    /// `2025-11-25`: the connection starts with a handshake.
    #[default]
    Handshake,
    /// `2026-07-28`: requests are stateless.
    Stateless,
}

impl Revision {
    /// The date that names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a supported revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the revision must be 2025-11-25 or 2026-07-28")]
pub struct ParseRevisionError;

impl FromStr for Revision {
    type Err = ParseRevisionError;

    fn from_str(text: &str) -> Result<Self, ParseRevisionError> {
        let known = [Self::Handshake, Self::Stateless];
        let found = known.into_iter().find(|known| known.as_str() == text);
        found.ok_or(ParseRevisionError)
    }
}

/// How to connect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connection {
    /// The requested revision.
    pub revision: Revision,
    /// Sent as `experimental.configuration`, if any.
    pub configuration: Option<Map<String, Value>>,
}

impl Connection {
    fn capabilities(&self) -> Value {
        let mut capabilities = Map::new();
        capabilities.insert("elicitation".to_owned(), json!({"form": {}}));
        let views = json!({"io.modelcontextprotocol/ui": {"mimeTypes": [super::server::APP]}});
        capabilities.insert("extensions".to_owned(), views);
        if let Some(configuration) = &self.configuration {
            let experimental = json!({"configuration": configuration});
            capabilities.insert("experimental".to_owned(), experimental);
        }
        capabilities.into()
    }

    /// The `_meta` members of each request.
    pub(super) fn request_meta(&self) -> Map<String, Value> {
        match self.revision {
            Revision::Handshake => Map::new(),
            Revision::Stateless => [
                ("protocolVersion", json!(self.revision.as_str())),
                ("clientCapabilities", self.capabilities()),
                ("clientInfo", client_info()),
            ]
            .into_iter()
            .map(|(key, value)| (format!("io.modelcontextprotocol/{key}"), value))
            .collect(),
        }
    }

    /// Initializes the connection; returns the result of `initialize` or `server/discover`.
    pub(super) async fn begin(&self, client: &Client) -> Result<Value, ServerError> {
        match self.revision {
            Revision::Stateless => client.result("server/discover", Map::new()).await,
            Revision::Handshake => {
                let mut params = Map::new();
                params.insert("protocolVersion".into(), self.revision.as_str().into());
                params.insert("capabilities".into(), self.capabilities());
                params.insert("clientInfo".into(), client_info());
                let greeting = client.result("initialize", params).await?;
                client.notify("notifications/initialized");
                Ok(greeting)
            }
        }
    }

    /// The revision that the server chose, or an error with an unknown one.
    pub(super) fn chosen(&self, greeting: &Value) -> Result<String, String> {
        let chosen = greeting.get("protocolVersion").and_then(Value::as_str);
        match (self.revision, chosen) {
            (Revision::Stateless, _) => Ok(self.revision.to_string()),
            (Revision::Handshake, Some(chosen)) if WITH_HANDSHAKE.contains(&chosen) => {
                Ok(chosen.to_owned())
            }
            (Revision::Handshake, chosen) => Err(chosen.unwrap_or_default().to_owned()),
        }
    }
}

fn client_info() -> Value {
    json!({"name": NAME, "version": env!("CARGO_PKG_VERSION")})
}
