//! What a person does with many questions and grants in, one answer for each out.

use super::batch::{Batch, batches};
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
    /// The open questions that a person can look at together.
    pub async fn batches(&self) -> Vec<Batch> {
        batches(&self.questions().await)
    }

    /// Answers several questions, each by its own answer; one that fails does not keep the others.
    pub async fn answer_each(
        &self,
        answers: impl IntoIterator<Item = (QuestionId, Answer)>,
    ) -> Vec<(QuestionId, Result<(), AuthorityError>)> {
        let mut told = Vec::new();
        for (question, answer) in answers {
            told.push((question, self.answer(question, answer).await));
        }
        told
    }

    /// Grants everything that `template` says for `roots`, or nothing. [`Template::rules`] shows it before.
    ///
    /// # Errors
    /// [`AuthorityError`] if the template does not fit the roots, there are too many grants or they cannot be recorded.
    pub async fn apply(
        &self,
        template: &Template,
        roots: &[VirtualPath],
        holder: &GrantHolder,
        lifetime: Lifetime,
    ) -> Result<Vec<GrantId>, AuthorityError> {
        let grants = template.grants(roots, holder, lifetime)?;
        self.broker().grant_all(grants).await
    }

    /// The live grants that `filter` admits, in the order they were given.
    pub async fn grants_where(&self, filter: &GrantFilter) -> Vec<GrantView> {
        let mut grants = self.grants().await;
        grants.retain(|grant| filter.admits(grant));
        grants
    }

    /// Takes back every live grant that `filter` admits, each with a record of its own; as [`Self::revoke`].
    ///
    /// # Errors
    /// [`AuthorityError::StillStored`] if they were taken back and only the store has some still,
    /// [`AuthorityError::Closed`].
    pub async fn revoke_where(&self, filter: GrantFilter) -> Result<GrantsRevoked, AuthorityError> {
        self.broker().revoke_where(filter).await
    }

    /// Leaves less of a grant. Where it covers less than before, or its holder's sub-agents lose it, what is under way by
    /// it is stopped as by [`Self::revoke`], and counted as one grant; otherwise none is.
    ///
    /// # Errors
    /// [`AuthorityError::Wider`] for a change that leaves more than there is, or that names a protected file which the
    /// grant does not name; [`AuthorityError`] if the grant is gone, or it cannot be recorded.
    pub async fn narrow(
        &self,
        grant: GrantId,
        change: Narrowing,
    ) -> Result<GrantsRevoked, AuthorityError> {
        let mut held = self.grants().await.into_iter();
        let held = held.find(|held| held.id == grant);
        let held = held.ok_or(AuthorityError::NoGrant)?;
        if change.uncovers(&held.pattern, |need| self.authority().protects(need)) {
            return Err(AuthorityError::Wider);
        }
        self.broker().narrow(grant, change).await
    }

    /// Rules that would have spared a person questions; see [`suggest`]. None is given by itself.
    #[must_use]
    pub fn suggestions(&self, history: &History) -> Vec<Suggestion> {
        suggest(history, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::audit::{Audit, MemoryAudit, Step};
    use crate::config::{Config, RootConfig};
    use crate::error::CallError;
    use crate::id::WorkerId;
    use crate::permission::broker::{Broker, BrokerConfig, Ruling};
    use crate::permission::tests::request;
    use crate::permission::{Claimant, Deferred, GrantStore, NewGrant, Request};
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
        let config = BrokerConfig {
            max_grants,
            store,
            ..BrokerConfig::default()
        };
        let broker = Broker::start(config, audit.clone(), Arc::new(Deferred)).await;
        let roots = Config::new().root(RootConfig::new(path("/r")));
        let authority = Authority::configured(&roots).unwrap();
        let grants = GrantAuthority::new(broker.unwrap(), authority);
        Stage { grants, audit, log }
    }

    fn claimant(request: &Request) -> Claimant {
        Claimant {
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

        /// Whether the next call of the first worker that needs this is spared a question.
        async fn serves(&self, need: &str) -> bool {
            let request = request(1, 1, &[need]);
            let needs = request.needs.clone().into();
            let redeemed = self.grants.broker().redeem(claimant(&request), needs).await;
            redeemed.unwrap().is_some()
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
        ) -> Vec<tokio::task::JoinHandle<Result<Ruling, CallError>>> {
            let asked = requests.len();
            let mut waiting = Vec::new();
            for request in requests {
                let broker = self.grants.broker().clone();
                let claimant = claimant(&request);
                waiting.push(tokio::spawn(async move {
                    broker.ask(request, claimant, None).await
                }));
            }
            while self.grants.questions().await.len() < asked {
                tokio::task::yield_now().await;
            }
            waiting
        }
    }

    const ME: GrantHolder = GrantHolder::Worker(WorkerId(1));

    #[tokio::test]
    async fn what_is_meant_is_taken_back_at_once_and_each_has_a_record() {
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
        let meant = stage.grants.grants_where(&filter).await;
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
                Step::GrantRevoked { grant } => Some(*grant),
                _ => None,
            })
            .collect();
        assert_eq!(revoked, [first, second]);
        let again = stage.grants.revoke_where(filter).await.unwrap();
        assert_eq!(again.grants, 0);
        assert!(ids(stage.grants.grants().await).contains(&kept));
    }

    #[tokio::test]
    async fn a_grant_is_narrowed_and_never_widened() {
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
        let told = |step: &&Step| matches!(step, Step::GrantNarrowed(_));
        assert_eq!(steps.iter().filter(told).count(), 2);
        let gone = stage.grants.narrow(GrantId(99), to("read")).await;
        assert!(matches!(gone, Err(AuthorityError::NoGrant)));
    }

    #[tokio::test]
    async fn a_template_is_applied_whole_or_not_at_all() {
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
        assert_eq!(stage.grants.grants().await, []);
        assert_eq!(apply(&["/r"]).await.unwrap().len(), 2);
        assert!(stage.serves("write:file:/r/x").await && stage.serves("read:file:/r/x").await);
        assert!(!stage.serves("write:file:/s/x").await);
    }

    #[tokio::test]
    async fn a_template_that_is_too_much_leaves_nothing_in_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants");
        let stage = stage_keeping(3, Some(GrantStore::open(&file).unwrap())).await;
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
    async fn questions_are_answered_together_and_each_by_itself() {
        let stage = stage(100).await;
        let requests = (1..=3).map(|n| request(n, n, &["write:file:/r/x"]));
        let mut waiting = stage.asking(requests.collect()).await;
        let batch = stage.grants.batches().await.swap_remove(0);
        assert_eq!(batch.items.len(), 3);
        let ids: Vec<QuestionId> = batch.items.iter().map(|item| item.question).collect();
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
        let told = stage.grants.answer_each(answers).await;
        let [(first, Ok(())), (second, Err(refused)), (third, Ok(()))] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!([*first, *second, *third], ids.as_slice());
        assert!(matches!(refused, AuthorityError::DoesNotFit));
        let left: Vec<QuestionId> = stage
            .grants
            .questions()
            .await
            .iter()
            .map(|one| one.id)
            .collect();
        assert_eq!(left, [ids[1]]);
        let denied = waiting.remove(2).await.unwrap().unwrap();
        assert!(matches!(denied, Ruling::Refused { .. }));
        let allowed = waiting.remove(0).await.unwrap().unwrap();
        assert!(matches!(allowed, Ruling::Allowed(..)));
    }
}
