//! Examples, error codes and reverse operations, documented by the authors of tools.

use crate::error::Code;

/// An example call with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// What it does, such as `Read the last 20 lines`.
    pub description: &'static str,
    /// The arguments, as JSON.
    pub input: &'static str,
    /// Members of the structured output of the call, as JSON.
    pub output: &'static str,
}

/// An error code of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// When it occurs.
    pub when: &'static str,
    /// What to do about it.
    pub resolution: &'static str,
}

/// The tool that reverses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// Its name.
    pub tool: &'static str,
    /// How to call it, such as `swap from and to`.
    pub how: &'static str,
    /// The calls that it cannot reverse; empty if it reverses all calls.
    pub unless: &'static str,
}
