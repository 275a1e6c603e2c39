//! Reads the table of mounts, `/proc/self/mountinfo`.

use std::path::{Path, PathBuf};

/// The mount points beneath a path.
pub(crate) fn mounts_beneath(table: &str, at: &Path) -> Vec<PathBuf> {
    let paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    paths
        .map(unescape)
        .filter(|path| path.starts_with(at) && path != at)
        .collect()
}

/// Decodes the octal escapes of `mountinfo`.
fn unescape(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'\\').then(|| after.get(..3)).flatten();
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped_and_only_those_beneath_are_listed() {
        let table = "1 0 0:1 / / rw - ext4 a rw\n\
                     2 1 0:2 / /a rw - tmpfs b rw\n\
                     3 2 0:3 / /a/b\\040c rw - tmpfs b rw\n\
                     4 1 0:4 / /ab rw - tmpfs b rw\n";
        let found = mounts_beneath(table, Path::new("/a"));
        assert_eq!(found, [Path::new("/a/b c")]);
    }
}
