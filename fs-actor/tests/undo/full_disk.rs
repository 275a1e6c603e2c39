//! Calls and undo while the disk is full.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use bailiwick::Code;
use bailiwick_test_support::numbers::Numbers;

use super::killed::{check_recovered, random_call, runtime, undo_all, worker};
use super::{plant, run, tree};

/// Fills the disk, except for this many pages of 4 KiB.
fn fill(file: &Path, free: usize) {
    let mut file = File::create(file).unwrap();
    let mut len = 0;
    for size in [1 << 16, 1 << 12] {
        let error = loop {
            match file.write_all(&vec![0; size]) {
                Ok(()) => len += size as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let kept = len.saturating_sub((free as u64) << 12);
    file.set_len(kept).unwrap();
}

#[test]
#[ignore = "child process of the test below, with a disk of its own"]
fn calls_on_a_full_disk() {
    let disk = Path::new("/mnt");
    let cases = super::cases(12).cases.min(200);
    let mut full = 0;
    for case in 0..u64::from(cases) {
        let mut numbers = Numbers(case);
        let temp = tempfile::tempdir_in(disk).unwrap();
        let root = temp.path().join("r");
        fs::create_dir(&root).unwrap();
        plant(&root);
        let first = tree(&root);
        run(async {
            let (runtime, _grants) = runtime(temp.path()).await;
            let worker = worker(&runtime).await;
            for _ in 0..numbers.below(12) {
                let (tool, arguments) = random_call(&mut numbers);
                let _ = worker.call(tool, arguments).await;
            }
            for _ in 0..4 {
                let before = tree(&root);
                let filler = disk.join("filler");
                fill(&filler, numbers.below(40));
                let (tool, arguments) = random_call(&mut numbers);
                let result = worker.call(tool, arguments.clone()).await;
                fs::remove_file(filler).unwrap();
                if let Err(error) = result {
                    full += usize::from(error.code() == Code::Io);
                    let now = tree(&root);
                    assert_eq!(now, before, "case {case}: {tool} {arguments}: {error:?}");
                }
            }
            runtime.shutdown().await;
        });
        run(async {
            let (runtime, grants) = runtime(temp.path()).await;
            check_recovered(&runtime, case);
            undo_all(&runtime, &grants, case).await;
            assert_eq!(tree(&root), first, "case {case}");
            runtime.shutdown().await;
        });
    }
    assert!(full > 0);
}

#[test]
fn call_on_a_full_disk_is_made_as_a_whole_or_not_at_all() {
    let script = "mount -t tmpfs -o size=4m none /mnt || { echo 'this test mounts a tmpfs, so it runs as root' >&2; exit 1; }
        exec \"$0\" --ignored --exact --nocapture full_disk::calls_on_a_full_disk";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-ec", script])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{stderr}"
    );
}
