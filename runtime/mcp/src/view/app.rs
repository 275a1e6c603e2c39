//! What a page reports about itself, and updates of its tool call.

use serde_json::Value;

use super::wire::{self, Fields};

/// The longest name or version, in characters.
const MAX_CHARS: usize = 64;

/// The identity and capabilities of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppInfo {
    pub(super) name: String,
    pub(super) version: String,
    /// Whether the page offers tools.
    pub(super) tools: bool,
    /// Whether the page notifies about changes of its tools.
    pub(super) list_changed: bool,
}

impl AppInfo {
    /// Reads the parameters of `ui/initialize`; missing capabilities are false.
    pub(super) fn read(params: &Fields) -> Self {
        let info = params.get("appInfo");
        let text = |key: &str| {
            let text = info.and_then(|info| info.get(key)?.as_str());
            let text: String = text.unwrap_or_default().chars().take(MAX_CHARS).collect();
            bailiwick::text::escape(&text).into_owned()
        };
        let capabilities = params.get("appCapabilities");
        let tools = capabilities.and_then(|all| all.get("tools"));
        let tools = tools.filter(|tools| tools.is_object());
        Self {
            name: text("name"),
            version: text("version"),
            tools: tools.is_some(),
            list_changed: tools.is_some_and(|tools| tools.get("listChanged") == Some(&true.into())),
        }
    }
}

/// An update of the call that the page was opened for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToolUpdate {
    Partial(Value),
    Input(Value),
    Result(Value),
    Cancelled(Value),
}

/// Pending updates for the page, in order: the result is sent after the arguments.
#[derive(Debug, Default)]
pub(super) struct ToolUpdates {
    partial: Option<Value>,
    input: Option<Value>,
    end: Option<Value>,
    input_sent: bool,
}

impl ToolUpdates {
    pub(super) fn add(&mut self, update: ToolUpdate) {
        let notification = |method, params| Some(wire::notification(method, params));
        match update {
            ToolUpdate::Partial(params) => {
                self.partial = notification("ui/notifications/tool-input-partial", params);
            }
            ToolUpdate::Input(params) => {
                self.partial = None;
                self.input = notification("ui/notifications/tool-input", params);
            }
            ToolUpdate::Result(params) => {
                self.end = notification("ui/notifications/tool-result", params)
            }
            ToolUpdate::Cancelled(params) => {
                self.end = notification("ui/notifications/tool-cancelled", params)
            }
        }
    }

    /// The updates that can be sent now.
    pub(super) fn due(&mut self) -> Vec<Value> {
        self.input_sent |= self.input.is_some();
        let end = if self.input_sent {
            self.end.take()
        } else {
            None
        };
        let first = self.partial.take().into_iter().chain(self.input.take());
        first.chain(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn app_info_has_only_declared_capabilities() {
        let read = |params: Value| AppInfo::read(params.as_object().unwrap());
        let with = |tools: Value| {
            let app = read(json!({"appCapabilities": {"tools": tools}}));
            (app.tools, app.list_changed)
        };
        assert_eq!(with(json!({})), (true, false));
        assert_eq!(with(json!({"listChanged": true})), (true, true));
        assert_eq!(with(json!({"listChanged": "true"})), (true, false));
        assert_eq!(with(json!(true)), (false, false));
        assert_eq!(read(json!({})), AppInfo::default());
        let odd = read(
            json!({"appInfo": {"name": format!("a\u{202e}{}", "b".repeat(90)), "version": 1}}),
        );
        assert!(odd.name.starts_with("a\\u{202e}b") && odd.name.len() < 90);
        assert_eq!(odd.version, "");
    }

    #[test]
    fn result_is_sent_after_the_arguments() {
        let mut updates = ToolUpdates::default();
        updates.add(ToolUpdate::Result(json!({})));
        assert_eq!(updates.due(), [] as [Value; 0]);
        updates.add(ToolUpdate::Partial(json!({"arguments": {}})));
        updates.add(ToolUpdate::Input(json!({"arguments": {"a": 1}})));
        let sent = updates.due();
        let methods: Vec<_> = sent
            .iter()
            .filter_map(|sent| sent["method"].as_str())
            .collect();
        assert_eq!(
            methods,
            [
                "ui/notifications/tool-input",
                "ui/notifications/tool-result"
            ]
        );
        updates.add(ToolUpdate::Cancelled(json!({})));
        assert_eq!(updates.due().len(), 1);
        assert_eq!(updates.due().len(), 0);
    }
}
