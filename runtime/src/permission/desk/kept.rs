//! Stored grants in, live ones out; and what changed since, handed to the store.

use super::super::store::{Contents, Saved, Unstored};
use super::super::{GrantHolder, Lifetime, NewGrant, RevokeCause};
use super::Desk;

impl Desk {
    /// Takes up what was granted before.
    pub(in super::super) fn restore(&mut self, stored: Contents) {
        for grant in stored.grants.into_values() {
            let new = NewGrant {
                pattern: grant.pattern,
                holder: GrantHolder::Agent(grant.agent),
                lifetime: Lifetime::Agent,
                descendants: grant.descendants,
            };
            self.book.insert(grant.id, new, (self.clock)());
        }
        self.next_grant = stored.next;
    }

    /// Hands what changed to the store.
    pub(in super::super) fn save(&mut self) -> Saved {
        self.keeper.save()
    }

    /// Takes back what could not be stored.
    pub(in super::super) fn unstored(&mut self, unstored: Unstored) {
        self.revoke_all(&unstored.grants, RevokeCause::NotStored);
        unstored.told();
    }

    /// Lets go of the store once everything is in it. The runtime ends, so this is the last word to the audit.
    pub(in super::super) fn close_store(&mut self) -> Saved {
        for event in std::mem::take(&mut self.unrecorded) {
            // What it cannot take now either, it counts as missing.
            let _ = self.audit.record(event);
        }
        self.keeper.close()
    }
}
