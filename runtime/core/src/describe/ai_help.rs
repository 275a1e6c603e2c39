//! AI help: sections as markdown and as JSON.

use super::{Description, UnknownSection, dashdash, reference, yaml};
use crate::error::Code;
use crate::tool::Failure;
use serde_json::{Map, Value, json};

/// A part of the help under one heading.
pub(super) struct Section {
    pub(super) heading: &'static str,
    body: String,
    /// Its JSON members. A section can be requested by any of its keys.
    json: Map<String, Value>,
}

/// Error codes of any call.
const ANY_CALL: &[Failure] = &[
    Failure {
        code: Code::NotFound,
        when: "the path does not exist, or you may not access it",
        resolution: "List the directory, or correct the path",
    },
    Failure {
        code: Code::PermissionDenied,
        when: "the policy or a person denied the call",
        resolution: "Do not try to bypass this; say what you need",
    },
    Failure {
        code: Code::ScopeRequired,
        when: "a person must allow the call; `_meta.requested_scopes` lists the missing scopes",
        resolution: "Have a person grant exactly these scopes, then send the same call again",
    },
    Failure {
        code: Code::InvalidArguments,
        when: "the arguments do not match the schema, or are otherwise invalid",
        resolution: "Correct what the message names",
    },
    Failure {
        code: Code::StalePreview,
        when: "the files changed since the preview that the call carries out",
        resolution: "Preview again",
    },
    Failure {
        code: Code::RateLimited,
        when: "calls come too fast",
        resolution: "Wait as many seconds as `retryAfter` says",
    },
    Failure {
        code: Code::Busy,
        when: "too much is in flight",
        resolution: "Wait for other calls, or as long as `retry_after_ms` says",
    },
    Failure {
        code: Code::Deadline,
        when: "the call did not end in time",
        resolution: "Ask for less at once",
    },
];

/// Errors of the protocol.
const PROTOCOL: &[(i64, &str)] = &[
    (
        -32600,
        "Invalid Request: not a JSON-RPC request, or one that is not allowed at this point",
    ),
    (-32601, "Method Not Found: unknown method"),
    (
        -32602,
        "Invalid Params: the parameters are invalid, the tool is unknown, or a policy is invalid",
    ),
    (
        -32002,
        "Resource Not Found: unknown resource; `-32602` from 2026-07-28 on",
    ),
    (-32603, "Internal Error: an error in the server"),
];

impl Section {
    fn new(heading: &'static str, body: String, json: Value) -> Self {
        let mut members = Map::new();
        members.insert(camel(heading), json);
        Self {
            heading,
            body,
            json: members,
        }
    }

    fn and(mut self, key: &str, json: Value) -> Self {
        self.json.insert(key.to_owned(), json);
        self
    }

    pub(super) fn markdown(&self) -> String {
        format!("## {}\n\n{}\n\n", self.heading, self.body.trim_end())
    }

    fn is_called(&self, name: &str) -> bool {
        name == kebab(self.heading) || self.json.contains_key(name)
    }
}

/// `When to Use` becomes `whenToUse`.
fn camel(heading: &str) -> String {
    let mut key = String::new();
    for word in heading.split(' ') {
        let word = word.to_ascii_lowercase();
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if !key.is_empty() => {
                key.push(first.to_ascii_uppercase());
                key.push_str(letters.as_str());
            }
            _ => key.push_str(&word),
        }
    }
    key
}

/// `When to Use` becomes `when-to-use`.
fn kebab(heading: &str) -> String {
    heading.to_ascii_lowercase().replace(' ', "-")
}

pub(super) fn markdown(
    described: &Description,
    section: Option<&str>,
) -> Result<String, UnknownSection> {
    let sections = wanted(described, section)?;
    let sections: String = sections.iter().map(Section::markdown).collect();
    Ok(match section {
        Some(_) => sections,
        None => {
            let front = yaml::front_matter(&dashdash::metadata(described));
            format!("{front}{}{sections}", opening(described))
        }
    })
}

