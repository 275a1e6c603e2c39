//! Reads the resources and prompts of servers for the host.

use bailiwick::requests::ServerMessage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, ReadResourceRequestParams,
    ReadResourceResponse, ResourceContents,
};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::Upstreams;
use super::catalog::{list_prompts, list_resources};
use super::classify::truncate;
use super::failure::ServerFailure;
use super::pagination::ListError;
use super::server::Server;
use bailiwick::CallError;

/// The longest name, address or description, in bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// Why a resource or prompt of a server cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerReadError {
    /// The server is unknown.
    #[error("unknown server `{0}`")]
    Unknown(String),
    /// The server is not connected.
    #[error(transparent)]
    Gone(CallError),
    /// The server did not answer in time.
    #[error("the server did not answer in time")]
    Late,
    /// The server returned an error or broke the protocol. The cause contains no text of the server, which may contain
    /// terminal escape sequences.
    #[error("the server sent an invalid response")]
    Refused(#[source] ServerFailure),
    /// The content or the list is too large.
    #[error("the response of the server exceeds the limits")]
    TooLarge,
    /// The server requires input first, or returned invalid data.
    #[error("the response of the server cannot be used")]
    Unusable,
}

/// A resource of a server. All texts are untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerResource {
    /// The URI at the server.
    pub uri: String,
    /// The name.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The media type.
    pub mime: Option<String>,
}

/// A prompt of a server. All texts are untrusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerPrompt {
    /// The name.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// The arguments.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a [`ServerPrompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// Whether the argument is required.
    pub required: bool,
}

/// A part of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerText {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

fn sanitize(text: &str) -> String {
    truncate(&bailiwick::text::escape(text), MAX_TEXT_BYTES)
}

fn refused(error: &ServiceError) -> ServerReadError {
    ServerReadError::Refused(ServerFailure::of_request(error))
}

impl From<ListError<ServiceError>> for ServerReadError {
    fn from(error: ListError<ServiceError>) -> Self {
        match error {
            ListError::Page(error) => refused(&error),
            ListError::TooMuch => Self::TooLarge,
        }
    }
}

impl Upstreams {
    /// Lists the resources of a server.
    ///
    /// # Errors
    /// [`ServerReadError`]; a list of more than 1,024 resources is an error.
    pub async fn resources(&self, server: &str) -> Result<Vec<ServerResource>, ServerReadError> {
        let list = async |peer: &Peer<RoleClient>, server: &Server| {
            Ok(list_resources(server, peer).await?)
        };
        let all = self.with_server(server, list).await?;
        let resource = |it: rmcp::model::Resource| ServerResource {
            uri: sanitize(&it.uri),
            name: sanitize(&it.name),
            description: it.description.as_deref().map(sanitize),
            mime: it.mime_type.as_deref().map(sanitize),
        };
        Ok(all.into_iter().map(resource).collect())
    }

    /// Reads a resource of a server.
    ///
    /// # Errors
    /// [`ServerReadError`]
    pub async fn read_resource(
        &self,
        server: &str,
        uri: &str,
    ) -> Result<Vec<ServerText>, ServerReadError> {
        let uri = uri.to_owned();
        let read = async move |peer: &Peer<RoleClient>, server: &Server| {
            let read = peer
                .read_resource_once(ReadResourceRequestParams::new(uri))
                .await;
            let ReadResourceResponse::Complete(read) = read.map_err(|error| refused(&error))?
            else {
                return Err(ServerReadError::Unusable);
            };
            let mut left = server.bounds.result_bytes;
            read.contents
                .iter()
                .map(|part| server_text(part, &mut left))
                .collect()
        };
        self.with_server(server, read).await
    }

    /// Lists the prompts of a server.
    ///
    /// # Errors
    /// [`ServerReadError`]; a list of more than 1,024 prompts is an error.
    pub async fn prompts(&self, server: &str) -> Result<Vec<ServerPrompt>, ServerReadError> {
        let list =
            async |peer: &Peer<RoleClient>, server: &Server| Ok(list_prompts(server, peer).await?);
        let all = self.with_server(server, list).await?;
        let prompt = |it: rmcp::model::Prompt| {
            let arguments = it.arguments.unwrap_or_default().into_iter();
            ServerPrompt {
                name: sanitize(&it.name),
                description: it.description.as_deref().map(sanitize),
                arguments: arguments
                    .map(|it| PromptArgument {
                        name: sanitize(&it.name),
                        required: it.required == Some(true),
                    })
                    .collect(),
            }
        };
        Ok(all.into_iter().map(prompt).collect())
    }

    /// Gets a prompt of a server.
    ///
    /// # Errors
    /// [`ServerReadError`]
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Vec<ServerMessage>, ServerReadError> {
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = Some(arguments);
        let read = async move |peer: &Peer<RoleClient>, server: &Server| {
            let prompt = peer
                .get_prompt_once(params)
                .await
                .map_err(|error| refused(&error))?;
            let GetPromptResponse::Complete(prompt) = prompt else {
                return Err(ServerReadError::Unusable);
            };
            let mut left = server.bounds.result_bytes;
            let mut messages = Vec::new();
            for message in prompt.messages {
                let text = match message.content {
                    ContentBlock::Text(text) => text.text,
                    _ => "[content that is not text was left out]".to_owned(),
                };
                left = left
                    .checked_sub(text.len() + 64)
                    .ok_or(ServerReadError::TooLarge)?;
                let text = bailiwick::text::escape_lines(&text).into_owned();
                messages.push(super::requests::server_message(&message.role, text));
            }
            Ok(messages)
        };
        self.with_server(server, read).await
    }

    /// Runs a request at a connected server, with the connect timeout.
    async fn with_server<T>(
        &self,
        name: &str,
        request: impl AsyncFnOnce(&Peer<RoleClient>, &Server) -> Result<T, ServerReadError>,
    ) -> Result<T, ServerReadError> {
        let unknown = || ServerReadError::Unknown(bailiwick::text::escape(name).into());
        let server = self.server(name).ok_or_else(unknown)?;
        let connection = server.connection().map_err(ServerReadError::Gone)?;
        let response = timeout(server.bounds.connect, request(&connection.peer, server)).await;
        response.unwrap_or(Err(ServerReadError::Late))
    }
}

fn server_text(part: &ResourceContents, left: &mut usize) -> Result<ServerText, ServerReadError> {
    let mut take = |bytes: usize| {
        *left = left
            .checked_sub(bytes + 64)
            .ok_or(ServerReadError::TooLarge)?;
        Ok::<_, ServerReadError>(())
    };
    match part {
        ResourceContents::TextResourceContents { text, .. } => {
            take(text.len())?;
            Ok(ServerText::Text(
                bailiwick::text::escape_lines(text).into_owned(),
            ))
        }
        ResourceContents::BlobResourceContents { blob, .. } => {
            take(blob.len())?;
            let bytes = STANDARD
                .decode(blob)
                .map_err(|_| ServerReadError::Unusable)?;
            Ok(ServerText::Bytes(bytes))
        }
        _ => Err(ServerReadError::Unusable),
    }
}
