//! Applies answers: ends questions, adds grants and replies to waiting calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::batch::{BatchAnswer, NotBatchable};
use super::super::broker::{AskOutcome, Exclusion};
use super::super::choices::MAX_PATTERNS;
use super::super::grants::UsedGrants;
use super::super::record::{NOBODY, UNUSABLE, answered, ended, holder, trace};
use super::super::{
    Answer, AuthorityError, DecidedBy, Decision, DeniedCalls, Lifetime, NewGrant, Question,
    QuestionState, Request,
};
use super::{BrokerState, CallRef, Drafts, Waiter};
use crate::audit::AnsweredStep;
use crate::effect::ExcludedChange;
use crate::id::{GrantId, QuestionId};
use crate::scope::Coverage;

/// A valid approval of a question.
struct Approval {
    question: QuestionId,
    request: Arc<Request>,
    patterns: Vec<Coverage>,
    lifetime: Lifetime,
    descendants: bool,
    exclusion: Option<Exclusion>,
}

impl Approval {
    fn new(
        question: &Question,
        patterns: &[Coverage],
        lifetime: Lifetime,
        descendants: bool,
        mut left_out: Vec<ExcludedChange>,
    ) -> Result<Self, AuthorityError> {
        left_out.retain(|part| !part.is_empty());
        let request = &question.request;
        let exclusion = if left_out.is_empty() {
            None
        } else {
            Some(Exclusion {
                sentence: request.without(&left_out)?.sentence,
                parts: left_out,
            })
        };
        let lasts = lifetime.waiting_calls().is_none();
        // A grant for later calls would also allow what was excluded from this call.
        let ends_at_once = lifetime == Lifetime::For(Duration::ZERO);
        if !request.fits(patterns) || (exclusion.is_some() && lasts) || ends_at_once {
            return Err(AuthorityError::DoesNotFit);
        }
        let patterns = request.granted_by(patterns);
        if lasts && patterns.len() > MAX_PATTERNS {
            return Err(AuthorityError::TooManyToLast(patterns.len()));
        }
        Ok(Self {
            question: question.id,
            patterns,
            request: Arc::clone(request),
            lifetime,
            descendants,
            exclusion,
        })
    }

    /// The grants that outlive the call.
    fn grants(&self) -> Vec<NewGrant> {
        let held = holder(&self.request, self.lifetime);
        let grants = held.into_iter().flat_map(|holder| {
            self.patterns.iter().map(move |pattern| NewGrant {
                pattern: pattern.clone(),
                holder: holder.clone(),
                lifetime: self.lifetime,
                descendants: self.descendants,
            })
        });
        grants.collect()
    }

    fn step(&self, by: DecidedBy, grants: Vec<GrantId>) -> AnsweredStep {
        let exclusion = self.exclusion.iter();
        AnsweredStep {
            patterns: self.patterns.clone(),
            lifetime: Some(self.lifetime),
            left_out: exclusion.flat_map(|one| one.parts.clone()).collect(),
            grants,
            ..ended(self.question, Decision::Granted, by, None)
        }
    }
}

impl BrokerState {
    /// Ends a question with an answer.
    pub(in super::super) fn answer(
        &mut self,
        id: QuestionId,
        answer: Answer,
        by: DecidedBy,
    ) -> Result<(), AuthorityError> {
        let now = self.end_overdue();
        let question = self.open(id)?;
        match answer {
            Answer::Deny {
                note,
                rest_of_session,
            } => {
                // Only a person can deny later calls.
                let silenced = rest_of_session.filter(|_| by == DecidedBy::Person);
                self.deny(&[id], (note.as_deref(), silenced), by, now)
            }
            Answer::Allow {
                patterns,
                lifetime,
                descendants,
                left_out,
            } => {
                let approval = Approval::new(question, &patterns, lifetime, descendants, left_out)?;
                self.allow(&[approval], by, now)
            }
        }
    }

