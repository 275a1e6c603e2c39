//! Decides when to refresh a list: one refresh at a time, with a pause between starts, and without losing changes.

/// The state of list refreshes.
#[derive(Debug, Default)]
pub(super) struct ListRefresh {
    running: bool,
    paused: bool,
    pending: bool,
}

impl ListRefresh {
    /// Registers a change; returns whether to start a refresh now.
    pub(super) fn changed(&mut self) -> bool {
        let now = !self.running && !self.paused;
        if now {
            *self = Self {
                running: true,
                paused: true,
                pending: false,
            };
        } else {
            self.pending = true;
        }
        now
    }

    /// Registers a change without starting a refresh.
    pub(super) fn defer(&mut self) {
        self.pending = true;
    }

    pub(super) fn finished(&mut self) {
        self.running = false;
    }

    pub(super) fn pause_over(&mut self) {
        self.paused = false;
    }

    /// Whether a registered change can be refreshed now.
    pub(super) fn is_due(&self) -> bool {
        self.pending && !self.running && !self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_changes_cause_two_refreshes() {
        let mut refresh = ListRefresh::default();
        assert!(refresh.changed());
        assert!((0..1000).all(|_| !refresh.changed()));
        refresh.finished();
        assert!(!refresh.is_due(), "the pause goes on");
        refresh.pause_over();
        assert!(refresh.is_due());
        assert!(refresh.changed());
        refresh.pause_over();
        refresh.finished();
        assert!(!refresh.is_due());
    }

    #[test]
    fn refreshes_do_not_overlap() {
        let mut refresh = ListRefresh::default();
        assert!(refresh.changed());
        refresh.pause_over();
        assert!(!refresh.changed() && !refresh.is_due());
        refresh.finished();
        assert!(refresh.is_due());
    }
}
