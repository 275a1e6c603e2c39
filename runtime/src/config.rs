//! What a person configures in, the namespace and the outermost policy layer out.

use crate::error::{CallError, Code};
use crate::path::VirtualPath;

/// How the paths that models write become virtual paths.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    default_root: Option<VirtualPath>,
}

impl Namespace {
    pub(crate) fn new(default_root: Option<VirtualPath>) -> Self {
        Self { default_root }
    }

    /// Reads a path as a model wrote it; a relative one lies beneath the default root.
    ///
    /// # Errors
    /// `INVALID_ARGUMENTS` if it is no path.
    pub fn path(&self, text: &str) -> Result<VirtualPath, CallError> {
        VirtualPath::parse(text, self.default_root.as_ref())
            .map_err(|error| CallError::new(Code::InvalidArguments, error.to_string()))
    }

    /// Where relative paths begin.
    #[must_use]
    pub fn default_root(&self) -> Option<&VirtualPath> {
        self.default_root.as_ref()
    }
}
