//! An old file and a new one in, the new one with the mode, owner and attributes of the old out.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;

use crate::sys::{self, Errno, Gid, Mode, Uid, XattrFlags, spare_capacity};

/// The access control list.
const ACCESS: &[u8] = b"system.posix_acl_access";
/// The largest value and list of names that Linux has.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// Gives `new` what the system permits of `old`: its group bits only with its group, and never a set-id bit.
pub(super) fn ownership_and_attributes(old: &File, new: &OwnedFd) -> Result<(), Errno> {
    let was = sys::fstat(old)?;
    let is = sys::fstat(new)?;
    let (uid, gid) = (Uid::from_raw(was.st_uid), Gid::from_raw(was.st_gid));
    let mut mode = was.st_mode & 0o777;
    if (was.st_uid, was.st_gid) != (is.st_uid, is.st_gid)
        && sys::fchown(new, Some(uid), Some(gid)).is_err()
        && was.st_gid != is.st_gid
        && sys::fchown(new, None, Some(gid)).is_err()
    {
        // The group is another one: it gets no more than everybody.
        mode = mode & 0o707 | (mode & 0o007) << 3;
    }
    let names = attributes(old);
    if !names.iter().any(|name| name.as_bytes() == ACCESS) {
        // What the directory gives new files was not on the old one.
        let _ = sys::fremovexattr(new, ACCESS);
    }
    for name in names {
        // An attribute that may not be copied is lost, as with any other way to write a file anew.
        let _ = copy_attribute(old, new, &name);
    }
    sys::fchmod(new, Mode::from_raw_mode(mode))
}

/// The attributes that belong to the file's content or access; capabilities belong to the old content alone.
fn attributes(file: &File) -> Vec<CString> {
    let mut names = Vec::with_capacity(MAX_ATTRIBUTE);
    if sys::flistxattr(file, spare_capacity(&mut names)).is_err() {
        return Vec::new();
    }
    let kept = |name: &&[u8]| {
        name.starts_with(b"user.") || *name == ACCESS || *name == b"security.selinux"
    };
    let names = names.split(|byte: &u8| *byte == 0).filter(kept);
    names.filter_map(|name| CString::new(name).ok()).collect()
}

fn copy_attribute(old: &File, new: &OwnedFd, name: &CString) -> Result<(), Errno> {
    let mut value = Vec::with_capacity(MAX_ATTRIBUTE);
    sys::fgetxattr(old, name, spare_capacity(&mut value))?;
    sys::fsetxattr(new, name, &value, XattrFlags::empty())
}
