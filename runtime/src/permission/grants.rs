//! Grants and the needs of a call in, the narrowest grants that cover them all out, one use of each spent.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::{GrantHolder, Lifetime, NewGrant};
use crate::capability::Gate;
use crate::id::{GrantId, WorkerId};
use crate::scope::{Scope, ScopePattern};

/// Who wants to use grants.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) worker: WorkerId,
    /// From the nearest to the outermost.
    pub(crate) ancestors: Arc<[WorkerId]>,
    pub(crate) session: Arc<str>,
    /// The agent's path, such as `main/tests`.
    pub(crate) agent: Arc<str>,
}

impl Claimant {
    /// Every holder whose grants may reach this claimant, and whether they must reach down to do so.
    fn holders(&self) -> impl Iterator<Item = (GrantHolder, bool)> {
        let workers = std::iter::once((self.worker, false))
            .chain(self.ancestors.iter().map(|ancestor| (*ancestor, true)))
            .map(|(worker, down)| (GrantHolder::Worker(worker), down));
        let agents = std::iter::successors(Some(&*self.agent), |path| {
            path.rsplit_once('/').map(|(parent, _)| parent)
        })
        .flat_map(|path| {
            let down = path.len() != self.agent.len();
            let agent: Arc<str> = path.into();
            let session = GrantHolder::Session {
                session: Arc::clone(&self.session),
                agent: Arc::clone(&agent),
            };
            [(session, down), (GrantHolder::Agent(agent), down)]
        });
        workers.chain(agents)
    }
}

/// What a call may do by grants, and what stops it when they are revoked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redeemed {
    pub(crate) patterns: Vec<ScopePattern>,
    pub(crate) gates: Vec<Arc<Gate>>,
    /// The grants that each lost one use; none for an answer that holds for one call.
    pub(crate) ids: Vec<GrantId>,
}

/// A grant as people see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GrantView {
    /// Names it.
    pub id: GrantId,
    /// What it covers.
    pub pattern: ScopePattern,
    /// Who may use it.
    pub holder: GrantHolder,
    /// Whether the holder's sub-agents may use it too.
    pub descendants: bool,
    /// How many uses are left; none if they are not counted.
    pub uses_left: Option<u32>,
    /// When it ends, since the runtime began; none if no time ends it.
    pub expires_at: Option<Duration>,
    /// How often it was used.
    pub used: u64,
}

#[derive(Debug)]
struct Grant {
    pattern: ScopePattern,
    narrowness: Narrowness,
    descendants: bool,
    uses_left: Option<u32>,
    expires_at: Option<Duration>,
    used: u64,
    gate: Arc<Gate>,
}

