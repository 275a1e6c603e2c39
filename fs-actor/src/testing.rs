//! Test fixtures: temporary directories with a read view, races, and system call filters.
#![expect(
    clippy::disallowed_methods,
    reason = "the fixtures create files outside the roots"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, Verdict, VirtualPath};
use bailiwick_test_support::forbidden_calls::{OPENAT2, forbid};
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::read_view::{MountPoint, ReadView};
use crate::resolve::OpenDir;

/// Number of cases for property tests and races: `BAILIWICK_CASES`, else 20,000. A full run has 1,000,000.
pub(crate) fn cases() -> usize {
    let requested = std::env::var("BAILIWICK_CASES").ok();
    requested
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000)
}

/// Configuration of expensive property tests.
pub(crate) fn property_config() -> proptest::test_runner::Config {
    let cases = u32::try_from(cases() / 20).unwrap_or(u32::MAX);
    proptest::test_runner::Config::with_cases(cases.max(1))
}

pub(crate) fn path(text: &str) -> VirtualPath {
    VirtualPath::parse(text, None).unwrap()
}

/// A temporary directory with the roots `root` at `/r` and `second` at `/s`, and `outside` in no root.
pub(crate) struct World {
    temp: tempfile::TempDir,
    mounts: Vec<(VirtualPath, PathBuf, Dir)>,
    pub(crate) crosses_mounts: bool,
    pub(crate) denied: fn(&str) -> bool,
    pub(crate) max_bytes: u64,
    pub(crate) max_results: u64,
    /// Number of successful checkpoints before they fail.
    pub(crate) checkpoints_left: AtomicUsize,
}

impl World {
    /// Creates what the lines describe, relative to the temporary directory (`@` in a link target): `dir a/b`, `file
    /// a/b text`, `link a/b target`.
    pub(crate) fn new(lines: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        for name in ["root", "second", "outside"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        let mounts = [("/r", "root"), ("/s", "second")].map(|(mount, name)| {
            let host = base.join(name);
            let dir = Dir::open_ambient_dir(&host, ambient_authority()).unwrap();
            (path(mount), host, dir)
        });
        let world = Self {
            temp,
            mounts: mounts.into(),
            crosses_mounts: false,
            denied: |path| path.split('/').any(|name| name == "secrets"),
            max_bytes: 1 << 20,
            max_results: 1000,
            checkpoints_left: AtomicUsize::new(usize::MAX),
        };
        lines.iter().for_each(|line| world.make(line));
        world
    }

    /// Creates what one line describes.
    pub(crate) fn make(&self, line: &str) {
        let mut parts = line.splitn(3, ' ');
        let (kind, name) = (parts.next().unwrap(), self.host(parts.next().unwrap()));
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        let rest = parts.next().unwrap_or_default();
        match kind {
            "dir" => fs::create_dir_all(name).unwrap(),
            "file" => fs::write(name, rest).unwrap(),
            "link" => symlink(
                rest.replace('@', self.host("").to_str().unwrap().trim_end_matches('/')),
                name,
            )
            .unwrap(),
            kind => panic!("{kind}"),
        }
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        fs::write(self.host("").join(name), bytes).unwrap();
    }

    pub(crate) fn host(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn view(&self) -> TestView<'_> {
        TestView {
            world: self,
            moved: Vec::new(),
        }
    }

    /// Runs `work` like the pipeline: judges the target of a link, then runs it again.
    pub(crate) fn run<T>(
        &self,
        work: impl Fn(&TestView<'_>) -> Result<T, Interrupt>,
    ) -> Result<T, Code> {
        let mut view = self.view();
        for _ in 0..50 {
            match work(&view) {
                Err(interrupt) => view.handle_interrupt(interrupt)?,
                Ok(done) => return Ok(done),
            }
        }
        Err(Code::Conflict)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The standard library opens one descriptor per level to remove a tree, which may exhaust the limit.
        for (_, _, dir) in &self.mounts {
            let Ok(dir) = dir.try_clone() else { continue };
            // The rest is removed with the temporary directory.
            let _ = crate::replace::empty(OpenDir::new(dir.into(), false), usize::MAX);
        }
    }
}

/// The read view of a call in a [`World`].
pub(crate) struct TestView<'w> {
    world: &'w World,
    moved: Vec<(VirtualPath, VirtualPath)>,
}

impl TestView<'_> {
    fn handle_interrupt(&mut self, interrupt: Interrupt) -> Result<(), Code> {
        match interrupt {
            Interrupt::Moved { from, to } if self.judge(&to) == Verdict::Allow => {
                self.moved.retain(|(old, _)| *old != from);
                self.moved.push((from, to));
                Ok(())
            }
            Interrupt::Moved { from, .. } => Err(CallError::not_found(&from).code()),
            Interrupt::Failed(error) => Err(error.code()),
            Interrupt::Needs(_) | Interrupt::Protected(_) => Err(Code::ScopeRequired),
            Interrupt::All(interrupts) => interrupts
                .into_iter()
                .try_for_each(|interrupt| self.handle_interrupt(interrupt)),
        }
    }

