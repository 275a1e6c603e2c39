//! What the benches share: a race of cases against a baseline, and the actors and runtimes that run in it.

mod floor;
mod race;
mod stage;

pub use floor::{Floor, Idle, Linked, Msg};
pub use race::{Race, Target};
pub use stage::{NOOP, Noop, NoopArgs, current, drive, stage, threaded};