impl Grant {
    fn is_live(&self, now: Duration) -> bool {
        self.uses_left != Some(0) && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Every grant that outlives one call.
#[derive(Debug, Default)]
pub(crate) struct GrantBook {
    by_holder: BTreeMap<GrantHolder, BTreeMap<GrantId, Grant>>,
    holder_of: BTreeMap<GrantId, GrantHolder>,
}

impl GrantBook {
    /// Enters a grant. Its time begins `now`.
    pub(crate) fn insert(&mut self, id: GrantId, new: NewGrant, now: Duration) {
        let (uses_left, expires_at) = match new.lifetime {
            Lifetime::Once => (Some(NonZeroU32::MIN.get()), None),
            Lifetime::Uses(uses) => (Some(uses.get()), None),
            Lifetime::For(time) => (None, Some(now.saturating_add(time))),
            Lifetime::Session | Lifetime::Agent => (None, None),
        };
        let grant = Grant {
            narrowness: narrowness(&new.pattern),
            pattern: new.pattern,
            descendants: new.descendants,
            uses_left,
            expires_at,
            used: 0,
            gate: Arc::default(),
        };
        self.holder_of.insert(id, new.holder.clone());
        self.by_holder
            .entry(new.holder)
            .or_default()
            .insert(id, grant);
    }

    /// Spends one use of each grant that is needed, if live grants cover all `needs`; else spends nothing.
    ///
    /// Of the grants that cover a need the narrowest is taken; among equals one that is taken already,
    /// then one whose uses are not counted.
    pub(crate) fn redeem(
        &mut self,
        claimant: &Claimant,
        needs: &[Scope],
        now: Duration,
    ) -> Option<Redeemed> {
        let chosen = self.choose(claimant, needs, now)?;
        let mut redeemed = Redeemed::default();
        for id in chosen {
            let grant = self.get_mut(id)?;
            grant.uses_left = grant.uses_left.map(|left| left.saturating_sub(1));
            grant.used = grant.used.saturating_add(1);
            redeemed.patterns.push(grant.pattern.clone());
            redeemed.gates.push(Arc::clone(&grant.gate));
            redeemed.ids.push(id);
        }
        Some(redeemed)
    }

    fn choose(
        &self,
        claimant: &Claimant,
        needs: &[Scope],
        now: Duration,
    ) -> Option<BTreeSet<GrantId>> {
        let mut usable: Vec<(GrantId, &Grant)> = Vec::new();
        for (holder, down) in claimant.holders() {
            let grants = self.by_holder.get(&holder).into_iter().flatten();
            usable.extend(
                grants
                    .filter(|(_, grant)| grant.is_live(now) && (grant.descendants || !down))
                    .map(|(id, grant)| (*id, grant)),
            );
        }
        let mut chosen = BTreeSet::new();
        for need in needs {
            let (id, _) = usable
                .iter()
                .filter(|(_, grant)| grant.pattern.covers(need))
                .min_by_key(|(id, grant)| {
                    let breadth = std::cmp::Reverse(grant.narrowness);
                    (breadth, !chosen.contains(id), grant.uses_left.is_some())
                })?;
            chosen.insert(*id);
        }
        Some(chosen)
    }

    /// Takes a grant back. Its gate is closed; the caller waits until it is idle.
    pub(crate) fn revoke(&mut self, id: GrantId) -> Option<(GrantHolder, Arc<Gate>)> {
        let holder = self.holder_of.get(&id)?.clone();
        let gate = self.remove(id)?.gate;
        gate.close();
        Some((holder, gate))
    }

    /// Takes back every grant of `holder`.
    pub(crate) fn revoke_all(&mut self, holder: &GrantHolder) -> Vec<Arc<Gate>> {
        let grants = self.by_holder.remove(holder).unwrap_or_default();
        grants
            .into_iter()
            .map(|(id, grant)| {
                self.holder_of.remove(&id);
                grant.gate.close();
                grant.gate
            })
            .collect()
    }

    /// Takes back every grant that ends with `session`.
    pub(crate) fn end_session(&mut self, session: &str) -> Vec<Arc<Gate>> {
        let ended: Vec<GrantHolder> = self
            .by_holder
            .keys()
            .filter(|holder| matches!(holder, GrantHolder::Session { session: of, .. } if **of == *session))
            .cloned()
            .collect();
        ended
            .iter()
            .flat_map(|holder| self.revoke_all(holder))
            .collect()
    }

    /// Forgets grants that can serve no call, unless a call that uses one is under way and could be revoked.
    pub(crate) fn collect(&mut self, now: Duration) {
        let dead: Vec<GrantId> = self
            .by_holder
            .values()
            .flatten()
            .filter(|(_, grant)| !grant.is_live(now) && Arc::strong_count(&grant.gate) == 1)
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            self.remove(id);
        }
    }

    /// Every live grant, in the order they were given.
    pub(crate) fn views(&self, now: Duration) -> Vec<GrantView> {
        let mut views: Vec<GrantView> = self
            .by_holder
            .iter()
            .flat_map(|(holder, grants)| grants.iter().map(move |grant| (holder, grant)))
            .filter(|(_, (_, grant))| grant.is_live(now))
            .map(|(holder, (id, grant))| GrantView {
                id: *id,
                pattern: grant.pattern.clone(),
                holder: holder.clone(),
                descendants: grant.descendants,
                uses_left: grant.uses_left,
                expires_at: grant.expires_at,
                used: grant.used,
            })
            .collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// How many grants are kept.
    pub(crate) fn len(&self) -> usize {
        self.holder_of.len()
    }

    fn get_mut(&mut self, id: GrantId) -> Option<&mut Grant> {
        self.by_holder
            .get_mut(self.holder_of.get(&id)?)?
            .get_mut(&id)
    }

    fn remove(&mut self, id: GrantId) -> Option<Grant> {
        let holder = self.holder_of.remove(&id)?;
        let grants = self.by_holder.get_mut(&holder)?;
        let grant = grants.remove(&id);
        if grants.is_empty() {
            self.by_holder.remove(&holder);
        }
        grant
    }
}

/// Length of the detail, then whether the resource and the verb are named.
type Narrowness = (usize, bool, bool);

/// How much a pattern pins down. Of two patterns that cover the same path, the greater is the narrower.
fn narrowness(pattern: &ScopePattern) -> Narrowness {
    let text = pattern.to_string();
    let detail = text.splitn(3, ':').nth(2).unwrap_or_default();
    (
        detail.len(),
        pattern.resource().is_some(),
        pattern.verb().is_some(),
    )
}
