//! Edits of a grant store without a runtime.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::format::{Contents, MOST_GRANTS};
use super::{GrantStore, StoredGrant, format, wall_clock};
use crate::config::{Config, RootConfig};
use crate::id::{GrantId, is_agent_name};
use crate::path::VirtualPath;
use crate::permission::{GrantHolder, Lifetime, Narrowing, NewGrant};
use crate::policy::Authority;
use crate::private_file::StoreFile;
use crate::scope::{Coverage, Scope};

/// Why a store is not changed. Nothing in it is other than before, but for [`Self::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantEditError {
    /// One of those meant is not there.
    #[error("there is no grant {0}")]
    NoGrant(GrantId),
    /// The change would leave more than there was; that takes another grant.
    #[error("grant {0} can only be narrowed; for more, give another")]
    Wider(GrantId),
    /// What a store keeps is neither counted nor timed, and held by an agent.
    #[error("a store keeps only what an agent was granted for good")]
    NotForGood,
    /// No worker can have this path.
    #[error("`{}` is no path of an agent, such as main/tests", crate::escape(.0))]
    NoAgent(Arc<str>),
    /// It would hold too many.
    #[error("a store holds at most {MOST_GRANTS} grants; take some back")]
    TooMany,
    /// The file cannot be written. It may say what it said before, or what it was to say.
    #[error("it cannot be written")]
    Write(#[source] io::Error),
}

impl GrantStore {
    /// Takes these grants out, all or none; they are gone from the disk when this returns. No audit tells of it: a runtime
    /// that has the store takes grants back by [`GrantAuthority::revoke`](crate::GrantAuthority::revoke).
    ///
    /// # Errors
    /// [`GrantEditError`]
    pub fn remove(&mut self, ids: &BTreeSet<GrantId>) -> Result<Vec<StoredGrant>, GrantEditError> {
        let (left, taken) = self
            .contents
            .without(ids)
            .map_err(GrantEditError::NoGrant)?;
        if !taken.is_empty() {
            self.put(left)?;
        }
        Ok(taken)
    }

    /// Leaves less of a grant, which is so on the disk when this returns; as
    /// [`GrantAuthority::narrow`](crate::GrantAuthority::narrow), and no audit tells of it. Of protected names only those
    /// built in are known here: what a configuration adds, a runtime knows.
    ///
    /// # Errors
    /// [`GrantEditError`]; [`GrantEditError::Wider`] also for a protected file that the grant does not name.
    pub fn narrow(
        &mut self,
        id: GrantId,
        change: &Narrowing,
    ) -> Result<StoredGrant, GrantEditError> {
        let held = self.contents.grants.get(&id);
        let mut grant = held.ok_or(GrantEditError::NoGrant(id))?.clone();
        if change.uses.is_some() || change.time.is_some() {
            return Err(GrantEditError::NotForGood);
        }
        let left = change.left_of(&grant.pattern);
        let left = left.filter(|_| !change.uncovers(&grant.pattern, is_protected));
        grant.pattern = left.ok_or(GrantEditError::Wider(id))?;
        grant.descendants &= !change.holder_only;
        let mut left = self.contents.clone();
        left.grants.insert(id, grant.clone());
        self.put(left)?;
        Ok(grant)
    }

    /// Adds grants to agents, all or none; they are on the disk when this returns. A grant that the agent has in just this
    /// form is not added again. No audit tells of it: a runtime that has the store grants by
    /// [`GrantAuthority::grant`](crate::GrantAuthority::grant).
    ///
    /// # Errors
    /// [`GrantEditError`]
    pub fn add(
        &mut self,
        grants: impl IntoIterator<Item = NewGrant>,
    ) -> Result<Vec<StoredGrant>, GrantEditError> {
        let given_at_ms = wall_clock();
        let mut more = self.contents.clone();
        let mut known: BTreeSet<_> = more.grants.values().map(StoredGrant::form).collect();
        let mut added = Vec::new();
        for new in grants {
            let (GrantHolder::Agent(agent), Lifetime::Agent) = (new.holder, new.lifetime) else {
                return Err(GrantEditError::NotForGood);
            };
            if !agent.split('/').all(is_agent_name) {
                return Err(GrantEditError::NoAgent(agent));
            }
            let grant = StoredGrant {
                id: GrantId(more.next),
                agent,
                pattern: new.pattern,
                descendants: new.descendants,
                given_at_ms,
            };
            if !known.insert(grant.form()) {
                continue;
            }
            if more.grants.len() >= MOST_GRANTS {
                return Err(GrantEditError::TooMany);
            }
            more.next += 1;
            more.grants.insert(grant.id, grant.clone());
            added.push(grant);
        }
        if !added.is_empty() {
            self.put(more)?;
        }
        Ok(added)
    }

    fn put(&mut self, contents: Contents) -> Result<(), GrantEditError> {
        contents.put(&self.file).map_err(GrantEditError::Write)?;
        self.contents = contents;
        Ok(())
    }
}

impl StoredGrant {
    /// What two grants have in common that give the same to the same.
    fn form(&self) -> (Arc<str>, Coverage, bool) {
        let Self {
            id: _,
            agent,
            pattern,
            descendants,
            given_at_ms: _,
        } = self;
        (Arc::clone(agent), pattern.clone(), *descendants)
    }
}

impl Contents {
    /// Puts them in the place of what the file says.
    pub(super) fn put(&self, file: &StoreFile) -> io::Result<()> {
        file.replace(&format::encode(self)?)
    }
}

/// Whether it would change a file that is protected in every configuration: names are protected at any depth, so one
/// root that holds everything serves for all.
fn is_protected(need: &Scope) -> bool {
    let config = Config::new().root(RootConfig::new(VirtualPath::top()));
    Authority::configured(&config).map_or(true, |authority| authority.protects(need))
}
