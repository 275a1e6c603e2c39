//! The layers of a sandbox that is being built.

use super::Failed;
use crate::message::Report;
use crate::spec::Layer;

/// Layers that were added, and optional ones that are missing.
pub(super) struct Layers {
    optional: Vec<Layer>,
    added: Vec<Layer>,
    missing: Vec<(Layer, String)>,
}

impl Layers {
    pub(super) fn new(optional: Vec<Layer>) -> Self {
        Self {
            optional,
            added: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Records a layer, or the reason why it is missing.
    ///
    /// # Errors
    /// If it is missing and required.
    pub(super) fn record(&mut self, layer: Layer, added: Result<(), String>) -> Result<(), Failed> {
        match added {
            Ok(()) => self.added.push(layer),
            Err(reason) if self.optional.contains(&layer) => self.missing.push((layer, reason)),
            Err(reason) => return Err(Failed::Missing { layer, reason }),
        }
        Ok(())
    }

    /// The report that the sandbox was built.
    pub(super) fn built(self) -> Report {
        Report::Built {
            layers: self.added,
            missing: self.missing,
        }
    }
}
