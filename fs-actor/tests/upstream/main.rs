//! Servers of others in, what workers may do with them out: real ones, and one that does what a server must not.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]
#![expect(clippy::expect_used, reason = "a test that cannot be set up must fail")]

mod chain;
mod client;
mod hostile;
mod http;
mod life;
mod others;
mod policy;
mod support;
