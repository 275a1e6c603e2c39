//! Tests of third-party servers.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests look at folders from outside, as their owner would"
)]

mod chain;
mod client;
mod failures;
mod forwarding;
mod gateway;
mod hostile;
mod hostile_server;
mod http;
mod life;
mod noisy;
mod notifications;
mod oauth;
mod oauth_server;
mod pins;
mod policy;
mod session;
mod tls;
mod views;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_bailiwick");
