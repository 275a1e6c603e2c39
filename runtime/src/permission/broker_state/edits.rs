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
    /// Takes back every live grant that is meant; each has a record of its own.
    pub(in super::super) fn revoke_where(&mut self, filter: &GrantFilter) -> Vec<Arc<Gate>> {
        let live = self.grants().into_iter();
        let meant: Vec<GrantId> = live
            .filter(|grant| filter.admits(grant))
            .map(|grant| grant.id)
            .collect();
        self.revoke_all(&meant, RevokeCause::Person)
    }

    /// Records what is left of a grant, then leaves no more; the gate is that of calls which may have more.
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
            self.store.keep_less(&left);
        }
        Ok(gate)
    }
}
