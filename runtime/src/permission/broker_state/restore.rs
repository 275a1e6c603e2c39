//! Restores stored grants and saves changes.

use super::super::store::{Contents, PendingSave, StoreFailure};
use super::super::{GrantHolder, Lifetime, NewGrant, RevokeCause};
use super::BrokerState;

impl BrokerState {
    /// Takes up what was granted before.
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

    /// Hands what changed to the store.
    pub(in super::super) fn save(&mut self) -> PendingSave {
        self.store.save()
    }

    /// Takes back what could not be stored.
    pub(in super::super) fn store_failed(&mut self, store_failed: StoreFailure) {
        self.revoke_all(&store_failed.grants, RevokeCause::NotStored);
        store_failed.report();
    }

    /// Lets go of the store once everything is in it. The runtime ends, so this is the last word to the audit.
    pub(in super::super) fn close_store(&mut self) -> PendingSave {
        for event in std::mem::take(&mut self.unrecorded) {
            // What it cannot take now either, it counts as missing.
            let _ = self.audit.record(event);
        }
        self.store.close()
    }
}
