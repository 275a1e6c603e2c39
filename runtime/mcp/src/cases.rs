//! The number of cases of property tests.

use proptest::test_runner::Config;

/// Runs `BAILIWICK_CASES` cases, or `default` if the variable is not set.
pub(crate) fn cases(default: u32) -> Config {
    let requested = std::env::var("BAILIWICK_CASES").ok();
    Config::with_cases(requested.map_or(default, |cases| cases.parse().unwrap()))
}
