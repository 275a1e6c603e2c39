//! `list_roots`: lists the open folders of a worker.

use std::fmt::Write as _;

use bailiwick::config::{Namespace, UnavailableRoot};
use bailiwick::policy::OpenFolder;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, ReadTool, Reply, ToolSpec, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lists the open folders.
#[derive(Debug)]
pub(crate) struct ListRoots;

/// Arguments of `list_roots`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRootsArgs {}

/// Output of `list_roots`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListRootsOutput {
    /// Folders that you may read.
    pub roots: Vec<String>,
    /// Folders in which you may change something.
    pub writable: Vec<String>,
    /// Base of relative paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_root: Option<String>,
    /// Configured folders that could not be opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub unavailable: Vec<UnavailableFolder>,
}

/// A folder that is not open.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnavailableFolder {
    /// Its path.
    pub path: String,
    /// Why it could not be opened.
    pub reason: String,
}

/// The default folder and unavailable roots.
#[derive(Debug)]
pub(crate) struct Job {
    default_root: Option<String>,
    unavailable: Vec<UnavailableRoot>,
}

const EXAMPLES: &[Example] = &[Example {
    description: "List the folders that may be used",
    input: "{}",
    output: r#"{"roots": ["/repo"], "writable": ["/repo"], "default_root": "/repo"}"#,
}];

impl ReadTool for ListRoots {
    type Args = ListRootsArgs;
    type Output = ListRootsOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "list_roots",
            "List roots",
            "Lists the folders you may use and what is allowed there. Start here if paths are unknown.",
        )
        .intent("List the directories it may use")
        .idempotent()
        .group("directories", 1.0)
        .page(super::FILE_BROWSER)
        .examples(EXAMPLES)
    }

    fn prepare(
        &self,
        _: ListRootsArgs,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError> {
        let job = Job {
            default_root: names.default_root().map(ToString::to_string),
            unavailable: names.unavailable_roots().to_vec(),
        };
        Ok(Prepared {
            needs: Vec::new(),
            job,
        })
    }

    fn read(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        Ok(list(permit.open_folders(), job))
    }
}

fn list(open: &[OpenFolder], job: &Job) -> Reply {
    let paths = |wanted: fn(&OpenFolder) -> bool| {
        let wanted = open.iter().filter(|folder| wanted(folder));
        wanted.map(|folder| folder.path.to_string()).collect()
    };
    let roots: Vec<String> = paths(OpenFolder::is_outermost);
    let writable = paths(|folder| folder.write != Verdict::Deny);
    let mut text = String::new();
    for folder in open {
        let _ = writeln!(text, "{folder}");
    }
    for root in &job.unavailable {
        let _ = writeln!(text, "not open: {}", escape(&root.reason));
    }
    match job.default_root.as_deref() {
        _ if open.is_empty() => text.push_str(
            "no folder is open to you; ask the person who runs the server for a directory, or for a policy that allows one\n",
        ),
        Some(root) => {
            let _ = writeln!(text, "relative paths begin in `{}`", escape(root));
        }
        None => text.push_str("paths must be absolute\n"),
    }
    let unavailable = job.unavailable.iter().map(|root| UnavailableFolder {
        path: root.path.to_string(),
        reason: root.reason.clone(),
    });
    Reply::text(
        text,
        ListRootsOutput {
            roots,
            writable,
            default_root: job.default_root.clone(),
            unavailable: unavailable.collect(),
        },
    )
}
