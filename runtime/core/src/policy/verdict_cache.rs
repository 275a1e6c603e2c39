//! Cache of the needs that an authority allows.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::{Authority, Verdict};
use crate::scope::{Coverage, Detail, Scope};

/// Maximum number of needs in a cache.
const MAX_NEEDS: usize = 16;
/// Maximum length in bytes of the path or the segments of a need in a cache.
const MAX_DETAIL: usize = 256;

/// The needs that one authority allows without a grant. Its rules never change, so they stay allowed.
#[derive(Debug)]
#[doc(hidden)]
pub struct VerdictCache {
    authority: Authority,
    allowed: HashSet<Scope, RandomState>,
}

impl VerdictCache {
    /// An empty cache of the verdicts of `authority`.
    #[must_use]
    pub fn new(authority: Authority) -> Self {
        Self {
            authority,
            allowed: HashSet::default(),
        }
    }

    /// Returns `authority.judge(need, granted)`. It is only cached if `authority` is that of the cache.
    pub fn judge(&mut self, authority: &Authority, need: &Scope, granted: &[Coverage]) -> Verdict {
        if !self.authority.is_same(authority) {
            return authority.judge(need, granted);
        }
        // Grants turn no verdict into a stricter one.
        if self.allowed.contains(need) {
            return Verdict::Allow;
        }
        let verdict = authority.judge(need, granted);
        if verdict == Verdict::Allow && granted.is_empty() && detail_len(need) <= MAX_DETAIL {
            if self.allowed.len() >= MAX_NEEDS {
                self.allowed.clear();
            }
            self.allowed.insert(need.clone());
        }
        verdict
    }
}

fn detail_len(need: &Scope) -> usize {
    match need.detail() {
        Detail::None => 0,
        Detail::Path(path) => path.as_str().len(),
        Detail::Segments(segments) => segments.len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_DETAIL, MAX_NEEDS, VerdictCache};
    use crate::config::Config;
    use crate::policy::{Authority, Verdict};
    use crate::scope::Scope;

    fn authority() -> Authority {
        let config = json!({ "roots": [{ "path": "/r" }] });
        Authority::configured(&Config::parse(&config).unwrap()).unwrap()
    }

    fn need(path: &str) -> Scope {
        format!("read:file:{path}").parse().unwrap()
    }

    #[test]
    fn cache_is_bounded_in_needs_and_bytes() {
        let authority = authority();
        let mut cache = VerdictCache::new(authority.clone());
        let longest = format!("/r/{}", "x".repeat(MAX_DETAIL - 3));
        for path in [longest.clone(), format!("{longest}x")] {
            assert_eq!(cache.judge(&authority, &need(&path), &[]), Verdict::Allow);
            assert_eq!(cache.allowed.len(), 1);
        }
        for n in 0..3 * MAX_NEEDS {
            let need = need(&format!("/r/{n}"));
            assert_eq!(cache.judge(&authority, &need, &[]), Verdict::Allow);
            assert!(cache.allowed.contains(&need) && cache.allowed.len() <= MAX_NEEDS);
        }
    }

    #[test]
    fn only_verdicts_of_its_own_authority_without_grants_are_cached() {
        let (own, other) = (authority(), authority());
        let mut cache = VerdictCache::new(own.clone());
        let (inside, outside) = (need("/r/a"), need("/etc/passwd"));
        assert_eq!(cache.judge(&other, &inside, &[]), Verdict::Allow);
        let granted = ["read:file:/r/a".parse().unwrap()];
        assert_eq!(cache.judge(&own, &inside, &granted), Verdict::Allow);
        assert_eq!(cache.judge(&own, &outside, &[]), Verdict::Deny);
        assert!(cache.allowed.is_empty());
        assert_eq!(cache.judge(&own, &inside, &[]), Verdict::Allow);
        assert!(cache.allowed.contains(&inside));
    }
}
