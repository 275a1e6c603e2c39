//! Table of grants: finds the narrowest grants that cover the needs of a call and counts their uses.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::settings::Narrowing;
use super::{GrantHolder, Lifetime, NewGrant};
use crate::capability::{CloseReason, Gate};
use crate::id::{GrantId, WorkerId};
use crate::scope::{Coverage, Reach, Scope, ScopePattern};

/// A worker that wants to use grants.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Requester {
    pub(crate) worker: WorkerId,
    /// From the nearest to the outermost.
    pub(crate) ancestors: Arc<[WorkerId]>,
    pub(crate) session: Arc<str>,
    /// The agent's path, such as `main/tests`.
    pub(crate) agent: Arc<str>,
}

impl Requester {
    /// All holders whose grants may apply to this requester, and whether it must inherit them.
    fn holders(&self) -> impl Iterator<Item = (GrantHolder, bool)> {
        let workers = std::iter::once((self.worker, false))
            .chain(self.ancestors.iter().map(|ancestor| (*ancestor, true)))
            .flat_map(|(worker, down)| {
                let session = GrantHolder::Session {
                    session: Arc::clone(&self.session),
                    worker,
                };
                [(GrantHolder::Worker(worker), down), (session, down)]
            });
        let agents = std::iter::successors(Some(&*self.agent), |path| {
            path.rsplit_once('/').map(|(parent, _)| parent)
        })
        .map(|path| {
            let down = path.len() != self.agent.len();
            (GrantHolder::Agent(path.into()), down)
        });
        workers.chain(agents)
    }
}

impl GrantView {
    /// Whether `requester` may use it.
    pub(crate) fn is_held_by(&self, requester: &Requester) -> bool {
        let mut holders = requester.holders();
        holders.any(|(holder, down)| holder == self.holder && (self.descendants || !down))
    }
}

/// The grants that a call uses, and the gates that stop it when they are revoked.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct UsedGrants {
    pub(crate) patterns: Vec<Coverage>,
    pub(crate) gates: Vec<Arc<Gate>>,
    /// The grants that were used once each, as they were before; empty for an answer that holds for one call.
    pub(crate) grants: Vec<GrantView>,
    /// The patterns that were sent with the call.
    pub(crate) brought: Vec<ScopePattern>,
}

/// A grant as people see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GrantView {
    /// Its id.
    pub id: GrantId,
    /// What it covers.
    #[serde(flatten)]
    pub pattern: Coverage,
    /// Who may use it.
    pub holder: GrantHolder,
    /// Whether the holder's descendants may use it, too; those with another session may not use a grant for a session.
    pub descendants: bool,
    /// How many uses are left; `None` if they are not counted.
    pub uses_left: Option<u32>,
    /// When it expires, since the runtime began; `None` if it does not.
    pub expires_at: Option<Duration>,
    /// How often it was used.
    pub used: u64,
    /// When it was given, in milliseconds since 1970.
    pub given_at_ms: u64,
}

#[derive(Debug)]
struct Grant {
    view: GrantView,
    narrowness: Narrowness,
    gate: Arc<Gate>,
    /// All grants of the same answer, if their uses are counted: the answer allows a number of calls, not of scopes.
    counted_together: Arc<[GrantId]>,
}

impl Grant {
    fn is_live(&self, now: Duration) -> bool {
        self.view.uses_left != Some(0) && self.view.expires_at.is_none_or(|end| now < end)
    }
}

/// All grants that outlive one call.
#[derive(Debug, Default)]
pub(crate) struct GrantTable {
    grants: BTreeMap<GrantId, Grant>,
    by_holder: BTreeMap<GrantHolder, BTreeSet<GrantId>>,
}

