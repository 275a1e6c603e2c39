//! Queue and writer of audit events; full queues and failing sinks are reported.
//!
//! Events are written by a thread of the audit, in batches. A caller that waits for its event writes the batch itself if the
//! sink allows it, since waking another thread and being woken by it takes longer than writing a few records.

use super::chain::{Head, Record, Seal};
use super::observed::Observed;
use super::sink::AuditSink;
use super::{AuditEvent, Step};
use crate::error::{CallError, Code};
use crate::monitor::Monitor;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Weak, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread};
use tokio::sync::oneshot;

/// Default number of messages that may wait for the sink.
pub(crate) const DEFAULT_CAPACITY: usize = 8192;
/// How long the thread waits after a batch unless many messages are queued, since waking it costs the caller more than sending.
const BATCH_DELAY: Duration = Duration::from_millis(1);
/// How many messages the thread writes before it lets other threads run, unless the queue is half full. Calls on its processor
/// wait for it meanwhile.
const MESSAGES_BEFORE_YIELD: usize = 64;
/// How many messages and events an idle audit has memory for; further memory is released.
const IDLE_CAPACITY: usize = 64;
/// How long the thread waits before it tries a failing sink again.
const RETRY: Duration = Duration::from_millis(100);

/// Why an event was not recorded. Unless it is about an effect that has begun, the step that it describes must not happen.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Too many messages wait to be written.
    #[error("too many messages wait to be written to the audit (`RuntimeBuilder::audit_capacity`)")]
    Full,
    /// The last write failed, and none has succeeded since.
    #[error("the audit cannot be written at present")]
    Failing,
    /// Writing this event failed.
    #[error("cannot write the audit")]
    Write(#[source] Arc<io::Error>),
    /// The writer has ended.
    #[error("the audit is closed")]
    Closed,
}

/// Like `Display`, with the causes, since `main` prints this form.
impl fmt::Debug for AuditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::error::write_chain(self, f)
    }
}

impl AuditError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Full => Code::Busy,
            Self::Failing | Self::Write(_) | Self::Closed => Code::Io,
        }
    }
}

impl From<AuditError> for CallError {
    fn from(error: AuditError) -> Self {
        let code = error.code();
        match error {
            AuditError::Full => {
                Self::new(code, format!("{error}; try again shortly")).with("retry_after_ms", 50)
            }
            AuditError::Failing | AuditError::Write(_) | AuditError::Closed => Self::new(
                code,
                "the call cannot be recorded, so it is rejected; the host must check its audit log",
            ),
        }
    }
}

enum Message {
    Record(AuditEvent),
    Together(Vec<AuditEvent>),
    Commit(AuditEvent, OnWriteError, SyncSender<Result<(), AuditError>>),
    Flush(oneshot::Sender<Result<(), AuditError>>),
}

impl Message {
    fn events(&self) -> &[AuditEvent] {
        match self {
            Self::Record(event) | Self::Commit(event, ..) => std::slice::from_ref(event),
            Self::Together(events) => events,
            Self::Flush(_) => &[],
        }
    }

    /// Whether its sender waits until it is written. Such messages are not counted.
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Commit(..) | Self::Flush(_))
    }
}

/// How a committed event that cannot be written is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnWriteError {
    /// Discard it, since its step does not happen. Another event is recorded instead.
    Discard,
    /// Keep it until it can be written, since its step has happened.
    Retry,
}

/// Messages that are not written yet.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// How many of them have senders that do not wait.
    unawaited: usize,
    /// Whether the thread of the audit waits for a message.
    idle: bool,
    /// No more messages are accepted.
    closed: bool,
}

/// State shared by the callers and the thread of the audit.
struct Inner {
    queue: Mutex<Queue>,
    /// How many messages may be queued whose senders do not wait.
    capacity: usize,
    /// Locked while a batch is written.
    writer: Mutex<Writer>,
    failing: AtomicBool,
    /// Events rejected since the last record.
    missed: AtomicU64,
}

/// Handle of the audit log.
///
/// Its thread ends once the last handle is dropped and all events are written.
#[derive(Clone)]
#[doc(hidden)]
pub struct Audit(Arc<AuditSender>);

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

struct AuditSender {
    inner: Arc<Inner>,
    thread: Thread,
    monitor: Monitor,
}

impl Drop for AuditSender {
    fn drop(&mut self) {
        self.inner.queue.lock().closed = true;
        self.thread.unpark();
    }
}

/// Weak handle of the audit, which does not keep its thread alive.
#[derive(Clone)]
#[doc(hidden)]
pub struct WeakAudit(Weak<AuditSender>);

