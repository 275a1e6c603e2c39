//! The cost of a call over MCP, in process and over HTTP, compared with a server of rmcp whose tool does nothing.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

mod client;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use bailiwick_benches::{Benchmark, NOOP, Target, build_runtime, multi_thread, run_task};
use bailiwick_mcp::gateway::{Gateway, GatewayInfo, Http, Rate};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, InitializeResult, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, serve_server};
use serde_json::json;
use tokio::io::{duplex, split};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use client::Client;

/// The audit is flushed between batches.
const BATCH: u32 = 200;
/// Buffer size of an in-process connection, in bytes.
const BUFFER: usize = 64 << 10;

/// An rmcp server whose tool does nothing.
#[derive(Clone)]
struct RmcpServer;

impl ServerHandler for RmcpServer {
    fn get_info(&self) -> ServerConfig {
        InitializeResult::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::structured(json!(null)).into())
    }
}

fn main() {
    let tokio = multi_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (runtime, gateway) = tokio.block_on(async {
        let (runtime, spec) = build_runtime(root.path(), 8192).await.unwrap();
        let worker = runtime.spawn(spec).await.unwrap();
        let info = GatewayInfo {
            name: "bench".to_owned(),
            title: "Bench".to_owned(),
            version: "0".to_owned(),
            instructions: String::new(),
        };
        let rate = Rate {
            calls: u32::MAX,
            ..Rate::default()
        };
        (runtime, Gateway::worker(&worker, info).rate(rate).build())
    });
    let pairs = [
        (
            "call over MCP in process",
            Target::Times(1.3),
            tokio.block_on(in_process(&gateway)),
        ),
        (
            "call over MCP and HTTP",
            Target::None,
            tokio.block_on(over_http(gateway)),
        ),
    ];
    for (title, target, [rmcp_client, gateway_client]) in pairs {
        Benchmark::new(title, Duration::from_secs(5))
            .case("rmcp alone", Target::None, BATCH, |n| {
                run_task(&tokio, calls(Arc::clone(&rmcp_client), n));
            })
            .case_then(
                "gateway",
                target,
                BATCH,
                |n| run_task(&tokio, calls(Arc::clone(&gateway_client), n)),
                || tokio.block_on(runtime.flush_audit()).unwrap(),
            )
            .run();
    }
}

/// Calls the tool `n` times, one call at a time.
async fn calls(client: Arc<Mutex<Client>>, n: u32) {
    let mut client = client.lock().await;
    for _ in 0..n {
        let params = json!({ "name": NOOP, "arguments": {} });
        let result = client.request("tools/call", &params).await.unwrap();
        assert_ne!(result.get("isError"), Some(&json!(true)), "{result}");
    }
}

/// Clients of an rmcp server and of the gateway, over streams in this process.
async fn in_process(gateway: &Gateway) -> [Arc<Mutex<Client>>; 2] {
    let [(near, far), (gateway_near, gateway_far)] = [(); 2].map(|()| duplex(BUFFER));
    tokio::spawn(async move {
        let service = serve_server(RmcpServer, split(far)).await.unwrap();
        service.waiting().await.unwrap();
    });
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let (reader, writer) = split(gateway_far);
        gateway.serve(reader, writer).await.unwrap();
    });
    [
        Client::lines(near).await.unwrap(),
        Client::lines(gateway_near).await.unwrap(),
    ]
    .map(|client| Arc::new(Mutex::new(client)))
}

/// Clients of an rmcp server and of the gateway, over HTTP on loopback addresses.
async fn over_http(gateway: Gateway) -> [Arc<Mutex<Client>>; 2] {
    let [rmcp_listener, gateway_listener] = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let [address, gateway_address] =
        [&rmcp_listener, &gateway_listener].map(|listener| listener.local_addr().unwrap());
    tokio::spawn(async move {
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(RmcpServer), sessions, Default::default());
        let router = axum::Router::new().route_service("/mcp", service);
        // Like the gateway, so that small responses are not delayed.
        let listener = rmcp_listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        axum::serve(listener, router).await.unwrap();
    });
    tokio::spawn(async move {
        let http = Http::without_token();
        gateway
            .serve_http(gateway_listener, http, pending())
            .await
            .unwrap();
    });
    [
        Client::http(address).await.unwrap(),
        Client::http(gateway_address).await.unwrap(),
    ]
    .map(|client| Arc::new(Mutex::new(client)))
}
