//! What a command may touch of the roots of a worker, as mounts.
//!
//! An entry of the roots gets a mount of its own if its rights differ from those of the directory that contains it. The
//! entries of a directory are read only if a rule of the policy may match something beneath it, since no mount hides names
//! that are not known. Entries that no rule can judge are hidden. If changes are kept apart, files whose names no rule is
//! about are not looked at. Names that are created while the command runs get the rights of their directory. A directory that
//! contains an entry with other rights gets a mount, too: nobody can rename it then.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bailiwick::path::VirtualPath;
use bailiwick::policy::{Verdict, WriteMode};
use bailiwick::root::Root;
use bailiwick::scope::Verb;
use bailiwick::text::escape;
use bailiwick::tool::{Interrupt, ReadPermit};
use bailiwick::{CallError, Code};
use bailiwick_fs::io::is_run_by_git;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::clock;
use crate::mount_table::mounts_beneath;
use crate::programs;
use crate::spec::Mount;

/// Maximum number of mounts. The kernel allows 100,000 in all.
const MAX_MOUNTS: usize = 4096;
/// Maximum number of paths in [`ChangedFiles`].
const MAX_CHANGED: usize = 100;
/// Maximum length of the path of a mount, in bytes.
const MAX_MOUNT_PATH: usize = 4000;
/// How long the files that a command changed are listed after its call was stopped; a revocation waits five seconds in all.
const AFTER_STOP: Duration = Duration::from_secs(3);
/// Number of entries of a directory after which it is checked again whether entries may be listed.
const CHECK_EVERY: usize = 1000;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What happens to the changes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changes {
    /// It changes the roots.
    Live,
    /// Its changes are kept apart, and judged afterwards.
    Apart,
}

/// The files that a command may have changed.
#[derive(Debug, Default)]
pub(crate) struct ChangedFiles {
    /// The first ones.
    pub(crate) first: Vec<VirtualPath>,
    /// Their number.
    pub(crate) total: u64,
    /// The number of entries and directories that could not be listed.
    skipped: u64,
    /// Why the first of them could not.
    first_skipped: Option<String>,
}

impl ChangedFiles {
    fn add(&mut self, path: &VirtualPath) {
        if self.first.len() < MAX_CHANGED {
            self.first.push(path.clone());
        }
        self.total += 1;
    }

    fn skip(&mut self, error: &CallError) {
        self.skipped += 1;
        self.first_skipped
            .get_or_insert_with(|| error.message().to_owned());
    }

    /// Why not all files are known; `None` if they are.
    pub(crate) fn incomplete(&self) -> Option<String> {
        let first = self.first_skipped.as_ref()?;
        Some(match self.skipped {
            1 => first.clone(),
            skipped => format!("{first} (and {} more)", skipped - 1),
        })
    }
}

/// What a command may do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    None,
    Read,
    Write,
}

/// Returns the mounts of everything that the call may read without a further question. Directories and files are writable
/// if the call may also change them in every way, or, if changes are kept apart, unless every change is denied. Blocks.
///
/// They come after the mounts of the directories `system`, which the command can read as well, and hide what these show of a
/// root.
///
/// # Errors
/// `TOO_LARGE` if the rights differ at too many places; `NOT_TEXT` if no rule can judge a name, and nothing can hide it; `IO`
/// if a root cannot be read.
pub(crate) fn files(
    permit: &ReadPermit,
    changes: Changes,
    system: &[PathBuf],
) -> Result<Vec<Mount>, CallError> {
    let view = View::of(permit, changes, None)?;
    let mut mounts = view.hidden_in_system(&programs::mounts(system));
    mounts.extend(view.mounts);
    Ok(mounts)
}

