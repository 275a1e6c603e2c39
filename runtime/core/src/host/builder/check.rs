//! Checks everything that a builder can check before it starts anything.

use std::path::PathBuf;

use super::super::roots::{Opened, open_roots, to_fault};
use super::{BuildError, BuildFault, RuntimeBuilder, threads};
use crate::call::Origin;
use crate::config::{Config, UnavailableRoot};
use crate::policy::{Authority, PolicyError};
use crate::root::{Root, RootTable};
use crate::worker::ConfineFiles;

/// A configuration without faults, and its open roots.
pub(super) struct Checked {
    pub(super) config: Config,
    pub(super) roots: RootTable,
    pub(super) unavailable: Vec<UnavailableRoot>,
    /// Files of the host that no root and no grant may contain.
    pub(super) kept_out: Vec<PathBuf>,
    pub(super) authority: Authority,
}

impl RuntimeBuilder {
    /// Opens the roots and checks everything that [`RuntimeBuilder::build`] checks before it starts anything.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`BuildError`] with all faults that were found.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let dir = tempfile::tempdir().unwrap();
    /// assert!(bailiwick::Runtime::builder().root("docs", dir.path()).check().is_ok());
    /// let missing = bailiwick::Runtime::builder().root("docs", dir.path().join("missing"));
    /// assert!(missing.check().is_err());
    /// # }
    /// ```
    pub fn check(mut self) -> Result<(), BuildError> {
        let checked = self.checked()?;
        // Otherwise it is not an error if the rules cannot be enforced.
        if self.confine_files == ConfineFiles::Required {
            threads::confinement(self.confine_files, &checked.config, &checked.roots)?;
        }
        Ok(())
    }

    /// Opens the roots and compiles the configuration and the policies.
    pub(super) fn checked(&mut self) -> Result<Checked, BuildError> {
        let mut faults = std::mem::take(&mut self.faults);
        // If roots or patterns are missing because of faults, policies would seem to exceed the configuration.
        let complete = faults.is_empty();
        faults.extend(threads::in_tokio().err());
        faults.extend(self.tools.faults().iter().cloned().map(BuildFault::Tools));
        let unopened = self.config.roots.iter().map(|root| root.mount.clone());
        faults.extend(unopened.map(BuildFault::Unopened));
        let kept_out = self.kept_out(&mut faults);
        let configured = std::mem::take(&mut self.roots);
        let (opened, errors) = open_roots(std::mem::take(&mut self.config), configured, &kept_out);
        let errors = errors.into_iter();
        faults.extend(errors.map(|error| to_fault(error, &self.configured)));
        let Opened {
            config,
            roots,
            unavailable,
        } = opened;
        let (grantable, allowed) = (&mut self.grantable, &mut self.allowed);
        let config = config.and(std::mem::take(grantable), std::mem::take(allowed));
        let ungrantable = Root::kept_from_grants(&kept_out);
        let mut authority = match Authority::with_ungrantable(&config, ungrantable) {
            Ok(authority) => Some(authority),
            Err(error) => {
                faults.extend(policy_faults(&error));
                None
            }
        };
        for policy in &self.policies {
            let admitted = match &authority {
                Some(issuer) if complete => issuer
                    .admit(policy, Origin::Human)
                    .map(|layer| Some(issuer.session(&layer))),
                authority => policy.check_arguments().map(|()| authority.clone()),
            };
            match admitted {
                Ok(narrowed) => authority = narrowed,
                Err(error) => faults.extend(policy_faults(&error)),
            }
        }
        match authority {
            Some(authority) if faults.is_empty() => Ok(Checked {
                config,
                roots,
                unavailable,
                kept_out,
                authority,
            }),
            _ => Err(BuildError(faults)),
        }
    }
}

fn policy_faults(error: &PolicyError) -> Vec<BuildFault> {
    error.faults().into_iter().map(BuildFault::Policy).collect()
}
