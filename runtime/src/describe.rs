//! Descriptions of a server for programs and models, generated from its tools and configuration.
//!
//! Everything that can be read from the tools is read from them, so it cannot say anything else than they do. Nothing
//! of it is read from the machine: no path, no variable, no secret can get in.

mod ai_help;
mod dashdash;
mod reference;
mod registry;
mod schema;
mod skill;
mod yaml;

use serde_json::Value;

use crate::policy::Access;
use crate::tool::ToolInfo;

#[cfg(feature = "mcp")]
pub(crate) use dashdash::{listed, resource};

/// What the author of a server knows, and neither its tools nor its configuration say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerDoc {
    /// What the server does, in one sentence.
    pub summary: &'static str,
    /// What it is for: ends of the sentence `Use when the user asks to ...`.
    pub when: &'static [&'static str],
    /// What it is not for, and what is.
    pub not_for: &'static [&'static str],
    /// Ways to install it, one for each installer, the recommended one first.
    pub install: &'static [Install],
    /// The program that a client starts, with arguments as a person would fill them in.
    pub launch: &'static [&'static str],
    /// How a client shows who it is, and what it is trusted with.
    pub authentication: &'static str,
    /// The environment variables that it cannot do without.
    pub environment: &'static [&'static str],
    /// Where else the same can be done.
    pub alternatives: Alternatives,
    /// What makes good use of it.
    pub best_practices: &'static [&'static str],
    /// What goes wrong, and what helps.
    pub troubleshooting: &'static [Troubleshooting],
    /// What it is about, for registries.
    pub categories: &'static [&'static str],
    /// The address of its documentation.
    pub homepage: Option<&'static str>,
    /// The address of its source.
    pub repository: Option<&'static str>,
    /// The version of these words, as semver.
    pub content_version: &'static str,
    /// When they were last changed, as an ISO 8601 date, if that is known.
    pub last_updated: Option<&'static str>,
}

/// A way to install a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// The installer, such as `cargo`.
    pub by: &'static str,
    /// What it is told to install.
    pub package: &'static str,
    /// The whole command.
    pub command: &'static str,
}

/// Where else than over MCP the same can be done: addresses of documentation, where there is such a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Of a command line.
    pub cli: Option<&'static str>,
    /// Of a web API.
    pub api: Option<&'static str>,
    /// Of a web page.
    pub web: Option<&'static str>,
    /// What is to be said of them, one sentence each.
    pub notes: &'static [&'static str],
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Troubleshooting {
    /// What is seen, such as a code.
    pub sign: &'static str,
    /// Why.
    pub cause: &'static str,
    /// What helps.
    pub solution: &'static str,
}

/// There is no such section.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such section; there are: {}", .known.join(", "))]
pub struct UnknownSection {
    /// The sections that there are.
    pub known: Vec<String>,
}

/// A server as programs and models are told of it.
///
/// ```
/// use bailiwick::{Access, Description, ServerDoc, ToolSet};
///
/// let manual = ServerDoc { summary: "Keeps files.", when: &["keep a file"], ..ServerDoc::EMPTY };
/// let told = Description::new(manual, "Keeper", "1.0.0").tools(ToolSet::new().infos()).access(Access::Interact);
/// let dashdash = told.dashdash();
/// assert_eq!(dashdash["identity"]["name"], "keeper");
/// assert_eq!(dashdash["identity"]["description"], "Keeps files. Use when the user asks to keep a file.");
/// assert_eq!(dashdash["accessLevel"], "read", "no tool changes anything");
/// assert!(told.markdown(Some("when-to-use"))?.contains("keep a file"));
/// # Ok::<(), bailiwick::UnknownSection>(())
/// ```
#[derive(Clone, Debug)]
pub struct Description {
    manual: ServerDoc,
    name: String,
    title: String,
    version: String,
    access: Access,
    rate: Option<String>,
    tools: Vec<ToolInfo>,
}

impl ServerDoc {
    /// One that says nothing, to fill in.
    pub const EMPTY: Self = Self {
        summary: "",
        when: &[],
        not_for: &[],
        install: &[],
        launch: &[],
        authentication: "",
        environment: &[],
        alternatives: Alternatives {
            cli: None,
            api: None,
            web: None,
            notes: &[],
        },
        best_practices: &[],
        troubleshooting: &[],
        categories: &[],
        homepage: None,
        repository: None,
        content_version: "0.1.0",
        last_updated: None,
    };
}

impl Description {
    /// Describes the server `name` without tools, as one that only reads.
    #[must_use]
    pub fn new(manual: ServerDoc, name: impl Into<String>, version: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            manual,
            title: name.clone(),
            name,
            version: version.into(),
            access: Access::Read,
            rate: None,
            tools: Vec::new(),
        }
    }

    /// Sets the name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets the tools that are offered.
    #[must_use]
    pub fn tools(mut self, tools: Vec<ToolInfo>) -> Self {
        self.tools = tools;
        self
    }

    /// Sets how far the configuration lets them go; see [`Worker::access`](crate::Worker::access).
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets how fast calls may come, such as `1000/second`.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<String>) -> Self {
        self.rate = Some(rate.into());
        self
    }

    /// The `dashdash` object of the server.
    #[must_use]
    pub fn dashdash(&self) -> Value {
        dashdash::server(self)
    }

    /// The whole help as markdown with YAML front matter, or one section of it, named by its heading in kebab-case or
    /// by its key in JSON.
    ///
    /// # Errors
    /// [`UnknownSection`] with the sections that there are.
    pub fn markdown(&self, section: Option<&str>) -> Result<String, UnknownSection> {
        ai_help::markdown(self, section)
    }

    /// The same as JSON: `metadata`, `sections` and `contentType`.
    ///
    /// # Errors
    /// [`UnknownSection`] with the sections that there are.
    pub fn json(&self, section: Option<&str>) -> Result<Value, UnknownSection> {
        ai_help::json(self, section)
    }

    /// A `SKILL.md` in the form of Agent Skills.
    #[must_use]
    pub fn skill(&self) -> String {
        skill::skill(self)
    }

    /// An entry for a registry of servers.
    #[must_use]
    pub fn registry_entry(&self) -> Value {
        registry::entry(self)
    }
}
