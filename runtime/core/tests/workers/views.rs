//! Tests that tools for models and tools for views are reached by their own callers only.

use bailiwick::permission::Lifetime;
use bailiwick::tool::RegistryError;
use bailiwick::{
    Answer, Call, CallError, CallMeta, Code, Origin, Policy, Scripted, ToolSet, ToolSpec, Worker,
};
use serde_json::json;

use super::{at, stage};
use bailiwick_test_support::tools::{Board, Peek, Post, Target};

async fn code(worker: &Worker, tool: &str, origin: Origin) -> Option<Code> {
    let meta = CallMeta {
        origin,
        ..CallMeta::default()
    };
    let answer = worker.submit(Call::new(tool, at("x")).meta(meta)).await;
    answer.err().map(|error| error.code())
}

/// A call by a view of a tool that changes something, which a person must allow.
fn asked(tool: &str, path: &str) -> Call {
    Call::new(tool, at(path)).meta(CallMeta {
        origin: Origin::View,
        confirm: true,
        ..CallMeta::default()
    })
}

fn code_of<T>(answer: Result<T, CallError>) -> Option<Code> {
    answer.err().map(|error| error.code())
}

fn names(tools: &[bailiwick::tool::ToolInfo]) -> Vec<&str> {
    tools.iter().map(|tool| &*tool.spec.name).collect()
}

#[tokio::test]
async fn models_cannot_call_view_tools_and_views_cannot_write() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    for (tool, origin, expected) in [
        ("peek", Origin::View, None),
        ("peek", Origin::Human, None),
        ("peek", Origin::Model, Some(Code::UnknownTool)),
        ("echo", Origin::View, None),
        ("echo", Origin::Model, None),
        ("post", Origin::View, Some(Code::UnknownTool)),
        ("post", Origin::Model, None),
    ] {
        assert_eq!(
            code(&worker, tool, origin).await,
            expected,
            "{tool} {origin:?}"
        );
    }
    assert_eq!(stage.board.posted(), ["/r/x"]);
    let peek = bailiwick::tool::ToolName::new("peek");
    let typed = worker.call_typed(&peek, Target { path: "x".into() });
    assert_eq!(typed.await.unwrap_err().code(), Code::UnknownTool);
    let explained = worker.explain(&Call::new("peek", at("x")));
    assert_eq!(explained.unwrap_err().code(), Code::UnknownTool);
}

#[tokio::test]
async fn view_changes_need_approval_each_time_despite_grants() {
    let session = Answer::Allow {
        patterns: Vec::new(),
        lifetime: Lifetime::Session,
        descendants: true,
        left_out: Vec::new(),
    };
    let approver = Scripted::new().rule(move |question| {
        let view = question.request.origin == Origin::View && question.request.preview.is_some();
        (view && question.request.arguments != at("no")).then_some(session.clone())
    });
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.open().await;
    // Its model may post without approval; a view may not, even to the same path and with a session grant.
    assert_eq!(code(&worker, "post", Origin::Model).await, None);
    for _ in 0..2 {
        worker.submit(asked("post", "x")).await.unwrap();
    }
    assert_eq!(stage.board.posted(), ["/r/x"; 3]);
    assert_eq!(stage.texts("asked", "/call").await.len(), 2);
    let refused = worker.submit(asked("post", "no")).await;
    assert_eq!(code_of(refused), Some(Code::PermissionDenied));
    // Needs that a tool finds while it runs are asked about, too.
    worker.submit(asked("strays", "z")).await.unwrap();
    let second = stage.texts("asked", "/event/needs/1").await;
    assert_eq!(second.last(), Some(&Some("write:file:/r/z".to_owned())));
    assert_eq!(second.len(), 4);
    let explained = worker.explain(&asked("post", "y")).unwrap();
    assert_eq!(explained[0].verdict, bailiwick::Verdict::Ask);
    let narrow = stage.worker(Policy::new().read_only(true)).await;
    let denied = narrow.submit(asked("post", "y")).await;
    assert_eq!(code_of(denied), Some(Code::PermissionDenied));
    assert_eq!(stage.board.posted().len(), 4);
}

