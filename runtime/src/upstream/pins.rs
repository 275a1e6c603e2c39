//! Each form of a tool that a server lists in, whether it is the one that counts as approved out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::classify::{offers_preview, visible_to};
use crate::effect::{ContentHash, NotAHash};
use crate::pipeline::canonical;

/// How many hexadecimal digits of a fingerprint stand in scopes: a server chooses both forms of its tool, so it takes
/// twice as many as would do against a stranger.
const MARK: usize = 32;

/// Stands for one form of a tool: its name, title, description, schemas, hints, and whom it is for. Another form has another.
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
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        text.parse().map(Self)
    }
}

/// The forms that count as approved, by the names that models call them: two tools of a server that come to one name share
/// what was approved, so the one cannot stand in for the other. What was not seen before counts as soon as it is listed:
/// every call of it is still judged and asked about.
#[derive(Debug, Default)]
pub(super) struct Pins(BTreeMap<String, Fingerprint>);

/// What a listed form of a tool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The form that counts.
    Approved,
    /// Another than the one that counts.
    Changed,
    /// There is no room to remember one more.
    TooMany,
}

impl Pins {
    pub(super) fn new(approved: BTreeMap<String, Fingerprint>) -> Self {
        Self(approved)
    }

    pub(super) fn see(&mut self, name: &str, form: Fingerprint, most: usize) -> Seen {
        match self.0.get(name) {
            Some(approved) if *approved == form => Seen::Approved,
            Some(_) => Seen::Changed,
            None if self.0.len() >= most => Seen::TooMany,
            None => {
                self.0.insert(name.to_owned(), form);
                Seen::Approved
            }
        }
    }

    pub(super) fn approve(&mut self, name: &str, form: Fingerprint) {
        self.0.insert(name.to_owned(), form);
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
    fn a_tool_that_changed_is_withheld_until_that_very_form_is_approved() {
        let mut pins = Pins::default();
        assert_eq!(pins.see("t", form("a"), 2), Seen::Approved);
        assert_eq!(pins.see("t", form("a"), 2), Seen::Approved);
        assert_eq!(pins.see("t", form("b"), 2), Seen::Changed);
        assert_eq!(pins.see("t", form("b"), 2), Seen::Changed);
        pins.approve("t", form("b"));
        assert_eq!(pins.see("t", form("b"), 2), Seen::Approved);
        assert_eq!(pins.see("t", form("a"), 2), Seen::Changed);
        assert_eq!(pins.see("u", form("a"), 2), Seen::Approved);
        assert_eq!(pins.see("v", form("a"), 2), Seen::TooMany);
    }

    #[test]
    fn every_part_that_a_model_or_a_person_is_shown_counts() {
        use rmcp::model::ToolAnnotations;
        let plain = tool("a");
        let mut forms = vec![plain.clone(); 7];
        forms[1].description = None;
        forms[2].title = Some("T".into());
        forms[3].input_schema =
            std::sync::Arc::new(Map::from_iter([("type".into(), "object".into())]));
        forms[4].output_schema = Some(std::sync::Arc::default());
        forms[5].annotations = Some(ToolAnnotations::new().read_only(true));
        forms[6].meta = serde_json::from_value(json!({"ui": {"visibility": ["app"]}})).unwrap();
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
