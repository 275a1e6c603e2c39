//! Tests that the processes of a server end with the check.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bailiwick_test_support::invalid_server;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use crate::support::{LIMIT, check, command};

/// The number in a file, once it has been written.
async fn number(file: &Path) -> i32 {
    let number = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            if let Some(number) = text.strip_suffix('\n') {
                return number.parse().unwrap();
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, number)
        .await
        .expect("the process is started")
}

/// Waits until a process has ended. A zombie counts as ended.
async fn assert_ends(process: i32) {
    let stat = format!("/proc/{process}/stat");
    let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
    let ended = async {
        while lives() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, ended).await.expect("the process ends");
}

#[tokio::test]
async fn server_and_its_children_end_with_the_check() {
    let invalid = invalid_server::command("invalid_server_process");
    // With `STAY` it does not end when its input is closed.
    for stay in ["", "1"] {
        let place = tempfile::tempdir().unwrap();
        let script = r#"cd "$0"; echo $$ >server; export STAY="$1"; shift
            sleep 600 </dev/null >/dev/null 2>&1 & echo $! >child; exec "$@""#;
        let start = ["sh", "-c", script, place.path().to_str().unwrap(), stay];
        let run = check(&[&start[..], &invalid].concat()).await;
        assert_eq!(run.code, 1, "{}", run.stderr);
        for process in ["server", "child"] {
            assert_ends(number(&place.path().join(process)).await).await;
        }
    }
}

#[tokio::test]
async fn server_and_its_children_end_when_the_check_is_interrupted() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = tempfile::tempdir().unwrap();
        let script = r#"cd "$0"; sleep 600 & echo $! >child; echo $$ >server; wait"#;
        let start = ["sh", "-c", script, place.path().to_str().unwrap()];
        let mut check = command(&start)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let server = number(&place.path().join("server")).await;
        let child = number(&place.path().join("child")).await;
        let checker = i32::try_from(check.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(checker).unwrap(), signal).unwrap();
        let status = timeout(LIMIT, check.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(2), "{signal:?}");
        let mut output = String::new();
        let mut stderr = check.stderr.take().unwrap();
        stderr.read_to_string(&mut output).await.unwrap();
        assert_eq!(output, "bailiwick: the check was interrupted\n");
        assert_ends(server).await;
        assert_ends(child).await;
    }
}
