//! Number of cases of property tests.

use proptest::test_runner::Config;

/// Tries `BAILIWICK_CASES` cases, or `default` where it is not set.
pub(crate) fn cases(default: u32) -> Config {
    let asked = std::env::var("BAILIWICK_CASES").ok();
    Config::with_cases(asked.map_or(default, |cases| cases.parse().unwrap()))
}
