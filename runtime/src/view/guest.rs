//! What a guest says of itself and what it was told so far in, what to tell it next and how much of it to hear out.

use std::time::Duration;

use serde_json::Value;

use super::wire::{self, Fields};

/// How many notifications of a guest are heard in a second.
const HEARD: u32 = 100;
/// The longest name or version of an app that is shown, in characters.
const LONGEST: usize = 64;

/// Who the guest says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) name: String,
    pub(super) version: String,
    /// It offers tools.
    pub(super) tools: bool,
    /// It says when they change.
    pub(super) list_changed: bool,
}

impl Guest {
    /// What `ui/initialize` says; what it does not say it does not have.
    pub(super) fn read(params: &Fields) -> Self {
        let info = params.get("appInfo");
        let text = |key: &str| {
            let text = info.and_then(|info| info.get(key)?.as_str());
            let text: String = text.unwrap_or_default().chars().take(LONGEST).collect();
            crate::escape(&text).into_owned()
        };
        let offered = params.get("appCapabilities");
        let tools = offered.and_then(|all| all.get("tools"));
        let tools = tools.filter(|tools| tools.is_object());
        Self {
            name: text("name"),
            version: text("version"),
            tools: tools.is_some(),
            list_changed: tools.is_some_and(|tools| tools.get("listChanged") == Some(&true.into())),
        }
    }
}

/// How many notifications came in this second.
#[derive(Debug, Default)]
pub(super) struct Noise {
    second: u64,
    heard: u32,
}

impl Noise {
    pub(super) fn is_heard(&mut self, now: Duration) -> bool {
        if now.as_secs() != self.second {
            (self.second, self.heard) = (now.as_secs(), 0);
        }
        self.heard = self.heard.saturating_add(1);
        self.heard <= HEARD
    }
}

/// Of the call that the guest was opened for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The arguments, as far as the model has written them.
    Partial(Value),
    /// The arguments.
    Input(Value),
    /// What it came to.
    Result(Value),
    /// It came to nothing.
    Cancelled(Value),
}

/// What the guest is still to be told of that call, each once and in order: nothing of its end before its arguments.
#[derive(Debug, Default)]
pub(super) struct Tale {
    partial: Option<Value>,
    input: Option<Value>,
    end: Option<Value>,
    began: bool,
}

impl Tale {
    pub(super) fn take(&mut self, told: Told) {
        let notice = |method, params| Some(wire::notice(method, params));
        match told {
            Told::Partial(params) => {
                self.partial = notice("ui/notifications/tool-input-partial", params);
            }
            Told::Input(params) => {
                self.partial = None;
                self.input = notice("ui/notifications/tool-input", params);
            }
            Told::Result(params) => self.end = notice("ui/notifications/tool-result", params),
            Told::Cancelled(params) => self.end = notice("ui/notifications/tool-cancelled", params),
        }
    }

    /// What may be told now.
    pub(super) fn due(&mut self) -> Vec<Value> {
        self.began |= self.input.is_some();
        let end = if self.began { self.end.take() } else { None };
        let first = self.partial.take().into_iter().chain(self.input.take());
        first.chain(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_has_what_it_says_and_nothing_else() {
        let read = |params: Value| Guest::read(params.as_object().unwrap());
        let with = |tools: Value| {
            let guest = read(json!({"appCapabilities": {"tools": tools}}));
            (guest.tools, guest.list_changed)
        };
        assert_eq!(with(json!({})), (true, false));
        assert_eq!(with(json!({"listChanged": true})), (true, true));
        assert_eq!(with(json!({"listChanged": "true"})), (true, false));
        assert_eq!(with(json!(true)), (false, false));
        assert_eq!(read(json!({})), Guest::default());
        let odd = read(
            json!({"appInfo": {"name": format!("a\u{202e}{}", "b".repeat(90)), "version": 1}}),
        );
        assert!(odd.name.starts_with("a\\u{202e}b") && odd.name.len() < 90);
        assert_eq!(odd.version, "");
    }

    #[test]
    fn a_flood_is_cut_and_the_next_second_is_heard() {
        let mut noise = Noise::default();
        let heard = (0..1000).filter(|_| noise.is_heard(Duration::ZERO)).count();
        assert_eq!(heard, HEARD as usize);
        assert!(noise.is_heard(Duration::from_secs(1)));
    }

    #[test]
    fn no_end_is_told_before_the_arguments() {
        let mut tale = Tale::default();
        tale.take(Told::Result(json!({})));
        assert_eq!(tale.due(), [] as [Value; 0]);
        tale.take(Told::Partial(json!({"arguments": {}})));
        tale.take(Told::Input(json!({"arguments": {"a": 1}})));
        let told = tale.due();
        let methods: Vec<_> = told
            .iter()
            .filter_map(|told| told["method"].as_str())
            .collect();
        assert_eq!(
            methods,
            [
                "ui/notifications/tool-input",
                "ui/notifications/tool-result"
            ]
        );
        tale.take(Told::Cancelled(json!({})));
        assert_eq!(tale.due().len(), 1);
        assert_eq!(tale.due().len(), 0);
    }
}