    /// Ends all of these questions with one answer of a person, or none of them.
    pub(in super::super) fn answer_batch(
        &mut self,
        ids: &BTreeSet<QuestionId>,
        answer: BatchAnswer,
    ) -> Result<(), AuthorityError> {
        let now = self.end_overdue();
        let of = |question, source| AuthorityError::InBatch {
            question,
            source: Box::new(source),
        };
        let mut session = None;
        for id in ids {
            let question = self.open(*id).map_err(|error| of(*id, error))?;
            let request = &question.request;
            let one = session.get_or_insert(&request.session);
            let session = (*one != &request.session).then_some(NotBatchable::Session);
            if let Some(not_batchable) = request.not_batchable().or(session) {
                return Err(of(*id, AuthorityError::NotTogether(not_batchable)));
            }
        }
        match answer {
            BatchAnswer::Deny { note } => {
                let ids: Vec<QuestionId> = ids.iter().copied().collect();
                self.deny(&ids, (note.as_deref(), None), DecidedBy::Person, now)
            }
            BatchAnswer::Allow {
                pattern,
                lifetime,
                descendants,
            } => {
                let patterns: Vec<Coverage> = pattern.into_iter().collect();
                let approval = |id: &QuestionId| {
                    self.open(*id)
                        .and_then(|question| {
                            Approval::new(question, &patterns, lifetime, descendants, Vec::new())
                        })
                        .map_err(|error| of(*id, error))
                };
                let all = ids.iter().map(approval).collect::<Result<Vec<_>, _>>()?;
                self.allow(&all, DecidedBy::Person, now)
            }
        }
    }

    /// Ends a question with the answer of its approver; an answer without effect is a denial by the host, which says why.
    pub(in super::super) fn decide(&mut self, id: QuestionId, answer: Answer, by: DecidedBy) {
        if let Err(error) = self.answer(id, answer, by)
            && let Some(ended) = self.ledger.answer(id, None, (self.clock)())
        {
            tracing::warn!(question = %id, %error, "an answer could not be used");
            self.conclude(
                ended,
                DecidedBy::Host,
                Some(&format!("{UNUSABLE}: {error}")),
            );
        }
    }

    /// Denies all current and later questions, since the authority that could answer them was dropped.
    pub(in super::super) fn set_unattended(&mut self) {
        self.unattended = true;
        self.refuse_unattended();
    }

    /// Denies all open questions if nobody can answer.
    pub(in super::super) fn refuse_unattended(&mut self) {
        if !self.unattended {
            return;
        }
        let open: Vec<QuestionId> = self.ledger.questions().map(|open| open.id).collect();
        for id in open {
            let note = Some(NOBODY.to_owned());
            self.decide(id, Answer::deny(note), DecidedBy::Host);
        }
    }

    fn open(&self, id: QuestionId) -> Result<&Question, AuthorityError> {
        self.ledger
            .question(id)
            .ok_or_else(|| match self.ledger.state(id) {
                Some(QuestionState::Settled(decision)) => AuthorityError::Ended(decision),
                Some(QuestionState::Pending) | None => AuthorityError::NoQuestion,
            })
    }

    fn deny(
        &mut self,
        ids: &[QuestionId],
        (note, silenced): (Option<&str>, Option<DeniedCalls>),
        by: DecidedBy,
        now: Duration,
    ) -> Result<(), AuthorityError> {
        let asked = ids.iter().filter_map(|id| self.ledger.question(*id));
        let events = asked.map(|question| {
            let note = note.map(str::to_owned);
            let step = AnsweredStep {
                rest_of_session: silenced.is_some(),
                ..ended(question.id, Decision::Denied, by, note)
            };
            answered(&question.request, step)
        });
        self.audit.record_all(events.collect())?;
        for id in ids {
            if let Some(calls) = silenced {
                self.ledger.silence(*id, calls);
            }
            if let Some(ended) = self.ledger.answer(*id, None, now) {
                self.refuse(ended, by, note);
            }
        }
        Ok(())
    }

    /// Audits all approvals together, then adds the grants and answers the calls.
    fn allow(
        &mut self,
        all: &[Approval],
        by: DecidedBy,
        now: Duration,
    ) -> Result<(), AuthorityError> {
        let mut drafts = Drafts::default();
        for approval in all {
            let mut grants = Vec::new();
            // Uses are counted per question; without a count, equal questions share a grant.
            let counted = matches!(approval.lifetime, Lifetime::Uses(_));
            for new in approval.grants() {
                let mut others = drafts.grants.iter().filter(|_| !counted);
                let same = others.find(|(_, other)| *other == new).map(|(id, _)| *id);
                grants.push(match same {
                    Some(id) => id,
                    None => self.draft(&mut drafts, new, by)?,
                });
            }
            if counted {
                drafts.counted_together.push(grants.clone());
            }
            let step = approval.step(by, grants);
            drafts.events.push(answered(&approval.request, step));
        }
        self.enter(drafts)?;
        self.serve_waiters(all, now);
        Ok(())
    }

