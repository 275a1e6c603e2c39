//! One more line of a stranger's log in, whether there is room for it out.

use std::time::Duration;

use tokio::time::Instant;

/// How many lines a window holds, and how long it is.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Lets so many lines through in a while and no more.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    began: Option<Instant>,
    used: u32,
}

impl Quiet {
    pub(super) fn lets_through(&mut self) -> bool {
        let now = Instant::now();
        if self
            .began
            .is_none_or(|began| now.duration_since(began) >= WINDOW)
        {
            self.began = Some(now);
            self.used = 0;
        }
        self.used = self.used.saturating_add(1);
        self.used <= LINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_and_the_next_window_is_open() {
        let mut quiet = Quiet::default();
        let through = (0..1000).filter(|_| quiet.lets_through()).count();
        assert_eq!(through, LINES as usize);
        tokio::time::advance(WINDOW).await;
        assert!(quiet.lets_through());
    }
}