impl GrantTable {
    /// Adds a grant. Its time begins `now`.
    pub(crate) fn insert(&mut self, id: GrantId, new: NewGrant, now: Duration, given_at_ms: u64) {
        let (uses_left, expires_at) = match new.lifetime {
            Lifetime::Once => (Some(NonZeroU32::MIN.get()), None),
            Lifetime::Waiting(uses) | Lifetime::Uses(uses) => (Some(uses.get()), None),
            Lifetime::For(time) => (None, Some(now.saturating_add(time))),
            Lifetime::Session | Lifetime::Agent => (None, None),
        };
        let grant = Grant {
            narrowness: narrowness(&new.pattern),
            view: GrantView {
                id,
                pattern: new.pattern,
                holder: new.holder.clone(),
                descendants: new.descendants,
                uses_left,
                expires_at,
                used: 0,
                given_at_ms,
            },
            gate: Arc::default(),
            counted_together: Arc::new([id]),
        };
        self.grants.insert(id, grant);
        self.by_holder.entry(new.holder).or_default().insert(id);
    }

    /// Lets these grants of one answer share their uses.
    pub(crate) fn share_uses(&mut self, ids: &[GrantId]) {
        let together: Arc<[GrantId]> = ids.into();
        for id in ids {
            if let Some(grant) = self.grants.get_mut(id) {
                grant.counted_together = Arc::clone(&together);
            }
        }
    }

    /// Uses each needed grant once, if live grants cover all `needs`; otherwise uses none.
    ///
    /// Of the grants that cover a need, the narrowest is used; among equals, one that is used for another need already,
    /// then one whose uses are not counted.
    pub(crate) fn use_grants(
        &mut self,
        requester: &Requester,
        needs: &[Scope],
        now: Duration,
    ) -> Option<UsedGrants> {
        let chosen = self.usable(requester, needs, now)?;
        let mut used = UsedGrants::default();
        let mut counted = BTreeSet::new();
        for id in chosen {
            let grant = self.grants.get_mut(&id)?;
            used.grants.push(grant.view.clone());
            grant.view.used = grant.view.used.saturating_add(1);
            counted.extend(grant.counted_together.iter().copied());
            used.patterns.push(grant.view.pattern.clone());
            used.gates.push(Arc::clone(&grant.gate));
        }
        for id in counted {
            if let Some(Grant { view, .. }) = self.grants.get_mut(&id) {
                view.uses_left = view.uses_left.map(|left| left.saturating_sub(1));
            }
        }
        Some(used)
    }

    /// The grants that [`Self::use_grants`] would use.
    pub(crate) fn usable(
        &self,
        requester: &Requester,
        needs: &[Scope],
        now: Duration,
    ) -> Option<BTreeSet<GrantId>> {
        let mut usable: Vec<&Grant> = Vec::new();
        for (holder, down) in requester.holders() {
            let held = self.by_holder.get(&holder).into_iter().flatten();
            let held = held.filter_map(|id| self.grants.get(id));
            usable.extend(
                held.filter(|grant| grant.is_live(now) && (grant.view.descendants || !down)),
            );
        }
        let mut chosen = BTreeSet::new();
        for need in needs {
            let fitting = usable
                .iter()
                .filter(|grant| grant.view.pattern.covers(need));
            let narrowest = fitting.min_by_key(|grant| {
                let breadth = std::cmp::Reverse(grant.narrowness);
                let is_new = !chosen.contains(&grant.view.id);
                (breadth, is_new, grant.view.uses_left.is_some())
            })?;
            chosen.insert(narrowest.view.id);
        }
        Some(chosen)
    }

    /// Revokes a grant and closes its gate; the caller waits until it is idle.
    pub(crate) fn revoke(&mut self, id: GrantId) -> Option<(GrantHolder, Arc<Gate>)> {
        let Grant { view, gate, .. } = self.remove(id)?;
        gate.close(CloseReason::GrantRevoked);
        Some((view.holder, gate))
    }

