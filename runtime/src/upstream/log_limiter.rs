//! One more line of a stranger's log in, whether there is room for it out.

use std::time::Duration;

use tokio::time::Instant;

/// How many lines a window holds, and how long it is.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Lets so many lines through in a while and no more.
#[derive(Debug, Default)]
pub(super) struct LogLimiter {
    window_start: Option<Instant>,
    used: u32,
}

impl LogLimiter {
    pub(super) fn allow(&mut self) -> bool {
        let now = Instant::now();
        if self
            .window_start
            .is_none_or(|window_start| now.duration_since(window_start) >= WINDOW)
        {
            self.window_start = Some(now);
            self.used = 0;
        }
        self.used = self.used.saturating_add(1);
        self.used <= MAX_LINES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_cut_and_the_next_window_is_open() {
        let mut limiter = LogLimiter::default();
        let through = (0..1000).filter(|_| limiter.allow()).count();
        assert_eq!(through, MAX_LINES as usize);
        tokio::time::advance(WINDOW).await;
        assert!(limiter.allow());
    }
}
