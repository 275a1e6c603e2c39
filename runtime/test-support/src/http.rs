//! A raw HTTP client.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};

/// An HTTP response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    head: String,
    /// The body.
    pub body: String,
}

impl Response {
    /// Parses what a server sent until it closed the connection; `None` if that is not a complete response.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?;
        Some(Self {
            status: status.parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let header = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.trim())
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let body = serde_json::from_str(&self.body);
        body.unwrap_or_else(|_| panic!("{self:?} is not JSON"))
    }

    /// The code of an error.
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap().to_owned()
    }

    /// The messages in the body, which is JSON, a batch or a stream of events.
    pub fn messages(&self) -> Vec<Value> {
        let lines = self.body.lines();
        let texts = lines.map(|line| line.strip_prefix("data:").unwrap_or(line));
        texts
            .filter_map(|text| serde_json::from_str::<Value>(text).ok())
            .flat_map(|message| match message {
                Value::Array(batch) => batch,
                message => vec![message],
            })
            .filter(Value::is_object)
            .collect()
    }

    /// The first message in the body that has an id.
    #[track_caller]
    pub fn message(&self) -> Value {
        let mut messages = self.messages().into_iter();
        let message = messages.find(|message| message.get("id").is_some());
        message.unwrap_or_else(|| panic!("{self:?}"))
    }
}

/// Sends a request with these lines in its head, and reads the response until the server closes the connection.
pub async fn send(address: impl ToSocketAddrs, head: &[&str], body: &str) -> Response {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (head, length) = (head.join("\r\n"), body.len());
    let head = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that rejects a body may close the connection before it has read all of it.
    let _ = stream.write_all(body.as_bytes()).await;
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    let response = String::from_utf8(response).unwrap();
    Response::parse(&response).unwrap_or_else(|| panic!("incomplete response: {response}"))
}
