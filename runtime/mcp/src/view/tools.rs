//! Offers the tools of a page to the agent; calls are requests to the page.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{CallToolResult, Tool};
use serde_json::{Value, json};

use super::instance::Instance;
use super::protocol::NoResponse;
use super::wire::Fields;
use crate::upstream::{
    ListedTool, OfferedTool, ToolProvider, classify, failure, remote_entry, reply,
};
use bailiwick::scope::Verb;
use bailiwick::tool::{
    CallPermit, Entry, Interrupt, Remote, RemoteContext, RemoteFuture, RemoteJob, RemoteReply,
};
use bailiwick::{CallError, Code};

/// Parses a listed tool, with a default schema; `None` if it is invalid.
pub(super) fn read(mut tool: Value) -> Option<Tool> {
    let fields = tool.as_object_mut()?;
    fields
        .entry("inputSchema")
        .or_insert_with(|| json!({"type": "object"}));
    serde_json::from_value(tool).ok()
}

/// Classifies all listed tools; tools beyond the limit are withheld. This is CPU-bound and must not run on an async
/// thread.
pub(super) fn classify_tools(instance: &Instance, tools: &[Tool]) -> Vec<ListedTool> {
    let preface = format!(
        "A tool of {}, with an unverified description: ",
        display_name(instance)
    );
    let provider = ToolProvider {
        name: &instance.name,
        label: &instance.label,
        verbs: &BTreeMap::new(),
        description_prefix: &preface,
    };
    classify(tools, provider, instance.limits.tools)
}

/// The name of the app with what it reports about itself, for models.
fn display_name(instance: &Instance) -> String {
    let name = &instance.name;
    match instance.app.get() {
        Some(app) if !app.name.is_empty() => {
            format!("the app `{name}` ({} {})", app.name, app.version)
        }
        _ => format!("the app `{name}`"),
    }
}

pub(super) fn entry(instance: &Arc<Instance>, offer: &Arc<OfferedTool>) -> Entry {
    let remote = Remote {
        server: Arc::clone(&instance.name),
        // Questions to people use only the name given by the host.
        shown: format!("the app {}", instance.name).into(),
        tool: Arc::clone(&offer.tool),
        need: offer.need.clone(),
        previews: false,
        listed: true,
        // Tools of a page are for the agent and not for other pages.
        views: false,
    };
    let instance = Arc::clone(instance);
    remote_entry(offer, remote, move |offer, arguments| {
        Arc::new(AppToolCall {
            instance: Arc::clone(&instance),
            offer: Arc::clone(offer),
            arguments,
        })
    })
}

#[derive(Debug)]
struct AppToolCall {
    instance: Arc<Instance>,
    offer: Arc<OfferedTool>,
    arguments: Fields,
}

impl RemoteJob for AppToolCall {
    fn target(&self) -> (Arc<str>, Arc<str>) {
        (
            Arc::clone(&self.instance.name),
            Arc::clone(&self.offer.tool),
        )
    }

    fn carry(
        self: Arc<Self>,
        permit: &CallPermit,
        _: Option<String>,
        _: Arc<dyn RemoteContext>,
    ) -> Result<RemoteFuture, CallError> {
        if permit.is_preview() {
            let message = "the tools of apps have no previews; it would be carried out";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        if !self.instance.still_offers(&self.offer) {
            return Err(CallError::unknown_tool(self.offer.name.as_str()));
        }
        Ok(Box::pin(async move {
            self.run().await.map_err(Interrupt::from)
        }))
    }

    fn mutates(&self) -> bool {
        self.offer.verb != Verb::Read
    }
}

impl AppToolCall {
    async fn run(&self) -> Result<RemoteReply, CallError> {
        let Self {
            instance,
            offer,
            arguments,
        } = self;
        let params = json!({"name": &*offer.tool, "arguments": arguments});
        let answer = instance
            .request("tools/call", params, instance.limits.call)
            .await;
        let answer = answer.map_err(|why| {
            let begun = matches!(why, NoResponse::Closed | NoResponse::TimedOut) && self.mutates();
            let error = instance.call_error(why);
            if begun {
                error.with("begun", true)
            } else {
                error
            }
        })?;
        let result = serde_json::from_value::<CallToolResult>(answer.into());
        let result = result.map_err(|_| {
            let message = format!(
                "the response of the app `{}` is not a result",
                instance.name
            );
            CallError::new(Code::ServerFault, message)
        })?;
        if result.is_error == Some(true) {
            return Err(failure(&result));
        }
        let reply = reply(&result, offer, instance.limits.message).await?;
        Ok(RemoteReply {
            reply,
            preview: None,
        })
    }
}