    /// Ends the questions and allows as many of the waiting calls as each answer covers; the others ask again.
    fn serve_waiters(&mut self, all: &[Approval], now: Duration) {
        let (mut first, mut more) = (Vec::new(), Vec::new());
        for approval in all {
            let (request, granted) = (&approval.request, Some(Decision::Granted));
            trace(
                request,
                request.call,
                approval.question,
                granted,
                "answered",
            );
            let ended = self
                .ledger
                .answer(approval.question, Some(&approval.patterns), now);
            self.hide(approval.question);
            // A call that no longer waits must not consume a use.
            let waiting = ended.into_iter().flat_map(|ended| ended.waiters);
            let waiting = waiting.filter(|waiter| !waiter.outcome_tx.is_closed());
            let mut waiting = (1..)
                .zip(waiting)
                .map(|(position, waiter)| (approval, position, waiter));
            first.extend(waiting.next());
            more.extend(waiting);
        }
        // The first call of each question comes first, so that no question takes a use of another.
        let mut unserved = Vec::new();
        for (approval, position, waiter) in first.into_iter().chain(more) {
            match self.serve(approval, position, &waiter) {
                Some(ruling) => waiter.reply(Ok(ruling)),
                None => unserved.push((approval, waiter)),
            }
        }
        for (approval, waiter) in unserved {
            let again = Request {
                call: waiter.call,
                ..Request::clone(&approval.request)
            };
            let id = self.ledger.ask_again(again, waiter, now);
            self.post_or_withdraw(id);
        }
    }