impl fmt::Debug for WeakAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakAudit").finish_non_exhaustive()
    }
}

impl WeakAudit {
    /// Returns the audit, unless it has ended.
    #[doc(hidden)]
    pub fn upgrade(&self) -> Option<Audit> {
        self.0.upgrade().map(Audit)
    }
}

impl Audit {
    /// Starts the thread of `sink`. At most `capacity` messages whose senders do not wait are queued for it.
    #[doc(hidden)]
    pub fn start(sink: impl AuditSink, capacity: usize) -> io::Result<Self> {
        let capacity = capacity.max(1);
        let inner = Arc::new(Inner::new(sink, capacity));
        let writing = Arc::clone(&inner);
        let started = thread::Builder::new()
            .name("bailiwick-audit".to_owned())
            .spawn(move || writing.run())?;
        Ok(Self(Arc::new(AuditSender {
            inner,
            thread: started.thread().clone(),
            monitor: Monitor::default(),
        })))
    }

    /// The monitor of the runtime, which receives recorded events.
    pub(crate) fn monitor(&self) -> &Monitor {
        &self.0.monitor
    }

    #[doc(hidden)]
    #[must_use]
    pub fn downgrade(&self) -> WeakAudit {
        WeakAudit(Arc::downgrade(&self.0))
    }

    /// Sends `event` without waiting; on an error the step must not happen.
    #[doc(hidden)]
    pub fn record(&self, event: AuditEvent) -> Result<(), AuditError> {
        self.send(Message::Record(event))
    }

    /// Sends all of these events without waiting, or none; they are written together.
    #[doc(hidden)]
    pub fn record_all(&self, events: Vec<AuditEvent>) -> Result<(), AuditError> {
        self.send(Message::Together(events))
    }

    /// Sends the events of an effect that has begun. Unlike other events, they are accepted while the sink fails, and
    /// written as soon as possible. They are lost only if the audit is full or closed.
    #[doc(hidden)]
    pub fn record_effect(&self, events: Vec<AuditEvent>) -> Result<(), AuditError> {
        let count = events.len() as u64;
        let sent = self.send_now(Message::Together(events));
        sent.inspect_err(|_| self.count_missed(count))
    }

    /// Sends `event` without waiting. After an error the event does not count as missing, since the caller keeps it and
    /// tries again.
    #[doc(hidden)]
    pub fn offer(&self, event: AuditEvent) -> Result<(), AuditError> {
        self.try_send(Message::Record(event))
    }

    fn send(&self, message: Message) -> Result<(), AuditError> {
        let count = message.events().len() as u64;
        let sent = self.try_send(message);
        sent.inspect_err(|_| self.count_missed(count))
    }

    fn count_missed(&self, events: u64) {
        self.0.inner.missed.fetch_add(events, Ordering::AcqRel);
    }

    fn try_send(&self, message: Message) -> Result<(), AuditError> {
        if self.0.inner.failing.load(Ordering::Acquire) {
            return Err(AuditError::Failing);
        }
        self.send_now(message)
    }

    fn send_now(&self, message: Message) -> Result<(), AuditError> {
        let observed = Observed::new(self.monitor(), message.events());
        if self.push(message)? {
            self.0.thread.unpark();
        }
        observed.publish(self.monitor());
        Ok(())
    }

    /// Queues a message. Returns whether the thread of the audit must be woken for it; senders that wait do that themselves.
    fn push(&self, message: Message) -> Result<bool, AuditError> {
        let mut queue = self.0.inner.queue.lock();
        if queue.closed {
            return Err(AuditError::Closed);
        }
        let awaited = message.is_awaited();
        if !awaited {
            if queue.unawaited >= self.0.inner.capacity {
                return Err(AuditError::Full);
            }
            queue.unawaited += 1;
        }
        queue.messages.push_back(message);
        Ok(!awaited && std::mem::take(&mut queue.idle))
    }

    /// Writes `event` and everything before it. Blocks, so it must run on a pool thread. On an error the step must not
    /// happen.
    ///
    /// Written records survive a crash of this process; whether they survive a power failure depends on the sink.
    pub(crate) fn commit(&self, event: AuditEvent) -> Result<(), AuditError> {
        self.commit_or(event, OnWriteError::Discard)
    }

    /// Like [`Self::commit`], for a step that has happened: after an error the event is written as soon as possible.
    pub(crate) fn commit_effect(&self, event: AuditEvent) -> Result<(), AuditError> {
        self.commit_or(event, OnWriteError::Retry)
    }

