//! Compiles the policies of requests that are not calls, on pool threads and within a time limit.

use std::sync::Arc;

use serde_json::Value;

use super::admission::policies_busy;
use super::prepare::{explained, narrowed};
use super::{Shared, Worker};
use crate::call::{Call, Origin};
use crate::capability::expired;
use crate::error::CallError;
use crate::policy::{Authority, Explanation};

#[doc(hidden)]
impl Worker {
    /// This worker's authority narrowed by the policy of one request, if it has one.
    ///
    /// A worker compiles one such policy at a time, so that its requests do not delay those of others.
    ///
    /// # Errors
    /// `POLICY_INVALID` or `POLICY_EXPANSION`, `BUSY` or `DEADLINE`.
    pub async fn authority_under(
        &self,
        policy: Option<&Value>,
        origin: Origin,
    ) -> Result<Authority, CallError> {
        let Some(policy) = policy else {
            return Ok(self.shared.authority.clone());
        };
        let limit = self.shared.core.limit(None);
        let compiled = compiled(&self.shared, policy.clone(), origin);
        let compiled = tokio::time::timeout(limit, compiled).await;
        compiled.unwrap_or_else(|_| Err(expired()))
    }

    /// Like [`Worker::explain`], with the call's own policy compiled on a pool thread.
    pub async fn explain_later(&self, call: &Call) -> Result<Vec<Explanation>, CallError> {
        let (policy, origin) = (call.meta.policy.as_ref(), call.meta.origin);
        let authority = self.authority_under(policy, origin).await?;
        explained(&self.shared, call, authority)
    }
}

async fn compiled(
    shared: &Arc<Shared>,
    policy: Value,
    origin: Origin,
) -> Result<Authority, CallError> {
    let compiling = Arc::clone(shared.compiling.get_or_init(Arc::default));
    let turn = compiling.lock_owned().await;
    let worker = Arc::clone(shared);
    let work = move || {
        let compiled = narrowed(&worker, &policy, origin);
        drop(turn);
        compiled
    };
    let compiled = shared.core.cpu.run(&shared.lost, work).await;
    compiled.unwrap_or_else(|| Err(policies_busy(shared)))
}
