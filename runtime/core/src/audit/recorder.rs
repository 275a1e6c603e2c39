//! Audit writer thread and the handle that sends events to it; full queues and failing sinks are reported.

use super::chain::{Head, Record};
use super::observed::Observed;
use super::sink::AuditSink;
use super::{AuditEvent, Step};
use crate::error::{CallError, Code};
use crate::monitor::Monitor;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread};
use tokio::sync::oneshot;

/// Default number of events that may wait for the sink.
pub(crate) const DEFAULT_CAPACITY: usize = 8192;
/// How long the writer waits after a batch, since waking the writer costs the caller more than sending.
const BATCH_DELAY: Duration = Duration::from_millis(1);
/// How long the writer waits before it tries a failing sink again.
const RETRY: Duration = Duration::from_millis(100);

/// Why an event was not recorded. The step that it describes must not happen.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Too many events wait to be written.
    #[error("too many records wait to be written to the audit (`RuntimeBuilder::audit_capacity`)")]
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
                "the call cannot be recorded, so it is not carried out; the host must check its audit log",
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

    /// Whether its sender waits for the writer. Such messages are not counted.
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

/// State shared by the callers and the writer.
#[derive(Debug, Default)]
struct Status {
    /// Messages in the queue whose senders do not wait.
    waiting: AtomicUsize,
    failing: AtomicBool,
    /// Events rejected since the last record.
    missed: AtomicU64,
}

/// Handle of the audit log.
///
/// The writer ends once the last handle is dropped and all events are written.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Audit(Arc<AuditSender>);

#[derive(Debug)]
struct AuditSender {
    // Without a bound of its own: a bounded queue of the standard library allocates room for all events at the start.
    sender: Sender<Message>,
    /// How many messages may wait whose senders do not.
    capacity: usize,
    writer: JoinHandle<()>,
    status: Arc<Status>,
    monitor: Monitor,
}

/// Weak handle of the audit, which does not keep the writer alive.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct WeakAudit(Weak<AuditSender>);

impl WeakAudit {
    /// Returns the audit, unless it has ended.
    #[doc(hidden)]
    pub fn upgrade(&self) -> Option<Audit> {
        self.0.upgrade().map(Audit)
    }
}

