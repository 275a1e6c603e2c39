//! Serves requests of pages, through the worker's pipeline or the host.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::ViewState;
use super::host::{DisplayMode, ViewRequest};
use super::instance::Instance;
use super::request::AppRequest;
use super::wire::{Fields, INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND, REFUSED, RpcError};
use crate::gateway;
use crate::upstream::{ServerReadError, ServerText};
use bailiwick::call::{Call, CallMeta, Origin};
use bailiwick::effect::{Outcome, Utf8};
use bailiwick::worker::CallProgress;
use bailiwick::{CallError, Code};

pub(super) async fn serve(
    instance: &Arc<Instance>,
    request: AppRequest,
) -> Result<Value, RpcError> {
    match request {
        AppRequest::Tool { name, arguments } => call_tool(instance, &name, arguments).await,
        AppRequest::Resource(uri) => read_resource(instance, &uri).await,
        AppRequest::Mode(requested) => {
            Ok(json!({"mode": change_mode(instance, requested).await?.as_str()}))
        }
        AppRequest::Host(request) => request_host(instance, request).await,
    }
}

/// Asks the host, within the rate limit and the timeout.
async fn ask_host(instance: &Instance, request: ViewRequest) -> Result<bool, RpcError> {
    instance.request_limiter.take().map_err(|wait| RpcError {
        code: REFUSED,
        message: "people are asked too often; wait".to_owned(),
        data: Some(json!({ "retry_after_ms": wait })),
    })?;
    let answer = instance.host.on_request(request);
    let answer = timeout(instance.limits.answer_timeout, answer).await;
    Ok(answer.unwrap_or(false))
}

async fn request_host(instance: &Instance, request: ViewRequest) -> Result<Value, RpcError> {
    let supported = instance.host.capabilities();
    let is_supported = match &request {
        ViewRequest::Link(_) => supported.links,
        ViewRequest::Message(_) => supported.messages,
        ViewRequest::Download(_) => supported.downloads,
        ViewRequest::Mode(_) => true,
        ViewRequest::Pin => {
            let pinned = supported.pins && ask_host(instance, request).await?;
            instance.pinned.fetch_or(pinned, Ordering::AcqRel);
            return Ok(json!({ "pinned": pinned }));
        }
    };
    if !is_supported {
        let message = "this host does no such thing";
        return Err(RpcError::new(METHOD_NOT_FOUND, message));
    }
    let done = ask_host(instance, request).await?;
    Ok(if done {
        json!({})
    } else {
        json!({"isError": true})
    })
}

/// The new display mode: the requested one, if the host has it and agrees.
async fn change_mode(
    instance: &Instance,
    requested: Option<DisplayMode>,
) -> Result<DisplayMode, RpcError> {
    let requested = requested.filter(|mode| instance.modes.contains(mode));
    if let Some(mode) = requested
        && ask_host(instance, ViewRequest::Mode(mode)).await?
    {
        instance.page_state.lock().mode = mode;
    }
    Ok(instance.page_state.lock().mode)
}

/// Calls a tool of the page's server through the worker's pipeline. Changes need a person's approval of that very call.
async fn call_tool(instance: &Instance, name: &str, arguments: Fields) -> Result<Value, RpcError> {
    let worker = &instance.worker;
    let server = instance.source.as_ref().map(|(_, server)| server.as_str());
    let arguments = Value::Object(arguments);
    let Some(entry) = worker.tool_for_views(server, name) else {
        let error = worker.refuse_view(name, arguments, CallError::unknown_tool(name));
        return to_result(gateway::failure(&error));
    };
    let meta = CallMeta {
        origin: Origin::View,
        confirm: entry.mutates,
        ..CallMeta::default()
    };
    let call = Call::new(entry.name.as_str(), arguments).meta(meta);
    let outcome = run_call(instance, call).await;
    let outcome = outcome.and_then(|outcome| gateway::outcome(&outcome, gateway::ResultLinks::ALL));
    to_result(outcome.or_else(|error| gateway::failure(&error)))
}

/// Runs a call. If it waits for a person when the view is closed, it is cancelled, because the person can no longer see
/// the page.
async fn run_call(instance: &Instance, call: Call) -> Result<Outcome, CallError> {
    let worker = &instance.worker;
    let mut state = instance.state.subscribe();
    let mut begun = worker.begin(call).await?;
    loop {
        let pending = match begun {
            CallProgress::Ended(outcome) => return Ok(*outcome),
            CallProgress::Pending(pending) => pending,
        };
        let question = pending.question().id;
        let resumed = pending.resume();
        tokio::pin!(resumed);
        begun = tokio::select! {
            biased;
            () = wait_until_closed(&mut state) => {
                if worker.is_asked(question).await {
                    return Err(CallError::new(Code::Cancelled, "the page was closed"));
                }
                resumed.await?
            }
            next = &mut resumed => next?,
        };
    }
}

async fn wait_until_closed(state: &mut watch::Receiver<ViewState>) {
    // The sender is in the instance.
    let _ = state.wait_for(|state| *state == ViewState::Closed).await;
}

fn to_result(
    result: Result<rmcp::model::CallToolResult, rmcp::ErrorData>,
) -> Result<Value, RpcError> {
    let result = result.map_err(|error| RpcError {
        code: i64::from(error.code.0),
        message: error.message.into_owned(),
        data: error.data,
    })?;
    serde_json::to_value(result).map_err(|error| RpcError::new(INTERNAL, error.to_string()))
}

/// Reads a resource of the page's server, if the worker may, or an artifact of the worker.
async fn read_resource(instance: &Instance, uri: &str) -> Result<Value, RpcError> {
    let contents = match &instance.source {
        None => {
            let artifact = instance.worker.artifact(uri);
            let artifact = artifact.map(crate::gateway::render_artifact);
            let artifact =
                artifact.map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))?;
            let mime = artifact.mime;
            vec![match Utf8::new(artifact.bytes.clone()) {
                Ok(text) => json!({"uri": uri, "text": text.as_str(), "mimeType": mime}),
                Err(_) => {
                    let blob = STANDARD.encode(&artifact.bytes);
                    json!({"uri": uri, "blob": blob, "mimeType": mime})
                }
            }]
        }
        Some((upstreams, server)) => {
            let worker = &instance.worker;
            let refused = |error: CallError| RpcError::new(REFUSED, error.message());
            let label = upstreams.label(server).unwrap_or(server);
            let facts = worker.view_reads(server, label, uri).map_err(refused)?;
            let parts = upstreams.read_resource(server, uri).await;
            let failed =
                |error: ServerReadError| CallError::new(Code::ServerFailed, error.to_string());
            let parts = parts.map_err(failed);
            let size = |part: &ServerText| match part {
                ServerText::Text(text) => text.len() as u64,
                ServerText::Bytes(bytes) => bytes.len() as u64,
            };
            let bytes = parts.as_ref().map(|parts| parts.iter().map(size).sum());
            worker.view_read(&facts, bytes);
            let parts = parts.map_err(|error| RpcError::new(INVALID_PARAMS, error.message()))?;
            let parts = parts.into_iter().map(|part| match part {
                ServerText::Text(text) => json!({"uri": uri, "text": text}),
                ServerText::Bytes(bytes) => json!({"uri": uri, "blob": STANDARD.encode(bytes)}),
            });
            parts.collect()
        }
    };
    Ok(json!({ "contents": contents }))
}
