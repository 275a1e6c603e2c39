//! Opens a URL in headless Chromium.

use std::path::Path;
use std::process::Stdio;

use bailiwick_examples::BoxError;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A running browser, ended on drop.
pub(crate) struct Chromium {
    process: Child,
    _profile: TempDir,
}

impl Chromium {
    /// Opens `url` with the browser `program`.
    ///
    /// # Errors
    /// If the program or its profile cannot be opened.
    pub(crate) fn open(program: &Path, url: &str) -> Result<Self, BoxError> {
        let profile = tempfile::tempdir()?;
        // The URL contains a token, and command lines are visible to all users. The profile directory is private.
        let start_page = profile.path().join("start.html");
        let redirect = format!("<meta http-equiv=\"refresh\" content=\"0; url={url}\">");
        std::fs::write(&start_page, redirect)?;
        let mut command = Command::new(program);
        command
            .args([
                "--headless",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--window-size=1100,800",
            ])
            // Chromium's sandbox is not available in most containers. The page is trusted.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(&start_page)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // The program may be a script that starts the browser.
            .process_group(0);
        let process = command.spawn().map_err(|error| {
            let program = program.display();
            format!(
                "cannot start Chromium at {program} (set BAILIWICK_CHROMIUM to its path): {error}"
            )
        })?;
        Ok(Self {
            process,
            _profile: profile,
        })
    }

    /// Ends the browser.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub(crate) async fn close(mut self) -> Result<(), BoxError> {
        self.kill();
        self.process.wait().await?;
        Ok(())
    }

    /// Kills all processes of the browser.
    fn kill(&self) {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // It fails if all have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.kill();
    }
}
