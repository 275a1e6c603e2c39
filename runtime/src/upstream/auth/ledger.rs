//! What people say where servers want them to sign in, in; the audit of every runtime that uses the servers out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::audit::{Audit, AuditError, AuditEvent, SignedInStep, Step, WeakAudit};
use crate::call::Origin;

/// How much of what was said waits for a runtime, at most.
const MOST_EARLY: usize = 1024;

/// Where it is recorded what people said.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Ledger(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    audits: Vec<WeakAudit>,
    /// What was said while there was no runtime.
    early: Vec<AuditEvent>,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime uses the servers from now on. What was said while there was none is recorded by it.
    pub(in crate::upstream) fn join(&self, audit: &Audit) -> Result<(), AuditError> {
        let mut books = self.books();
        audit.record_all(books.early.clone())?;
        books.early.clear();
        books.audits.push(audit.downgrade());
        Ok(())
    }

    /// Returns once what a person said stands in every record; on an error it must not count.
    pub(super) async fn record(&self, said: SignedInStep) -> Result<(), AuditError> {
        let event = AuditEvent {
            worker: None,
            agent: Arc::default(),
            call: None,
            tool: None,
            origin: Origin::Human,
            step: Step::SignedIn(Box::new(said)),
        };
        for audit in self.hand_over(event)? {
            audit.flush().await?;
        }
        Ok(())
    }

    /// Hands it to the audits that are there, and returns them; without one it waits.
    fn hand_over(&self, event: AuditEvent) -> Result<Vec<Audit>, AuditError> {
        let mut books = self.books();
        books.audits.retain(|audit| audit.upgrade().is_some());
        let audits: Vec<Audit> = books.audits.iter().filter_map(WeakAudit::upgrade).collect();
        if audits.is_empty() {
            if books.early.len() >= MOST_EARLY {
                return Err(AuditError::Full);
            }
            books.early.push(event);
            return Ok(audits);
        }
        for audit in &audits {
            audit.record(event.clone())?;
        }
        Ok(audits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditSink, Head, MemoryAudit, Record};

    fn said(server: &str) -> SignedInStep {
        SignedInStep {
            server: server.into(),
            issuer: "https://a.example".into(),
            scopes: vec!["read".to_owned()],
            tool_there: None,
            allowed: true,
        }
    }

    fn servers(audit: &MemoryAudit) -> Vec<String> {
        let step = |record: &Record| match &record.event().step {
            Step::SignedIn(said) => said.server.to_string(),
            other => panic!("{other:?}"),
        };
        audit.records().iter().map(step).collect()
    }

    #[tokio::test]
    async fn what_is_said_stands_in_the_record_of_every_runtime_that_is_there() {
        let (ledger, one, two) = (
            Ledger::default(),
            MemoryAudit::new(10),
            MemoryAudit::new(10),
        );
        ledger.record(said("early")).await.unwrap();
        let first = Audit::start(one.clone(), 10).unwrap();
        ledger.join(&first).unwrap();
        ledger.record(said("alone")).await.unwrap();
        let second = Audit::start(two.clone(), 10).unwrap();
        ledger.join(&second).unwrap();
        ledger.record(said("both")).await.unwrap();
        drop(first);
        ledger.record(said("second")).await.unwrap();
        drop(second);
        ledger.record(said("late")).await.unwrap();
        assert_eq!(servers(&one), ["early", "alone", "both"]);
        assert_eq!(servers(&two), ["both", "second"]);
        let three = MemoryAudit::new(10);
        let third = Audit::start(three.clone(), 10).unwrap();
        ledger.join(&third).unwrap();
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
    async fn what_cannot_be_recorded_is_an_error() {
        let ledger = Ledger::default();
        let well = Audit::start(MemoryAudit::new(10), 10).unwrap();
        ledger.join(&well).unwrap();
        assert!(ledger.record(said("s")).await.is_ok());
        let full = Audit::start(Full, 10).unwrap();
        ledger.join(&full).unwrap();
        assert!(ledger.record(said("s")).await.is_err());

        let ledger = Ledger::default();
        for _ in 0..MOST_EARLY {
            ledger.record(said("s")).await.unwrap();
        }
        assert!(matches!(
            ledger.record(said("s")).await,
            Err(AuditError::Full)
        ));
    }
}
