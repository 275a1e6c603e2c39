//! Nothing in, the directories that this worker was given out.

use std::fmt::Write as _;

use bailiwick::{
    CallError, Example, Halt, Namespace, Prepared, ReadPermit, ReadTool, Reply, ToolSpec, Verdict,
    escape,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lens::Lens;

/// Lists the roots.
#[derive(Debug)]
pub(crate) struct ListRoots;

/// No arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRootsArgs {}

/// The roots.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Roots {
    /// Where they begin.
    pub roots: Vec<String>,
    /// Where relative paths begin, if they may be used.
    pub default_root: Option<String>,
}

const EXAMPLES: &[Example] = &[Example {
    description: "List what may be worked in",
    input: "{}",
    output: r#"{"roots": ["/repo"], "default_root": "/repo"}"#,
}];

impl ReadTool for ListRoots {
    type Args = ListRootsArgs;
    type Output = Roots;
    type Job = Option<String>;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(
            "list_roots",
            "List roots",
            "Lists the directories that you may work in. Every other path is out of reach. Begin here if you do not know the paths.",
        )
        .intent("List the directories it may use")
        .idempotent()
        .group("directories", 1.0)
.examples(EXAMPLES)
    }

    fn prepare(
        &self,
        _: ListRootsArgs,
        names: &Namespace,
    ) -> Result<Prepared<Self::Job>, CallError> {
        let job = names.default_root().map(ToString::to_string);
        Ok(Prepared {
            needs: Vec::new(),
            job,
        })
    }

    fn read_now(&self, job: &Self::Job, permit: &ReadPermit) -> Option<Result<Reply, Halt>> {
        Some(Ok(list(permit, job.as_deref())))
    }

    fn read(&self, job: &Self::Job, permit: &ReadPermit) -> Result<Reply, Halt> {
        Ok(list(permit, job.as_deref()))
    }
}

fn list(lens: &dyn Lens, default_root: Option<&str>) -> Reply {
    let places = lens.places().into_iter();
    let known = places.filter(|place| lens.judge(place.mount) != Verdict::Deny);
    let roots: Vec<String> = known.map(|place| place.mount.to_string()).collect();
    let default_root = default_root.filter(|root| roots.iter().any(|known| known == root));
    let mut text = String::new();
    for root in &roots {
        let relative = if default_root == Some(root) {
            " (relative paths begin here)"
        } else {
            ""
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}{relative}", escape(root));
    }
    if roots.is_empty() {
        text.push_str("no whole root is open to you; use the paths you were told\n");
    }
    let default_root = default_root.map(str::to_owned);
    Reply::text(
        text,
        Roots {
            roots,
            default_root,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;

    #[test]
    fn roots_are_listed_unless_they_are_denied() {
        let mut world = World::new(&[]);
        let roots = |world: &World| {
            let reply = list(&world.lens(), Some("/r"));
            reply.output.to_json().unwrap()
        };
        let all = serde_json::json!({"roots": ["/r", "/s"], "default_root": "/r"});
        assert_eq!(roots(&world), all);
        world.denied = |path| path == "/r";
        let fewer = serde_json::json!({"roots": ["/s"], "default_root": null});
        assert_eq!(roots(&world), fewer);
    }
}
