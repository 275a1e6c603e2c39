//! Revokes and narrows grants on behalf of people.

use std::sync::Arc;

use super::super::record::of_grant;
use super::super::settings::{GrantFilter, Narrowing};
use super::super::{AuthorityError, DecidedBy, RevokeCause};
use super::BrokerState;
use crate::audit::{NarrowedStep, Step};
use crate::capability::Gate;
use crate::id::GrantId;

impl BrokerState {
    /// Revokes all live grants that match; each has an audit record.
    pub(in super::super) fn revoke_where(&mut self, filter: &GrantFilter) -> Vec<Arc<Gate>> {
        let live = self.grants().into_iter();
        let meant: Vec<GrantId> = live
            .filter(|grant| filter.admits(grant))
            .map(|grant| grant.id)
            .collect();
        self.revoke_all(&meant, RevokeCause::Person)
    }

    /// Audits the narrowing of a grant, then narrows it. Returns the gate of calls that may exceed it.
    pub(in super::super) fn narrow(
        &mut self,
        id: GrantId,
        change: &Narrowing,
    ) -> Result<Option<Arc<Gate>>, AuthorityError> {
        let now = (self.clock)();
        let view = self.grants.view(id, now).ok_or(AuthorityError::NoGrant)?;
        if !change.narrows(&view, now) {
            return Err(AuthorityError::Wider);
        }
        let step = Step::GrantNarrowed(Box::new(NarrowedStep {
            grant: id,
            change: change.clone(),
        }));
        self.audit
            .record(of_grant(&view.holder, DecidedBy::Person, step))?;
        let gate = self.grants.narrow(id, change, now);
        if let Some(left) = self.grants.view(id, now) {
            self.store.narrowed(&left);
        }
        Ok(gate)
    }
}
