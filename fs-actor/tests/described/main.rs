//! What the tools say of themselves in, calls that hold them to it out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and makes its files itself"
)]

mod claims;
mod support;