/// Returns these mounts after a command that changed the roots, and the files that were changed since a time. What cannot be
/// listed is skipped, and counted unless it is at one of the `restricted` paths, which the command could not change. If the
/// call was stopped, this takes a few seconds at most. Blocks.
///
/// # Errors
/// None is expected, since what cannot be listed is skipped.
pub(crate) fn files_and_changes(
    permit: &ReadPermit,
    restricted: &BTreeSet<&Path>,
    since: Duration,
) -> Result<(Vec<Mount>, ChangedFiles), CallError> {
    let after = After {
        restricted,
        since,
        until: Instant::now() + AFTER_STOP,
    };
    let view = View::of(permit, Changes::Live, Some(after))?;
    Ok((view.mounts, view.changed))
}

/// How entries are listed after a command.
#[derive(Clone, Copy, Debug)]
struct After<'p> {
    /// The paths that the command could not change.
    restricted: &'p BTreeSet<&'p Path>,
    /// The time since which changed files are noted.
    since: Duration,
    /// Until when entries are listed if the call was stopped.
    until: Instant,
}

struct View<'p> {
    permit: &'p ReadPermit,
    changes: Changes,
    /// Whether the policy allows every way of writing, which a sandbox cannot tell apart; if changes are kept apart,
    /// whether it allows one.
    may_write: bool,
    open: Vec<VirtualPath>,
    mounts: Vec<Mount>,
    /// Set after the command.
    after: Option<After<'p>>,
    changed: ChangedFiles,
}

/// The root that is being read.
struct Place<'r> {
    root: &'r Root,
    /// Mount points of the other roots, which have entries of their own.
    others: &'r [&'r VirtualPath],
    device: u64,
    /// What is mounted beneath it on the host.
    mounted: Vec<PathBuf>,
}

impl<'p> View<'p> {
    /// Judges all entries of the roots.
    fn of(
        permit: &'p ReadPermit,
        changes: Changes,
        after: Option<After<'p>>,
    ) -> Result<Self, CallError> {
        let mut modes = WriteMode::ALL.into_iter();
        let allows = |mode| permit.allows_write_mode(mode);
        let mut view = Self {
            permit,
            changes,
            may_write: match changes {
                Changes::Live => modes.all(allows),
                Changes::Apart => modes.any(allows),
            },
            open: permit
                .open_folders()
                .iter()
                .map(|folder| folder.path.clone())
                .collect(),
            mounts: Vec::new(),
            after,
            changed: ChangedFiles::default(),
        };
        let mut roots: Vec<&Root> = permit.roots().collect();
        roots.sort_by_key(|root| root.mount().depth());
        for root in &roots {
            let inner: Vec<&VirtualPath> = roots
                .iter()
                .map(|inner| inner.mount())
                .filter(|inner| *inner != root.mount())
                .collect();
            if let Err(error) = view.add_root(root, &inner) {
                view.skip(error)?;
            }
        }
        Ok(view)
    }

    fn rights(&self, path: &VirtualPath) -> Rights {
        let verdict = |verb| self.permit.judge(verb, path);
        let may_read = verdict(Verb::Read) == Verdict::Allow;
        let may_write = self.may_write
            && match self.changes {
                Changes::Live => {
                    verdict(Verb::Write) == Verdict::Allow && !self.is_run_by_git(path)
                }
                Changes::Apart => verdict(Verb::Write) != Verdict::Deny,
            };
        match (may_read, may_write) {
            (false, _) => Rights::None,
            (true, false) => Rights::Read,
            (true, true) => Rights::Write,
        }
    }

    /// Whether a file is protected because of the repository around it, and no grant of the call names it.
    fn is_run_by_git(&self, path: &VirtualPath) -> bool {
        let is_run = match is_run_by_git(self.permit, path) {
            Ok(is_run) => is_run,
            // What a call that was stopped has changed is still listed.
            Err(Interrupt::Failed(error)) => {
                !matches!(error.code(), Code::Cancelled | Code::Deadline)
            }
            Err(_) => true,
        };
        is_run && !self.permit.may_change_protected(path) && !self.permit.is_named_by_grant(path)
    }

