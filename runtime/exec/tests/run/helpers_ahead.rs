//! The helper of the next command is started while a command runs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use bailiwick::{Runtime, Worker};
use bailiwick_exec::{Commands, Helper};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

use super::commands::{everything, fifo, runtime_with, shell, worker};

/// A helper that reports its process id before it begins.
fn reporting_helper(dir: &Path) -> (Helper, Receiver<Pid>) {
    let pipe = dir.join("pids");
    fifo(&pipe);
    let program = dir.join("helper");
    let helper = env!("CARGO_BIN_EXE_bailiwick-exec-helper");
    let text = format!(
        "#!/bin/bash\necho $$ > '{}'\nexec -a bailiwick-exec '{helper}' \"$@\"\n",
        pipe.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // It is never at its end, since it is open for writing, too.
    let pipe = fs::File::options()
        .read(true)
        .write(true)
        .open(pipe)
        .unwrap();
    let (sender, pids) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let pid = Pid::from_raw(line.unwrap().parse().unwrap()).unwrap();
            if sender.send(pid).is_err() {
                return;
            }
        }
    });
    (Helper::At(program), pids)
}

/// A runtime whose helpers report their process ids.
struct Stage {
    runtime: Runtime,
    worker: Worker,
    pids: Receiver<Pid>,
    dirs: [TempDir; 2],
}

impl Stage {
    async fn new() -> Self {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [root, dir] = &dirs;
        let (helper, pids) = reporting_helper(dir.path());
        let commands = Commands::new().helper(helper);
        let runtime = runtime_with(root.path(), commands, |builder| builder).await;
        let worker = worker(&runtime, everything()).await;
        Self {
            runtime,
            worker,
            pids,
            dirs,
        }
    }
}

#[tokio::test]
async fn command_uses_the_helper_that_was_started_ahead() {
    let stage = Stage::new().await;
    assert_eq!(shell(&stage.worker, "echo first").await.stdout, "first\n");
    let _first = stage.pids.recv().unwrap();
    for _ in 0..3 {
        let ahead = pidfd_open(stage.pids.recv().unwrap(), PidfdFlags::empty()).unwrap();
        assert_eq!(shell(&stage.worker, "echo next").await.stdout, "next\n");
        // Unless the command used it, it still waits for one.
        wait_for_end(&ahead);
    }
    let _last = stage.pids.recv().unwrap();
    assert!(stage.pids.try_recv().is_err(), "a helper was not used");
}

#[tokio::test]
async fn command_runs_if_the_helper_that_was_started_ahead_was_killed() {
    let stage = Stage::new().await;
    shell(&stage.worker, "true").await;
    let _first = stage.pids.recv().unwrap();
    kill(stage.pids.recv().unwrap());
    assert_eq!(shell(&stage.worker, "echo next").await.stdout, "next\n");
}

#[tokio::test]
async fn helper_that_was_started_ahead_ends_with_the_runtime() {
    let Stage {
        runtime,
        worker,
        pids,
        dirs: _dirs,
    } = Stage::new().await;
    shell(&worker, "true").await;
    let _first = pids.recv().unwrap();
    let ahead = pidfd_open(pids.recv().unwrap(), PidfdFlags::empty()).unwrap();
    runtime.shutdown().await;
    drop((runtime, worker));
    wait_for_end(&ahead);
}

fn kill(pid: Pid) {
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    wait_for_end(&process);
}

/// Waits for the end of a process, which the runtime may have reaped.
fn wait_for_end(process: &OwnedFd) {
    let limit = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    // The signal of a child that ended interrupts it.
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)));
    assert_eq!(ended, Ok(1), "the process runs");
}
