//! A folder of pinned packages in, what runs with them out; they are installed when they are first needed.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Installs what the lock file in `folder` names, unless that is what is installed; one process does it, others wait.
///
/// # Panics
/// If it cannot be installed: what needs the packages cannot be tested without them.
pub(crate) fn install(folder: &Path) {
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("node.lock")).unwrap();
    lock.lock().unwrap();
    let wanted = std::fs::read(folder.join("package-lock.json")).unwrap();
    let mark = folder.join("node_modules/.installed");
    if std::fs::read(&mark).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
        .current_dir(folder)
        .output();
    match npm {
        Ok(output) if output.status.success() => std::fs::write(mark, wanted).unwrap(),
        Ok(output) => panic!(
            "`npm ci` failed in {}; these tests need the packages in its lock file:\n{}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!(
            "`npm` cannot be run ({error}); these tests run programs written in JavaScript, so install Node and npm"
        ),
    }
}
