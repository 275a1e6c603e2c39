//! Helpers for benchmarks: comparison with a baseline, actors and runtimes.

mod actors;
mod benchmark;
mod setup;

pub use actors::{EchoActor, LinkedActors, MinimalActor, Msg, PANIC};
pub use benchmark::{Benchmark, Target, brief, median};
pub use setup::{
    NOOP, Noop, NoopArgs, audit_event, authority_and_need, build_runtime, current_thread,
    edited_text, multi_thread, run_task, spawn_and_call,
};