    /// Narrows a grant by `change`, which must narrow it. Calls that use it continue, unless they may exceed the narrowed
    /// grant: then their gate is closed, and the caller waits until it is idle.
    pub(crate) fn narrow(
        &mut self,
        id: GrantId,
        change: &Narrowing,
        now: Duration,
    ) -> Option<Arc<Gate>> {
        let grant = self.grants.get_mut(&id)?;
        if !grant.is_live(now) {
            return None;
        }
        let view = &mut grant.view;
        let cuts = change.cuts(view);
        view.pattern = change.left_of(&view.pattern)?;
        grant.narrowness = narrowness(&view.pattern);
        if let Some(time) = change.time {
            view.expires_at = Some(now.saturating_add(time));
        }
        view.descendants &= !change.holder_only;
        let gate = cuts.then(|| std::mem::take(&mut grant.gate));
        if let Some(uses) = change.uses {
            // A separate count would allow more calls than the answer did.
            for id in Arc::clone(&grant.counted_together).iter() {
                if let Some(Grant { view, .. }) = self.grants.get_mut(id) {
                    view.uses_left = Some(uses.get());
                }
            }
        }
        gate.inspect(|gate| {
            gate.close(CloseReason::GrantRevoked);
        })
    }

    /// All grants that end with the worker.
    pub(crate) fn of_worker(&self, worker: WorkerId) -> Vec<GrantId> {
        self.held_by(|holder| match holder {
            GrantHolder::Worker(of) | GrantHolder::Session { worker: of, .. } => *of == worker,
            GrantHolder::Agent(_) => false,
        })
    }

    /// All grants that end with `session`.
    pub(crate) fn of_session(&self, session: &str) -> Vec<GrantId> {
        self.held_by(
            |holder| matches!(holder, GrantHolder::Session { session: of, .. } if **of == *session),
        )
    }

    fn held_by(&self, wanted: impl Fn(&GrantHolder) -> bool) -> Vec<GrantId> {
        let held = self.by_holder.iter().filter(|(holder, _)| wanted(holder));
        held.flat_map(|(_, ids)| ids).copied().collect()
    }

    /// Removes dead grants, except those that a call in flight uses, which can still be revoked.
    pub(crate) fn collect(&mut self, now: Duration) {
        let is_dead = |grant: &&Grant| !grant.is_live(now) && Arc::strong_count(&grant.gate) == 1;
        let dead = self.grants.values().filter(is_dead);
        let dead: Vec<GrantId> = dead.map(|grant| grant.view.id).collect();
        for id in dead {
            self.remove(id);
        }
    }

    /// A grant, if it is live.
    pub(crate) fn view(&self, id: GrantId, now: Duration) -> Option<GrantView> {
        let grant = self.grants.get(&id)?;
        grant.is_live(now).then(|| grant.view.clone())
    }

    /// All live grants, in the order in which they were given.
    pub(crate) fn views(&self, now: Duration) -> Vec<GrantView> {
        let live = self.grants.values().filter(|grant| grant.is_live(now));
        live.map(|grant| grant.view.clone()).collect()
    }

    /// Number of grants in the table.
    pub(crate) fn len(&self) -> usize {
        self.grants.len()
    }

    fn remove(&mut self, id: GrantId) -> Option<Grant> {
        let grant = self.grants.remove(&id)?;
        if let Entry::Occupied(mut held) = self.by_holder.entry(grant.view.holder.clone()) {
            held.get_mut().remove(&id);
            if held.get().is_empty() {
                held.remove();
            }
        }
        Some(grant)
    }
}

/// Length of the detail; whether it is exact and names the resource and the verb; and how many operations it lacks.
type Narrowness = (usize, bool, bool, bool, std::cmp::Reverse<u32>);

