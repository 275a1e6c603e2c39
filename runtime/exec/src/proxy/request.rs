//! Requests of programs to the proxy: HTTP and SOCKS5.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::address::Target;
use super::{Outcome, ProxyLimits};

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 100;
/// Headers of a request that are for the proxy only.
const OF_PROXY: [&str; 7] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "upgrade",
];
/// How much a program may still send after it was refused. Closing the connection earlier can destroy the answer.
const MAX_DISCARDED: u64 = 64 << 10;
/// For how long a program may still send after it was refused.
const DISCARD_TIME: Duration = Duration::from_secs(1);

const SOCKS: u8 = 5;
const SOCKS_NO_AUTHENTICATION: u8 = 0;
const SOCKS_NO_ACCEPTABLE_METHOD: u8 = 0xff;
const SOCKS_CONNECT: u8 = 1;
const SOCKS_IPV4: u8 = 1;
const SOCKS_NAME: u8 = 3;
const SOCKS_IPV6: u8 = 4;

/// What a program asks for.
pub(super) struct Request {
    pub(super) target: Target,
    pub(super) kind: Kind,
}

/// The kind of a request.
pub(super) enum Kind {
    /// HTTP `CONNECT`.
    Connect,
    /// A request of plain HTTP, whose head is sent to the target.
    Forward { head: Vec<u8> },
    /// SOCKS5.
    Socks,
}

/// The connection of a program.
pub(super) struct Client {
    pub(super) reader: BufReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    is_socks: bool,
}

impl Client {
    pub(super) fn new(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
            is_socks: false,
        }
    }

    /// Reads a request. Fails with the reason why it is invalid.
    pub(super) async fn read_request(&mut self, max: u64) -> Result<Request, String> {
        let first = self.reader.fill_buf().await.map_err(|e| e.to_string())?;
        if first.first() == Some(&SOCKS) {
            self.is_socks = true;
            let read = self.read_socks().await.map_err(|e| e.to_string())?;
            let target = read.ok_or("unsupported SOCKS request or invalid host")?;
            let kind = Kind::Socks;
            return Ok(Request { target, kind });
        }
        let head = self.read_head(max).await.map_err(|e| e.to_string())?;
        parse_http(&head)
    }

    /// Reads the head of an HTTP request.
    async fn read_head(&mut self, max: u64) -> io::Result<Vec<u8>> {
        let mut limited = (&mut self.reader).take(max);
        let mut head = Vec::new();
        loop {
            let length = limited.read_until(b'\n', &mut head).await?;
            if head.ends_with(b"\r\n\r\n") {
                return Ok(head);
            }
            if length == 0 {
                let is_long = limited.limit() == 0;
                let message = if is_long {
                    "the head is too large"
                } else {
                    "it is incomplete"
                };
                return Err(io::Error::other(message));
            }
        }
    }

    /// Reads a SOCKS5 request; `None` if it is not supported.
    async fn read_socks(&mut self) -> io::Result<Option<Target>> {
        let Self { reader, writer, .. } = self;
        let [_version, methods] = read(reader).await?;
        let mut offered = vec![0; methods.into()];
        reader.read_exact(&mut offered).await?;
        if !offered.contains(&SOCKS_NO_AUTHENTICATION) {
            writer
                .write_all(&[SOCKS, SOCKS_NO_ACCEPTABLE_METHOD])
                .await?;
            return Ok(None);
        }
        writer.write_all(&[SOCKS, SOCKS_NO_AUTHENTICATION]).await?;
        let [version, command, _reserved, kind] = read(reader).await?;
        let host = match kind {
            SOCKS_IPV4 => {
                let octets: [u8; 4] = read(reader).await?;
                IpAddr::from(Ipv4Addr::from(octets)).to_string()
            }
            SOCKS_IPV6 => {
                let octets: [u8; 16] = read(reader).await?;
                IpAddr::from(Ipv6Addr::from(octets)).to_string()
            }
            SOCKS_NAME => {
                let [length] = read(reader).await?;
                let mut name = vec![0; length.into()];
                reader.read_exact(&mut name).await?;
                // Not a valid name otherwise.
                String::from_utf8(name).unwrap_or_default()
            }
            _ => return Ok(None),
        };
        let port = u16::from_be_bytes(read(reader).await?);
        let is_supported = version == SOCKS && command == SOCKS_CONNECT;
        Ok(Target::parse(&host, port).filter(|_| is_supported))
    }

    /// Answers that the program is connected.
    pub(super) async fn accept(&mut self, kind: &Kind) -> io::Result<()> {
        match kind {
            Kind::Connect => {
                let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
                self.writer.write_all(answer).await
            }
            Kind::Socks => self.writer.write_all(&socks_answer(0)).await,
            Kind::Forward { .. } => Ok(()),
        }
    }

    /// Answers that the program is not connected, and closes the connection.
    pub(super) async fn refuse(mut self, outcome: &Outcome, limits: ProxyLimits) {
        let answer = if self.is_socks {
            socks_answer(socks_code(outcome)).to_vec()
        } else {
            http_answer(outcome)
        };
        let close = async {
            self.writer.write_all(&answer).await?;
            self.writer.shutdown().await
        };
        if let Ok(Ok(())) = timeout(limits.head_time, close).await {
            let mut rest = self.reader.take(MAX_DISCARDED);
            let mut sink = tokio::io::sink();
            let _ = timeout(DISCARD_TIME, tokio::io::copy(&mut rest, &mut sink)).await;
        }
    }
}

