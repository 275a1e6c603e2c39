//! Tool traits: a read tool returns a reply; a write tool plans, then applies.

mod formats;
mod notes;
mod parameters;
mod registry;
mod remote;
mod schema;

use std::borrow::Cow;
use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::capability::{Interrupt, ReadPermit, WritePermit};
use crate::config::Namespace;
use crate::effect::{ExcludedHunks, Output, Plan, Reply};
use crate::error::{CallError, Code};
use crate::scope::Scope;

pub use notes::{Example, Failure, Reverse};
pub(crate) use registry::{AnyPlan, Arguments, Entry, Job, ReadJob, WriteJob};
pub use registry::{RegistryError, ToolSet};
#[cfg(feature = "mcp")]
pub(crate) use remote::{Catalog, CatalogItem, GET_PROMPT, READ_RESOURCE};
pub(crate) use remote::{
    Remote, RemoteContext, RemoteFuture, RemoteJob, RemoteReply, RemoteTools, Tools,
};

/// What a tool says of itself, apart from its schemas, which come from its types.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name a model calls it by: `[a-z0-9_]{1,64}`; that of a tool of another server may have capitals and `-`, too.
    pub name: Cow<'static, str>,
    /// A short name for people.
    pub title: Cow<'static, str>,
    /// What it does and when to use it, for the model.
    pub description: Cow<'static, str>,
    /// One sentence for people, filled with the arguments: `Edit {path}`. An [`IntentTemplate`](crate::IntentTemplate);
    /// empty for none, and then people read the title and the paths.
    pub intent: &'static str,
    /// It may destroy what was there.
    pub destructive: bool,
    /// Doing it twice is the same as doing it once.
    pub idempotent: bool,
    /// It reaches beyond what the host configured, such as the network.
    pub open_world: bool,
    /// What kinds of scope its calls need, such as `read:file`.
    pub scopes: &'static [&'static str],
    /// The family of tools that it belongs to, such as `search`; empty for none.
    pub group: &'static str,
    /// How much it matters beside its siblings, from 0 to 1.
    pub priority: Option<f64>,
    /// All it does is to take something away.
    pub deletes: bool,
    /// What a call changes beside its answer, one short phrase each.
    pub side_effects: &'static [&'static str],
    /// What takes a call back.
    pub reverse: Option<Reverse>,
    /// A line for a POSIX shell with the same effect as a call with just the arguments it names: an
    /// [`IntentTemplate`](crate::IntentTemplate), rendered by [`shell`](crate::IntentTemplate::shell). Empty where
    /// there is none.
    pub command_line: &'static str,
    /// Calls and their answers.
    pub examples: &'static [Example],
    /// The codes that are its own, apart from those that any call may be answered with.
    pub failures: &'static [Failure],
    /// It is for the views that people look at, and no model is offered it.
    pub app_only: bool,
    /// The page on which people look at its calls, such as `ui://hr/dashboard`; empty for the review of what it changes,
    /// if it changes anything.
    pub page: Cow<'static, str>,
}

/// A tool as it is handed to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// What the tool says of itself.
    pub spec: ToolSpec,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured output.
    pub output_schema: Value,
    /// It changes something.
    pub mutates: bool,
    /// What it would change can be shown first: always, unless another server that has no previews carries it out.
    pub previews: bool,
    /// The third-party server, or the app, that carries it out.
    pub provider: Option<String>,
}

impl ToolSpec {
    /// A tool that destroys nothing; doing it twice may do it twice.
    #[must_use]
    pub const fn new(name: &'static str, title: &'static str, description: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            title: Cow::Borrowed(title),
            description: Cow::Borrowed(description),
            intent: "",
            destructive: false,
            idempotent: false,
            open_world: false,
            scopes: &[],
            group: "",
            priority: None,
            deletes: false,
            side_effects: &[],
            reverse: None,
            command_line: "",
            examples: &[],
            failures: &[],
            app_only: false,
            page: Cow::Borrowed(""),
        }
    }

    /// Sets the sentence for people.
    #[must_use]
    pub const fn intent(mut self, template: &'static str) -> Self {
        self.intent = template;
        self
    }

    /// Names the kinds of scope its calls need.
    #[must_use]
    pub const fn scopes(mut self, scopes: &'static [&'static str]) -> Self {
        self.scopes = scopes;
        self
    }

    /// Says that it may destroy what was there.
    #[must_use]
    pub const fn destructive(mut self) -> Self {
        self.destructive = true;
        self
    }

    /// Says that doing it twice is the same as doing it once.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Names its family, and how much it matters there, from 0 to 1.
    #[must_use]
    pub const fn group(mut self, group: &'static str, priority: f64) -> Self {
        self.group = group;
        self.priority = Some(priority);
        self
    }

    /// Says that all it does is to take something away.
    #[must_use]
    pub const fn deletes(mut self) -> Self {
        self.deletes = true;
        self
    }

    /// Names what a call changes beside its answer.
    #[must_use]
    pub const fn side_effects(mut self, effects: &'static [&'static str]) -> Self {
        self.side_effects = effects;
        self
    }

    /// Names what takes a call back.
    #[must_use]
    pub const fn reverse(mut self, reverse: Reverse) -> Self {
        self.reverse = Some(reverse);
        self
    }

    /// Sets the line for a shell that has the same effect.
    #[must_use]
    pub const fn command_line(mut self, template: &'static str) -> Self {
        self.command_line = template;
        self
    }

    /// Shows calls and their answers.
    #[must_use]
    pub const fn examples(mut self, examples: &'static [Example]) -> Self {
        self.examples = examples;
        self
    }

    /// Names the codes that are its own.
    #[must_use]
    pub const fn failures(mut self, failures: &'static [Failure]) -> Self {
        self.failures = failures;
        self
    }

    /// Names the page on which people look at its calls, as whoever serves it gives it (`GatewayBuilder::page`).
    #[must_use]
    pub fn page(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.page = uri.into();
        self
    }

    /// Offers it to views alone, and to no model. It must change nothing.
    #[must_use]
    pub const fn app_only(mut self) -> Self {
        self.app_only = true;
        self
    }
}

