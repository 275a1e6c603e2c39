//! Tests of act tools: approval, previews, and how their calls are stopped.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::call::Progress;
use bailiwick::config::Namespace;
use bailiwick::effect::ResourceChange;
use bailiwick::tool::{ActPermit, ActProgress, Foreseen, OutputStream, Prepared, Rights};
use bailiwick::{
    ActTool, Answer, Call, CallError, CallMeta, Code, Deferred, Policy, Reply, Scope, Scripted,
    ToolSet, ToolSpec, Verb, VirtualPath, Worker,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{Stage, at, stage};
use bailiwick_test_support::tools::{Said, Target, said};
use bailiwick_test_support::wait;

/// What the tools sent, and how many of their futures exist.
#[derive(Clone, Default)]
struct Wire(Arc<watch::Sender<(Vec<String>, usize)>>);

impl Wire {
    fn sent(&self) -> Vec<String> {
        self.0.borrow().0.clone()
    }

    fn futures(&self) -> usize {
        self.0.borrow().1
    }

    /// Waits until as many futures exist.
    async fn wait_for(&self, futures: usize) {
        let mut state = self.0.subscribe();
        state.wait_for(|state| state.1 == futures).await.unwrap();
    }

    async fn wait_for_sent(&self) {
        let mut state = self.0.subscribe();
        state.wait_for(|state| !state.0.is_empty()).await.unwrap();
    }
}

/// Counts a future until it is dropped.
struct Counted(Wire);

impl Counted {
    fn new(wire: &Wire) -> Self {
        wire.0.send_modify(|state| state.1 += 1);
        Self(wire.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.1 -= 1);
    }
}

/// Sends a path; the last part of the path says how the call goes.
struct Send(Wire);

impl ActTool for Send {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("send", "Send", "Sends the path.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Write, path.clone())],
            job: path,
        })
    }

    fn foresee(&self, job: &VirtualPath, _: &Rights<'_>) -> Foreseen {
        if job.as_str().ends_with("unknown") {
            return Foreseen::Unknown;
        }
        assert!(
            !job.as_str().ends_with("unforeseen"),
            "as a broken tool would"
        );
        let sent = ResourceChange::new("wire", "send the path").after(job.as_str());
        Foreseen::Changes(vec![sent])
    }

    async fn act(
        &self,
        job: &VirtualPath,
        permit: ActPermit,
        progress: ActProgress,
    ) -> Result<Reply, CallError> {
        let counted = Counted::new(&self.0);
        let how = job.as_str().rsplit('/').next().unwrap();
        if how == "waits" {
            std::future::pending::<()>().await;
        }
        assert_ne!(how, "panics", "as a broken tool would");
        if let Some(how) = how.strip_prefix("reserved_") {
            let act = permit.reserve()?;
            if how != "unbegun" {
                act.begin()?;
            }
            if how == "undone" {
                act.undo_begin();
            }
            return Err(CallError::new(Code::Conflict, "not prepared"));
        }
        let time_left = permit.time_left();
        let act = permit.begin()?;
        progress.step();
        if how == "records" {
            assert!(time_left.is_some_and(|left| !left.is_zero()));
            act.record(&json!({ "exit": 3 }))?;
            act.keep_output(OutputStream::Stderr, "the output");
            progress.message("first\nsecond");
        }
        if how == "records_too_much" {
            act.record(&"x".repeat(70_000))?;
        }
        self.0.0.send_modify(|state| state.0.push(job.to_string()));
        match how {
            "hangs" => std::future::pending::<()>().await,
            "breaks" => panic!("as a broken tool would"),
            "fails" => return Err(CallError::new(Code::Conflict, "refused there")),
            _ => {}
        }
        drop(counted);
        Ok(said(job))
    }
}

async fn acting(
    configure: impl FnOnce(bailiwick::RuntimeBuilder) -> bailiwick::RuntimeBuilder,
) -> (Stage, Wire) {
    let wire = Wire::default();
    let tools = ToolSet::new().actor(Send(wire.clone()));
    let stage = stage(|builder| configure(builder.tools(tools))).await;
    (stage, wire)
}

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

fn begin(
    worker: &Worker,
    path: &'static str,
) -> tokio::task::JoinHandle<Result<String, CallError>> {
    tokio::spawn(send(worker.clone(), path))
}

async fn send(worker: Worker, path: &'static str) -> Result<String, CallError> {
    Ok(worker.call("send", at(path)).await?.text())
}

#[tokio::test]
async fn effect_that_was_reserved_has_begun_only_once_the_tool_says_so() {
    let (stage, _) = acting(|builder| builder).await;
    let worker = stage.open().await;
    for (path, has_begun) in [
        ("/r/src/reserved_unbegun", false),
        ("/r/src/reserved_begun", true),
        ("/r/src/reserved_undone", false),
    ] {
        let error = send(worker.clone(), path).await.unwrap_err();
        check(&error, Code::Conflict, has_begun, None);
    }
}

