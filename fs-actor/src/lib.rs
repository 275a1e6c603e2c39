//! Judged calls in, files read, searched and changed out: the tools that a worker offers.

mod lens;
mod resolve;
#[cfg(test)]
mod testing;
