//! What a guest lists in, tools for the agent beside it out; a call of one is a question to the guest.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rmcp::model::{CallToolResult, Tool};
use serde_json::{Value, json};

use super::instance::Instance;
use super::talk::Unanswered;
use super::wire::Fields;
use crate::capability::{CallPermit, Interrupt};
use crate::error::{CallError, Code};
use crate::scope::Verb;
use crate::tool::{Entry, Remote, RemoteContext, RemoteFuture, RemoteJob, RemoteReply};
use crate::upstream::{Offer, Provider, ServerTool, Unoffered, carried, failure, listed, reply};

/// What a guest listed.
#[derive(Default)]
pub(super) struct Sorted {
    /// All of it.
    pub(super) seen: Vec<ServerTool>,
    /// What may be offered.
    pub(super) offers: Vec<Arc<Offer>>,
}

/// A tool of a list, if it is one; one without a schema takes an object.
pub(super) fn read(mut tool: Value) -> Option<Tool> {
    let fields = tool.as_object_mut()?;
    fields
        .entry("inputSchema")
        .or_insert_with(|| json!({"type": "object"}));
    serde_json::from_value(tool).ok()
}

/// Every tool that was listed, and those that may be offered: what comes after the most that an app may have is not.
/// Takes a while: not for a thread that others wait for.
pub(super) fn sorted(instance: &Instance, tools: &[Tool]) -> Sorted {
    let preface = format!(
        "A tool of {}, in words that nobody checked: ",
        shown(instance)
    );
    let provider = Provider {
        name: &instance.name,
        label: &instance.label,
        verbs: &BTreeMap::new(),
        preface: &preface,
    };
    let mut sorted = Sorted::default();
    for (place, it) in listed(tools, provider).iter().enumerate() {
        let room = place < instance.limits.tools;
        let offer = it
            .offer
            .clone()
            .and_then(|offer| room.then_some(offer).ok_or(Unoffered::TooMany));
        sorted.seen.push(it.seen(&offer));
        sorted.offers.extend(offer);
    }
    sorted
}

/// The app with what it says of itself, for models.
fn shown(instance: &Instance) -> String {
    let name = &instance.name;
    match instance.guest.get() {
        Some(guest) if !guest.name.is_empty() => {
            format!("the app `{name}` ({} {})", guest.name, guest.version)
        }
        _ => format!("the app `{name}`"),
    }
}

pub(super) fn entry(instance: &Arc<Instance>, offer: &Arc<Offer>) -> Entry {
    let remote = Remote {
        server: Arc::clone(&instance.name),
        // What people are asked about is named by the host alone.
        shown: format!("the app `{}`", instance.name).into(),
        tool: Arc::clone(&offer.tool),
        need: offer.need.clone(),
        previews: false,
        listed: true,
        // What one app offers is for the agent, and for no other app.
        views: false,
    };
    let instance = Arc::clone(instance);
    carried(offer, remote, move |offer, arguments| {
        Arc::new(Errand {
            instance: Arc::clone(&instance),
            offer: Arc::clone(offer),
            arguments,
        })
    })
}

/// One call of one tool.
struct Errand {
    instance: Arc<Instance>,
    offer: Arc<Offer>,
    arguments: Fields,
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errand")
            .field("tool", &self.offer.name)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

impl RemoteJob for Errand {
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

impl Errand {
    async fn run(&self) -> Result<RemoteReply, CallError> {
        let Self {
            instance,
            offer,
            arguments,
        } = self;
        let params = json!({"name": &*offer.tool, "arguments": arguments});
        let answer = instance
            .ask("tools/call", params, instance.limits.call)
            .await;
        let answer = answer.map_err(|why| {
            let begun = matches!(why, Unanswered::Closed | Unanswered::Late) && self.mutates();
            let error = instance.failed(why);
            if begun {
                error.with("begun", true)
            } else {
                error
            }
        })?;
        let result = serde_json::from_value::<CallToolResult>(answer.into());
        let result = result.map_err(|_| {
            let message = format!("what the app `{}` answers is no result", instance.name);
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
