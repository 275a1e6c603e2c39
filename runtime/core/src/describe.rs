//! Descriptions of a server for programs and models, generated from its tools and configuration.
//!
//! Descriptions are generated from the tools, so they are consistent with them. They contain no paths, variables or
//! secrets of the machine.

mod ai_help;
mod dashdash;
mod reference;
mod schema;
mod skill;
mod yaml;

use serde::Serialize;
use serde_json::Value;

use crate::policy::Access;
use crate::tool::ToolInfo;

#[doc(hidden)]
pub use dashdash::{listed, resource};

/// Documentation of a server by its author, in addition to its tools and configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerDoc {
    /// What the server does, in one sentence.
    pub summary: &'static str,
    /// When to use it: ends of the sentence `Use when the user asks to ...`.
    pub when: &'static [&'static str],
    /// What it is not for, and what to use instead.
    pub not_for: &'static [&'static str],
    /// Ways to install it, the recommended one first.
    pub install: &'static [Install],
    /// The command that a client runs, with placeholders for arguments.
    pub launch: &'static [&'static str],
    /// How clients authenticate, and how they are trusted.
    pub authentication: &'static str,
    /// The required environment variables.
    pub environment: &'static [&'static str],
    /// Alternatives to MCP.
    pub alternatives: Alternatives,
    /// Best practices.
    pub best_practices: &'static [&'static str],
    /// Common problems and their solutions.
    pub troubleshooting: &'static [Troubleshooting],
    /// Categories for registries.
    pub categories: &'static [&'static str],
    /// URL of its documentation.
    pub homepage: Option<&'static str>,
    /// URL of its source code.
    pub repository: Option<&'static str>,
    /// Version of this documentation, as semver.
    pub content_version: &'static str,
    /// When it was last changed, as an ISO 8601 date, if known.
    pub last_updated: Option<&'static str>,
}

/// A way to install a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// The installer, such as `cargo`.
    pub by: &'static str,
    /// The package.
    pub package: &'static str,
    /// The whole command.
    pub command: &'static str,
}

/// Alternatives to MCP: URLs of their documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alternatives {
    /// Command line.
    pub cli: Option<&'static str>,
    /// Web API.
    pub api: Option<&'static str>,
    /// Web page.
    pub web: Option<&'static str>,
    /// Notes, one sentence each.
    pub notes: &'static [&'static str],
}

/// A common problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Troubleshooting {
    /// The symptom, such as an error code.
    pub sign: &'static str,
    /// The cause.
    pub cause: &'static str,
    /// The solution.
    pub solution: &'static str,
}

/// The section does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown section: the sections are {}", .known.join(", "))]
pub struct UnknownSection {
    /// The existing sections.
    pub known: Vec<String>,
}

/// Description of a server for programs and models.
///
/// ```
/// use bailiwick::ToolSet;
/// use bailiwick::describe::{Description, ServerDoc};
/// use bailiwick::policy::Access;
///
/// let doc = ServerDoc { summary: "Keeps files.", when: &["keep a file"], ..ServerDoc::EMPTY };
/// let description = Description::new(doc, "Keeper", "1.0.0").tools(ToolSet::new().infos()).access(Access::Interact);
/// let dashdash = description.dashdash();
/// assert_eq!(dashdash["identity"]["name"], "keeper");
/// assert_eq!(dashdash["identity"]["description"], "Keeps files. Use when the user asks to keep a file.");
/// assert_eq!(dashdash["accessLevel"], "read", "no tool changes anything");
/// assert!(description.markdown(Some("when-to-use"))?.contains("keep a file"));
/// # Ok::<(), bailiwick::describe::UnknownSection>(())
/// ```
#[derive(Clone, Debug)]
pub struct Description {
    doc: ServerDoc,
    name: String,
    title: String,
    version: String,
    access: Access,
    rate: Option<String>,
    tools: Vec<ToolInfo>,
}

impl ServerDoc {
    /// Empty documentation to fill in.
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
    /// Creates the description of a read-only server without tools.
    #[must_use]
    pub fn new(doc: ServerDoc, name: impl Into<String>, version: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            doc,
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

    /// Sets the tools.
    #[must_use]
    pub fn tools(mut self, tools: Vec<ToolInfo>) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the access level of the configuration; see [`Worker::access`](crate::Worker::access).
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the rate limit of calls, such as `1000/second`.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<String>) -> Self {
        self.rate = Some(rate.into());
        self
    }

    /// Returns the description of the server in the format of [dashdash](https://github.com/visionik/dashdash).
    #[must_use]
    pub fn dashdash(&self) -> Value {
        dashdash::server(self)
    }

    /// Returns the help as markdown with YAML front matter. `section` selects one section, by its heading in kebab-case
    /// or by its key in JSON.
    ///
    /// # Errors
    /// [`UnknownSection`] with the existing sections.
    pub fn markdown(&self, section: Option<&str>) -> Result<String, UnknownSection> {
        ai_help::markdown(self, section)
    }

    /// Like [`Self::markdown`], as JSON: `metadata`, `sections` and `contentType`.
    ///
    /// # Errors
    /// [`UnknownSection`] with the existing sections.
    pub fn json(&self, section: Option<&str>) -> Result<Value, UnknownSection> {
        ai_help::json(self, section)
    }

    /// Returns a `SKILL.md` in the form of Agent Skills.
    #[must_use]
    pub fn skill(&self) -> String {
        skill::skill(self)
    }

    /// Returns an entry for a registry of servers.
    #[must_use]
    pub fn registry_entry(&self) -> Value {
        dashdash::registry_entry(self)
    }
}
