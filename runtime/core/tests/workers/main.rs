//! Tests of workers through the public interface.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod approval;
mod authority;
mod chat;
mod delegation;
mod faults;
mod history;
mod lifecycle;
mod people;
mod records;
mod stage;
mod stored_grants;
mod tools;
mod views;

use stage::{Stage, at, rounds, stage, stage_with};
use tools::{Board, Latch};
