//! Table of tools by name.

use super::acting::ActJob;
use super::parameters::Parameters;
use super::remote::{Remote, RemoteJob};
use super::schema::{self, ToolSchema};
use super::{ReadTool, ToolInfo, ToolSpec, WriteTool};
use crate::call::Origin;
use crate::capability::{Interrupt, ReadPermit, WritePermit};
use crate::config::Namespace;
use crate::effect::{ExcludedChange, Plan, Reply};
use crate::error::{CallError, Code};
use crate::id::ToolName;
use crate::intent::{IntentError, IntentTemplate};
use crate::journal::UndoRecord;
use crate::scope::{Scope, ScopeError, ScopePattern};
use crate::worker::LayerStatus;
use foldhash::fast::FixedState;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// A type-erased plan of a tool.
pub(crate) type AnyPlan = Plan<Box<dyn Any + Send>>;

/// Arguments of a call: JSON, or the tool's own type.
#[derive(Debug)]
#[doc(hidden)]
pub enum Arguments<'c> {
    Json(&'c Value),
    Typed(Box<dyn Any + Send>),
}

/// A prepared call of a read tool.
#[doc(hidden)]
pub trait ReadJob: Send + Sync + fmt::Debug {
    fn read_now(&self, permit: &ReadPermit) -> Option<Result<Reply, Interrupt>>;
    fn read(&self, permit: &ReadPermit) -> Result<Reply, Interrupt>;
}

/// A prepared call of a write tool.
#[doc(hidden)]
pub trait WriteJob: Send + Sync + fmt::Debug {
    fn also_needs(&self, permit: &ReadPermit) -> Vec<Scope>;
    fn plan(&self, permit: &ReadPermit) -> Result<AnyPlan, Interrupt>;
    fn apply(&self, steps: Box<dyn Any + Send>, permit: WritePermit) -> Result<(), CallError>;
    fn undo_record(&self, plan: &AnyPlan) -> UndoRecord;
    fn divisible(&self) -> bool;
    fn divide(&self, plan: AnyPlan, left_out: &[ExcludedChange]) -> Result<AnyPlan, CallError>;
}

/// A prepared call.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub enum Job {
    Read(Arc<dyn ReadJob>),
    Write(Arc<dyn WriteJob>),
    Act(Arc<dyn ActJob>),
    Remote(Arc<dyn RemoteJob>),
}

impl Job {
    /// Whether parts of its change can be excluded.
    pub(crate) fn is_divisible(&self) -> bool {
        match self {
            Self::Write(job) => job.divisible(),
            Self::Read(_) | Self::Act(_) | Self::Remote(_) => false,
        }
    }
}