    fn commit_or(&self, event: AuditEvent, on_error: OnWriteError) -> Result<(), AuditError> {
        let (reply, answer) = mpsc::sync_channel(1);
        let message = Message::Commit(event, on_error, reply);
        let observed = Observed::new(self.monitor(), message.events());
        self.push(message)?;
        if self.0.inner.write_batch(WrittenOn::Caller) {
            self.0.thread.unpark();
        }
        answer.recv().map_err(|_| AuditError::Closed)??;
        observed.publish(self.monitor());
        Ok(())
    }

    /// Waits until all earlier events are written, and synced if the sink supports it.
    #[doc(hidden)]
    pub async fn flush(&self) -> Result<(), AuditError> {
        let (reply, answer) = oneshot::channel();
        self.push(Message::Flush(reply))?;
        self.0.thread.unpark();
        answer.await.map_err(|_| AuditError::Closed)?
    }
}

/// The thread that writes a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenOn {
    AuditThread,
    /// A thread that waits for a record of the batch.
    Caller,
}

/// How soon queued messages should be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// After a pause: there are few, or the sink fails.
    Low,
    /// After other threads that are ready to run.
    Normal,
    /// At once: otherwise further messages would soon be rejected.
    High,
}

impl Inner {
    fn new(sink: impl AuditSink, capacity: usize) -> Self {
        let writer = Writer {
            head: sink.head(),
            sink: Some(Box::new(sink)),
            spare_queue: VecDeque::new(),
            unwritten: Vec::new(),
            commits: Vec::new(),
            flushes: Vec::new(),
        };
        Self {
            queue: Mutex::default(),
            capacity,
            writer: Mutex::new(writer),
            failing: AtomicBool::new(false),
            missed: AtomicU64::new(0),
        }
    }

    /// Writes until the queue is closed and empty.
    fn run(&self) {
        loop {
            let (empty, closed) = {
                let mut queue = self.queue.lock();
                queue.idle = queue.messages.is_empty();
                if queue.idle {
                    queue.messages.shrink_to(IDLE_CAPACITY);
                }
                (queue.idle, queue.closed)
            };
            if empty && !closed {
                let next = {
                    let mut writer = self.writer.lock();
                    writer.spare_queue.shrink_to(IDLE_CAPACITY);
                    writer.unwritten.shrink_to(IDLE_CAPACITY);
                    writer.next_attempt()
                };
                if self.park(next) {
                    continue;
                }
            }
            self.write_batch(WrittenOn::AuditThread);
            self.with_writer(Writer::sync);
            if empty && closed {
                return;
            }
            match self.urgency() {
                Urgency::Low => thread::park_timeout(BATCH_DELAY),
                Urgency::Normal => thread::yield_now(),
                Urgency::High => {}
            }
        }
    }

    /// How soon the thread of the audit should write the next batch.
    fn urgency(&self) -> Urgency {
        let queued = self.queue.lock().messages.len();
        if queued < MESSAGES_BEFORE_YIELD || self.failing.load(Ordering::Acquire) {
            Urgency::Low
        } else if queued < self.capacity / 2 {
            Urgency::Normal
        } else {
            Urgency::High
        }
    }

    /// Waits for a message, or for `next` at most. Returns whether it was woken before `next` had passed.
    fn park(&self, next: Option<Duration>) -> bool {
        let Some(delay) = next else {
            thread::park();
            return true;
        };
        let since = Instant::now();
        thread::park_timeout(delay);
        since.elapsed() < delay
    }

    /// Writes one batch and reports the result. Returns whether something is left to the thread of the audit.
    fn write_batch(&self, on: WrittenOn) -> bool {
        self.with_writer(|writer| writer.write_batch(self, on))
            || !self.queue.lock().messages.is_empty()
    }

    /// Locks the writer. Returns whether the thread of the audit has something left to do. A panic of the sink closes the
    /// audit.
    fn with_writer(&self, run: impl FnOnce(&mut Writer)) -> bool {
        let mut writer = self.writer.lock();
        if catch_unwind(AssertUnwindSafe(|| run(&mut writer))).is_err() {
            // Those who wait for an answer get none.
            writer.close();
            let mut queue = self.queue.lock();
            queue.closed = true;
            queue.messages.clear();
        }
        let left = writer.next_attempt().is_some();
        if !writer.flushes.is_empty() {
            // Callers that wait for the lock go first: this batch may have written their events, and they need not wait for the
            // sync.
            MutexGuard::unlock_fair(writer);
        }
        left
    }

