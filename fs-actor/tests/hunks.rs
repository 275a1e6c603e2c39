//! Edits of which a person excludes hunks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create and check files directly"
)]

use std::fs;

use bailiwick::effect::ExcludedChange;
use bailiwick::permission::{AuthorityError, Lifetime};
use bailiwick::worker::{Admission, CallProgress};
use bailiwick::{
    Answer, Call, Code, Deferred, GrantAuthority, PendingCall, Policy, Runtime, VirtualPath,
    Worker, WorkerSpec,
};
use serde_json::{Value, json};

struct Stage {
    runtime: Runtime,
    grants: GrantAuthority,
    worker: Worker,
    temp: tempfile::TempDir,
}

/// Thirty lines, so that distant edits are separate hunks.
fn text(change: impl Fn(usize) -> Option<&'static str>) -> String {
    let line =
        |n: usize| change(n).map_or_else(|| format!("line {n}\n"), |line| format!("{line}\n"));
    (1..=30).map(line).collect()
}

/// The arguments of an edit with three hunks.
fn three_edits() -> Value {
    let edit = |n: usize, new: &str| json!({"old_text": format!("line {n}\n"), "new_text": new});
    let edits = [
        edit(2, "two\n"),
        edit(15, "fifteen\n"),
        edit(28, "twenty-eight\n"),
    ];
    json!({"path": "/r/f", "edits": edits})
}

impl Stage {
    async fn new() -> Self {
        Self::with(Admission::default()).await
    }

    async fn with(bounds: Admission) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("f"), text(|_| None)).unwrap();
        let (runtime, grants) = Runtime::builder()
            .root("r", temp.path())
            .tools(bailiwick_fs::tools())
            .approver(Deferred)
            .admission(bounds)
            .build()
            .await
            .unwrap();
        let policy = Policy::new().allow("read:file").ask("write:file");
        let worker = runtime
            .spawn(WorkerSpec::new("main").policy(policy))
            .await
            .unwrap();
        Self {
            runtime,
            grants,
            worker,
            temp,
        }
    }

    fn read(&self) -> String {
        fs::read_to_string(self.temp.path().join("f")).unwrap()
    }

    async fn asked(&self, tool: &str, arguments: Value) -> PendingCall {
        match self.worker.begin(Call::new(tool, arguments)).await.unwrap() {
            CallProgress::Pending(pending) => *pending,
            CallProgress::Ended(outcome) => panic!("nobody was asked: {outcome:?}"),
        }
    }

    /// An edit with three hunks.
    async fn three(&self) -> PendingCall {
        self.asked("edit_file", three_edits()).await
    }

    async fn answer(&self, pending: &PendingCall, hunks: &[usize]) -> Result<(), AuthorityError> {
        let left_out = vec![ExcludedChange {
            path: VirtualPath::parse("/r/f", None).unwrap(),
            hunks: Some(hunks.to_vec()),
        }];
        let answer = Answer::Allow {
            patterns: Vec::new(),
            lifetime: Lifetime::Once,
            descendants: false,
            left_out,
        };
        self.grants.answer(pending.question().id, answer).await
    }
}

async fn outcome(pending: PendingCall) -> bailiwick::Outcome {
    match pending.resume().await.unwrap() {
        CallProgress::Ended(outcome) => *outcome,
        CallProgress::Pending(again) => panic!("asked again: {:?}", again.question()),
    }
}

