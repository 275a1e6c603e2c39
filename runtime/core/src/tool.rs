//! Tool traits: a read tool returns a reply; a write tool plans, then applies; an act tool acts, then reports.

mod acting;
mod formats;
mod function;
mod notes;
mod parameters;
mod registry;
mod remote;
mod schema;

use crate::config::Namespace;
use crate::effect::{ExcludedChange, Output, Plan, Reply, ResourceChange};
use crate::error::{CallError, Code};
use crate::journal::UndoRecord;
use crate::path::VirtualPath;
use crate::policy::{Authority, Verdict};
use crate::scope::{Coverage, Scope, Verb};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

pub use crate::capability::{
    Act, ActPermit, ActProgress, BudgetExceeded, CallPermit, Commit, Interrupt, MemoryUse,
    OutputStream, Owner, PathsLocked, ProcessReservation, ReadPermit, VisibleEntries, WritePermit,
};
pub use crate::id::ToolName;
pub(crate) use acting::ActJob;
pub use notes::{Example, Failure, Reverse};
#[doc(hidden)]
pub use parameters::ArgumentReader;
pub(crate) use registry::{AnyPlan, ReadJob, WriteJob};
#[doc(hidden)]
pub use registry::{Arguments, Entry, Job};
pub use registry::{RegistryError, ToolSet};
pub(crate) use remote::Tools;
#[doc(hidden)]
pub use remote::{Catalog, CatalogItem, GET_PROMPT, READ_RESOURCE, RemoteFuture};
#[doc(hidden)]
pub use remote::{Remote, RemoteContext, RemoteJob, RemoteReply, RemoteServers, RemoteTools};
pub use schema::ToolSchema;

/// A function that returns the sentence about a call from its arguments; see [`ToolSpec::sentence`].
#[derive(Clone, Copy)]
pub struct Sentence(pub(crate) fn(&Value) -> Option<String>);

impl PartialEq for Sentence {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl fmt::Debug for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentence").finish_non_exhaustive()
    }
}

/// Specification of a tool. Its schemas are derived from its types.
///
/// Names and scopes may come from data:
/// ```
/// use bailiwick::ToolSpec;
/// let name = format!("query_{}", "orders");
/// let mut spec = ToolSpec::new(name, "Query", "Queries a table.");
/// spec.scopes = vec!["read:database:orders".to_owned().into()];
/// assert_eq!(spec.name, "query_orders");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The name: `[a-z0-9_]{1,64}`; names of third-party tools may also have capitals and `-`.
    pub name: Cow<'static, str>,
    /// A short name for people.
    pub title: Cow<'static, str>,
    /// What it does and when to use it, for the model.
    pub description: Cow<'static, str>,
    /// An [`IntentTemplate`](crate::intent::IntentTemplate) for the sentence that people see, such as `Edit {path}`. If
    /// it is empty, people see the title and the paths.
    pub intent: Cow<'static, str>,
    /// Returns that sentence from the arguments, if a template cannot express it; see [`ToolSpec::sentence`].
    pub sentence: Option<Sentence>,
    /// Whether it may destroy data.
    pub destructive: bool,
    /// Whether repeating a call has no further effect.
    pub idempotent: bool,
    /// Whether it accesses things outside the configuration, such as the network.
    pub open_world: bool,
    /// The kinds of scope that its calls need, such as `read:file`; see [`ToolSpec::scopes`].
    pub scopes: Vec<Cow<'static, str>>,
    /// The group of related tools that it belongs to, such as `search`; empty for none.
    pub group: &'static str,
    /// Its priority within its group, from 0 to 1.
    pub priority: Option<f64>,
    /// Whether it only deletes.
    pub deletes: bool,
    /// Side effects of a call, one short phrase each.
    pub side_effects: &'static [&'static str],
    /// The reverse operation.
    pub reverse: Option<Reverse>,
    /// A POSIX shell command with the same effect as a call with the arguments in this template: an
    /// [`IntentTemplate`](crate::intent::IntentTemplate), rendered by [`shell`](crate::intent::IntentTemplate::shell).
    /// Empty if there is no such command.
    pub command_line: &'static str,
    /// Example calls with their results.
    pub examples: &'static [Example],
    /// Its specific error codes.
    pub failures: &'static [Failure],
    /// Whether only views may use it. It is then not offered to models.
    pub app_only: bool,
    /// Whether it works on files in the roots. Its calls then run on the I/O threads. Set by [`ToolSet::for_files`].
    pub for_files: bool,
    /// JSON Schema of the arguments, instead of the schema of the tool's argument type. The tool must check its
    /// arguments itself.
    pub input_schema: Option<Value>,
    /// Time limit of a call, if it is shorter than the limit of the runtime.
    pub timeout: Option<Duration>,
    /// How many of its calls may run at once in a runtime; see [`ToolSpec::max_concurrent_calls`].
    pub max_concurrent_calls: Option<u32>,
    /// URI of the page that shows its calls, such as `ui://hr/dashboard`. If it is empty, mutating tools use the review
    /// page.
    pub page: Cow<'static, str>,
}

