//! Judged calls in, files read, searched and changed out: the tools that a worker offers.

mod lens;
mod page;
mod resolve;
mod search;
#[cfg(test)]
mod testing;
mod tools;
mod walk;

pub use tools::tools;
