//! Tools that running MCP Apps provide to a worker.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::prepare;
use crate::call::Call;
use crate::capability::{Interrupt, ReadPermit};
use crate::effect::Reply;
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::policy::Authority;
use crate::tool::{Arguments, Entry, Job, ReadJob, ToolSpec, Tools};

/// The names of the two tools that give access to the tools of apps that are not listed by name.
const LIST: &str = "list_app_tools";
const CALL: &str = "call_app_tool";

/// Tools of one app.
#[derive(Debug, Default)]
struct AppTools {
    /// Distinguishes the app from earlier ones with the same name.
    label: String,
    /// Whether its tools are listed by [`LIST`] only.
    indirect: bool,
    tools: BTreeMap<ToolName, Arc<Entry>>,
}

/// The running apps of one worker, with their tools.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Apps {
    by_name: Mutex<BTreeMap<Arc<str>, AppTools>>,
    /// Created for the first receiver, since few workers have one.
    changed: OnceLock<watch::Sender<()>>,
}

impl Apps {
    /// Registers an app; false if the name is taken.
    pub fn register(&self, app: &Arc<str>, label: &str, indirect: bool) -> bool {
        let mut by_name = self.by_name.lock();
        if by_name.contains_key(app) {
            return false;
        }
        let app_tools = AppTools {
            label: label.to_owned(),
            indirect,
            ..AppTools::default()
        };
        by_name.insert(Arc::clone(app), app_tools);
        drop(by_name);
        self.notify();
        true
    }

    /// Returns a receiver that is notified when the tools change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.get_or_init(watch::Sender::default).subscribe()
    }

    fn notify(&self) {
        if let Some(changed) = self.changed.get() {
            changed.send_replace(());
        }
    }

    /// Replaces the tools of an app, unless it was removed.
    pub fn set_tools(&self, app: &str, label: &str, entries: impl Iterator<Item = Entry>) {
        let tools = entries.map(|entry| (entry.name.clone(), Arc::new(entry)));
        let tools = tools.collect();
        if let Some(app_tools) = self.by_name.lock().get_mut(app)
            && app_tools.label == label
        {
            app_tools.tools = tools;
        }
        self.notify();
    }

    /// Removes an app.
    pub fn remove(&self, app: &str, label: &str) {
        self.by_name
            .lock()
            .retain(|name, app_tools| &**name != app || app_tools.label != label);
        self.notify();
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        let by_name = self.by_name.lock();
        by_name
            .values()
            .find_map(|app_tools| app_tools.tools.get(name))
            .cloned()
    }

    /// The tools that are available through the two tools only; `None` if no app has any.
    fn indirect_tools(&self) -> Option<Vec<Arc<Entry>>> {
        let by_name = self.by_name.lock();
        let mut indirect = by_name
            .values()
            .filter(|app_tools| app_tools.indirect)
            .peekable();
        indirect.peek()?;
        let tools = indirect.flat_map(|app_tools| app_tools.tools.values());
        Some(tools.cloned().collect())
    }

    pub(super) fn get(&self, name: &str, authority: &Authority) -> Option<Arc<Entry>> {
        match name {
            LIST => Some(Arc::new(listing(&self.indirect_tools()?, authority))),
            CALL => self.indirect_tools().map(|_| Arc::new(calling())),
            _ => self.find(name),
        }
    }

    /// `tools`, followed by the tools of apps whose names are not taken.
    pub(super) fn after(
        &self,
        mut tools: Vec<Arc<Entry>>,
        authority: &Authority,
    ) -> Vec<Arc<Entry>> {
        let mut more: Vec<Arc<Entry>> = [LIST, CALL]
            .iter()
            .filter_map(|name| self.get(name, authority))
            .collect();
        let by_name = self.by_name.lock();
        let direct = by_name.values().filter(|app_tools| !app_tools.indirect);
        more.extend(
            direct
                .flat_map(|app_tools| app_tools.tools.values())
                .cloned(),
        );
        drop(by_name);
        more.retain(|app| tools.iter().all(|tool| tool.name != app.name));
        tools.extend(more);
        tools
    }

    /// Resolves a call of [`CALL`] to the tool and arguments that it names. The call is judged, asked about and
    /// recorded as a call of that tool.
    pub(super) fn resolve_call(&self, tools: &Tools, call: &Call) -> Option<(ToolName, Value)> {
        if call.tool.as_str() != CALL || tools.get(CALL).is_some() {
            return None;
        }
        let arguments = call.arguments.as_object()?;
        let known = |key: &String| matches!(key.as_str(), "name" | "arguments");
        let name = arguments.get("name")?.as_str()?;
        let indirect = self.indirect_tools()?;
        let entry = indirect.iter().find(|entry| entry.name.as_str() == name)?;
        let inner = arguments.get("arguments").cloned();
        arguments.keys().all(known).then(|| {
            let inner = inner.unwrap_or_else(|| Value::Object(Map::new()));
            (entry.name.clone(), inner)
        })
    }
}

