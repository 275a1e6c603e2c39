//! Searches many files on a few threads and returns their results in the order in which they were added.
//!
//! The files of a batch are in one directory, so a batch needs one descriptor. The number of batches that were not
//! returned yet is bounded. The caller searches as well.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::Scope;

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use parking_lot::{Condvar, Mutex};

use super::{Search, SearchResult, Skipped};
use crate::helper_threads::Helpers;
use crate::read_view::ReadView;
use crate::resolve::{self, OpenDir};

/// Maximum number of files in a batch.
const BATCH_FILES: usize = 32;
/// Maximum number of batches that are searched or wait to be searched or returned.
const MAX_BATCHES: usize = 16;
/// Number of waiting batches at which helpers are started.
const MIN_BATCHES: usize = 4;

/// Which matches of each file are collected; see [`Search::file`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchRange {
    pub(crate) skip: u64,
    pub(crate) max_matches: u64,
}

/// Files of one directory.
struct Batch {
    dir: Arc<OpenDir>,
    path: VirtualPath,
    names: Vec<Box<str>>,
}

/// The result for one file.
pub(crate) type FileResult = (VirtualPath, Result<SearchResult, Skipped>);

/// The result for a batch.
#[derive(Default)]
struct BatchResult {
    /// Number of files that were opened.
    searched: u64,
    /// Files with matches, and files that were skipped.
    files: Vec<FileResult>,
    stopped: Option<Interrupt>,
}

impl BatchResult {
    fn failed() -> Self {
        let error = CallError::new(Code::Internal, "the search failed");
        Self {
            stopped: Some(error.into()),
            ..Self::default()
        }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<(usize, Batch)>,
    done: BTreeMap<usize, BatchResult>,
    closed: bool,
}

/// State that the threads share.
struct Shared<'v> {
    view: &'v dyn ReadView,
    range: MatchRange,
    state: Mutex<State>,
    /// Notified when a batch was added or the search ended.
    added: Condvar,
    /// Notified when a batch was searched.
    searched: Condvar,
}

impl Shared<'_> {
    /// Searches batches until the search ends.
    fn work(&self, search: &mut Search) {
        let mut state = self.state.lock();
        loop {
            if let Some((number, batch)) = state.queue.pop_front() {
                drop(state);
                // Without a result, the caller would wait forever.
                let result = catch_unwind(AssertUnwindSafe(|| self.search(search, &batch)));
                state = self.state.lock();
                let result = result.unwrap_or_else(|_| BatchResult::failed());
                state.done.insert(number, result);
                self.searched.notify_one();
            } else if state.closed {
                return;
            } else {
                self.added.wait(&mut state);
            }
        }
    }

    fn search(&self, search: &mut Search, batch: &Batch) -> BatchResult {
        let mut result = BatchResult::default();
        for name in &batch.names {
            let Ok(path) = batch.path.join(name) else {
                continue;
            };
            let opened = batch.dir.read_listed(name).ok();
            let opened = opened
                .filter(|opened| resolve::check_hard_links(self.view, &path, &opened.meta).is_ok());
            let Some(opened) = opened else {
                result.files.push((path, Err(Skipped::Unreadable)));
                continue;
            };
            result.searched += 1;
            let MatchRange { skip, max_matches } = self.range;
            match search.file(self.view, opened, skip, max_matches) {
                Ok(Ok(found)) if found.matches == 0 => {}
                Ok(found) => result.files.push((path, found)),
                Err(interrupt) => {
                    result.stopped = Some(interrupt);
                    break;
                }
            }
        }
        result
    }
}

/// Ends the other threads when it is dropped, also after a panic.
struct CloseOnDrop<'s, 'v>(&'s Shared<'v>);

impl Drop for CloseOnDrop<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.queue.clear();
        state.closed = true;
        drop(state);
        self.0.added.notify_all();
    }
}

