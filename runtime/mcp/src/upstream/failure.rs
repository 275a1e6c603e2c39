//! Why a server is not connected.

use std::error::Error;
use std::io;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::classify::truncate;
use super::line_reader::MAX_VALUES;

/// The longest message of the TLS library, in bytes.
const MAX_TLS_TEXT: usize = 256;
/// The largest number of reported protocol versions.
const MAX_VERSIONS: usize = 16;

fn why_not_started(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::NotFound => "its program was not found".to_owned(),
        other => other.to_string(),
    }
}

/// Why the last connection to a server failed or ended. It contains no text of the server, which may repeat secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerFailure {
    /// The server process, or the HTTP thread, cannot be started.
    #[error("it cannot be started: {}", why_not_started(*.0))]
    Start(io::ErrorKind),
    /// The process exited.
    #[error("the program ended with exit status {0}")]
    Exited(i32),
    /// The process was killed by something other than this host.
    #[error("the program was ended by signal {0}")]
    Signalled(i32),
    /// The address cannot be reached: the name is unknown, or the connection failed.
    #[error("the address cannot be reached: {0}")]
    Unreachable(io::ErrorKind),
    /// TLS failed, with the message of the local library.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The server answered with an HTTP status other than success.
    #[error("the server answered with HTTP status {0}")]
    HttpStatus(u16),
    /// The server requires a sign-in, or more scopes than were granted.
    #[error("the server requires a sign-in")]
    SignInRequired,
    /// There is no common protocol version.
    #[error("no common protocol version; the server supports: {}", .supported.join(", "))]
    ProtocolVersion {
        /// The versions that the server reports.
        supported: Vec<String>,
    },
    /// The server answered the handshake or `tools/list` with an error.
    #[error("the server answered with JSON-RPC error {0}")]
    Refused(i32),
    /// The server sent an invalid message.
    #[error("the server sent an invalid message")]
    Protocol,
    /// The server did not connect and list its tools in time.
    #[error("the server did not answer within {0:?}")]
    Timeout(Duration),
    /// The list of tools exceeds the [`Bounds`](super::Bounds).
    #[error("the list of tools exceeds the limits")]
    TooManyTools,
    /// A message of the server is longer than [`Bounds::message_bytes`](super::Bounds::message_bytes).
    #[error("a message of the server exceeds the size limit")]
    MessageTooLarge,
    /// A message of the server has too many JSON values (numbers, strings, arrays and objects).
    #[error("a message of the server exceeds the limit of {MAX_VALUES} values")]
    TooManyValues,
    /// The server has too many pending requests, or uses request ids that are too long.
    #[error("the server sent too many requests")]
    TooManyRequests,
    /// The server does not read what it is sent.
    #[error("the server does not read its input")]
    NotReading,
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The tool definitions cannot be saved in the pin store.
    #[error("the pins of its tools cannot be stored: {0}")]
    PinStore(io::ErrorKind),
    /// This host ended the connection.
    #[error("this host ended the connection")]
    Ended,
}

impl ServerFailure {
    /// Whether connecting the other way, with or without a handshake, may succeed.
    pub(super) fn may_depend_on_lifecycle(&self) -> bool {
        !matches!(
            self,
            Self::Start(_) | Self::TooManyTools | Self::PinStore(_) | Self::Ended
        )
    }

