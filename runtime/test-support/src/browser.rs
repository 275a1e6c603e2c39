//! Finds an installed browser.

use std::path::PathBuf;

/// The first program of `names` in `PATH`.
pub(crate) fn in_path(names: &[&str]) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&folders)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    programs.find(|program| program.is_file())
}

/// The program that the environment variable `variable` names, or else the first one of `names` in `PATH`. The first name
/// is that of Debian's package.
///
/// # Panics
/// If there is none.
pub(crate) fn find(browser: &str, variable: &str, names: &[&str]) -> PathBuf {
    if let Some(program) = std::env::var_os(variable).map(PathBuf::from) {
        assert!(
            program.is_file(),
            "`{variable}` names {}, which is not a file",
            program.display()
        );
        return program;
    }
    in_path(names).unwrap_or_else(|| {
        let package = names.first().copied().unwrap_or_default();
        panic!(
            "these tests need {browser}: install it (on Debian, `apt-get install {package}`), or set `{variable}` to its path"
        )
    })
}
