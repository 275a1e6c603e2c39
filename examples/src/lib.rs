//! Helpers that several examples share.

mod diff;
mod exit;

pub use diff::{format_diff, use_color};
pub use exit::{BoxError, exit_code};
