//! What an agent may do, and what a grant would have changed.

use std::sync::Arc;

use bailiwick::permission::{GrantAuthority, GrantHolder, NewGrant, Run};
use bailiwick::policy::{Statement, StatementSource, StatementVerdict};
use bailiwick::scope::{Operations, Scope};
use bailiwick::{Verdict, VirtualPath, Worker, WorkerId};
use serde::Serialize;

use crate::response::grant_name;

/// Maximum number of calls in a [`WouldAllow`].
const MAX_CALLS: usize = 20;

/// One sentence on what an agent may do.
#[derive(Debug, Serialize)]
pub(super) struct StatementView {
    verdict: StatementVerdict,
    text: String,
    operations: Operations,
    path: Option<VirtualPath>,
    source: StatementSource,
    grant: Option<String>,
    expires_at: Option<u64>,
    uses_left: Option<u32>,
}

/// What a worker of the run may do: its policy, and the grants that it may use.
pub(super) async fn statements(worker: &Worker, run: Run) -> Vec<StatementView> {
    let view = |one: Statement| StatementView {
        verdict: one.verdict,
        text: one.text,
        operations: one.operations,
        path: one.path,
        source: one.source,
        grant: one.grant.map(|grant| grant_name(run, grant)),
        expires_at: one.expires_at.map(|end| run.at_ms(end)),
        uses_left: one.uses_left,
    };
    worker.permissions().await.into_iter().map(view).collect()
}

/// A call that needed a person.
#[derive(Clone, Debug)]
pub(super) struct AskedCall {
    /// `RUN-NUMBER`.
    pub(super) call: String,
    /// When it was made, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) worker: WorkerId,
    /// The path of the agent.
    pub(super) agent: Arc<str>,
    pub(super) sentence: String,
    /// The scopes that a person was asked for; `None` if not all of them are kept.
    pub(super) needs: Option<Vec<Scope>>,
}

/// What a grant would allow, and the calls that it would have allowed without a question.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct WouldAllow {
    /// What it allows, as a sentence.
    covers: String,
    /// The first calls.
    calls: Vec<AllowedCall>,
    count: usize,
    /// The number of calls that needed a person.
    of: usize,
}

#[derive(Debug, PartialEq, Serialize)]
struct AllowedCall {
    call: String,
    at: u64,
    agent: Arc<str>,
    sentence: String,
}

/// Which of `asked` the grant would have allowed without a question.
pub(super) fn would_allow(
    asked: impl IntoIterator<Item = AskedCall>,
    grant: &NewGrant,
    grants: &GrantAuthority,
) -> WouldAllow {
    let granted = std::slice::from_ref(&grant.pattern);
    // A protected file needs a grant that names it.
    let allows = |need: &Scope| {
        grant.pattern.covers(need) && grants.authority().judge(need, granted) == Verdict::Allow
    };
    let holder = grants.agent(&grant.holder);
    let mut found = WouldAllow {
        covers: grants.covers(&grant.pattern),
        calls: Vec::new(),
        count: 0,
        of: 0,
    };
    for call in asked {
        found.of += 1;
        let beneath = || {
            let rest = holder
                .as_deref()
                .and_then(|top| call.agent.strip_prefix(top));
            grant.descendants && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let own = match &grant.holder {
            GrantHolder::Agent(agent) => *agent == call.agent,
            GrantHolder::Worker(worker) | GrantHolder::Session { worker, .. } => {
                *worker == call.worker
            }
        };
        let covers = |needs: Vec<Scope>| needs.iter().all(allows);
        if !(own || beneath()) || !call.needs.is_some_and(covers) {
            continue;
        }
        found.count += 1;
        if found.calls.len() < MAX_CALLS {
            found.calls.push(AllowedCall {
                call: call.call,
                at: call.at,
                agent: call.agent,
                sentence: call.sentence,
            });
        }
    }
    found
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "the root of a test is a directory of the host"
)]
mod tests {
    use bailiwick::permission::Lifetime;
    use bailiwick::scope::Operation;
    use bailiwick::{Deferred, Policy, Runtime, WorkerSpec};
    use serde_json::json;

    use super::*;

