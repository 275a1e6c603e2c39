//! An address in, a browser without a window that has it open out.

use std::path::Path;
use std::process::Stdio;

use bailiwick_examples::BoxError;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A browser; it ends when this is dropped.
pub(crate) struct Chromium {
    process: Child,
    _profile: TempDir,
}

impl Chromium {
    /// Opens `url` with the browser at `place`.
    ///
    /// # Errors
    /// If there is none, or the system has no room for its profile.
    pub(crate) fn open(place: &Path, url: &str) -> Result<Self, BoxError> {
        let profile = tempfile::tempdir()?;
        // Whoever is on this machine reads command lines, and the address lets in. The folder is its owner's alone.
        let first = profile.path().join("first.html");
        let lead = format!("<meta http-equiv=\"refresh\" content=\"0; url={url}\">");
        std::fs::write(&first, lead)?;
        let mut command = Command::new(place);
        command
            .args([
                "--headless",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--window-size=1100,800",
            ])
            // In a container it may have no other sandbox than the one around it; the page is ours.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(&first)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let process = command.spawn().map_err(|error| {
            let place = place.display();
            format!("this needs Chromium at {place}, or where BAILIWICK_CHROMIUM says: {error}")
        })?;
        Ok(Self {
            process,
            _profile: profile,
        })
    }

    /// Ends it.
    ///
    /// # Errors
    /// If the system will not.
    pub(crate) async fn close(mut self) -> Result<(), BoxError> {
        self.process.kill().await?;
        Ok(())
    }
}
