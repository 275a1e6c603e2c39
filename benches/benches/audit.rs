//! The cost of recording audit events in memory and in a file, compared with hashing and writing lines of the
//! same length.
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use bailiwick::MemoryAudit;
use bailiwick::audit::{Audit, JsonLines};
use bailiwick::effect::ContentHash;
use bailiwick_benches::{Benchmark, Target, audit_event, current_thread};

/// The audit is flushed between batches.
const BATCH: u32 = 500;
/// Events in a batch if each is flushed.
const FLUSHED: u32 = 20;

fn main() {
    let tokio = current_thread().unwrap();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flush = |audit: &Audit| tokio.block_on(audit.flush()).unwrap();
    let file = |name| JsonLines::create(folder.path().join(name)).unwrap();
    let memory = MemoryAudit::new(8192);
    let in_memory = Audit::start(memory.clone(), 8192).unwrap();
    let in_file = Audit::start(file("audit.jsonl"), 8192).unwrap();
    record(&in_memory, 1);
    flush(&in_memory);
    let line = memory.records().first().unwrap().line().to_owned() + "\n";
    let lines = RefCell::new(Lines::create(&folder.path().join("lines"), line));
    // The caller only queues an event; the audit's thread hashes and writes it, which counts as CPU time.
    Benchmark::new("record an event", Duration::from_secs(4))
        .case(
            "SHA-256 of a line, and write it",
            Target::None,
            BATCH,
            |n| {
                for _ in 0..n {
                    lines.borrow_mut().write();
                }
            },
        )
        .case_then(
            "record in memory",
            Target::None,
            BATCH,
            |n| record(&in_memory, n),
            || flush(&in_memory),
        )
        .case_then(
            "record in a file",
            Target::None,
            BATCH,
            |n| record(&in_file, n),
            || flush(&in_file),
        )
        .run();
    Benchmark::new("record an event and sync it", Duration::from_secs(4))
        .case("the same line, and sync it", Target::None, FLUSHED, |n| {
            for _ in 0..n {
                lines.borrow_mut().write();
                lines.borrow().file.sync_data().unwrap();
            }
        })
        .case("record in a file and flush", Target::None, FLUSHED, |n| {
            for _ in 0..n {
                record(&in_file, 1);
                flush(&in_file);
            }
        })
        .run();
}

fn record(audit: &Audit, n: u32) {
    let event = audit_event();
    for _ in 0..n {
        audit.record(event.clone()).unwrap();
    }
}

/// A file that consists of one line again and again.
struct Lines {
    file: File,
    line: String,
}

impl Lines {
    fn create(path: &Path, line: String) -> Self {
        Self {
            file: File::create(path).unwrap(),
            line,
        }
    }

    fn write(&mut self) {
        let hash = ContentHash::of(self.line.as_bytes());
        assert_ne!(hash.as_bytes(), &[0; 32]);
        self.file.write_all(self.line.as_bytes()).unwrap();
    }
}
