//! The programs and system directories that commands use.
#![expect(
    clippy::disallowed_methods,
    reason = "reads the system directories that the host names, which are not roots"
)]

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

/// The program `name` of the first directory in `path` that has it.
pub(crate) fn find(path: &[PathBuf], name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut files = path.iter().map(|folder| folder.join(name));
    files.find(|file| {
        fs::metadata(file)
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn first_directory_with_an_executable_file_decides() {
        let temp = tempfile::tempdir().unwrap();
        let path = ["a", "b"].map(|name| temp.path().join(name));
        for (file, mode) in [
            ("a/data", 0o644),
            ("b/data", 0o755),
            ("a/both", 0o755),
            ("b/both", 0o755),
            ("a/text", 0o644),
        ] {
            let file = temp.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(path[1].join("directory")).unwrap();
        assert_eq!(find(&path, "data"), Some(path[1].join("data")));
        assert_eq!(find(&path, "both"), Some(path[0].join("both")));
        for name in ["text", "directory", "missing", "..", ""] {
            assert_eq!(find(&path, name), None, "{name}");
        }
    }
}