#[tokio::test]
async fn previews_of_one_worker_share_the_old_text() {
    let stage = Stage::new().await;
    let second = WorkerSpec::new("second").policy(Policy::inherit());
    let second = stage.runtime.spawn(second).await.unwrap();
    let mut old_texts = Vec::new();
    for worker in [&stage.worker, &stage.worker, &second] {
        let mut preview = worker.preview("edit_file", three_edits()).await.unwrap();
        old_texts.push(preview.changes.remove(0).diff.old.unwrap());
    }
    assert!(old_texts.iter().all(|old| *old == text(|_| None)));
    let [first, again, other] = [0, 1, 2].map(|at| old_texts[at].as_ptr());
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[tokio::test]
async fn excluded_hunks_are_not_applied_and_reported() {
    let stage = Stage::new().await;
    let pending = stage.three().await;
    let shown = pending.question().request.preview.as_ref().unwrap();
    assert_eq!(shown.changes[0].diff.hunks.len(), 3);
    stage.answer(&pending, &[1]).await.unwrap();
    let outcome = outcome(pending).await;
    let expected = text(|n| match n {
        2 => Some("two"),
        28 => Some("twenty-eight"),
        _ => None,
    });
    assert_eq!(stage.read(), expected);
    let told = outcome.structured().unwrap();
    assert_eq!(
        told["left_out"],
        json!([{"line": 15, "added": 1, "removed": 1}])
    );
    assert_eq!(told["bytes"], expected.len());
    assert_eq!(
        (told["added"].clone(), told["removed"].clone()),
        (json!(2), json!(2))
    );
    assert!(
        outcome.text().contains("a person excluded"),
        "{}",
        outcome.text()
    );
    assert_eq!(outcome.changes[0].diff.hunks.len(), 2);
}

#[tokio::test]
async fn hunks_that_the_host_excludes_from_a_preview_are_not_applied() {
    let stage = Stage::new().await;
    let open = WorkerSpec::new("open").policy(Policy::inherit());
    let worker = stage.runtime.spawn(open).await.unwrap();
    let preview = worker.preview("edit_file", three_edits()).await.unwrap();
    let excluded = |hunks: &[usize]| {
        [ExcludedChange {
            path: VirtualPath::parse("/r/f", None).unwrap(),
            hunks: Some(hunks.to_vec()),
        }]
    };
    for invalid in [vec![3], vec![0, 1, 2]] {
        let refused = worker.apply_without(&preview, &excluded(&invalid)).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArguments);
        assert_eq!(stage.read(), text(|_| None));
    }
    let outcome = worker.apply_without(&preview, &excluded(&[0, 2])).await;
    assert_eq!(stage.read(), text(|n| (n == 15).then_some("fifteen")));
    assert_eq!(outcome.unwrap().changes[0].diff.hunks.len(), 1);
}

#[tokio::test]
async fn hunks_excluded_by_host_and_person_are_both_not_applied() {
    let stage = Stage::new().await;
    let preview = stage.worker.preview("edit_file", three_edits()).await;
    let mut call = preview.unwrap().call().unwrap();
    call.meta.excluded = vec![ExcludedChange {
        path: VirtualPath::parse("/r/f", None).unwrap(),
        hunks: Some(vec![0]),
    }];
    let CallProgress::Pending(pending) = stage.worker.begin(call).await.unwrap() else {
        panic!("nobody was asked");
    };
    stage.answer(&pending, &[1]).await.unwrap();
    outcome(*pending).await;
    assert_eq!(stage.read(), text(|n| (n == 28).then_some("twenty-eight")));
}

#[tokio::test]
async fn full_approval_applies_the_whole_edit() {
    let stage = Stage::new().await;
    let pending = stage.three().await;
    stage.answer(&pending, &[]).await.unwrap();
    let outcome = outcome(pending).await;
    assert!(outcome.structured().unwrap().get("left_out").is_none());
    assert_eq!(outcome.changes[0].diff.hunks.len(), 3);
}

#[tokio::test]
async fn unknown_hunks_or_all_hunks_cannot_be_excluded() {
    let stage = Stage::new().await;
    let pending = stage.three().await;
    for wrong in [&[3][..], &[0, 0], &[0, 1, 2]] {
        let refused = stage.answer(&pending, wrong).await;
        assert!(
            matches!(refused, Err(AuthorityError::Excluded(_))),
            "{wrong:?}"
        );
    }
    assert_eq!(stage.read(), text(|_| None));
    stage.answer(&pending, &[0, 2]).await.unwrap();
    outcome(pending).await;
    assert_eq!(stage.read(), text(|n| (n == 15).then_some("fifteen")));
}

