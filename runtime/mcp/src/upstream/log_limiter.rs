//! Rate limiter for log lines of servers.

use std::time::Duration;

use tokio::time::Instant;

/// The number of lines per window, and the length of a window.
const MAX_LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

/// Limits log lines in fixed windows.
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
    async fn log_lines_are_limited_per_window() {
        let mut limiter = LogLimiter::default();
        let through = (0..1000).filter(|_| limiter.allow()).count();
        assert_eq!(through, MAX_LINES as usize);
        tokio::time::advance(WINDOW).await;
        assert!(limiter.allow());
    }
}
