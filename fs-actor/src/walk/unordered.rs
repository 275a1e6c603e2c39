//! Walks a directory tree on several threads, in no particular order.
//!
//! A thread leaves some of the directories that it finds to the others. The number of these directories is bounded,
//! since each is open.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use parking_lot::{Condvar, Mutex};

use super::{Buffers, IgnoreRules, Subtree, SubtreeQueue, WalkControl, WalkEntry, WalkSkipped};
use crate::helper_threads::Helpers;
use crate::read_view::ReadView;
use crate::resolve::{AtPath as _, OpenDir};
use crate::sys::{SeekFrom, seek};

/// Number of directories that the first thread enters before it leaves any to others.
pub(super) const MIN_DIRECTORIES: usize = 16;
/// Number of directories that wait for a thread, beyond which no more are left to others.
const MAX_WAITING: usize = 6;

/// Visits everything beneath `top`, whose virtual path is `at`. `new` makes one value per thread, which `visit`
/// changes; returns all of them.
///
/// # Errors
/// `CANCELLED` or `DEADLINE`, and `INTERNAL` after a panic.
pub(crate) fn walk_unordered<T: Send>(
    view: &dyn ReadView,
    top: OpenDir,
    at: &VirtualPath,
    ignore_rules: Option<IgnoreRules>,
    new: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &WalkEntry<'_>) + Sync,
) -> Result<(Vec<T>, WalkSkipped), Interrupt> {
    let dir = Arc::new(top);
    let whole_tree = |ignore_rules| Subtree {
        dir: Arc::clone(&dir),
        path: at.clone(),
        depth: 0,
        ignore_rules,
    };
    let walk_in_order = |ignore_rules| {
        let mut value = new();
        let mut visit = |entry: &WalkEntry<'_>| {
            visit(&mut value, entry);
            Ok(WalkControl::Enter)
        };
        let walked = whole_tree(ignore_rules).walk(view, None, &mut Buffers::default(), &mut visit);
        walked.map(|skipped| (vec![value], skipped))
    };
    let helpers = Helpers::new();
    if !helpers.are_possible() {
        return walk_in_order(ignore_rules);
    }
    let unspent = ignore_rules.as_ref().map(IgnoreRules::separate);
    let tree = whole_tree(ignore_rules.clone());
    let walked = walk_on_threads(view, tree, helpers, &new, &visit)?;
    if ignore_rules.is_some_and(|rules| rules.is_exhausted()) {
        // Which ignore files were skipped depended on the threads. Another page of the result must agree with this one.
        seek(dir.as_fd(), SeekFrom::Start(0)).at(at)?;
        return walk_in_order(unspent);
    }
    Ok(walked)
}

fn walk_on_threads<T: Send>(
    view: &dyn ReadView,
    top: Subtree,
    helpers: Helpers,
    new: &(impl Fn() -> T + Sync),
    visit: &(impl Fn(&mut T, &WalkEntry<'_>) + Sync),
) -> Result<(Vec<T>, WalkSkipped), Interrupt> {
    let shared = Shared {
        view,
        new,
        visit,
        helpers,
        directories: AtomicUsize::new(0),
        waiting: AtomicUsize::new(1),
        state: Mutex::new(State {
            queue: VecDeque::from([top]),
            busy: 0,
            values: Vec::new(),
            skipped: WalkSkipped::default(),
            stopped: None,
        }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        Worker { shared, scope }.work();
    });
    let state = shared.state.into_inner();
    match state.stopped {
        Some(interrupt) => Err(interrupt),
        None => Ok((state.values, state.skipped)),
    }
}

/// What the threads share.
struct Shared<'v, T, N, V> {
    view: &'v dyn ReadView,
    new: &'v N,
    visit: &'v V,
    helpers: Helpers,
    /// Number of directories found so far.
    directories: AtomicUsize,
    /// Length of the queue.
    waiting: AtomicUsize,
    state: Mutex<State<T>>,
    /// Notified when a subtree was added, and when the walk ends.
    changed: Condvar,
}

struct State<T> {
    queue: VecDeque<Subtree>,
    /// Number of threads that walk a subtree.
    busy: usize,
    values: Vec<T>,
    skipped: WalkSkipped,
    stopped: Option<Interrupt>,
}

/// One of the threads.
struct Worker<'s, 'e, 'v, T, N, V> {
    shared: &'s Shared<'v, T, N, V>,
    scope: &'s Scope<'s, 'e>,
}