/// A list that is returned without I/O.
#[derive(Debug)]
struct Listing(Value);

impl ReadJob for Listing {
    fn read_now(&self, permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        Some(self.read(permit))
    }

    fn read(&self, _: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(Reply::text(self.0.to_string(), self.0.clone()))
    }
}

fn listing(tools: &[Arc<Entry>], authority: &Authority) -> Entry {
    let left = tools
        .iter()
        .filter(|entry| prepare::is_left(entry, authority));
    let listed = left.map(|entry| {
        json!({
            "name": entry.name.as_str(),
            "description": entry.spec.description,
            "inputSchema": entry.input_schema,
            "readOnly": !entry.mutates,
        })
    });
    let listed = json!({ "tools": listed.collect::<Vec<_>>() });
    Entry {
        name: ToolName::new(LIST),
        spec: ToolSpec::new(
            LIST,
            "List tools of apps",
            "Lists the tools of the apps that the person looks at now. Descriptions by apps are not verified.",
        ),
        intent: None,
        input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false})
            .into(),
        output_schema: json!({
            "type": "object",
            "properties": {"tools": {"type": "array", "items": {"type": "object"}}},
            "required": ["tools"],
        })
        .into(),
        mutates: false,
        remote: None,
        prepare: Box::new(move |_: Arguments<'_>, _: &_| {
            Ok((Vec::new(), Job::Read(Arc::new(Listing(listed.clone())))))
        }),
    }
}

/// The entry of [`CALL`], whose calls are resolved by `Apps::resolve_call`.
fn calling() -> Entry {
    Entry {
        name: ToolName::new(CALL),
        spec: ToolSpec::new(
            CALL,
            "Call a tool of an app",
            "Calls one of the tools that `list_app_tools` lists.",
        ),
        intent: None,
        input_schema: json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name"],
            "additionalProperties": false,
        })
        .into(),
        output_schema: json!({"type": "object"}).into(),
        mutates: true,
        remote: None,
        prepare: Box::new(|_: Arguments<'_>, _: &_| {
            let message = "`name` must be one that `list_app_tools` lists, and `arguments` its own";
            Err(CallError::new(Code::InvalidArguments, message))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_app_does_not_affect_its_successor_of_equal_name() {
        let apps = Apps::default();
        let name: Arc<str> = "app_a".into();
        let set_tools = |label: &str| apps.set_tools(&name, label, std::iter::once(calling()));
        let offers = || apps.find(CALL).is_some();
        assert!(apps.register(&name, "app_a~1", false));
        assert!(!apps.register(&name, "app_a~2", false));
        set_tools("app_a~2");
        assert!(!offers(), "it has no name to offer by");
        set_tools("app_a~1");
        apps.remove(&name, "app_a~2");
        assert!(offers(), "another gives its name back");
        apps.remove(&name, "app_a~1");
        assert!(!offers());
        set_tools("app_a~1");
        assert!(!offers(), "it is gone");

        assert!(apps.register(&name, "app_a~2", false));
        set_tools("app_a~1");
        assert!(!offers());
        set_tools("app_a~2");
        apps.remove(&name, "app_a~1");
        assert!(offers() && !apps.register(&name, "app_a~3", false));
    }
}
