//! Classifies the tools of a server: their names, verbs, scopes, and why some are withheld.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::{MetaObject, Tool};
use serde_json::{Value, json};

use super::ServerTool;
use super::catalog::{PAGE_SCHEME, address, is_usable};
use super::pins::Fingerprint;
use super::schema::{SchemaBudget, SchemaValidator};
use super::schema_cost::{SchemaFault, check_size};
use bailiwick::intent::IntentTemplate;
use bailiwick::scope::{Scope, Verb};
use bailiwick::tool::{ToolName, ToolSpec};

/// The longest tool name that model APIs accept, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest name of a tool at its server, in bytes.
const MAX_TOOL_NAME_BYTES: usize = 128;
/// The longest description, in bytes; a longer one is truncated.
const MAX_DESCRIPTION_BYTES: usize = 4096;

/// A tool that can be offered.
#[derive(Debug)]
pub(crate) struct OfferedTool {
    /// The name for models.
    pub(crate) name: ToolName,
    /// The name at the server.
    pub(crate) tool: Arc<str>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) verb: Verb,
    /// The scope that every call needs.
    pub(crate) need: Scope,
    /// The server's template for the sentence that people read before a call.
    pub(crate) intent: Option<IntentTemplate>,
    pub(crate) spec: ToolSpec,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Value,
    /// The schema that validates the structured output.
    pub(super) output: Option<SchemaValidator>,
    /// Whether the server supports previews of the tool.
    pub(crate) preview: bool,
    /// Whether views may call the tool.
    pub(crate) views: bool,
}

impl OfferedTool {
    /// The server or app that lists the tool.
    pub(crate) fn provider(&self) -> &str {
        let name = self.name.as_str();
        name.split_once("__").map_or(name, |(provider, _)| provider)
    }

    /// Whether `other` is the same definition of the same tool.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.tool == other.tool && self.fingerprint == other.fingerprint
    }
}

/// A source of tools: a server or an app.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToolProvider<'a> {
    /// The prefix of the tool names.
    pub(crate) name: &'a str,
    /// The name in scopes.
    pub(crate) label: &'a str,
    /// The configured verbs of tools.
    pub(crate) verbs: &'a BTreeMap<String, Verb>,
    /// The prefix of tool descriptions.
    pub(crate) description_prefix: &'a str,
}

/// Why a tool is withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithheldReason {
    /// The name contains invalid characters, or is too long for models.
    #[error("its name is invalid or too long: `SERVER__TOOL` must fit in 64 bytes")]
    Name,
    /// Another tool of the server has the same name after normalization.
    #[error("another tool has the same name after normalization")]
    Collision,
    /// A schema of the tool cannot be used.
    #[error("one of its schemas cannot be used: {0}")]
    Schema(SchemaFault),
    /// The tool differs from the approved definition.
    #[error("it changed since it was approved; review it and approve it again")]
    Changed,
    /// The tool was added after the server was first connected.
    #[error("the server added it since it was first connected; review it and approve it")]
    New,
    /// The server lists too many tools.
    #[error("the server lists too many tools")]
    TooMany,
}

/// The verb of a tool. A configured verb takes precedence. Otherwise, a tool reads if it is annotated as read-only and
/// not as destructive, and writes if not. The open-world hint does not change the verb, and no hint leads
/// to the verb `execute`.
fn verb_of(tool: &Tool, provider: ToolProvider<'_>) -> Verb {
    if let Some(verb) = provider.verbs.get(&*tool.name) {
        return *verb;
    }
    let hints = tool.annotations.as_ref();
    let reads = hints.and_then(|hints| hints.read_only_hint) == Some(true);
    let destroys = hints.and_then(|hints| hints.destructive_hint) == Some(true);
    if reads && !destroys {
        Verb::Read
    } else {
        Verb::Write
    }
}

/// Whether the server supports previews of the tool.
pub(super) fn supports_preview(tool: &Tool) -> bool {
    tool.meta
        .as_ref()
        .is_some_and(|meta| has_flag(meta, "previews") || has_flag(meta, "preview"))
}