/// Definition of a tool, as offered to models.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// The specification of the tool.
    pub spec: ToolSpec,
    /// JSON Schema of the arguments.
    pub input_schema: ToolSchema,
    /// JSON Schema of the structured output.
    pub output_schema: ToolSchema,
    /// Whether its calls can change something.
    pub mutates: bool,
    /// Whether it can be previewed: always, except for third-party tools without previews.
    pub previews: bool,
    /// The third-party server or app that provides it.
    pub provider: Option<String>,
}

impl ToolSpec {
    /// Creates the specification of a tool that is neither destructive nor idempotent.
    #[must_use]
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        title: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            description: description.into(),
            intent: Cow::Borrowed(""),
            sentence: None,
            destructive: false,
            idempotent: false,
            open_world: false,
            scopes: Vec::new(),
            group: "",
            priority: None,
            deletes: false,
            side_effects: &[],
            reverse: None,
            command_line: "",
            examples: &[],
            failures: &[],
            app_only: false,
            for_files: false,
            input_schema: None,
            timeout: None,
            max_concurrent_calls: None,
            page: Cow::Borrowed(""),
        }
    }

    /// Sets the intent template. [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) fails if it names an argument that
    /// the tool does not have.
    #[must_use]
    pub fn intent(mut self, template: impl Into<Cow<'static, str>>) -> Self {
        self.intent = template.into();
        self
    }

    /// Sets a function that returns the sentence that people see from the arguments of a call, instead of an intent
    /// template. Deceptive characters are escaped, and a long sentence is cut. If the function returns `None`
    /// or panics, the template is used.
    ///
    /// ```
    /// use bailiwick::ToolSpec;
    /// let spec = ToolSpec::new("ring", "Ring", "Rings the bell.").sentence(|arguments| {
    ///     let times = arguments.get("times")?.as_u64()?;
    ///     Some(format!("Ring the bell {times} times"))
    /// });
    /// assert!(spec.sentence.is_some());
    /// ```
    #[must_use]
    pub const fn sentence(mut self, sentence: fn(&Value) -> Option<String>) -> Self {
        self.sentence = Some(Sentence(sentence));
        self
    }

    /// Sets the kinds of scope that its calls need, as patterns such as `read:file` or `execute:network`.
    ///
    /// They decide whether [`Worker::tools`](crate::Worker::tools) offers the tool to a worker: a worker whose policies deny
    /// all of them is not offered it, and for a tool that changes something, those of reading do not count. Without
    /// scopes, the tool is offered to every worker that may use it by name. They allow and deny nothing: each call is judged
    /// by the needs that it states.
    ///
    /// [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) fails if one of them is invalid.
    #[must_use]
    pub fn scopes(mut self, scopes: &[&'static str]) -> Self {
        self.scopes = scopes.iter().map(|scope| Cow::Borrowed(*scope)).collect();
        self
    }

    /// Marks it as destructive.
    #[must_use]
    pub const fn destructive(mut self) -> Self {
        self.destructive = true;
        self
    }

    /// Marks it as idempotent.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// Sets its group, and its priority within the group from 0 to 1.
    #[must_use]
    pub const fn group(mut self, group: &'static str, priority: f64) -> Self {
        self.group = group;
        self.priority = Some(priority);
        self
    }

    /// Marks it as only deleting.
    #[must_use]
    pub const fn deletes(mut self) -> Self {
        self.deletes = true;
        self
    }

    /// Sets its side effects.
    #[must_use]
    pub const fn side_effects(mut self, effects: &'static [&'static str]) -> Self {
        self.side_effects = effects;
        self
    }

    /// Sets the reverse operation.
    #[must_use]
    pub const fn reverse(mut self, reverse: Reverse) -> Self {
        self.reverse = Some(reverse);
        self
    }

    /// Sets the shell command with the same effect.
    #[must_use]
    pub const fn command_line(mut self, template: &'static str) -> Self {
        self.command_line = template;
        self
    }

    /// Sets the example calls.
    #[must_use]
    pub const fn examples(mut self, examples: &'static [Example]) -> Self {
        self.examples = examples;
        self
    }

    /// Sets its specific error codes.
    #[must_use]
    pub const fn failures(mut self, failures: &'static [Failure]) -> Self {
        self.failures = failures;
        self
    }

    /// Sets the JSON Schema of the arguments, for tools defined at run time whose argument type is [`Value`].
    #[must_use]
    pub fn input_schema(mut self, schema: Value) -> Self {
        self.input_schema = Some(schema);
        self
    }

    /// Sets the time limit of a call, if it is shorter than the limit of the runtime.
    ///
    /// The time begins when a thread or task runs the tool. For file tools ([`ToolSet::for_files`]) it includes the time
    /// that the call waits for a thread and for its paths.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how many of its calls may run at once in a runtime. There is no limit by default;
    /// [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) rejects 0.
    ///
    /// Further calls wait in order of arrival, up to 1,024 of them, and do not delay calls of other tools. The waiting
    /// time does not count toward the time limit of the call. A call fails with `BUSY` if too many calls wait, or if it
    /// has waited for as long as a call may take. A call counts while it is planned or carried out, and while it waits
    /// for a thread or for path locks, but not while it waits for a person. [`ReadTool::read_now`] is not called for a
    /// tool with this limit.
    ///
    /// Writes of one worker run one at a time, except those of file tools ([`ToolSet::for_files`]) on different paths. Each
    /// takes its slot only when it is its turn. If no slot is free then, writes of other tools go before it; when it gets
    /// a slot, it waits for those of them that run.
    ///
    /// ```
    /// use bailiwick::ToolSpec;
    /// // The service allows two connections.
    /// let spec = ToolSpec::new("query", "Query", "Queries the service.").max_concurrent_calls(2);
    /// assert_eq!(spec.max_concurrent_calls, Some(2));
    /// ```
    #[must_use]
    pub const fn max_concurrent_calls(mut self, calls: u32) -> Self {
        self.max_concurrent_calls = Some(calls);
        self
    }

    /// Sets the page that shows its calls, which the gateway serves (`GatewayBuilder::page`).
    #[must_use]
    pub fn page(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.page = uri.into();
        self
    }

    /// Offers it to views only, not to models. It must not be mutating.
    #[must_use]
    pub const fn app_only(mut self) -> Self {
        self.app_only = true;
        self
    }
}