    /// Hides what system directories show of the roots, and system directories in a root that the call may not read, unless
    /// the mount of the root covers them.
    fn hidden_in_system(&self, system: &[Mount]) -> Vec<Mount> {
        // A directory that was granted for a call is outside the roots; a system directory there stays readable.
        let roots = self.permit.roots().filter(|root| !root.is_for_one_call());
        let mut hidden = Vec::new();
        for root in roots.chain(self.permit.closed_roots()) {
            let covers = self.rights(root.mount()) != Rights::None;
            let shown = |mount: &Mount| {
                let Mount::Host { source, at, .. } = mount else {
                    return None;
                };
                if let Ok(inner) = root.host_path().strip_prefix(source) {
                    return Some(at.components().chain(inner.components()).collect());
                }
                let inner = root.virtual_path(source)?;
                // The mount of the root covers it, or no rule applies to what it contains.
                let is_open = self.rights(&inner) != Rights::None && self.permit.is_uniform(&inner);
                (!is_open).then(|| at.clone())
            };
            let shown = system.iter().filter_map(shown);
            let shown =
                shown.filter(|at: &PathBuf| !(covers && at.starts_with(root.mount().as_str())));
            hidden.extend(shown.map(|at| Mount::Hidden { at }));
        }
        hidden
    }

    fn add_root(&mut self, root: &Root, others: &[&VirtualPath]) -> Result<(), CallError> {
        let path = root.mount();
        let rights = self.rights(path);
        // An outer root may show the same directory with other rights.
        if others.iter().any(|outer| path.starts_with(outer)) {
            let at = PathBuf::from(path.as_str());
            self.push(Mount::Hidden { at })?;
        }
        if rights != Rights::None {
            let source = root.host_path().to_owned();
            self.push(self.mount(source, path, rights, root.identity(), true))?;
        }
        let table = mount_table().map_err(|error| unreadable(path, error))?;
        let place = Place {
            root,
            others,
            device: root.identity().0,
            mounted: mounts_beneath(&table, root.host_path()),
        };
        // The handle of a root may not be readable itself.
        let directory = openat(root.dir(), ".", DIRECTORY, Mode::empty())
            .map_err(|error| unreadable(path, error))?;
        if self.changes == Changes::Apart && is_remote(directory.as_fd()) {
            let message = format!(
                "changes in `{}` cannot be kept apart, since it is on a network file system, whose times come from another \
                 clock; use the mode `live`",
                escape(path.as_str())
            );
            return Err(CallError::new(Code::Io, message));
        }
        self.add_entries(&place, directory.as_fd(), path, rights)
    }

    /// Returns `error`, or counts it if the command has ended.
    fn skip(&mut self, error: CallError) -> Result<(), CallError> {
        if self.after.is_none() {
            return Err(error);
        }
        self.changed.skip(&error);
        Ok(())
    }

    /// Checks that entries may be listed. After a command, this has its own time if the call was stopped.
    fn checkpoint(&self) -> Result<(), CallError> {
        match self.after {
            Some(after) if Instant::now() < after.until => Ok(()),
            _ => self.permit.checkpoint(),
        }
    }