/// Parses the arguments of one tool.
type Prepare =
    dyn Fn(Arguments<'_>, &Namespace) -> Result<(Vec<Scope>, Job), CallError> + Send + Sync;

/// One registered tool.
#[doc(hidden)]
pub struct Entry {
    pub name: ToolName,
    pub spec: ToolSpec,
    /// The intent template, if the tool has one.
    pub intent: Option<IntentTemplate>,
    pub input_schema: ToolSchema,
    pub output_schema: ToolSchema,
    pub mutates: bool,
    /// Further properties if it is a third-party tool.
    pub remote: Option<Remote>,
    pub prepare: Box<Prepare>,
}

impl Entry {
    pub(crate) fn prepare(
        &self,
        arguments: Arguments,
        names: &Namespace,
    ) -> Result<(Vec<Scope>, Job), CallError> {
        (self.prepare)(arguments, names)
    }

    /// Whether calls of that origin may use it: models may not use tools for views, and views may not use mutating tools,
    /// except for previews and calls that a person confirms (`watched`). Views may not use third-party tools that are hidden
    /// from views.
    pub(crate) fn is_for(&self, origin: Origin, watched: bool) -> bool {
        let views = self.remote.as_ref().is_none_or(|it| it.views);
        match origin {
            Origin::Human | Origin::Host => true,
            Origin::Model => !self.spec.app_only,
            Origin::View => views && (watched || !self.mutates),
        }
    }

    /// The definition of the tool for a model.
    pub(crate) fn info(&self) -> ToolInfo {
        ToolInfo {
            spec: self.spec.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            mutates: self.mutates,
            previews: self.previews(),
            provider: self.remote.as_ref().map(|it| it.server.to_string()),
        }
    }

    /// Whether it can be previewed.
    pub(crate) fn previews(&self) -> bool {
        self.mutates && self.remote.as_ref().is_none_or(|it| it.previews)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Why a set of tools is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two tools have the same name.
    #[error("two tools are named `{0}`")]
    Duplicate(String),
    /// The name is not `[a-z0-9_]{1,64}`.
    #[error("invalid tool name `{0}`: use [a-z0-9_]{{1,64}}")]
    Name(String),
    /// A mutating tool is for views only, which may not change anything.
    #[error("`{0}` changes something, so it cannot be for views only")]
    AppOnly(String),
    /// A read tool is marked as destructive.
    #[error(
        "`{0}` is registered as a reader, which changes nothing, but its specification is marked as destructive; implement \
         `WriteTool` or `ActTool`"
    )]
    DestructiveReader(String),
    /// The intent template is invalid.
    #[error("the intent of `{tool}` is not a valid template")]
    Intent {
        /// The tool.
        tool: String,
        /// The error and its position.
        source: IntentError,
    },
    /// The intent template names an argument that the tool does not have.
    #[error(
        "the intent of `{tool}` names `{{{argument}}}`, and the tool has no such argument; write `\\{{` for a brace"
    )]
    IntentArgument {
        /// The tool.
        tool: String,
        /// The argument, as in the template.
        argument: String,
    },
    /// A declared scope is invalid.
    #[error("invalid scope `{scope}` of the tool `{tool}` (`ToolSpec::scopes`)")]
    Scope {
        /// The tool.
        tool: String,
        /// The scope.
        scope: String,
        /// Why it is invalid.
        source: ScopeError,
    },
    /// No call of the tool could ever run.
    #[error("`{0}` may run 0 calls at once (`ToolSpec::max_concurrent_calls`): use at least 1")]
    MaxConcurrentCalls(String),
    /// The shell template is invalid.
    #[error("the command line of `{tool}` is not a valid template")]
    CommandLine {
        /// The tool.
        tool: String,
        /// The error and its position.
        source: IntentError,
    },
}

/// The tools that a runtime offers to its workers.
///
/// ```
/// use bailiwick::ToolSet;
/// assert_eq!(ToolSet::new().names().count(), 0);
/// ```
#[derive(Debug, Default)]
pub struct ToolSet {
    tools: HashMap<ToolName, Arc<Entry>, FixedState>,
    faults: Vec<RegistryError>,
    layers: Vec<LayerStatus>,
}