    fn to_mount_point<'l>(
        &'l self,
        (path, _, dir): &'l (VirtualPath, PathBuf, Dir),
    ) -> MountPoint<'l> {
        MountPoint {
            path,
            dir,
            crosses_mounts: self.world.crosses_mounts,
        }
    }
}

impl ReadView for TestView<'_> {
    fn judge(&self, path: &VirtualPath) -> Verdict {
        let inside = self
            .world
            .mounts
            .iter()
            .any(|(mount, ..)| path.starts_with(mount));
        if !inside || (self.world.denied)(path.as_str()) {
            Verdict::Deny
        } else if path.as_str().contains("asked") {
            Verdict::Ask
        } else {
            Verdict::Allow
        }
    }

    fn actual<'p>(&'p self, requested: &'p VirtualPath) -> &'p VirtualPath {
        let found = self.moved.iter().find(|(from, _)| from == requested);
        found.map_or(requested, |(_, to)| to)
    }

    fn mount_point<'l, 'p>(&'l self, path: &'p VirtualPath) -> Option<(MountPoint<'l>, &'p str)> {
        let mut mounts = self.world.mounts.iter();
        mounts.find_map(|mount| Some((self.to_mount_point(mount), path.beneath(&mount.0)?)))
    }

    fn host_path_above(&self, mount: &VirtualPath, target: &str) -> Option<PathBuf> {
        let mut mounts = self.world.mounts.iter();
        let (_, host, _) = mounts.find(|(own, ..)| own == mount)?;
        let ups = target.split('/').take_while(|name| *name == "..").count();
        let rest: Vec<&str> = target.split('/').skip(ups).collect();
        Some(host.ancestors().nth(ups)?.join(rest.join("/")))
    }

    fn virtual_path(&self, target: &Path) -> Option<VirtualPath> {
        self.world.mounts.iter().find_map(|(mount, host, _)| {
            let rest = target.strip_prefix(host).ok()?.to_str()?;
            VirtualPath::parse(if rest.is_empty() { "." } else { rest }, Some(mount)).ok()
        })
    }

    fn checkpoint(&self) -> Result<(), CallError> {
        let less = |left: usize| left.checked_sub(1);
        let left =
            self.world
                .checkpoints_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        left.map(drop)
            .map_err(|_| CallError::new(Code::Cancelled, "the call was cancelled"))
    }

    fn max_bytes(&self) -> u64 {
        self.world.max_bytes
    }

    fn max_results(&self) -> u64 {
        self.world.max_results
    }

    fn entries<'v>(&'v self, dir: &VirtualPath) -> Box<dyn Fn(&str) -> bool + 'v> {
        let dir = dir.clone();
        Box::new(move |name| dir.join(name).is_ok_and(|path| self.shows(&path)))
    }

    fn strict_hardlinks(&self) -> bool {
        false
    }

    fn may_change_protected(&self, _: &VirtualPath) -> bool {
        false
    }
}

