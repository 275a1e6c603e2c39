//! What a guest lists in, tools for the agent beside it out; a call of one is a question to the guest.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rmcp::model::{CallToolResult, Tool};
use serde_json::{Value, json};

use super::instance::Instance;
use super::talk::Unanswered;
use super::wire::Fields;
use crate::capability::{CallPermit, Halt};
use crate::effect::PreviewToken;
use crate::error::{CallError, Code};
use crate::scope::Verb;
use crate::tool::{Carried, Carrying, Entry, Remote, RemoteJob};
use crate::upstream::{
    Fingerprint, Offer, Provider, ServerTool, Unoffered, carried, failure, offered_by, reply,
};

/// The tools of one part of a list; one without a schema takes an object.
pub(super) fn read(page: &Fields) -> impl Iterator<Item = Tool> {
    let listed = page.get("tools").and_then(Value::as_array);
    let listed = listed.into_iter().flatten().cloned();
    listed.filter_map(|mut tool| {
        let fields = tool.as_object_mut()?;
        fields
            .entry("inputSchema")
            .or_insert_with(|| json!({"type": "object"}));
        serde_json::from_value(tool).ok()
    })
}

/// Every tool that was listed, and those that may be offered: what comes after the most that an app may have is not.
pub(super) fn sorted(instance: &Instance, listed: &[Tool]) -> (Vec<ServerTool>, Vec<Arc<Offer>>) {
    let (first, rest) = listed.split_at(listed.len().min(instance.limits.tools));
    let verbs = BTreeMap::new();
    let provider = Provider {
        name: &instance.name,
        label: &instance.label,
        verbs: &verbs,
    };
    let too_many = |tool: &Tool| (Fingerprint::of(tool), Err(Unoffered::TooMany));
    let sorted = offered_by(provider, first).into_iter();
    let sorted = sorted.chain(rest.iter().map(too_many));
    let (mut seen, mut offers) = (Vec::new(), Vec::new());
    for (tool, (fingerprint, offer)) in listed.iter().zip(sorted) {
        let offer = offer.map(|offer| Arc::new(attributed(instance, offer)));
        seen.push(ServerTool {
            tool: tool.name.to_string(),
            description: tool.description.as_deref().unwrap_or_default().to_owned(),
            fingerprint,
            offered: offer
                .as_ref()
                .map(|offer| (offer.name.to_string(), offer.verb))
                .map_err(|why| *why),
        });
        offers.extend(offer);
    }
    (seen, offers)
}

/// Whose tool it is stands before what it says of itself.
fn attributed(instance: &Instance, mut offer: Offer) -> Offer {
    let (whose, said) = (shown(instance), &offer.spec.description);
    let said = format!("A tool of {whose}, in words that nobody checked: {said}");
    offer.spec.description = said.into();
    offer
}

/// The app, for people.
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
        shown: shown(instance).into(),
        tool: Arc::clone(&offer.tool),
        need: offer.need.clone(),
        previews: false,
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
    fn carry(self: Arc<Self>, permit: &CallPermit) -> Carrying {
        let preview = permit.is_preview();
        Box::pin(async move { self.run(preview).await.map_err(Halt::from) })
    }

    fn mutates(&self) -> bool {
        self.offer.verb != Verb::Read
    }

    // An app shows nothing beforehand, so there is nothing to keep in mind.
    fn remember(&self, _: PreviewToken, _: &str) {}

    fn shown(&self, _: PreviewToken) -> Option<String> {
        None
    }
}

impl Errand {
    async fn run(&self, preview: bool) -> Result<Carried, CallError> {
        let Self {
            instance,
            offer,
            arguments,
        } = self;
        if preview {
            let message = "the tools of apps have no previews; it would be carried out";
            return Err(CallError::new(Code::InvalidArguments, message));
        }
        if !instance.still_offers(offer) {
            return Err(CallError::unknown_tool(offer.name.as_str()));
        }
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
        let reply = reply(&result, offer, instance.limits.message)?;
        Ok(Carried {
            reply,
            preview: None,
        })
    }
}