impl ToolSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a read tool.
    #[must_use]
    pub fn reader<T: ReadTool>(self, tool: T) -> Self {
        let (spec, tool) = (tool.spec(), Arc::new(tool));
        let output_schema = ToolSchema::new(schema::output::<T::Output>);
        self.add(spec, output_schema, false, move |args, names, _| {
            let prepared = tool.prepare(args, names)?;
            let job = Reading {
                tool: Arc::clone(&tool),
                job: prepared.job,
            };
            Ok((prepared.needs, Job::Read(Arc::new(job))))
        })
    }

    /// Adds a write tool.
    #[must_use]
    pub fn writer<T: WriteTool>(self, tool: T) -> Self {
        let (spec, tool) = (tool.spec(), Arc::new(tool));
        let output_schema = ToolSchema::new(schema::output::<T::Output>);
        self.add(spec, output_schema, true, move |args, names, parameters| {
            let prepared = tool.prepare(args, names)?;
            let job = Writing {
                tool: Arc::clone(&tool),
                parameters: Arc::clone(parameters),
                job: prepared.job,
            };
            Ok((prepared.needs, Job::Write(Arc::new(job))))
        })
    }

    /// Adds a tool with arguments of the type `A`. `prepare` also gets the parameters of the tool.
    pub(super) fn add<A: DeserializeOwned + JsonSchema + 'static>(
        self,
        spec: ToolSpec,
        output_schema: ToolSchema,
        mutates: bool,
        prepare: impl Fn(A, &Namespace, &Arc<Parameters>) -> Result<(Vec<Scope>, Job), CallError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let input_schema = schema::of_arguments::<A>(&spec);
        let parameters = Arc::new(Parameters {
            schema: input_schema.clone(),
            examples: spec.examples,
        });
        let prepare = move |arguments: Arguments<'_>, names: &Namespace| {
            let prepared = prepare(read(&parameters, arguments)?, names, &parameters);
            prepared.map_err(|error| parameters.with_example(error))
        };
        self.insert(Entry {
            name: ToolName::new(&spec.name),
            spec,
            intent: None,
            input_schema,
            output_schema,
            mutates,
            remote: None,
            prepare: Box::new(prepare),
        })
    }

    /// Declares that the tools of this set work on files in the roots. They run on the I/O threads, where the jobs of
    /// one root never occupy all threads. Other tools run on separate threads (`RuntimeBuilder::tool_threads`).
    #[must_use]
    pub fn for_files(mut self) -> Self {
        for entry in self.tools.values_mut() {
            // The set is not shared until a runtime takes it.
            if let Some(entry) = Arc::get_mut(entry) {
                entry.spec.for_files = true;
            }
        }
        self
    }

    /// Adds what the operating system enforces for the tools of this set, for
    /// [`Status::layers`](crate::worker::Status::layers).
    #[must_use]
    pub fn layers(mut self, layers: impl IntoIterator<Item = LayerStatus>) -> Self {
        self.layers.extend(layers);
        self
    }

    /// Adds the tools of another set.
    #[must_use]
    pub fn and(mut self, mut other: Self) -> Self {
        self.faults.append(&mut other.faults);
        self.layers.append(&mut other.layers);
        // Sorted, so that the faults always have the same order.
        other.entries().cloned().fold(self, Self::keep)
    }

    /// Returns the names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries().map(|entry| entry.name.as_str())
    }

    /// Returns the tools with their schemas, sorted by name.
    #[must_use]
    pub fn infos(&self) -> Vec<ToolInfo> {
        self.entries().map(|entry| entry.info()).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.tools.get(name)
    }

    /// The tools, sorted by name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let mut entries: Vec<_> = self.tools.values().collect();
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        entries.into_iter()
    }

    /// What the operating system enforces for the tools of the set.
    pub(crate) fn own_layers(&self) -> &[LayerStatus] {
        &self.layers
    }

    /// The faults of the set.
    pub(crate) fn faults(&self) -> &[RegistryError] {
        &self.faults
    }

    fn insert(mut self, mut entry: Entry) -> Self {
        let name = &*entry.spec.name;
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if name.is_empty() || name.len() > 64 || !plain {
            self.faults.push(RegistryError::Name(name.to_owned()));
        }
        if entry.spec.app_only && entry.mutates {
            self.faults.push(RegistryError::AppOnly(name.to_owned()));
        }
        if entry.spec.destructive && !entry.mutates {
            let fault = RegistryError::DestructiveReader(name.to_owned());
            self.faults.push(fault);
        }
        if entry.spec.max_concurrent_calls == Some(0) {
            let fault = RegistryError::MaxConcurrentCalls(name.to_owned());
            self.faults.push(fault);
        }
        for scope in &entry.spec.scopes {
            if let Err(source) = scope.parse::<ScopePattern>() {
                self.faults.push(RegistryError::Scope {
                    tool: name.to_owned(),
                    scope: crate::text::escape(scope).into(),
                    source,
                });
            }
        }
        if !entry.spec.intent.is_empty() {
            match IntentTemplate::parse(&entry.spec.intent) {
                Ok(template) => {
                    let unknown = template.unknown_arguments(&entry.input_schema);
                    let faults =
                        unknown
                            .into_iter()
                            .map(|argument| RegistryError::IntentArgument {
                                tool: name.to_owned(),
                                argument,
                            });
                    self.faults.extend(faults);
                    entry.intent = Some(template);
                }
                Err(source) => self.faults.push(RegistryError::Intent {
                    tool: name.to_owned(),
                    source,
                }),
            }
        }
        if let Err(source) = IntentTemplate::parse(entry.spec.command_line) {
            self.faults.push(RegistryError::CommandLine {
                tool: name.to_owned(),
                source,
            });
        }
        self.keep(Arc::new(entry))
    }

    fn keep(mut self, entry: Arc<Entry>) -> Self {
        if let Some(twin) = self.tools.insert(entry.name.clone(), entry) {
            self.faults
                .push(RegistryError::Duplicate(twin.spec.name.to_string()));
        }
        self
    }
}

