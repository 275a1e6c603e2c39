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

    /// Lets go of the store once everything is in it.
    pub(in super::super) fn close_store(&mut self) -> Saved {
        self.keeper.close()
    }
}