    /// Adds mounts for the entries of a directory that has `rights`.
    fn add_entries(
        &mut self,
        place: &Place<'_>,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        rights: Rights,
    ) -> Result<(), CallError> {
        if rights == Rights::None && !self.open.iter().any(|open| open.starts_with(path)) {
            return Ok(());
        }
        self.checkpoint()?;
        if self.is_uniform(path) {
            return self.hide_mounts(place, path, rights);
        }
        let entries = match Dir::read_from(directory) {
            Ok(entries) => entries,
            Err(Errno::ACCESS) => {
                let stat = fstat(directory).map_err(|error| unreadable(path, error))?;
                return self.add_closed(place, path, &stat, rights);
            }
            Err(error) => return self.skip(unreadable(path, error)),
        };
        let named = self.permit.entries(path);
        let (by_name, mut ordinary) = (self.judges_by_name(place, path), None);
        for (count, entry) in entries.enumerate() {
            if count % CHECK_EVERY == CHECK_EVERY - 1 {
                self.checkpoint()?;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.skip(unreadable(path, error)),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let judged = name.to_str().ok();
            let Some((text, inner)) = judged.and_then(|text| Some((text, path.join(text).ok()?)))
            else {
                self.add_unjudged(directory, path, (name, entry.file_type()), rights)?;
                continue;
            };
            let is_ordinary = by_name && named.is_ordinary(text);
            let may_be_directory =
                matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            if is_ordinary && !may_be_directory && ordinary == Some(rights) {
                continue;
            }
            let judged = match ordinary {
                Some(judged) if is_ordinary => judged,
                _ => self.rights(&inner),
            };
            if is_ordinary {
                ordinary = Some(judged);
            }
            self.add_entry(place, directory, &inner, text, (rights, judged))?;
        }
        Ok(())
    }

    /// Hides an entry that no rule can judge because of its name, in the directory `path` that has `rights`. The name of a mount
    /// is text, so only its directory's rights can hold for an entry whose name is none.
    fn add_unjudged(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        (name, kind): (&CStr, FileType),
        rights: Rights,
    ) -> Result<(), CallError> {
        if kind.is_symlink() || rights == Rights::None {
            return Ok(());
        }
        let at = name
            .to_str()
            .ok()
            .map(|name| Path::new(path.as_str()).join(name));
        let at = at.filter(|at| at.as_os_str().len() <= MAX_MOUNT_PATH);
        let Some(after) = self.after else {
            return self.hide_unjudged(path, (name, kind), at);
        };
        let is_restricted = at.is_some_and(|at| after.restricted.contains(at.as_path()));
        let is_old = || {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            kind.is_file() && stat.is_ok_and(|stat| clock::changed_at(&stat) < after.since)
        };
        if is_restricted || is_old() {
            return Ok(());
        }
        self.skip(unjudged(path, name))
    }

    /// Hides an entry that no rule can judge, if its name is text and its path is not too long.
    fn hide_unjudged(
        &mut self,
        path: &VirtualPath,
        (name, kind): (&CStr, FileType),
        at: Option<PathBuf>,
    ) -> Result<(), CallError> {
        if let Some(at) = at {
            return self.push(Mount::Hidden { at });
        }
        let may_be_judged = matches!(kind, FileType::Directory | FileType::Unknown)
            || self.permit.has_name_rules()
            || self.permit.strict_hardlinks();
        if may_be_judged {
            Err(unjudged(path, name))
        } else {
            Ok(())
        }
    }

    /// Whether the names of the entries of a directory that no rule is about are enough to judge them.
    fn judges_by_name(&self, place: &Place<'_>, path: &VirtualPath) -> bool {
        // The rights to change the roots also depend on protected names.
        let is_written = self.changes == Changes::Live && self.may_write;
        let host = host_path(place.root, path);
        let mut mounted = place.mounted.iter();
        !is_written
            && self.after.is_none()
            && !self.permit.strict_hardlinks()
            && !mounted.any(|mounted| mounted.parent() == Some(&host))
    }

    /// Adds mounts for an entry of a directory. `rights` are those of the directory, and those that the policy gives it.
    fn add_entry(
        &mut self,
        place: &Place<'_>,
        directory: BorrowedFd<'_>,
        path: &VirtualPath,
        name: &str,
        (outer, judged): (Rights, Rights),
    ) -> Result<(), CallError> {
        if place.others.contains(&path) {
            return Ok(());
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was removed meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return self.skip(unreadable(path, error)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        // What a link leads to is judged where it is.
        if kind.is_symlink() {
            return Ok(());
        }
        // An overlay does not contain other file systems.
        let crosses = place.root.crosses_mounts() && self.changes == Changes::Live;
        let foreign = stat.st_dev != place.device && !crosses;
        let linked = kind.is_file() && stat.st_nlink > 1 && self.permit.strict_hardlinks();
        let rights = if foreign || linked {
            Rights::None
        } else {
            judged
        };
        let may_be_changed =
            rights == Rights::Write || outer == Rights::Write && rights == Rights::Read;
        if kind.is_file()
            && may_be_changed
            && self
                .after
                .is_some_and(|after| clock::changed_at(&stat) >= after.since)
        {
            self.changed.add(path);
        }
        let at = || PathBuf::from(path.as_str());
        let first = self.mounts.len();
        if rights != outer {
            self.push(match (outer, rights) {
                (_, Rights::None) => Mount::Hidden { at: at() },
                (Rights::None, _) => {
                    let source = host_path(place.root, path);
                    let identity = (stat.st_dev, stat.st_ino);
                    self.mount(source, path, rights, identity, kind.is_dir())
                }
                _ => Mount::Within {
                    at: at(),
                    writable: rights == Rights::Write,
                },
            })?;
        }
        if kind.is_dir() && !foreign {
            let inner: OwnedFd = match openat(directory, name, DIRECTORY, Mode::empty()) {
                Ok(inner) => inner,
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                Err(Errno::ACCESS) => {
                    return self.add_closed(place, path, &stat, rights);
                }
                Err(error) => return self.skip(unreadable(path, error)),
            };
            self.add_entries(place, inner.as_fd(), path, rights)?;
            let could_be_renamed = outer == Rights::Write && rights == Rights::Write;
            let is_above_root = || place.others.iter().any(|other| other.starts_with(path));
            let holds_others = self.mounts.len() > first || is_above_root();
            if could_be_renamed && self.changes == Changes::Live && holds_others {
                self.pin(first, at())?;
            }
        }
        Ok(())
    }

    /// Hides a directory with `rights` that this process cannot read. The command cannot read it either, unless it has the same
    /// owner and changes the permissions.
    fn add_closed(
        &mut self,
        place: &Place<'_>,
        path: &VirtualPath,
        stat: &Stat,
        rights: Rights,
    ) -> Result<(), CallError> {
        if rights == Rights::None || self.is_uniform(path) {
            return Ok(());
        }
        if path == place.root.mount() {
            return self.skip(unreadable(path, Errno::ACCESS));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Ok(());
        }
        let at = PathBuf::from(path.as_str());
        if let Some(after) = self.after {
            return match after.restricted.contains(at.as_path()) {
                true => Ok(()),
                false => self.skip(unreadable(path, Errno::ACCESS)),
            };
        }
        self.push(Mount::Hidden { at })
    }

    /// Gives a directory that contains the mounts from `first` on a mount of its own. Otherwise a command could rename it, and
    /// what it contains would get other rights by its new path.
    fn pin(&mut self, first: usize, at: PathBuf) -> Result<(), CallError> {
        let writable = true;
        self.push(Mount::Within { at, writable })?;
        if let Some(mounts) = self.mounts.get_mut(first..) {
            mounts.rotate_right(1);
        }
        Ok(())
    }

    /// Whether everything in a directory certainly has its rights, too.
    fn is_uniform(&self, path: &VirtualPath) -> bool {
        // If the command changes the roots, protected names beneath a directory have other rights than the directory, and
        // entries beneath a protected name such as `.git` may have more.
        let is_written = self.changes == Changes::Live
            && self.may_write
            && self.permit.judge(Verb::Write, path) != Verdict::Deny;
        !is_written && !self.permit.strict_hardlinks() && self.permit.is_uniform(path)
    }

    /// Hides what is mounted in a directory whose entries are not judged one by one.
    fn hide_mounts(
        &mut self,
        place: &Place<'_>,
        path: &VirtualPath,
        rights: Rights,
    ) -> Result<(), CallError> {
        // An overlay does not contain other file systems, but what they cover.
        let crosses = place.root.crosses_mounts() && self.changes == Changes::Live;
        if crosses || rights == Rights::None {
            return Ok(());
        }
        let host = place.root.host_path();
        let top = host_path(place.root, path);
        let beneath = |mounted: &&PathBuf| mounted.starts_with(&top) && **mounted != top;
        for mounted in place.mounted.iter().filter(beneath) {
            let inner = mounted.strip_prefix(host).ok().and_then(Path::to_str);
            let inner =
                inner.and_then(|inner| VirtualPath::parse(inner, Some(place.root.mount())).ok());
            let inner = inner.ok_or_else(|| {
                CallError::new(
                    Code::NotText,
                    "something is mounted at a path that no rule can judge",
                )
            })?;
            if !place.others.contains(&&inner) {
                let at = PathBuf::from(inner.as_str());
                self.push(Mount::Hidden { at })?;
            }
        }
        Ok(())
    }

    /// A mount of an entry. A file in a directory that the call may not read is never writable if changes are kept apart.
    fn mount(
        &self,
        source: PathBuf,
        path: &VirtualPath,
        rights: Rights,
        identity: (u64, u64),
        is_directory: bool,
    ) -> Mount {
        let at = PathBuf::from(path.as_str());
        let writable = rights == Rights::Write;
        let identity = Some(identity);
        match self.changes {
            Changes::Apart if is_directory => Mount::Overlay {
                source,
                at,
                writable,
                identity,
            },
            Changes::Live | Changes::Apart => Mount::Host {
                source,
                at,
                writable: writable && self.changes == Changes::Live,
                identity,
            },
        }
    }

    fn push(&mut self, mount: Mount) -> Result<(), CallError> {
        if self.mounts.len() >= MAX_MOUNTS {
            let message = "the rights differ at too many places for a sandbox";
            return self.skip(CallError::new(Code::TooLarge, message));
        }
        self.mounts.push(mount);
        Ok(())
    }
}

/// The path of an entry of a root on the host.
fn host_path(root: &Root, path: &VirtualPath) -> PathBuf {
    let inner = Path::new(path.as_str()).strip_prefix(root.mount().as_str());
    root.host_path().join(inner.unwrap_or(Path::new("")))
}

/// Whether a directory is on a file system whose times come from the clock of a server: NFS, SMB, CIFS, Ceph or AFS.
fn is_remote(directory: BorrowedFd<'_>) -> bool {
    const KINDS: [u32; 6] = [
        0x6969,
        0x517b,
        0xfe53_4d42,
        0xff53_4d42,
        0x00c3_6400,
        0x5346_414f,
    ];
    let kind = rustix::fs::fstatfs(directory).map(|found| found.f_type);
    kind.is_ok_and(|kind| u32::try_from(kind & 0xffff_ffff).is_ok_and(|kind| KINDS.contains(&kind)))
}

/// The mounts of this process.
fn mount_table() -> Result<String, Errno> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let table = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?;
    let mut text = String::new();
    let read = std::fs::File::from(table).read_to_string(&mut text);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(text)
}

fn unjudged(directory: &VirtualPath, name: &CStr) -> CallError {
    let message = format!(
        "`{}` in `{}` has a name that is not UTF-8 or has control characters, or a path that is too long, so no rule can \
         judge it; rename or remove it",
        escape(&name.to_string_lossy()),
        escape(directory.as_str())
    );
    CallError::new(Code::NotText, message)
}

fn unreadable(path: &VirtualPath, error: Errno) -> CallError {
    let mut message = format!("`{}` cannot be read: {error}", escape(path.as_str()));
    if error == Errno::ACCESS {
        message.push_str("; change its permissions or remove it");
    }
    CallError::new(Code::Io, message)
}
