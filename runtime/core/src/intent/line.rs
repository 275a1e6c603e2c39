//! Single-line text buffer with a length limit.

use crate::text::is_deceptive;

/// Remaining work for one sentence.
pub(super) struct Work(u32);

impl Work {
    pub(super) fn of(steps: u32) -> Self {
        Self(steps)
    }

    /// Takes one step. Returns false if no work remains.
    pub(super) fn step(&mut self) -> bool {
        let left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        left
    }
}

/// One line of text; if it is too long, it ends in `…`.
pub(super) struct Line {
    text: String,
    chars: usize,
    most: usize,
    /// Whether blanks at its ends are removed.
    trimmed: bool,
    /// Whether invisible characters are written as `\u{..}` instead of being left out.
    escaped: bool,
    /// Whether a blank precedes the next character.
    gap: bool,
    cut: bool,
}

impl Line {
    /// A line without blanks at its ends.
    pub(super) fn trimmed(most: usize) -> Self {
        Self {
            text: String::new(),
            chars: 0,
            most,
            trimmed: true,
            escaped: false,
            gap: false,
            cut: false,
        }
    }

    /// A line that keeps a blank at each end.
    pub(super) fn whole(most: usize) -> Self {
        Self {
            trimmed: false,
            ..Self::trimmed(most)
        }
    }

    /// This line, which shows invisible characters as `\u{..}`.
    pub(super) fn escaped(self) -> Self {
        Self {
            escaped: true,
            ..self
        }
    }

    pub(super) fn push(&mut self, c: char) {
        if is_blank(c) {
            self.gap = true;
        } else if !is_deceptive(c) {
            self.end_gap();
            self.put(c);
        } else if self.escaped {
            self.end_gap();
            c.escape_unicode().for_each(|c| self.put(c));
        }
    }

    pub(super) fn push_str(&mut self, text: &str, work: &mut Work) {
        for c in text.chars() {
            if self.cut || !work.step() {
                return;
            }
            self.push(c);
        }
    }

    fn end_gap(&mut self) {
        if self.gap && !(self.trimmed && self.text.is_empty()) {
            self.put(' ');
        }
        self.gap = false;
    }

    fn put(&mut self, c: char) {
        if self.chars == self.most {
            self.cut = true;
        } else {
            self.text.push(c);
            self.chars += 1;
        }
    }

    /// Whether it is full.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Ignores everything that follows.
    pub(super) fn cut_here(&mut self) {
        self.cut = true;
    }

    /// The text so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn finish(mut self) -> String {
        if !self.trimmed {
            self.end_gap();
        }
        if self.cut {
            if self.chars == self.most {
                self.text.pop();
            }
            self.text.push('…');
        }
        self.text
    }
}

/// Whether `c` is rendered as a blank.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// Whether `c` is visible.
pub(super) fn is_visible(c: char) -> bool {
    !is_blank(c) && !is_deceptive(c)
}