impl<T, N, V> Worker<'_, '_, '_, T, N, V>
where
    T: Send,
    N: Fn() -> T + Sync,
    V: Fn(&mut T, &WalkEntry<'_>) + Sync,
{
    /// Walks subtrees until all are visited or the walk was stopped.
    fn work(&self) {
        let mut value = (self.shared.new)();
        let mut buffers = Buffers::default();
        while let Some(subtree) = self.next() {
            let walk = || {
                // The call may have ended while the subtree waited.
                self.shared.view.checkpoint()?;
                subtree.walk(self.shared.view, Some(self), &mut buffers, &mut |entry| {
                    (self.shared.visit)(&mut value, entry);
                    Ok(WalkControl::Enter)
                })
            };
            // Without a result, the others would wait forever.
            let walked = catch_unwind(AssertUnwindSafe(walk)).unwrap_or_else(|_| {
                Err(CallError::new(Code::Internal, "the search failed").into())
            });
            self.end(walked);
        }
        self.shared.state.lock().values.push(value);
    }

    /// Waits for a subtree; `None` if the walk has ended.
    fn next(&self) -> Option<Subtree> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(subtree) = state.queue.pop_front() {
                self.shared
                    .waiting
                    .store(state.queue.len(), Ordering::Relaxed);
                state.busy += 1;
                return Some(subtree);
            }
            if state.busy == 0 {
                return None;
            }
            self.shared.changed.wait(&mut state);
        }
    }

    /// Adds the result of a subtree.
    fn end(&self, walked: Result<WalkSkipped, Interrupt>) {
        let mut state = self.shared.state.lock();
        state.busy -= 1;
        match walked {
            Ok(skipped) => state.skipped.directories += skipped.directories,
            Err(interrupt) => {
                state.stopped.get_or_insert(interrupt);
                state.queue.clear();
                // The others push further directories, which are dropped.
                self.shared.waiting.store(0, Ordering::Relaxed);
            }
        }
        if state.busy == 0 && state.queue.is_empty() {
            self.shared.changed.notify_all();
        }
    }
}

