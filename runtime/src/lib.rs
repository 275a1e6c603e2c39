//! Every LLM sub-agent gets its own bailiwick: the sphere in which it has authority, and no more.
//!
//! A host links this crate, spawns one [`Worker`] per task of a sub-agent and gives it a [`Policy`]. Whatever the model
//! asks for, the worker can do only what its policy leaves of its parent's authority. People see what a call would do
//! before it happens, and can widen authority with a grant that no model can forge.
//!
//! # Life of a call
//! ```text
//!        (1)        (2)            (3)             (4)          (5)        (6)           (7)        (8)
//! Call ─▶ parse ─▶ judge by ─▶ ask, if the ─▶ permit ───────▶ plan ─▶ preview │ apply ─▶ artifact ─▶ reply
//!         args     policy +     verdict is     (capability)          (effect)                       every step,
//!                  grants       Ask                                                                 refusals too,
//!                                                                                                   is audited
//! ```
//!
//! # Glossary
//! | word | meaning |
//! |---|---|
//! | host | the program that links this crate |
//! | runtime | the entry point: configuration, tools, approver, audit; spawns workers |
//! | worker | the actor that serves one sub-agent task, under all policy layers above it |
//! | root | a directory that a person configured, opened once with ambient authority |
//! | policy | data that can only restrict; a worker's authority is the conjunction of all policy layers |
//! | scope | `verb:resource[:detail]`, what one call needs; a *pattern* covers scopes |
//! | grant | a pattern that a person added, with a lifetime |
//! | verdict | `Allow < Ask < Deny` |
//! | permit | proof that a call was authorised, which only the pipeline can create; effects take it by value |
//! | plan | what a call would do, computed from the current state; nothing has changed yet |
//! | intent | one sentence for people that describes a call, rendered from the tool's template and the arguments |
//! | preview | a plan rendered for people and programs; `apply` carries out the same plan |
//! | artifact | a by-product for people behind a `ui://` URI: a `.diff`, a `.json`, a review page |
//! | view | a running MCP App, and the actor that represents it beside a worker |
//! | approver | whoever answers an `Ask`: a person, a script, or deny-all |
//!
//! # Example
//! ```
//! use bailiwick::{Policy, Runtime, ToolSet, WorkerSpec};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let repo = tempfile::tempdir()?;
//! let (runtime, _grants) = Runtime::builder().root("repo", repo.path()).tools(ToolSet::new()).build().await?;
//! let policy = Policy::new().allow("read:file").allow("write:file:/repo/src").deny_glob("**/.env");
//! let worker = runtime.spawn(WorkerSpec::new("fix the parser").policy(policy)).await?;
//!
//! let wider = Policy::new().allow("write:file:/repo");
//! let refused = worker.spawn(WorkerSpec::new("too much").policy(wider)).await;
//! assert!(refused.is_err());
//!
//! worker.revoke().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// In reading order: calls, policy, effects, actors.
#[cfg(not(target_os = "linux"))]
compile_error!(
    "bailiwick works on Linux only: it opens and watches files by system calls that other systems do not have"
);

mod call;
mod effect;
mod error;
mod escape;
mod id;
mod intent;
mod json;
mod path;
mod scope;

mod budget;
mod capability;
#[cfg(test)]
mod cases;
pub mod config;
mod policy;
#[cfg(feature = "mcp")]
mod rate;
mod root;

mod artifact;
mod audit;
mod describe;
#[cfg(feature = "mcp")]
mod inotify;
mod permission;
mod pipeline;
mod private_file;
mod tool;

#[cfg(all(feature = "ui", feature = "http"))]
mod console;
#[cfg(feature = "mcp")]
mod gateway;
pub mod guide;
mod host;
pub mod recipes;
mod supervisor;
#[cfg(feature = "mcp")]
mod upstream;
#[cfg(feature = "mcp")]
mod view;
mod worker;

