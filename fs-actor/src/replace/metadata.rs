//! Copies mode, owner and attributes from an old file to its replacement.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;

use crate::sys::{self, Errno, Gid, Mode, Uid, XattrFlags, spare_capacity};

/// Attribute of the access control list.
const ACCESS: &[u8] = b"system.posix_acl_access";
/// Maximum size of an attribute value or list in Linux.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// Copies what the system permits: group permissions only with the group, and never set-id bits. `mode` replaces the old
/// mode.
pub(super) fn ownership_and_attributes(
    old: &File,
    new: &OwnedFd,
    mode: Option<u32>,
) -> Result<(), Errno> {
    let was = sys::fstat(old)?;
    let is = sys::fstat(new)?;
    let (uid, gid) = (Uid::from_raw(was.st_uid), Gid::from_raw(was.st_gid));
    let mut mode = mode.unwrap_or(was.st_mode) & 0o777;
    if (was.st_uid, was.st_gid) != (is.st_uid, is.st_gid)
        && sys::fchown(new, Some(uid), Some(gid)).is_err()
        && was.st_gid != is.st_gid
        && sys::fchown(new, None, Some(gid)).is_err()
    {
        // If the group differs, it gets the permissions of others.
        mode = mode & 0o707 | (mode & 0o007) << 3;
    }
    let names = attributes(old);
    if !names.iter().any(|name| name.as_bytes() == ACCESS) {
        // Removes a default access list that the old file did not have.
        let _ = sys::fremovexattr(new, ACCESS);
    }
    for name in names {
        // Attributes that cannot be copied are lost, as with other programs.
        let _ = copy_attribute(old, new, &name);
    }
    sys::fchmod(new, Mode::from_raw_mode(mode))
}

/// Attributes that belong to content or access; capabilities belong to the old content only.
fn attributes(file: &File) -> Vec<CString> {
    let mut names = Vec::with_capacity(MAX_ATTRIBUTE);
    if sys::flistxattr(file, spare_capacity(&mut names)).is_err() {
        return Vec::new();
    }
    let preserved = |name: &&[u8]| {
        name.starts_with(b"user.") || *name == ACCESS || *name == b"security.selinux"
    };
    let names = names.split(|byte: &u8| *byte == 0).filter(preserved);
    names.filter_map(|name| CString::new(name).ok()).collect()
}

fn copy_attribute(old: &File, new: &OwnedFd, name: &CString) -> Result<(), Errno> {
    let mut value = Vec::with_capacity(MAX_ATTRIBUTE);
    sys::fgetxattr(old, name, spare_capacity(&mut value))?;
    sys::fsetxattr(new, name, &value, XattrFlags::empty())
}
