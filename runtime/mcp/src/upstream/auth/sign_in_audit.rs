//! Records sign-in decisions in the audits of all runtimes that use the servers.

use std::sync::Arc;

use parking_lot::Mutex;

use bailiwick::audit::{Audit, AuditError, AuditEvent, SignedInStep, Step, WeakAudit};
use bailiwick::call::Origin;
use bailiwick::permission::DecidedBy;

/// The largest number of records that wait for a runtime.
const MAX_PENDING: usize = 1024;

/// Records sign-in decisions.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SignInAudit(Mutex<SignInAuditState>);

#[derive(Debug, Default)]
struct SignInAuditState {
    audits: Vec<WeakAudit>,
    /// Decisions made before any runtime was attached.
    pending: Vec<AuditEvent>,
}

fn event(step: SignedInStep) -> AuditEvent {
    AuditEvent {
        worker: None,
        agent: Arc::default(),
        call: None,
        tool: None,
        origin: Origin::Human,
        step: Step::SignedIn(Box::new(step)),
    }
}

impl SignInAuditState {
    /// The audits of the running runtimes.
    fn audits(&mut self) -> Vec<Audit> {
        self.audits.retain(|audit| audit.upgrade().is_some());
        self.audits.iter().filter_map(WeakAudit::upgrade).collect()
    }
}

impl SignInAudit {
    /// Attaches the audit of a runtime, which records all pending decisions. They stay pending if that fails.
    pub(in crate::upstream) async fn attach(&self, audit: &Audit) -> Result<(), AuditError> {
        {
            let mut state = self.0.lock();
            if state.pending.is_empty() {
                state.audits.push(audit.downgrade());
                return Ok(());
            }
        }
        // Makes room in the queue.
        audit.flush().await?;
        let mut pending = {
            let mut state = self.0.lock();
            audit.record_all(state.pending.clone())?;
            state.audits.push(audit.downgrade());
            std::mem::take(&mut state.pending)
        };
        let written = audit.flush().await;
        if written.is_err() {
            let mut state = self.0.lock();
            pending.append(&mut state.pending);
            state.pending = pending;
        }
        written
    }

    /// Records a decision in all audits. The decision must not take effect if this fails.
    pub(super) async fn record(&self, step: SignedInStep) -> Result<(), AuditError> {
        // Makes room in the queues. If this fails, no audit contains the decision.
        let audits = self.0.lock().audits();
        for audit in audits {
            audit.flush().await?;
        }
        let (submitted, mut recorded) = self.submit(event(step.clone()));
        for audit in &submitted {
            if recorded.is_ok() {
                recorded = audit.flush().await;
            }
        }
        if recorded.is_err() && step.allowed {
            // The decision does not take effect, so the records must not say that it does.
            let withdrawn = SignedInStep {
                allowed: false,
                by: DecidedBy::Host,
                ..step
            };
            for audit in submitted {
                // A full audit counts it as missed.
                let _ = audit.record_effect(vec![event(withdrawn.clone())]);
            }
        }
        recorded
    }