    /// Moves the first messages of the queue, at most `most`, to `taken`, which is empty. If these are all, the two are swapped,
    /// so that senders have the memory of an earlier batch.
    fn take(&self, most: usize, taken: &mut VecDeque<Message>) {
        let mut queue = self.queue.lock();
        if queue.messages.len() <= most {
            std::mem::swap(&mut queue.messages, taken);
        } else {
            taken.extend(queue.messages.drain(..most));
        }
        queue.unawaited -= taken.iter().filter(|it| !it.is_awaited()).count();
    }
}

/// An event that is waited for.
struct PendingCommit {
    /// Its index in the events that are not written yet.
    index: usize,
    on_error: OnWriteError,
    reply: SyncSender<Result<(), AuditError>>,
}

/// Seals and writes events.
struct Writer {
    /// `None` after it has panicked.
    sink: Option<Box<dyn AuditSink>>,
    head: Head,
    /// An empty queue, kept for its memory. The next batch swaps it with the queue of the senders, if it takes all of it.
    spare_queue: VecDeque<Message>,
    /// Events that are not written yet; those that could not be are retried with the next batch.
    unwritten: Vec<AuditEvent>,
    /// Those of them that are waited for.
    commits: Vec<PendingCommit>,
    flushes: Vec<oneshot::Sender<Result<(), AuditError>>>,
}

impl Writer {
    /// How long the thread of the audit may wait; `None` if there is nothing to do.
    fn next_attempt(&self) -> Option<Duration> {
        if !self.commits.is_empty() || !self.flushes.is_empty() {
            return Some(Duration::ZERO);
        }
        (!self.unwritten.is_empty()).then_some(RETRY)
    }

    /// Whether another thread than that of the audit may store records at all.
    fn keeps_on_any_thread(&self) -> bool {
        let sink = self.sink.as_ref();
        sink.is_none_or(|sink| sink.keeps_on_any_thread(&[]))
    }

    /// Drops the sink, all events and the senders of answers.
    fn close(&mut self) {
        self.sink = None;
        self.unwritten = Vec::new();
        (self.commits, self.flushes) = (Vec::new(), Vec::new());
    }

    /// Writes the events of the queue. On [`WrittenOn::Caller`], what only the thread of the audit can do is left to it.
    fn write_batch(&mut self, inner: &Inner, on: WrittenOn) {
        if on == WrittenOn::Caller && !self.keeps_on_any_thread() {
            return;
        }
        let most = match on {
            WrittenOn::AuditThread if inner.urgency() == Urgency::Normal => MESSAGES_BEFORE_YIELD,
            WrittenOn::AuditThread | WrittenOn::Caller => inner.capacity,
        };
        let mut taken = std::mem::take(&mut self.spare_queue);
        inner.take(most, &mut taken);
        for message in taken.drain(..) {
            match message {
                Message::Record(event) => self.unwritten.push(event),
                Message::Together(events) => self.unwritten.extend(events),
                Message::Commit(event, on_error, reply) => {
                    self.commits.push(PendingCommit {
                        index: self.unwritten.len(),
                        on_error,
                        reply,
                    });
                    self.unwritten.push(event);
                }
                Message::Flush(reply) => self.flushes.push(reply),
            }
        }
        self.spare_queue = taken;
        let Some(result) = self.write(inner, on) else {
            return;
        };
        let failed_before = inner.failing.swap(result.is_err(), Ordering::AcqRel);
        match &result {
            Err(error) if !failed_before => tracing::error!(
                ?error,
                "calls are rejected until their records can be written"
            ),
            Ok(()) if failed_before => tracing::warn!("the audit can be written again"),
            _ => {}
        }
        let commits = std::mem::take(&mut self.commits);
        if result.is_err() {
            let refused = commits
                .iter()
                .filter(|it| it.on_error == OnWriteError::Discard);
            self.discard(inner, refused.map(|it| it.index));
        }
        // The caller may have stopped waiting.
        for PendingCommit { reply, .. } in commits {
            let _ = reply.send(result.clone());
        }
        if result.is_err() {
            self.answer_flushes(&result);
        }
    }

    /// Syncs the sink if a flush waits for that and all events before it are written. A caller that took the flush may have
    /// left events to the thread of the audit.
    fn sync(&mut self) {
        if self.flushes.is_empty() || !self.unwritten.is_empty() {
            return;
        }
        let synced = self.sink.as_mut().map_or(Ok(()), |sink| sink.sync());
        self.answer_flushes(&synced.map_err(|error| AuditError::Write(Arc::new(error))));
    }

    fn answer_flushes(&mut self, result: &Result<(), AuditError>) {
        for reply in std::mem::take(&mut self.flushes) {
            let _ = reply.send(result.clone());
        }
    }