    async fn runtime() -> (tempfile::TempDir, Runtime, GrantAuthority) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("repo")).unwrap();
        let builder = Runtime::builder().root("repo", temp.path().join("repo"));
        let (runtime, grants) = builder.approver(Deferred).build().await.unwrap();
        (temp, runtime, grants)
    }

    fn grant(pattern: &str, holder: GrantHolder) -> NewGrant {
        NewGrant {
            pattern: pattern.parse().unwrap(),
            holder,
            lifetime: Lifetime::Agent,
            descendants: false,
        }
    }

    #[tokio::test]
    async fn statements_have_the_policy_and_the_usable_grants() {
        let (_temp, runtime, grants) = runtime().await;
        let policy = Policy::new().allow("read:file").ask("write:file:/repo/src");
        let spawn = |name: &str| runtime.spawn(WorkerSpec::new(name).policy(policy.clone()));
        let (worker, other) = (spawn("main").await.unwrap(), spawn("other").await.unwrap());
        let main = GrantHolder::Agent("main".into());
        let id = grants
            .grant(grant("write:file:/repo/src/a", main))
            .await
            .unwrap();
        let shown = serde_json::to_value(statements(&worker, grants.run()).await).unwrap();
        let read = json!({
            "verdict": "allowed", "text": "read everything in /repo", "operations": ["read"], "path": "/repo",
            "source": { "kind": "configuration", "text": "a root of the configuration contains it" },
            "grant": null, "expires_at": null, "uses_left": null,
        });
        assert_eq!(shown[0], read);
        assert_eq!(shown[1]["verdict"], "asks");
        let source = json!({ "kind": "spawn", "text": "a person must be asked (ask_scopes: `write:file:/repo/src`)" });
        assert_eq!(shown[1]["source"], source);
        let last = shown.as_array().unwrap().last().unwrap();
        assert_eq!(last["grant"], grant_name(grants.run(), id));
        assert_eq!(
            (&last["verdict"], &last["path"]),
            (&json!("allowed"), &json!("/repo/src/a"))
        );
        let others = statements(&other, grants.run()).await;
        assert!(others.iter().all(|one| one.grant.is_none()));
        runtime.shutdown().await;
    }

    #[tokio::test]
    async fn grant_would_allow_calls_of_its_holder_that_it_covers_entirely() {
        let (_temp, runtime, grants) = runtime().await;
        let worker = runtime.spawn(WorkerSpec::new("main")).await.unwrap();
        let asked = |agent: &str, worker: u64, paths: &[&str]| AskedCall {
            call: format!("run-{agent}"),
            at: 1,
            worker: WorkerId(worker),
            agent: agent.into(),
            sentence: "Change x".to_owned(),
            needs: Some(
                paths
                    .iter()
                    .map(|path| {
                        Scope::doing(Operation::Change, VirtualPath::parse(path, None).unwrap())
                    })
                    .collect(),
            ),
        };
        let own = worker.id().0;
        let calls = vec![
            asked("main", own, &["/repo/a/x"]),
            asked("main", 99, &["/repo/a/x", "/repo/b"]),
            asked("main", 99, &["/repo/a/.mcp.json"]),
            asked("main", 99, &["/repo/a/y"]),
            asked("main/tests", 98, &["/repo/a/x"]),
            asked("mainly", 97, &["/repo/a/x"]),
        ];
        let count = |pattern: &str, holder: GrantHolder, descendants| {
            let grant = NewGrant {
                descendants,
                ..grant(pattern, holder)
            };
            let found = would_allow(calls.clone(), &grant, &grants);
            assert_eq!((found.of, found.calls.len()), (6, found.count));
            found.count
        };
        let main = || GrantHolder::Agent("main".into());
        assert_eq!(count("write:file:/repo/a", main(), false), 2);
        assert_eq!(count("write:file:/repo/a", main(), true), 3);
        assert_eq!(count("write:file:/repo", main(), false), 3);
        assert_eq!(count("write:file:/repo/a/.mcp.json", main(), false), 1);
        assert_eq!(count("read:file:/repo", main(), true), 0);
        assert_eq!(
            count(
                "write:file:/repo/a",
                GrantHolder::Worker(worker.id()),
                false
            ),
            1
        );
        let many = std::iter::repeat_with(|| asked("main", 1, &["/repo/a/x"])).take(50);
        let found = would_allow(many, &grant("write:file:/repo/a", main()), &grants);
        assert_eq!((found.calls.len(), found.count, found.of), (20, 50, 50));
        runtime.shutdown().await;
    }
}
