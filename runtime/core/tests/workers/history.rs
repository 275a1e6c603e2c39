//! The history of calls: each way in which one can be granted, denied or fail has an entry with its actor.

use std::time::Duration;

use bailiwick::call::Asks;
use bailiwick::config::Namespace;
use bailiwick::permission::{
    AskLimits, DecidedBy, GrantHolder, History, HistoryEvent, HistoryFilter, Lifetime, NewGrant,
};
use bailiwick::tool::{Interrupt, Prepared, ReadPermit};
use bailiwick::worker::{Admission, CallProgress};
use bailiwick::{
    Answer, Call, CallError, CallMeta, Code, Deferred, Origin, PendingCall, Policy, ReadTool,
    Reply, Scope, Scripted, ToolSet, ToolSpec, Verb, VirtualPath, Worker, WorkerSpec,
};
use serde_json::{Value, json};

use super::{Stage, at, stage};
use bailiwick_test_support::tools::{Said, Target};
use bailiwick_test_support::wait;

const DENIALS: [Code; 7] = [
    Code::ScopeRequired,
    Code::PermissionDenied,
    Code::PolicyExpansion,
    Code::PolicyInvalid,
    Code::RateLimited,
    Code::Budget,
    Code::UnknownTool,
];

const FAILURES: [Code; 20] = [
    Code::StalePreview,
    Code::NotFound,
    Code::AlreadyExists,
    Code::NotText,
    Code::NotRegular,
    Code::NotDirectory,
    Code::TooLarge,
    Code::NoMatch,
    Code::AmbiguousMatch,
    Code::Conflict,
    Code::Busy,
    Code::Deadline,
    Code::Cancelled,
    Code::WorkerRestarted,
    Code::InvalidArguments,
    Code::ServerFailed,
    Code::ServerFault,
    Code::ServerGone,
    Code::Io,
    Code::Internal,
];

fn codes() -> impl Iterator<Item = Code> {
    DENIALS.into_iter().chain(FAILURES)
}

/// Fails with the code that its path names.
struct Fails;

impl ReadTool for Fails {
    type Args = Target;
    type Output = Said;
    type Job = VirtualPath;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new("fails", "Fail", "Fails.")
    }

    fn prepare(&self, args: Target, names: &Namespace) -> Result<Prepared<VirtualPath>, CallError> {
        let path = names.path(&args.path)?;
        Ok(Prepared {
            needs: vec![Scope::file(Verb::Read, path.clone())],
            job: path,
        })
    }

    fn read(&self, job: &VirtualPath, _: &ReadPermit) -> Result<Reply, Interrupt> {
        let mut codes = codes();
        let code = codes.find(|code| job.as_str().ends_with(code.as_str()));
        Err(CallError::new(code.unwrap(), "as it was told").into())
    }
}

async fn history(stage: &Stage) -> History {
    stage.runtime.flush_audit().await.unwrap();
    let mut history = History::new();
    for record in stage.audit.records() {
        history.add(&record).unwrap();
    }
    history
}

/// The entries of the history: kind, outcome, decider and code. The report counts each of them.
async fn history_lines(stage: &Stage) -> Vec<String> {
    let history = history(stage).await;
    let report = history.report(&HistoryFilter::default());
    let (mut calls, mut questions) = (0, 0);
    let entries = history.entries().map(|entry| {
        let by = entry.by.as_str();
        match &entry.event {
            HistoryEvent::Call(call) => {
                calls += 1;
                let code = call.code.map_or("-", Code::as_str);
                format!("call {} {by} {code}", call.outcome.as_str())
            }
            HistoryEvent::Question(question) => {
                questions += 1;
                let decision = entry.decision.map(|decision| format!("{decision:?}"));
                let decision = decision.unwrap_or_default().to_lowercase();
                format!("question {decision} {by} {}", question.applied)
            }
            HistoryEvent::Granted(_) => format!("granted {by}"),
            HistoryEvent::Revoked { .. } => format!("revoked {by}"),
            other => panic!("{other:?}"),
        }
    });
    let entries: Vec<String> = entries.collect();
    let counted: u64 = report.calls.iter().map(|tally| tally.calls).sum();
    assert_eq!((counted, report.all.questions()), (calls, questions));
    let exported = history.export(&HistoryFilter::default()).unwrap();
    assert_eq!(exported.lines().count(), entries.len());
    entries
}

fn meta(meta: CallMeta, path: &str) -> Call {
    Call::new("post", at(path)).meta(meta)
}

async fn code(worker: &Worker, call: Call) -> Code {
    worker.submit(call).await.unwrap_err().code()
}

