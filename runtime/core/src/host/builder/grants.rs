//! Restores stored grants and records them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{BuildFault, RuntimeBuilder};
use crate::audit::{Audit, AuditError, AuditEvent, GrantedStep, Step};
use crate::call::Origin;
use crate::permission::{AskLimits, BrokerConfig, GrantHolder, GrantStore, Lifetime, StoredGrant};

impl RuntimeBuilder {
    /// Stores grants to agents ([`Lifetime::Agent`]) in `store` and restores those that it contains. No root and no
    /// grant may contain the file.
    ///
    /// A restored grant has the same effect as a new one: it overrides no deny and no policy.
    #[must_use]
    pub fn grant_store(mut self, store: GrantStore) -> Self {
        self.store = Some(store);
        self
    }
}

/// Random number that distinguishes the questions of this run from those of others.
fn nonce() -> Result<u64, getrandom::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Audits the restored grants.
pub(super) async fn audit_restored(
    audit: &Audit,
    store: Option<&GrantStore>,
) -> Result<(), BuildFault> {
    for grant in store.into_iter().flat_map(GrantStore::grants) {
        let recorded = match audit.record(event(grant)) {
            Err(AuditError::Full) => {
                audit.flush().await.map_err(BuildFault::Restored)?;
                audit.record(event(grant))
            }
            recorded => recorded,
        };
        recorded.map_err(BuildFault::Restored)?;
    }
    Ok(())
}

fn event(grant: &StoredGrant) -> AuditEvent {
    AuditEvent {
        worker: None,
        agent: grant.agent.clone(),
        call: None,
        tool: None,
        origin: Origin::Host,
        step: Step::GrantRestored(Box::new(GrantedStep {
            grant: grant.id,
            pattern: grant.pattern.clone(),
            holder: GrantHolder::Agent(grant.agent.clone()),
            lifetime: Lifetime::Agent,
            descendants: grant.descendants,
            by: None,
        })),
    }
}

/// The configuration of the broker.
pub(super) fn broker_config(
    limits: AskLimits,
    timeout: Duration,
    store: Option<GrantStore>,
) -> Result<BrokerConfig, BuildFault> {
    let began = Instant::now();
    Ok(BrokerConfig {
        limits,
        timeout,
        clock: Arc::new(move || began.elapsed()),
        store,
        nonce: nonce().map_err(|error| BuildFault::Random(std::io::Error::other(error)))?,
        ..BrokerConfig::default()
    })
}
