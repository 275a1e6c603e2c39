//! Approved tool definitions of a server.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::classify::{WithheldReason, audience, intent_template, page_uris, supports_preview};
use bailiwick::effect::{ContentHash, ParseContentHashError};
use bailiwick::json::canonical;

/// The number of hexadecimal digits of a fingerprint in scopes. A server controls both definitions that a collision
/// needs, so this is twice the length that would protect against a second preimage.
const MARK_DIGITS: usize = 32;

/// Identifies the definition of a tool: its name, title, description, schemas, hints, intent template, page and
/// visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(ContentHash);

impl Fingerprint {
    pub(crate) fn of(tool: &Tool) -> Self {
        let schema = |schema: &Map<String, Value>| canonical(Value::Object(schema.clone()));
        let definition = json!([
            tool.name,
            tool.title,
            tool.description,
            schema(&tool.input_schema),
            tool.output_schema.as_deref().map(schema),
            tool.annotations,
            supports_preview(tool),
            audience(tool),
            page_uris(tool),
            intent_template(tool),
        ]);
        Self(ContentHash::of(definition.to_string().as_bytes()))
    }

    /// The form used in scopes.
    pub(super) fn mark(self) -> String {
        self.0.to_string().chars().take(MARK_DIGITS).collect()
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

/// The approved fingerprints of a server's tools, by their names for models. Tools with colliding names share an entry,
/// so one cannot replace the other.
///
/// All tools are approved when a server is first connected; their calls are still judged and need permission. Later,
/// changed and added tools need a person's approval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pins {
    fingerprints: BTreeMap<String, Fingerprint>,
    /// Whether the server was connected before.
    known: bool,
}

impl Pins {
    /// Combines the stored fingerprints of a known server with the fingerprints that the host approved.
    pub(super) fn new(
        stored: Option<BTreeMap<String, Fingerprint>>,
        approved: BTreeMap<String, Fingerprint>,
    ) -> Self {
        let known = stored.is_some();
        let mut fingerprints = stored.unwrap_or_default();
        fingerprints.extend(approved);
        Self {
            fingerprints,
            known,
        }
    }

    /// Why a definition is withheld, if it is.
    pub(super) fn check(&self, name: &str, fingerprint: Fingerprint) -> Result<(), WithheldReason> {
        match self.fingerprints.get(name) {
            Some(approved) if *approved == fingerprint => Ok(()),
            Some(_) => Err(WithheldReason::Changed),
            None if self.known => Err(WithheldReason::New),
            None => Ok(()),
        }
    }

    /// Approves the first list of a server, and returns whether it adds approvals. An empty list does not make the
    /// server known.
    pub(super) fn approve_first(
        &mut self,
        listed: impl Iterator<Item = (String, Fingerprint)>,
    ) -> bool {
        let before = self.fingerprints.len();
        if !self.known {
            self.fingerprints.extend(listed);
        }
        let added = self.fingerprints.len() > before;
        self.known |= added;
        added
    }

    pub(super) fn approve(&mut self, name: &str, fingerprint: Fingerprint) {
        self.fingerprints.insert(name.to_owned(), fingerprint);
    }

    pub(super) fn fingerprints(&self) -> &BTreeMap<String, Fingerprint> {
        &self.fingerprints
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
    fn changed_and_added_tools_need_approval() {
        let mut pins = Pins::default();
        assert_eq!(pins.check("t", form("a")), Ok(()));
        assert!(!pins.approve_first([].into_iter()));
        assert_eq!(pins.check("t", form("a")), Ok(()));
        assert!(pins.approve_first([("t".to_owned(), form("a"))].into_iter()));
        assert_eq!(pins.check("t", form("a")), Ok(()));
        assert_eq!(pins.check("t", form("b")), Err(WithheldReason::Changed));
        pins.approve("t", form("b"));
        assert_eq!(pins.check("t", form("b")), Ok(()));
        assert_eq!(pins.check("t", form("a")), Err(WithheldReason::Changed));
        assert_eq!(pins.check("u", form("a")), Err(WithheldReason::New));
        pins.approve("u", form("a"));
        assert_eq!(pins.check("u", form("a")), Ok(()));
    }

    #[test]
    fn stored_pins_make_a_server_known() {
        let some = || BTreeMap::from([("t".to_owned(), form("a"))]);
        let approved = Pins::new(None, some());
        assert_eq!(approved.check("t", form("b")), Err(WithheldReason::Changed));
        assert_eq!(approved.check("u", form("b")), Ok(()));
        let stored = Pins::new(Some(some()), [("t".to_owned(), form("b"))].into());
        assert_eq!(stored.check("t", form("b")), Ok(()));
        assert_eq!(stored.check("u", form("b")), Err(WithheldReason::New));
    }

    #[test]
    fn fingerprint_covers_every_visible_part() {
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
    fn key_order_does_not_change_the_fingerprint() {
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