/// The URIs of the tool's page in the current and the first version of MCP Apps.
pub(super) fn page_uris(tool: &Tool) -> [Option<&Value>; 2] {
    let Some(meta) = &tool.meta else {
        return [None; 2];
    };
    let now = meta.0.get("ui").and_then(|ui| ui.get("resourceUri"));
    [now, meta.0.get("ui/resourceUri")]
}

/// The address of the tool's page for clients of the gateway; empty if there is none.
fn page_address(tool: &Tool, server: &str) -> String {
    let pages = page_uris(tool).into_iter().flatten();
    let mut uris = pages.filter_map(Value::as_str);
    let uri = uris.find(|uri| uri.starts_with(PAGE_SCHEME) && is_usable(uri));
    uri.map_or_else(String::new, |uri| address(server, uri))
}

/// The server's intent template.
pub(super) fn intent_template(tool: &Tool) -> Option<&str> {
    meta_value(tool.meta.as_ref()?, "intentTemplate")?.as_str()
}

/// Whether one of our metadata flags is set, with or without our prefix.
pub(super) fn has_flag(meta: &MetaObject, key: &str) -> bool {
    meta_value(meta, key) == Some(&Value::Bool(true))
}

pub(super) fn meta_value<'m>(meta: &'m MetaObject, key: &str) -> Option<&'m Value> {
    meta.0
        .get(key)
        .or_else(|| meta.0.get(&format!("dev.bailiwick/{key}")))
}

/// A classified tool. It is kept until the server changes its list.
#[derive(Debug)]
pub(crate) struct ListedTool {
    /// The name at the server.
    pub(crate) tool: String,
    /// The description, as text.
    pub(crate) description: String,
    pub(crate) fingerprint: Fingerprint,
    /// The name for models.
    pub(crate) name: String,
    /// The tool, or why it cannot be offered.
    pub(super) usable: Result<Arc<OfferedTool>, WithheldReason>,
    /// Why a usable tool needs approval.
    pub(super) unapproved: Option<WithheldReason>,
}

impl ListedTool {
    /// The offered tool, or why it is withheld.
    pub(crate) fn offer(&self) -> Result<&Arc<OfferedTool>, WithheldReason> {
        let usable = self.usable.as_ref().map_err(|why| *why)?;
        self.unapproved.map_or(Ok(usable), Err)
    }

    /// Converts the tool for the host's user interface.
    pub(crate) fn to_server_tool(&self) -> ServerTool {
        let offer = self.offer();
        ServerTool {
            tool: bailiwick::text::escape(&self.tool).into_owned(),
            description: self.description.clone(),
            fingerprint: self.fingerprint,
            offered: offer.map(|offer| (offer.name.to_string(), offer.verb)),
        }
    }
}

/// Classifies all tools. Tools with colliding names are all withheld, and tools beyond `limit`. This is CPU-bound and
/// must not run on an async thread.
pub(crate) fn classify(
    tools: &[Tool],
    provider: ToolProvider<'_>,
    limit: usize,
) -> Vec<ListedTool> {
    let name_counts = count_names(provider.name, tools.iter().map(|tool| &*tool.name));
    let mut budget = SchemaBudget::default();
    let read = |(index, tool): (usize, &Tool)| {
        let name = model_name(provider.name, &tool.name);
        let fingerprint = Fingerprint::of(tool);
        let usable = if name_counts.get(&name) != Some(&1) {
            Err(WithheldReason::Collision)
        } else if index >= limit {
            Err(WithheldReason::TooMany)
        } else {
            offer(tool, fingerprint, provider, &mut budget)
        };
        let description = tool.description.as_deref().unwrap_or_default();
        ListedTool {
            tool: truncate(&tool.name, MAX_DESCRIPTION_BYTES),
            description: truncate(
                &bailiwick::text::escape_lines(description),
                MAX_DESCRIPTION_BYTES,
            ),
            fingerprint,
            name,
            usable: usable.map(Arc::new),
            unapproved: None,
        }
    };
    tools.iter().enumerate().map(read).collect()
}