#[tokio::test]
async fn changed_file_is_not_edited_in_part() {
    let stage = Stage::new().await;
    let pending = stage.three().await;
    let other = text(|n| (n == 15).then_some("theirs"));
    fs::write(stage.temp.path().join("f"), &other).unwrap();
    stage.answer(&pending, &[1]).await.unwrap();
    let error = pending.resume().await.unwrap_err();
    assert_eq!(error.code(), Code::StalePreview);
    assert_eq!(stage.read(), other);
}

#[tokio::test]
async fn changed_byte_asks_again() {
    let stage = Stage::new().await;
    let shown = stage.three().await;
    let theirs = stage.read().replace("line 20", "line_20");
    fs::write(stage.temp.path().join("f"), &theirs).unwrap();
    let anew = stage.three().await;
    assert_ne!(anew.question().id, shown.question().id);
    stage.answer(&shown, &[]).await.unwrap();
    let error = shown.resume().await.unwrap_err();
    assert_eq!(error.code(), Code::StalePreview);
    assert_eq!(stage.read(), theirs);
    stage.answer(&anew, &[]).await.unwrap();
    outcome(anew).await;
    let expected = text(|n| match n {
        2 => Some("two"),
        15 => Some("fifteen"),
        20 => Some("line_20"),
        28 => Some("twenty-eight"),
        _ => None,
    });
    assert_eq!(stage.read(), expected);
}

#[tokio::test]
async fn indivisible_change_cannot_be_approved_in_part() {
    let stage = Stage::new().await;
    let pending = stage
        .asked(
            "write_file",
            json!({"path": "/r/f", "content": "new\n", "mode": "overwrite"}),
        )
        .await;
    assert!(!pending.question().request.divisible);
    let refused = stage.answer(&pending, &[0]).await;
    assert!(matches!(refused, Err(AuthorityError::Excluded(_))));
    stage.answer(&pending, &[]).await.unwrap();
    outcome(pending).await;
    assert_eq!(stage.read(), "new\n");
}

#[tokio::test]
async fn partial_approval_is_for_one_call_only() {
    let stage = Stage::new().await;
    let pending = stage.three().await;
    let left_out = vec![ExcludedChange {
        path: VirtualPath::parse("/r/f", None).unwrap(),
        hunks: Some(vec![1]),
    }];
    let answer = Answer::Allow {
        patterns: Vec::new(),
        lifetime: Lifetime::Session,
        descendants: false,
        left_out,
    };
    let refused = stage.grants.answer(pending.question().id, answer).await;
    assert!(matches!(refused, Err(AuthorityError::DoesNotFit)));
    stage.answer(&pending, &[1]).await.unwrap();
    outcome(pending).await;
}

#[tokio::test]
async fn memory_of_waiting_calls_is_bounded() {
    let bounds = Admission {
        bytes: 256 << 10,
        ..Admission::default()
    };
    let stage = Stage::with(bounds).await;
    for (name, lines) in [("one", 40_000), ("other", 40_000), ("large", 100_000)] {
        let text = format!("old\n{}", "x\n".repeat(lines));
        fs::write(stage.temp.path().join(name), text).unwrap();
    }
    let edit = |path: &str| {
        let edits = [json!({"old_text": "old\n", "new_text": "new\n"})];
        Call::new("edit_file", json!({"path": path, "edits": edits}))
    };
    let one = stage.worker.begin(edit("/r/one")).await.unwrap();
    assert!(matches!(one, CallProgress::Pending(_)));
    for (path, code) in [("/r/other", Code::Busy), ("/r/large", Code::TooLarge)] {
        let refused = stage.worker.begin(edit(path)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        let retries = refused.details().contains_key("retry_after_ms");
        assert_eq!(retries, code == Code::Busy, "{refused}");
    }
    drop(one);
    let other = stage.worker.begin(edit("/r/other")).await.unwrap();
    assert!(matches!(other, CallProgress::Pending(_)));
}
