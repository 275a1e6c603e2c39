//! Tests of workers through the public interface.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod acting;
mod approval;
mod authority;
mod chat;
mod concurrency;
mod delegation;
mod faults;
mod history;
mod lifecycle;
mod observing;
mod pausing;
mod people;
mod pools;
mod previews;
mod recent_calls;
mod records;
mod stored_grants;
mod views;

use bailiwick_test_support::stage::{Stage, at, stage, stage_with};
use bailiwick_test_support::tools::{Board, Latch};
