//! Number of cases of property tests.

use proptest::test_runner::Config;

/// Runs `BAILIWICK_CASES` cases, or `default` if it is not set.
pub(crate) fn cases(default: u32) -> Config {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    Config::with_cases(asked.map_or(default, |cases| cases.parse().unwrap()))
}
