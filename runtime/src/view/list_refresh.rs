//! Changes of a list in, when to look at it out: one look at a time, with a pause after each begins, and none is lost.

/// When the tools of a guest are looked at.
#[derive(Debug, Default)]
pub(super) struct ListRefresh {
    running: bool,
    paused: bool,
    pending: bool,
}

impl ListRefresh {
    /// The list changed; whether to look now.
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

    /// The list may have changed, and it is no time to look.
    pub(super) fn defer(&mut self) {
        self.pending = true;
    }

    /// A look has ended.
    pub(super) fn finished(&mut self) {
        self.running = false;
    }

    /// The pause is over.
    pub(super) fn pause_over(&mut self) {
        self.paused = false;
    }

    /// Whether a change waits that may be looked at now.
    pub(super) fn is_due(&self) -> bool {
        self.pending && !self.running && !self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_changes_is_two_looks_and_the_last_change_is_seen() {
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
    fn no_second_look_begins_while_one_hangs() {
        let mut refresh = ListRefresh::default();
        assert!(refresh.changed());
        refresh.pause_over();
        assert!(!refresh.changed() && !refresh.is_due());
        refresh.finished();
        assert!(refresh.is_due());
    }
}
