//! The bounded output of a command.

use std::collections::VecDeque;

/// The beginning and the end of a stream.
#[derive(Debug)]
pub(crate) struct Excerpt {
    most_head: usize,
    most_tail: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Excerpt {
    /// Keeps the first and the last `half` bytes.
    pub(crate) fn new(half: usize) -> Self {
        Self {
            most_head: half,
            most_tail: half,
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.most_head - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let skipped = rest.len().saturating_sub(self.most_tail);
        let rest = rest.get(skipped..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(self.most_tail);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Number of bytes of the whole stream.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether nothing was left out.
    pub(crate) fn is_whole(&self) -> bool {
        self.total == (self.head.len() + self.tail.len()) as u64
    }

    /// The kept text, with a line that says how much was left out.
    pub(crate) fn text(mut self) -> String {
        let omitted = self.total - (self.head.len() + self.tail.len()) as u64;
        if omitted > 0 {
            let mark = format!("\n[{omitted} bytes left out]\n");
            self.head.extend_from_slice(mark.as_bytes());
        }
        self.head.extend(self.tail);
        String::from_utf8_lossy(&self.head).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(half: usize, parts: &[&str]) -> String {
        let mut excerpt = Excerpt::new(half);
        for part in parts {
            excerpt.push(part.as_bytes());
        }
        assert_eq!(excerpt.total(), parts.concat().len() as u64);
        excerpt.text()
    }

    #[test]
    fn short_output_is_kept_whole() {
        assert_eq!(text(3, &[]), "");
        assert_eq!(text(3, &["ab", "c", "def"]), "abcdef");
        assert_eq!(text(3, &["abcdef"]), "abcdef");
    }

    #[test]
    fn long_output_keeps_both_ends() {
        let expected = "abc\n[4 bytes left out]\nhij";
        assert_eq!(text(3, &["abcdefghij"]), expected);
        assert_eq!(text(3, &["abcd", "efg", "hij"]), expected);
        let single: Vec<String> = ('a'..='j').map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(text(3, &single), expected);
    }
}
