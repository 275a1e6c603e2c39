//! Tests of the lifecycle of server processes.

use super::hostile_server::{alone, hostile};
use bailiwick::permission::Lifetime;
use bailiwick::{Code, Policy, Scripted};
use bailiwick_mcp::upstream::{Bounds, ServerSpec, ServerState, SpecError, Upstreams};
use bailiwick_test_support::upstream::{act, allow_once, code, start, test_runtime, text};
use bailiwick_test_support::wait;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a server may take to be there, or gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often servers are connected and killed.
fn cases() -> usize {
    bailiwick_test_support::cases(5)
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

#[tokio::test]
async fn killing_one_of_three_servers_keeps_the_others_running() {
    let upstreams = start(["a", "b", "c"].map(|name| hostile(name, "plain"))).await;
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    let mut pids = Vec::new();
    for tool in ["a__edit", "b__edit", "c__edit"] {
        pids.push(pid(&text(act(&worker, tool, "pid").await)));
    }
    kill_process(pids[1], Signal::KILL).unwrap();
    for (tool, expected) in [("a__edit", pids[0]), ("c__edit", pids[2])] {
        assert_eq!(pid(&text(act(&worker, tool, "pid").await)), expected);
    }
    wait::for_tools(&worker, || {
        stage.upstreams.state("b") != Some(ServerState::Ready)
    })
    .await;
    assert_eq!(code(act(&worker, "b__edit", "pid").await), Code::ServerGone);
    assert!(stage.upstreams.reached("b", ServerState::Ready).await);
    assert_ne!(pid(&text(act(&worker, "b__edit", "pid").await)), pids[1]);
    for (tool, expected) in [("a__edit", pids[0]), ("c__edit", pids[2])] {
        assert_eq!(pid(&text(act(&worker, tool, "pid").await)), expected);
    }
}

/// Another thread than this one sends the notifications.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tools_match_the_notified_server_state() {
    // One question for all calls: how many a worker may ask in a minute is limited.
    let approver = Scripted::new().allow("*".parse().unwrap(), Lifetime::Session);
    let stage = test_runtime(start([hostile("h", "plain")]).await, |builder| {
        builder.approver(approver)
    })
    .await;
    let worker = stage.worker(Policy::new()).await;
    for _ in 0..cases().min(20) {
        let server = pid(&text(act(&worker, "h__edit", "pid").await));
        kill_process(server, Signal::KILL).unwrap();
        for there in [false, true] {
            let (upstreams, worker) = (stage.upstreams.clone(), worker.clone());
            if there {
                upstreams.retry("h");
            }
            let found = tokio::spawn(async move {
                let reached = |state| upstreams.reached("h", state);
                if there {
                    assert!(reached(ServerState::Ready).await);
                } else {
                    tokio::select! {
                        _ = reached(ServerState::Waiting) => {}
                        // It was killed too often.
                        _ = reached(ServerState::GivenUp) => {}
                    }
                }
                !worker.tools().is_empty()
            });
            assert_eq!(found.await.unwrap(), there);
        }
    }
}

#[tokio::test]
async fn server_that_never_starts_does_not_affect_others() {
    let upstreams = start([
        hostile("dies", "dies"),
        ServerSpec::stdio("missing", "/no/such/program"),
        hostile("fine", "plain"),
    ])
    .await;
    assert_ne!(upstreams.state("dies"), Some(ServerState::Ready));
    assert_ne!(upstreams.state("missing"), Some(ServerState::Ready));
    assert_eq!(upstreams.state("fine"), Some(ServerState::Ready));
    assert_eq!(upstreams.state("unknown"), None);
    let stage = test_runtime(upstreams, |builder| builder.approver(allow_once().0)).await;
    let worker = stage.worker(Policy::new()).await;
    assert!(worker.call("fine__note", json!({})).await.is_ok());
}

#[tokio::test]
async fn silent_server_times_out() {
    let bounds = Bounds {
        connect: Duration::from_millis(300),
        ..Bounds::default()
    };
    let builder = Upstreams::builder()
        .server(hostile("h", "silent"))
        .bounds(bounds);
    let upstreams = builder.start().await.unwrap();
    assert_eq!(upstreams.state("h"), Some(ServerState::Waiting));
}

#[tokio::test]
async fn retry_skips_the_backoff() {
    let tries = tempfile::NamedTempFile::new().unwrap();
    let path = tries.path().to_str().unwrap();
    let spec = ServerSpec::stdio("h", "sh").args(["-c", "echo >> \"$0\"", path]);
    let stage = test_runtime(start([spec]).await, |builder| builder).await;
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Waiting));
    let worker = stage.worker(Policy::new()).await;
    let began = Instant::now();
    for _ in 0..8 {
        // Notified once the server has failed again and waits.
        let mut changes = worker.tools_changes();
        stage.upstreams.retry("h");
        changes.next().await.unwrap();
    }
    assert!(std::fs::read(tries.path()).unwrap().len() >= 9);
    // Each pause is twice the one before.
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn servers_with_equal_names_are_rejected() {
    let twice = Upstreams::builder()
        .server(hostile("h", "plain"))
        .server(hostile("h", "plain"));
    assert_eq!(
        twice.start().await.unwrap_err(),
        SpecError::Duplicate("h".into())
    );
}

