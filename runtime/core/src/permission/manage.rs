//! Operations of people on many questions and grants.

use super::batch::BatchAnswer;
use super::settings::{GrantFilter, Narrowing};
use super::suggest::{Suggestion, suggest};
use super::template::Template;
use super::{
    Answer, AuthorityError, GrantAuthority, GrantHolder, GrantView, GrantsRevoked, History,
    Lifetime,
};
use crate::id::{GrantId, QuestionId};
use crate::path::VirtualPath;

impl GrantAuthority {
    /// Answers several questions, each with its own answer; a failure does not affect the others.
    pub async fn answer_each(
        &self,
        answers: impl IntoIterator<Item = (QuestionId, Answer)>,
    ) -> Vec<(QuestionId, Result<(), AuthorityError>)> {
        let mut results = Vec::new();
        for (question, answer) in answers {
            results.push((question, self.answer(question, answer).await));
        }
        results
    }

    /// Answers several questions of one session, all or none: each must be open and the pattern must be valid for it, as in
    /// [`Self::answer`]. Other questions stay open. Equal grants of the same worker are given once, except those that count
    /// uses. Grants to agents are on disk when this returns.
    ///
    /// # Errors
    /// [`AuthorityError::InBatch`] with the first question that cannot be answered this way; [`AuthorityError`] if there are
    /// too many grants, or they cannot be audited or stored. Questions of several sessions, and those that are
    /// [`NotBatchable`](super::NotBatchable), are [`AuthorityError::NotTogether`].
    pub async fn answer_batch(
        &self,
        questions: impl IntoIterator<Item = QuestionId>,
        answer: BatchAnswer,
    ) -> Result<(), AuthorityError> {
        let questions = questions.into_iter().collect();
        self.broker().answer_batch(questions, answer).await
    }

    /// Gives the grants of `template` for `roots`, all or none. [`Template::rules`] returns their patterns.
    ///
    /// # Errors
    /// [`AuthorityError`] if the template is invalid for the roots, there are too many grants or they cannot be audited.
    pub async fn apply(
        &self,
        template: &Template,
        roots: &[VirtualPath],
        holder: &GrantHolder,
        lifetime: Lifetime,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        let mut grants = template.grants(roots, holder, lifetime)?;
        for grant in &mut grants {
            grant.pattern = self.grantable(&grant.pattern)?;
        }
        self.broker().grant_all(grants).await
    }

    /// Returns the live grants that match `filter`, in the order in which they were given.
    ///
    /// # Errors
    /// [`AuthorityError::Closed`]
    pub async fn grants_where(
        &self,
        filter: &GrantFilter,
    ) -> Result<Vec<GrantView>, AuthorityError> {
        let mut grants = self.grants().await?;
        grants.retain(|grant| filter.admits(grant));
        Ok(grants)
    }

    /// Revokes all live grants that match `filter`, as by [`Self::revoke`]; each has an audit record.
    ///
    /// # Errors
    /// [`AuthorityError::StillStored`] if they were revoked but some could not be removed from the store;
    /// [`AuthorityError::Closed`].
    pub async fn revoke_where(&self, filter: GrantFilter) -> Result<GrantsRevoked, AuthorityError> {
        self.broker().revoke_where(filter).await
    }

    /// Narrows a grant. If it covers less than before, or its holder's descendants lose it, calls that use it are
    /// stopped as by [`Self::revoke`], and the result counts one grant. If the change cannot be stored or audited, the
    /// grant is revoked, and its calls are stopped without waiting for their end.
    ///
    /// # Errors
    /// [`AuthorityError::Wider`] if the change would widen the grant, or names a protected file that the grant does not name;
    /// [`AuthorityError::Audit`] if it cannot be audited and the grant is unchanged; [`AuthorityError::Store`] if the grant was
    /// revoked instead; [`AuthorityError::StillStored`] if, in addition, it could not be removed from the store;
    /// [`AuthorityError`] if the grant has ended.
    pub async fn narrow(
        &self,
        grant: GrantId,
        mut change: Narrowing,
    ) -> Result<GrantsRevoked, AuthorityError> {
        if let Some(pattern) = &mut change.pattern {
            *pattern = self.marked(pattern)?;
        }
        let mut held = self.grants().await?.into_iter();
        let held = held.find(|held| held.id == grant);
        let held = held.ok_or(AuthorityError::NoGrant)?;
        if change.uncovers(&held.pattern, |need| self.authority().protects(need)) {
            return Err(AuthorityError::Wider);
        }
        self.broker().narrow(grant, change).await
    }