/// A search in progress.
pub(crate) struct OrderedSearch<'s, 'e, 'v, 'a> {
    shared: &'s Shared<'v>,
    scope: &'s Scope<'s, 'e>,
    search: &'a mut Search,
    /// Batch that is being filled.
    batch: Option<Batch>,
    /// Numbers of the next batch to submit, and of the next one to return.
    next: usize,
    returned: usize,
    helpers: Helpers,
    /// Takes the result of a file, and the number of files searched since the last one; false ends the search.
    take: &'a mut dyn FnMut(u64, Option<FileResult>) -> bool,
    ended: bool,
}

/// Searches the files that `walk` adds, and passes the results to `take`: the number of files searched since the last
/// result, and the result of a file. If `take` returns false, the search ends.
///
/// # Errors
/// Errors of `walk`, `CANCELLED` or `DEADLINE`.
pub(crate) fn search_ordered(
    view: &dyn ReadView,
    search: &mut Search,
    range: MatchRange,
    take: &mut dyn FnMut(u64, Option<FileResult>) -> bool,
    walk: impl FnOnce(&mut OrderedSearch<'_, '_, '_, '_>) -> Result<(), Interrupt>,
) -> Result<(), Interrupt> {
    let shared = Shared {
        view,
        range,
        state: Mutex::default(),
        added: Condvar::new(),
        searched: Condvar::new(),
    };
    std::thread::scope(|scope| {
        let _close = CloseOnDrop(&shared);
        let mut ordered = OrderedSearch {
            shared: &shared,
            scope,
            search,
            batch: None,
            next: 0,
            returned: 0,
            helpers: Helpers::new(),
            take,
            ended: false,
        };
        walk(&mut ordered)?;
        ordered.submit();
        while !ordered.ended && ordered.returned < ordered.next {
            ordered.advance()?;
        }
        Ok(())
    })
}

impl OrderedSearch<'_, '_, '_, '_> {
    /// Adds the file `name` in `dir`, whose path is `path`. Returns false once the search has ended.
    pub(crate) fn add(
        &mut self,
        dir: &Arc<OpenDir>,
        path: &VirtualPath,
        name: &str,
    ) -> Result<bool, Interrupt> {
        let fits = |batch: &Batch| Arc::ptr_eq(&batch.dir, dir) && batch.names.len() < BATCH_FILES;
        if !self.batch.as_ref().is_some_and(fits) {
            self.submit();
            while !self.ended && self.next - self.returned >= MAX_BATCHES {
                self.advance()?;
            }
        }
        let batch = self.batch.get_or_insert_with(|| Batch {
            dir: Arc::clone(dir),
            path: path.clone(),
            names: Vec::with_capacity(BATCH_FILES),
        });
        batch.names.push(name.into());
        Ok(!self.ended)
    }

    fn submit(&mut self) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        let mut state = self.shared.state.lock();
        state.queue.push_back((self.next, batch));
        let waiting = state.queue.len();
        drop(state);
        self.next += 1;
        self.shared.added.notify_one();
        if waiting >= MIN_BATCHES {
            self.helpers.start(self.scope, || {
                let (shared, mut search) = (self.shared, self.search.clone());
                move || shared.work(&mut search)
            });
        }
    }

    /// Searches a batch, or waits until another thread has searched one, and returns the results that are next.
    fn advance(&mut self) -> Result<(), Interrupt> {
        let mut state = self.shared.state.lock();
        if !state.done.contains_key(&self.returned) {
            if let Some((number, batch)) = state.queue.pop_front() {
                drop(state);
                let result = self.shared.search(self.search, &batch);
                state = self.shared.state.lock();
                state.done.insert(number, result);
            } else {
                self.shared.searched.wait(&mut state);
            }
        }
        let mut ready = Vec::new();
        while let Some(result) = state.done.remove(&(self.returned + ready.len())) {
            ready.push(result);
        }
        drop(state);
        for result in ready {
            self.returned += 1;
            let mut searched = result.searched;
            for file in result.files {
                if !(self.take)(std::mem::take(&mut searched), Some(file)) {
                    self.ended = true;
                    return Ok(());
                }
            }
            (self.take)(searched, None);
            if let Some(interrupt) = result.stopped {
                return Err(interrupt);
            }
        }
        Ok(())
    }
}
