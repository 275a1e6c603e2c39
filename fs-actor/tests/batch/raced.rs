//! Batches and their undo while the worker is revoked, or another program writes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bailiwick::{CallError, Code, Outcome};
use bailiwick_test_support::cases;
use bailiwick_test_support::numbers::Numbers;
use serde_json::{Value, json};

use super::World;

const FILES: usize = 24;

/// Time limit for both outcomes to be seen.
const LIMIT: Duration = Duration::from_secs(120);

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    All,
    Nothing,
}

/// Calls `round` for at least `BAILIWICK_CASES` rounds, of at most 1,000, and until it has returned both.
///
/// It gets a delay after the start of the call: at most a little more than a call takes that nothing interrupts.
async fn until_both(
    default: u64,
    undo: bool,
    mut round: impl AsyncFnMut(bool, Duration, &mut Numbers) -> Done,
) {
    let whole = {
        let world = world().await;
        let call = start(&world, undo).await;
        let begun = Instant::now();
        call.await.unwrap().unwrap();
        begun.elapsed()
    };
    let (begun, mut seen) = (Instant::now(), Vec::new());
    let rounds = cases(default).min(1_000);
    for case in 0.. {
        let mut numbers = Numbers(case);
        let delay = whole.mul_f64(numbers.below(1_500) as f64 / 1_000.0);
        let done = round(undo, delay, &mut numbers).await;
        if !seen.contains(&done) {
            seen.push(done);
        }
        if case >= rounds && seen.len() == 2 {
            return;
        }
        assert!(
            case < rounds || begun.elapsed() < LIMIT,
            "after {case} rounds of at most {whole:?} only {seen:?}"
        );
    }
}

/// Waits without giving up the thread, which is more exact than a timer.
fn spin(delay: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// A world with files `r/f0`, `r/f1` and so on.
async fn world() -> World {
    let world = World::new().await;
    for n in 0..FILES {
        fs::write(world.at(&format!("r/f{n}")), "mine\n").unwrap();
    }
    world
}

/// Edits of all files.
fn edits() -> Value {
    let edit = |n| {
        let edit = json!({"old_text": "mine", "new_text": "MINE"});
        json!({"tool": "edit_file", "path": format!("/r/f{n}"), "edits": [edit]})
    };
    let edits: Vec<Value> = (0..FILES).map(edit).collect();
    json!({ "operations": edits })
}

/// Makes the batch, then starts its undo if `undo`, else starts the batch.
async fn start(world: &World, undo: bool) -> tokio::task::JoinHandle<Result<Outcome, CallError>> {
    let worker = world.worker.clone();
    let (tool, arguments) = if undo {
        worker.call("apply_batch", edits()).await.unwrap();
        ("undo", json!({}))
    } else {
        ("apply_batch", edits())
    };
    tokio::spawn(async move { worker.call(tool, arguments).await })
}

async fn revoked(undo: bool, delay: Duration, _: &mut Numbers) -> Done {
    let world = world().await;
    let first = world.tree();
    let call = start(&world, undo).await;
    let before = if undo { None } else { Some(first.clone()) };
    spin(delay);
    world.worker.revoke().await;
    // A revoked worker changes nothing any more.
    let now = world.tree();
    let result = call.await.unwrap();
    assert_eq!(world.tree(), now);
    let is_first = now == first;
    let edited = (0..FILES).filter(|n| world.read(&format!("r/f{n}")).unwrap() == "MINE\n");
    assert!(is_first || edited.count() == FILES, "{result:?}");
    let done = match before {
        Some(_) if is_first => Done::Nothing,
        None if !is_first => Done::Nothing,
        _ => Done::All,
    };
    if result.is_ok() {
        assert_eq!(done, Done::All);
    }
    // The journal knows which of the two it was.
    let changes = world.runtime.journal().unwrap().changes_of_agent("main");
    assert_eq!(changes.is_empty(), is_first, "{result:?}");
    if !is_first {
        world.grants.undo(&changes).await.unwrap();
        assert_eq!(world.tree(), first);
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_of_a_worker_that_is_revoked_is_made_as_a_whole_or_not_at_all() {
    until_both(20, false, revoked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_of_a_worker_that_is_revoked_is_made_as_a_whole_or_not_at_all() {
    until_both(20, true, revoked).await;
}

/// Replaces a file as editors do.
fn replace(file: &Path, temporary: &Path, content: &str) {
    fs::write(temporary, content).unwrap();
    fs::rename(temporary, file).unwrap();
}

async fn written_by_others(undo: bool, delay: Duration, numbers: &mut Numbers) -> Done {
    let world = world().await;
    let call = start(&world, undo).await;
    let theirs = numbers.below(FILES);
    let (old, new) = if undo {
        ("MINE\n", "mine\n")
    } else {
        ("mine\n", "MINE\n")
    };
    spin(delay);
    let file = world.at(&format!("r/f{theirs}"));
    replace(&file, &world.at("theirs"), &format!("{old}theirs\n"));
    let result = call.await.unwrap();

    let text = world.read(&format!("r/f{theirs}")).unwrap();
    assert!(text.ends_with("theirs\n"), "{result:?}: {text}");
    let others = (0..FILES).filter(|n| *n != theirs);
    let mut others = others.map(|n| world.read(&format!("r/f{n}")).unwrap());
    match result {
        Ok(_) => {
            assert!(others.all(|text| text == new));
            Done::All
        }
        Err(error) => {
            let codes = [Code::Conflict, Code::StalePreview];
            assert!(codes.contains(&error.code()), "{error:?}");
            assert!(others.all(|text| text == old), "{error:?}");
            Done::Nothing
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_keeps_what_another_program_writes_meanwhile() {
    until_both(40, false, written_by_others).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undo_keeps_what_another_program_writes_meanwhile() {
    until_both(40, true, written_by_others).await;
}
