//! Thread pool for jobs that may block. Threads that hang in the kernel are replaced, up to a maximum.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::Confinement;
use crate::path::VirtualPath;

/// Size of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolSize {
    /// Threads in normal operation.
    pub(crate) threads: usize,
    /// Maximum number of threads while some hang in the kernel.
    pub(crate) hard_cap: usize,
    /// Jobs that may wait for a thread.
    pub(crate) queue: usize,
    /// Threads that jobs on one root may hold.
    pub(crate) per_root: usize,
    /// Threads that jobs of one worker may hold.
    pub(crate) per_worker: usize,
}

/// A submitted job, which can be abandoned.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<JobState>,
    /// The worker's number of lost threads, which includes the thread of this job while it is lost.
    lost: Arc<AtomicU32>,
}

/// State of a job; it changes only under the lock of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    Queued,
    Running,
    /// Abandoned while it ran.
    Lost,
    /// Abandoned before it ran.
    Skipped,
    Ended,
}

/// The pool accepts no more jobs for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

type Work = Box<dyn FnOnce() + Send>;

struct Queued {
    work: Work,
    ticket: Arc<Ticket>,
    root: Option<VirtualPath>,
}

/// A job that runs.
struct Busy {
    ticket: Arc<Ticket>,
    root: Option<VirtualPath>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// What the threads are busy with.
    busy: Vec<Busy>,
    threads: usize,
    idle: usize,
    lost: usize,
    closed: bool,
}

impl Ticket {
    /// Whether the jobs are of the same worker.
    fn is_of_worker(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.lost, &other.lost)
    }
}

impl State {
    /// How many threads are busy with jobs of the worker of this job.
    fn busy_for(&self, ticket: &Ticket) -> usize {
        let busy = self.busy.iter();
        busy.filter(|busy| busy.ticket.is_of_worker(ticket)).count()
    }
}

/// Abandons a job on drop, unless it has ended.
struct AbandonOnDrop<'p> {
    pool: &'p Arc<Pool>,
    ticket: Arc<Ticket>,
    ended: bool,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.pool.abandon(&self.ticket);
        }
    }
}

/// Bounded pool of threads that may block.
pub(crate) struct Pool {
    name: &'static str,
    size: PoolSize,
    /// Confines each thread before its first job.
    confinement: Option<Arc<Confinement>>,
    state: Mutex<State>,
    ready: Condvar,
}

impl Pool {
    pub(crate) fn new(name: &'static str, size: PoolSize) -> Arc<Self> {
        Self::with(name, size, None)
    }

    /// A pool whose threads are confined.
    pub(crate) fn confined(
        name: &'static str,
        size: PoolSize,
        confinement: &Arc<Confinement>,
    ) -> Arc<Self> {
        Self::with(name, size, Some(Arc::clone(confinement)))
    }

