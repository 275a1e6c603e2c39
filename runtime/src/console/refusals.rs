//! What a person refused for the rest of a session in, whether a later question is answered by that out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::id::WorkerId;
use crate::permission::Request;
use crate::scope::Scope;

/// How many refusals are kept; the oldest go first, and are asked again.
const MOST: usize = 1000;

/// What one worker is not to be asked about again in its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refused {
    pub(super) session: Arc<str>,
    pub(super) worker: WorkerId,
    pub(super) agent: String,
    pub(super) needs: Vec<Scope>,
}

/// Refusals that outlive their question. They only ever refuse.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    kept: BTreeMap<u64, Refused>,
    next: u64,
}

impl Refusals {
    /// Refuses from now on what `request` needs.
    pub(super) fn add(&mut self, request: &Request) {
        if self.refuses(request) {
            return;
        }
        if self.kept.len() >= MOST {
            self.kept.pop_first();
        }
        let refused = Refused {
            session: Arc::clone(&request.session),
            worker: request.worker,
            agent: request.agent_path.join("/"),
            needs: request.needs.clone(),
        };
        self.kept.insert(self.next, refused);
        self.next += 1;
    }

    /// Whether something that `request` needs was refused to its worker, in its session.
    pub(super) fn refuses(&self, request: &Request) -> bool {
        self.kept.values().any(|refused| {
            refused.session == request.session
                && refused.worker == request.worker
                && request
                    .needs
                    .iter()
                    .any(|need| refused.needs.contains(need))
        })
    }

    /// Asks again. Returns whether it was refused.
    pub(super) fn lift(&mut self, refusal: u64) -> bool {
        self.kept.remove(&refusal).is_some()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Refused)> {
        self.kept.iter().map(|(number, refused)| (*number, refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::tests::request;

    #[test]
    fn only_the_same_need_of_the_same_worker_in_the_same_session_is_refused() {
        let mut refusals = Refusals::default();
        let refused = request(1, 1, &["write:file:/r/a"]);
        refusals.add(&refused);
        refusals.add(&refused);
        assert_eq!(refusals.iter().count(), 1);
        assert!(refusals.refuses(&request(1, 2, &["read:file:/r/b", "write:file:/r/a"])));
        for other in [
            request(2, 1, &["write:file:/r/a"]),
            request(1, 1, &["read:file:/r/a"]),
            request(1, 1, &["write:file:/r/b"]),
        ] {
            assert!(!refusals.refuses(&other), "{other:?}");
        }
        let mut later = request(1, 1, &["write:file:/r/a"]);
        later.session = "another".into();
        assert!(!refusals.refuses(&later));
        assert!(refusals.lift(0) && !refusals.lift(0));
        assert!(!refusals.refuses(&refused));
    }

    #[test]
    fn they_are_bounded() {
        let mut refusals = Refusals::default();
        for n in 0..=MOST as u64 {
            refusals.add(&request(n, 1, &["write:file:/r/a"]));
        }
        assert_eq!(refusals.iter().count(), MOST);
        assert!(!refusals.refuses(&request(0, 1, &["write:file:/r/a"])));
        assert!(refusals.refuses(&request(1, 1, &["write:file:/r/a"])));
    }
}