/// Checks the code of an error, whether it says that the effect began, and how many steps were done.
#[track_caller]
fn check(error: &CallError, code: Code, begun: bool, done: Option<u64>) {
    assert_eq!(error.code(), code, "{error}");
    let detail = |key: &str| error.details().get(key);
    assert_eq!(detail("begun"), begun.then_some(&Value::Bool(true)));
    assert_eq!(detail("done").and_then(Value::as_u64), done);
}

#[tokio::test]
async fn allowed_act_is_audited_before_and_after_its_effect() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    let outcome = worker.call("send", at("now")).await.unwrap();
    assert_eq!(
        (outcome.text().as_str(), outcome.recorded),
        ("/r/now", true)
    );
    assert_eq!(outcome.resources[0].after.as_deref(), Some("/r/now"));
    assert_eq!(outcome.artifacts.len(), 2, "{:?}", outcome.artifacts);
    assert_eq!(wire.sent(), ["/r/now"]);
    let steps = [
        "spawned",
        "judged",
        "planned",
        "applying",
        "applied",
        "artifacts",
        "finished",
    ];
    assert_eq!(stage.steps().await, steps);
    let changed = stage.texts("planned", "/event/resources/0/resource").await;
    assert_eq!(changed, [Some("wire".to_owned())]);
}

#[tokio::test]
async fn details_and_output_of_an_act_are_audited_and_kept_for_people() {
    let (stage, _wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    let progress = Progress::default();
    let call = Call::new("send", at("records")).meta(CallMeta {
        progress: Some(progress.clone()),
        ..CallMeta::default()
    });
    let outcome = worker.submit(call).await.unwrap();
    assert_eq!(progress.message().as_deref(), Some("first\\u{a}second"));
    let steps = stage.steps().await;
    let recorded = ["applying", "recorded", "applied"];
    assert_eq!(steps[3..6], recorded);
    let exit = stage.texts("recorded", "/event/details").await;
    assert_eq!(exit.len(), 1, "{exit:?}");
    let kept = outcome.artifacts.iter().find(|it| it.name == "stderr");
    let kept = stage.runtime.artifact(&kept.unwrap().uri).unwrap();
    assert_eq!(
        (kept.mime, &*kept.bytes),
        ("text/plain", &b"the output"[..])
    );
}

#[tokio::test]
async fn details_that_are_too_large_for_the_audit_are_rejected() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    let large = worker.call("send", at("records_too_much")).await;
    check(&large.unwrap_err(), Code::TooLarge, true, Some(1));
    assert!(wire.sent().is_empty());
    assert!(!stage.steps().await.contains(&"recorded".to_owned()));
}