/// What the kernel returns for `openat2`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelMode {
    /// The real result.
    Native,
    /// `ENOSYS`.
    Missing,
    /// `EPERM`.
    Forbidden,
}

impl KernelMode {
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::Missing, Self::Forbidden];

    /// Runs `work` on a thread with this behaviour.
    pub(crate) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.filter();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// Applies the behaviour to this thread and its children.
    pub(crate) fn filter(self) {
        match self {
            Self::Native => {}
            Self::Missing => forbid(&[OPENAT2], Errno::NOSYS),
            Self::Forbidden => forbid(&[OPENAT2], Errno::PERM),
        }
    }
}

/// System call number of `fsync`.
pub(crate) const FSYNC: i64 = if cfg!(target_arch = "x86_64") { 74 } else { 82 };

/// Runs the test `name` in a child process with its own mounts and limits, after `prelude`. Returns true in that
/// process.
pub(crate) fn in_child(name: &str, prelude: &str) -> bool {
    if std::env::var_os("BAILIWICK_CHILD").is_some() {
        return true;
    }
    let script = format!("{prelude}\nexec \"$0\" --exact \"$1\" --nocapture --test-threads=1");
    let me = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new("unshare");
    child.args(["-m", "--propagation", "private", "sh", "-ec", &script]);
    let output = child
        .arg(me)
        .arg(name)
        .env("BAILIWICK_CHILD", "1")
        .output()
        .unwrap();
    let described = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && described.contains("1 passed"),
        "{described}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Configuration of property tests with [`cases`] cases.
pub(crate) fn full_property_config() -> proptest::test_runner::Config {
    proptest::test_runner::Config::with_cases(u32::try_from(cases()).unwrap())
}

/// Minimum number of reads during an exchange, and of reads that return the expected content.
const MIN_READS: usize = 8;
/// Time limit of a race.
const RACE_LIMIT: Duration = Duration::from_secs(60);

/// Keeps exchanging `pairs` while calling `read`, at least `tries` times and until there were exchanges during some
/// reads and some reads returned `in`. A read may fail, but must not return any other content.
#[track_caller]
pub(crate) fn race(
    world: &World,
    pairs: &[(&str, &str)],
    kernel: KernelMode,
    tries: usize,
    read: impl Fn() -> Result<String, Code> + Sync,
) {
    let (over, exchanges) = (AtomicBool::new(false), AtomicUsize::new(0));
    let raced = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for (one, other) in pairs {
                    let (one, other) = (world.host(one), world.host(other));
                    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                    exchanges.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let reads = scope.spawn(|| {
            let _over = SetOnDrop(&over);
            kernel.filter();
            let (began, mut raced) = (Instant::now(), RaceStats::default());
            while raced.reads < tries || !raced.is_conclusive() && began.elapsed() < RACE_LIMIT {
                let before = exchanges.load(Ordering::SeqCst);
                let got = read();
                // The first exchange may have ended before the read began.
                let during = exchanges.load(Ordering::SeqCst) > before + 1;
                raced.reads += 1;
                raced.exchanged += usize::from(during);
                match got.as_deref() {
                    Ok("in") => raced.inside += 1,
                    Ok(_) => raced.leaked += 1,
                    Err(_) => {}
                }
            }
            raced
        });
        reads.join().unwrap()
    });
    assert_eq!(raced.leaked, 0, "{kernel:?}: {raced:?}");
    assert!(
        raced.is_conclusive(),
        "{kernel:?}: the threads never met: {raced:?}"
    );
}

/// Statistics of a race.
#[derive(Debug, Default)]
struct RaceStats {
    reads: usize,
    /// Reads during which an exchange happened.
    exchanged: usize,
    /// Reads that returned `in`.
    inside: usize,
    /// Reads that returned the content of another file.
    leaked: usize,
}

impl RaceStats {
    fn is_conclusive(&self) -> bool {
        self.exchanged >= MIN_READS && self.inside >= MIN_READS
    }
}

/// Stops the other thread of a race, also after a panic.
pub(crate) struct SetOnDrop<'f>(pub(crate) &'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
