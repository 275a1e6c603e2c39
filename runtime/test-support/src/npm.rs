//! Installs pinned npm packages inside the target folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs the packages that the lock file in `folder` names, and links `node_modules` in `folder` to them. They stay
/// in `tmp/name` of the target folder until the lock file changes. Other processes that need them wait.
///
/// # Errors
/// A message with the output of npm.
pub fn install(folder: &Path, name: &str) -> Result<(), String> {
    let packages = crate::target_tmp().join(name);
    let failed = |error: std::io::Error| format!("cannot install {}: {error}", packages.display());
    fs::create_dir_all(&packages).map_err(failed)?;
    let lock = File::create(packages.join(".lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let expected = fs::read(folder.join("package-lock.json")).map_err(failed)?;
    let modules = packages.join("node_modules");
    let stamp = modules.join(".installed");
    if !fs::read(&stamp).is_ok_and(|installed| installed == expected) {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(folder.join(file), packages.join(file)).map_err(failed)?;
        }
        npm_ci(&packages)?;
        fs::write(stamp, expected).map_err(failed)?;
    }
    link(&modules, &folder.join("node_modules")).map_err(failed)
}

/// Installs the sample MCP servers, and returns the path of a program of theirs.
///
/// # Errors
/// A message with the output of npm.
pub fn sample_server(program: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample-servers");
    install(&folder, "sample-servers")?;
    Ok(folder.join("node_modules/.bin").join(program))
}

/// Runs `npm ci` without package scripts and without downloading browsers.
fn npm_ci(packages: &Path) -> Result<(), String> {
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
        .current_dir(packages)
        .output();
    match npm {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "`npm ci` failed in {}; these tests need the packages in its lock file:\n{}",
            packages.display(),
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => Err(format!(
            "cannot run `npm`: {error}; these tests run JavaScript, so install Node 20 or newer with npm"
        )),
    }
}

/// Makes `link` a symbolic link to `modules`, replacing a directory of installed packages.
fn link(modules: &Path, link: &Path) -> std::io::Result<()> {
    if fs::read_link(link).is_ok_and(|target| target == modules) {
        return Ok(());
    }
    match fs::symlink_metadata(link) {
        Ok(old) if old.is_dir() => fs::remove_dir_all(link)?,
        Ok(_) => fs::remove_file(link)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(modules, link)
}
