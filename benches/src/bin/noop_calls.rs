//! Makes as many no-op calls as its argument says, for counting instructions (`.ci/instructions`).
#![expect(clippy::unwrap_used, reason = "benchmarks panic on failure")]

use bailiwick::tool::ToolName;
use bailiwick_benches::{NOOP, NoopArgs, build_runtime, current_thread, run_task};

fn main() {
    let calls: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let tokio = current_thread().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (runtime, spec) = tokio.block_on(build_runtime(root.path(), 8192)).unwrap();
    let worker = tokio.block_on(runtime.spawn(spec)).unwrap();
    run_task(&tokio, async move {
        let noop = ToolName::new(NOOP);
        for call in 0..calls {
            worker.call_typed(&noop, NoopArgs {}).await.unwrap();
            if call % 1000 == 0 {
                runtime.flush_audit().await.unwrap();
            }
        }
        runtime.flush_audit().await.unwrap();
    });
}