pub(super) fn json(
    described: &Description,
    section: Option<&str>,
) -> Result<Value, UnknownSection> {
    let sections = wanted(described, section)?;
    let members: Map<String, Value> = sections
        .into_iter()
        .flat_map(|section| section.json)
        .collect();
    Ok(json!({
        "metadata": dashdash::metadata(described), "sections": members, "contentType": "application/json",
    }))
}

fn wanted(described: &Description, section: Option<&str>) -> Result<Vec<Section>, UnknownSection> {
    let mut sections = sections(described);
    let Some(name) = section else {
        return Ok(sections);
    };
    let known = sections.iter().map(|section| kebab(section.heading));
    let known = known.collect();
    sections.retain(|section| section.is_called(name));
    if sections.is_empty() {
        return Err(UnknownSection { known });
    }
    Ok(sections)
}

/// The title and the sentence beneath it.
pub(super) fn opening(described: &Description) -> String {
    let summary = described.doc.summary;
    format!("\n# {}\n\n> {summary}\n\n", described.title)
}

/// All sections, in the order of the proposal.
pub(super) fn sections(described: &Description) -> Vec<Section> {
    vec![
        when_to_use(described),
        quick_reference(described),
        installation(described),
        authentication(described),
        rate_limits(described),
        error_handling(),
        tool_reference(described),
        alternatives(described),
        best_practices(described),
        troubleshooting(described),
    ]
}

