//! Tools for models and tools for views in, each reached by its own callers alone out.

use bailiwick::{Call, CallMeta, Code, Origin, Policy, RegistryError, ToolSet, ToolSpec, Worker};
use serde_json::json;

use super::tools::{Board, Peek, Post, Target};
use super::{at, stage};

async fn code(worker: &Worker, tool: &str, origin: Origin) -> Option<Code> {
    let meta = CallMeta {
        origin,
        ..CallMeta::default()
    };
    let answer = worker.submit(Call::new(tool, at("x")).meta(meta)).await;
    answer.err().map(|error| error.code())
}

fn names(tools: &[bailiwick::ToolInfo]) -> Vec<&str> {
    tools.iter().map(|tool| &*tool.spec.name).collect()
}

#[tokio::test]
async fn a_tool_for_views_is_no_models_and_no_view_changes_anything() {
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
    let peek = bailiwick::ToolName::new("peek");
    let typed = worker.call_typed(&peek, Target { path: "x".into() });
    assert_eq!(typed.await.unwrap_err().code(), Code::UnknownTool);
    let explained = worker.explain(&Call::new("peek", at("x")));
    assert_eq!(explained.unwrap_err().code(), Code::UnknownTool);
}

#[tokio::test]
async fn models_are_offered_no_tool_of_views() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    assert!(!names(&worker.tools()).contains(&"peek"));
    assert_eq!(names(&worker.app_tools()), ["peek"]);
    assert_eq!(worker.app_tools()[0].visibility(), ["app"]);
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
    assert!(narrowed.app_tools().is_empty());
}

/// [`Post`], offered to views alone.
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
        names: &bailiwick::Namespace,
    ) -> Result<bailiwick::Prepared<Self::Job>, bailiwick::CallError> {
        Post(Board::default()).prepare(args, names)
    }

    fn plan(
        &self,
        job: &Self::Job,
        permit: &bailiwick::ReadPermit,
    ) -> Result<bailiwick::Plan<Self::Steps>, bailiwick::Halt> {
        Post(Board::default()).plan(job, permit)
    }

    fn apply(
        &self,
        steps: Self::Steps,
        permit: bailiwick::WritePermit,
    ) -> Result<(), bailiwick::CallError> {
        Post(Board::default()).apply(steps, permit)
    }
}

#[tokio::test]
async fn a_tool_that_changes_something_cannot_be_for_views_alone() {
    let built = |tools: ToolSet| bailiwick::Runtime::builder().tools(tools).build();
    let refused = built(ToolSet::new().reader(Peek).writer(Slips)).await;
    let fault = RegistryError::AppOnly("slips".into());
    assert!(
        refused.is_err_and(|error| error.to_string() == fault.to_string()),
        "it was served"
    );
    assert!(built(ToolSet::new().reader(Peek)).await.is_ok());
}