pub use artifact::Artifact;
pub use audit::{
    AnsweredStep, AuditBroken, AuditError, AuditEvent, AuditFileError, AuditFileFault, AuditSink,
    BreakReason, ChangeSummary, FailedStep, GrantedStep, Head, JsonLines, MemoryAudit,
    NarrowedStep, Record, RequestOutcome, SignedInStep, Step, TornLine, Verified, json_line,
    verify, verify_after, verify_file,
};
pub use budget::Budget;
pub use call::{Asks, Call, CallMeta, Origin, Progress};
pub use capability::{BudgetExceeded, Commit, Interrupt, ReadPermit, WritePermit};
pub use config::{
    Config, ConfigError, ConfigSource, ConfigSources, Effective, Namespace, Restriction,
    RootConfig, UnavailableRoot, config_schema, policy_schema,
};
#[cfg(all(feature = "ui", feature = "http"))]
pub use console::{Console, ConsoleAudit, ConsoleError, ConsoleSource};
pub use describe::{
    Alternatives, Description, Install, ServerDoc, Troubleshooting, UnknownSection,
};
pub use effect::{
    ArtifactRef, Change, ContainedEntry, Content, ContentHash, Cost, DirectoryContents, Entry,
    EntryKind, ExcludedHunks, FileDiff, Hunk, HunkLine, Op, Outcome, Output, ParseContentHashError,
    Plan, Preview, PreviewToken, Reply, Utf8,
};
pub use error::{CallError, Code};
pub use escape::{escape, escape_lines, is_deceptive, listed};
#[cfg(feature = "mcp")]
pub use gateway::{
    AppPage, Backend, BackendError, BackendFactory, FileTools, Gateway, GatewayBuilder,
    GatewayInfo, RefusalHints, ServeError, Trust,
};
#[cfg(feature = "http")]
pub use gateway::{Endpoint, Http, HttpError, Token};
pub use host::{BuildError, Runtime, RuntimeBuilder};
pub use id::{CallId, GrantId, ParseGrantIdError, QuestionId, SilencedId, ToolName, WorkerId};
pub use intent::{IntentError, IntentFault, IntentTemplate, Lint};
pub use json::read_json;
pub use path::{PathError, VirtualPath};
pub use permission::{
    Answer, AnswerOption, Approver, AskLimits, AuthorityError, Batch, BatchAnswer, BatchItem,
    BlockCall, BlockExtra, BlockKind, BlockStatus, Breadth, CallOutcome, CallTally, Changes,
    Choice, DecidedBy, Deciding, Decision, Deferred, Denial, DeniedCalls, DenyAll, GrantAuthority,
    GrantDamage, GrantEditError, GrantFilter, GrantHolder, GrantStore, GrantStoreError, GrantUse,
    GrantView, GrantWriteError, GrantsRevoked, History, HistoryEntry, HistoryEvent, HistoryFilter,
    HistoryReport, Lifetime, Narrowing, NewGrant, NotBatchable, OptionKind, PastCall, PastQuestion,
    PermissionBlock, PermissionRequest, PermissionRequired, PermissionType, Question,
    QuestionState, RepeatedQuestion, Request, RevokeCause, Run, Scripted, ServerCard, Silenced,
    StoredGrant, Suggestion, Tally, Template, TemplateError, Terminal, batches, suggest,
};
pub use policy::{
    Access, Authority, Explanation, InvalidGlob, Layer, LayerName, Limits, OpenFolder, PathGlob,
    Policy, PolicyError, PolicyErrorKind, PolicyRoot, Verdict, WriteMode, fold, glob_builds,
};
#[cfg(feature = "mcp")]
pub use rate::Rate;
pub use root::{Root, RootError};
pub use scope::{
    Coverage, Detail, Operation, Operations, Reach, Resource, Scope, ScopeError, ScopePattern, Verb,
};
pub use supervisor::{Revoked, SpawnError};
pub use tool::{
    Example, Failure, Prepared, ReadTool, RegistryError, Reverse, ToolInfo, ToolSet, ToolSpec,
    WriteTool,
};
#[cfg(feature = "mcp")]
pub use upstream::{
    Bounds, BoxFuture, CallRequests, DenyRequests, Elicitation, ElicitationKind,
    ElicitationResponse, Fingerprint, MessageRole, PinStore, PinStoreError, Priorities,
    PromptArgument, RequestCapabilities, Sampling, SamplingResponse, SchemaError, SchemaFault,
    SchemaValidator, ServerFailure, ServerMessage, ServerPrompt, ServerReadError, ServerRequests,
    ServerResource, ServerSpec, ServerState, ServerText, ServerTool, ServersContext, ServersError,
    ServersFile, SpecError, Upstreams, UpstreamsBuilder, WithheldReason,
};
#[cfg(feature = "oauth")]
pub use upstream::{LoopbackRedirect, OAuth, SignIn, SignInAnswer, TokenStore};
#[cfg(feature = "mcp")]
pub use view::{
    DenyView, DisplayMode, ModelContext, View, ViewCapabilities, ViewChannel, ViewError, ViewEvent,
    ViewHost, ViewLimits, ViewRequest, ViewSender, ViewSpec, ViewState,
};
pub use worker::{Admission, CallProgress, PendingCall, Status, Worker, WorkerSpec};
