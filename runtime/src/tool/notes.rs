//! Notes of tool authors: examples, failures and reverse operations.

use crate::error::Code;

/// A call that can be made as it stands, and what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    /// What it does, such as `Read the last 20 lines`.
    pub description: &'static str,
    /// The arguments, as JSON.
    pub input: &'static str,
    /// Members of the structured output that the call answers with, as JSON.
    pub output: &'static str,
}

/// A code that the tool itself may answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// When it comes.
    pub when: &'static str,
    /// What to do about it.
    pub resolution: &'static str,
}

/// The tool that takes a call back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// Its name.
    pub tool: &'static str,
    /// How to call it, such as `swap from and to`.
    pub how: &'static str,
    /// Which calls it does not take back; empty if it takes back all.
    pub unless: &'static str,
}
