//! Placeholder.

mod diff;
mod edit;
mod text;

/// How many cases each law is tried with: `BAILIWICK_CASES`, or 256.
#[cfg(test)]
pub(crate) fn cases() -> proptest::test_runner::Config {
    const DEFAULT: u32 = 256;
    let wanted = std::env::var("BAILIWICK_CASES").ok();
    let cases = wanted
        .and_then(|count| count.parse().ok())
        .unwrap_or(DEFAULT);
    proptest::test_runner::Config::with_cases(cases)
}
