//! Confines the I/O threads to the roots with Landlock, as a second wall behind the checks of paths.

use std::borrow::Cow;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::thread;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
};
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::Serialize;

/// The version of Landlock that is needed: an older one forbids all moves between directories.
const LEAST: ABI = ABI::V2;
/// The newest version whose rights are used, as far as the kernel has them.
const NEWEST: ABI = ABI::V5;
/// What no root contains, so that a confined thread cannot open it.
const OUTSIDE: [&str; 2] = ["/", "/proc/self/status"];

/// Whether Landlock confines the threads that run file tools; see
/// [`RuntimeBuilder::confine_files`](crate::RuntimeBuilder::confine_files).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfineFiles {
    /// If the kernel can do it; otherwise, [`Status::layers`](super::Status::layers) says why it cannot.
    #[default]
    IfSupported,
    /// Always; otherwise, the runtime is not built.
    Required,
    /// Never.
    Never,
}

/// A mechanism of the operating system that confines what workers do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LayerStatus {
    /// What it confines, such as `file tools` or `commands`.
    pub confines: Cow<'static, str>,
    /// Its name, such as `Landlock`.
    pub name: Cow<'static, str>,
    /// Whether it is in force.
    pub state: LayerState,
}

impl LayerStatus {
    /// Describes a layer.
    #[must_use]
    pub fn new(
        confines: impl Into<Cow<'static, str>>,
        name: impl Into<Cow<'static, str>>,
        state: LayerState,
    ) -> Self {
        Self {
            confines: confines.into(),
            name: name.into(),
            state,
        }
    }
}

/// What a test found about a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::exhaustive_enums,
    reason = "a layer is in force, missing, without effect, or was not tested"
)]
pub enum LayerState {
    /// It stopped all attacks of the test.
    Enforced,
    /// It is missing on this machine, for this reason.
    Missing(String),
    /// It is there, but the test could do this.
    Broken(String),
    /// It was not tested.
    NotTested,
}

/// The rules for the I/O threads, and whether they are in force.
pub(crate) struct Confinement {
    rules: Option<RulesetCreated>,
    required: bool,
    state: Mutex<LayerState>,
}

impl fmt::Debug for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().clone();
        f.debug_tuple("Confinement").field(&state).finish()
    }
}

/// A directory, and whether it may be changed.
pub(crate) type Open<'r> = (BorrowedFd<'r>, bool);

impl Confinement {
    /// Makes the rules, and tests them on a thread of its own.
    ///
    /// # Errors
    /// The reason why they cannot be enforced, if they are required.
    pub(crate) fn new(mode: ConfineFiles, roots: &[Open<'_>]) -> Result<Self, String> {
        let required = mode == ConfineFiles::Required;
        let tested = match mode {
            ConfineFiles::Never => Err(LayerState::Missing("it is turned off".to_owned())),
            ConfineFiles::IfSupported | ConfineFiles::Required => tested(roots),
        };
        let (rules, state) = match tested {
            Ok(rules) => (Some(rules), LayerState::Enforced),
            Err(LayerState::Missing(reason) | LayerState::Broken(reason)) if required => {
                return Err(reason);
            }
            Err(state) => (None, state),
        };
        Ok(Self {
            rules,
            required,
            state: Mutex::new(state),
        })
    }

    /// Confines the current thread, and all threads and processes that it starts. Returns whether it may run file tools.
    pub(crate) fn enter(&self) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        match confine(rules).and_then(|()| probe()) {
            Ok(()) => true,
            Err(state) => {
                tracing::error!(?state, "an I/O thread is not confined");
                *self.state.lock() = state;
                !self.required
            }
        }
    }

    /// What is reported about it.
    pub(crate) fn status(&self) -> LayerStatus {
        let state = self.state.lock().clone();
        LayerStatus::new("file tools", "Landlock", state)
    }
}

/// The rules, if a thread that they confine can open the roots, and nothing outside them.
fn tested(roots: &[Open<'_>]) -> Result<RulesetCreated, LayerState> {
    let missing = |error: &dyn fmt::Display| LayerState::Missing(error.to_string());
    let rules = rules(roots).map_err(|error| missing(&error))?;
    let test = || {
        let before: Vec<bool> = roots.iter().map(|root| can_list(root.0)).collect();
        confine(&rules)?;
        probe()?;
        let after = roots.iter().map(|root| can_list(root.0));
        if before
            .iter()
            .zip(after)
            .all(|(before, after)| *before == after)
        {
            Ok(())
        } else {
            Err(LayerState::Missing("it would forbid a root".to_owned()))
        }
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("bailiwick-test".to_owned());
        let test = thread.spawn_scoped(scope, test);
        let test = test.map_err(|error| missing(&error))?;
        let failed = |_| LayerState::Broken("end its test".to_owned());
        test.join().map_err(failed)?
    })?;
    Ok(rules)
}