#[tokio::test]
async fn question_about_an_act_has_its_foreseen_changes() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = Scripted::new().rule(move |question| {
        let preview = question.request.preview.as_ref().unwrap();
        seen.lock().unwrap().push(preview.resources.clone());
        let denied = question.request.arguments["path"] == "src/denied";
        Some(if denied { Answer::DENY } else { Answer::ONCE })
    });
    let (stage, wire) = acting(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    worker.call("send", at("src/unknown")).await.unwrap();
    let denied = worker.call("send", at("src/denied")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert_eq!(wire.sent(), ["/r/src/unknown"]);
    let unknown = ResourceChange::new("send", "what the call changes is known only afterwards");
    let stated = ResourceChange::new("wire", "send the path").after("/r/src/denied");
    assert_eq!(*asked.lock().unwrap(), [vec![unknown], vec![stated]]);
    let steps = stage.steps().await;
    let of_call = &steps[1..11];
    let expected = [
        "judged",
        "planned",
        "previewed",
        "artifacts",
        "asked",
        "answered",
        "judged",
        "planned",
        "applying",
        "applied",
    ];
    assert_eq!(of_call, expected);
}

#[tokio::test]
async fn function_and_data_tools_are_approved_and_run() {
    let name = |kind: &str| format!("{kind}_{}", "orders");
    let need = |path: &str, verb| -> Result<Vec<Scope>, CallError> {
        let path = VirtualPath::parse(path, None).unwrap();
        Ok(vec![Scope::file(verb, path)])
    };
    let mut spec = ToolSpec::new(name("get"), "Get", "Gets.")
        .input_schema(json!({ "type": "object", "properties": { "id": { "type": "integer" } } }));
    spec.scopes = vec!["read:file".to_owned().into()];
    let tools = ToolSet::new()
        .read_function(
            spec,
            move |_: &Value, _| need("/r/orders", Verb::Read),
            |args, _| Ok(Reply::text(args["id"].to_string(), ())),
        )
        .act_function(
            ToolSpec::new(name("post"), "Post", "Posts."),
            move |_: &Target, _| need("/r/src/orders", Verb::Write),
            |args: Arc<Target>, permit: ActPermit, _| async move {
                let _act = permit.begin()?;
                Ok(Reply::text(args.path.clone(), ()))
            },
        );
    let approver = Scripted::new().rule(|question| {
        let preview = question.request.preview.as_ref()?;
        (preview.resources.len() == 1).then_some(Answer::ONCE)
    });
    let stage = stage(|builder| builder.tools(tools).approver(approver)).await;
    let worker = stage.worker(asking()).await;
    let id = json!({ "id": 7 });
    let got = worker.call("get_orders", id).await.unwrap();
    assert_eq!(got.text(), "7");
    let posted = worker.call("post_orders", at("x")).await.unwrap();
    assert_eq!(posted.text(), "x");
    let info = worker.tools().into_iter();
    let mut info = info.filter(|info| info.spec.name == "get_orders");
    let schema = info.next().unwrap().input_schema;
    assert_eq!(schema["properties"]["id"]["type"], "integer");
}

#[tokio::test]
async fn required_preview_applies_to_acts() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.worker(Policy::new().require_preview(true)).await;
    let blind = worker.call("send", at("now")).await.unwrap_err();
    assert_eq!(blind.code(), Code::StalePreview);
    let preview = worker.preview("send", at("now")).await.unwrap();
    assert!(
        preview
            .diff()
            .contains("# wire: send the path\n# +/r/now\n")
    );
    assert!(wire.sent().is_empty());
    let tied = |path: &str| {
        let meta = CallMeta {
            preview_token: Some(preview.token),
            ..CallMeta::default()
        };
        worker.submit(Call::new("send", at(path)).meta(meta))
    };
    let foreign = tied("other").await.unwrap_err();
    assert_eq!(foreign.code(), Code::InvalidArguments);
    assert!(wire.sent().is_empty());
    tied("now").await.unwrap();
    assert_eq!(wire.sent(), ["/r/now"]);
}

#[tokio::test]
async fn act_can_be_previewed_by_arguments() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.worker(Policy::new().require_preview(true)).await;
    let preview = json!({ "path": "now", "preview": true });
    let shown = worker.call("send", preview).await.unwrap();
    assert!(wire.sent().is_empty());
    let text = shown.text();
    let token = text.trim_end_matches(']').rsplit(' ').next().unwrap();
    let structured = shown.structured().unwrap();
    assert_eq!(structured["preview_token"], token);
    let infos = worker.tools().into_iter();
    let mut infos = infos.filter(|info| info.spec.name == "send");
    let schema = infos.next().unwrap().output_schema;
    assert_eq!(schema["properties"]["path"]["type"], "string");
    assert_eq!(
        schema.get("required"),
        None,
        "a preview has no output of the tool"
    );
    let tied = json!({ "path": "now", "preview_token": token });
    worker.call("send", tied).await.unwrap();
    assert_eq!(wire.sent(), ["/r/now"]);
}

