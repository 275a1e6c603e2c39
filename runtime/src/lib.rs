//! bailiwick: every sub-agent gets its own bailiwick, and no more.

mod artifact;
mod call;
mod capability;
mod config;
mod effect;
mod error;
mod escape;
mod id;
mod path;
mod policy;
mod root;
mod scope;
mod tool;

pub use artifact::ArtifactRef;
pub use call::{Call, CallMeta, Origin};
pub use capability::{Budget, Commit, ReadPermit, WritePermit, not_yours};
pub use config::{Config, Namespace, RootConfig};
pub use effect::{
    Change, Content, ContentHash, Cost, Entry, FileDiff, Hunk, HunkLine, NotAHash, Op, Outcome,
    Output, Plan, Preview, PreviewToken, Reply, Utf8,
};
pub use error::{CallError, Code};
pub use escape::{escape, escape_lines, is_deceptive};
pub use id::{CallId, GrantId, QuestionId, ToolName, WorkerId};
pub use path::{PathError, VirtualPath};
pub use policy::{
    Access, Audience, Authority, Explanation, FIELDS, Field, FieldScope, Layer, LayerName, Limits,
    Policy, PolicyError, PolicyErrorKind, PolicyRoot, Restrict, Verdict, WriteMode, glob_builds,
};
pub use root::{Root, RootError};
pub use scope::{Detail, Resource, Scope, ScopeError, ScopePattern, Verb};
pub use tool::{Halt, Prepared, ReadTool, RegistryError, ToolSet, ToolSpec, WriteTool};