/// How many of `names` have each name for models.
pub(super) fn count_names<'n>(
    provider: &str,
    names: impl Iterator<Item = &'n str>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(model_name(provider, name)).or_default() += 1;
    }
    counts
}

/// The name of a tool for models. Server names cannot contain `__` or end in `_`, so the names of two servers never
/// collide.
pub(super) fn model_name(provider: &str, tool: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    let tool: String = tool.chars().map(plain).collect();
    format!("{provider}__{tool}")
}

fn offer(
    tool: &Tool,
    fingerprint: Fingerprint,
    provider: ToolProvider<'_>,
    budget: &mut SchemaBudget,
) -> Result<OfferedTool, WithheldReason> {
    let original = &*tool.name;
    let name = model_name(provider.name, original);
    let visible = |c: char| !c.is_whitespace() && !bailiwick::text::is_deceptive(c);
    let plain = !original.is_empty()
        && original.len() <= MAX_TOOL_NAME_BYTES
        && original.chars().all(visible);
    if !plain || name.len() > MAX_NAME_BYTES {
        return Err(WithheldReason::Name);
    }
    let verb = verb_of(tool, provider);
    let label = provider.label;
    let need = format!(
        "{verb}:mcp:{label}:{}~{}",
        scope_segment(original),
        fingerprint.mark()
    );
    let need = need.parse().map_err(|_| WithheldReason::Name)?;
    let input_schema = Value::Object((*tool.input_schema).clone());
    check_size(&input_schema).map_err(WithheldReason::Schema)?;
    let declared = tool.output_schema.as_deref().cloned().map(Value::Object);
    let output = declared.clone();
    let output = output.map(|schema| SchemaValidator::compile(schema, budget));
    let output = output
        .transpose()
        .map_err(|error| WithheldReason::Schema(error.fault))?;
    let (models, views) = audience(tool);
    let mut spec = tool_spec(tool, &name, verb, provider.description_prefix);
    spec.app_only = !models;
    spec.page = page_address(tool, provider.name).into();
    Ok(OfferedTool {
        spec,
        name: ToolName::new(&name),
        tool: original.into(),
        fingerprint,
        verb,
        need,
        intent: intent_template(tool).and_then(|text| IntentTemplate::parse(text).ok()),
        input_schema,
        output_schema: declared.unwrap_or_else(|| json!({"type": "object"})),
        output,
        preview: supports_preview(tool),
        views,
    })
}

/// Whether the tool is for models and whether it is for views, by MCP Apps' `visibility`; both by default.
pub(super) fn audience(tool: &Tool) -> (bool, bool) {
    let ui = tool.meta.as_ref().and_then(|meta| meta.0.get("ui"));
    let visibility = ui.and_then(|ui| ui.get("visibility")?.as_array());
    let includes =
        |audience: &str| visibility.is_none_or(|list| list.iter().any(|one| one == audience));
    (includes("model"), includes("app"))
}

/// Escapes a name as a scope segment.
pub(super) fn scope_segment(name: &str) -> String {
    name.replace('%', "%25")
        .replace(':', "%3A")
        .replace('*', "%2A")
        .replace('~', "%7E")
}

