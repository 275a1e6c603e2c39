//! A worker's own authority and the workers beneath it.

use super::Worker;
use crate::error::CallError;
use crate::path::VirtualPath;
use crate::policy::Verdict;
use crate::scope::{Scope, Verb};

impl Worker {
    /// Returns the verdict on `verb` for `path`, by policies alone. The file system is not read, links are not
    /// followed, and grants do not count.
    #[must_use]
    pub fn judge(&self, verb: Verb, path: &VirtualPath) -> Verdict {
        if self.shared.gate().is_closed() {
            return Verdict::Deny;
        }
        let need = Scope::file(verb, path.clone());
        self.shared.authority.judge(&need, &[])
    }

    /// Returns the virtual path of `text` in a call of this worker. A relative path is relative to the working
    /// directory.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` if it is not a path.
    #[doc(hidden)]
    pub fn path(&self, text: &str) -> Result<VirtualPath, CallError> {
        self.shared.names.path(text)
    }

    /// Returns the live descendants of this worker, in the order in which they were started.
    #[must_use]
    pub fn beneath(&self) -> Vec<Self> {
        let registry = self.shared.core.registry.iter();
        let mut found: Vec<Self> = registry
            .filter(|entry| entry.lineage.contains(&self.shared.id))
            .filter(|entry| !entry.gate().is_closed())
            .map(|entry| Self::new(entry.value().clone()))
            .collect();
        found.sort_by_key(Self::id);
        found
    }
}