impl ToolInfo {
    /// Who may call it, as MCP Apps names them: `model`, `app` (a view), or both. What changes something is no view's.
    #[must_use]
    pub fn visibility(&self) -> &'static [&'static str] {
        match (self.spec.app_only, self.mutates) {
            (true, _) => &["app"],
            (false, true) => &["model"],
            (false, false) => &["model", "app"],
        }
    }
}

/// A call that was understood: what it needs, and what is left to do once that is allowed.
#[derive(Debug)]
pub struct Prepared<J> {
    /// Every scope the call is known to need before anything was looked at.
    pub needs: Vec<Scope>,
    /// What [`ReadTool::read`] or [`WriteTool::plan`] works from, paths already parsed.
    pub job: J,
}

/// A tool that changes nothing.
///
/// Implemented by whoever offers tools. `read` runs on a thread where blocking is allowed; it looks
/// at nothing but through its permit, and calls [`ReadPermit::checkpoint`] between pieces of work.
pub trait ReadTool: Send + Sync + 'static {
    /// The arguments as a model writes them. Deny unknown fields, so that a typo is an error.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The structured output.
    type Output: Output + JsonSchema;
    /// The arguments once understood. Where no JSON came, people are shown how `Debug` shows it: leave nothing out.
    type Job: Send + Sync + fmt::Debug + 'static;

    /// What the tool says of itself.
    fn spec(&self) -> ToolSpec;

    /// Understands the arguments without looking at anything.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` for arguments that fit the schema and still make no sense.
    fn prepare(
        &self,
        args: Self::Args,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError>;

    /// Answers from what is at hand within a few microseconds and without blocking, or not at all.
    fn read_now(&self, _job: &Self::Job, _permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        None
    }

    /// Answers.
    ///
    /// # Errors
    /// [`Interrupt`]
    fn read(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Reply, Interrupt>;
}

/// A tool that changes something. It cannot be offered without a plan of what it would do.
///
/// `plan` and `apply` run on a thread where blocking is allowed. Preview and apply run the same `plan`.
pub trait WriteTool: Send + Sync + 'static {
    /// The arguments as a model writes them. Deny unknown fields, so that a typo is an error.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The structured output, the same for preview and apply.
    type Output: Output + JsonSchema;
    /// The arguments once understood. Where no JSON came, people are shown how `Debug` shows it: leave nothing out.
    type Job: Send + Sync + fmt::Debug + 'static;
    /// What apply does, computed by the plan.
    type Steps: Send + fmt::Debug + 'static;

    /// What the tool says of itself.
    fn spec(&self) -> ToolSpec;

    /// Understands the arguments without looking at anything.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` for arguments that fit the schema and still make no sense.
    fn prepare(
        &self,
        args: Self::Args,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError>;

    /// What else the call needs because of what its worker may do, so that a person is asked for everything at once.
    /// Only verdicts are looked at, no file.
    fn also_needs(&self, _job: &Self::Job, _permit: &ReadPermit) -> Vec<Scope> {
        Vec::new()
    }

    /// Computes what the call would do. Changes nothing.
    ///
    /// # Errors
    /// [`Interrupt`]
    fn plan(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Plan<Self::Steps>, Interrupt>;

    /// Whether hunks can be left out of this tool's plans.
    const DIVISIBLE: bool = false;

    /// Leaves out of a plan the hunks that a person refused, and says so in its reply. Called only with hunks that the
    /// plan has, only if [`WriteTool::DIVISIBLE`].
    ///
    /// # Errors
    /// [`CallError`]
    fn divide(
        &self,
        _plan: Plan<Self::Steps>,
        _left_out: &[ExcludedHunks],
    ) -> Result<Plan<Self::Steps>, CallError> {
        let message = "what this tool changes cannot be divided";
        Err(CallError::new(Code::InvalidArguments, message))
    }

    /// Carries the plan out, or changes nothing and says `STALE_PREVIEW` if the files are not those of the plan.
    ///
    /// # Errors
    /// [`CallError`]
    fn apply(&self, steps: Self::Steps, permit: WritePermit) -> Result<(), CallError>;
}
