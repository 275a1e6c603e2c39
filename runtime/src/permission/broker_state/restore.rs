//! Restores stored grants and saves changes.

use super::super::store::{Contents, PendingSave};
use super::super::{GrantHolder, Lifetime, NewGrant};
use super::BrokerState;

impl BrokerState {
    /// Adds stored grants.
    pub(in super::super) fn restore(&mut self, stored: Contents) {
        for grant in stored.grants.into_values() {
            let new = NewGrant {
                pattern: grant.pattern,
                holder: GrantHolder::Agent(grant.agent),
                lifetime: Lifetime::Agent,
                descendants: grant.descendants,
            };
            self.grants.insert(grant.id, new, (self.clock)());
        }
        self.next_grant = stored.next;
    }

    /// Sends changes to the store.
    pub(in super::super) fn save(&mut self) -> PendingSave {
        self.store.save()
    }

    /// Closes the store once everything is stored. The runtime ends, so this is the last chance to audit.
    pub(in super::super) fn close_store(&mut self) -> PendingSave {
        for event in std::mem::take(&mut self.unrecorded) {
            // The audit counts records that it still cannot take.
            let _ = self.audit.record(event);
        }
        self.store.close()
    }
}
