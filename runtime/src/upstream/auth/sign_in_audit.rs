//! What people say where servers want them to sign in, in; the audit of every runtime that uses the servers out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::audit::{Audit, AuditError, AuditEvent, SignedInStep, Step, WeakAudit};
use crate::call::Origin;
use crate::permission::DecidedBy;

/// How much of what was said waits for a runtime, at most.
const MAX_PENDING: usize = 1024;

/// Where it is recorded what people said.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SignInAudit(Mutex<SignInAuditState>);

#[derive(Debug, Default)]
struct SignInAuditState {
    audits: Vec<WeakAudit>,
    /// What was said while there was no runtime.
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
    /// The audits of the runtimes that are there.
    fn audits(&mut self) -> Vec<Audit> {
        self.audits.retain(|audit| audit.upgrade().is_some());
        self.audits.iter().filter_map(WeakAudit::upgrade).collect()
    }
}

impl SignInAudit {
    fn state(&self) -> MutexGuard<'_, SignInAuditState> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime uses the servers from now on. What was said while there was none is recorded by it, and waits for another
    /// one where it cannot be.
    pub(in crate::upstream) async fn attach(&self, audit: &Audit) -> Result<(), AuditError> {
        {
            let mut state = self.state();
            if state.pending.is_empty() {
                state.audits.push(audit.downgrade());
                return Ok(());
            }
        }
        // What was handed over before leaves room.
        audit.flush().await?;
        let mut pending = {
            let mut state = self.state();
            audit.record_all(state.pending.clone())?;
            state.audits.push(audit.downgrade());
            std::mem::take(&mut state.pending)
        };
        let written = audit.flush().await;
        if written.is_err() {
            let mut state = self.state();
            pending.append(&mut state.pending);
            state.pending = pending;
        }
        written
    }

    /// Returns once what a person said stands in every record; on an error it must not count.
    pub(super) async fn record(&self, step: SignedInStep) -> Result<(), AuditError> {
        // What was handed over before leaves room. Where that cannot be written this could not be either, and stands in no
        // record.
        let audits = self.state().audits();
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
            // It does not count, so no record may say that it does.
            let withdrawn = SignedInStep {
                allowed: false,
                by: DecidedBy::Host,
                ..step
            };
            for audit in submitted {
                // An audit that is full counts it as missed.
                let _ = audit.record_effect(vec![event(withdrawn.clone())]);
            }
        }
        recorded
    }

    /// Hands it to the audits that are there, and returns those that have it; without any it waits.
    fn submit(&self, event: AuditEvent) -> (Vec<Audit>, Result<(), AuditError>) {
        let mut state = self.state();
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
    use crate::audit::{AuditSink, Head, MemoryAudit, Record};

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
    async fn what_is_said_stands_in_the_record_of_every_runtime_that_is_there() {
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

    /// A record that cannot be written.
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
    async fn consent_that_one_audit_cannot_record_is_withdrawn_in_the_others() {
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
        let told: Vec<bool> = well.records().iter().map(allowed).collect();
        assert_eq!(told, [true, false]);
    }

    #[tokio::test]
    async fn what_was_said_early_waits_for_a_runtime_that_can_record_it() {
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

    /// A record whose writer is slower than what comes in.
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
    async fn what_is_said_while_a_record_has_no_room_waits_until_it_has() {
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
        let told = servers(&kept);
        let last = told.last().unwrap().as_str();
        assert_eq!((told.len(), last), (others + 1, "person"));
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_is_an_error() {
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
