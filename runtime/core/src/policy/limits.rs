//! Numeric limits of a policy. The strictest limit of all layers counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::PolicyError;
use super::parse::known_members;
use crate::budget::Budget;

/// Value of "unlimited". It is the largest value, so the stricter of two limits is their minimum.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// The limits of a call, each the strictest of all layers; `u64::MAX` is unlimited.
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
            cpu_ms: None,
            wall_ms: None,
            output_bytes: None,
            processes: None,
            memory_bytes: None,
        },
    };

    /// The stricter limit of both, for each limit.
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

/// A numeric key of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    ReadMaxBytes,
    WriteMaxBytes,
    MaxResults,
    MaxCalls,
    TtlMs,
    MinIntervalMs,
}

/// The limits that a policy sets, as written: 0 is unlimited, except in `budget`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitFields {
    #[serde(flatten, deserialize_with = "known_members")]
    pub(crate) counts: BTreeMap<Limit, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<Budget>,
}

impl LimitFields {
    /// The limits. Absent ones are taken from `base`.
    pub(crate) fn compile(&self, base: Limits) -> Limits {
        let upper = |limit, base| self.upper(limit).unwrap_or(base);
        let min_interval_ms = self.counts.get(&Limit::MinIntervalMs);
        Limits {
            read_max_bytes: upper(Limit::ReadMaxBytes, base.read_max_bytes),
            write_max_bytes: upper(Limit::WriteMaxBytes, base.write_max_bytes),
            max_results: upper(Limit::MaxResults, base.max_results),
            max_calls: upper(Limit::MaxCalls, base.max_calls),
            ttl_ms: upper(Limit::TtlMs, base.ttl_ms),
            min_interval_ms: min_interval_ms.copied().unwrap_or(base.min_interval_ms),
            budget: self.budget.unwrap_or(base.budget),
        }
    }

    /// An upper limit, if it is set.
    fn upper(&self, limit: Limit) -> Option<u64> {
        let written = self.counts.get(&limit).copied();
        written.map(|written| if written == 0 { UNLIMITED } else { written })
    }

    /// Rejects limits that are looser than the issuer's.
    pub(crate) fn admit(&self, held: &Limits) -> Result<(), PolicyError> {
        let upper = |key, limit, held| check_upper(key, self.upper(limit), held);
        upper("read_max_bytes", Limit::ReadMaxBytes, held.read_max_bytes)?;
        upper(
            "write_max_bytes",
            Limit::WriteMaxBytes,
            held.write_max_bytes,
        )?;
        upper("max_results", Limit::MaxResults, held.max_results)?;
        upper("max_calls", Limit::MaxCalls, held.max_calls)?;
        upper("ttl_ms", Limit::TtlMs, held.ttl_ms)?;
        let (wanted, budget) = (self.budget.unwrap_or_default(), held.budget);
        let within =
            |key, wanted, held: Option<u64>| check_upper(key, wanted, held.unwrap_or(UNLIMITED));
        within("budget/calls", wanted.calls, budget.calls)?;
        within(
            "budget/bytes_written",
            wanted.bytes_written,
            budget.bytes_written,
        )?;
        within(
            "budget/files_touched",
            wanted.files_touched,
            budget.files_touched,
        )?;
        within("budget/children", wanted.children, budget.children)?;
        within("budget/cpu_ms", wanted.cpu_ms, budget.cpu_ms)?;
        within("budget/wall_ms", wanted.wall_ms, budget.wall_ms)?;
        within(
            "budget/output_bytes",
            wanted.output_bytes,
            budget.output_bytes,
        )?;
        within("budget/processes", wanted.processes, budget.processes)?;
        within(
            "budget/memory_bytes",
            wanted.memory_bytes,
            budget.memory_bytes,
        )?;
        let (key, held) = ("min_interval_ms", held.min_interval_ms);
        match self.counts.get(&Limit::MinIntervalMs) {
            Some(&wanted) if wanted < held => {
                Err(loose(key, "is below the issuer's limit", wanted, held))
            }
            _ => Ok(()),
        }
    }
}

fn check_upper(key: &str, wanted: Option<u64>, held: u64) -> Result<(), PolicyError> {
    match wanted {
        Some(wanted) if wanted > held => {
            let written = if wanted == UNLIMITED { 0 } else { wanted };
            Err(loose(key, "is above the issuer's limit", written, held))
        }
        _ => Ok(()),
    }
}

fn loose(key: &str, reason: &str, wanted: u64, held: u64) -> PolicyError {
    PolicyError::expansion(format!("/{key}"), reason, wanted, held)
}
