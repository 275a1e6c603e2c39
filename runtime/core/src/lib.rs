//! A runtime that confines LLM sub-agents: each one calls tools through an actor whose authority can only be narrowed.
//!
//! A program links this crate, spawns one [`Worker`] for each sub-agent task and gives it a [`Policy`]. The worker can do
//! only what both its policy and its parent's authority allow, whatever the model requests. People see what a call would
//! change before it runs. They can allow more with grants, which a model cannot create.
//!
//! # Life of a call
//! The glossary below explains the terms. If the worker may read the files, the plan is made before a person is asked, so
//! that the question includes the diff. Every step is audited, also that of a denied call.
//!
//! ```text
//!        (1)        (2)             (3)             (4)          (5)        (6)           (7)        (8)
//! Call ─▶ parse ─▶ authorise ─▶ ask, if the ─▶ permit ───────▶ plan ─▶ preview │ apply ─▶ artifact ─▶ reply
//!         args     policy +      verdict is     (capability)          (effect)
//!                  grants        Ask
//! ```
//!
//! # Modules
//! The crate root is a prelude: it exports the names that most programs need. Each of them is also in the module that it
//! belongs to, except for [`Runtime`], its builder and its errors, [`WeakRuntime`], [`CallError`] and [`Code`], which only
//! the root has. No other item has two paths. The modules are:
//!
//! | module | contents |
//! |---|---|
//! | [`policy`], [`config`] | policies of workers, and the configuration that people write |
//! | [`scope`], [`path`] | what calls need, and what patterns and grants cover; virtual paths |
//! | [`permission`] | questions, grants, approvers, history, templates |
//! | [`worker`], [`call`] | workers and their calls, metadata of calls |
//! | [`tool`], [`effect`] | traits for your own tools; plans, changes and results |
//! | [`audit`], [`artifact`] | the hash-chained audit log; review pages and diffs of calls |
//! | [`journal`] | what calls changed, and how it is undone |
//! | [`monitor`] | events and counters of a runtime |
//! | [`activity`] | recent calls and ended questions of a runtime, for people who watch it |
//! | [`intent`], [`describe`] | sentences that describe calls to people; descriptions of a server for agents |
//! | [`requests`] | requests that third-party MCP servers send to the host |
//! | [`json`], [`text`] | JSON without duplicate keys; untrusted text, escaped for display |
//! | [`root`] | open root directories |
//! | [`guide`], [`recipes`] | how to embed the library, write policies, manage grants and keep an audit; adapters for agent frameworks |
//!
//! # Related crates
//! | crate | contents |
//! |---|---|
//! | `bailiwick-fs` | file tools for workers |
//! | `bailiwick-mcp` | the MCP server for workers, the MCP client for third-party servers, and MCP Apps views |
//! | `bailiwick-console` | the web page on which people answer questions and manage grants |
//! | `bailiwick-exec` | commands in a sandbox |
//! | `bailiwick-ui` | built web pages, such as the review of a change |
//! | `bailiwick-cli` | the program `bailiwick` |
//!
//! # Glossary
//! | word | meaning |
//! |---|---|
//! | host | the program that links this crate |
//! | runtime | the entry point: has the configuration, tools, approver and audit log, and spawns workers |
//! | worker | the actor that runs the tool calls of one sub-agent task |
//! | agent | the path of the names of a worker and its ancestors, such as `main/tests` |
//! | root | a directory that a person configured and that the runtime opened |
//! | policy | a layer of an authority; it can only restrict |
//! | issuer | whose authority a policy narrows: the parent of a worker, or the worker that makes a call |
//! | authority | what a worker may do: the conjunction of the configuration and all policy layers down to its own policy |
//! | scope | `verb:resource[:detail]`, such as `write:file:/repo/a.rs`; a *pattern* covers scopes |
//! | need | a scope that a call requires |
//! | verdict | the decision on a need: `Allow`, `Ask` or `Deny`; the strictest verdict of all layers counts |
//! | approver | answers the questions that result from `Ask`: a person, a script, or deny-all |
//! | grant | a pattern that a person added, with a lifetime; it turns `Ask` into `Allow` |
//! | session | a group of workers, by default a top-level worker and its descendants; session grants end with it |
//! | permit | proof that a call was authorised, which only the pipeline can create; every effect consumes one |
//! | pipeline | the code that takes a call through the steps above |
//! | plan | what a call would do, computed from the current state; nothing has changed yet |
//! | intent | one sentence that describes a call to people, rendered from the tool's template and the arguments |
//! | preview | a plan rendered for people and programs; `apply` carries out the same plan |
//! | artifact | an additional result of a call for people, with a `ui://` URI: a `.diff`, a `.json`, a review page |
//! | view | a running MCP App: an HTML page that an MCP server provides, and the actor that represents it (`bailiwick-mcp`) |
//!
//! # Example
//! ```
//! use bailiwick::{Policy, Runtime, ToolSet, WorkerSpec};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let repo = tempfile::tempdir()?;
//! let (runtime, _grants) = Runtime::builder().root("repo", repo.path()).tools(ToolSet::new()).build().await?;
//! let policy = Policy::nothing().allow("read:file").allow("write:file:/repo/src").deny_glob("**/.env");
//! let worker = runtime.spawn(WorkerSpec::new("fix the parser").policy(policy)).await?;
//!
//! let wider = Policy::nothing().allow("write:file:/repo");
//! let refused = worker.spawn(WorkerSpec::new("too much").policy(wider)).await;
//! assert!(refused.is_err());
//!
//! worker.revoke().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "bailiwick works on Linux only: it opens and watches files by system calls that other systems do not have"
);

pub mod call;
pub mod effect;
mod error;
mod id;
pub mod intent;
pub mod json;
pub mod path;
pub mod requests;
pub mod scope;
pub mod text;

mod budget;
mod capability;
#[cfg(test)]
mod cases;
pub mod config;
#[doc(hidden)]
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod policy;
pub mod root;

pub mod activity;
pub mod artifact;
pub mod audit;
pub mod describe;
pub mod journal;
pub mod monitor;
pub mod permission;
mod pipeline;
#[doc(hidden)]
pub mod private_file;
pub mod tool;

pub mod guide;
mod host;
pub mod recipes;
mod supervisor;
pub mod worker;

pub use audit::{JsonLines, MemoryAudit};
pub use call::{Call, CallMeta, Origin};
pub use config::Config;
pub use effect::{Change, Outcome, Plan, Preview, Reply};
pub use error::{CallError, Code};
pub use host::{BuildError, BuildFault, Runtime, RuntimeBuilder, WeakRuntime};
pub use id::WorkerId;
pub use path::VirtualPath;
pub use permission::{
    Answer, Approver, Deferred, DenyAll, GrantAuthority, Question, Scripted, Terminal,
};
pub use policy::{Policy, Verdict};
pub use scope::{Scope, Verb};
pub use supervisor::SpawnError;
pub use tool::{ActTool, ReadTool, ToolSet, ToolSpec, WriteTool};
pub use worker::{PendingCall, Worker, WorkerSpec};
