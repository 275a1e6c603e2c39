//! Judged calls in, files read, searched and changed out: the tools that a worker offers.

mod change;
mod diff;
mod edit;
mod lens;
mod page;
mod replace;
mod resolve;
#[cfg(test)]
mod testing;
mod text;
mod tools;
mod walk;

pub use tools::tools;