    /// Returns rules that would have prevented questions to a person; see [`suggest`]. They are not granted
    /// automatically.
    #[must_use]
    pub fn suggestions(&self, history: &History) -> Vec<Suggestion> {
        suggest(history, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;
    use crate::audit::{Audit, AuditSink, Head, MemoryAudit, Record, Step};
    use crate::config::{Config, RootConfig};
    use crate::error::CallError;
    use crate::fixtures::shown;
    use crate::id::WorkerId;
    use crate::permission::broker::{AskOutcome, Broker, BrokerConfig};
    use crate::permission::{
        DecidedBy, Decision, Deferred, GrantStore, HistoryEvent, NewGrant, NotBatchable, Question,
        Request, Requester,
    };
    use crate::policy::Authority;
    use crate::scope::Verb;

    struct Stage {
        grants: GrantAuthority,
        audit: Audit,
        log: MemoryAudit,
    }

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    async fn stage(max_grants: usize) -> Stage {
        stage_keeping(max_grants, None).await
    }

    async fn stage_keeping(max_grants: usize, store: Option<GrantStore>) -> Stage {
        let log = MemoryAudit::new(1000);
        let audit = Audit::start(log.clone(), 1000).unwrap();
        stage_with(max_grants, store, audit, log).await
    }

    async fn stage_with(
        max_grants: usize,
        store: Option<GrantStore>,
        audit: Audit,
        log: MemoryAudit,
    ) -> Stage {
        let config = BrokerConfig {
            max_grants,
            store,
            ..BrokerConfig::default()
        };
        let broker = Broker::start(config, audit.clone(), Arc::new(Deferred)).await;
        let roots = Config::new()
            .root(RootConfig::new(path("/r")))
            .root(RootConfig::new(path("/s")));
        let authority = Authority::configured(&roots).unwrap();
        let grants = GrantAuthority::new(broker.unwrap(), authority, Arc::default(), Weak::new());
        Stage { grants, audit, log }
    }

    fn requester(request: &Request) -> Requester {
        Requester {
            worker: request.worker,
            ancestors: [].into(),
            session: Arc::clone(&request.session),
            agent: request.agent_path.join("/").into(),
        }
    }

    impl Stage {
        async fn give(&self, holder: &GrantHolder, pattern: &str) -> GrantId {
            let grant = NewGrant {
                pattern: pattern.parse().unwrap(),
                holder: holder.clone(),
                lifetime: Lifetime::Session,
                descendants: false,
            };
            self.grants.grant(grant).await.unwrap()
        }

        /// Whether the next call of the first worker that needs this asks no question.
        async fn serves(&self, need: &str) -> bool {
            let request = request(1, 1, &[need]);
            let needs = request.needs.clone().into();
            let call = crate::permission::CallRef {
                call: request.call,
                tool: request.tool.clone(),
                origin: request.origin,
            };
            let used = self
                .grants
                .broker()
                .use_grants(requester(&request), needs, call)
                .await;
            used.unwrap().is_some()
        }

        async fn steps(&self) -> Vec<Step> {
            self.audit.flush().await.unwrap();
            let records = self.log.records();
            let steps = records.iter().map(|record| record.event().step.clone());
            steps.collect()
        }

        /// Asks on tasks of their own, and returns once all are asked.
        async fn asking(
            &self,
            requests: Vec<Request>,
        ) -> Vec<tokio::task::JoinHandle<Result<AskOutcome, CallError>>> {
            let asked = requests.len();
            let mut waiting = Vec::new();
            for request in requests {
                let broker = self.grants.broker().clone();
                let requester = requester(&request);
                waiting.push(tokio::spawn(async move {
                    broker.ask(request, requester, None).await
                }));
            }
            let all = |open: &[Question]| (open.len() == asked).then_some(());
            self.grants.broker().wait_for_questions(all).await;
            waiting
        }
    }

    /// A request that shows what it would do.
    fn request(worker: u64, argument: u64, needs: &[&str]) -> Request {
        shown(crate::fixtures::request(worker, argument, needs))
    }

    const ME: GrantHolder = GrantHolder::Worker(WorkerId(1));

    #[tokio::test]
    async fn matching_grants_are_revoked_and_each_is_audited() {
        let stage = stage(100).await;
        let other = GrantHolder::Worker(WorkerId(2));
        let first = stage.give(&ME, "write:file:/r/a").await;
        let kept = stage.give(&ME, "read:file:/r/a").await;
        let second = stage.give(&ME, "write:file:/r/b").await;
        stage.give(&other, "write:file:/r/a").await;
        let filter = GrantFilter {
            worker: Some(WorkerId(1)),
            verb: Some(Verb::Write),
            ..GrantFilter::default()
        };
        let ids = |grants: Vec<GrantView>| -> Vec<GrantId> {
            grants.iter().map(|grant| grant.id).collect()
        };
        let meant = stage.grants.grants_where(&filter).await.unwrap();
        assert_eq!(ids(meant), [first, second]);
        assert!(stage.serves("write:file:/r/a/x").await);
        let revoked = stage.grants.revoke_where(filter.clone()).await.unwrap();
        assert_eq!((revoked.grants, revoked.unfinished), (2, 0));
        assert!(!stage.serves("write:file:/r/a/x").await);
        assert!(stage.serves("read:file:/r/a/x").await);
        let steps = stage.steps().await;
        let revoked: Vec<GrantId> = steps
            .iter()
            .filter_map(|step| match step {
                Step::GrantRevoked { grant, .. } => Some(*grant),
                _ => None,
            })
            .collect();
        assert_eq!(revoked, [first, second]);
        let again = stage.grants.revoke_where(filter).await.unwrap();
        assert_eq!(again.grants, 0);
        assert!(ids(stage.grants.grants().await.unwrap()).contains(&kept));
    }

    #[tokio::test]
    async fn grant_without_effect_is_rejected_with_the_reason() {
        let stage = stage(100).await;
        let grant = async |pattern: &str| {
            let grant = NewGrant {
                pattern: pattern.parse().unwrap(),
                holder: ME,
                lifetime: Lifetime::Session,
                descendants: false,
            };
            stage.grants.grant(grant).await
        };
        for beyond in ["write:file:/etc", "execute:file:/r", "read:clock"] {
            let refused = grant(beyond).await.unwrap_err();
            assert!(
                matches!(refused, AuthorityError::NotGrantable(_)),
                "{refused}"
            );
            assert!(refused.to_string().contains("`grantable`"), "{refused}");
        }
        assert_eq!(stage.grants.grants().await.unwrap(), []);
        for within in ["write:file:/r/a", "write:file", "read"] {
            grant(within).await.unwrap();
        }
    }

    #[tokio::test]
    async fn operations_and_reach_of_a_grant_can_be_narrowed() {
        let stage = stage(100).await;
        let grant = stage.give(&ME, "write:file:/r/a").await;
        let less = Narrowing {
            operations: Some(crate::scope::Operation::Change.into()),
            ..Narrowing::default()
        };
        assert_eq!(stage.grants.narrow(grant, less).await.unwrap().grants, 1);
        assert!(
            !stage.serves("write:file:/r/a").await,
            "no longer all of the verb"
        );
        let more = Narrowing {
            operations: Some(crate::scope::Operation::Delete.into()),
            ..Narrowing::default()
        };
        let wider = stage.grants.narrow(grant, more).await;
        assert!(matches!(wider, Err(AuthorityError::Wider)));
        let exact = Narrowing {
            reach: Some(crate::scope::Reach::Exact),
            ..Narrowing::default()
        };
        stage.grants.narrow(grant, exact).await.unwrap();
        let left = stage.grants.grants().await.unwrap().remove(0).pattern;
        assert_eq!(left.sentence(), "change /r/a");
    }

    #[tokio::test]
    async fn grant_is_narrowed_and_never_widened() {
        let stage = stage(100).await;
        let grant = stage.give(&ME, "write:file:/r").await;
        let to = |pattern: &str| Narrowing {
            pattern: Some(pattern.parse().unwrap()),
            ..Narrowing::default()
        };
        for wider in ["write", "*:file:/r", "write:file:/r/.mcp.json"] {
            let refused = stage.grants.narrow(grant, to(wider)).await;
            assert!(matches!(refused, Err(AuthorityError::Wider)), "{wider}");
        }
        assert!(stage.serves("write:file:/r/b").await);
        let narrowed = stage.grants.narrow(grant, to("write:file:/r/a")).await;
        assert_eq!(narrowed.unwrap().grants, 1);
        assert!(!stage.serves("write:file:/r/b").await);
        assert!(stage.serves("write:file:/r/a/x").await);
        let named = stage.give(&ME, "write:file:/r/.mcp.json").await;
        let same = stage
            .grants
            .narrow(named, to("write:file:/r/.mcp.json"))
            .await;
        assert_eq!(same.unwrap(), GrantsRevoked::default());
        let steps = stage.steps().await;
        let results = |step: &&Step| matches!(step, Step::GrantNarrowed(_));
        assert_eq!(steps.iter().filter(results).count(), 2);
        let gone = stage.grants.narrow(GrantId(99), to("read")).await;
        assert!(matches!(gone, Err(AuthorityError::NoGrant)));
    }

    #[tokio::test]
    async fn template_is_applied_completely_or_not_at_all() {
        let stage = stage(3).await;
        let editor = Template::built_in().swap_remove(2);
        let apply = async |roots: &[&str]| {
            let roots: Vec<VirtualPath> = roots.iter().map(|root| path(root)).collect();
            let applied = stage.grants.apply(&editor, &roots, &ME, Lifetime::Session);
            applied.await
        };
        let no_root = apply(&[]).await;
        assert!(matches!(no_root, Err(AuthorityError::Template(_))));
        let too_many = apply(&["/r", "/s"]).await;
        assert!(matches!(too_many, Err(AuthorityError::TooMany)));
        assert_eq!(stage.grants.grants().await.unwrap(), []);
        assert_eq!(apply(&["/r"]).await.unwrap().len(), 2);
        assert!(stage.serves("write:file:/r/x").await && stage.serves("read:file:/r/x").await);
        assert!(!stage.serves("write:file:/s/x").await);
    }

    #[tokio::test]
    async fn template_that_exceeds_the_limit_stores_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants");
        let stage = stage_keeping(3, Some(GrantStore::open(&file).unwrap())).await;
        assert!(stage.grants.stores_grants());
        let editor = Template::built_in().swap_remove(2);
        let agent = GrantHolder::Agent("main".into());
        let apply = async |roots: &[VirtualPath]| {
            let applied = stage.grants.apply(&editor, roots, &agent, Lifetime::Agent);
            applied.await
        };
        let too_many = apply(&[path("/r"), path("/s")]).await;
        assert!(matches!(too_many, Err(AuthorityError::TooMany)));
        assert_eq!(GrantStore::read(&file).unwrap(), []);
        let applied = apply(&[path("/r")]).await.unwrap();
        let stored = GrantStore::read(&file).unwrap();
        let ids: Vec<GrantId> = stored.iter().map(|grant| grant.id).collect();
        assert_eq!(ids, applied);
    }

    #[tokio::test]
    async fn questions_can_be_answered_together_or_one_by_one() {
        let stage = stage(100).await;
        let requests = (1..=3).map(|n| request(n, n, &["write:file:/r/x"]));
        let mut waiting = stage.asking(requests.collect()).await;
        let ids = [1, 2, 3].map(QuestionId);
        let beyond = Answer::Allow {
            patterns: vec!["read".parse().unwrap()],
            lifetime: Lifetime::Once,
            descendants: false,
            left_out: Vec::new(),
        };
        let answers = [
            (ids[0], Answer::ONCE),
            (ids[1], beyond),
            (ids[2], Answer::DENY),
        ];
        let results = stage.grants.answer_each(answers).await;
        let [(first, Ok(())), (second, Err(refused)), (third, Ok(()))] = results.as_slice() else {
            panic!("{results:?}");
        };
        assert_eq!([*first, *second, *third], ids.as_slice());
        assert!(matches!(refused, AuthorityError::DoesNotFit));
        let left: Vec<QuestionId> = stage
            .grants
            .questions()
            .await
            .unwrap()
            .iter()
            .map(|one| one.id)
            .collect();
        assert_eq!(left, [ids[1]]);
        let denied = waiting.remove(2).await.unwrap().unwrap();
        assert!(matches!(denied, AskOutcome::Refused { .. }));
        let allowed = waiting.remove(0).await.unwrap().unwrap();
        assert!(matches!(allowed, AskOutcome::Allowed(..)));
    }

    fn allowed(pattern: Option<&str>, lifetime: Lifetime) -> BatchAnswer {
        BatchAnswer::Allow {
            pattern: pattern.map(|pattern| pattern.parse().unwrap()),
            lifetime,
            descendants: false,
        }
    }

    impl Stage {
        async fn open(&self) -> Vec<u64> {
            let questions = self.grants.questions().await.unwrap();
            questions.iter().map(|question| question.id.0).collect()
        }

        /// How the questions that ended did, each with the patterns that were allowed.
        async fn ends(&self) -> Vec<(u64, Decision, usize)> {
            let steps = self.steps().await.into_iter();
            let ends = steps.filter_map(|step| match step {
                Step::Answered(step) => Some((step.question.0, step.decision, step.patterns.len())),
                _ => None,
            });
            ends.collect()
        }
    }

    const WANTED: [(u64, &str); 4] = [
        (1, "write:file:/r/a/x"),
        (1, "write:file:/r/a/y"),
        (2, "write:file:/r/a/z"),
        (2, "write:file:/r/b"),
    ];

    /// Four questions of two workers.
    async fn four(stage: &Stage) -> Vec<tokio::task::JoinHandle<Result<AskOutcome, CallError>>> {
        let requests = (1..).zip(WANTED);
        let requests = requests.map(|(n, (worker, need))| request(worker, n, &[need]));
        stage.asking(requests.collect()).await
    }

    #[tokio::test]
    async fn batch_answer_ends_only_the_selected_questions() {
        let stage = stage(100).await;
        let mut waiting = four(&stage).await;
        let ids = [1, 2, 3, 4].map(QuestionId);
        let folder = allowed(Some("write:file:/r/a"), Lifetime::Session);
        let answer = stage.grants.answer_batch(ids[..3].to_vec(), folder);
        answer.await.unwrap();
        assert_eq!(stage.open().await, [4]);
        let granted = |id| (id, Decision::Granted, 1);
        assert_eq!(stage.ends().await, [granted(1), granted(2), granted(3)]);
        // One grant for each worker, however many of its questions were ticked.
        let holders = stage.grants.grants().await.unwrap();
        let holders = holders.iter().map(|grant| match &grant.holder {
            GrantHolder::Session { worker, .. } => worker.0,
            other => panic!("{other:?}"),
        });
        assert_eq!(holders.collect::<Vec<_>>(), [1, 2]);
        for call in waiting.drain(..3) {
            assert!(matches!(
                call.await.unwrap().unwrap(),
                AskOutcome::Allowed(..)
            ));
        }
        let deny = BatchAnswer::Deny {
            note: Some("not now".to_owned()),
        };
        stage.grants.answer_batch([ids[3]], deny).await.unwrap();
        let AskOutcome::Refused { note, by, .. } = waiting.remove(0).await.unwrap().unwrap() else {
            panic!("it was allowed");
        };
        assert_eq!((note.as_deref(), by), (Some("not now"), DecidedBy::Person));
        assert_eq!(stage.open().await, [0; 0]);
    }

    impl Stage {
        /// Asks once more for the first worker; whether a person is asked.
        async fn is_heard(&self, argument: u64) -> bool {
            let asked = self.open().await.len();
            let request = request(1, argument, &["write:file:/r/a/x"]);
            let (broker, requester) = (self.grants.broker(), requester(&request));
            let asking = broker.clone();
            let mut asking =
                tokio::spawn(async move { asking.ask(request, requester, None).await.is_ok() });
            let more = |open: &[Question]| (open.len() > asked).then_some(());
            tokio::select! {
                _ = &mut asking => false,
                () = broker.wait_for_questions(more) => true,
            }
        }
    }

    #[tokio::test]
    async fn batch_denial_does_not_deny_later_calls() {
        let stage = stage(100).await;
        let requests = (1..=3).map(|n| request(1, n, &["write:file:/r/a/x"]));
        let _waiting = stage.asking(requests.collect()).await;
        let deny = || BatchAnswer::Deny { note: None };
        let answer = async |ids: std::ops::RangeInclusive<u64>| {
            let ids = ids.map(QuestionId);
            stage.grants.answer_batch(ids, deny()).await.unwrap();
        };
        answer(1..=3).await;
        assert!(stage.is_heard(4).await);
        answer(4..=4).await;
        assert!(stage.is_heard(5).await);
        answer(5..=5).await;
        assert!(stage.is_heard(6).await);
    }

    #[tokio::test]
    async fn shared_question_does_not_consume_uses_of_its_batch() {
        let stage = stage(100).await;
        let [first, second] =
            [(1, "write:file:/r/a/x"), (2, "write:file:/r/a/y")].map(|(n, need)| {
                let request = request(1, n, &[need]);
                let broker = stage.grants.broker().clone();
                move || {
                    let (broker, request) = (broker.clone(), request.clone());
                    let requester = requester(&request);
                    tokio::spawn(async move { broker.ask(request, requester, None).await })
                }
            });
        let (one, same, other) = (first(), first(), second());
        let both = |open: &[Question]| match open {
            [one, other] => (one.waiting() + other.waiting() == 3).then_some(()),
            _ => None,
        };
        stage.grants.broker().wait_for_questions(both).await;
        let once = Lifetime::Uses(std::num::NonZeroU32::MIN);
        let answer = allowed(Some("write:file:/r/a"), once);
        let ids = [1, 2].map(QuestionId);
        stage.grants.answer_batch(ids, answer).await.unwrap();
        for call in [one, other] {
            let ruling = tokio::time::timeout(std::time::Duration::from_secs(20), call).await;
            assert!(matches!(
                ruling.unwrap().unwrap(),
                Ok(AskOutcome::Allowed(..))
            ));
        }
        assert!(!same.is_finished());
        assert_eq!(stage.open().await, [3], "the second call asks again");
    }

    #[tokio::test]
    async fn history_lists_every_grant_of_a_batch_with_its_question() {
        let stage = stage(100).await;
        let wanted = [
            &["write:file:/r/a"][..],
            &["write:file:/r/a", "write:file:/r/b"],
        ];
        let requests = (1..).zip(wanted).map(|(n, needs)| request(1, n, needs));
        let _waiting = stage.asking(requests.collect()).await;
        let answer = allowed(None, Lifetime::Session);
        let ids = [1, 2].map(QuestionId);
        stage.grants.answer_batch(ids, answer).await.unwrap();
        stage.audit.flush().await.unwrap();
        let mut history = History::new();
        for record in stage.log.records() {
            history.add(&record).unwrap();
        }
        let results: Vec<Vec<u64>> = history
            .entries()
            .map(|entry| match &entry.event {
                HistoryEvent::Question(question) => {
                    question.grants.iter().map(|grant| grant.0).collect()
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(results, [vec![1], vec![1, 2]]);
    }

    #[tokio::test]
    async fn unbatchable_questions_are_not_answered_together() {
        let stage = stage(100).await;
        let mut requests: Vec<Request> = (1..=6)
            .map(|n| request(n, n, &["write:file:/r/a/x"]))
            .collect();
        requests[2].sensitive = true;
        requests[3].session = "another".into();
        requests[4].server = Some("hub".into());
        requests[5].preview = None;
        let _waiting = stage.asking(requests).await;
        let not_batchable = [
            NotBatchable::Sensitive,
            NotBatchable::Session,
            NotBatchable::Server,
            NotBatchable::Unshown,
        ];
        for ((other, not_batchable), allows) in (3..)
            .zip(not_batchable)
            .zip([true, false].into_iter().cycle())
        {
            let answer = if allows {
                allowed(None, Lifetime::Once)
            } else {
                BatchAnswer::Deny { note: None }
            };
            let ids = [1, other].map(QuestionId);
            let refused = stage.grants.answer_batch(ids, answer).await;
            let Err(AuthorityError::InBatch { question, source }) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(question.0, other);
            assert!(matches!(*source, AuthorityError::NotTogether(why) if why == not_batchable));
        }
        assert_eq!(stage.open().await, [1, 2, 3, 4, 5, 6]);
        let answer = allowed(None, Lifetime::Once);
        let ids = [1, 2].map(QuestionId);
        stage.grants.answer_batch(ids, answer).await.unwrap();
        assert_eq!(stage.open().await, [3, 4, 5, 6]);
    }

    #[tokio::test]
    async fn uses_are_counted_for_each_question_of_a_batch() {
        let stage = stage(100).await;
        let waiting = four(&stage).await;
        let once = Lifetime::Uses(std::num::NonZeroU32::MIN);
        let ids = [1, 2].map(QuestionId);
        let answer = allowed(Some("write:file:/r/a"), once);
        stage.grants.answer_batch(ids, answer).await.unwrap();
        for call in waiting.into_iter().take(2) {
            assert!(matches!(
                call.await.unwrap().unwrap(),
                AskOutcome::Allowed(..)
            ));
        }
        assert_eq!(stage.grants.grants().await.unwrap(), []);
    }

    #[tokio::test]
    async fn answer_beyond_a_call_grants_no_more_than_its_sentence_names() {
        let stage = stage(100).await;
        let session = |patterns: &[&str]| Answer::Allow {
            patterns: patterns.iter().map(|text| text.parse().unwrap()).collect(),
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        };
        let folder = session(&["write:file:/r"]);
        for (id, count, answer, refused) in [
            (1, 20, session(&[]), None),
            (2, 21, session(&[]), Some(21)),
            (3, 21, folder, None),
            (4, 21, Answer::ONCE, None),
        ] {
            let needs: Vec<String> = (0..count)
                .map(|n| format!("write:file:/r/{id}/{n}"))
                .collect();
            let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
            let mut asked = request(id, id, &needs);
            asked.max_grantable = vec!["write:file:/r".parse().unwrap()];
            let _waiting = stage.asking(vec![asked]).await;
            let answered = stage.grants.answer(QuestionId(id), answer).await;
            match (answered, refused) {
                (Ok(()), None) => {}
                (Err(AuthorityError::TooManyToLast(most)), Some(expected)) => {
                    assert_eq!(most, expected);
                }
                (other, _) => panic!("{id}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn batch_is_answered_completely_or_not_at_all() {
        let stage = stage(1).await;
        let _waiting = four(&stage).await;
        let ids =
            |ids: &[u64]| -> Vec<QuestionId> { ids.iter().copied().map(QuestionId).collect() };
        let refused = async |ticked: &[u64], answer| {
            let refused = stage.grants.answer_batch(ids(ticked), answer).await;
            match refused.unwrap_err() {
                AuthorityError::InBatch { question, source } => (question.0, *source),
                other => (0, other),
            }
        };
        let folder = |lifetime| allowed(Some("write:file:/r/a"), lifetime);
        let beyond = refused(&[1, 4], folder(Lifetime::Once)).await;
        assert!(matches!(beyond, (4, AuthorityError::DoesNotFit)));
        let wide = allowed(Some("read"), Lifetime::Once);
        assert!(matches!(
            refused(&[1, 2], wide).await,
            (1, AuthorityError::DoesNotFit)
        ));
        let unknown = refused(&[1, 9], allowed(None, Lifetime::Once)).await;
        assert!(matches!(unknown, (9, AuthorityError::NoQuestion)));
        let unknown = refused(&[1, 9], BatchAnswer::Deny { note: None }).await;
        assert!(matches!(unknown, (9, AuthorityError::NoQuestion)));
        let many = refused(&[1, 3], folder(Lifetime::Session)).await;
        assert!(matches!(many, (0, AuthorityError::TooMany)));
        assert_eq!(stage.open().await, [1, 2, 3, 4]);
        assert_eq!(stage.ends().await, []);
        assert_eq!(stage.grants.grants().await.unwrap(), []);

        let fits = stage
            .grants
            .answer_batch(ids(&[1, 2]), folder(Lifetime::Session));
        fits.await.unwrap();
        let late = refused(&[2, 3], allowed(None, Lifetime::Once)).await;
        let ended = AuthorityError::Ended(Decision::Granted).to_string();
        assert_eq!((late.0, late.1.to_string()), (2, ended));
        assert_eq!(stage.open().await, [3, 4]);
        // Nothing ticked is nothing to answer.
        let none = stage
            .grants
            .answer_batch([], BatchAnswer::Deny { note: None });
        none.await.unwrap();
    }

    #[tokio::test]
    async fn unstored_grant_is_audited_as_rolled_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants");
        let stage = stage_keeping(3, Some(GrantStore::open(&file).unwrap())).await;
        // Nothing can be written where a folder has the name.
        #[expect(clippy::disallowed_methods, reason = "the disk is spoiled on purpose")]
        std::fs::create_dir(folder.path().join("grants.new")).unwrap();
        let grant = NewGrant {
            pattern: "write:file:/r".parse().unwrap(),
            holder: GrantHolder::Agent("main".into()),
            lifetime: Lifetime::Agent,
            descendants: false,
        };
        let unstored = stage.grants.grant(grant).await;
        assert!(matches!(unstored, Err(AuthorityError::Store(_))));
        let steps = stage.steps().await;
        let [Step::Granted(given), Step::GrantRevoked { grant, cause }] = steps.as_slice() else {
            panic!("{steps:?}");
        };
        assert_eq!(given.grant, *grant);
        assert_eq!(*cause, Some(crate::permission::RevokeCause::NotStored));
        assert_eq!(stage.grants.grants().await.unwrap(), []);
    }

    /// An audit whose syncs wait, each for one message.
    struct Stepwise {
        log: MemoryAudit,
        begun: tokio::sync::mpsc::UnboundedSender<()>,
        go_on: std::sync::mpsc::Receiver<()>,
    }

    impl AuditSink for Stepwise {
        fn head(&self) -> Head {
            self.log.head()
        }

        fn keep(&mut self, records: &[Record]) -> std::io::Result<()> {
            self.log.keep(records)
        }

        fn sync(&mut self) -> std::io::Result<()> {
            self.begun.send(()).map_err(std::io::Error::other)?;
            self.go_on.recv().map_err(std::io::Error::other)
        }
    }

    #[tokio::test]
    async fn narrowing_is_not_acknowledged_while_the_wide_grant_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants");
        let stored = || -> Vec<String> {
            let grants = GrantStore::read(&file).unwrap().into_iter();
            grants.map(|grant| grant.pattern.to_string()).collect()
        };
        let log = MemoryAudit::new(100);
        let (begun, mut syncs) = tokio::sync::mpsc::unbounded_channel();
        let (go_on_tx, go_on) = std::sync::mpsc::channel();
        let sink = Stepwise {
            log: log.clone(),
            begun,
            go_on,
        };
        let audit = Audit::start(sink, 100).unwrap();
        let store = GrantStore::open(&file).unwrap();
        let stage = stage_with(100, Some(store), audit, log).await;
        let grants = Arc::new(stage.grants);
        let narrow = |id, pattern: &str| {
            let (grants, pattern) = (Arc::clone(&grants), Some(pattern.parse().unwrap()));
            let change = Narrowing {
                pattern,
                ..Narrowing::default()
            };
            tokio::spawn(async move { grants.narrow(id, change).await })
        };

        go_on_tx.send(()).unwrap();
        let wide = NewGrant {
            pattern: "write:file:/r".parse().unwrap(),
            holder: GrantHolder::Agent("main".into()),
            lifetime: Lifetime::Agent,
            descendants: false,
        };
        let id = grants.grant(wide).await.unwrap();
        syncs.recv().await.unwrap();
        assert_eq!(stored(), ["write:file:/r"]);

        let first = narrow(id, "write:file:/r/a");
        syncs.recv().await.unwrap();
        let mut changes = grants.changes();
        let second = narrow(id, "write:file:/r/a/b");
        while grants.grants().await.unwrap()[0].pattern.to_string() != "write:file:/r/a/b" {
            changes.next().await.unwrap();
        }
        go_on_tx.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(stored(), [""; 0], "the second narrowing waits for its sync");
        go_on_tx.send(()).unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(stored(), ["write:file:/r/a/b"]);
    }
}
