//! Reference entry of a tool, as markdown and as JSON.

use super::schema::Member;
use super::{Description, dashdash, schema};
use crate::tool::{Failure, ToolInfo};
use serde_json::{Value, json};

/// Markdown with the heading `### read_file`.
pub(super) fn markdown(described: &Description, tool: &ToolInfo) -> String {
    let spec = &tool.spec;
    let mut text = format!("### {}\n\n{}\n\n", spec.name, spec.description);
    text.push_str("**Parameters:**\n");
    text.push_str(&lines(&schema::members(&tool.input_schema), "- none\n"));
    text.push_str("\n**Returns:**\n");
    text.push_str(&lines(&schema::members(&tool.output_schema), "- nothing\n"));
    text.push_str(&format!("\n**Side Effects:** {}\n", effects(tool)));
    text.push_str(&format!("\n**Scopes:** {}\n", codes(&spec.scopes)));
    if tool.previews {
        text.push_str(
            "\n**Preview:** with `_meta.preview: true` it shows the change and makes none\n",
        );
    }
    let again = if spec.idempotent || !tool.mutates {
        "a repeated call changes nothing more"
    } else {
        "a repeated call may fail or change more"
    };
    text.push_str(&format!("\n**Repeating:** {again}\n"));
    text.push_str(&undo(described, tool));
    let command = match spec.command_line {
        "" => "none".to_owned(),
        line => format!("`{line}`"),
    };
    text.push_str(&format!("\n**CLI Equivalent:** {command}\n"));
    text.push_str("\n**API Equivalent:** none\n");
    for example in spec.examples.iter().filter_map(dashdash::example) {
        text.push_str(&example_text(&example));
    }
    if !spec.failures.is_empty() {
        text.push_str("\n**Errors:**\n");
    }
    text.extend(spec.failures.iter().map(failure_line));
    text.push('\n');
    text
}

/// Like [`markdown`], as JSON.
pub(super) fn json(described: &Description, tool: &ToolInfo) -> Value {
    json!({
        "name": tool.spec.name,
        "title": tool.spec.title,
        "description": tool.spec.description,
        "parameters": schema::members(&tool.input_schema),
        "returns": schema::members(&tool.output_schema),
        "scopes": tool.spec.scopes,
        "preview": tool.previews,
        "dashdash": dashdash::tool(tool, &described.tools),
    })
}

fn lines(members: &[Member], none: &str) -> String {
    if members.is_empty() {
        return none.to_owned();
    }
    members.iter().map(Member::line).collect()
}

fn effects(tool: &ToolInfo) -> String {
    match tool.spec.side_effects {
        [] => "none".to_owned(),
        effects => effects.join("; "),
    }
}

/// The words as code, or `none`.
pub(super) fn codes<S: std::fmt::Display>(words: &[S]) -> String {
    if words.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// The line of an error code.
pub(super) fn failure_line(failure: &Failure) -> String {
    let Failure {
        code,
        when,
        resolution,
    } = failure;
    format!("- `{code}`: {when}. {resolution}.\n")
}

fn undo(described: &Description, tool: &ToolInfo) -> String {
    match dashdash::reverse(tool, &described.tools) {
        Some(reverse) if reverse.unless.is_empty() => {
            format!("\n**Undo:** `{}`: {}\n", reverse.tool, reverse.how)
        }
        Some(reverse) => {
            let (name, how, unless) = (reverse.tool, reverse.how, reverse.unless);
            format!("\n**Undo:** `{name}`: {how}; not if {unless}\n")
        }
        None if tool.mutates => "\n**Undo:** none\n".to_owned(),
        None => String::new(),
    }
}

fn example_text(example: &Value) -> String {
    let member = |key: &str| example.get(key).cloned().unwrap_or_default();
    let description = member("description");
    format!(
        "\n**Example:** {}\n\n```json\n{}\n```\n\nreturns, among other members,\n\n```json\n{}\n```\n",
        description.as_str().unwrap_or_default(),
        member("input"),
        member("output")
    )
}