impl<T, N, V> SubtreeQueue for Worker<'_, '_, '_, T, N, V>
where
    T: Send,
    N: Fn() -> T + Sync,
    V: Fn(&mut T, &WalkEntry<'_>) + Sync,
{
    fn has_room(&self) -> bool {
        self.shared.directories.fetch_add(1, Ordering::Relaxed) >= MIN_DIRECTORIES
            && self.shared.waiting.load(Ordering::Relaxed) < MAX_WAITING
    }

    fn push(&self, subtree: Subtree) {
        let mut state = self.shared.state.lock();
        if state.stopped.is_some() {
            return;
        }
        state.queue.push_back(subtree);
        self.shared
            .waiting
            .store(state.queue.len(), Ordering::Relaxed);
        drop(state);
        self.shared.changed.notify_one();
        let (shared, scope) = (self.shared, self.scope);
        shared
            .helpers
            .start(scope, || move || Worker { shared, scope }.work());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::{KernelMode, World, path};
    use crate::walk::{start, walk};

    /// Path, depth and kind.
    type Entry = (String, usize, String);

    fn entry(found: &WalkEntry<'_>) -> Entry {
        let kind = format!("{:?}", found.kind());
        (found.path().to_string(), found.depth(), kind)
    }

    fn begin(
        view: &dyn ReadView,
        ignores: bool,
    ) -> Result<(OpenDir, VirtualPath, Option<IgnoreRules>), Interrupt> {
        let (dir, at) = start(view, &path("/r"))?;
        let rules = ignores.then(|| IgnoreRules::for_ancestors(view, &at));
        Ok((dir, at, rules))
    }

    fn unordered(
        view: &dyn ReadView,
        ignores: bool,
    ) -> Result<(Vec<Entry>, WalkSkipped), Interrupt> {
        let (dir, at, rules) = begin(view, ignores)?;
        let visit = |all: &mut Vec<_>, found: &WalkEntry<'_>| all.push(entry(found));
        let (all, skipped) = walk_unordered(view, dir, &at, rules, Vec::new, visit)?;
        Ok((all.concat(), skipped))
    }

    fn in_order(
        view: &dyn ReadView,
        ignores: bool,
    ) -> Result<(BTreeSet<Entry>, WalkSkipped), Interrupt> {
        let (dir, at, rules) = begin(view, ignores)?;
        let mut all = BTreeSet::new();
        let skipped = walk(view, dir, &at, rules, &mut |found| {
            all.insert(entry(found));
            Ok(WalkControl::Enter)
        })?;
        Ok((all, skipped))
    }

    #[test]
    fn every_entry_of_an_ordered_walk_is_visited_once() {
        let mut lines = vec![
            "file root/.gitignore *.o\nbuild/".to_owned(),
            "link root/l d01".to_owned(),
            "file root/secrets/f x".to_owned(),
            format!("dir root/deep/{}", ["d"; 300].join("/")),
        ];
        for n in 0..120 {
            let dir = format!("root/d{:02}/e{:02}", n % 12, n / 12);
            lines.push(format!("file {dir}/f{n} x"));
            lines.push(format!("file {dir}/f{n}.o x"));
            lines.push(format!("file {dir}/build/f x"));
            if n % 3 == 0 {
                lines.push(format!("file {dir}/.ignore !f{n}.o\nf{n}"));
            }
        }
        let world = World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (kernel, ignores) in KernelMode::ALL
            .into_iter()
            .flat_map(|k| [(k, true), (k, false)])
        {
            kernel.run(|| {
                let (expected, skipped) = world.run(|view| in_order(view, ignores)).unwrap();
                assert!(
                    expected.len() > 400 && skipped.directories == 1,
                    "{skipped:?}"
                );
                let (visited, also_skipped) = world.run(|view| unordered(view, ignores)).unwrap();
                assert_eq!(visited.len(), expected.len());
                assert_eq!(visited.into_iter().collect::<BTreeSet<_>>(), expected);
                assert_eq!(also_skipped, skipped);
            });
        }
    }

    fn directories(count: usize) -> World {
        let lines: Vec<String> = (0..count)
            .map(|n| format!("file root/d{n:03}/f x"))
            .collect();
        World::new(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Counts what is visited of 400 entries; panics at the visit of that number.
    fn count(world: &World, panic_at: usize) -> (Result<(), Code>, usize) {
        let visited = AtomicUsize::new(0);
        let walked = world.run(|view| {
            let (dir, at) = start(view, &path("/r"))?;
            let visit = |(): &mut (), _: &WalkEntry<'_>| {
                assert_ne!(visited.fetch_add(1, Ordering::SeqCst), panic_at);
            };
            walk_unordered(view, dir, &at, None, || (), visit).map(drop)
        });
        (walked, visited.into_inner())
    }

    #[test]
    fn unordered_walk_stops_with_the_call() {
        let mut world = directories(200);
        assert_eq!(count(&world, usize::MAX), (Ok(()), 400));
        world.checkpoints_left = 100.into();
        let (walked, visited) = count(&world, usize::MAX);
        assert_eq!(walked, Err(Code::Cancelled));
        // There is a checkpoint for each directory.
        assert!(visited < 300, "{visited}");
    }

    #[test]
    fn panic_during_an_unordered_walk_ends_it_with_an_error() {
        let world = directories(200);
        assert_eq!(count(&world, 1), (Err(Code::Internal), 2));
        // By then other threads may walk, too.
        assert_eq!(count(&world, 100).0, Err(Code::Internal));
    }

    /// Beyond the limit, which ignore files are heeded would depend on the threads.
    #[test]
    fn too_many_ignore_rules_give_the_result_of_an_ordered_walk() {
        let world = directories(100);
        let patterns: String = (0..1_000).map(|n| format!("x{n}*\n")).collect();
        for n in 0..100 {
            world.write(format!("root/d{n:03}/.gitignore"), &patterns);
            world.write(format!("root/d{n:03}/x{n}"), "x");
        }
        let ordered = world.run(|view| in_order(view, true)).unwrap().0;
        let ignored = 400 - ordered.len();
        assert!((1..100).contains(&ignored), "{ignored}");
        for _ in 0..5 {
            let (visited, _) = world.run(|view| unordered(view, true)).unwrap();
            assert_eq!(visited.into_iter().collect::<BTreeSet<_>>(), ordered);
        }
    }
}
