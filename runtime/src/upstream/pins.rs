//! Remembers which form of each tool of a server is approved.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::classify::{intent_template, offers_preview, page, visible_to};
use crate::effect::{ContentHash, ParseContentHashError};
use crate::pipeline::canonical;

/// How many hexadecimal digits of a fingerprint stand in scopes: a server chooses both forms of its tool, so it takes
/// twice as many as would do against a stranger.
const MARK: usize = 32;

/// Stands for one form of a tool: its name, title, description, schemas, hints, intent template, page, and whom it is for.
/// Another form has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(ContentHash);

impl Fingerprint {
    pub(crate) fn of(tool: &Tool) -> Self {
        let schema = |schema: &Map<String, Value>| canonical(&Value::Object(schema.clone()));
        let whole = json!([
            tool.name,
            tool.title,
            tool.description,
            schema(&tool.input_schema),
            tool.output_schema.as_deref().map(schema),
            tool.annotations,
            offers_preview(tool),
            visible_to(tool),
            page(tool),
            intent_template(tool),
        ]);
        Self(ContentHash::of(whole.to_string().as_bytes()))
    }

    /// As it stands in scopes.
    pub(super) fn mark(self) -> String {
        self.0.to_string().chars().take(MARK).collect()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Fingerprint {
    type Err = ParseContentHashError;

    fn from_str(text: &str) -> Result<Self, ParseContentHashError> {
        text.parse().map(Self)
    }
}

/// The approved forms of a server's tools, by the names that models call them: two tools of a server that come to one name
/// share what was approved, so the one cannot stand in for the other.
///
/// All tools count as approved when a server is connected for the first time: every call of them is still judged and asked
/// about. After that, tools that change and tools that are added need a person's approval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pins {
    forms: BTreeMap<String, Fingerprint>,
    /// The server was connected before.
    known: bool,
}

/// How a listed form of a tool compares with the approved one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is the approved form.
    Approved,
    /// Another form is approved.
    Changed,
    /// The server is known, and the tool is not.
    New,
    /// The server is not known yet.
    First,
}

impl Pins {
    /// What was stored for the server, if it was connected before, and what the host says was approved.
    pub(super) fn new(
        stored: Option<BTreeMap<String, Fingerprint>>,
        approved: BTreeMap<String, Fingerprint>,
    ) -> Self {
        let known = stored.is_some();
        let mut forms = stored.unwrap_or_default();
        forms.extend(approved);
        Self { forms, known }
    }

    pub(super) fn see(&self, name: &str, form: Fingerprint) -> Seen {
        match self.forms.get(name) {
            Some(approved) if *approved == form => Seen::Approved,
            Some(_) => Seen::Changed,
            None if self.known => Seen::New,
            None => Seen::First,
        }
    }

    /// Approves the first list of a server. A server that lists nothing is not known by that.
    pub(super) fn meet(&mut self, first: BTreeMap<String, Fingerprint>) {
        self.known |= !first.is_empty();
        self.forms.extend(first);
    }

    pub(super) fn approve(&mut self, name: &str, form: Fingerprint) {
        self.forms.insert(name.to_owned(), form);
    }

    pub(super) fn forms(&self) -> &BTreeMap<String, Fingerprint> {
        &self.forms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(description: &str) -> Tool {
        Tool::new("t", description.to_owned(), Map::new())
    }

    fn form(description: &str) -> Fingerprint {
        Fingerprint::of(&tool(description))
    }

    #[test]
    fn changed_and_added_tools_need_approval_of_that_very_form() {
        let mut pins = Pins::default();
        assert_eq!(pins.see("t", form("a")), Seen::First);
        pins.meet(BTreeMap::new());
        assert_eq!(pins.see("t", form("a")), Seen::First);
        pins.meet([("t".to_owned(), form("a"))].into());
        assert_eq!(pins.see("t", form("a")), Seen::Approved);
        assert_eq!(pins.see("t", form("b")), Seen::Changed);
        pins.approve("t", form("b"));
        assert_eq!(pins.see("t", form("b")), Seen::Approved);
        assert_eq!(pins.see("t", form("a")), Seen::Changed);
        assert_eq!(pins.see("u", form("a")), Seen::New);
        pins.approve("u", form("a"));
        assert_eq!(pins.see("u", form("a")), Seen::Approved);
    }

    #[test]
    fn stored_pins_make_a_server_known_and_approved_ones_alone_do_not() {
        let some = || BTreeMap::from([("t".to_owned(), form("a"))]);
        let approved = Pins::new(None, some());
        assert_eq!(approved.see("t", form("b")), Seen::Changed);
        assert_eq!(approved.see("u", form("b")), Seen::First);
        let stored = Pins::new(Some(some()), [("t".to_owned(), form("b"))].into());
        assert_eq!(stored.see("t", form("b")), Seen::Approved);
        assert_eq!(stored.see("u", form("b")), Seen::New);
    }

    #[test]
    fn every_part_that_a_model_or_a_person_is_shown_counts() {
        use rmcp::model::ToolAnnotations;
        let plain = tool("a");
        let mut forms = vec![plain.clone(); 10];
        forms[1].description = None;
        forms[2].title = Some("T".into());
        forms[3].input_schema =
            std::sync::Arc::new(Map::from_iter([("type".into(), "object".into())]));
        forms[4].output_schema = Some(std::sync::Arc::default());
        forms[5].annotations = Some(ToolAnnotations::new().read_only(true));
        forms[6].meta = serde_json::from_value(json!({"ui": {"visibility": ["app"]}})).unwrap();
        let meta = |value: Value| serde_json::from_value(value).ok();
        forms[7].meta = meta(json!({"ui": {"resourceUri": "ui://a"}}));
        forms[8].meta = meta(json!({"ui": {"resourceUri": "ui://b"}}));
        forms[9].meta = meta(json!({"intentTemplate": "Edit {path}"}));
        let prints: std::collections::BTreeSet<_> = forms.iter().map(Fingerprint::of).collect();
        assert_eq!(prints.len(), forms.len());
        let text = Fingerprint::of(&plain).to_string();
        assert_eq!(text.parse(), Ok(Fingerprint::of(&plain)));
    }

    #[test]
    fn the_order_of_keys_is_no_change() {
        let keyed = |text: &str| {
            let mut tool = tool("a");
            let schema: Map<String, Value> = serde_json::from_str(text).unwrap();
            tool.input_schema = std::sync::Arc::new(schema);
            Fingerprint::of(&tool)
        };
        assert_eq!(
            keyed(r#"{"a": 1, "b": {"c": 1, "d": 2}}"#),
            keyed(r#"{"b": {"d": 2, "c": 1}, "a": 1}"#)
        );
    }
}
