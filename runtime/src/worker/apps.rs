//! What the apps beside a worker offer in, one table with the tools it has anyway out: each by its name, or all behind two.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::intake;
use crate::call::Call;
use crate::capability::{Interrupt, ReadPermit};
use crate::effect::Reply;
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::policy::Authority;
use crate::tool::{Arguments, Entry, Job, ReadJob, ToolSpec, Tools};

/// The two names that tools of apps stand behind, where a host wants no more of them.
const LIST: &str = "list_app_tools";
const CALL: &str = "call_app_tool";

/// What one app offers.
#[derive(Debug, Default)]
struct Shelf {
    /// What tells the app from those that had its name before.
    label: String,
    /// Its tools are found behind [`LIST`] alone.
    indirect: bool,
    tools: BTreeMap<ToolName, Arc<Entry>>,
}

/// The apps that people look at beside one worker, each with its tools, for as long as they do.
#[derive(Debug, Default)]
pub(crate) struct Apps {
    shelves: Mutex<BTreeMap<Arc<str>, Shelf>>,
    changed: watch::Sender<()>,
}

impl Apps {
    fn shelves(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Shelf>> {
        // Nothing that can panic runs under the lock.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the name of an app; false if another has it.
    pub(crate) fn claim(&self, app: &Arc<str>, label: &str, indirect: bool) -> bool {
        let mut shelves = self.shelves();
        if shelves.contains_key(app) {
            return false;
        }
        let shelf = Shelf {
            label: label.to_owned(),
            indirect,
            ..Shelf::default()
        };
        shelves.insert(Arc::clone(app), shelf);
        drop(shelves);
        self.changed.send_replace(());
        true
    }

    /// What is told whenever they may be others.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Offers what an app offers now, in place of what it offered; nothing once it is gone.
    pub(crate) fn put(&self, app: &str, label: &str, entries: impl Iterator<Item = Entry>) {
        let tools = entries.map(|entry| (entry.name.clone(), Arc::new(entry)));
        let tools = tools.collect();
        let mut shelves = self.shelves();
        let shelf = shelves.get_mut(app).filter(|shelf| shelf.label == label);
        if let Some(shelf) = shelf {
            shelf.tools = tools;
        }
        drop(shelves);
        self.changed.send_replace(());
    }

    /// Gives the name of an app back.
    pub(crate) fn remove(&self, app: &str, label: &str) {
        let mut shelves = self.shelves();
        if shelves.get(app).is_some_and(|shelf| shelf.label == label) {
            shelves.remove(app);
        }
        drop(shelves);
        self.changed.send_replace(());
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        let shelves = self.shelves();
        shelves
            .values()
            .find_map(|shelf| shelf.tools.get(name))
            .cloned()
    }

    /// The tools behind the two names; none if no app is.
    fn behind(&self) -> Option<Vec<Arc<Entry>>> {
        let shelves = self.shelves();
        let mut indirect = shelves.values().filter(|shelf| shelf.indirect).peekable();
        indirect.peek()?;
        let tools = indirect.flat_map(|shelf| shelf.tools.values());
        Some(tools.cloned().collect())
    }

    pub(super) fn get(&self, name: &str, authority: &Authority) -> Option<Arc<Entry>> {
        match name {
            LIST => Some(Arc::new(listing(&self.behind()?, authority))),
            CALL => self.behind().map(|_| Arc::new(calling())),
            _ => self.find(name),
        }
    }

    /// `tools`, and after them what apps offer by other names than these have.
    pub(super) fn after(
        &self,
        mut tools: Vec<Arc<Entry>>,
        authority: &Authority,
    ) -> Vec<Arc<Entry>> {
        let mut more: Vec<Arc<Entry>> = [LIST, CALL]
            .iter()
            .filter_map(|name| self.get(name, authority))
            .collect();
        let shelves = self.shelves();
        let direct = shelves.values().filter(|shelf| !shelf.indirect);
        more.extend(direct.flat_map(|shelf| shelf.tools.values()).cloned());
        drop(shelves);
        more.retain(|app| tools.iter().all(|tool| tool.name != app.name));
        tools.extend(more);
        tools
    }

    /// The tool that a call is for, and what it is given, where the call names it in its arguments: it is judged, asked about
    /// and recorded as a call of that tool.
    pub(super) fn meant(&self, tools: &Tools, call: &Call) -> Option<(ToolName, Value)> {
        if call.tool.as_str() != CALL || tools.get(CALL).is_some() {
            return None;
        }
        let arguments = call.arguments.as_object()?;
        let known = |key: &String| matches!(key.as_str(), "name" | "arguments");
        let name = arguments.get("name")?.as_str()?;
        let behind = self.behind()?;
        let entry = behind.iter().find(|entry| entry.name.as_str() == name)?;
        let inner = arguments.get("arguments").cloned();
        arguments.keys().all(known).then(|| {
            let inner = inner.unwrap_or_else(|| Value::Object(Map::new()));
            (entry.name.clone(), inner)
        })
    }
}

/// A list that is read at once.
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
        .filter(|entry| intake::is_left(entry, authority));
    let told = left.map(|entry| {
        json!({
            "name": entry.name.as_str(),
            "description": entry.spec.description,
            "inputSchema": entry.input_schema,
            "readOnly": !entry.mutates,
        })
    });
    let told = json!({ "tools": told.collect::<Vec<_>>() });
    Entry {
        name: ToolName::new(LIST),
        spec: ToolSpec::new(
            LIST,
            "List tools of apps",
            "Lists the tools of the apps that the person looks at now. What an app says of its tools is checked by nobody.",
        ),
        intent: None,
        input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        output_schema: json!({
            "type": "object",
            "properties": {"tools": {"type": "array", "items": {"type": "object"}}},
            "required": ["tools"],
        }),
        mutates: false,
        remote: None,
        prepare: Box::new(move |_: Arguments<'_>, _: &_| {
            Ok((Vec::new(), Job::Read(Arc::new(Listing(told.clone())))))
        }),
    }
}

/// What is called in its place is what it names: see [`Apps::meant`].
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
        }),
        output_schema: json!({"type": "object"}),
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
    fn an_app_that_is_gone_says_nothing_of_the_one_that_has_its_name_now() {
        let apps = Apps::default();
        let name: Arc<str> = "app_a".into();
        let put = |label: &str| apps.put(&name, label, std::iter::once(calling()));
        let offers = || apps.find(CALL).is_some();
        assert!(apps.claim(&name, "app_a~1", false));
        assert!(!apps.claim(&name, "app_a~2", false));
        put("app_a~2");
        assert!(!offers(), "it has no name to offer by");
        put("app_a~1");
        apps.remove(&name, "app_a~2");
        assert!(offers(), "another gives its name back");
        apps.remove(&name, "app_a~1");
        assert!(!offers());
        put("app_a~1");
        assert!(!offers(), "it is gone");

        assert!(apps.claim(&name, "app_a~2", false));
        put("app_a~1");
        assert!(!offers());
        put("app_a~2");
        apps.remove(&name, "app_a~1");
        assert!(offers() && !apps.claim(&name, "app_a~3", false));
    }
}