#[tokio::test]
async fn every_error_code_and_origin_has_a_history_entry() {
    let stage = stage(|builder| builder.tools(ToolSet::new().reader(Fails))).await;
    let worker = stage.open().await;
    let origins = [Origin::Human, Origin::Host, Origin::Model, Origin::View];
    for (origin, error) in origins
        .into_iter()
        .flat_map(|origin| codes().map(move |code| (origin, code)))
    {
        let meta = CallMeta {
            origin,
            ..CallMeta::default()
        };
        let call = Call::new("fails", at(error.as_str())).meta(meta);
        assert_eq!(code(&worker, call).await, error);
    }
    let history = history(&stage).await;
    let mut entries = history.entries();
    for (origin, error) in origins
        .into_iter()
        .flat_map(|origin| codes().map(move |code| (origin, code)))
    {
        let entry = entries.next().unwrap();
        let HistoryEvent::Call(call) = &entry.event else {
            panic!("{entry:?}");
        };
        assert_eq!((entry.origin, call.code), (Some(origin), Some(error)));
        assert_eq!((&*entry.agent, entry.worker), ("main", Some(worker.id())));
        let (outcome, by) = match error {
            Code::ScopeRequired => ("denied", DecidedBy::Nobody),
            error if DENIALS.contains(&error) => ("denied", DecidedBy::Rule),
            _ => ("failed", DecidedBy::Nobody),
        };
        assert_eq!((call.outcome.as_str(), entry.by), (outcome, by), "{error}");
        assert_eq!(entry.denial().is_some(), outcome == "denied");
        assert_eq!(call.needs.len(), 1);
    }
    assert!(entries.next().is_none());
    let report = history.report(&HistoryFilter::default());
    let mut counted: Vec<Code> = report.calls.iter().filter_map(|tally| tally.code).collect();
    counted.sort_unstable();
    let mut all: Vec<Code> = codes().collect();
    all.sort_unstable();
    assert_eq!(counted, all);
    assert!(report.calls.iter().all(|tally| tally.calls == 4));
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
async fn grants_and_denials_without_questions_have_history_entries() {
    let stage = stage(|builder| builder).await;
    let policy = Policy::new()
        .allow("read:file")
        .deny("read:file:/r/x")
        .allow("write:file:/r/free")
        .ask("write:file:/r/src");
    let worker = stage.worker(policy).await;
    // Allowed reads have no entry.
    worker.call("echo", at("y")).await.unwrap();
    assert!(history_lines(&stage).await.is_empty());

    let with = |policy: Value| CallMeta {
        policy: Some(policy),
        ..CallMeta::default()
    };
    let mut expected = Vec::new();
    for (call, error, by) in [
        (
            meta(CallMeta::default(), "src/x"),
            Code::ScopeRequired,
            "nobody",
        ),
        (
            meta(
                CallMeta {
                    asks: Asks::Refuse,
                    ..CallMeta::default()
                },
                "src/x",
            ),
            Code::ScopeRequired,
            "nobody",
        ),
        (Call::new("echo", at("x")), Code::PermissionDenied, "rule"),
        (
            meta(with(json!({"allow_scopes": ["write:file:/etc"]})), "free"),
            Code::PolicyExpansion,
            "rule",
        ),
        (
            meta(with(json!({"nonsense": 1})), "free"),
            Code::PolicyInvalid,
            "rule",
        ),
        (
            meta(with(json!({"budget": {"calls": 0}})), "free"),
            Code::Budget,
            "rule",
        ),
        (Call::new("nothing", at("x")), Code::UnknownTool, "rule"),
    ] {
        assert_eq!(code(&worker, call).await, error);
        expected.push(format!("call denied {by} {error}"));
    }
    // A token of another runtime.
    let forged = CallMeta {
        preview_token: Some("0".repeat(64).parse().unwrap()),
        ..CallMeta::default()
    };
    let forged = code(&worker, meta(forged, "free")).await;
    assert_eq!(forged, Code::InvalidArguments);
    expected.push("call failed nobody INVALID_ARGUMENTS".to_owned());

    worker.call("post", at("free")).await.unwrap();
    expected.push("call applied rule -".to_owned());
    let brought = || vec!["write:file:/r/src".parse().unwrap()];
    let call = || meta(CallMeta::default(), "src/x");
    let grants = &stage.grants;
    grants.submit(&worker, call(), brought()).await.unwrap();
    expected.push("call applied host -".to_owned());
    let grant = NewGrant {
        pattern: "write:file:/r/src".parse().unwrap(),
        holder: GrantHolder::Worker(worker.id()),
        lifetime: Lifetime::Session,
        descendants: false,
    };
    grants.grant(grant).await.unwrap();
    expected.push("granted person".to_owned());
    worker.submit(call()).await.unwrap();
    expected.push("call applied person -".to_owned());
    let wider = WorkerSpec::new("wider").policy(Policy::new().allow("write:file:/etc"));
    worker.spawn(wider).await.unwrap_err();
    expected.push("call denied rule POLICY_EXPANSION".to_owned());
    worker.revoke().await;
    assert_eq!(code(&worker, call()).await, Code::Cancelled);
    expected.push("revoked host".to_owned());
    expected.push("call failed nobody CANCELLED".to_owned());
    assert_eq!(history_lines(&stage).await, expected);
}

#[tokio::test]
async fn busy_and_rate_limited_calls_have_history_entries() {
    let bounds = Admission {
        calls: 0,
        ..Admission::default()
    };
    let busy = stage(|builder| builder.admission(bounds)).await;
    let worker = busy.open().await;
    assert_eq!(code(&worker, Call::new("echo", at("x"))).await, Code::Busy);
    assert_eq!(history_lines(&busy).await, ["call failed nobody BUSY"]);

    let paced = stage(|builder| builder).await;
    let worker = paced.worker(Policy::new().min_interval_ms(3_600_000)).await;
    worker.call("echo", at("x")).await.unwrap();
    let early = Call::new("echo", at("x"));
    assert_eq!(code(&worker, early).await, Code::RateLimited);
    assert_eq!(
        history_lines(&paced).await,
        ["call denied rule RATE_LIMITED"]
    );
}

fn asking() -> Policy {
    Policy::new().allow("read:file").ask("write:file:/r/src")
}

#[tokio::test]
async fn each_answer_of_a_host_approver_has_an_entry() {
    let approver = Scripted::new().rule(|question| {
        let no = question.request.needs[0].to_string().contains("no");
        Some(if no { Answer::DENY } else { Answer::ONCE })
    });
    let stage = stage(|builder| builder.approver(approver)).await;
    let worker = stage.worker(asking()).await;
    worker.call("post", at("src/yes")).await.unwrap();
    for path in ["src/no-1", "src/no-2", "src/no-3"] {
        let call = meta(CallMeta::default(), path);
        assert_eq!(code(&worker, call).await, Code::PermissionDenied);
    }
    assert_eq!(
        history_lines(&stage).await,
        [
            "question granted host 1",
            "question denied host 0",
            "question denied host 0",
            "question denied host 0",
        ]
    );
}

#[tokio::test]
async fn grant_entry_names_host_or_person_as_its_actor() {
    let for_session = || Answer::Allow {
        patterns: vec!["write:file:/r/src".parse().unwrap()],
        lifetime: Lifetime::Session,
        descendants: false,
        left_out: Vec::new(),
    };
    let call = |path| meta(CallMeta::default(), path);
    let scripted = Scripted::new().rule(move |_| Some(for_session()));
    let of_host = stage(|builder| builder.approver(scripted)).await;
    let worker = of_host.worker(asking()).await;
    worker.submit(call("src/a")).await.unwrap();
    worker.submit(call("src/b")).await.unwrap();

    let of_person = stage(|builder| builder.approver(Deferred)).await;
    let worker = of_person.worker(asking()).await;
    let asked = pending(&worker, "src/a", Asks::Wait).await;
    let id = asked.question().id;
    of_person.grants.answer(id, for_session()).await.unwrap();
    asked.resume().await.unwrap();
    worker.submit(call("src/b")).await.unwrap();

    for (stage, by) in [(of_host, "host"), (of_person, "person")] {
        assert_eq!(
            stage.texts("granted", "/event/by").await,
            [Some(by.to_owned())]
        );
        let report = history(&stage).await.report(&HistoryFilter::default());
        let [grant] = report.grants.as_slice() else {
            panic!("{report:?}");
        };
        assert_eq!((grant.by.as_str(), grant.uses), (by, 2));
        let lines = history_lines(&stage).await;
        let expected = [
            format!("question granted {by} 1"),
            format!("call applied {by} -"),
        ];
        assert_eq!(lines, expected);
    }
}

async fn pending(worker: &Worker, path: &str, asks: Asks) -> PendingCall {
    let meta = meta(
        CallMeta {
            asks,
            ..CallMeta::default()
        },
        path,
    );
    match worker.begin(meta).await.unwrap() {
        CallProgress::Pending(pending) => *pending,
        CallProgress::Ended(outcome) => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn answered_and_cancelled_questions_have_history_entries() {
    let stage = stage(|builder| builder.approver(Deferred)).await;
    let worker = stage.worker(asking()).await;
    for (path, asks) in [("src/a", Asks::Wait), ("src/b", Asks::WaitAlone)] {
        let yes = pending(&worker, path, asks).await;
        let id = yes.question().id;
        stage.grants.answer(id, Answer::ONCE).await.unwrap();
        yes.resume().await.unwrap();
    }
    let no = pending(&worker, "src/c", Asks::Wait).await;
    let denied = Answer::DENY;
    stage.grants.answer(no.question().id, denied).await.unwrap();
    no.resume().await.unwrap_err();
    drop(pending(&worker, "src/d", Asks::Wait).await);
    wait::for_questions(&stage.grants, |open| open.is_empty().then_some(())).await;
    worker.revoke().await;
    assert_eq!(
        history_lines(&stage).await,
        [
            "question granted person 1",
            "question granted person 1",
            "question denied person 0",
            "question cancelled nobody 0",
        ]
    );
}

#[tokio::test]
async fn expired_question_has_one_history_entry() {
    let limits = AskLimits::default();
    let patience = Duration::from_millis(1);
    let stage = stage(|builder| builder.approver(Deferred).asks(limits, patience)).await;
    let worker = stage.worker(asking()).await;
    let late = code(&worker, meta(CallMeta::default(), "src/x")).await;
    assert_eq!(late, Code::PermissionDenied);
    assert_eq!(history_lines(&stage).await, ["question expired nobody 0"]);
}
