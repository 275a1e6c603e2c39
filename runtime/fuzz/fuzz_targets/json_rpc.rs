//! The edge of the MCP server: any bytes get complete JSON lines as answers, no request gets two, and the connection ends
//! when its input ends.
//!
//! An input that begins with `+` follows a handshake.
#![no_main]

use std::cell::OnceCell;
use std::collections::HashMap;
use std::time::Duration;

use bailiwick::{Policy, Runtime, Worker, WorkerSpec};
use bailiwick_mcp::gateway::{Gateway, GatewayInfo};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const HANDSHAKE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"fuzz-init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"f","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);

struct Server {
    tokio: tokio::runtime::Runtime,
    gateway: Gateway,
    _kept: (Runtime, Worker, tempfile::TempDir),
}

impl Server {
    fn start() -> Self {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a tokio runtime");
        let root = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(root.path().join("a.txt"), "one\ntwo\n").expect("a file");
        let (runtime, worker) = tokio.block_on(async {
            let builder = Runtime::builder().root("r", root.path());
            let (runtime, _authority) = builder
                .tools(bailiwick_fs::tools())
                .build()
                .await
                .expect("a runtime");
            let spec = WorkerSpec::new("fuzz").policy(Policy::nothing().allow("read"));
            let worker = runtime.spawn(spec).await.expect("a worker");
            (runtime, worker)
        });
        let info = GatewayInfo {
            name: "fuzz".into(),
            title: "Fuzz".into(),
            version: "0".into(),
            instructions: String::new(),
        };
        let _guard = tokio.enter();
        let gateway = Gateway::worker(&worker, info).build();
        drop(_guard);
        Self {
            tokio,
            gateway,
            _kept: (runtime, worker, root),
        }
    }

    fn exchange(&self, input: &[u8]) -> Vec<u8> {
        self.tokio.block_on(async {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(far);
            let gateway = self.gateway.clone();
            let task = tokio::spawn(async move {
                let _ = gateway.serve(reader, writer).await;
            });
            let (mut reader, mut writer) = tokio::io::split(near);
            let mut answers = Vec::new();
            let talk = async {
                let send = async {
                    let _ = writer.write_all(input).await;
                    let _ = writer.shutdown().await;
                };
                let (_, read) = tokio::join!(send, reader.read_to_end(&mut answers));
                read.expect("a pipe in memory can be read");
                task.await.expect("the connection does not panic");
            };
            tokio::time::timeout(Duration::from_secs(5), talk)
                .await
                .expect("the connection ends with its input");
            answers
        })
    }
}

thread_local! {
    static SERVER: OnceCell<Server> = const { OnceCell::new() };
}

/// Counts the ids of messages, batches included, as JSON, and the lines that are not JSON.
fn count(lines: &[u8], counts: impl Fn(&Value) -> bool) -> (HashMap<String, usize>, usize) {
    let (mut ids, mut invalid) = (HashMap::new(), 0);
    for line in lines.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let messages = match serde_json::from_slice(line) {
            Ok(Value::Array(messages)) => messages,
            Ok(message) => vec![message],
            Err(_) => {
                invalid += 1;
                continue;
            }
        };
        for message in messages.iter().filter(|message| counts(message)) {
            if let Some(id) = message.get("id").filter(|id| !id.is_null()) {
                *ids.entry(id.to_string()).or_default() += 1;
            }
        }
    }
    (ids, invalid)
}

fuzz_target!(|input: &[u8]| {
    let bytes = match input.strip_prefix(b"+") {
        Some(rest) => [HANDSHAKE.as_bytes(), rest].concat(),
        None => input.to_vec(),
    };
    let answers = SERVER.with(|server| server.get_or_init(Server::start).exchange(&bytes));
    assert!(answers.is_empty() || answers.ends_with(b"\n"));
    for line in answers
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        assert!(
            serde_json::from_slice::<Value>(line).is_ok(),
            "{}",
            String::from_utf8_lossy(line)
        );
    }
    // A line that is not JSON may be answered by the id in it.
    let (requests, invalid) = count(&bytes, |_| true);
    let (answers, _) = count(&answers, |message| message.get("method").is_none());
    for (id, count) in answers {
        let asked = requests.get(&id).copied().unwrap_or_default() + invalid;
        assert!(
            count <= asked,
            "{id} was sent {asked} times and answered {count} times"
        );
    }
});
