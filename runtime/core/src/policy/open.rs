//! Folders that are open to an authority.

use std::collections::BTreeMap;
use std::fmt;

use super::authority::Authority;
use super::fold::fold;
use super::globs::literal_paths;
use super::roots::Subtree;
use super::verdict::Verdict;
use crate::path::{VirtualPath, beneath};
use crate::scope::{Coverage, Scope, Verb};

/// A folder, or a single file, that a worker may use. The verdicts apply to everything beneath it, except where the
/// worker's policies have other rules.
///
/// A folder inside an open folder is listed if its verdicts differ from those of the folder above it.
///
/// ```
/// use bailiwick::config::RootConfig;
/// use bailiwick::policy::Authority;
/// use bailiwick::{Config, Origin, Policy, VirtualPath};
/// let config = Config::new().root(RootConfig::new(VirtualPath::parse("/repo", None)?));
/// let host = Authority::configured(&config)?;
/// let policy = Policy::new().allow("read:file:/repo/src").allow("write:file:/repo/src/parser");
/// let worker = host.narrow(&host.admit(&policy, Origin::Human)?);
/// let open: Vec<_> = worker.open_folders().iter().map(ToString::to_string).collect();
/// assert_eq!(open, ["`/repo/src` (read only)", "`/repo/src/parser` (read and write)"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFolder {
    /// Its path.
    pub path: VirtualPath,
    /// The verdict on reading.
    pub read: Verdict,
    /// The verdict on writing.
    pub write: Verdict,
    outermost: bool,
}

impl OpenFolder {
    /// Returns whether it can be read and the folder above it cannot. A walk of all open folders begins at these
    /// folders.
    #[must_use]
    pub fn is_outermost(&self) -> bool {
        self.outermost
    }

    fn rights(&self) -> &'static str {
        use Verdict::{Allow, Ask, Deny};
        match (self.read, self.write) {
            (Allow, Allow) => "read and write",
            (Allow, Ask) => "read; writes need approval",
            (Allow, Deny) => "read only",
            (Ask, Allow) => "write; reads need approval",
            (Ask, Ask) => "reads and writes need approval",
            (Ask, Deny) => "reads need approval",
            (Deny, Allow) => "write only",
            (Deny, Ask) => "write only, with approval",
            (Deny, Deny) => "closed",
        }
    }
}

impl fmt::Display for OpenFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::text::escape(self.path.as_str());
        write!(f, "`{path}` ({})", self.rights())
    }
}

impl Authority {
    pub(super) fn find_open_folders(&self) -> Box<[OpenFolder]> {
        let mut paths = self.boundaries();
        paths.retain(|path| !self.base().is_outside(path));
        paths.sort_unstable();
        paths.dedup();
        // The folder above is often one of the paths before it.
        let mut known = BTreeMap::new();
        let mut verdicts = |path: &VirtualPath| {
            let known = known.entry(path.clone());
            *known.or_insert_with(|| self.verdicts(path))
        };
        let closed = (Verdict::Deny, Verdict::Deny);
        let open = |path: VirtualPath| {
            let (read, write) = verdicts(&path);
            let above = path.parent().filter(|above| !self.base().is_outside(above));
            let above = above.map_or(closed, |above| verdicts(&above));
            ((read, write) != above && (read, write) != closed).then(|| OpenFolder {
                path,
                read,
                write,
                outermost: read != Verdict::Deny && above.0 == Verdict::Deny,
            })
        };
        paths.into_iter().filter_map(open).collect()
    }

    /// Returns whether the verdict on reading, and whether changes are denied, is the same for `path` and everything
    /// beneath it, given `granted`. If this is not certain, the result is false. Protected names are not considered, since
    /// their changes are never denied because of them.
    #[must_use]
    pub fn is_uniform(&self, path: &VirtualPath, granted: &[Coverage]) -> bool {
        if self.has_name_rules() {
            return false;
        }
        let top = fold(path.as_str());
        let is_at_or_beneath = |other: &VirtualPath| beneath(&fold(other.as_str()), &top).is_some();
        let mut boundaries = self.boundaries().into_iter();
        let mut grants = granted.iter().filter_map(Coverage::path);
        !boundaries.any(|other| other != *path && is_at_or_beneath(&other))
            && !grants.any(is_at_or_beneath)
    }

    /// Returns whether globs decide about files, such as `Policy::deny_glob`. They also concern files that do not exist yet.
    /// Protected names do not count.
    #[must_use]
    pub fn has_name_rules(&self) -> bool {
        let has_names = |entry: &Subtree| entry.has_names();
        let mut layers = self.layers().iter();
        self.base().entries().any(has_names) || layers.any(|held| held.layer.has_names())
    }

    fn verdicts(&self, path: &VirtualPath) -> (Verdict, Verdict) {
        let verdict = |verb| self.judge(&Scope::file(verb, path.clone()), &[]);
        (verdict(Verb::Read), verdict(Verb::Write))
    }

    /// All paths at which a rule about subtrees begins.
    pub(super) fn boundaries(&self) -> Vec<VirtualPath> {
        let mut paths = Vec::new();
        let mut add = |entry: &Subtree| {
            let root = &entry.mount.path;
            let globs = entry.allow_texts().unwrap_or_default().iter();
            let literal = globs.flat_map(|glob| literal_paths(glob));
            paths.extend(literal.filter_map(|path| VirtualPath::parse(&path, Some(root)).ok()));
            paths.push(root.clone());
        };
        self.base().entries().for_each(&mut add);
        for held in self.layers() {
            held.layer.roots().entries().iter().for_each(&mut add);
        }
        for held in self.layers() {
            paths.extend(held.layer.scopes().paths().cloned());
        }
        paths
    }
}
