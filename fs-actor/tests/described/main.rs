//! Tests of what the tools document about themselves.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod claims;
mod support;
