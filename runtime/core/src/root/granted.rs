//! Opens directories that a person granted outside all roots.

use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::{Root, RootError, RootTable, holds_kept_out, homes, unsafe_reason};
use crate::path::VirtualPath;

impl Root {
    /// Opens the parent directory of `path`, a granted host path outside all roots, or its nearest ancestor whose path
    /// contains no link. Links beneath it are judged like all others. If `path` is a top-level directory or a mount
    /// point, `path` itself is opened; if it is a top-level file, the top of the file system is opened.
    ///
    /// Fails if `path` is or contains one of [`Root::kept_from_grants`], or if one of `roots` contains the same files
    /// under other names.
    pub(crate) fn open_granted(
        path: &VirtualPath,
        kept_out: &[PathBuf],
        roots: &RootTable,
    ) -> Result<Self, RootError> {
        if kept_out.iter().any(|file| file.starts_with(path.as_str())) {
            return Err(holds_kept_out(path));
        }
        let host = Path::new(path.as_str());
        let home = homes();
        let reason = home
            .iter()
            .find_map(|home| unsafe_reason(host, Some(home)))
            .or_else(|| unsafe_reason(host, None));
        let reason = reason.or_else(|| {
            let elsewhere = roots.iter().any(|root| root.has_elsewhere(path));
            elsewhere.then_some("a root holds the same files by other names; use those")
        });
        if let Some(reason) = reason {
            let mount = path.clone();
            return Err(RootError::Unsafe { mount, reason });
        }
        let (mount, dir) = holder(path)?;
        let host = PathBuf::from(mount.as_str());
        let opened = Self::over(mount, host, dir, false)?;
        opened.require_unique_names()?;
        Ok(Self {
            for_one_call: true,
            ..opened
        })
    }

    /// The host paths that no grant may cover: the home directory and the files `kept_out`. Their ancestors cannot be
    /// granted, either.
    pub(crate) fn kept_from_grants(kept_out: &[PathBuf]) -> Vec<VirtualPath> {
        let kept = homes().into_iter().chain(kept_out.iter().cloned());
        kept.filter_map(|path| VirtualPath::parse(path.to_str()?, None).ok())
            .collect()
    }

    /// Whether the host path `path` is inside this root or contains it, under another name.
    fn has_elsewhere(&self, path: &VirtualPath) -> bool {
        let host = Path::new(path.as_str());
        let inside = self.virtual_path(host);
        inside.is_some_and(|inside| inside != *path)
            || self.host.starts_with(host) && self.host != Path::new(self.mount.as_str())
    }
}

/// Opens the parent directory of the host path `path`; see [`Root::open_granted`].
fn holder(path: &VirtualPath) -> Result<(VirtualPath, Dir), RootError> {
    let above = |path: &VirtualPath| path.parent().filter(|above| !above.is_top());
    let mut mount = above(path).unwrap_or_else(|| path.clone());
    loop {
        match (open_directory(&mount), above(&mount)) {
            (Ok(dir), _) => {
                let name = path.name().unwrap_or_default();
                let mounted = above(path).as_ref() == Some(&mount) && is_mounted(&dir, name);
                return Ok(match open_directory(path) {
                    Ok(itself) if mounted => (path.clone(), itself),
                    Ok(_) | Err(_) => (mount, dir),
                });
            }
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), Some(above)) => mount = above,
            (Err(Errno::NOENT | Errno::NOTDIR), None) => {
                let mount = VirtualPath::top();
                return match open_directory(&mount) {
                    Ok(top) => Ok((mount, top)),
                    Err(errno) => Err(RootError::Open {
                        mount,
                        source: errno.into(),
                    }),
                };
            }
            (Err(Errno::LOOP), None) => {
                let reason = "a link stands in the way; grant the path it leads to";
                return Err(RootError::Unsafe { mount, reason });
            }
            (Err(errno), _) => {
                let source = errno.into();
                return Err(RootError::Open { mount, source });
            }
        }
    }
}

/// Opens a directory at a host path, following no link.
fn open_directory(path: &VirtualPath) -> Result<Dir, Errno> {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat2(CWD, path.as_str(), flags, Mode::empty(), how)?;
    Ok(Dir::from_std_file(dir.into()))
}

/// Whether another file system is mounted at `name` in `dir`.
fn is_mounted(dir: &Dir, name: &str) -> bool {
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(dir, name, flags, Mode::empty(), how).err() == Some(Errno::XDEV)
}

#[cfg(test)]
mod tests;