fn bullets(items: &[&str]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

fn when_to_use(described: &Description) -> Section {
    let doc = &described.doc;
    let body = format!(
        "Use this MCP server when the user asks to:\n{}\nDo NOT use this MCP server for:\n{}",
        bullets(doc.when),
        bullets(doc.not_for)
    );
    Section::new("When to Use", body, doc.when.into()).and("whenNotToUse", doc.not_for.into())
}

fn quick_reference(described: &Description) -> Section {
    let mut groups: Vec<&str> = Vec::new();
    for tool in &described.tools {
        if !groups.contains(&tool.spec.group) {
            groups.push(tool.spec.group);
        }
    }
    let mut body = String::new();
    for group in groups {
        let name = if group.is_empty() { "other" } else { group };
        body.push_str(&format!("**Tools for {name}:**\n"));
        let members = described.tools.iter();
        for tool in members.filter(|tool| tool.spec.group == group) {
            let what = tool.spec.description.split_inclusive(". ").next();
            let what = what.unwrap_or_default().trim_end();
            body.push_str(&format!("- `{}`: {what}\n", tool.spec.name));
        }
        body.push('\n');
    }
    let entry = |tool: &crate::tool::ToolInfo| {
        json!({
            "name": tool.spec.name, "title": tool.spec.title, "category": tool.spec.group,
            "operationType": dashdash::operation(tool),
        })
    };
    Section::new(
        "Quick Reference",
        body,
        described.tools.iter().map(entry).collect(),
    )
}

fn installation(described: &Description) -> Section {
    let doc = &described.doc;
    let mut body = String::new();
    let mut recommended = " (RECOMMENDED)";
    for install in doc.install {
        body.push_str(&format!(
            "### {}{recommended}\n\n```bash\n{}\n```\n\n",
            install.by, install.command
        ));
        recommended = "";
    }
    let mut client = Value::Null;
    if let [command, arguments @ ..] = doc.launch {
        let server = json!({"command": command, "args": arguments});
        client = json!({"mcpServers": {dashdash::name(described): server}});
        let text = format!("{client:#}");
        body.push_str(&format!(
            "### Claude Desktop Configuration\n\n```json\n{text}\n```\n"
        ));
    }
    let commands = doc
        .install
        .iter()
        .map(|install| (install.by.to_owned(), install.command.into()));
    let commands: Map<String, Value> = commands.collect();
    let json = json!({"commands": commands, "clientConfiguration": client});
    Section::new("Installation", body, json)
}

fn authentication(described: &Description) -> Section {
    let scopes = dashdash::scopes(&described.tools);
    let list: String = scopes
        .iter()
        .map(|scope| {
            let tools = described.tools.iter();
            let users = tools.filter(|tool| tool.spec.scopes.iter().any(|one| one == scope));
            let users: Vec<_> = users.map(|tool| &*tool.spec.name).collect();
            format!("- `{scope}`: {}\n", reference::codes(&users))
        })
        .collect();
    let text = described.doc.authentication;
    let body = format!("{text}\n\n### Required Scopes\n\n{list}");
    Section::new("Authentication", body, text.into())
}

fn rate_limits(described: &Description) -> Section {
    let rate = described.rate.as_deref().unwrap_or("none");
    let error = json!({
        "isError": true,
        "structuredContent": {"code": "RATE_LIMITED", "message": "...", "retry_after_ms": 60, "retryAfter": 1},
    });
    let body = format!(
        "- **Default:** {rate}, tool calls of one connection\n\n\
         A call that exceeds this limit gets the result below; `retryAfter` is in whole seconds.\n\n\
         ```json\n{error:#}\n```\n"
    );
    let json = json!({"default": described.rate, "code": "RATE_LIMITED", "retryAfter": "seconds"});
    Section::new("Rate Limits", body, json)
}

fn error_handling() -> Section {
    let mut body = String::from(
        "An invalid request gets a JSON-RPC error. A call that fails gets a result with `isError` and \
         `structuredContent.code`: branch on the code, never on the message.\n\n### Common Errors\n\n",
    );
    for (code, what) in PROTOCOL {
        body.push_str(&format!("- `{code}` {what}\n"));
    }
    body.push('\n');
    body.extend(ANY_CALL.iter().map(reference::failure_line));
    let protocol = PROTOCOL
        .iter()
        .map(|(code, what)| json!({"code": code, "description": what}));
    let codes = ANY_CALL.iter().map(dashdash::failure);
    let all = protocol.chain(codes).collect();
    Section::new("Error Handling", body, all)
}

fn tool_reference(described: &Description) -> Section {
    let tools = || described.tools.iter();
    let body = tools()
        .map(|tool| reference::markdown(described, tool))
        .collect();
    let json = tools()
        .map(|tool| reference::json(described, tool))
        .collect();
    Section::new("Tool Reference", body, json)
}

fn alternatives(described: &Description) -> Section {
    let alternatives = described.doc.alternatives;
    let address = |address: Option<&str>| address.unwrap_or("none").to_owned();
    let body = format!(
        "- **CLI:** {}\n- **REST API:** {}\n- **Web interface:** {}\n\n{}",
        address(alternatives.cli),
        address(alternatives.api),
        address(alternatives.web),
        bullets(alternatives.notes)
    );
    let mut json = dashdash::alternatives(described);
    if let Value::Object(members) = &mut json {
        members.insert("notes".into(), alternatives.notes.into());
    }
    Section::new("Alternative Access Methods", body, json)
}

fn best_practices(described: &Description) -> Section {
    let practices = described.doc.best_practices;
    Section::new("Best Practices", bullets(practices), practices.into())
}

fn troubleshooting(described: &Description) -> Section {
    let problems = described.doc.troubleshooting;
    let text = problems.iter().map(|problem| {
        format!(
            "### {}\n\n**Cause:** {}\n\n**Solution:** {}\n\n",
            problem.sign, problem.cause, problem.solution
        )
    });
    Section::new("Troubleshooting", text.collect(), json!(problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heading_becomes_kebab_and_camel_case() {
        assert_eq!(camel("When to Use"), "whenToUse");
        assert_eq!(kebab("When to Use"), "when-to-use");
        assert_eq!(camel("Installation"), "installation");
    }
}