fn read<A: DeserializeOwned + 'static>(
    parameters: &Parameters,
    arguments: Arguments<'_>,
) -> Result<A, CallError> {
    match arguments {
        // A call without arguments may omit them.
        Arguments::Json(Value::Null) => parameters.read(&Value::Object(serde_json::Map::new())),
        Arguments::Json(value) => parameters.read(value),
        Arguments::Typed(value) => match value.downcast() {
            Ok(args) => Ok(*args),
            Err(_) => Err(CallError::new(
                Code::InvalidArguments,
                "the arguments are of another tool's type",
            )),
        },
    }
}

struct Reading<T: ReadTool> {
    tool: Arc<T>,
    job: T::Job,
}

impl<T: ReadTool> fmt::Debug for Reading<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

impl<T: ReadTool> ReadJob for Reading<T> {
    fn read_now(&self, permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        self.tool.read_now(&self.job, permit)
    }

    fn read(&self, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        self.tool.read(&self.job, permit)
    }
}

struct Writing<T: WriteTool> {
    tool: Arc<T>,
    parameters: Arc<Parameters>,
    job: T::Job,
}

impl<T: WriteTool> fmt::Debug for Writing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

impl<T: WriteTool> WriteJob for Writing<T> {
    fn also_needs(&self, permit: &ReadPermit) -> Vec<Scope> {
        self.tool.also_needs(&self.job, permit)
    }

    fn plan(&self, permit: &ReadPermit) -> Result<AnyPlan, Interrupt> {
        let plan = self.tool.plan(&self.job, permit);
        let plan = plan.map_err(|interrupt| match interrupt {
            Interrupt::Failed(error) => Interrupt::Failed(self.parameters.with_example(error)),
            interrupt => interrupt,
        });
        plan?.try_map(any)
    }

    fn apply(&self, steps: Box<dyn Any + Send>, permit: WritePermit) -> Result<(), CallError> {
        self.tool.apply(own::<T>(steps)?, permit)
    }

    fn undo_record(&self, plan: &AnyPlan) -> UndoRecord {
        let inverse = plan.inverse.as_ref();
        let inverse = inverse.and_then(|inverse| inverse.downcast_ref());
        let steps = plan.steps.downcast_ref();
        steps
            .map(|steps| self.tool.undo_record(steps, inverse))
            .unwrap_or_default()
    }

    fn divisible(&self) -> bool {
        T::DIVISIBLE
    }

    fn divide(&self, plan: AnyPlan, left_out: &[ExcludedChange]) -> Result<AnyPlan, CallError> {
        let plan = plan.try_map(own::<T>)?;
        self.tool.divide(plan, left_out)?.try_map(any)
    }
}

/// Erases the type of the steps of a plan.
fn any<S: Send + 'static, E>(steps: S) -> Result<Box<dyn Any + Send>, E> {
    Ok(Box::new(steps))
}

