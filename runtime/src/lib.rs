//! bailiwick: every sub-agent gets its own bailiwick, and no more.

mod artifact;
mod audit;
mod call;
mod capability;
#[cfg(test)]
mod cases;
mod config;
mod effect;
mod error;
mod escape;
mod id;
mod path;
mod permission;
mod policy;
mod root;
mod scope;
mod tool;

pub use artifact::ArtifactRef;
pub use audit::{
    AnsweredStep, AuditBroken, AuditError, AuditEvent, AuditFileError, AuditSink, BreakReason,
    ChangeSummary, GrantedStep, Head, JsonLines, MemoryAudit, Record, Step, TornLine, Verified,
    verify,
};
pub use call::{Call, CallMeta, Origin};
pub use capability::{Budget, Commit, ReadPermit, WritePermit, not_yours};
pub use config::Namespace;
pub use effect::{
    Change, Content, ContentHash, Cost, Entry, FileDiff, Hunk, HunkLine, NotAHash, Op, Outcome,
    Output, Plan, Preview, PreviewToken, Reply, Utf8,
};
pub use error::{CallError, Code};
pub use escape::{escape, escape_lines, is_deceptive};
pub use id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
pub use path::{PathError, VirtualPath};
pub use permission::{
    Answer, Approver, AskLimits, AuthorityError, Deciding, Decision, Deferred, DenyAll,
    GrantAuthority, GrantHolder, GrantView, Lifetime, NewGrant, Question, QuestionState, Request,
    Scripted, Terminal,
};
pub use policy::{Authority, Limits, Verdict};
pub use root::{Root, RootError};
pub use scope::{Detail, Resource, Scope, ScopeError, ScopePattern, Verb};
pub use tool::{Halt, Prepared, ReadTool, RegistryError, ToolSet, ToolSpec, WriteTool};