fn rules(roots: &[Open<'_>]) -> Result<RulesetCreated, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .create()?;
    roots.iter().try_fold(rules, |rules, (root, writable)| {
        rules.add_rule(PathBeneath::new(root, rights(*writable)))
    })
}

/// The rights in a root. No file tool runs anything.
fn rights(writable: bool) -> BitFlags<AccessFs> {
    let all = if writable {
        AccessFs::from_all(NEWEST)
    } else {
        AccessFs::from_read(NEWEST)
    };
    all & !AccessFs::Execute
}

/// Confines the current thread.
fn confine(rules: &RulesetCreated) -> Result<(), LayerState> {
    let missing = |error: &dyn fmt::Display| LayerState::Missing(error.to_string());
    let rules = rules.try_clone().map_err(|error| missing(&error))?;
    let confined = rules.restrict_self();
    confined.map(drop).map_err(|error| missing(&error))
}

/// Tries to open what is outside all roots.
fn probe() -> Result<(), LayerState> {
    for path in OUTSIDE {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {}
            // The machine has no `/proc`.
            Err(Errno::NOENT) => {}
            Ok(_) | Err(_) => return Err(LayerState::Broken(format!("open `{path}`"))),
        }
    }
    Ok(())
}

fn can_list(directory: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::empty()).is_ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests create directories")]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, linkat, mkdirat, renameat, unlinkat};
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::path::Path;

    impl Confinement {
        /// Required rules that forbid nothing, so that no thread may run file tools.
        pub(crate) fn without_effect() -> Self {
            Self {
                rules: Some(rules(&[(open(Path::new("/")).as_fd(), true)]).unwrap()),
                required: true,
                state: Mutex::new(LayerState::NotTested),
            }
        }
    }

    fn open(path: &Path) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).unwrap()
    }

    fn create(folder: &OwnedFd, name: &str) -> Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map(drop)
    }

    /// A directory that may be changed, one that may not, and one outside, with a confined thread that works in them.
    fn confined<T: Send>(work: impl FnOnce([&OwnedFd; 3]) -> T + Send) -> T {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        for folder in &folders {
            std::fs::write(folder.path().join("old"), "text").unwrap();
            std::fs::create_dir(folder.path().join("inner")).unwrap();
        }
        let [changed, read, outside] = folders.each_ref().map(|folder| open(folder.path()));
        let roots = [(changed.as_fd(), true), (read.as_fd(), false)];
        let confinement = Confinement::new(ConfineFiles::Required, &roots).unwrap();
        assert_eq!(confinement.status().state, LayerState::Enforced);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                assert!(confinement.enter());
                work([&changed, &read, &outside])
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn confined_thread_cannot_open_a_file_outside_the_roots() {
        let read =
            |folder: &OwnedFd| openat(folder, "old", OFlags::RDONLY, Mode::empty()).map(drop);
        confined(|[changed, other, outside]| {
            assert_eq!(read(changed), Ok(()));
            assert_eq!(read(other), Ok(()));
            assert_eq!(read(outside), Err(Errno::ACCESS));
            assert_eq!(create(changed, "new"), Ok(()));
            assert_eq!(create(other, "new"), Err(Errno::ACCESS));
            assert_eq!(create(outside, "new"), Err(Errno::ACCESS));
            let remove = |folder| unlinkat(folder, "old", AtFlags::empty());
            assert_eq!(remove(other), Err(Errno::ACCESS));
            assert_eq!(remove(outside), Err(Errno::ACCESS));
            assert_eq!(remove(changed), Ok(()));
        });
    }

    #[test]
    fn confined_thread_can_do_what_file_tools_do() {
        confined(|[changed, ..]| {
            mkdirat(changed, "made", Mode::RWXU).unwrap();
            create(changed, "made/a").unwrap();
            renameat(changed, "made/a", changed, "inner/b").unwrap();
            renameat(changed, "made", changed, "inner/made").unwrap();
            linkat(changed, "inner/b", changed, "c", AtFlags::empty()).unwrap();
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            match openat(changed, ".", flags, Mode::RUSR) {
                Ok(_) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }

    #[test]
    fn child_of_a_confined_thread_is_confined() {
        confined(|[_, _, outside]| {
            let outside = outside.as_fd();
            let open = || openat(outside, "old", OFlags::RDONLY, Mode::empty()).map(drop);
            let child = thread::scope(|scope| scope.spawn(open).join().unwrap());
            assert_eq!(child, Err(Errno::ACCESS));
            let run = std::process::Command::new("/bin/true").status();
            assert!(run.is_err());
        });
        std::process::Command::new("/bin/true").status().unwrap();
    }

    #[test]
    fn confinement_that_is_turned_off_is_reported() {
        let off = Confinement::new(ConfineFiles::Never, &[]).unwrap();
        assert!(off.enter());
        let state = off.status().state;
        assert_eq!(state, LayerState::Missing("it is turned off".to_owned()));
    }
}