/// How specific a grant is. Of two grants that cover the same path, the greater is the narrower.
fn narrowness(covered: &Coverage) -> Narrowness {
    let pattern = covered.pattern();
    let text = pattern.to_string();
    let detail = text.splitn(3, ':').nth(2).unwrap_or_default();
    (
        detail.len(),
        covered.reach() == Reach::Exact,
        pattern.resource().is_some(),
        pattern.verb().is_some(),
        std::cmp::Reverse(covered.operations().len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;

    fn requester(worker: u64, ancestors: &[u64], agent: &str) -> Requester {
        Requester {
            worker: WorkerId(worker),
            ancestors: ancestors.iter().map(|id| WorkerId(*id)).collect(),
            session: "s1".into(),
            agent: agent.into(),
        }
    }

    fn worker(id: u64) -> GrantHolder {
        GrantHolder::Worker(WorkerId(id))
    }

    fn give(
        book: &mut GrantTable,
        id: u64,
        holder: GrantHolder,
        pattern: &str,
        lifetime: Lifetime,
        descendants: bool,
    ) {
        let new = NewGrant {
            pattern: pattern.parse().unwrap(),
            holder,
            lifetime,
            descendants,
        };
        book.insert(GrantId(id), new, NOW, 0);
    }

    fn uses(count: u32) -> Lifetime {
        Lifetime::Uses(NonZeroU32::new(count).unwrap())
    }

    fn use_grants(
        book: &mut GrantTable,
        requester: &Requester,
        needs: &[&str],
        now: Duration,
    ) -> Option<Vec<u64>> {
        let needs: Vec<Scope> = needs.iter().map(|need| need.parse().unwrap()).collect();
        let used = book.use_grants(requester, &needs, now)?;
        assert!(
            needs
                .iter()
                .all(|need| used.patterns.iter().any(|pattern| pattern.covers(need)))
        );
        Some(used.grants.iter().map(|grant| grant.id.0).collect())
    }

    #[test]
    fn grant_of_two_uses_allows_two_calls() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write:file:/r", uses(2), false);
        for expected in [Some(vec![1]), Some(vec![1]), None] {
            assert_eq!(
                use_grants(&mut book, &me, &["write:file:/r/x", "write:file:/r/y"], NOW),
                expected
            );
        }
    }

    #[test]
    fn grants_are_used_only_if_every_need_is_covered() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write:file:/r", uses(1), false);
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/r/x", "read:file:/r/x"], NOW),
            None
        );
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/r/x"], NOW),
            Some(vec![1])
        );
    }

    #[test]
    fn grant_ends_exactly_at_its_expiry() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        let second = Duration::from_secs(1);
        give(
            &mut book,
            1,
            worker(1),
            "write",
            Lifetime::For(second),
            false,
        );
        let just_before = second.saturating_sub(Duration::from_nanos(1));
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/x"], just_before),
            Some(vec![1])
        );
        assert_eq!(use_grants(&mut book, &me, &["write:file:/x"], second), None);
        assert_eq!(book.views(second), []);
    }

    #[test]
    fn narrowed_grant_stops_calls_that_exceed_it() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(
            &mut book,
            1,
            worker(1),
            "write:file:/r",
            Lifetime::Session,
            true,
        );
        let need = |text: &str| [text.parse::<Scope>().unwrap()];
        let held = book.use_grants(&me, &need("write:file:/r/b"), NOW).unwrap();
        let fewer = Narrowing {
            uses: NonZeroU32::new(2),
            time: Some(Duration::from_secs(1)),
            ..Narrowing::default()
        };
        assert!(book.narrow(GrantId(1), &fewer, NOW).is_none());
        assert!(!held.gates[0].is_closed());
        let smaller = Narrowing {
            pattern: Some("write:file:/r/a".parse().unwrap()),
            holder_only: true,
            ..Narrowing::default()
        };
        assert!(book.narrow(GrantId(1), &smaller, NOW).is_some());
        assert!(held.gates[0].is_closed());
        let child = requester(2, &[1], "main/x");
        assert_eq!(use_grants(&mut book, &me, &["write:file:/r/b"], NOW), None);
        assert_eq!(
            use_grants(&mut book, &child, &["write:file:/r/a"], NOW),
            None
        );
        let fresh = book.use_grants(&me, &need("write:file:/r/a"), NOW).unwrap();
        assert!(!fresh.gates[0].is_closed());
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/r/a"], NOW),
            Some(vec![1])
        );
        assert_eq!(use_grants(&mut book, &me, &["write:file:/r/a"], NOW), None);
        give(
            &mut book,
            2,
            worker(1),
            "write:file:/r",
            Lifetime::Session,
            true,
        );
        assert!(book.narrow(GrantId(2), &fewer, NOW).is_none());
        let end = Duration::from_secs(1);
        assert_eq!(use_grants(&mut book, &me, &["write:file:/r/b"], end), None);
    }

    #[test]
    fn narrowest_grant_is_used_first() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write", Lifetime::Session, false);
        give(&mut book, 2, worker(1), "write:file:/r/x", uses(1), false);
        give(
            &mut book,
            3,
            worker(1),
            "write:file:/r",
            Lifetime::Session,
            false,
        );
        give(&mut book, 4, worker(1), "*:file:/r/x", uses(1), false);
        for expected in [2, 4, 3] {
            assert_eq!(
                use_grants(&mut book, &me, &["write:file:/r/x"], NOW),
                Some(vec![expected])
            );
        }
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/q"], NOW),
            Some(vec![1])
        );
    }

    #[test]
    fn uncounted_grant_is_preferred_among_equals() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write:file:/r", uses(1), false);
        give(
            &mut book,
            2,
            worker(1),
            "write:file:/r",
            Lifetime::Session,
            false,
        );
        assert_eq!(
            use_grants(&mut book, &me, &["write:file:/r/x"], NOW),
            Some(vec![2])
        );
    }

    #[test]
    fn grant_is_inherited_only_with_descendants() {
        let mut book = GrantTable::default();
        give(
            &mut book,
            1,
            worker(1),
            "write:file:/a",
            Lifetime::Session,
            false,
        );
        give(
            &mut book,
            2,
            worker(1),
            "write:file:/b",
            Lifetime::Session,
            true,
        );
        let child = requester(2, &[1], "main/tests");
        let stranger = requester(3, &[], "other");
        assert_eq!(use_grants(&mut book, &child, &["write:file:/a"], NOW), None);
        assert_eq!(
            use_grants(&mut book, &child, &["write:file:/b"], NOW),
            Some(vec![2])
        );
        assert_eq!(
            use_grants(&mut book, &stranger, &["write:file:/b"], NOW),
            None
        );
        assert_eq!(
            use_grants(
                &mut book,
                &requester(1, &[], "main"),
                &["write:file:/a"],
                NOW
            ),
            Some(vec![1])
        );
    }

    #[test]
    fn session_grant_stays_in_its_session_and_agent_grant_does_not() {
        let mut book = GrantTable::default();
        let session = GrantHolder::Session {
            session: "s1".into(),
            worker: WorkerId(1),
        };
        give(
            &mut book,
            1,
            session,
            "write:file:/a",
            Lifetime::Session,
            true,
        );
        give(
            &mut book,
            2,
            GrantHolder::Agent("main".into()),
            "write:file:/b",
            Lifetime::Agent,
            false,
        );
        let here = requester(1, &[], "main");
        let child = requester(2, &[1], "main/tests");
        let later = Requester {
            session: "s2".into(),
            ..requester(9, &[], "main")
        };
        let namesake = requester(3, &[], "main");
        let elsewhere = Requester {
            session: "s2".into(),
            ..requester(2, &[1], "main/tests")
        };
        assert_eq!(
            use_grants(&mut book, &here, &["write:file:/a", "write:file:/b"], NOW),
            Some(vec![1, 2])
        );
        assert_eq!(
            use_grants(&mut book, &child, &["write:file:/a"], NOW),
            Some(vec![1])
        );
        assert_eq!(use_grants(&mut book, &child, &["write:file:/b"], NOW), None);
        assert_eq!(use_grants(&mut book, &later, &["write:file:/a"], NOW), None);
        assert_eq!(
            use_grants(&mut book, &later, &["write:file:/b"], NOW),
            Some(vec![2])
        );
        assert_eq!(
            use_grants(&mut book, &namesake, &["write:file:/a"], NOW),
            None
        );
        assert_eq!(
            use_grants(&mut book, &namesake, &["write:file:/b"], NOW),
            Some(vec![2])
        );
        assert_eq!(
            use_grants(&mut book, &elsewhere, &["write:file:/a"], NOW),
            None
        );
        assert_eq!(book.of_session("s1"), [GrantId(1)]);
        assert_eq!(book.of_session("s2"), []);
        assert_eq!(book.of_worker(WorkerId(1)), [GrantId(1)]);
    }

    #[test]
    fn revoking_a_used_up_grant_closes_its_gate() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write", uses(1), false);
        let used = book
            .use_grants(&me, &["write:file:/x".parse().unwrap()], NOW)
            .unwrap();
        book.collect(NOW);
        assert!(!used.gates[0].is_closed());
        assert!(book.revoke(GrantId(1)).is_some());
        assert!(used.gates[0].is_closed());
        assert!(book.revoke(GrantId(1)).is_none());
    }

    #[test]
    fn grants_of_one_answer_share_their_uses() {
        let mut book = GrantTable::default();
        give(&mut book, 1, worker(1), "read:file:/r", uses(3), false);
        give(&mut book, 2, worker(1), "write:file:/r", uses(3), false);
        book.share_uses(&[GrantId(1), GrantId(2)]);
        let left = |book: &GrantTable| {
            book.views(NOW)
                .iter()
                .map(|view| view.uses_left)
                .collect::<Vec<_>>()
        };
        let both = ["read:file:/r/x", "write:file:/r/x"].map(|need| need.parse().unwrap());
        let mine = requester(1, &[], "main");
        assert!(book.use_grants(&mine, &both, NOW).is_some());
        assert_eq!(left(&book), [Some(2); 2]);
        let narrowed = Narrowing {
            uses: NonZeroU32::new(1),
            ..Narrowing::default()
        };
        book.narrow(GrantId(1), &narrowed, NOW);
        assert_eq!(left(&book), [Some(1); 2]);
        assert!(book.use_grants(&mine, &both[..1], NOW).is_some());
        assert!(book.use_grants(&mine, &both[1..], NOW).is_none());
    }

    #[test]
    fn used_up_grant_is_removed_once_no_call_uses_it() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write", uses(1), false);
        drop(book.use_grants(&me, &["write:file:/x".parse().unwrap()], NOW));
        book.collect(NOW);
        assert_eq!((book.len(), book.by_holder.len()), (0, 0));
    }

    #[test]
    fn grants_of_a_worker_end_with_it() {
        let (mut book, me) = (GrantTable::default(), requester(1, &[], "main"));
        give(&mut book, 1, worker(1), "write", Lifetime::Session, false);
        give(&mut book, 2, worker(2), "write", Lifetime::Session, false);
        assert_eq!(book.of_worker(WorkerId(1)), [GrantId(1)]);
        book.revoke(GrantId(1)).unwrap();
        assert_eq!(use_grants(&mut book, &me, &["write:file:/x"], NOW), None);
        assert_eq!(
            use_grants(&mut book, &requester(2, &[], "b"), &["write:file:/x"], NOW),
            Some(vec![2])
        );
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn grants_respect_their_expiry_and_use_count(
            grants in proptest::collection::vec((0u64..2, 0usize..4, 0u8..3, 1u32..4, any::<bool>()), 1..8),
            calls in proptest::collection::vec((0u64..3, 0usize..4, 0u64..3), 1..40),
        ) {
            let patterns = ["*", "write:file:/r", "write:file:/r/a", "write:file:/r/a/x"];
            let needs = ["write:file:/q", "write:file:/r/b", "write:file:/r/a/y", "write:file:/r/a/x"];
            let mut book = GrantTable::default();
            for (id, (holder, pattern, kind, amount, descendants)) in (0..).zip(&grants) {
                let lifetime = match kind {
                    0 => uses(*amount),
                    1 => Lifetime::For(Duration::from_secs(u64::from(*amount) * 5)),
                    _ => Lifetime::Session,
                };
                give(&mut book, id, worker(*holder), patterns[*pattern], lifetime, *descendants);
            }
            let mut used = vec![0; grants.len()];
            let mut now = NOW;
            for (who, need, step) in calls {
                now += Duration::from_secs(step);
                let ancestors: Vec<u64> = (0..who).rev().collect();
                let ids = use_grants(&mut book, &requester(who, &ancestors, "a"), &[needs[need]], now);
                for id in ids.unwrap_or_default() {
                    let index = usize::try_from(id).unwrap();
                    used[index] += 1;
                    let (holder, _, kind, amount, descendants) = grants[index];
                    prop_assert!(kind != 0 || used[index] <= amount);
                    prop_assert!(kind != 1 || now < Duration::from_secs(u64::from(amount) * 5));
                    prop_assert!(holder == who || (descendants && holder < who));
                }
            }
        }
    }
}