fn own<T: WriteTool>(steps: Box<dyn Any + Send>) -> Result<T::Steps, CallError> {
    let foreign = |_| CallError::new(Code::Internal, "the plan belongs to another tool");
    steps.downcast().map(|steps| *steps).map_err(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intent::IntentFault;
    use serde_json::json;

    #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    struct At {
        #[serde(rename = "path")]
        _path: String,
    }

    /// A tool with this sentence for people.
    struct Saying(&'static str);

    impl ReadTool for Saying {
        type Args = At;
        type Output = Value;
        type Job = ();

        fn spec(&self) -> ToolSpec {
            let spec = ToolSpec::new("saying", "Saying", "Says nothing.").intent(self.0);
            match self.0 {
                "Destroy" => spec.destructive(),
                _ => spec,
            }
        }

        fn prepare(&self, _: At, _: &Namespace) -> Result<super::super::Prepared<()>, CallError> {
            Ok(super::super::Prepared {
                needs: Vec::new(),
                job: (),
            })
        }

        fn read(&self, (): &(), _: &ReadPermit) -> Result<Reply, Interrupt> {
            Ok(Reply::text("", json!({})))
        }
    }

    #[test]
    fn destructive_read_tool_is_rejected() {
        let tools = |sentence| ToolSet::new().reader(Saying(sentence));
        let fault = RegistryError::DestructiveReader("saying".to_owned());
        assert_eq!(tools("Destroy").faults(), [fault]);
        assert_eq!(tools("Describe").faults(), []);
    }

    #[test]
    fn invalid_intent_template_is_rejected() {
        let fault = RegistryError::Intent {
            tool: "saying".to_owned(),
            source: IntentError {
                at: 5,
                fault: IntentFault::UnclosedPlaceholder,
            },
        };
        let faults = |sentence| ToolSet::new().reader(Saying(sentence)).faults;
        assert_eq!(faults("Open {path"), std::slice::from_ref(&fault));
        assert_eq!(faults("Open {path}"), []);
        assert_eq!(faults(""), []);
        let joined = ToolSet::new().and(ToolSet::new().reader(Saying("Open {path")));
        assert_eq!(joined.faults, [fault]);
    }

    fn faults_of(spec: ToolSpec) -> Vec<String> {
        let needs = |_: &At, _: &_| Ok(Vec::new());
        let tools = ToolSet::new().read_function(spec, needs, |_, _| Ok(Reply::text("", ())));
        tools.faults().iter().map(ToString::to_string).collect()
    }

    fn saying() -> ToolSpec {
        ToolSpec::new("saying", "Saying", "Says nothing.")
    }

    #[test]
    fn invalid_declared_scope_is_rejected() {
        assert_eq!(
            faults_of(saying().scopes(&["read:shop", "post:shop"])),
            ["invalid scope `post:shop` of the tool `saying` (`ToolSpec::scopes`)"]
        );
    }

    #[test]
    fn zero_concurrent_calls_are_rejected() {
        assert_eq!(
            faults_of(saying().max_concurrent_calls(0)),
            ["`saying` may run 0 calls at once (`ToolSpec::max_concurrent_calls`): use at least 1"]
        );
        assert!(faults_of(saying().max_concurrent_calls(1)).is_empty());
    }

    #[test]
    fn intent_with_an_unknown_argument_is_rejected() {
        let unknown = "the intent of `saying` names `{x}`, and the tool has no such argument; write `\\{` for a brace";
        assert_eq!(faults_of(saying().intent("Do {x}")), [unknown]);
        assert_eq!(
            faults_of(saying().intent("Do {path} [at {x.y}]")),
            [unknown]
        );
        assert!(faults_of(saying().intent("Do \\{x\\} {path}")).is_empty());
        let open = json!({ "type": "object", "properties": {}, "additionalProperties": true });
        let open = saying().intent("Do {x}").input_schema(open);
        assert!(faults_of(open).is_empty());
        let other = json!({ "type": "object", "properties": { "x": {} } });
        let other = saying().intent("Do {x} {path}").input_schema(other);
        assert_eq!(faults_of(other), [unknown.replace("{x}", "{path}")]);
    }
}