#[tokio::test]
async fn act_preview_does_not_ask() {
    let (stage, wire) = acting(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let preview = worker.preview("send", at("src/now")).await.unwrap();
    assert_eq!(preview.resources.len(), 1);
    assert!(stage.grants.questions().await.unwrap().is_empty());
    let denied = worker.preview("send", at("other")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(wire.sent().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_approval_allows_one_of_several_equal_acts() {
    let (stage, wire) = acting(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    let mut calls: JoinSet<_> = (0..8).map(|_| send(worker.clone(), "src/now")).collect();
    let question = stage.question_of(8).await;
    stage.grants.answer(question, Answer::ONCE).await.unwrap();
    let question = stage.question_of(7).await;
    calls.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(wire.sent(), ["/r/src/now"]);
    stage.grants.answer(question, Answer::DENY).await.unwrap();
    for call in calls.join_all().await {
        call.unwrap_err();
    }
    assert_eq!(wire.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revocation_returns_after_the_act_is_dropped() {
    let (stage, wire) = acting(|builder| builder).await;
    for (path, begun) in [("hangs", true), ("waits", false)] {
        let worker = stage.open().await;
        let call = begin(&worker, path);
        wire.wait_for(1).await;
        if begun {
            wire.wait_for_sent().await;
        }
        let revoked = worker.revoke().await;
        assert_eq!((wire.futures(), revoked.unfinished), (0, 0));
        let error = call.await.unwrap().unwrap_err();
        check(&error, Code::Cancelled, begun, begun.then_some(1));
    }
    assert_eq!(wire.sent(), ["/r/hangs"]);
    let other = stage.open().await;
    other.call("send", at("now")).await.unwrap();
}

#[tokio::test]
async fn cancelled_act_is_dropped_and_audited() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    let call = begin(&worker, "hangs");
    wire.wait_for(1).await;
    call.abort();
    wire.wait_for(0).await;
    wait::for_calls(&stage.runtime, &worker, 0).await;
    let steps = stage.steps().await;
    assert_eq!(steps[4..], ["failed CANCELLED", "finished CANCELLED"]);
    worker.call("send", at("now")).await.unwrap();
}

#[tokio::test]
async fn deadline_drops_an_act_and_says_whether_it_began() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    for (path, begun) in [("waits", false), ("hangs", true)] {
        let meta = CallMeta {
            deadline: Some(Duration::from_secs(1)),
            ..CallMeta::default()
        };
        let call = Call::new("send", at(path)).meta(meta);
        let error = worker.submit(call).await.unwrap_err();
        check(&error, Code::Deadline, begun, begun.then_some(1));
        wire.wait_for(0).await;
    }
}

#[tokio::test]
async fn failed_or_panicking_act_reports_its_progress() {
    let (stage, wire) = acting(|builder| builder).await;
    let worker = stage.open().await;
    for (path, code, begun) in [
        ("fails", Code::Conflict, true),
        ("breaks", Code::Internal, true),
        ("panics", Code::Internal, false),
    ] {
        let error = worker.call("send", at(path)).await.unwrap_err();
        check(&error, code, begun, begun.then_some(1));
        wire.wait_for(0).await;
    }
    worker.call("send", at("now")).await.unwrap();
    assert_eq!(wire.sent(), ["/r/fails", "/r/breaks", "/r/now"]);
}

#[tokio::test]
async fn panic_while_changes_are_foreseen_fails_the_call_but_not_the_worker() {
    let (stage, wire) = acting(|builder| builder.approver(Deferred)).await;
    let asked = stage.worker(asking()).await;
    let open = stage.open().await;
    for (worker, path) in [(&open, "unforeseen"), (&asked, "src/unforeseen")] {
        let error = worker.call("send", at(path)).await.unwrap_err();
        check(&error, Code::Internal, false, None);
        let error = worker.preview("send", at(path)).await.unwrap_err();
        check(&error, Code::Internal, false, None);
    }
    assert!(wire.sent().is_empty());
    open.call("send", at("now")).await.unwrap();
    asked.preview("send", at("src/now")).await.unwrap();
}

/// Hands its permit to the test and ends; with a path, it needs no more than to read it.
struct Leak(mpsc::UnboundedSender<ActPermit>);

impl ActTool for Leak {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("leak", "Leak", "Keeps its permit.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        let verb = if args.path.ends_with("read") {
            Verb::Read
        } else {
            Verb::Write
        };
        let needs = vec![Scope::file(verb, path.clone())];
        Ok(Prepared { needs, job: path })
    }

    fn foresee(&self, _: &VirtualPath, _: &Rights<'_>) -> Foreseen {
        Foreseen::Unknown
    }

    async fn act(
        &self,
        job: &VirtualPath,
        permit: ActPermit,
        _: ActProgress,
    ) -> Result<Reply, CallError> {
        self.0.send(permit).unwrap();
        if job.as_str().ends_with("waits") {
            std::future::pending::<()>().await;
        }
        Ok(said(job))
    }
}

async fn leaking() -> (Stage, mpsc::UnboundedReceiver<ActPermit>) {
    let (keep, kept) = mpsc::unbounded_channel();
    let tools = ToolSet::new().actor(Leak(keep));
    (stage(|builder| builder.tools(tools)).await, kept)
}

#[tokio::test]
async fn permit_kept_after_the_call_is_void() {
    let (stage, mut kept) = leaking().await;
    let worker = stage.open().await;
    worker.call("leak", at("now")).await.unwrap();
    let permit = kept.recv().await.unwrap();
    assert_eq!(permit.begin().unwrap_err().code(), Code::Cancelled);
}

#[tokio::test]
async fn revocation_waits_for_an_effect_that_outlives_its_call() {
    let (stage, mut kept) = leaking().await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("leak", at("waits")).await }
    });
    let permit = kept.recv().await.unwrap();
    let act = permit.reserve().unwrap();
    let revoking = tokio::spawn({
        let worker = worker.clone();
        async move { worker.revoke().await }
    });
    assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Cancelled);
    assert!(act.checkpoint().is_err());
    assert_eq!(act.begin().unwrap_err().code(), Code::Cancelled);
    assert!(!revoking.is_finished());
    drop(act);
    assert_eq!(revoking.await.unwrap().unfinished, 0);
}

#[tokio::test]
async fn act_that_needs_only_to_read_is_denied() {
    let (stage, kept) = leaking().await;
    let worker = stage.open().await;
    let denied = worker.call("leak", at("read")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert!(kept.is_empty());
    worker.call("leak", at("write")).await.unwrap();
}
