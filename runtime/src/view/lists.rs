//! Changes of a list in, when to look at it out: one look at a time, with a pause after each begins, and none is lost.

/// When the tools of a guest are looked at.
#[derive(Debug, Default)]
pub(super) struct Lists {
    looking: bool,
    resting: bool,
    again: bool,
}

impl Lists {
    /// The list changed; whether to look now.
    pub(super) fn changed(&mut self) -> bool {
        let now = !self.looking && !self.resting;
        if now {
            *self = Self {
                looking: true,
                resting: true,
                again: false,
            };
        } else {
            self.again = true;
        }
        now
    }

    /// The list may have changed, and it is no time to look.
    pub(super) fn later(&mut self) {
        self.again = true;
    }

    /// A look has ended.
    pub(super) fn ended(&mut self) {
        self.looking = false;
    }

    /// The pause is over.
    pub(super) fn rested(&mut self) {
        self.resting = false;
    }

    /// Whether a change waits that may be looked at now.
    pub(super) fn is_due(&self) -> bool {
        self.again && !self.looking && !self.resting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_changes_is_two_looks_and_the_last_change_is_seen() {
        let mut lists = Lists::default();
        assert!(lists.changed());
        assert!((0..1000).all(|_| !lists.changed()));
        lists.ended();
        assert!(!lists.is_due(), "the pause goes on");
        lists.rested();
        assert!(lists.is_due());
        assert!(lists.changed());
        lists.rested();
        lists.ended();
        assert!(!lists.is_due());
    }

    #[test]
    fn no_second_look_begins_while_one_hangs() {
        let mut lists = Lists::default();
        assert!(lists.changed());
        lists.rested();
        assert!(!lists.changed() && !lists.is_due());
        lists.ended();
        assert!(lists.is_due());
    }
}
