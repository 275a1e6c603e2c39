//! Laws, vectors and a small model of the whole algebra.

use proptest::test_runner::Config as Cases;

/// How many cases a law is tried on: `BAILIWICK_CASES`, else a hundred thousand.
pub(crate) fn cases() -> Cases {
    let cases = std::env::var("BAILIWICK_CASES").ok();
    Cases {
        failure_persistence: None,
        ..Cases::with_cases(
            cases
                .and_then(|cases| cases.parse().ok())
                .unwrap_or(100_000),
        )
    }
}

mod laws;
mod model;
mod rules;
mod vectors;
