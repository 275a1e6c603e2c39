//! Tests of the program as a gateway for third-party servers.
#![cfg_attr(
    feature = "interop",
    expect(
        clippy::needless_pass_by_value,
        reason = "requests are made where they are sent"
    )
)]

mod calls;
mod client;
/// Its server is a Python program.
#[cfg(feature = "interop")]
mod documents;
mod files;