    /// The outcome for the waiting call at `position`; `None` if the approval allows no further call.
    fn serve(&mut self, approval: &Approval, position: u32, waiter: &Waiter) -> Option<AskOutcome> {
        let used = match approval.lifetime.waiting_calls() {
            Some(calls) if position > calls.get() => return None,
            Some(_) => UsedGrants {
                patterns: approval.patterns.clone(),
                ..UsedGrants::default()
            },
            None => {
                let of = CallRef {
                    call: waiter.call,
                    tool: approval.request.tool.clone(),
                    origin: approval.request.origin,
                };
                self.use_grants(&waiter.requester, &approval.request.needs, of)?
            }
        };
        Some(AskOutcome::Allowed(used, approval.exclusion.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use crate::fixtures::request;
    use crate::id::WorkerId;
    use crate::path::VirtualPath;
    use crate::permission::choices::{choices, sentence};
    use crate::permission::grants::{GrantTable, Requester};
    use crate::permission::{GrantHolder, Run, WaitingCalls};
    use crate::scope::{Operation, Reach, Scope, ScopePattern};
    use proptest::prelude::*;
    use std::num::NonZeroU32;
    use std::sync::Arc;

    const PATHS: &[&str] = &[
        "/r",
        "/r/a",
        "/r/a/b",
        "/r/a/b/c",
        "/r/a/d",
        "/r/ab",
        "/r/n/x",
        "/r/n",
        "/tmp/x",
        "/tmp",
        "/etc/apt/x",
        "/etc/apt",
    ];

    /// Commands, and tools of third-party servers.
    const OTHERS: &[&str] = &[
        "execute:command:make",
        "execute:command:make:test",
        "execute:command:cargo",
        "read:mcp:hub~1:list~2",
        "read:mcp:hub~1:resources/read:doc%3A//guide",
        "read:mcp:hub~1:prompts/get:review",
        "write:mcp:hub~1:push~3",
        "write:mcp:hub~1:drop~4",
        "write:mcp:other~5:push~3",
    ];

    fn need() -> impl Strategy<Value = Scope> {
        let operations = proptest::sample::subsequence(&Operation::ALL, 1..=3);
        let path = proptest::sample::select(PATHS);
        let file = (path, operations, any::<bool>()).prop_map(|(path, operations, beneath)| {
            let verb = operations[0].verb();
            let path = VirtualPath::parse(path, None).unwrap();
            let need = Scope::file(verb, path).only(operations.into_iter().collect());
            if beneath { need.beneath() } else { need }
        });
        let other = proptest::sample::select(OTHERS).prop_map(|text| text.parse().unwrap());
        prop_oneof![3 => file, 1 => other]
    }

    fn needs() -> impl Strategy<Value = Vec<Scope>> {
        proptest::collection::vec(need(), 1..4)
    }

    fn lifetime() -> impl Strategy<Value = Lifetime> {
        proptest::sample::select(vec![
            Lifetime::Once,
            Lifetime::Waiting(NonZeroU32::new(3).unwrap()),
            Lifetime::Uses(NonZeroU32::new(1000).unwrap()),
            Lifetime::For(Duration::from_secs(10)),
            Lifetime::Session,
            Lifetime::Agent,
        ])
    }

    /// Reads a sentence as a person does: does it describe `need`?
    fn describes(sentence: &str, need: &Scope) -> bool {
        sentence
            .split("; ")
            .filter(|part| !part.starts_with("sensitive"))
            .any(|part| {
                let part = part
                    .strip_suffix(", and with what it asks for")
                    .unwrap_or(part);
                let (words, reached) = match part.strip_suffix(", whatever it is given") {
                    Some(part) => {
                        let (words, tool) = part.split_once(" things with ").unwrap();
                        (words, is_tool(tool, need))
                    }
                    None if part.contains(" of hub") => {
                        let (words, place) = part.split_once(' ').unwrap();
                        (words, is_item(place, need))
                    }
                    None if part.starts_with("run ") => {
                        let program = part.strip_prefix("run ").unwrap();
                        let program = program.strip_suffix(" with any arguments").unwrap();
                        let all = program.strip_suffix(" and its subcommands");
                        let place = format!("command:{}", all.unwrap_or(program));
                        ("execute", is_at(&place, all.is_some(), need))
                    }
                    None => {
                        let part = part.strip_suffix(" (outside your project)").unwrap_or(part);
                        let all = part.strip_suffix(" and everything in it");
                        let (words, place) = all.unwrap_or(part).rsplit_once(' ').unwrap();
                        let place = format!("file:{place}");
                        (words, is_at(&place, all.is_some(), need))
                    }
                };
                let named = |operation: Operation| {
                    let mut words = words.split([' ', ',']);
                    words.any(|word| word == operation.as_str())
                };
                reached && need.operations().iter().all(named)
            })
    }

    /// Whether `need` is of this tool, such as `push of hub` or `every tool of hub`.
    fn is_tool(tool: &str, need: &Scope) -> bool {
        let (tool, server) = tool.split_once(" of ").unwrap();
        let text = need.to_string();
        let Some((of, one)) = text
            .split_once(":mcp:")
            .and_then(|(_, detail)| detail.split_once(':'))
        else {
            return false;
        };
        let unmarked = |name: &str| name.split('~').next().unwrap().to_owned();
        let all = tool == "every tool, resource and prompt";
        unmarked(of) == server && (all || unmarked(one) == tool)
    }

    /// Whether `need` is of this resource or prompt of `hub`, such as `every prompt of hub`.
    fn is_item(item: &str, need: &Scope) -> bool {
        let of = match item {
            "every resource of hub" => "resources/read",
            "the resource doc://guide of hub" => "resources/read:doc%3A//guide",
            "every prompt of hub" => "prompts/get",
            "the prompt review of hub" => "prompts/get:review",
            other => panic!("{other}"),
        };
        need.to_string()
            .starts_with(&format!("read:mcp:hub~1:{of}"))
    }

    /// Whether `need` is of the file or command at `place`, or beneath it.
    fn is_at(place: &str, beneath: bool, need: &Scope) -> bool {
        let text = need.to_string();
        let (_, at) = text.split_once(':').unwrap();
        let rest = at.strip_prefix(place);
        if beneath {
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
        } else {
            rest == Some("") && need.reach() == Reach::Exact
        }
    }

    proptest! {
        #![proptest_config(cases(512))]
        #[test]
        fn a_later_call_runs_unasked_exactly_if_the_sentence_describes_it(
            asked in needs(),
            later in proptest::collection::vec(needs(), 1..12),
            pick in any::<proptest::sample::Index>(),
            lifetime in lifetime(),
            descendants in any::<bool>(),
        ) {
            let roots = [VirtualPath::parse("/r", None).unwrap(), VirtualPath::parse("/r/n", None).unwrap()];
            let mut request = request(1, 1, &[]);
            request.choices = choices(&asked, &[ScopePattern::ANY], &roots, false);
            request.needs = asked;
            request.roots = roots.to_vec();
            let choice = request.choices[pick.index(request.choices.len())].clone();
            let shown = request.covers(&choice.patterns);
            prop_assert_eq!(&shown, &choice.sentence(&request.roots));
            let requester = Requester {
                worker: WorkerId(1),
                ancestors: [].into(),
                session: request.session.clone(),
                agent: request.agent_path.join("/").into(),
            };
            let question = Question {
                id: QuestionId(1),
                run: Run::default(),
                asked_at: Duration::ZERO,
                expires_at: Duration::from_secs(600),
                request: Arc::new(request),
                calls: WaitingCalls::default(),
            };
            let approval = Approval::new(&question, &choice.patterns, lifetime, descendants, Vec::new()).unwrap();
            prop_assert!(approval.request.needs.iter().all(|need| describes(&shown, need)));
            let mut grants = GrantTable::default();
            for (id, new) in (1..).zip(approval.grants()) {
                let alone = sentence(std::slice::from_ref(&new.pattern), &question.request.roots);
                let alone = alone.split("; ").next().unwrap().to_owned();
                prop_assert!(shown.split("; ").any(|part| part == alone), "{} in {}", alone, shown);
                grants.insert(GrantId(id), new, Duration::ZERO, 0);
            }
            let sub_agent = Requester {
                worker: WorkerId(2),
                ancestors: [WorkerId(1)].into(),
                session: Arc::clone(&requester.session),
                agent: format!("{}/tests", requester.agent).into(),
            };
            let lasts = lifetime.waiting_calls().is_none();
            for needs in later {
                // Of sub-agents, the button says so: "sub-agents too".
                let unasked = grants.use_grants(&sub_agent, &needs, Duration::from_secs(1)).is_some();
                let described = needs.iter().all(|need| describes(&shown, need));
                prop_assert_eq!(unasked, lasts && descendants && described, "sub-agent: {:?} by {:?}", needs, shown);
                let unasked = grants.use_grants(&requester, &needs, Duration::from_secs(1)).is_some();
                let described = needs.iter().all(|need| describes(&shown, need));
                prop_assert_eq!(unasked, lasts && described, "{:?} by {:?}", needs, shown);
                // For once, the sentence describes what the one call may do.
                let once = needs.iter().all(|need| choice.patterns.iter().any(|one| one.covers(need)));
                prop_assert_eq!(once, described, "{:?} by {:?}", needs, shown);
            }
            let other = Requester { worker: WorkerId(3), session: "other".into(), agent: "other".into(), ..requester };
            prop_assert!(grants.use_grants(&other, &approval.request.needs, Duration::from_secs(1)).is_none());
        }

        #[test]
        fn a_given_rule_allows_exactly_the_calls_that_its_sentence_describes(
            rule in need(),
            whole in any::<bool>(),
            later in proptest::collection::vec(needs(), 1..12),
        ) {
            let roots = [VirtualPath::parse("/r", None).unwrap()];
            let pattern = if whole { ScopePattern::of(&rule).into() } else { Coverage::of(&rule) };
            let shown = sentence(std::slice::from_ref(&pattern), &roots);
            let agent: Arc<str> = "main".into();
            let requester = Requester {
                worker: WorkerId(1),
                ancestors: [].into(),
                session: "session".into(),
                agent: Arc::clone(&agent),
            };
            let mut grants = GrantTable::default();
            let new = NewGrant { pattern, holder: GrantHolder::Agent(agent), lifetime: Lifetime::Agent, descendants: false };
            grants.insert(GrantId(1), new, Duration::ZERO, 0);
            let own = std::slice::from_ref(&rule);
            prop_assert!(grants.use_grants(&requester, own, Duration::ZERO).is_some());
            for needs in later.iter().map(Vec::as_slice).chain([own]) {
                let unasked = grants.use_grants(&requester, needs, Duration::ZERO).is_some();
                let described = needs.iter().all(|need| describes(&shown, need));
                prop_assert_eq!(unasked, described, "{:?} by {:?}", needs, shown);
            }
        }
    }
}
