//! Tests of views and the tools of their pages through the public interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apps;
mod apps_hostile;
mod guest;

use bailiwick_test_support::stage::{Stage, at, stage};
