//! What a guest asks in, what this runtime or its host answers out.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tokio::time::timeout;

use super::ViewState;
use super::asks::Ask;
use super::host::{DisplayMode, ViewWish};
use super::instance::Instance;
use super::wire::{Fault, Fields, INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND, REFUSED};
use crate::call::{Call, CallMeta, Origin};
use crate::effect::{Outcome, Utf8};
use crate::error::{CallError, Code};
use crate::gateway;
use crate::upstream::{ServerReadError, ServerText};
use crate::worker::CallProgress;

pub(super) async fn serve(instance: &Arc<Instance>, ask: Ask) -> Result<Value, Fault> {
    let answers = instance.host.answers();
    match ask {
        Ask::Tool { name, arguments } => called(instance, &name, arguments).await,
        Ask::Resource(uri) => read(instance, &uri).await,
        Ask::Link(url) => granted(instance, answers.links, ViewWish::Link(url)).await,
        Ask::Message(content) => {
            granted(instance, answers.messages, ViewWish::Message(content)).await
        }
        Ask::Download(contents) => {
            granted(instance, answers.downloads, ViewWish::Download(contents)).await
        }
        Ask::Mode(wanted) => Ok(json!({"mode": shown(instance, wanted).await?.as_str()})),
        Ask::Pin => {
            let pinned = answers.pins && wished(instance, ViewWish::Pin).await?;
            instance.pinned.fetch_or(pinned, Ordering::AcqRel);
            Ok(json!({ "pinned": pinned }))
        }
    }
}

/// What the host says, unless it was asked too often or says nothing for too long.
async fn wished(instance: &Instance, wish: ViewWish) -> Result<bool, Fault> {
    instance.wishes.take().map_err(|wait| Fault {
        code: REFUSED,
        message: "people are asked too often; wait".to_owned(),
        data: Some(json!({ "retry_after_ms": wait })),
    })?;
    let said = timeout(instance.limits.patience, instance.host.wished(wish)).await;
    Ok(said.unwrap_or(false))
}

async fn granted(instance: &Instance, answered: bool, wish: ViewWish) -> Result<Value, Fault> {
    if !answered {
        return Err(Fault::new(METHOD_NOT_FOUND, "this host does no such thing"));
    }
    let done = wished(instance, wish).await?;
    Ok(if done {
        json!({})
    } else {
        json!({"isError": true})
    })
}

/// The mode that the guest is shown in from now on: the one it wants, if the host has it and agrees.
async fn shown(instance: &Instance, wanted: Option<DisplayMode>) -> Result<DisplayMode, Fault> {
    let wanted = wanted.filter(|mode| instance.modes.contains(mode));
    if let Some(mode) = wanted
        && wished(instance, ViewWish::Mode(mode)).await?
    {
        instance.said().mode = mode;
    }
    Ok(instance.said().mode)
}

/// Calls a tool of the guest's own server as a view may: through the worker's pipeline, and what changes something only
/// if a person allows that very call.
async fn called(instance: &Instance, name: &str, arguments: Fields) -> Result<Value, Fault> {
    let worker = &instance.worker;
    let server = instance.source.as_ref().map(|(_, server)| server.as_str());
    let arguments = Value::Object(arguments);
    let Some(entry) = worker.tool_for_views(server, name) else {
        let error = worker.refuse_view(name, arguments, CallError::unknown_tool(name));
        return told(gateway::failure(&error));
    };
    let meta = CallMeta {
        origin: Origin::View,
        confirm: entry.mutates,
        ..CallMeta::default()
    };
    let call = Call::new(entry.name.as_str(), arguments).meta(meta);
    let ended = ended(instance, call).await;
    let ended = ended.and_then(|outcome| gateway::outcome(&outcome, gateway::Links::ALL));
    told(ended.or_else(|error| gateway::failure(&error)))
}

/// Carries a call out. One that waits for a person when the page is closed is withdrawn: who would answer sees no page
/// any more that the call could be of.
async fn ended(instance: &Instance, call: Call) -> Result<Outcome, CallError> {
    let worker = &instance.worker;
    let mut state = instance.state.subscribe();
    let mut begun = worker.begin(call).await?;
    loop {
        let pending = match begun {
            CallProgress::Ended(outcome) => return Ok(*outcome),
            CallProgress::Pending(pending) => pending,
        };
        let question = pending.question().id;
        let going = pending.resume();
        tokio::pin!(going);
        begun = tokio::select! {
            biased;
            () = closed(&mut state) => {
                if worker.is_asked(question).await {
                    return Err(CallError::new(Code::Cancelled, "the page was closed"));
                }
                going.await?
            }
            next = &mut going => next?,
        };
    }
}

async fn closed(state: &mut watch::Receiver<ViewState>) {
    // Its sender is in the instance.
    let _ = state.wait_for(|state| *state == ViewState::Closed).await;
}

fn told(result: Result<rmcp::model::CallToolResult, rmcp::ErrorData>) -> Result<Value, Fault> {
    let result = result.map_err(|error| Fault {
        code: i64::from(error.code.0),
        message: error.message.into_owned(),
        data: error.data,
    })?;
    serde_json::to_value(result).map_err(|error| Fault::new(INTERNAL, error.to_string()))
}

fn size(part: &ServerText) -> u64 {
    let bytes = match part {
        ServerText::Text(text) => text.len(),
        ServerText::Bytes(bytes) => bytes.len(),
    };
    bytes.try_into().unwrap_or(u64::MAX)
}

/// Reads what the guest's own server has, if the worker may, or what the worker made.
async fn read(instance: &Instance, uri: &str) -> Result<Value, Fault> {
    let contents = match &instance.source {
        None => {
            let artifact = instance.worker.artifact(uri);
            let artifact =
                artifact.map_err(|error| Fault::new(INVALID_PARAMS, error.to_string()))?;
            let mut content = match Utf8::new(artifact.bytes.clone()) {
                Ok(text) => json!({"uri": uri, "text": text.as_str()}),
                Err(_) => json!({"uri": uri, "blob": STANDARD.encode(&artifact.bytes)}),
            };
            if let Value::Object(content) = &mut content {
                content.insert("mimeType".into(), artifact.mime.into());
            }
            vec![content]
        }
        Some((upstreams, server)) => {
            let worker = &instance.worker;
            let refused = |error: CallError| Fault::new(REFUSED, error.message());
            let label = upstreams.label(server).unwrap_or(server);
            let facts = worker.view_reads(server, label, uri).map_err(refused)?;
            let parts = upstreams.read_resource(server, uri).await;
            let failed =
                |error: ServerReadError| CallError::new(Code::ServerFailed, error.to_string());
            let parts = parts.map_err(failed);
            let bytes = parts.as_ref().map(|parts| parts.iter().map(size).sum());
            worker.view_read(&facts, bytes);
            let parts = parts.map_err(|error| Fault::new(INVALID_PARAMS, error.message()))?;
            let parts = parts.into_iter().map(|part| match part {
                ServerText::Text(text) => json!({"uri": uri, "text": text}),
                ServerText::Bytes(bytes) => json!({"uri": uri, "blob": STANDARD.encode(bytes)}),
            });
            parts.collect()
        }
    };
    Ok(json!({ "contents": contents }))
}
