//! Numeric limits of a policy; the tightest of all layers holds.

use serde::Serialize;
use serde_json::Value;

use super::error::PolicyError;
use crate::budget::Budget;

/// Value of "unlimited"; it is the largest, so the tighter of two limits is their minimum.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The limits of a call, each the tightest of all layers; `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a returned file or part of a file, in bytes.
    pub read_max_bytes: u64,
    /// Maximum size of a written file, in bytes.
    pub write_max_bytes: u64,
    /// Maximum number of entries, names or matches in one result.
    pub max_results: u64,
    /// Maximum number of calls of a worker.
    pub max_calls: u64,
    /// Lifetime of a worker, in milliseconds.
    pub ttl_ms: u64,
    /// Minimum time between two calls, in milliseconds.
    pub min_interval_ms: u64,
    /// Budget of a worker and its descendants.
    pub budget: Budget,
}

impl Default for Limits {
    /// The defaults of a configuration: results fit into a model's context; lifetimes are unlimited.
    fn default() -> Self {
        Self {
            read_max_bytes: 1 << 20,
            write_max_bytes: 16 << 20,
            max_results: 1000,
            ..Self::UNLIMITED
        }
    }
}

impl Limits {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        read_max_bytes: UNLIMITED,
        write_max_bytes: UNLIMITED,
        max_results: UNLIMITED,
        max_calls: UNLIMITED,
        ttl_ms: UNLIMITED,
        min_interval_ms: 0,
        budget: Budget {
            calls: None,
            bytes_written: None,
            files_touched: None,
            children: None,
        },
    };

    /// The tighter of each.
    #[must_use]
    pub(crate) fn tighter(self, other: Self) -> Self {
        let Self {
            read_max_bytes,
            write_max_bytes,
            max_results,
            max_calls,
            ttl_ms,
            min_interval_ms,
            budget,
        } = self;
        Self {
            read_max_bytes: read_max_bytes.min(other.read_max_bytes),
            write_max_bytes: write_max_bytes.min(other.write_max_bytes),
            max_results: max_results.min(other.max_results),
            max_calls: max_calls.min(other.max_calls),
            ttl_ms: ttl_ms.min(other.ttl_ms),
            min_interval_ms: min_interval_ms.max(other.min_interval_ms),
            budget: budget.tighter(other.budget),
        }
    }
}

/// The limits of a policy as written: 0 is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct LimitFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) write_max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_results: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min_interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<Budget>,
}

impl LimitFields {
    /// The limits, with those of `base` where absent.
    pub(crate) fn compile(self, base: Limits) -> Limits {
        let Self {
            read_max_bytes,
            write_max_bytes,
            max_results,
            max_calls,
            ttl_ms,
            min_interval_ms,
            budget,
        } = self;
        Limits {
            read_max_bytes: read_max_bytes.map_or(base.read_max_bytes, upper),
            write_max_bytes: write_max_bytes.map_or(base.write_max_bytes, upper),
            max_results: max_results.map_or(base.max_results, upper),
            max_calls: max_calls.map_or(base.max_calls, upper),
            ttl_ms: ttl_ms.map_or(base.ttl_ms, upper),
            min_interval_ms: min_interval_ms.unwrap_or(base.min_interval_ms),
            budget: budget.unwrap_or(base.budget),
        }
    }

    /// Rejects limits that are looser than the issuer's.
    pub(crate) fn admit(self, held: &Limits) -> Result<(), PolicyError> {
        let Self {
            read_max_bytes,
            write_max_bytes,
            max_results,
            max_calls,
            ttl_ms,
            min_interval_ms,
            budget,
        } = self;
        let spend = budget.unwrap_or_default();
        let uppers = [
            (
                "/read_max_bytes",
                read_max_bytes.map(upper),
                held.read_max_bytes,
            ),
            (
                "/write_max_bytes",
                write_max_bytes.map(upper),
                held.write_max_bytes,
            ),
            ("/max_results", max_results.map(upper), held.max_results),
            ("/max_calls", max_calls.map(upper), held.max_calls),
            ("/ttl_ms", ttl_ms.map(upper), held.ttl_ms),
            ("/budget/calls", spend.calls, unlimited(held.budget.calls)),
            (
                "/budget/bytes_written",
                spend.bytes_written,
                unlimited(held.budget.bytes_written),
            ),
            (
                "/budget/files_touched",
                spend.files_touched,
                unlimited(held.budget.files_touched),
            ),
            (
                "/budget/children",
                spend.children,
                unlimited(held.budget.children),
            ),
        ];
        for (field, wanted, held) in uppers {
            if let Some(wanted) = wanted.filter(|wanted| *wanted > held) {
                return Err(loose(field, "is above the issuer's limit", wanted, held));
            }
        }
        match min_interval_ms.filter(|wanted| *wanted < held.min_interval_ms) {
            Some(wanted) => Err(loose(
                "/min_interval_ms",
                "is below the issuer's limit",
                wanted,
                held.min_interval_ms,
            )),
            None => Ok(()),
        }
    }
}

fn upper(written: u64) -> u64 {
    if written == 0 { UNLIMITED } else { written }
}

fn unlimited(held: Option<u64>) -> u64 {
    held.unwrap_or(UNLIMITED)
}

fn loose(field: &str, reason: &str, wanted: u64, held: u64) -> PolicyError {
    let wanted = if wanted == UNLIMITED {
        Value::from(0)
    } else {
        wanted.into()
    };
    PolicyError::expansion(field, reason, wanted, held)
}

impl LimitFields {
    /// Each key, and whether the policy sets it.
    pub(crate) fn present(&self) -> [(&'static str, bool); 7] {
        let Self {
            read_max_bytes,
            write_max_bytes,
            max_results,
            max_calls,
            ttl_ms,
            min_interval_ms,
            budget,
        } = self;
        [
            ("read_max_bytes", read_max_bytes.is_some()),
            ("write_max_bytes", write_max_bytes.is_some()),
            ("max_results", max_results.is_some()),
            ("max_calls", max_calls.is_some()),
            ("ttl_ms", ttl_ms.is_some()),
            ("min_interval_ms", min_interval_ms.is_some()),
            ("budget", budget.is_some()),
        ]
    }
}