    /// Writes all pending events, or none; `None` if the thread of the audit must do that.
    fn write(&mut self, inner: &Inner, on: WrittenOn) -> Option<Result<(), AuditError>> {
        if self.unwritten.is_empty() {
            return Some(Ok(()));
        }
        let missed = inner.missed.swap(0, Ordering::AcqRel);
        let result = match self.seal_all(missed) {
            Ok(records) => self.keep(records, on),
            Err(error) => Some(Err(AuditError::Write(Arc::new(error)))),
        };
        if !matches!(result, Some(Ok(()))) {
            inner.missed.fetch_add(missed, Ordering::AcqRel);
        }
        result
    }

    /// Seals all events that are not written yet, or none.
    fn seal_all(&mut self, missed: u64) -> io::Result<Vec<Record>> {
        let (at, mut head, mut missed) = (wall_clock(), self.head, Some(missed));
        let seals: Result<Vec<Seal>, _> = self
            .unwritten
            .iter()
            .map(|event| head.seal(at, missed.take().unwrap_or_default(), event))
            .collect();
        let seals = seals.map_err(io::Error::other)?;
        let events = self.unwritten.drain(..);
        let records = seals.into_iter().zip(events);
        Ok(records
            .map(|(seal, event)| seal.into_record(event))
            .collect())
    }

    /// Stores `records`; `None` if the thread of the audit must do that. The events of records that are not stored are pending
    /// again.
    fn keep(&mut self, records: Vec<Record>, on: WrittenOn) -> Option<Result<(), AuditError>> {
        let kept = match &mut self.sink {
            None => Some(Err(AuditError::Closed)),
            Some(sink) if on == WrittenOn::Caller && !sink.keeps_on_any_thread(&records) => None,
            Some(sink) => {
                let kept = sink.keep(&records);
                Some(kept.map_err(|error| AuditError::Write(Arc::new(error))))
            }
        };
        match &kept {
            Some(Ok(())) => self.head = records.last().map_or(self.head, Record::head),
            Some(Err(_)) | None => {
                let events = records.into_iter().map(Record::into_event);
                self.unwritten.extend(events);
            }
        }
        kept
    }

    /// Replaces failed commits, whose steps do not happen, by events that say so. While there are more events than
    /// the queue may have messages, they are removed and counted as missed instead.
    fn discard(&mut self, inner: &Inner, commits: impl DoubleEndedIterator<Item = usize>) {
        for index in commits.rev() {
            if self.unwritten.len() > inner.capacity {
                self.unwritten.remove(index);
                inner.missed.fetch_add(1, Ordering::AcqRel);
            } else if let Some(event) = self.unwritten.get_mut(index) {
                let error = CallError::new(Code::Io, "the audit could not be written");
                event.step = Step::without_result(&error, false);
            }
        }
    }
}