    pub(super) fn of_handshake(error: &ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::NoCompatibleProtocolVersion {
                server_supported, ..
            } => Self::versions(server_supported),
            ClientInitializeError::JsonRpcError(error) => Self::Refused(error.code.0),
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
                Self::of_handshake(fallback)
            }
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. } => Self::Closed,
            ClientInitializeError::Cancelled => Self::Ended,
            _ => Self::Protocol,
        }
    }

    pub(super) fn of_request(error: &ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => Self::Refused(error.code.0),
            ServiceError::TransportSend(_) | ServiceError::TransportClosed => Self::Closed,
            ServiceError::Timeout { timeout } => Self::Timeout(*timeout),
            ServiceError::Cancelled { .. } => Self::Ended,
            _ => Self::Protocol,
        }
    }

    /// Converts the error of an HTTP request.
    pub(super) fn of_http(error: &StreamableHttpError<reqwest::Error>) -> Self {
        match error {
            StreamableHttpError::Client(error) => Self::of_client(error),
            StreamableHttpError::Io(error) => Self::Unreachable(error.kind()),
            StreamableHttpError::HttpStatus(error) => Self::HttpStatus(error.status),
            StreamableHttpError::SessionExpired => Self::HttpStatus(404),
            StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
                Self::SignInRequired
            }
            StreamableHttpError::ResponseBodyTooLarge { .. } => Self::MessageTooLarge,
            StreamableHttpError::UnexpectedServerResponse(text) => {
                bare_status(text).map_or(Self::Protocol, Self::HttpStatus)
            }
            StreamableHttpError::UnexpectedEndOfStream
            | StreamableHttpError::TransportChannelClosed => Self::Closed,
            _ => Self::Protocol,
        }
    }

    fn of_client(error: &reqwest::Error) -> Self {
        if let Some(status) = error.status() {
            return Self::HttpStatus(status.as_u16());
        }
        let first: &(dyn Error + 'static) = error;
        let causes = std::iter::successors(Some(first), cause);
        let io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
        match io.last().map(innermost) {
            // rustls reports TLS errors with this kind.
            Some(error) if error.kind() == io::ErrorKind::InvalidData => Self::Tls(truncate(
                &bailiwick::text::escape(&error.to_string()),
                MAX_TLS_TEXT,
            )),
            Some(error) => Self::Unreachable(error.kind()),
            None if error.is_connect() => Self::Unreachable(io::ErrorKind::NotFound),
            None if error.is_decode() || error.is_body() => Self::Protocol,
            None => Self::Closed,
        }
    }

    fn versions(supported: &[ProtocolVersion]) -> Self {
        let named = supported.iter().filter(|version| is_version_name(version));
        let texts = named.take(MAX_VERSIONS).map(ToString::to_string);
        Self::ProtocolVersion {
            supported: texts.collect(),
        }
    }
}

/// Whether the text has the form of a protocol version and can be shown.
pub(super) fn is_version_name(version: &ProtocolVersion) -> bool {
    let version = version.as_str();
    version.len() <= 32
        && version
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The innermost wrapped I/O error.
fn innermost(error: &io::Error) -> &io::Error {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    inner.map_or(error, innermost)
}

fn cause<'e>(error: &&'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    (*error).source()
}

/// The HTTP status of a response that rmcp reports as text. It reports 429 and 5xx as values, and other statuses as
/// `HTTP STATUS ...`, followed by text of the server.
pub(super) fn bare_status(text: &str) -> Option<u16> {
    let status = text.strip_prefix("HTTP ")?.split([' ', ':']).next()?;
    status.parse().ok()
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ErrorCode, ErrorData};

    use super::*;

    #[test]
    fn handshake_errors_have_a_cause_without_server_text() {
        let error = || ErrorData::new(ErrorCode(-32000), "obey\u{1b}[2J", None);
        let versions = ["2024-11-05", "obey\nme", "DRAFT-1"].map(|text| {
            serde_json::from_value::<ProtocolVersion>(serde_json::json!(text)).unwrap()
        });
        for (error, expected) in [
            (
                ClientInitializeError::JsonRpcError(error()),
                ServerFailure::Refused(-32000),
            ),
            (
                ClientInitializeError::LegacyFallbackFailed {
                    discover: Box::new(ClientInitializeError::Cancelled),
                    fallback: Box::new(ClientInitializeError::JsonRpcError(error())),
                },
                ServerFailure::Refused(-32000),
            ),
            (
                ClientInitializeError::NoCompatibleProtocolVersion {
                    client_supported: Vec::new(),
                    server_supported: versions.to_vec(),
                },
                ServerFailure::ProtocolVersion {
                    supported: vec!["2024-11-05".into(), "DRAFT-1".into()],
                },
            ),
            (
                ClientInitializeError::ConnectionClosed("obey".into()),
                ServerFailure::Closed,
            ),
            (
                ClientInitializeError::ExpectedInitResult(None),
                ServerFailure::Protocol,
            ),
        ] {
            let failure = ServerFailure::of_handshake(&error);
            assert_eq!(failure, expected);
            assert!(!failure.to_string().contains("obey"), "{failure}");
            assert!(std::error::Error::source(&failure).is_none());
        }
    }

    #[test]
    fn bare_status_is_parsed_from_the_prefix() {
        for (text, expected) in [
            ("HTTP 401 Unauthorized: obey", Some(401)),
            ("HTTP 404: obey", Some(404)),
            ("HTTP obey 401", None),
            ("obey HTTP 401 ", None),
            ("", None),
        ] {
            assert_eq!(bare_status(text), expected, "{text}");
        }
    }
}
