//! A need with its folded path, and the mount points that it is compared with.

use std::borrow::Cow;

use super::fold::fold;
use crate::path::{VirtualPath, beneath};
use crate::scope::{Resource, Scope, Verb};

/// A mount point with its folded path.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct MountPoint {
    #[doc(hidden)]
    pub path: VirtualPath,
    folded: Box<str>,
    pub(crate) depth: usize,
}

impl MountPoint {
    pub(crate) fn new(path: VirtualPath) -> Self {
        Self {
            folded: fold(path.as_str()).into(),
            depth: path.depth(),
            path,
        }
    }

    pub(super) fn folded(&self) -> &str {
        &self.folded
    }

    /// `path`, which is beneath it in some spelling, relative to it.
    pub(super) fn below<'p>(&self, path: &'p VirtualPath) -> &'p str {
        below(path.as_str(), self.depth)
    }
}

/// A path relative to a mount point: folded, and as written if that differs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spelling<'n> {
    pub(crate) folded: &'n str,
    pub(crate) written: Option<&'n str>,
}

impl<'n> Spelling<'n> {
    /// The path as it was written.
    pub(crate) fn as_written(self) -> &'n str {
        self.written.unwrap_or(self.folded)
    }
}

/// A need that is being judged. Its path is folded once for all layers.
#[derive(Debug)]
pub(crate) struct Need<'n> {
    scope: &'n Scope,
    folded: Cow<'n, str>,
}

impl<'n> Need<'n> {
    pub(crate) fn new(scope: &'n Scope) -> Self {
        let folded = scope.path().map(|path| fold(path.as_str()));
        Self {
            scope,
            folded: folded.unwrap_or_default(),
        }
    }

    pub(crate) fn scope(&self) -> &'n Scope {
        self.scope
    }

    pub(crate) fn verb(&self) -> Verb {
        self.scope.verb()
    }

    pub(crate) fn path(&self) -> Option<&'n VirtualPath> {
        self.scope.path()
    }

    pub(crate) fn is_file(&self) -> bool {
        *self.scope.resource() == Resource::File
    }

    pub(crate) fn changes_file(&self) -> bool {
        self.is_file() && self.verb() == Verb::Write
    }

    pub(crate) fn folded(&self) -> &str {
        &self.folded
    }

    /// The path relative to `mount` in any spelling; `None` if it is not beneath it.
    pub(crate) fn beneath(&self, mount: &MountPoint) -> Option<Spelling<'_>> {
        let path = self.path()?;
        let folded = beneath(&self.folded, &mount.folded)?;
        Some(Spelling {
            folded,
            written: match &self.folded {
                Cow::Borrowed(_) => None,
                Cow::Owned(_) => Some(below(path.as_str(), mount.depth)),
            },
        })
    }

    /// Tests the path relative to each mount that contains it, or relative to each of its ancestors if none does.
    ///
    /// A glob is relative to its root, and a path outside all roots could be beneath a root at any depth.
    pub(crate) fn any_beneath(
        &self,
        mounts: &[MountPoint],
        mut test: impl FnMut(Spelling<'_>) -> bool,
    ) -> bool {
        let Some(path) = self.path() else {
            return false;
        };
        let mut held = false;
        for mount in mounts {
            if let Some(spelling) = self.beneath(mount) {
                held = true;
                if test(spelling) {
                    return true;
                }
            }
        }
        !held
            && (0..path.depth()).any(|depth| {
                test(Spelling {
                    folded: below(&self.folded, depth),
                    written: Some(below(path.as_str(), depth)),
                })
            })
    }
}

/// An absolute path without its first `depth` names.
fn below(path: &str, depth: usize) -> &str {
    let mut rest = path.strip_prefix('/').unwrap_or(path);
    for _ in 0..depth {
        rest = rest.split_once('/').map_or("", |(_, rest)| rest);
    }
    rest
}
