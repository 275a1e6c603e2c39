//! Servers of others in, what workers may do with them out: real ones, and one that does what a server must not.
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
mod hostile;
mod http;
mod life;
mod noisy;
mod oauth;
mod others;
mod pins;
mod policy;
mod session;
mod support;
mod tls;
mod told;
mod town;
mod views;
