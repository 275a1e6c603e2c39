//! The programs and system directories that commands use.
#![expect(
    clippy::disallowed_methods,
    reason = "reads the system directories that the host names, which are not roots"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::spec::Mount;

/// System directories and files that commands can read by default, if they exist.
pub(crate) const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl",
];

/// Directories in which programs are looked up by default.
pub(crate) const PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// The mounts of system directories. Links in the top-level directory, such as `/bin`, stay links.
pub(crate) fn mounts<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Vec<Mount> {
    let mut mounts = Vec::new();
    for path in paths {
        let is_top = path.parent().is_some_and(|above| above == Path::new("/"));
        // A missing path is left out.
        match (fs::read_link(path), fs::canonicalize(path)) {
            (Ok(target), _) if is_top => mounts.push(Mount::Link {
                at: path.clone(),
                target,
            }),
            (_, Ok(source)) => mounts.push(Mount::Host {
                source,
                at: path.clone(),
                writable: false,
                identity: None,
            }),
            (_, Err(_)) => {}
        }
    }
    mounts
}

/// The programs in `path` by name; the first directory that has a name decides.
pub(crate) fn programs(path: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut programs = BTreeMap::new();
    for folder in path {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries.flatten() {
            let found = entry.path();
            let is_program = fs::metadata(&found)
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
            if let (true, Ok(name)) = (is_program, entry.file_name().into_string()) {
                programs.entry(name).or_insert(found);
            }
        }
    }
    programs
}