impl Audit {
    /// Starts the writer of `sink`; at most `capacity` events wait for it.
    #[doc(hidden)]
    pub fn start(sink: impl AuditSink, capacity: usize) -> io::Result<Self> {
        let capacity = capacity.max(1);
        let (sender, receiver) = mpsc::channel();
        let status = Arc::new(Status::default());
        let writer = Writer {
            head: sink.head(),
            sink,
            unwritten: Vec::new(),
            most_unwritten: capacity,
            status: Arc::clone(&status),
        };
        let thread = thread::Builder::new()
            .name("bailiwick-audit".to_owned())
            .spawn(move || writer.run(&receiver))?;
        Ok(Self(Arc::new(AuditSender {
            sender,
            capacity,
            writer: thread,
            status,
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
    /// written as soon as possible. Only a full audit loses them.
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
        self.0.status.missed.fetch_add(events, Ordering::AcqRel);
    }

    fn try_send(&self, message: Message) -> Result<(), AuditError> {
        if self.0.status.failing.load(Ordering::Acquire) {
            return Err(AuditError::Failing);
        }
        self.send_now(message)
    }

    fn send_now(&self, message: Message) -> Result<(), AuditError> {
        let add = |waiting| (waiting < self.0.capacity).then_some(waiting + 1);
        let waiting = &self.0.status.waiting;
        let added = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if added.is_err() {
            let has_ended = self.0.writer.is_finished();
            return Err(if has_ended {
                AuditError::Closed
            } else {
                AuditError::Full
            });
        }
        let observed = Observed::new(self.monitor(), message.events());
        let sent = self.0.sender.send(message);
        sent.map_err(|_| AuditError::Closed)?;
        observed.publish(self.monitor());
        Ok(())
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
        let sent = self.0.sender.send(message);
        sent.map_err(|_| AuditError::Closed)?;
        self.0.writer.thread().unpark();
        answer.recv().map_err(|_| AuditError::Closed)??;
        observed.publish(self.monitor());
        Ok(())
    }

    /// Waits until all earlier events are written, and synced if the sink supports it.
    #[doc(hidden)]
    pub async fn flush(&self) -> Result<(), AuditError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.sender.send(Message::Flush(reply));
        sent.map_err(|_| AuditError::Closed)?;
        self.0.writer.thread().unpark();
        answer.await.map_err(|_| AuditError::Closed)?
    }
}

/// Seals and writes events on its own thread.
struct Writer<S> {
    sink: S,
    head: Head,
    /// Events that could not be written; retried with the next batch.
    unwritten: Vec<AuditEvent>,
    most_unwritten: usize,
    status: Arc<Status>,
}

impl<S: AuditSink> Writer<S> {
    fn run(mut self, receiver: &Receiver<Message>) {
        loop {
            let first = if self.unwritten.is_empty() {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                receiver.recv_timeout(RETRY)
            };
            match first {
                Ok(first) => self.take(std::iter::once(first).chain(receiver.try_iter())),
                Err(RecvTimeoutError::Timeout) => self.take(std::iter::empty()),
                Err(RecvTimeoutError::Disconnected) => return self.take(std::iter::empty()),
            }
            thread::park_timeout(BATCH_DELAY);
        }
    }

    /// Writes one batch and reports the result.
    fn take(&mut self, messages: impl Iterator<Item = Message>) {
        let (mut commits, mut flushes) = (Vec::new(), Vec::new());
        let mut taken = 0;
        for message in messages.take(self.most_unwritten) {
            taken += usize::from(!message.is_awaited());
            match message {
                Message::Record(event) => self.unwritten.push(event),
                Message::Together(events) => self.unwritten.extend(events),
                Message::Commit(event, on_error, reply) => {
                    commits.push((self.unwritten.len(), on_error, reply));
                    self.unwritten.push(event);
                }
                Message::Flush(reply) => flushes.push(reply),
            }
        }
        self.status.waiting.fetch_sub(taken, Ordering::Relaxed);
        let result = self.write();
        self.status
            .failing
            .store(result.is_err(), Ordering::Release);
        if result.is_err() {
            let refused = commits
                .iter()
                .filter(|(_, on_error, _)| *on_error == OnWriteError::Discard);
            self.discard(refused.map(|(index, ..)| *index));
        }
        // The caller may have stopped waiting.
        for (.., reply) in commits {
            let _ = reply.send(result.clone());
        }
        let synced = if flushes.is_empty() {
            result
        } else {
            result.and_then(|()| self.sync())
        };
        for reply in flushes {
            let _ = reply.send(synced.clone());
        }
    }

    fn sync(&mut self) -> Result<(), AuditError> {
        let synced = self.sink.sync();
        synced.map_err(|error| AuditError::Write(Arc::new(error)))
    }

    /// Writes all pending events, or none.
    fn write(&mut self) -> Result<(), AuditError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let missed = self.status.missed.swap(0, Ordering::AcqRel);
        let mut head = self.head;
        let written = seal_all(&mut head, missed, &self.unwritten)
            .and_then(|records| self.sink.keep(&records));
        match written {
            Ok(()) => {
                self.head = head;
                self.unwritten.clear();
                Ok(())
            }
            Err(error) => {
                self.status.missed.fetch_add(missed, Ordering::AcqRel);
                Err(AuditError::Write(Arc::new(error)))
            }
        }
    }

    /// Discards failed commits, whose steps do not happen.
    ///
    /// All other events are kept. Those beyond the bound are counted instead.
    fn discard(&mut self, commits: impl DoubleEndedIterator<Item = usize>) {
        for index in commits.rev() {
            if self.unwritten.len() > self.most_unwritten {
                self.unwritten.remove(index);
                self.status.missed.fetch_add(1, Ordering::AcqRel);
            } else if let Some(event) = self.unwritten.get_mut(index) {
                let error = CallError::new(Code::Io, "the audit could not be written");
                event.step = Step::without_result(&error, false);
            }
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall_clock() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn seal_all(head: &mut Head, missed: u64, events: &[AuditEvent]) -> io::Result<Vec<Record>> {
    let at = wall_clock();
    let mut missed = Some(missed);
    events
        .iter()
        .map(|event| {
            let missed = missed.take().unwrap_or_default();
            head.seal(at, missed, event.clone())
                .map_err(io::Error::other)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::sink::MemoryAudit;
    use crate::audit::tests::failed;
    use std::sync::{Condvar, Mutex};

    /// A sink that blocks or fails on request.
    #[derive(Clone)]
    struct FlakySink {
        memory: MemoryAudit,
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
                state: Arc::new((Mutex::new(SinkState::Working), Condvar::new())),
            }
        }

        fn set(&self, state: SinkState) {
            *self.state.0.lock().unwrap() = state;
            self.state.1.notify_all();
        }

        /// Returns once `records` are kept.
        fn wait_for(&self, records: u64) {
            let state = self.state.0.lock().unwrap();
            let missing = |_: &mut SinkState| self.memory.head().next < records;
            drop(self.state.1.wait_while(state, missing).unwrap());
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
        let sink = FlakySink::new();
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
        audit.record(failed("handed over")).unwrap();
        assert_eq!(
            sink.messages(),
            [
                "NOT_FOUND: first",
                "IO: the audit could not be written",
                "NOT_FOUND: last"
            ]
        );
    }

    #[test]
    fn effect_is_recorded_once_the_sink_can_be_written() {
        let sink = FlakySink::new();
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

    #[tokio::test]
    async fn failing_sink_is_retried_by_timer() {
        let sink = FlakySink::new();
        let audit = Audit::start(sink.clone(), 100).unwrap();
        sink.set(SinkState::Full);
        audit.record(failed("kept")).unwrap();
        assert!(audit.flush().await.is_err());
        sink.set(SinkState::Working);
        sink.wait_for(1);
        assert_eq!(sink.messages(), ["NOT_FOUND: kept"]);
    }

    #[test]
    fn rejected_commits_do_not_accumulate_while_the_sink_fails() {
        let sink = FlakySink::new();
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
    fn panicking_sink_closes_the_audit() {
        struct Broken;
        impl AuditSink for Broken {
            fn head(&self) -> Head {
                Head::default()
            }
            fn keep(&mut self, _: &[Record]) -> io::Result<()> {
                panic!("a fault of the sink")
            }
        }
        let audit = Audit::start(Broken, 2).unwrap();
        assert!(matches!(audit.commit(failed("x")), Err(AuditError::Closed)));
        assert!(matches!(audit.commit(failed("y")), Err(AuditError::Closed)));
        while !audit.0.writer.is_finished() {
            thread::yield_now();
        }
        for _ in 0..4 {
            assert!(matches!(audit.record(failed("z")), Err(AuditError::Closed)));
        }
    }
}