    /// Submits an event to all audits and returns those that accepted it; without any, the event stays pending.
    fn submit(&self, event: AuditEvent) -> (Vec<Audit>, Result<(), AuditError>) {
        let mut state = self.0.lock();
        let audits = state.audits();
        if audits.is_empty() {
            if state.pending.len() >= MAX_PENDING {
                return (audits, Err(AuditError::Full));
            }
            state.pending.push(event);
            return (audits, Ok(()));
        }
        let mut submitted = Vec::new();
        for audit in audits {
            if let Err(error) = audit.record(event.clone()) {
                return (submitted, Err(error));
            }
            submitted.push(audit);
        }
        (submitted, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use bailiwick::audit::{AuditSink, Head, MemoryAudit, Record};

    fn step(server: &str) -> SignedInStep {
        SignedInStep {
            server: server.into(),
            issuer: "https://a.example".into(),
            scopes: vec!["read".to_owned()],
            tool_there: None,
            allowed: true,
            by: DecidedBy::Person,
        }
    }

    fn servers(audit: &MemoryAudit) -> Vec<String> {
        let server = |record: &Record| match &record.event().step {
            Step::SignedIn(step) => step.server.to_string(),
            other => panic!("{other:?}"),
        };
        audit.records().iter().map(server).collect()
    }

    #[tokio::test]
    async fn sign_ins_are_recorded_by_every_attached_runtime() {
        let (audit, one, two) = (
            SignInAudit::default(),
            MemoryAudit::new(10),
            MemoryAudit::new(10),
        );
        audit.record(step("early")).await.unwrap();
        let first = Audit::start(one.clone(), 10).unwrap();
        audit.attach(&first).await.unwrap();
        audit.record(step("alone")).await.unwrap();
        let second = Audit::start(two.clone(), 10).unwrap();
        audit.attach(&second).await.unwrap();
        audit.record(step("both")).await.unwrap();
        drop(first);
        audit.record(step("second")).await.unwrap();
        drop(second);
        audit.record(step("late")).await.unwrap();
        assert_eq!(servers(&one), ["early", "alone", "both"]);
        assert_eq!(servers(&two), ["both", "second"]);
        let three = MemoryAudit::new(10);
        let third = Audit::start(three.clone(), 10).unwrap();
        audit.attach(&third).await.unwrap();
        third.flush().await.unwrap();
        assert_eq!(servers(&three), ["late"]);
    }

    /// A sink that always fails.
    struct Full;

    impl AuditSink for Full {
        fn head(&self) -> Head {
            MemoryAudit::new(1).head()
        }

        fn keep(&mut self, _: &[Record]) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
    }

    #[tokio::test]
    async fn consent_that_one_audit_cannot_record_is_withdrawn() {
        let (audit, well) = (SignInAudit::default(), MemoryAudit::new(10));
        let first = Audit::start(well.clone(), 10).unwrap();
        let full = Audit::start(Full, 10).unwrap();
        audit.attach(&first).await.unwrap();
        audit.attach(&full).await.unwrap();
        assert!(audit.record(step("both")).await.is_err());
        first.flush().await.unwrap();
        let allowed = |record: &Record| match &record.event().step {
            Step::SignedIn(step) => step.allowed,
            other => panic!("{other:?}"),
        };
        let recorded: Vec<bool> = well.records().iter().map(allowed).collect();
        assert_eq!(recorded, [true, false]);
    }

    #[tokio::test]
    async fn early_sign_ins_wait_for_a_runtime_to_record_them() {
        let audit = SignInAudit::default();
        audit.record(step("early")).await.unwrap();
        let full = Audit::start(Full, 10).unwrap();
        assert!(audit.attach(&full).await.is_err());
        drop(full);
        audit.record(step("late")).await.unwrap();
        let well = MemoryAudit::new(10);
        let log = Audit::start(well.clone(), 10).unwrap();
        audit.attach(&log).await.unwrap();
        assert_eq!(servers(&well), ["early", "late"]);
    }

    /// A sink that blocks on a lock.
    #[derive(Clone)]
    struct Slow(MemoryAudit, Arc<Mutex<()>>);

    impl AuditSink for Slow {
        fn head(&self) -> Head {
            self.0.head()
        }

        fn keep(&mut self, records: &[Record]) -> std::io::Result<()> {
            drop(self.1.lock());
            self.0.keep(records)
        }
    }

    #[tokio::test]
    async fn sign_in_waits_while_the_audit_is_full() {
        let audit = SignInAudit::default();
        let (kept, busy) = (MemoryAudit::new(100), Arc::new(Mutex::default()));
        let log = Audit::start(Slow(kept.clone(), Arc::clone(&busy)), 2).unwrap();
        audit.attach(&log).await.unwrap();
        let writing = busy.lock();
        let mut others = 0;
        while log.offer(event(step("other"))).is_ok() {
            others += 1;
        }
        let mut recording = Box::pin(audit.record(step("person")));
        assert!((&mut recording).now_or_never().is_none());
        drop(writing);
        recording.await.unwrap();
        let recorded = servers(&kept);
        let last = recorded.last().unwrap().as_str();
        assert_eq!((recorded.len(), last), (others + 1, "person"));
    }

    #[tokio::test]
    async fn unrecordable_sign_ins_are_errors() {
        let audit = SignInAudit::default();
        let well = Audit::start(MemoryAudit::new(10), 10).unwrap();
        audit.attach(&well).await.unwrap();
        assert!(audit.record(step("s")).await.is_ok());
        let full = Audit::start(Full, 10).unwrap();
        audit.attach(&full).await.unwrap();
        assert!(audit.record(step("s")).await.is_err());

        let audit = SignInAudit::default();
        for _ in 0..MAX_PENDING {
            audit.record(step("s")).await.unwrap();
        }
        assert!(matches!(
            audit.record(step("s")).await,
            Err(AuditError::Full)
        ));
    }
}