impl ToolInfo {
    /// Returns who may call it, in the terms of MCP Apps: `model`, `app` (a view), or both. Views may not call mutating
    /// tools.
    #[must_use]
    pub fn visibility(&self) -> &'static [&'static str] {
        match (self.spec.app_only, self.mutates) {
            (true, _) => &["app"],
            (false, true) => &["model"],
            (false, false) => &["model", "app"],
        }
    }
}

/// A prepared call: its needs, and the job to run once they are allowed.
#[derive(Debug)]
pub struct Prepared<J> {
    /// All scopes that the arguments are known to need.
    pub needs: Vec<Scope>,
    /// Input of [`ReadTool::read`], [`WriteTool::plan`] or [`ActTool::act`], with parsed paths.
    pub job: J,
}

/// A tool that changes nothing.
///
/// `read` runs on a thread where blocking is allowed. It must access everything through its permit, and call
/// [`ReadPermit::checkpoint`] between units of work.
pub trait ReadTool: Send + Sync + 'static {
    /// The arguments. Deny unknown fields, so that a typo is an error. Null counts as absent for optional arguments. If that
    /// makes the arguments valid, a string is also read as a number or boolean, `5.0` as 5, and a single string as a list.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The structured output.
    type Output: Output + JsonSchema;
    /// The parsed arguments. For typed calls people see its `Debug` form, which must be complete.
    type Job: Send + Sync + fmt::Debug + 'static;

    /// Returns the specification of the tool.
    fn spec(&self) -> ToolSpec;

    /// Parses the arguments, without I/O.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` for arguments that match the schema but are invalid.
    fn prepare(
        &self,
        args: Self::Args,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError>;

    /// Returns the reply if that takes only a few microseconds and does not block. If it returns `None`,
    /// [`ReadTool::read`] is called on another thread.
    ///
    /// It may be called before the call is in the audit. If the audit cannot record the call then, the caller gets an error
    /// instead of the reply.
    fn read_now(&self, _job: &Self::Job, _permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        None
    }

    /// Runs the job.
    ///
    /// # Errors
    /// [`Interrupt`], which tells the pipeline why the tool stopped.
    fn read(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Reply, Interrupt>;
}

/// A mutating tool, which must be able to plan its changes.
///
/// `plan` and `apply` run on a thread where blocking is allowed. Preview and apply use the same `plan`.
pub trait WriteTool: Send + Sync + 'static {
    /// The arguments. Deny unknown fields, so that a typo is an error. Null counts as absent for optional arguments. If that
    /// makes the arguments valid, a string is also read as a number or boolean, `5.0` as 5, and a single string as a list.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The structured output, the same for preview and apply.
    type Output: Output + JsonSchema;
    /// The parsed arguments. For typed calls people see its `Debug` form, which must be complete.
    type Job: Send + Sync + fmt::Debug + 'static;
    /// The steps of a plan, for `apply`.
    type Steps: Send + fmt::Debug + 'static;

    /// Returns the specification of the tool.
    fn spec(&self) -> ToolSpec;

    /// Parses the arguments, without I/O.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` for arguments that match the schema but are invalid.
    fn prepare(
        &self,
        args: Self::Args,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError>;

    /// Returns further needs that depend on the worker's authority, so that one question covers everything. It may use
    /// the permit to query verdicts, but must not access files.
    fn also_needs(&self, _job: &Self::Job, _permit: &ReadPermit) -> Vec<Scope> {
        Vec::new()
    }

    /// Computes what the call would do, without changing anything.
    ///
    /// # Errors
    /// [`Interrupt`], which tells the pipeline why the tool stopped.
    fn plan(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Plan<Self::Steps>, Interrupt>;

    /// Whether parts of this tool's plans can be excluded.
    const DIVISIBLE: bool = false;

    /// Removes what was excluded from a plan, and mentions it in its reply. It is only called with changes and hunks of the
    /// plan of which something remains, never with a change on which a remaining one depends, and only if
    /// [`WriteTool::DIVISIBLE`] is set.
    ///
    /// # Errors
    /// [`CallError`]
    fn divide(
        &self,
        _plan: Plan<Self::Steps>,
        _left_out: &[ExcludedChange],
    ) -> Result<Plan<Self::Steps>, CallError> {
        let message = "what this tool changes cannot be divided";
        Err(CallError::new(Code::InvalidArguments, message))
    }

    /// Returns what the journal keeps to undo a plan with these steps, for tools whose changes can be undone. The tool
    /// `undo` of `bailiwick-fs` reads the bytes that `bailiwick_fs::io::FileWriter` and `FilesWriter` make. By default the
    /// changes cannot be undone.
    fn undo_record(&self, _steps: &Self::Steps, _inverse: Option<&Self::Steps>) -> UndoRecord {
        UndoRecord::default()
    }

    /// Carries out the plan, or fails with `STALE_PREVIEW` without changes if the files no longer match it.
    ///
    /// # Errors
    /// [`CallError`]
    fn apply(&self, steps: Self::Steps, permit: WritePermit) -> Result<(), CallError>;
}

/// What the worker of a call may do, before the call is authorised.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'c> {
    authority: &'c Authority,
    granted: &'c [Coverage],
}

impl<'c> Rights<'c> {
    pub(crate) fn new(authority: &'c Authority, granted: &'c [Coverage]) -> Self {
        Self { authority, granted }
    }

    /// Returns the verdict on any operation of `verb` on `path`, given all layers and grants.
    #[must_use]
    pub fn judge(&self, verb: Verb, path: &VirtualPath) -> Verdict {
        let need = Scope::file(verb, path.clone());
        self.authority.judge(&need, self.granted)
    }

    /// Returns the folders and files in which no operation of `verb` needs a question, as people read them: paths, or for
    /// example ``files that match `*.rs` in /repo``. Rules about folders and names in them may deny some of it. Grants are
    /// not considered.
    #[must_use]
    pub fn allowed_files(&self, verb: Verb) -> Vec<String> {
        self.authority.allowed_files(verb)
    }

    /// Returns the hosts to which a connection needs no question, such as `crates.io` or `crates.io:443`; `None` for every
    /// host, except those that are denied. Grants are not considered.
    #[must_use]
    pub fn allowed_hosts(&self) -> Option<Vec<String>> {
        self.authority.allowed_hosts()
    }
}

/// What a call of an [`ActTool`] may change, as far as it is known in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreseen {
    /// Exactly these changes.
    Changes(Vec<ResourceChange>),
    /// The changes are known only afterwards. People see this before they allow the call.
    Unknown,
}