#[tokio::test]
async fn view_change_without_approver_needs_a_supplied_grant() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let refused = worker.submit(asked("post", "x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ScopeRequired);
    assert_eq!(refused.requested_scopes()[0].to_string(), "write:file:/r/x");
    for (pattern, expected) in [
        ("write:file:/r/y", Some(Code::ScopeRequired)),
        ("write:file:/r/x", None),
    ] {
        let granted = vec![pattern.parse().unwrap()];
        let done = stage.grants.submit(&worker, asked("post", "x"), granted);
        assert_eq!(code_of(done.await), expected, "{pattern}");
    }
    assert_eq!(stage.board.posted(), ["/r/x"]);
}

#[tokio::test]
async fn view_change_without_needs_is_denied() {
    let root = tempfile::tempdir().unwrap();
    let built = bailiwick::Runtime::builder()
        .root("r", root.path())
        .tools(ToolSet::new().writer(Unnamed))
        .approver(Scripted::new().rule(|_| Some(Answer::ONCE)));
    let (runtime, _grants) = built.build().await.unwrap();
    let spec = bailiwick::WorkerSpec::new("main").policy(Policy::new());
    let worker = runtime.spawn(spec).await.unwrap();
    let refused = worker.submit(asked("unnamed", "x")).await;
    assert_eq!(code_of(refused), Some(Code::PermissionDenied));
    let model = worker.submit(Call::new("unnamed", at("x"))).await;
    assert_eq!(code_of(model), None);
}

#[tokio::test]
async fn view_tools_are_not_offered_to_models() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    assert!(!names(&worker.tools()).contains(&"peek"));
    assert_eq!(names(&worker.tools_for_views()), ["peek"]);
    assert_eq!(worker.tools_for_views()[0].visibility(), ["app"]);
    let under = worker.tools_under(&json!({}), Origin::Model).unwrap();
    assert_eq!(names(&under), names(&worker.tools()));
    for tool in worker.tools() {
        let expected: &[&str] = if tool.mutates {
            &["model"]
        } else {
            &["model", "app"]
        };
        assert_eq!(tool.visibility(), expected, "{}", tool.spec.name);
    }
    let narrowed = stage.worker(Policy::new().tools(["echo"])).await;
    assert!(narrowed.tools_for_views().is_empty());
}

/// A write tool without needs.
struct Unnamed;

impl bailiwick::WriteTool for Unnamed {
    type Args = Target;
    type Output = <Post as bailiwick::WriteTool>::Output;
    type Job = bailiwick::VirtualPath;
    type Steps = <Post as bailiwick::WriteTool>::Steps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("unnamed", "Unnamed", "Posts what it does not name.")
    }

    fn prepare(
        &self,
        args: Target,
        names: &bailiwick::config::Namespace,
    ) -> Result<bailiwick::tool::Prepared<Self::Job>, CallError> {
        let mut prepared = Post(Board::default()).prepare(args, names)?;
        prepared.needs.clear();
        Ok(prepared)
    }

    fn plan(
        &self,
        job: &Self::Job,
        permit: &bailiwick::tool::ReadPermit,
    ) -> Result<bailiwick::Plan<Self::Steps>, bailiwick::tool::Interrupt> {
        Post(Board::default()).plan(job, permit)
    }

    fn apply(
        &self,
        steps: Self::Steps,
        permit: bailiwick::tool::WritePermit,
    ) -> Result<(), CallError> {
        Post(Board::default()).apply(steps, permit)
    }
}

/// [`Post`], offered to views only.
struct Slips;

impl bailiwick::WriteTool for Slips {
    type Args = Target;
    type Output = <Post as bailiwick::WriteTool>::Output;
    type Job = bailiwick::VirtualPath;
    type Steps = <Post as bailiwick::WriteTool>::Steps;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("slips", "Slip", "Posts for a view.").app_only()
    }

    fn prepare(
        &self,
        args: Target,
        names: &bailiwick::config::Namespace,
    ) -> Result<bailiwick::tool::Prepared<Self::Job>, CallError> {
        Post(Board::default()).prepare(args, names)
    }

    fn plan(
        &self,
        job: &Self::Job,
        permit: &bailiwick::tool::ReadPermit,
    ) -> Result<bailiwick::Plan<Self::Steps>, bailiwick::tool::Interrupt> {
        Post(Board::default()).plan(job, permit)
    }

    fn apply(
        &self,
        steps: Self::Steps,
        permit: bailiwick::tool::WritePermit,
    ) -> Result<(), CallError> {
        Post(Board::default()).apply(steps, permit)
    }
}

#[tokio::test]
async fn write_tool_for_views_only_is_rejected() {
    let built = |tools: ToolSet| bailiwick::Runtime::builder().tools(tools).build();
    let refused = built(ToolSet::new().reader(Peek).writer(Slips)).await;
    let fault = RegistryError::AppOnly("slips".into());
    assert!(
        refused.is_err_and(|error| error.to_string() == fault.to_string()),
        "it was served"
    );
    assert!(built(ToolSet::new().reader(Peek)).await.is_ok());
}
