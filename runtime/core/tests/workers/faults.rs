//! Tests of tools that panic or hang, floods of calls and lost callers: every caller gets an answer.

use std::time::Duration;

use bailiwick::worker::Admission;
use bailiwick::{Call, CallMeta, Code, Worker};
use tokio::task::JoinSet;

use super::{Board, Latch, at, stage, stage_with};

#[tokio::test]
async fn tool_whose_sentence_panics_is_described_without_it() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    // The worker describes a call with long arguments when it ends.
    let path = format!("{}/unspeakable", ["x".repeat(100).as_str(); 6].join("/"));
    let error = worker.call("panics", at(&path)).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert_eq!(worker.activity()[0].intent, "Panic");
    assert_eq!(worker.call("echo", at("x")).await.unwrap().text(), "/r/x");
    assert!(!stage.steps().await.contains(&"restarted".to_owned()));
}

#[tokio::test]
async fn panicking_tool_fails_its_call_but_not_the_worker() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    for path in ["inline", "pool", "early"] {
        let error = worker.call("panics", at(path)).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{path}");
    }
    assert_eq!(worker.call("echo", at("x")).await.unwrap().text(), "/r/x");
    let steps = stage.steps().await;
    assert_eq!(
        steps
            .iter()
            .filter(|step| *step == "failed INTERNAL")
            .count(),
        3
    );
    assert!(!steps.contains(&"restarted".to_owned()));
}

/// A call with a short deadline. On a busy machine it may expire before it has a thread, so tests retry until one hangs.
fn brief(tool: &str, path: &str) -> Call {
    let meta = CallMeta {
        deadline: Some(Duration::from_millis(100)),
        ..CallMeta::default()
    };
    Call::new(tool, at(path)).meta(meta)
}

/// Calls until `threads` hang. A hung thread is counted before its caller is answered.
async fn hang(worker: &Worker, latch: &Latch, threads: u32) {
    let hung = || worker.status().lost_threads as usize;
    while hung().max(latch.arrived()) < threads as usize {
        let error = worker.submit(brief("hangs", "x")).await.unwrap_err();
        assert_eq!(error.code(), Code::Deadline);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hung_job_is_answered_at_its_deadline() {
    let stage = stage(|builder| builder).await;
    let (worker, neighbour) = (stage.open().await, stage.open().await);
    hang(&worker, &stage.latch, 1).await;
    let status = worker.status();
    assert_eq!((status.in_flight, status.lost_threads), (0, 1));
    assert!(!status.revoked);
    assert_eq!(worker.call("echo", at("x")).await.unwrap().text(), "/r/x");
    worker.call("post", at("y")).await.unwrap();
    neighbour.call("post", at("z")).await.unwrap();
    stage.latch.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_with_all_jobs_hung_answers_inline_calls() {
    let bounds = Admission {
        jobs: 2,
        ..Admission::default()
    };
    let stage = stage(|builder| builder.admission(bounds)).await;
    let worker = stage.open().await;
    hang(&worker, &stage.latch, 2).await;
    let error = worker.submit(brief("post", "x")).await.unwrap_err();
    assert_eq!(error.code(), Code::Deadline);
    assert_eq!(stage.board.posted(), [""; 0]);
    assert_eq!(worker.call("echo", at("x")).await.unwrap().text(), "/r/x");
    stage.latch.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_10000_calls_gets_a_result_or_busy() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let mut calls = JoinSet::new();
    for n in 0..10_000 {
        let worker = worker.clone();
        calls.spawn(async move {
            worker
                .call(if n % 2 == 0 { "echo" } else { "panics" }, at("x"))
                .await
        });
    }
    let (mut answered, mut failed, mut busy) = (0, 0, 0);
    while let Some(result) = calls.join_next().await {
        match result
            .unwrap()
            .map_err(|error| (error.code(), error.details().contains_key("retry_after_ms")))
        {
            Ok(_) => answered += 1,
            Err((Code::Internal, _)) => failed += 1,
            Err((Code::Busy, true)) => busy += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(answered + failed + busy, 10_000);
    assert!(
        answered > 0 && failed > 0,
        "{answered} answered, {failed} failed, {busy} busy"
    );
    assert_eq!(worker.status().in_flight, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_limit_of_one_worker_does_not_affect_others() {
    let bounds = Admission {
        calls: 3,
        ..Admission::default()
    };
    let stage = stage(|builder| builder.admission(bounds)).await;
    let (worker, neighbour) = (stage.open().await, stage.open().await);
    let mut held = JoinSet::new();
    for _ in 0..3 {
        let worker = worker.clone();
        held.spawn(async move { worker.call("hangs", at("x")).await });
    }
    stage.latch.wait_for(3).await;
    assert_eq!(
        worker.call("echo", at("x")).await.unwrap_err().code(),
        Code::Busy
    );
    assert!(neighbour.call("echo", at("x")).await.is_ok());
    stage.latch.open();
    while let Some(answer) = held.join_next().await {
        assert_eq!(answer.unwrap().unwrap().text(), "/r/x");
    }
    assert!(worker.call("echo", at("x")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_abandoned_before_its_effect_has_no_effect() {
    let latch = Latch::default();
    let board = Board {
        before: Some(latch.clone()),
        ..Board::default()
    };
    let stage = stage_with(board, |builder| builder).await;
    let worker = stage.open().await;
    let call = tokio::spawn({
        let worker = worker.clone();
        async move { worker.call("post", at("given-up")).await }
    });
    latch.wait_for(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    latch.open();
    worker.call("post", at("kept")).await.unwrap();
    assert_eq!(stage.board.posted(), ["/r/kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_of_one_worker_are_serialised() {
    let stage = stage(|builder| builder).await;
    let worker = stage.open().await;
    let mut calls = JoinSet::new();
    for n in 0..100 {
        let worker = worker.clone();
        calls.spawn(async move { worker.call("post", at(&n.to_string())).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.unwrap().unwrap();
    }
    assert_eq!(stage.board.posted().len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_error_says_whether_the_effect_began() {
    let (begun, in_time) = (Latch::default(), Latch::default());
    let board = Board {
        within: Some(begun.clone()),
        ..Board::default()
    };
    let slow = stage_with(board, |builder| builder).await;
    let worker = slow.open().await;
    let error = loop {
        let error = worker.submit(brief("post", "x")).await.unwrap_err();
        // Calls that reached the latch had begun; those that came too late for a thread had not.
        if error.details().contains_key("begun") || begun.arrived() > 0 {
            break error;
        }
        assert_eq!(error.code(), Code::Deadline);
    };
    assert_eq!(
        (error.code(), &error.details()["begun"]),
        (Code::Deadline, &true.into())
    );
    begun.open();

    let board = Board {
        before: Some(in_time.clone()),
        ..Board::default()
    };
    let late = stage_with(board, |builder| builder).await;
    let worker = late.open().await;
    let error = worker.submit(brief("post", "x")).await.unwrap_err();
    assert_eq!(
        (error.code(), error.details().get("begun")),
        (Code::Deadline, None)
    );
    in_time.open();
    late.open().await.call("post", at("y")).await.unwrap();
    assert_eq!(late.board.posted(), ["/r/y"]);
}
