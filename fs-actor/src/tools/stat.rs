//! A path in, what stands there and its size and times out.

use bailiwick::{
    CallError, Code, Example, Failure, Halt, Namespace, Prepared, ReadPermit, ReadTool, Reply,
    Scope, ToolSpec, Verb, VirtualPath, escape, not_yours,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::suggest;
use crate::lens::Lens;
use crate::resolve::{self, Kind, Meta};

/// Tells what stands at a path.
#[derive(Debug)]
pub(crate) struct Stat;

/// What to look at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatArgs {
    /// The file or directory. A link is followed if it leads to a place that you may read.
    pub path: String,
}

/// What stands there.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FactsFound {
    /// Its path, links followed.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Its length in bytes.
    pub bytes: u64,
    /// When its content last changed, in UTC.
    pub modified: String,
    /// Its permission bits, in octal.
    pub mode: String,
    /// How many names it has on its file system; other names may lie outside the roots.
    pub hard_links: u64,
}

const EXAMPLES: &[Example] = &[Example {
    description: "Look at a file",
    input: r#"{"path": "notes.txt"}"#,
    output: r#"{"kind": "file", "bytes": 14}"#,
}];
const FAILURES: &[Failure] = &[Failure {
    code: Code::NotFound,
    when: "nothing is there",
    resolution: "List the directory above it",
}];

impl ReadTool for Stat {
    type Args = StatArgs;
    type Output = FactsFound;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "stat",
            "File facts",
            "Tells whether a path is a file or directory, its size, time of change and permission bits, without reading it.",
        )
        .intent("Look at the size and times of {path}")
        .scopes(&["read:file"])
        .idempotent()
        .group("directories", 0.5)
.command_line("stat -L -- {path}")
.examples(EXAMPLES)
.failures(FAILURES)
    }

    fn prepare(
        &self,
        args: StatArgs,
        names: &Namespace,
    ) -> Result<Prepared<VirtualPath>, CallError> {
        let job = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, job.clone())],
            job,
        })
    }

    fn read_now(&self, job: &VirtualPath, permit: &ReadPermit) -> Option<Result<Reply, Halt>> {
        let meta = resolve::entry_at_hand(permit, job)?;
        Some(Ok(tell(permit, job, &meta)))
    }

    fn read(&self, job: &VirtualPath, permit: &ReadPermit) -> Result<Reply, Halt> {
        stat(permit, job)
    }
}

fn stat(lens: &dyn Lens, path: &VirtualPath) -> Result<Reply, Halt> {
    let Some(meta) = resolve::entry(lens, path)? else {
        return Err(suggest::instead(lens, path, not_yours(path)).into());
    };
    Ok(tell(lens, path, &meta))
}

fn tell(lens: &dyn Lens, path: &VirtualPath, meta: &Meta) -> Reply {
    let facts = FactsFound {
        path: lens.actual(path).to_string(),
        kind: meta.kind,
        bytes: meta.len,
        modified: meta.modified_text(),
        mode: format!("{:04o}", meta.mode),
        hard_links: meta.links,
    };
    let kind = match facts.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Link => "link",
        Kind::Special => "special file",
    };
    let text = format!(
        "{}: {kind}, {} bytes, changed {}, mode {}",
        escape(&facts.path),
        facts.bytes,
        facts.modified,
        facts.mode
    );
    Reply::text(text, facts)
}

#[cfg(test)]
mod tests {
    use bailiwick::Code;
    use serde_json::json;

    use super::*;
    use crate::testing::{World, path};

    #[test]
    fn the_facts_of_a_file_behind_a_link_name_where_it_really_is() {
        let world = World::new(&["file root/d/f four", "link root/l d/f"]);
        let reply = world.run(|view| stat(view, &path("/r/l"))).unwrap();
        let facts = reply.output.to_json().unwrap();
        assert_eq!(facts["path"], json!("/r/d/f"));
        assert_eq!(facts["bytes"], json!(4));
        assert_eq!(facts["kind"], json!("file"));
    }

    #[test]
    fn nothing_is_told_of_a_denied_file() {
        let world = World::new(&["file root/secrets/key x", "link root/l secrets/key"]);
        assert_eq!(
            world.run(|view| stat(view, &path("/r/l"))).unwrap_err(),
            Code::NotFound
        );
        assert_eq!(
            world.run(|view| stat(view, &path("/r/n"))).unwrap_err(),
            Code::NotFound
        );
    }
}