    fn with(
        name: &'static str,
        size: PoolSize,
        confinement: Option<Arc<Confinement>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            size,
            confinement,
            state: Mutex::default(),
            ready: Condvar::new(),
        })
    }

    /// The threads in normal operation, and the jobs that may wait for one.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (self.size.threads, self.size.queue)
    }

    /// Queues `work`, which holds one of the threads for `root` and one of those for the worker whose lost threads `lost`
    /// counts.
    pub(crate) fn submit(
        self: &Arc<Self>,
        root: Option<VirtualPath>,
        lost: &Arc<AtomicU32>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<Ticket>, Full> {
        let ticket = Arc::new(Ticket {
            state: Mutex::new(JobState::Queued),
            lost: Arc::clone(lost),
        });
        let mut state = self.state.lock();
        if state.closed || state.queue.len() >= self.size.queue {
            return Err(Full);
        }
        state.queue.push_back(Queued {
            work: Box::new(work),
            ticket: Arc::clone(&ticket),
            root,
        });
        self.grow(&mut state)?;
        self.wake_for_next(&state);
        Ok(ticket)
    }

    /// Runs `work` and waits for its result; `None` if the pool is full, no thread may run jobs, or `work` panics. If this
    /// future is dropped before its end, the job is abandoned.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        lost: &Arc<AtomicU32>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (port, answer) = oneshot::channel();
        // The receiver may have been dropped.
        let run = move || drop(port.send(work()));
        let mut guard = AbandonOnDrop {
            pool: self,
            ticket: self.submit(None, lost, run).ok()?,
            ended: false,
        };
        let answer = answer.await;
        guard.ended = true;
        answer.ok()
    }

    /// Abandons a job. A job that has not begun never runs; if the job hangs, its thread is replaced. Returns whether
    /// the job never runs.
    pub(crate) fn abandon(self: &Arc<Self>, ticket: &Ticket) -> bool {
        let mut state = self.state.lock();
        let mut job = ticket.state.lock();
        match *job {
            JobState::Queued => {
                *job = JobState::Skipped;
                drop(job);
                let mut jobs = state.queue.iter();
                let skipped = jobs.position(|job| std::ptr::eq(&*job.ticket, ticket));
                let skipped = skipped.and_then(|index| state.queue.remove(index));
                // The job is dropped outside the lock, so that its resources are released at once.
                drop(state);
                drop(skipped);
                true
            }
            JobState::Running => {
                *job = JobState::Lost;
                state.lost += 1;
                ticket.lost.fetch_add(1, Ordering::AcqRel);
                // If the cap is reached, jobs wait until their deadlines.
                let _ = self.grow(&mut state);
                false
            }
            JobState::Lost | JobState::Skipped | JobState::Ended => false,
        }
    }

    /// Lets idle threads end; jobs in the queue are still run.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
    }

    /// How many jobs wait for a thread.
    pub(crate) fn queued(&self) -> usize {
        self.state.lock().queue.len()
    }

    #[cfg(test)]
    fn threads(&self) -> usize {
        self.state.lock().threads
    }

    fn allowed(&self, state: &State) -> usize {
        (self.size.threads + state.lost).min(self.size.hard_cap)
    }

    /// Starts a thread if a job waits for one and the cap allows it.
    fn grow(self: &Arc<Self>, state: &mut State) -> Result<(), Full> {
        if state.threads >= self.allowed(state) {
            return Ok(());
        }
        let startable = state.queue.iter().filter(|job| self.may_start(state, job));
        if startable.take(state.idle + 1).count() <= state.idle {
            return Ok(());
        }
        let pool = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("bailiwick-{}", self.name))
            .spawn(move || pool.work());
        match started {
            Ok(_) => state.threads += 1,
            // Without a thread the job would never run.
            Err(_) if state.threads == 0 => {
                state.queue.pop_back();
                return Err(Full);
            }
            Err(_) => {}
        }
        Ok(())
    }

    fn work(self: &Arc<Self>) {
        let confinement = self.confinement.as_ref();
        let may_work = confinement.is_none_or(|confinement| confinement.enter());
        let mut state = self.state.lock();
        if !may_work {
            // The next job that is submitted starts another thread. Without a thread, those in the queue would never run.
            state.threads -= 1;
            if state.threads == 0 {
                let never_run = std::mem::take(&mut state.queue);
                // The jobs are dropped outside the lock, so that their callers are notified and their resources released.
                drop(state);
                drop(never_run);
            }
            return;
        }
        loop {
            if let Some(job) = self.take(&mut state) {
                // The job that ended before may have blocked several. If no thread can be started, they wait longer.
                let _ = self.grow(&mut state);
                self.wake_for_next(&state);
                drop(state);
                let (work, ticket) = job;
                // The job itself converts a panic into an error; the thread must continue.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                state = self.state.lock();
                self.ended(&mut state, &ticket);
            } else if state.closed || state.threads > self.allowed(&state) {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                self.ready.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    /// Whether the root and the worker of a job have a free thread.
    fn may_start(&self, state: &State, job: &Queued) -> bool {
        let on_root = |busy: &&Busy| job.root.is_some() && busy.root == job.root;
        state.busy.iter().filter(on_root).count() < self.size.per_root
            && state.busy_for(&job.ticket) < self.size.per_worker
    }

    /// The index of the first job that may start.
    fn next(&self, state: &State) -> Option<usize> {
        let mut jobs = state.queue.iter();
        jobs.position(|job| self.may_start(state, job))
    }

    /// Wakes an idle thread if there is a job for it. A thread that ends a job takes the next one itself.
    fn wake_for_next(&self, state: &State) {
        if state.idle > 0 && self.next(state).is_some() {
            self.ready.notify_one();
        }
    }

    fn take(&self, state: &mut State) -> Option<(Work, Arc<Ticket>)> {
        let Queued { work, ticket, root } = state.queue.remove(self.next(state)?)?;
        *ticket.state.lock() = JobState::Running;
        state.busy.push(Busy {
            ticket: Arc::clone(&ticket),
            root,
        });
        Some((work, ticket))
    }

    fn ended(&self, state: &mut State, ticket: &Arc<Ticket>) {
        let before = std::mem::replace(&mut *ticket.state.lock(), JobState::Ended);
        if before == JobState::Lost {
            state.lost -= 1;
            ticket.lost.fetch_sub(1, Ordering::AcqRel);
        }
        let had_all = state.busy_for(ticket) >= self.size.per_worker;
        state.busy.retain(|busy| !Arc::ptr_eq(&busy.ticket, ticket));
        // A job that waited for others of its worker comes after the jobs that waited for a thread.
        let mut queue = state.queue.iter();
        if had_all
            && let Some(index) = queue.position(|job| job.ticket.is_of_worker(ticket))
            && let Some(job) = state.queue.remove(index)
        {
            state.queue.push_back(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::ConfineFiles;
    use std::sync::mpsc;
    use std::time::Duration;

    const SMALL: PoolSize = PoolSize {
        threads: 2,
        hard_cap: 4,
        queue: 8,
        per_root: 1,
        per_worker: 4,
    };
    const SOON: Duration = Duration::from_secs(10);

    /// A job that reports its start and then blocks its thread until released.
    type Hung = (Arc<Ticket>, mpsc::Receiver<()>, mpsc::Sender<()>);

    fn hang(pool: &Arc<Pool>, root: Option<&str>) -> Hung {
        hang_of(pool, root, &Arc::default())
    }

    fn hang_of(pool: &Arc<Pool>, root: Option<&str>, worker: &Arc<AtomicU32>) -> Hung {
        let (began, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let root = root.map(|text| VirtualPath::parse(text, None).unwrap());
        let work = move || {
            began.send(()).unwrap();
            let _ = released.recv();
        };
        (pool.submit(root, worker, work).unwrap(), has_begun, release)
    }

    #[test]
    fn full_queue_rejects_jobs_at_once() {
        let pool = Pool::new("test", SMALL);
        let hung: Vec<_> = (0..2).map(|_| hang(&pool, None)).collect();
        hung.iter()
            .for_each(|(_, begun, _)| begun.recv_timeout(SOON).unwrap());
        let waiting: Vec<_> = (0..SMALL.queue)
            .map(|_| pool.submit(None, &Arc::default(), || {}).unwrap())
            .collect();
        assert_eq!(pool.submit(None, &Arc::default(), || {}).unwrap_err(), Full);
        drop((hung, waiting));
    }

    #[test]
    fn lost_threads_are_replaced_up_to_the_hard_cap() {
        let pool = Pool::new("test", SMALL);
        let hung: Vec<_> = (0..2).map(|_| hang(&pool, None)).collect();
        hung.iter()
            .for_each(|(_, begun, _)| begun.recv_timeout(SOON).unwrap());
        let (done, is_done) = mpsc::channel();
        pool.submit(None, &Arc::default(), move || done.send(()).unwrap())
            .unwrap();
        assert!(!hung.iter().any(|(ticket, ..)| pool.abandon(ticket)));
        is_done.recv_timeout(SOON).unwrap();
        assert!(pool.threads() <= SMALL.hard_cap);
    }

    #[test]
    fn thread_whose_abandoned_job_ends_is_no_longer_lost() {
        let size = PoolSize {
            threads: 1,
            hard_cap: 1,
            ..SMALL
        };
        let pool = Pool::new("test", size);
        let (hung, begun, release) = hang(&pool, None);
        begun.recv_timeout(SOON).unwrap();
        pool.abandon(&hung);
        assert_eq!(hung.lost.load(Ordering::Acquire), 1);
        drop(release);
        let (done, is_done) = mpsc::channel();
        pool.submit(None, &Arc::default(), move || done.send(()).unwrap())
            .unwrap();
        is_done.recv_timeout(SOON).unwrap();
        assert_eq!(hung.lost.load(Ordering::Acquire), 0);
    }

    #[test]
    fn hung_root_leaves_threads_for_other_roots() {
        let pool = Pool::new("test", SMALL);
        let first = hang(&pool, Some("/hung"));
        first.1.recv_timeout(SOON).unwrap();
        let second = hang(&pool, Some("/hung"));
        let other = hang(&pool, Some("/fine"));
        other.1.recv_timeout(SOON).unwrap();
        assert!(second.1.try_recv().is_err());
        drop(first.2);
        second.1.recv_timeout(SOON).unwrap();
        drop((second, other));
    }

    #[test]
    fn worker_with_too_many_jobs_leaves_threads_for_others() {
        let size = PoolSize {
            threads: 3,
            per_worker: 1,
            ..SMALL
        };
        let pool = Pool::new("test", size);
        let (one, (ran, has_run)) = (Arc::default(), mpsc::channel());
        let (_, begun, release) = hang_of(&pool, None, &one);
        begun.recv_timeout(SOON).unwrap();
        for (worker, name) in [(&one, "same"), (&Arc::default(), "other")] {
            let ran = ran.clone();
            let work = move || ran.send(name).unwrap();
            pool.submit(None, worker, work).unwrap();
        }
        assert_eq!(has_run.recv_timeout(SOON), Ok("other"));
        assert_eq!(has_run.try_recv(), Err(mpsc::TryRecvError::Empty));
        assert!(
            pool.threads() <= 2,
            "no thread is started for a job that must wait"
        );
        drop(release);
        assert_eq!(has_run.recv_timeout(SOON), Ok("same"));
    }

    #[test]
    fn job_that_waited_for_its_worker_comes_after_jobs_of_others() {
        let size = PoolSize {
            per_worker: 1,
            ..SMALL
        };
        let pool = Pool::new("test", size);
        let workers = [Arc::default(), Arc::default()];
        let hung = workers
            .each_ref()
            .map(|worker| hang_of(&pool, None, worker));
        hung.iter()
            .for_each(|(_, begun, _)| begun.recv_timeout(SOON).unwrap());
        let (ran, has_run) = mpsc::channel();
        for (worker, name) in [(&workers[0], "second"), (&Arc::default(), "first")] {
            let ran = ran.clone();
            let work = move || ran.send(name).unwrap();
            pool.submit(None, worker, work).unwrap();
        }
        let [(.., release), _other] = hung;
        drop(release);
        assert_eq!(has_run.recv_timeout(SOON), Ok("first"));
        assert_eq!(has_run.recv_timeout(SOON), Ok("second"));
    }

    #[test]
    fn end_of_a_job_may_start_several() {
        let size = PoolSize {
            per_worker: 1,
            ..SMALL
        };
        let pool = Pool::new("test", size);
        let (one, other) = (Arc::default(), Arc::default());
        let first = hang_of(&pool, Some("/a"), &one);
        first.1.recv_timeout(SOON).unwrap();
        // One waits for the root, and one for the worker.
        let second = hang_of(&pool, Some("/a"), &other);
        let third = hang_of(&pool, Some("/b"), &one);
        assert_eq!(pool.threads(), 1);
        drop(first.2);
        second.1.recv_timeout(SOON).unwrap();
        third.1.recv_timeout(SOON).unwrap();
    }

    async fn poll_once<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn dropping_the_run_future_abandons_its_job() {
        let size = PoolSize {
            threads: 1,
            hard_cap: 1,
            ..SMALL
        };
        let pool = Pool::new("test", size);
        let lost = Arc::<AtomicU32>::default();
        let (began, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let hangs = move || {
            began.send(()).unwrap();
            let _ = released.recv();
        };
        let mut running = Box::pin(pool.run(&lost, hangs));
        assert!(poll_once(running.as_mut()).await.is_none());
        has_begun.recv_timeout(SOON).unwrap();
        let (ran, has_run) = mpsc::channel();
        let queued_ran = ran.clone();
        let mut queued = Box::pin(pool.run(&lost, move || queued_ran.send("queued")));
        assert!(poll_once(queued.as_mut()).await.is_none());
        drop((running, queued));
        assert_eq!((lost.load(Ordering::Acquire), pool.queued()), (1, 0));
        drop(release);
        assert!(pool.run(&lost, move || ran.send("next")).await.is_some());
        assert_eq!(has_run.recv_timeout(SOON), Ok("next"));
        assert_eq!(lost.load(Ordering::Acquire), 0);
    }

    #[test]
    fn abandoned_queued_job_never_runs() {
        let pool = Pool::new(
            "test",
            PoolSize {
                threads: 1,
                ..SMALL
            },
        );
        let hung = hang(&pool, None);
        hung.1.recv_timeout(SOON).unwrap();
        let (ran, has_run) = mpsc::channel();
        let ticket = pool
            .submit(None, &Arc::default(), {
                let ran = ran.clone();
                move || ran.send("abandoned").unwrap()
            })
            .unwrap();
        pool.submit(None, &Arc::default(), move || ran.send("kept").unwrap())
            .unwrap();
        assert!(pool.abandon(&ticket));
        drop(hung.2);
        assert_eq!(has_run.recv_timeout(SOON).unwrap(), "kept");
    }

    #[tokio::test]
    async fn job_ends_without_a_result_if_no_thread_may_run_it() {
        let lost = Arc::default();
        for (confinement, result) in [
            (Confinement::new(ConfineFiles::Never, &[]).unwrap(), Some(1)),
            (Confinement::without_effect(), None),
        ] {
            let pool = Pool::confined("test", SMALL, &Arc::new(confinement));
            let ran = tokio::time::timeout(SOON, pool.run(&lost, || 1)).await;
            assert_eq!((ran, pool.queued()), (Ok(result), 0));
        }
    }

    #[test]
    fn thread_survives_a_panicking_job() {
        let pool = Pool::new(
            "test",
            PoolSize {
                threads: 1,
                hard_cap: 1,
                ..SMALL
            },
        );
        pool.submit(None, &Arc::default(), || panic!("as a broken tool would"))
            .unwrap();
        let (done, is_done) = mpsc::channel();
        pool.submit(None, &Arc::default(), move || done.send(()).unwrap())
            .unwrap();
        is_done.recv_timeout(SOON).unwrap();
    }
}
