//! `stat`: returns metadata.

use bailiwick::config::Namespace;
use bailiwick::text::escape;
use bailiwick::tool::{Example, Failure, Interrupt, Prepared, ReadPermit};
use bailiwick::{CallError, Code, ReadTool, Reply, Scope, ToolSpec, Verb, VirtualPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hash::HashPrefix;
use super::{counted, suggest};
use crate::change::tree;
use crate::read_view::ReadView;
use crate::resolve::{self, Kind, Meta};

/// Maximum size of a file to hash.
const MAX_HASHED: u64 = 64 * 1024 * 1024;

/// Returns metadata.
#[derive(Debug)]
pub(crate) struct Stat;

/// Arguments of `stat`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatArgs {
    /// File or directory.
    pub path: String,
    /// Include a file's `hash`.
    #[serde(default)]
    pub hash: bool,
}

/// Output of `stat`.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StatOutput {
    /// Its path, links followed.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub bytes: u64,
    /// Modification time, in UTC.
    pub modified: String,
    /// Its permission bits, in octal.
    pub mode: String,
    /// Number of hard links; others may be outside the roots.
    pub hard_links: u64,
    /// Prefix of the SHA-256 of a file, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashPrefix>,
}

/// Parsed arguments.
#[derive(Debug)]
pub(crate) struct Job {
    path: VirtualPath,
    hash: bool,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Get the metadata of a file",
    input: r#"{"path": "notes.txt"}"#,
    output: r#"{"kind": "file", "bytes": 14}"#,
}];
const FAILURES: &[Failure] = &[Failure {
    code: Code::NotFound,
    when: "the path does not exist",
    resolution: "List its parent directory",
}];

impl ReadTool for Stat {
    type Args = StatArgs;
    type Output = StatOutput;
    type Job = Job;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "stat",
            "Get metadata",
            "Returns kind, size, modification time and permission bits of a path.",
        )
        .intent("Look at the size and times of {path}")
        .scopes(&["read:file"])
        .idempotent()
        .group("directories", 0.5)
        .command_line("stat -L -- {path}")
        .examples(EXAMPLES)
        .failures(FAILURES)
    }

    fn prepare(&self, args: StatArgs, names: &Namespace) -> Result<Prepared<Job>, CallError> {
        let path = names.path_argument("/path", &args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path.clone())],
            job: Job {
                path,
                hash: args.hash,
            },
        })
    }

    fn read_now(&self, job: &Job, permit: &ReadPermit) -> Option<Result<Reply, Interrupt>> {
        if job.hash {
            return None;
        }
        let meta = resolve::try_stat_nowait(permit, &job.path)?;
        Some(Ok(facts(permit, &job.path, &meta, None)))
    }

    fn read(&self, job: &Job, permit: &ReadPermit) -> Result<Reply, Interrupt> {
        stat(permit, job)
    }
}

fn stat(view: &dyn ReadView, job: &Job) -> Result<Reply, Interrupt> {
    let path = &job.path;
    let Some(meta) = resolve::entry(view, path)? else {
        return Err(suggest::not_found(view, path).into());
    };
    if !job.hash || meta.kind != Kind::File {
        return Ok(facts(view, path, &meta, None));
    }
    let opened = resolve::file(view, path)?;
    if opened.meta.len > MAX_HASHED {
        let message = format!("`{path}` has more than the {MAX_HASHED} bytes that are hashed");
        return Err(CallError::new(Code::TooLarge, message).into());
    }
    let (hash, _) = tree::hash_file(&opened, MAX_HASHED, path, view)?;
    Ok(facts(view, path, &opened.meta, Some(hash.into())))
}

fn facts(view: &dyn ReadView, path: &VirtualPath, meta: &Meta, hash: Option<HashPrefix>) -> Reply {
    let facts = StatOutput {
        path: view.actual(path).to_string(),
        kind: meta.kind,
        bytes: meta.len,
        modified: meta.modified_text(),
        mode: format!("{:04o}", meta.mode),
        hard_links: meta.links,
        hash,
    };
    let kind = match facts.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Link => "link",
        Kind::Special => "special file",
    };
    let mut text = format!(
        "{}: {kind}, {}, modified {}, mode {}, {}",
        escape(&facts.path),
        counted(facts.bytes, "byte"),
        facts.modified,
        facts.mode,
        counted(facts.hard_links, "hard link")
    );
    if let Some(hash) = &facts.hash {
        text.push_str(&format!(", hash {hash}"));
    }
    Reply::text(text, facts)
}

#[cfg(test)]
mod tests {
    use bailiwick::Code;
    use bailiwick::effect::ContentHash;
    use serde_json::json;

    use super::*;
    use crate::testing::{World, path};

    fn job(requested: &str, hash: bool) -> Job {
        let path = path(requested);
        Job { path, hash }
    }

    #[test]
    fn hash_is_returned_on_request() {
        let world = World::new(&["file root/f four", "file root/d/g x", "link root/l f"]);
        let shown_hash = |requested: &str, hash| {
            let reply = world.run(|view| stat(view, &job(requested, hash))).unwrap();
            reply.output.to_json().unwrap()["hash"].clone()
        };
        let hash = json!(HashPrefix::from(ContentHash::of(b"four")));
        assert_eq!(
            (shown_hash("/r/f", true), shown_hash("/r/l", true)),
            (hash.clone(), hash)
        );
        assert_eq!(shown_hash("/r/f", false), json!(null));
        assert_eq!(shown_hash("/r/d", true), json!(null));
    }

    #[test]
    fn metadata_behind_a_link_has_the_real_path() {
        let world = World::new(&["file root/d/f four", "link root/l d/f"]);
        let reply = world.run(|view| stat(view, &job("/r/l", false))).unwrap();
        let facts = reply.output.to_json().unwrap();
        assert_eq!(facts["path"], json!("/r/d/f"));
        assert_eq!(facts["bytes"], json!(4));
        assert_eq!(facts["kind"], json!("file"));
    }

    #[test]
    fn denied_file_reveals_nothing() {
        let world = World::new(&["file root/secrets/key x", "link root/l secrets/key"]);
        assert_eq!(
            world
                .run(|view| stat(view, &job("/r/l", false)))
                .unwrap_err(),
            Code::NotFound
        );
        assert_eq!(
            world
                .run(|view| stat(view, &job("/r/n", false)))
                .unwrap_err(),
            Code::NotFound
        );
    }
}
