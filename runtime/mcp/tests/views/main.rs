//! Tests of views and the tools of their pages through the public interface.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod apps;
mod apps_hostile;
mod guest;
#[path = "../../../core/tests/workers/stage.rs"]
mod stage;
#[path = "../../../core/tests/workers/tools.rs"]
mod tools;

use stage::{Stage, at, rounds, stage};