/// Converts the description of a tool, with deceptive characters escaped.
fn tool_spec(tool: &Tool, name: &str, verb: Verb, description_prefix: &str) -> ToolSpec {
    let hints = tool.annotations.as_ref();
    let title = hints.and_then(|hints| hints.title.as_deref());
    let title = tool.title.as_deref().or(title).unwrap_or(&tool.name);
    let description = tool.description.as_deref().unwrap_or_default();
    let hint = |hint: Option<bool>, unknown: bool| hint.unwrap_or(unknown);
    let mut spec = ToolSpec::new("", "", "");
    spec.name = Cow::Owned(name.to_owned());
    spec.title = Cow::Owned(truncate(&bailiwick::text::escape(title), MAX_NAME_BYTES));
    let description = truncate(
        &bailiwick::text::escape_lines(description),
        MAX_DESCRIPTION_BYTES,
    );
    spec.description = Cow::Owned(description_prefix.to_owned() + &description);
    let destructive = hint(hints.and_then(|hints| hints.destructive_hint), true);
    spec.destructive = verb != Verb::Read && destructive;
    spec.idempotent = hint(hints.and_then(|hints| hints.idempotent_hint), false);
    spec.open_world = hint(hints.and_then(|hints| hints.open_world_hint), true);
    spec.scopes = vec![Cow::Owned(format!("{verb}:mcp"))];
    spec
}

/// Truncates `text` to `limit` bytes and marks the cut.
pub(super) fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut boundaries = (0..=limit).rev();
    let end = boundaries
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    let (kept, _) = text.split_at(end);
    format!("{kept} [cut]")
}

#[cfg(test)]
mod tests {
    use rmcp::model::ToolAnnotations;
    use serde_json::Map;

    use super::super::schema_cost::{MAX_BYTES, MAX_DEPTH};
    use super::super::spec::ServerSpec;
    use super::*;

    fn tool(name: &str) -> Tool {
        Tool::new(name.to_owned(), "Does it.", Map::new())
    }

    fn hinted(read_only: Option<bool>, destructive: Option<bool>, open: Option<bool>) -> Tool {
        let hints = ToolAnnotations::from_raw(None, read_only, destructive, None, open);
        let mut tool = tool("t");
        tool.annotations = Some(hints);
        tool
    }

    fn one_of(tool: Tool, spec: &ServerSpec) -> Result<Arc<OfferedTool>, WithheldReason> {
        classify(&[tool], spec.provider("s~1"), 1)
            .pop()
            .unwrap()
            .usable
    }

    fn one(tool: Tool) -> Result<Arc<OfferedTool>, WithheldReason> {
        one_of(tool, &ServerSpec::stdio("s", "x"))
    }

    #[track_caller]
    fn reads(tool: Tool, expected: Verb) {
        assert_eq!(one(tool).unwrap().verb, expected);
    }

    #[test]
    fn only_read_only_and_not_destructive_tools_read() {
        reads(tool("t"), Verb::Write);
        reads(hinted(None, None, None), Verb::Write);
        reads(hinted(Some(false), Some(false), None), Verb::Write);
        reads(hinted(None, Some(false), Some(false)), Verb::Write);
        reads(hinted(Some(true), Some(true), None), Verb::Write);
        reads(hinted(Some(true), None, None), Verb::Read);
        reads(hinted(Some(true), Some(false), Some(true)), Verb::Read);
    }

    #[test]
    fn configured_verbs_override_hints() {
        for (verb, tool) in [
            (Verb::Write, hinted(Some(true), Some(false), Some(false))),
            (Verb::Execute, hinted(Some(true), None, None)),
            (Verb::Read, hinted(Some(false), Some(true), None)),
        ] {
            let spec = ServerSpec::stdio("s", "x").tool("t", verb);
            let offer = one_of(tool, &spec).unwrap();
            assert_eq!((offer.verb, offer.need.verb()), (verb, verb));
        }
    }

    #[test]
    fn scope_has_the_escaped_name_and_the_fingerprint() {
        let offer = one(tool("a/b.c")).unwrap();
        assert_eq!(offer.name.as_str(), "s__a_b_c");
        let mark = Fingerprint::of(&tool("a/b.c")).mark();
        assert_eq!(
            offer.need.to_string(),
            format!("write:mcp:s~1:a/b.c~{mark}")
        );
        let odd = one(tool("a:b*~%")).unwrap();
        assert!(
            odd.need
                .to_string()
                .starts_with("write:mcp:s~1:a%3Ab%2A%7E%25~")
        );
    }