async fn read<const LENGTH: usize>(
    reader: &mut BufReader<OwnedReadHalf>,
) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    reader.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Parses the head of an HTTP request.
fn parse_http(head: &[u8]) -> Result<Request, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let status = request.parse(head).map_err(|error| error.to_string())?;
    let (Some(method), Some(path), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err("it is incomplete".to_owned());
    };
    if status != httparse::Status::Complete(head.len()) {
        return Err("it is incomplete".to_owned());
    }
    if method == "CONNECT" {
        let target = Target::parse_authority(path, None).ok_or("invalid host or port")?;
        let kind = Kind::Connect;
        return Ok(Request { target, kind });
    }
    let rest = path
        .split_at_checked("http://".len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("http://"))
        .map(|(_, rest)| rest)
        .ok_or("the proxy needs `CONNECT` or a URL that begins with `http://`")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, resource) = rest.split_at(end);
    let target = Target::parse_authority(authority, Some(80)).ok_or("invalid host or port")?;
    let slash = if resource.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{resource} HTTP/1.{minor}\r\nHost: {target}\r\n");
    // The connection goes to this target only, so a second request may not follow.
    head.push_str("Connection: close\r\n");
    let mut head = head.into_bytes();
    for header in request.headers.iter() {
        let is_of_proxy = |name: &&str| header.name.eq_ignore_ascii_case(name);
        if !OF_PROXY.iter().any(is_of_proxy) {
            head.extend([header.name.as_bytes(), b": ", header.value, b"\r\n"].concat());
        }
    }
    head.extend(b"\r\n");
    let kind = Kind::Forward { head };
    Ok(Request { target, kind })
}

fn http_answer(outcome: &Outcome) -> Vec<u8> {
    let status = match outcome {
        Outcome::Denied { .. } | Outcome::AddressBlocked { .. } => "403 Forbidden",
        Outcome::InvalidRequest { .. } => "400 Bad Request",
        Outcome::Connected { .. } | Outcome::Failed { .. } | Outcome::Canceled => "502 Bad Gateway",
    };
    let body = format!("{outcome}\n");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The answer to a SOCKS5 request, with an unspecified address.
fn socks_answer(code: u8) -> [u8; 10] {
    [SOCKS, code, 0, SOCKS_IPV4, 0, 0, 0, 0, 0, 0]
}

fn socks_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Denied { .. } | Outcome::AddressBlocked { .. } => 2,
        Outcome::InvalidRequest { .. } => 1,
        Outcome::Connected { .. } | Outcome::Failed { .. } | Outcome::Canceled => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(head: &str) -> (String, String) {
        let Request { target, kind } = parse_http(head.as_bytes()).unwrap();
        match kind {
            Kind::Forward { head } => (target.to_string(), String::from_utf8(head).unwrap()),
            Kind::Connect | Kind::Socks => panic!("{head}"),
        }
    }

    #[test]
    fn plain_request_goes_to_its_url_whatever_its_host_header() {
        let (target, head) = forwarded(
            "GET HTTP://Example.com:8080/a?b HTTP/1.1\r\nHOST: other.example\r\nProxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nconnection: keep-alive\r\nX: y\r\n\r\n",
        );
        assert_eq!(target, "example.com:8080");
        let expected =
            "GET /a?b HTTP/1.1\r\nHost: example.com:8080\r\nConnection: close\r\nX: y\r\n\r\n";
        assert_eq!(head, expected);
        assert!(
            forwarded("GET http://a.example?q HTTP/1.0\r\n\r\n")
                .1
                .starts_with("GET /?q HTTP/1.0\r\n")
        );
    }

    #[test]
    fn connect_request_goes_to_its_authority_whatever_its_host_header() {
        let head = b"CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n";
        let request = parse_http(head).unwrap();
        assert_eq!(request.target.to_string(), "a.example:443");
        assert!(matches!(request.kind, Kind::Connect));
    }

    #[test]
    fn invalid_requests_are_rejected() {
        let many = format!("GET http://a/ HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        for head in [
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///a HTTP/1.1\r\n\r\n",
            "GET http://user@a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example:/ HTTP/1.1\r\n\r\n",
            "GET http://0x7f.1/ HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT http://a.example:1/ HTTP/1.1\r\n\r\n",
            "CONNECT a.example:1/x HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nX : y\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nX: y\r\n folded\r\n\r\n",
            "GET http://a/ HTTP/3\r\n\r\n",
            "\u{4}\u{1}",
            &many,
        ] {
            assert!(parse_http(head.as_bytes()).is_err(), "{head}");
        }
    }
}
