//! Edits of a grant store without a runtime.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::format::{Contents, MAX_GRANTS};
use super::{GrantStore, StoredGrant, format};
use crate::audit::wall_clock;
use crate::config::{Config, RootConfig};
use crate::id::{GrantId, is_agent_name};
use crate::path::VirtualPath;
use crate::permission::{GrantHolder, Lifetime, Narrowing, NewGrant};
use crate::policy::Authority;
use crate::private_file::StoreFile;
use crate::scope::{Coverage, Scope};

/// Why a store was not changed. Its content is unchanged, except after [`Self::Write`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantEditError {
    /// One of the grants does not exist.
    #[error("unknown grant {0}")]
    NoGrant(GrantId),
    /// The change would widen the grant; that requires another grant.
    #[error("grant {0} can only be narrowed: add another one to allow more")]
    Wider(GrantId),
    /// Stored grants have neither a count nor a time limit, and are held by agents.
    #[error("only permanent grants of agents can be stored")]
    NotForGood,
    /// The agent path is invalid.
    #[error("`{}` is not an agent path such as main/tests", crate::text::escape(.0))]
    NoAgent(Arc<str>),
    /// The store would hold too many grants.
    #[error("a store holds at most {MAX_GRANTS} grants: revoke some")]
    TooMany,
    /// The file cannot be written. It may have the old or the new content.
    #[error("it cannot be written")]
    Write(#[source] io::Error),
}

impl GrantStore {
    /// Removes these grants from disk, all or none. This is not audited. A runtime that uses the store revokes grants
    /// by [`GrantAuthority::revoke`](crate::GrantAuthority::revoke).
    ///
    /// # Errors
    /// [`GrantEditError`]
    pub fn remove(&mut self, ids: &BTreeSet<GrantId>) -> Result<Vec<StoredGrant>, GrantEditError> {
        let mut left = self.contents.clone();
        let remove = |id: &GrantId| left.grants.remove(id).ok_or(GrantEditError::NoGrant(*id));
        let taken = ids.iter().map(remove).collect::<Result<Vec<_>, _>>()?;
        if !taken.is_empty() {
            self.put(left)?;
        }
        Ok(taken)
    }

    /// Narrows a grant on disk, as [`GrantAuthority::narrow`](crate::GrantAuthority::narrow) does, without audit. Only the
    /// built-in protected names are known here, not those of a configuration.
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

    /// Adds grants to agents on disk, all or none. A grant that the agent already has is not added again. This is not
    /// audited. A runtime that uses the store grants by [`GrantAuthority::grant`](crate::GrantAuthority::grant).
    ///
    /// # Errors
    /// [`GrantEditError`]
    pub fn add(
        &mut self,
        grants: impl IntoIterator<Item = NewGrant>,
    ) -> Result<Vec<StoredGrant>, GrantEditError> {
        let given_at_ms = wall_clock();
        let mut more = self.contents.clone();
        let mut known: BTreeSet<_> = more.grants.values().map(form).collect();
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
            if !known.insert(form(&grant)) {
                continue;
            }
            if more.grants.len() >= MAX_GRANTS {
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

/// The properties that equal grants share.
fn form(grant: &StoredGrant) -> (Arc<str>, Coverage, bool) {
    let agent = Arc::clone(&grant.agent);
    (agent, grant.pattern.clone(), grant.descendants)
}

impl Contents {
    /// Replaces the content of the file.
    pub(super) fn put(&self, file: &StoreFile) -> io::Result<()> {
        file.replace(&format::encode(self)?)
    }
}

/// Whether it would change a file with a built-in protected name. Names are protected at any depth, so one root that
/// contains everything is enough.
fn is_protected(need: &Scope) -> bool {
    let config = Config::new().root(RootConfig::new(VirtualPath::top()));
    Authority::configured(&config).map_or(true, |authority| authority.protects(need))
}