/// A mutating tool whose outcome is known only after its effect, such as a command or a network call.
///
/// `act` is a future on the tokio runtime and must not block. The future is dropped if the call is cancelled, its
/// deadline passes, or its worker or a grant that it uses is revoked. [`Worker::revoke`](crate::Worker::revoke) returns
/// once it is dropped. Calls of act tools of one worker run concurrently. Budgets count each call, but not its changes.
///
/// Of a grant that covers more than the call, such as a folder, the permit has only the needs that
/// [`prepare`](Self::prepare) returned.
///
/// ```
/// use bailiwick::config::Namespace;
/// use bailiwick::effect::ResourceChange;
/// use bailiwick::tool::{ActPermit, ActProgress, Foreseen, Prepared, Rights};
/// use bailiwick::{ActTool, CallError, Reply, ToolSpec};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Message {
///     text: String,
/// }
///
/// struct SendMessage;
///
/// impl ActTool for SendMessage {
///     type Args = Message;
///     type Output = ();
///     type Job = String;
///
///     fn spec(&self) -> ToolSpec {
///         ToolSpec::new("send_message", "Send a message", "Sends a message to the team.")
///     }
///
///     fn prepare(&self, args: Message, _: &Namespace) -> Result<Prepared<String>, CallError> {
///         let needs = "execute:network:chat.example.com".parse();
///         let needs = vec![needs.expect("a constant scope is valid")];
///         Ok(Prepared { needs, job: args.text })
///     }
///
///     fn foresee(&self, text: &String, _: &Rights<'_>) -> Foreseen {
///         let message = ResourceChange::new("chat.example.com", "post a message").after(text);
///         Foreseen::Changes(vec![message])
///     }
///
///     async fn act(
///         &self,
///         text: &String,
///         permit: ActPermit,
///         progress: ActProgress,
///     ) -> Result<Reply, CallError> {
///         let _act = permit.begin()?;
///         // Send `text` here.
///         progress.step();
///         Ok(Reply::text("sent", ()))
///     }
/// }
/// ```
pub trait ActTool: Send + Sync + 'static {
    /// The arguments. Deny unknown fields, so that a typo is an error. Null counts as absent for optional arguments. If that
    /// makes the arguments valid, a string is also read as a number or boolean, `5.0` as 5, and a single string as a list.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The structured output.
    type Output: Output + JsonSchema;
    /// The parsed arguments. For typed calls people see its `Debug` form, which must be complete.
    type Job: Send + Sync + fmt::Debug + 'static;

    /// Returns the specification of the tool.
    fn spec(&self) -> ToolSpec;

    /// Parses the arguments, without I/O.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` for arguments that match the schema but are invalid.
    fn prepare(
        &self,
        args: Self::Args,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError>;

    /// Returns what the call may change, for its preview. It is called before the call is authorised, so it must use
    /// nothing but the job and what the worker may do, and it must not block. It can be called several times.
    fn foresee(&self, job: &Self::Job, rights: &Rights<'_>) -> Foreseen;

    /// Carries out the call. It must call [`ActPermit::begin`] immediately before its effect.
    ///
    /// # Errors
    /// [`CallError`]. If it is returned after [`ActPermit::begin`], the call is reported as one that may have had an
    /// effect.
    fn act(
        &self,
        job: &Self::Job,
        permit: ActPermit,
        progress: ActProgress,
    ) -> impl Future<Output = Result<Reply, CallError>> + Send;
}
