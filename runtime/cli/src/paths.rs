//! Paths of the host that may not exist yet.

use std::path::{Path, PathBuf};

/// The path without links, as far as it exists. If nothing of it can be found, opening it fails later.
pub(crate) fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |above: &Path| {
        let rest = absolute.strip_prefix(above).ok()?.components();
        Some(
            above
                .canonicalize()
                .ok()?
                .components()
                .chain(rest)
                .collect(),
        )
    };
    let real = absolute.ancestors().find_map(real);
    real.unwrap_or(absolute)
}

/// Whether `directory` is or contains `path`.
pub(crate) fn holds(directory: &Path, path: &Path) -> bool {
    real(path).starts_with(real(directory))
}
