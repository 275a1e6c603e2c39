//! System calls of this crate.
//!
//! No other module uses a system interface. Numbers whose width differs between architectures are converted by
//! [`wide`].

pub(crate) mod beneath;

pub(crate) use rustix::buffer::spare_capacity;
pub(crate) use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, RenameFlags,
    ResolveFlags, SeekFrom, Stat, StatxFlags, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, flock, fremovexattr, fsetxattr, fstat, fsync, linkat, makedev, mkdirat, openat,
    openat2, readlinkat, renameat, renameat_with, seek, statat, statx, symlinkat, syncfs, unlinkat,
};
pub(crate) use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite};
pub(crate) use rustix::process::{Resource, getrlimit};

/// Converts a number that has 32 bits on some architectures and 64 on others.
pub(crate) fn wide(number: impl Into<u64>) -> u64 {
    number.into()
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "it reads source files outside any root"
)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The source files beneath `dir`, without tests.
    fn sources(dir: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_str().unwrap().to_owned();
            if path.is_dir() {
                sources(&path, found);
            } else if !name.ends_with("tests.rs") && !name.ends_with("testing.rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                found.push((name, code.to_owned()));
            }
        }
    }

    #[test]
    fn no_other_module_uses_a_system_interface() {
        let mut found = Vec::new();
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        sources(&src, &mut found);
        let named = |(name, code): &(String, String)| {
            let outside = !name.ends_with("/sys.rs") && !name.contains("/sys/");
            let interface = code.contains("rustix::") || code.contains("libc::");
            (outside && interface).then(|| name.clone())
        };
        let named: Vec<String> = found.iter().filter_map(named).collect();
        assert_eq!(named, Vec::<String>::new());
        assert!(found.len() > 40);
    }
}