    #[test]
    fn long_and_deceptive_names_are_rejected() {
        assert!(one(tool(&"x".repeat(61))).is_ok());
        for name in ["", "a b", "a\u{202e}", &"x".repeat(62)] {
            assert_eq!(one(tool(name)).unwrap_err(), WithheldReason::Name, "{name}");
        }
    }

    #[test]
    fn tools_with_colliding_names_are_withheld() {
        let spec = ServerSpec::stdio("s", "x");
        let tools = [tool("a.b"), tool("a/b"), tool("c")];
        let refused: Vec<_> = classify(&tools, spec.provider("s~1"), 3)
            .into_iter()
            .map(|listed| listed.usable.err())
            .collect();
        let twin = Some(WithheldReason::Collision);
        assert_eq!(refused, [twin, twin, None]);
    }

    #[test]
    fn visibility_decides_the_audience() {
        let seen = |visibility: Value| {
            let mut tool = tool("t");
            tool.meta = serde_json::from_value(json!({"ui": {"visibility": visibility}})).unwrap();
            let offer = one(tool).unwrap();
            (!offer.spec.app_only, offer.views)
        };
        assert_eq!(seen(json!(["model", "app"])), (true, true));
        assert_eq!(seen(json!(["model"])), (true, false));
        assert_eq!(seen(json!(["app"])), (false, true));
        assert_eq!(seen(json!([])), (false, false));
        let offer = one(tool("t")).unwrap();
        assert!(!offer.spec.app_only && offer.views);
    }

    #[test]
    fn tools_with_unusable_schemas_are_withheld() {
        let with = |input: Value, output: Value| {
            let mut tool = tool("t");
            tool.input_schema = Arc::new(input.as_object().cloned().unwrap());
            tool.output_schema = output.as_object().cloned().map(Arc::new);
            one(tool).map(|_| ())
        };
        let outputs = |schema: Value| with(json!({}), schema);
        let refused = |why| Err(WithheldReason::Schema(why));
        assert_eq!(outputs(json!({"type": "object"})), Ok(()));
        let remote = json!({"$ref": "https://example.org/schema.json"});
        assert_eq!(outputs(remote), refused(SchemaFault::Remote));
        let large = json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}});
        assert_eq!(outputs(large), refused(SchemaFault::Pattern));
        let large = json!({"description": "x".repeat(MAX_BYTES)});
        assert_eq!(with(large, json!({})), refused(SchemaFault::TooLarge));
    }

    #[test]
    fn schema_size_and_depth_limits_are_exact() {
        let padded = |bytes: usize| {
            let bare = json!({"description": ""}).to_string().len();
            json!({"description": "x".repeat(bytes - bare)})
        };
        let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"not": inner}));
        let too_large = || Err(WithheldReason::Schema(SchemaFault::TooLarge));
        for (schema, fits) in [
            (padded(MAX_BYTES), true),
            (padded(MAX_BYTES + 1), false),
            (nested(MAX_DEPTH), true),
            (nested(MAX_DEPTH + 1), false),
        ] {
            let expected = if fits { Ok(()) } else { too_large() };
            let map = schema.as_object().cloned().unwrap();
            let mut takes = tool("t");
            takes.input_schema = Arc::new(map.clone());
            assert_eq!(one(takes).map(|_| ()), expected);
            let mut outputs = tool("t");
            outputs.output_schema = Some(Arc::new(map));
            assert_eq!(one(outputs).map(|_| ()), expected);
        }
    }

    #[test]
    fn tool_descriptions_stay_text() {
        let mut odd = tool("t");
        odd.description = Some(Cow::Owned(format!(
            "a\u{1b}[2J\u{202e}{}",
            "é".repeat(4096)
        )));
        odd.title = Some("b\nc".into());
        let offer = one(odd).unwrap();
        let spec = &offer.spec;
        assert!(spec.description.starts_with("a\\u{1b}[2J\\u{202e}é"));
        assert!(spec.description.len() < MAX_DESCRIPTION_BYTES + 16);
        assert_eq!(spec.title, "b\\u{a}c");
    }
}