#[tokio::test]
async fn server_is_killed_with_its_process_group() {
    let (stage, worker) = alone("grandchild").await;
    let leader = pid(&text(act(&worker, "h__edit", "pid").await));
    let members = || -> BTreeSet<i32> {
        let group = leader.as_raw_nonzero().get();
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.filter_map(|it| it.unwrap().file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat
                .rsplit_once(") ")
                .map(|(_, after)| after.to_owned())
                .unwrap_or_default();
            let fields: Vec<_> = after.split(' ').collect();
            fields.first() != Some(&"Z") && fields.get(2) == Some(&group.to_string().as_str())
        })
        .collect()
    };
    assert_eq!(members().len(), 2);
    stage.upstreams.shutdown().await;
    assert_eq!(stage.upstreams.state("h"), Some(ServerState::Stopped));
    assert!(test_kill_process(leader).is_err());
    for member in members() {
        wait::for_exit(member).await;
    }
    assert_eq!(code(act(&worker, "h__edit", "").await), Code::ServerGone);
}

/// Tasks of this test.
fn tasks() -> usize {
    let runtime = tokio::runtime::Handle::current();
    runtime.metrics().num_alive_tasks()
}

#[tokio::test]
async fn escaped_processes_inherit_no_descriptors() {
    let escaped = tempfile::NamedTempFile::new().unwrap();
    let before = tasks();
    let spec = hostile("h", "escapes").args([escaped.path().to_str().unwrap()]);
    let upstreams = start([spec]).await;
    assert_eq!(upstreams.state("h"), Some(ServerState::Ready));
    let escaped = pid(&std::fs::read_to_string(escaped.path()).unwrap());
    upstreams.shutdown().await;
    drop(upstreams);
    // It holds the other end of the server's log.
    assert!(test_kill_process(escaped).is_ok());
    wait::until_idle().await;
    assert!(tasks() <= before);
    kill_process(escaped, Signal::KILL).unwrap();
}

#[tokio::test]
async fn dropping_the_last_handle_stops_the_servers() {
    let (stage, worker) = alone("plain").await;
    let server = pid(&text(act(&worker, "h__edit", "pid").await));
    let bailiwick_test_support::upstream::TestRuntime {
        upstreams, runtime, ..
    } = stage;
    drop(upstreams);
    assert_eq!(pid(&text(act(&worker, "h__edit", "pid").await)), server);
    drop((runtime, worker));
    wait::for_exit(server.as_raw_nonzero().get()).await;
}

/// How many servers come and go together.
const TOGETHER: usize = 10;

/// Set in the process that counts its descriptors. Beside other tests their descriptors would count, too.
const COUNTING: &str = "HOSTILE_COUNTING";

/// With `BAILIWICK_CASES=1000` in full.
#[test]
fn restarted_servers_leave_nothing_behind() {
    let counting = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "life::killed_servers_leave_no_descriptors",
            "--nocapture",
        ])
        .env(COUNTING, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&counting.stdout);
    let errors = String::from_utf8_lossy(&counting.stderr);
    assert!(counting.status.success(), "{printed}{errors}");
    assert!(printed.contains("1 passed"), "{printed}");
}

#[tokio::test]
async fn killed_servers_leave_no_descriptors() {
    if std::env::var_os(COUNTING).is_none() {
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut before = None;
    for _ in 0..=cases().div_ceil(TOGETHER) {
        let names: Vec<_> = (0..TOGETHER).map(|n| format!("h{n}")).collect();
        // On a busy machine so many servers may take longer to start than a person would wait.
        let bounds = Bounds {
            connect: PATIENCE,
            ..Bounds::default()
        };
        let builder = Upstreams::builder().bounds(bounds);
        let upstreams = builder.servers(names.iter().map(|name| hostile(name, "plain")));
        let stage = test_runtime(upstreams.start().await.unwrap(), |builder| {
            builder.approver(allow_once().0).call_limit(PATIENCE)
        })
        .await;
        let worker = stage.worker(Policy::new()).await;
        let mut servers = Vec::new();
        for name in &names {
            let answered = act(&worker, &format!("{name}__edit"), "pid").await;
            servers.push(pid(&text(answered)));
        }
        for server in servers.iter().step_by(2) {
            kill_process(*server, Signal::KILL).unwrap();
        }
        stage.upstreams.shutdown().await;
        for server in servers {
            // It was waited for as well: nobody has its number.
            assert!(test_kill_process(server).is_err());
        }
        stage.runtime.shutdown().await;
        drop((stage, worker));
        // The first round starts what stays for the life of the process.
        let expected = *before.get_or_insert((descriptors(), tasks()));
        // Threads of the runtime may still close files, of which nothing notifies.
        let closed = async {
            while descriptors() > expected.0 || tasks() > expected.1 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let closed = tokio::time::timeout(PATIENCE, closed).await;
        assert!(closed.is_ok(), "{} of {expected:?}", descriptors());
    }
}
