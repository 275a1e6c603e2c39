//! Resolves links in a path, judging each link before it is read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, Scope, Verb, Verdict, VirtualPath};

use crate::read_view::{MountPoint, ReadView};
use crate::sys::beneath::{self, Mount};
use crate::sys::{Errno, FileType, OFlags, readlinkat};

/// Maximum number of links on a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// Maximum number of pending names.
const MAX_PENDING: usize = 4096;

/// Resolves all links in `path`; errors name `requested` instead.
///
/// If a name cannot be reached, the result is the path up to there with the remaining names, so that it is judged
/// before it is found to be missing. The errors for links that may not be read, links that leave the root by `..`, and
/// loops are the same.
pub(super) fn follow(
    view: &dyn ReadView,
    path: &VirtualPath,
    requested: &VirtualPath,
) -> Result<VirtualPath, Interrupt> {
    let not_found = || Interrupt::Failed(CallError::not_found(requested));
    let (mount, rest) = view.mount_point(path).ok_or_else(not_found)?;
    let mut walk = Walk::new(mount, rest).map_err(|_| not_found())?;
    let mut links = 0;
    while let Some(name) = walk.pending.pop() {
        let found = match walk.step(&name) {
            Ok(Step::Continue) => continue,
            Ok(Step::End(real)) => return real.ok_or_else(not_found),
            Ok(Step::Link(found)) => found,
            Err(AboveRoot) => {
                // A relative target that leaves the root is treated as the absolute one.
                let target = view.host_path_above(walk.mount.path, &walk.take_pending());
                let target = target
                    .as_deref()
                    .and_then(Path::to_str)
                    .ok_or_else(not_found)?;
                let to = absolute(view, target, requested)?;
                match view.mount_point(&to) {
                    Some((mount, rest)) => walk.restart(mount, rest).map_err(|_| not_found())?,
                    None => return Ok(to),
                }
                continue;
            }
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(not_found());
        }
        match view.judge(&found.path) {
            Verdict::Allow => {}
            // A call that may read the target may learn where the link leads.
            Verdict::Ask if path.starts_with(&found.path) && view.shows(path) => {}
            Verdict::Ask => {
                return Err(Interrupt::Needs(vec![Scope::file(Verb::Read, found.path)]));
            }
            Verdict::Deny => return Err(not_found()),
        }
        view.checkpoint()?;
        let target = found.target().ok_or_else(not_found)?;
        if target.starts_with('/') {
            let to = absolute(view, &target, requested)?;
            match view.mount_point(&to) {
                Some((mount, rest)) => walk.restart(mount, rest).map_err(|_| not_found())?,
                None => return walk.with_pending(to).ok_or_else(not_found),
            }
        } else {
            walk.push(&target);
        }
        if walk.pending.len() > MAX_PENDING {
            return Err(not_found());
        }
    }
    Ok(walk.path())
}

/// The virtual path of an absolute target.
fn absolute(
    view: &dyn ReadView,
    target: &str,
    requested: &VirtualPath,
) -> Result<VirtualPath, CallError> {
    if target.split('/').any(|name| name == "..") {
        return Err(CallError::not_found(requested));
    }
    if let Some(inside) = view.virtual_path(Path::new(target)) {
        return Ok(inside);
    }
    let outside = VirtualPath::parse(target, None).map_err(|_| CallError::not_found(requested))?;
    // A host path may look like a virtual path of a root.
    if view.mount_point(&outside).is_some() {
        return Err(CallError::not_found(requested));
    }
    Ok(outside)
}

/// `..` led above the root.
#[derive(Debug)]
struct AboveRoot;

/// A link on the path.
struct FoundLink {
    handle: OwnedFd,
    path: VirtualPath,
}

impl FoundLink {
    fn target(&self) -> Option<String> {
        let target = readlinkat(&self.handle, "", Vec::new()).ok()?;
        target.into_string().ok().filter(|text| !text.is_empty())
    }
}

enum Step {
    /// Continue with the next name.
    Continue,
    /// The result; `None` if it cannot be expressed.
    End(Option<VirtualPath>),
    /// A link.
    Link(FoundLink),
}