/// Milliseconds since 1970.
#[must_use]
pub fn wall_clock() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::JsonLines;
    use crate::audit::sink::MemoryAudit;
    use crate::audit::tests::failed;
    use std::sync::{Condvar, Mutex};

    /// A sink that blocks or fails on request.
    #[derive(Clone)]
    struct FlakySink {
        memory: MemoryAudit,
        on_any_thread: bool,
        state: Arc<(Mutex<SinkState>, Condvar)>,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum SinkState {
        Working,
        Blocked,
        Full,
    }

    impl FlakySink {
        fn new() -> Self {
            Self {
                memory: MemoryAudit::new(1000),
                on_any_thread: false,
                state: Arc::new((Mutex::new(SinkState::Working), Condvar::new())),
            }
        }

        /// Sinks that keep records on the thread of the audit only, and on any thread.
        fn both() -> [Self; 2] {
            [false, true].map(|on_any_thread| Self {
                on_any_thread,
                ..Self::new()
            })
        }

        fn set(&self, state: SinkState) {
            *self.state.0.lock().unwrap() = state;
            self.state.1.notify_all();
        }

        /// Returns once `records` are kept.
        fn wait_for(&self, records: u64) {
            let state = self.state.0.lock().unwrap();
            let missing = |_: &mut SinkState| self.memory.head().next < records;
            let limit = Duration::from_secs(30);
            let waited = self.state.1.wait_timeout_while(state, limit, missing);
            assert!(!waited.unwrap().1.timed_out(), "{records} records");
        }

        fn messages(&self) -> Vec<String> {
            let message = |record: &Record| match &record.event().step {
                Step::Failed(step) => format!("{}: {}", step.code, step.message),
                other => format!("{other:?}"),
            };
            self.memory.records().iter().map(message).collect()
        }
    }

    impl AuditSink for FlakySink {
        fn head(&self) -> Head {
            self.memory.head()
        }

        fn keeps_on_any_thread(&self, _: &[Record]) -> bool {
            self.on_any_thread
        }

        fn keep(&mut self, records: &[Record]) -> io::Result<()> {
            let state = self.state.0.lock().unwrap();
            let state = self
                .state
                .1
                .wait_while(state, |state| *state == SinkState::Blocked)
                .unwrap();
            match *state {
                SinkState::Full => Err(io::ErrorKind::StorageFull.into()),
                SinkState::Working | SinkState::Blocked => {
                    self.memory.keep(records)?;
                    self.state.1.notify_all();
                    Ok(())
                }
            }
        }
    }

    #[tokio::test]
    async fn events_are_stored_in_order() {
        let sink = MemoryAudit::new(10);
        let audit = Audit::start(sink.clone(), 100).unwrap();
        for n in 0..20 {
            audit.record(failed(&n.to_string())).unwrap();
        }
        audit.flush().await.unwrap();
        let kept: Vec<u64> = sink.records().iter().map(Record::seq).collect();
        assert_eq!(kept, (10..20).collect::<Vec<_>>());
        assert_eq!(sink.head().next, 20);
    }

    #[test]
    fn commit_stores_the_event_and_all_earlier_ones() {
        let sink = MemoryAudit::new(10);
        let audit = Audit::start(sink.clone(), 100).unwrap();
        audit.record(failed("before")).unwrap();
        audit.commit(failed("effect")).unwrap();
        assert_eq!(sink.records().len(), 2);
    }

    #[tokio::test]
    async fn full_audit_rejects_at_once_and_the_next_record_counts_it() {
        let sink = FlakySink::new();
        let audit = Audit::start(sink.clone(), 4).unwrap();
        sink.set(SinkState::Blocked);
        let records = (0..101).map(|n| audit.record(failed(&n.to_string())));
        let refused: Vec<AuditError> = records.filter_map(Result::err).collect();
        let taken = 101 - refused.len();
        assert!((4..=9).contains(&taken), "{taken}");
        assert!(
            refused
                .iter()
                .all(|error| matches!(error, AuditError::Full))
        );
        let refused = CallError::from(refused.into_iter().next().unwrap());
        assert!(
            refused
                .message()
                .contains("`RuntimeBuilder::audit_capacity`")
        );
        sink.set(SinkState::Working);
        audit.flush().await.unwrap();
        audit.commit(failed("after")).unwrap();
        let records = sink.memory.records();
        assert_eq!(records.len(), taken + 1);
        let missed: u64 = records.iter().map(Record::missed).sum();
        assert_eq!(missed, 101 - taken as u64);
    }

    #[tokio::test]
    async fn events_of_one_batch_are_recorded_or_counted_together() {
        let sink = FlakySink::new();
        let audit = Audit::start(sink.clone(), 2).unwrap();
        let several = || vec![failed("a"), failed("b"), failed("c")];
        audit.record_all(several()).unwrap();
        audit.flush().await.unwrap();
        assert_eq!(
            sink.messages(),
            ["NOT_FOUND: a", "NOT_FOUND: b", "NOT_FOUND: c"]
        );
        sink.set(SinkState::Blocked);
        let taken = (0..100).filter(|_| audit.record_all(several()).is_ok());
        let taken = taken.count() as u64;
        assert!((2..=5).contains(&taken), "{taken}");
        sink.set(SinkState::Working);
        audit.flush().await.unwrap();
        audit.commit(failed("after")).unwrap();
        let records = sink.memory.records();
        assert_eq!(records.len() as u64, 3 + taken * 3 + 1);
        let missed: u64 = records.iter().map(Record::missed).sum();
        assert_eq!(missed, (100 - taken) * 3);
    }

    #[test]
    fn failing_sink_rejects_events_until_a_write_succeeds() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 100).unwrap();
            audit.commit(failed("first")).unwrap();
            sink.set(SinkState::Full);
            assert!(matches!(
                audit.commit(failed("never happened")),
                Err(AuditError::Write(_))
            ));
            assert!(matches!(
                audit.record(failed("refused")),
                Err(AuditError::Failing)
            ));
            sink.set(SinkState::Working);
            audit.commit(failed("last")).unwrap();
            assert_eq!(
                sink.messages(),
                [
                    "NOT_FOUND: first",
                    "IO: the audit could not be written",
                    "NOT_FOUND: last"
                ]
            );
            audit.record(failed("handed over")).unwrap();
        }
    }

    #[test]
    fn effect_is_recorded_once_the_sink_can_be_written() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 10).unwrap();
            sink.set(SinkState::Full);
            for effect in ["first", "second"] {
                assert!(matches!(
                    audit.commit_effect(failed(effect)),
                    Err(AuditError::Write(_))
                ));
            }
            assert!(audit.commit(failed("refused")).is_err());
            audit.record_effect(vec![failed("third")]).unwrap();
            sink.set(SinkState::Working);
            audit.commit(failed("last")).unwrap();
            assert_eq!(
                sink.messages(),
                [
                    "NOT_FOUND: first",
                    "NOT_FOUND: second",
                    "IO: the audit could not be written",
                    "NOT_FOUND: third",
                    "NOT_FOUND: last",
                ]
            );
        }
    }

    #[test]
    fn failed_commit_is_retried_by_timer() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 100).unwrap();
            sink.set(SinkState::Full);
            audit.commit_effect(failed("kept")).unwrap_err();
            sink.set(SinkState::Working);
            sink.wait_for(1);
            assert_eq!(sink.messages(), ["NOT_FOUND: kept"]);
        }
    }

    #[test]
    fn event_after_a_commit_is_written_without_another_one() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 100).unwrap();
            for n in 0..20 {
                audit.commit(failed("effect")).unwrap();
                audit.record(failed("after")).unwrap();
                sink.wait_for(2 * n + 2);
            }
        }
    }

    /// Keeps records in a file, and whether each batch may be kept on any thread and was kept on that of the audit.
    struct OnThreads {
        file: JsonLines,
        batches: Arc<Mutex<Vec<(bool, bool)>>>,
    }

    impl AuditSink for OnThreads {
        fn head(&self) -> Head {
            self.file.head()
        }

        fn keeps_on_any_thread(&self, records: &[Record]) -> bool {
            self.file.keeps_on_any_thread(records)
        }

        fn keep(&mut self, records: &[Record]) -> io::Result<()> {
            let on_its_thread = thread::current().name() == Some("bailiwick-audit");
            let batch = (self.keeps_on_any_thread(records), on_its_thread);
            self.batches.lock().unwrap().push(batch);
            self.file.keep(records)
        }
    }

    #[test]
    fn commit_is_written_by_its_caller_unless_the_file_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let file = JsonLines::create(dir.path().join("audit.jsonl")).unwrap();
        let batches: Arc<Mutex<Vec<(bool, bool)>>> = Arc::default();
        let sink = OnThreads {
            file: file.segment_bytes(4000),
            batches: Arc::clone(&batches),
        };
        let audit = Audit::start(sink, 100).unwrap();
        for n in 0..100 {
            audit.commit(failed(&n.to_string())).unwrap();
        }
        let batches = batches.lock().unwrap();
        let rotations = batches.iter().filter(|(on_any, _)| !on_any);
        assert!(rotations.clone().count() > 5);
        assert!(
            rotations
                .into_iter()
                .all(|(_, on_its_thread)| *on_its_thread)
        );
        // It may take a batch before the caller does.
        let own = batches.iter().filter(|(_, on_its_thread)| !on_its_thread);
        assert!(own.count() > 10, "{batches:?}");
    }

    #[tokio::test]
    async fn failing_sink_is_retried_by_timer() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 100).unwrap();
            sink.set(SinkState::Full);
            audit.record(failed("kept")).unwrap();
            assert!(audit.flush().await.is_err());
            sink.set(SinkState::Working);
            sink.wait_for(1);
            assert_eq!(sink.messages(), ["NOT_FOUND: kept"]);
        }
    }

    #[test]
    fn rejected_commits_do_not_accumulate_while_the_sink_fails() {
        for sink in FlakySink::both() {
            let audit = Audit::start(sink.clone(), 3).unwrap();
            sink.set(SinkState::Full);
            for _ in 0..10 {
                assert!(audit.commit(failed("never happened")).is_err());
            }
            sink.set(SinkState::Working);
            audit.commit(failed("last")).unwrap();
            let records = sink.memory.records();
            assert_eq!(records.len(), 4);
            assert_eq!(records.iter().map(Record::missed).sum::<u64>(), 7);
        }
    }

    /// Keeps records in memory, and syncs them unless it cannot.
    struct Synced {
        memory: MemoryAudit,
        /// How many records were kept at each sync.
        at: Arc<Mutex<Vec<u64>>>,
        fails: bool,
    }

    impl AuditSink for Synced {
        fn head(&self) -> Head {
            self.memory.head()
        }

        fn keep(&mut self, records: &[Record]) -> io::Result<()> {
            self.memory.keep(records)
        }

        fn sync(&mut self) -> io::Result<()> {
            self.at.lock().unwrap().push(self.memory.head().next);
            if self.fails {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            }
        }
    }

    #[tokio::test]
    async fn flush_syncs_and_reports_failed_syncs() {
        for fails in [false, true] {
            let at = Arc::new(Mutex::new(Vec::new()));
            let sink: Box<dyn AuditSink> = Box::new(Synced {
                memory: MemoryAudit::new(10),
                at: Arc::clone(&at),
                fails,
            });
            let audit = Audit::start(sink, 100).unwrap();
            audit.commit(failed("effect")).unwrap();
            assert_eq!(*at.lock().unwrap(), [0; 0], "a call waits for no disk");
            audit.record(failed("grant")).unwrap();
            assert_eq!(audit.flush().await.is_err(), fails);
            assert_eq!(*at.lock().unwrap(), [2]);
            audit.record(failed("after")).unwrap();
        }
    }

    #[test]
    fn flush_is_answered_after_the_events_that_a_caller_left() {
        /// Leaves all records to the thread of the audit.
        struct Leaving(MemoryAudit);
        impl AuditSink for Leaving {
            fn head(&self) -> Head {
                self.0.head()
            }
            fn keeps_on_any_thread(&self, records: &[Record]) -> bool {
                records.is_empty()
            }
            fn keep(&mut self, records: &[Record]) -> io::Result<()> {
                self.0.keep(records)
            }
        }
        let memory = MemoryAudit::new(10);
        let inner = Inner::new(Leaving(memory.clone()), 10);
        let (reply, mut answer) = oneshot::channel();
        let messages = [Message::Record(failed("before")), Message::Flush(reply)];
        inner.queue.lock().messages.extend(messages);
        inner.queue.lock().unawaited = 1;
        assert!(inner.write_batch(WrittenOn::Caller));
        // The thread of the audit may be about to sync.
        assert!(inner.with_writer(Writer::sync));
        assert!(answer.try_recv().is_err() && memory.records().is_empty());
        inner.write_batch(WrittenOn::AuditThread);
        assert!(!inner.with_writer(Writer::sync));
        assert!(matches!(answer.try_recv(), Ok(Ok(()))));
        assert_eq!(memory.records().len(), 1);
    }

    #[test]
    fn audit_thread_writes_all_messages_at_once_if_they_are_few_or_urgent() {
        use Urgency::{High, Low, Normal};
        let part = MESSAGES_BEFORE_YIELD;
        for (queued, capacity, failing, urgency) in [
            (0, 1000, false, Low),
            (part - 1, 1000, false, Low),
            (part, 1000, false, Normal),
            (499, 1000, false, Normal),
            (500, 1000, false, High),
            (499, 1000, true, Low),
            (500, 1000, true, Low),
            (part, part, false, High),
        ] {
            for on in [WrittenOn::AuditThread, WrittenOn::Caller] {
                let case = format!("{queued} of {capacity}, {failing}, {on:?}");
                let memory = MemoryAudit::new(1000);
                let inner = Inner::new(memory.clone(), capacity);
                let messages = (0..queued).map(|n| Message::Record(failed(&n.to_string())));
                inner.queue.lock().messages.extend(messages);
                inner.queue.lock().unawaited = queued;
                inner.failing.store(failing, Ordering::Release);
                assert_eq!(inner.urgency(), urgency, "{case}");
                let is_part = on == WrittenOn::AuditThread && urgency == Normal;
                let written = if is_part { part } else { queued };
                assert_eq!(inner.write_batch(on), written < queued, "{case}");
                assert_eq!(memory.records().len(), written, "{case}");
                assert_eq!(inner.queue.lock().unawaited, queued - written, "{case}");
            }
        }
    }

    #[test]
    fn panicking_sink_closes_the_audit() {
        struct Broken {
            on_any_thread: bool,
        }
        impl AuditSink for Broken {
            fn head(&self) -> Head {
                Head::default()
            }
            fn keeps_on_any_thread(&self, _: &[Record]) -> bool {
                self.on_any_thread
            }
            fn keep(&mut self, _: &[Record]) -> io::Result<()> {
                panic!("a fault of the sink")
            }
        }
        for on_any_thread in [false, true] {
            let audit = Audit::start(Broken { on_any_thread }, 2).unwrap();
            assert!(matches!(audit.commit(failed("x")), Err(AuditError::Closed)));
            assert!(matches!(audit.commit(failed("y")), Err(AuditError::Closed)));
            for _ in 0..4 {
                assert!(matches!(audit.record(failed("z")), Err(AuditError::Closed)));
            }
        }
    }
}
