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

mod certificates;
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
mod raw;
mod session;
mod support;
mod tls;
mod views;