/// State of the walk: the directories from the root down, and the pending names in reverse order. Only the deepest
/// directory is open; `..` reopens the one above by name, without following links.
struct Walk<'r> {
    mount: MountPoint<'r>,
    root_mount: Option<Mount>,
    ancestors: Vec<VirtualPath>,
    current: Option<OwnedFd>,
    end: Option<VirtualPath>,
    pending: Vec<String>,
}

impl<'r> Walk<'r> {
    fn new(mount: MountPoint<'r>, rest: &str) -> Result<Self, CallError> {
        let mut walk = Self {
            mount,
            root_mount: None,
            ancestors: Vec::new(),
            current: None,
            end: None,
            pending: Vec::new(),
        };
        walk.restart(mount, rest)?;
        Ok(walk)
    }

    /// Continues from the top of `mount`.
    fn restart(&mut self, mount: MountPoint<'r>, rest: &str) -> Result<(), CallError> {
        let root_mount = (!mount.crosses_mounts).then(|| Mount::of(mount.dir.as_fd()));
        self.root_mount = root_mount.transpose().map_err(|errno| {
            CallError::new(Code::Io, format!("cannot inspect the root: {errno}"))
        })?;
        self.mount = mount;
        self.ancestors.clear();
        self.current = None;
        self.end = None;
        self.push(rest);
        Ok(())
    }

    fn push(&mut self, names: &str) {
        let names = names.rsplit('/').filter(|name| !matches!(*name, "" | "."));
        self.pending.extend(names.map(str::to_owned));
    }

    /// Takes the pending names, beginning with a `..` at the top of the root.
    fn take_pending(&mut self) -> String {
        let names = std::iter::once("..").chain(self.pending.iter().rev().map(String::as_str));
        let target = names.collect::<Vec<_>>().join("/");
        self.pending.clear();
        target
    }

    fn path(&self) -> VirtualPath {
        self.end
            .as_ref()
            .or(self.ancestors.last())
            .unwrap_or(self.mount.path)
            .clone()
    }

    fn dir(&self) -> BorrowedFd<'_> {
        let current = self.current.as_ref();
        current.map_or_else(|| self.mount.dir.as_fd(), AsFd::as_fd)
    }

    fn ascend(&mut self) -> Result<Step, AboveRoot> {
        self.ancestors.pop().ok_or(AboveRoot)?;
        self.current = None;
        let Some(above) = self.ancestors.last() else {
            return Ok(Step::Continue);
        };
        let names = above.beneath(self.mount.path).unwrap_or_default();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let base = self.mount.dir.as_fd();
        match beneath::open(base, names, flags, self.mount.crosses_mounts) {
            Ok(dir) => {
                self.current = Some(dir);
                Ok(Step::Continue)
            }
            // It was removed or replaced by a link.
            Err(_) => Ok(Step::End(None)),
        }
    }

    fn step(&mut self, name: &str) -> Result<Step, AboveRoot> {
        if name == ".." {
            return self.ascend();
        }
        let Ok(path) = self.path().join(name) else {
            return Ok(Step::End(None));
        };
        let Ok((handle, kind)) = self.open_name(name) else {
            return Ok(Step::End(self.with_pending(path)));
        };
        Ok(match kind {
            FileType::Symlink => Step::Link(FoundLink { handle, path }),
            FileType::Directory => {
                self.ancestors.push(path);
                self.current = Some(handle);
                Step::Continue
            }
            _ if self.pending.is_empty() => {
                self.end = Some(path);
                Step::Continue
            }
            _ => Step::End(self.with_pending(path)),
        })
    }

    fn open_name(&self, name: &str) -> Result<(OwnedFd, FileType), Errno> {
        let handle = beneath::handle(self.dir(), name)?;
        if let Some(root_mount) = &self.root_mount {
            root_mount.require_same(handle.as_fd())?;
        }
        let kind = beneath::file_type(&handle)?;
        Ok((handle, kind))
    }

    /// `path` with the pending names, unless `..` is among them.
    fn with_pending(&self, path: VirtualPath) -> Option<VirtualPath> {
        let mut names = self.pending.iter().rev();
        names.try_fold(path, |path, name| path.join(name).ok())
    }
}
