//! Tests of the history.

use std::time::Duration;

use super::*;
use crate::audit::{
    AnsweredStep, AuditEvent, ChangeSummary, FailedStep, MemoryAudit, SignedInStep, Step,
};
use crate::call::Origin;
use crate::error::Code;
use crate::id::CallId;
use crate::permission::{GrantHolder, Narrowing};
use crate::policy::Verdict;

/// An audit that is written event by event; each is a second after the one before.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) history: History,
    at: u64,
    calls: u64,
}

impl Log {
    pub(crate) fn step(&mut self, worker: Option<u64>, agent: &str, step: Step) {
        self.call(worker, agent, None, step);
    }

    fn call(&mut self, worker: Option<u64>, agent: &str, call: Option<u64>, step: Step) {
        self.at += 1000;
        let event = AuditEvent {
            worker: worker.map(WorkerId),
            agent: agent.into(),
            call: call.map(CallId),
            tool: call.map(|_| ToolName::new("edit_file")),
            origin: Origin::Model,
            step,
        };
        let line = serde_json::json!({ "format": 2, "seq": 0, "at_ms": self.at, "event": event })
            .to_string();
        self.history.builder.take(&past(line.as_bytes()).unwrap());
    }

    pub(crate) fn spawn(&mut self, worker: u64, agent: &str) {
        let step = Step::Spawned {
            parent: None,
            session: format!("s{worker}").into(),
            policy: std::sync::Arc::default(),
        };
        self.step(Some(worker), agent, step);
    }

    fn ask(&mut self, agent: &str, question: u64, needs: &[&str]) -> u64 {
        self.calls += 1;
        let needs = needs.iter().map(|need| need.parse().unwrap()).collect();
        let question = QuestionId(question);
        let call = Some(self.calls);
        self.call(Some(1), agent, call, Step::Asked { question, needs });
        self.calls
    }

    fn answer(
        &mut self,
        agent: &str,
        question: u64,
        decision: Decision,
        lifetime: Option<Lifetime>,
        patterns: &[&str],
    ) {
        self.answer_by(agent, question, decision, None, lifetime, patterns);
    }

    fn answer_by(
        &mut self,
        agent: &str,
        question: u64,
        decision: Decision,
        by: Option<DecidedBy>,
        lifetime: Option<Lifetime>,
        patterns: &[&str],
    ) {
        let step = AnsweredStep {
            question: QuestionId(question),
            decision,
            by,
            patterns: patterns.iter().map(|text| text.parse().unwrap()).collect(),
            lifetime,
            note: (decision == Decision::Denied).then(|| "no".to_owned()),
            left_out: Vec::new(),
            grants: Vec::new(),
            rest_of_session: false,
        };
        self.step(Some(1), agent, Step::Answered(Box::new(step)));
    }

    fn plan(&mut self, agent: &str, call: u64, path: &str, op: Op) {
        let change = ChangeSummary {
            path: path.parse_path(),
            op,
            to: None,
            before_sha256: None,
            after_sha256: None,
            added: 0,
            removed: 0,
        };
        let step = Step::Planned {
            token: token(),
            changes: [change].into(),
            resources: [].into(),
        };
        self.call(Some(1), agent, Some(call), step);
    }

    /// Asks for `verb` on `path` and answers; an approval changes the file by `op`.
    pub(crate) fn asked(
        &mut self,
        agent: &str,
        question: u64,
        needs: &[&str],
        decision: Decision,
        op: Option<Op>,
    ) {
        let call = self.ask(agent, question, needs);
        let once = (decision == Decision::Granted).then_some(Lifetime::Once);
        self.answer(agent, question, decision, once, &[]);
        if let Some(op) = op.filter(|_| decision == Decision::Granted) {
            self.plan(agent, call, "/r/x", op);
        }
    }

    /// Asks for `needs` and is answered by somebody.
    pub(crate) fn asked_by(
        &mut self,
        question: u64,
        needs: &[&str],
        decision: Decision,
        by: DecidedBy,
    ) {
        self.ask("main", question, needs);
        self.answer_by("main", question, decision, Some(by), None, &[]);
    }

    /// Asks for `needs` and is allowed a part of the change, which is made.
    pub(crate) fn allowed_in_part(&mut self, agent: &str, question: u64, needs: &[&str]) {
        let call = self.ask(agent, question, needs);
        let left_out = crate::effect::ExcludedChange {
            path: "/r/x".parse_path(),
            hunks: Some(vec![0]),
        };
        let step = AnsweredStep {
            question: QuestionId(question),
            decision: Decision::Granted,
            by: Some(DecidedBy::Person),
            patterns: Vec::new(),
            lifetime: Some(Lifetime::Once),
            note: None,
            left_out: vec![left_out],
            grants: Vec::new(),
            rest_of_session: false,
        };
        self.step(Some(1), agent, Step::Answered(Box::new(step)));
        self.plan(agent, call, "/r/x", Op::Modify);
    }

    /// A grant of an agent that this run gave or took up.
    fn for_agent(&mut self, step: &str, at: u64) {
        self.kept(step, at, "write:file:/r/a", false);
    }

    fn kept(&mut self, step: &str, at: u64, pattern: &str, descendants: bool) {
        let event = serde_json::json!({
            "agent": "main", "step": step, "grant": 1, "pattern": pattern, "holder": {"agent": "main"},
            "lifetime": "agent", "descendants": descendants,
        });
        let line = serde_json::json!({ "at": at, "event": event }).to_string();
        self.history.builder.take(&past(line.as_bytes()).unwrap());
    }

    pub(crate) fn ruled(&mut self, agent: &str, need: &str) {
        let step = Step::Judged {
            verdict: Verdict::Deny,
            needs: [need.parse().unwrap()].into(),
            rule: Some("the layer of the agent".into()),
        };
        self.call(Some(1), agent, Some(1_000_000), step);
    }

    fn grant(&mut self, grant: u64, pattern: &str, lifetime: Lifetime) {
        let step = GrantedStep {
            grant: GrantId(grant),
            pattern: pattern.parse().unwrap(),
            holder: GrantHolder::Worker(WorkerId(1)),
            lifetime,
            descendants: false,
            by: Some(DecidedBy::Person),
        };
        self.step(Some(1), "", Step::Granted(Box::new(step)));
    }

    fn revoke(&mut self, grant: u64, cause: RevokeCause) {
        let step = Step::GrantRevoked {
            grant: GrantId(grant),
            cause: Some(cause),
        };
        self.step(Some(1), "", step);
    }

    fn use_grants(&mut self, grants: &[u64]) {
        let grants = grants.iter().copied().map(GrantId).collect();
        self.call(
            Some(1),
            "main",
            Some(2_000_000),
            Step::GrantUsed {
                grants,
                brought: [].into(),
            },
        );
    }

    fn judged(&mut self, call: u64, need: &str, verdict: Verdict) {
        let step = Step::Judged {
            verdict,
            needs: [need.parse().unwrap()].into(),
            rule: None,
        };
        self.call(Some(1), "main", Some(call), step);
    }

    fn applying(&mut self, call: u64) {
        let step = Step::Applying {
            token: token(),
            bytes: 0,
            files: 20_000,
        };
        self.call(Some(1), "main", Some(call), step);
    }

    fn applied(&mut self, call: u64) {
        let step = Step::Applied { token: token() };
        self.call(Some(1), "main", Some(call), step);
    }

    fn sent(&mut self, call: u64, preview: bool) {
        let step = Step::RemoteCall {
            server: "git".into(),
            tool_there: "push".into(),
            preview,
            arguments_sha256: token().0,
        };
        self.call(Some(1), "main", Some(call), step);
    }

    fn failed(&mut self, call: u64) {
        let step = Step::Failed(Box::new(FailedStep {
            code: Code::Deadline,
            message: "too late".into(),
            begun: true,
            done: None,
            removed: None,
        }));
        self.call(Some(1), "main", Some(call), step);
    }

    fn finished(&mut self, call: u64, code: Option<Code>) {
        let step = Step::Finished {
            code,
            bytes: 0,
            allowed: None,
        };
        self.call(Some(1), "main", Some(call), step);
    }

    /// The entries of calls, each with whether its effect began.
    fn calls(&self) -> Vec<(u64, CallOutcome, bool)> {
        let calls = self
            .history
            .entries()
            .filter_map(|entry| match &entry.event {
                HistoryEvent::Call(call) => Some((call.call?.0, call.outcome, call.begun)),
                _ => None,
            });
        calls.collect()
    }

    /// Each entry in one line.
    fn lines(&self) -> Vec<String> {
        let entries = self.history.entries();
        entries
            .map(|entry| {
                let decision = entry.decision.map_or("-".to_owned(), |decision| {
                    format!("{decision:?}").to_lowercase()
                });
                let what = match &entry.event {
                    HistoryEvent::Question(question) => {
                        format!("{} {:?}", question.question, question.needs)
                    }
                    HistoryEvent::Call(call) => format!("{:?} {:?}", call.outcome, call.needs),
                    HistoryEvent::Granted(step) => format!("{} {}", step.grant, step.pattern),
                    HistoryEvent::Unrecorded(step) => {
                        format!("{} {} without a record", step.grant, step.pattern)
                    }
                    HistoryEvent::Narrowed { step, .. } => format!("{} narrowed", step.grant),
                    HistoryEvent::Revoked { grant, .. } => format!("{grant} revoked"),
                    HistoryEvent::SignedIn(step) => format!("{} {:?}", step.server, step.scopes),
                };
                format!("{} {} {decision} {what}", entry.run, entry.agent)
            })
            .collect()
    }
}

trait ParsePath {
    fn parse_path(&self) -> crate::VirtualPath;
}

impl ParsePath for str {
    fn parse_path(&self) -> crate::VirtualPath {
        crate::VirtualPath::parse(self, None).unwrap()
    }
}

fn token() -> crate::effect::PreviewToken {
    crate::effect::PreviewToken(crate::effect::ContentHash::of(b"x"))
}

const NEED: &[&str] = &["write:file:/r/a/x"];

#[test]
fn each_question_has_one_entry_with_its_end() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.ask("main", 1, NEED);
    log.ask("main", 1, NEED);
    log.answer("main", 1, Decision::Denied, None, &[]);
    log.asked("main", 2, NEED, Decision::Expired, None);
    log.asked("main", 3, NEED, Decision::Cancelled, None);
    log.ruled("main", "write:file:/etc/x");
    log.asked("main", 4, NEED, Decision::Granted, Some(Op::Modify));
    log.ask("main", 5, NEED);
    assert_eq!(
        log.lines(),
        [
            "1 main denied q1 [\"write:file:/r/a/x\"]",
            "1 main expired q2 [\"write:file:/r/a/x\"]",
            "1 main cancelled q3 [\"write:file:/r/a/x\"]",
            "1 main denied Denied [\"write:file:/etc/x\"]",
            "1 main granted q4 [\"write:file:/r/a/x\"]",
            "1 main - q5 [\"write:file:/r/a/x\"]",
        ]
    );
    let by: Vec<DecidedBy> = log.history.entries().map(|entry| entry.by).collect();
    use DecidedBy::{Nobody, Person, Rule};
    assert_eq!(by, [Person, Nobody, Nobody, Rule, Person, Nobody]);
    let first = log.history.entries().next().unwrap();
    let HistoryEvent::Question(question) = &first.event else {
        panic!("{first:?}");
    };
    assert_eq!((first.at, question.ended_at), (2000, Some(4000)));
    assert_eq!(question.note.as_deref(), Some("no"));
}

#[test]
fn sign_in_decisions_have_entries_found_by_server() {
    let mut log = Log::default();
    for (server, allowed, by) in [
        ("mail", true, DecidedBy::Person),
        ("files", false, DecidedBy::Person),
        ("notes", false, DecidedBy::Nobody),
        ("chat", false, DecidedBy::Host),
    ] {
        let step = SignedInStep {
            server: server.into(),
            issuer: "https://a.example".into(),
            scopes: vec!["read".to_owned()],
            tool_there: None,
            allowed,
            by,
        };
        log.step(None, "", Step::SignedIn(Box::new(step)));
    }
    let found = ["mail", "files", "notes", "chat"].map(|server| {
        format!(
            "1  {} {server} [\"read\"]",
            if server == "mail" {
                "granted"
            } else {
                "denied"
            }
        )
    });
    assert_eq!(log.lines(), found);
    let by: Vec<_> = log.history.entries().map(|entry| entry.by).collect();
    let expected = [
        DecidedBy::Person,
        DecidedBy::Person,
        DecidedBy::Nobody,
        DecidedBy::Host,
    ];
    assert_eq!(by, expected);
    let reasons: Vec<_> = log
        .history
        .entries()
        .filter_map(|entry| Some(entry.denial()?.reason.into_owned()))
        .collect();
    let expected = [
        "a person declined to sign in",
        "nobody could be asked to sign in, or nobody did",
        "the browser brought no answer to what was asked",
    ];
    assert_eq!(reasons, expected);
    let at_mail = HistoryFilter {
        server: Some("mail".into()),
        ..HistoryFilter::default()
    };
    let found: Vec<_> = log.history.entries().map(|it| at_mail.admits(it)).collect();
    assert_eq!(found, [true, false, false, false]);
}

#[test]
fn ids_restart_with_each_run_and_open_questions_expire() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.ask("main", 1, NEED);
    log.spawn(1, "main");
    log.asked("main", 1, NEED, Decision::Granted, None);
    // A third run whose first word on permissions is a question that had ended.
    log.ask("main", 1, NEED);
    assert_eq!(
        log.lines(),
        [
            "1 main expired q1 [\"write:file:/r/a/x\"]",
            "2 main granted q1 [\"write:file:/r/a/x\"]",
            "3 main - q1 [\"write:file:/r/a/x\"]",
        ]
    );
    // The run ended first: nobody was late, and the agent was found nothing.
    let cut_off = log.history.entries().next().unwrap();
    assert_eq!(cut_off.denial(), None);
    // Another chain is another runtime, and says nothing of what this one has open.
    log.history.builder.begin_chain();
    log.spawn(1, "main");
    assert!(log.lines()[2].starts_with("3 main - q1"));
}

#[test]
fn grants_of_an_answer_are_part_of_its_entry() {
    let mut log = Log::default();
    log.spawn(1, "main/tests");
    log.grant(1, "write:file:/r", Lifetime::Session);
    log.ask("main/tests", 1, NEED);
    log.grant(2, "write:file:/r", Lifetime::Session);
    log.grant(3, "write:file:/r/a", Lifetime::Session);
    log.ruled("main/tests", "write:file:/etc/x");
    let (granted, session) = (Decision::Granted, Some(Lifetime::Session));
    log.answer("main/tests", 1, granted, session, &["write:file:/r/a"]);
    let narrowed = crate::audit::NarrowedStep {
        grant: GrantId(2),
        change: Narrowing {
            time: Some(Duration::from_secs(1)),
            ..Narrowing::default()
        },
    };
    log.step(Some(1), "", Step::GrantNarrowed(Box::new(narrowed)));
    log.revoke(2, RevokeCause::Person);
    assert_eq!(
        log.lines(),
        [
            "1 main/tests granted g1 write:file:/r",
            "1 main/tests granted q1 [\"write:file:/r/a/x\"]",
            "1 main/tests granted g2 write:file:/r",
            "1 main/tests denied Denied [\"write:file:/etc/x\"]",
            "1 main/tests - g2 narrowed",
            "1 main/tests - g2 revoked",
        ]
    );
    let question = log.history.entries().nth(1).unwrap();
    let HistoryEvent::Question(question) = &question.event else {
        panic!("{question:?}");
    };
    assert_eq!(question.grants, [GrantId(3)]);
}

#[test]
fn shared_grant_is_part_of_the_first_answer() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.ask("main", 1, NEED);
    log.ask("main", 2, &["write:file:/r/a/y"]);
    log.grant(1, "write:file:/r/a", Lifetime::Session);
    let (granted, session) = (Decision::Granted, Some(Lifetime::Session));
    for question in [1, 2] {
        log.answer("main", question, granted, session, &["write:file:/r/a"]);
    }
    let grants = log.history.entries().map(|entry| match &entry.event {
        HistoryEvent::Question(question) => question.grants.clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(grants.collect::<Vec<_>>(), [vec![GrantId(1)], vec![]]);
}

#[test]
fn call_that_used_grants_before_its_question_has_one_entry() {
    for decision in [Decision::Granted, Decision::Denied] {
        let mut log = Log::default();
        log.spawn(1, "main");
        let call = 1;
        log.judged(call, "write:file:/r/a", Verdict::Ask);
        for _ in 0..2 {
            let used = Step::GrantUsed {
                grants: [GrantId(1)].into(),
                brought: [].into(),
            };
            log.call(Some(1), "main", Some(call), used);
        }
        let granted = |history: &History| {
            let mut calls = history.entries().filter_map(|entry| match &entry.event {
                HistoryEvent::Call(call) => Some(call.grants.len()),
                _ => None,
            });
            calls.next()
        };
        assert_eq!(granted(&log.history), Some(1));
        assert_eq!(log.ask("main", 2, &["write:file:/r/b"]), call);
        log.answer("main", 2, decision, None, &[]);
        assert_eq!(granted(&log.history), None);
        assert_eq!(log.history.entries().count(), 1);
    }
}

#[test]
fn plan_belongs_to_the_question_only_after_approval() {
    let mut log = Log::default();
    log.spawn(1, "main");
    let call = log.ask("main", 1, NEED);
    log.plan("main", call, "/r/x", Op::Delete);
    log.answer("main", 1, Decision::Granted, Some(Lifetime::Once), &[]);
    log.plan("main", call, "/r/x", Op::Modify);
    log.plan("main", call, "/r/x", Op::Modify);
    let entry = log.history.entries().next().unwrap();
    let HistoryEvent::Question(question) = &entry.event else {
        panic!("{entry:?}");
    };
    assert_eq!(question.changes, [Op::Modify]);
}

#[track_caller]
fn admitted(filter: &HistoryFilter, expected: &[&str]) {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.asked("main", 1, NEED, Decision::Granted, None);
    log.asked("main/a", 2, NEED, Decision::Denied, None);
    log.asked("mainly", 3, NEED, Decision::Denied, None);
    log.ruled("other", "write:file:/etc/x");
    let entries = log.history.entries().filter(|entry| filter.admits(entry));
    let agents: Vec<&str> = entries.map(|entry| &*entry.agent).collect();
    assert_eq!(agents, expected, "{filter:?}");
}

#[test]
fn every_condition_of_a_filter_must_hold() {
    let all = HistoryFilter::default;
    admitted(&all(), &["main", "main/a", "mainly", "other"]);
    let agent = || HistoryFilter {
        agent: Some("main".into()),
        ..all()
    };
    admitted(&agent(), &["main", "main/a"]);
    let denied = || HistoryFilter {
        decision: Some(Decision::Denied),
        ..all()
    };
    admitted(&denied(), &["main/a", "mainly", "other"]);
    admitted(
        &HistoryFilter {
            decision: denied().decision,
            ..agent()
        },
        &["main/a"],
    );
    let tool = |name: &str| HistoryFilter {
        tool: Some(ToolName::new(name)),
        ..all()
    };
    admitted(&tool("edit_file"), &["main", "main/a", "mainly", "other"]);
    admitted(&tool("delete"), &[]);
    admitted(
        &HistoryFilter {
            since: Some(4000),
            until: Some(8000),
            ..all()
        },
        &["main/a", "mainly"],
    );
}

#[test]
fn entries_and_grants_are_filtered_by_session_and_server() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.spawn(2, "other");
    log.asked("main", 1, NEED, Decision::Granted, None);
    log.asked("main", 2, &["write:mcp:git:push"], Decision::Denied, None);
    log.asked("main", 3, &["write:mcp:git-x:push"], Decision::Denied, None);
    log.grant(1, "write:mcp:git", Lifetime::Session);
    log.grant(2, "write:file:/r", Lifetime::Session);
    log.grant(3, "write:mcp:git", Lifetime::Session);
    let narrowed = crate::audit::NarrowedStep {
        grant: GrantId(3),
        change: Narrowing {
            holder_only: true,
            ..Narrowing::default()
        },
    };
    log.step(Some(1), "", Step::GrantNarrowed(Box::new(narrowed)));
    for grant in [1, 2] {
        log.revoke(grant, RevokeCause::Person);
    }
    log.for_agent("granted", 20_000);
    let found = |filter: &HistoryFilter| {
        let entries = log.history.entries().filter(|entry| filter.admits(entry));
        let report = log.history.report(filter);
        (entries.count(), report.all.questions(), report.grants.len())
    };
    let session = |name: &str| HistoryFilter {
        session: Some(name.into()),
        ..HistoryFilter::default()
    };
    let server = |name: &str| HistoryFilter {
        server: Some(name.into()),
        ..HistoryFilter::default()
    };
    assert_eq!(found(&session("s1")), (9, 3, 3));
    assert_eq!(found(&session("s2")), (0, 0, 0));
    assert_eq!(found(&server("git")), (5, 1, 2));
    assert_eq!(found(&server("git-x")), (1, 1, 0));
    for none in ["gi", "", "*", "git:push:x"] {
        assert_eq!(found(&server(none)), (0, 0, 0), "{none}");
    }
    let both = HistoryFilter {
        server: Some("git".into()),
        ..session("s1")
    };
    assert_eq!(found(&both), (5, 1, 2));
    // An older record does not say in which session a worker is.
    let mut older = History::new();
    for event in [
        r#"{"agent":"main","worker":1,"step":"spawned"}"#,
        r#"{"agent":"main","worker":1,"step":"answered","question":1,"decision":"denied"}"#,
    ] {
        let line = format!(r#"{{"at":1,"event":{event}}}"#);
        older.builder.take(&past(line.as_bytes()).unwrap());
    }
    let entry = older.entries().next().unwrap();
    assert_eq!((entry.session.as_ref(), &*entry.agent), (None, "main"));
    assert!(!session("s1").admits(entry));
}

#[test]
fn report_counts_uses_repeated_questions_and_approvals() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.grant(1, "write:file:/r", Lifetime::Session);
    log.grant(2, "write:file:/s", Lifetime::Session);
    log.use_grants(&[1, 7]);
    log.use_grants(&[1]);
    for (question, agent) in [(1, "main"), (2, "main"), (3, "main/a")] {
        log.asked(agent, question, NEED, Decision::Granted, None);
    }
    log.asked("main", 4, NEED, Decision::Denied, None);
    log.asked("main", 5, NEED, Decision::Expired, None);
    log.revoke(2, RevokeCause::Person);
    let report = log.history.report(&HistoryFilter::default());
    assert_eq!(
        (report.all.questions(), report.all.approve_rate()),
        (5, Some(75))
    );
    let rates: Vec<_> = report
        .agents
        .iter()
        .map(|(agent, tally)| (&**agent, tally.approve_rate()))
        .collect();
    assert_eq!(rates, [("main", Some(66)), ("main/a", Some(100))]);
    let uses: Vec<_> = report
        .grants
        .iter()
        .map(|grant| {
            (
                grant.grant.0,
                grant.uses,
                grant.pattern.is_some(),
                grant.ended_at.is_some(),
            )
        })
        .collect();
    assert_eq!(
        uses,
        [
            (1, 2, true, false),
            (2, 0, true, true),
            (7, 1, false, false)
        ]
    );
    assert_eq!(report.unused().count(), 1);
    let repeated: Vec<_> = report
        .repeated
        .iter()
        .map(|asked| (&*asked.agent, asked.tally.questions()))
        .collect();
    assert_eq!(repeated, [("main", 4)]);
    let of_a = HistoryFilter {
        agent: Some("main/a".into()),
        ..HistoryFilter::default()
    };
    let report = log.history.report(&of_a);
    assert_eq!((report.all.questions(), report.grants.len()), (1, 0));
    assert_eq!(Tally::default().approve_rate(), None);
}

#[test]
fn uses_of_a_grant_are_counted_across_runs() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.for_agent("granted", 10);
    log.use_grants(&[1]);
    log.for_agent("restored", 20);
    log.spawn(1, "main");
    log.use_grants(&[1]);
    log.grant(2, "write:file:/r/b", Lifetime::Session);
    let report = log.history.report(&HistoryFilter::default());
    let found: Vec<_> = report
        .grants
        .iter()
        .map(|grant| (grant.run, grant.grant.0, grant.uses, grant.given_at))
        .collect();
    assert_eq!(found, [(1, 1, 2, Some(10)), (2, 2, 0, Some(4000 + 1000))]);
    assert_eq!(log.lines()[0], "1 main granted g1 write:file:/r/a");
    assert_eq!(log.lines().len(), 4);
}

/// The uses of grants by run, number, uses and whether the pattern is known.
fn uses(log: &Log) -> Vec<(u64, u64, u64, bool)> {
    let report = log.history.report(&HistoryFilter::default());
    let of = |grant: &GrantUse| {
        (
            grant.run,
            grant.grant.0,
            grant.uses,
            grant.pattern.is_some(),
        )
    };
    report.grants.iter().map(of).collect()
}

#[test]
fn restored_grant_without_record_has_its_own_entry() {
    let check = |pattern: &str, descendants, merged| {
        let mut log = Log::default();
        log.spawn(1, "main");
        log.for_agent("granted", 10);
        log.use_grants(&[1]);
        log.kept("restored", 20, pattern, descendants);
        log.spawn(1, "main");
        log.use_grants(&[1]);
        let expected = if merged {
            vec![(1, 1, 2, true)]
        } else {
            vec![(1, 1, 1, true), (2, 1, 1, true)]
        };
        assert_eq!(uses(&log), expected, "{pattern}");
        let found = format!("2 main granted g1 {pattern} without a record");
        assert_eq!(log.lines().contains(&found), !merged, "{:?}", log.lines());
    };
    check("write:file:/r/a", false, true);
    check("write:file:/r/a/x", false, true);
    check("write:file:/r/b", false, false);
    check("write:file:/r", false, false);
    check("write:file:/r/a", true, false);
}

#[test]
fn uses_of_restored_grant_without_record_are_counted() {
    let mut log = Log::default();
    for at in [10, 20, 30] {
        log.for_agent("restored", at);
        log.spawn(1, "main");
        log.use_grants(&[1]);
    }
    assert_eq!(uses(&log), [(1, 1, 3, true)]);
    assert_eq!(
        log.lines(),
        [
            "1 main granted g1 write:file:/r/a without a record",
            "1 main granted Open []",
            "2 main granted Open []",
            "3 main granted Open []",
        ]
    );
}

#[test]
fn grant_restored_after_other_steps_begins_a_run() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.for_agent("restored", 10);
    log.spawn(1, "main");
    log.use_grants(&[1]);
    assert_eq!(uses(&log), [(2, 1, 1, true)]);
}

#[test]
fn separate_once_grant_is_not_part_of_a_once_answer() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.ask("main", 1, NEED);
    let once = Some(Lifetime::Once);
    log.grant(1, "write:file:/r/a", Lifetime::Once);
    log.answer("main", 1, Decision::Granted, once, &["write:file:/r/a"]);
    assert_eq!(
        log.lines(),
        [
            "1 main granted q1 [\"write:file:/r/a/x\"]",
            "1 main granted g1 write:file:/r/a",
        ]
    );
    let question = log.history.entries().next().unwrap();
    let HistoryEvent::Question(question) = &question.event else {
        panic!("{question:?}");
    };
    assert_eq!(question.grants, []);
}

#[test]
fn partial_approval_is_one_entry() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.allowed_in_part("main", 1, NEED);
    log.asked("main", 2, NEED, Decision::Granted, None);
    let left_out = log.history.entries().map(|entry| match &entry.event {
        HistoryEvent::Question(question) => question.left_out.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(left_out.collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn entry_is_one_line_of_json() {
    let mut log = Log::default();
    log.spawn(1, "main");
    log.asked("main", 1, NEED, Decision::Denied, None);
    let entry = log.history.entries().next().unwrap();
    assert_eq!(
        serde_json::to_value(entry).unwrap(),
        serde_json::json!({
            "run": 1, "at": 2000, "agent": "main", "session": "s1", "worker": 1, "tool": "edit_file", "origin": "model", "decision": "denied", "by": "person",
            "entry": "question", "question": 1, "needs": NEED, "ended_at": 3000, "note": "no",
        })
    );
    log.asked(
        "main",
        2,
        &["write:file:/r/\u{202e}x"],
        Decision::Granted,
        None,
    );
    let exported = log.history.export(&HistoryFilter::default()).unwrap();
    assert_eq!(exported.lines().count(), 2);
    assert!(exported.ends_with('\n') && exported.contains("/r/\\u202ex"));
}

#[tokio::test]
async fn broken_chain_is_read_up_to_the_break() {
    let sink = MemoryAudit::new(100);
    let audit = crate::audit::Audit::start(sink.clone(), 100).unwrap();
    for question in 1..=3 {
        let step = AnsweredStep {
            question: QuestionId(question),
            decision: Decision::Denied,
            by: None,
            patterns: Vec::new(),
            lifetime: None,
            note: None,
            left_out: Vec::new(),
            grants: Vec::new(),
            rest_of_session: false,
        };
        let event = AuditEvent {
            step: Step::Answered(Box::new(step)),
            ..crate::audit::tests::failed("x")
        };
        audit.record(event).unwrap();
    }
    audit.flush().await.unwrap();
    let lines: Vec<String> = sink
        .records()
        .iter()
        .map(|record| format!("{}\n", record.line()))
        .collect();
    let mut whole = History::new();
    let (first, rest) = lines.split_at(1);
    whole.read(first.concat().as_bytes()).unwrap();
    whole.read(rest.concat().as_bytes()).unwrap();
    let runs =
        |history: &History| -> Vec<u64> { history.entries().map(|entry| entry.run).collect() };
    assert_eq!(runs(&whole), [1, 1, 1]);
    whole.read(lines.concat().as_bytes()).unwrap();
    assert_eq!(runs(&whole), [1, 1, 1, 2, 2, 2]);
    let mut added = History::new();
    for record in sink.records() {
        added.add(&record).unwrap();
    }
    assert_eq!(runs(&added), [1, 1, 1]);
    let mut changed = lines;
    changed[1] = changed[1].replace("denied", "granted");
    let mut broken = History::new();
    let error = broken.read(changed.concat().as_bytes()).unwrap_err();
    assert!(matches!(
        (error.line, error.reason),
        (2, BreakReason::Changed)
    ));
    assert_eq!(runs(&broken), [1]);
    let torn = changed[0].len() - 2;
    let torn = History::new()
        .read(&changed[0].as_bytes()[..torn])
        .unwrap_err();
    assert!(matches!(torn.reason, BreakReason::Torn));
}

#[test]
fn decider_is_read_as_recorded_and_absent_in_older_records() {
    let by = |step: &str, more: &str| {
        let mut history = History::new();
        let event = format!(r#"{{"agent":"main","worker":1,"step":"{step}"{more}}}"#);
        let line = format!(r#"{{"at":1,"event":{event}}}"#);
        history.builder.take(&past(line.as_bytes()).unwrap());
        let entry = history.entries().next().unwrap();
        serde_json::to_value(entry).unwrap()["by"].clone()
    };
    let answered = |decision: &str, by_whom: &str| {
        let more = format!(r#","question":1,"decision":"{decision}"{by_whom}"#);
        by("answered", &more)
    };
    for (decision, older) in [
        ("granted", "person"),
        ("denied", "person"),
        ("expired", "nobody"),
        ("cancelled", "nobody"),
    ] {
        assert_eq!(answered(decision, ""), older);
        assert_eq!(answered(decision, r#","by":"host""#), "host");
    }
    for (cause, expected) in [
        ("", "nobody"),
        (r#","cause":"person""#, "person"),
        (r#","cause":"worker_ended""#, "host"),
        (r#","cause":"session_ended""#, "host"),
        (r#","cause":"not_stored""#, "host"),
    ] {
        let more = format!(r#","grant":1{cause}"#);
        assert_eq!(by("grant_revoked", &more), expected, "{cause}");
    }
    for (giver, expected) in [
        (r#""by":"person""#, "person"),
        (r#""by":"host""#, "host"),
        (r#""origin":"human""#, "person"),
        (r#""origin":"host""#, "host"),
        (r#""mood":"calm""#, "nobody"),
    ] {
        let more = format!(
            r#","grant":1,"pattern":"read","holder":{{"agent":"main"}},"lifetime":"agent","descendants":false,{giver}"#
        );
        assert_eq!(by("granted", &more), expected, "{giver}");
    }
}

/// A call that a person allowed, and one that the policy allows; the effect of both began.
fn log_of_two_effects() -> (Log, u64) {
    let mut log = Log::default();
    log.spawn(1, "main");
    let asked = log.ask("main", 1, NEED);
    log.answer("main", 1, Decision::Granted, Some(Lifetime::Once), &[]);
    log.plan("main", asked, "/r/x", Op::Modify);
    log.applying(asked);
    log.judged(10, NEED[0], Verdict::Allow);
    log.plan("main", 10, "/r/t", Op::Delete);
    log.applying(10);
    (log, asked)
}

#[test]
fn effect_without_recorded_end_is_open_until_the_next_run_and_failed_then() {
    let (mut log, asked) = log_of_two_effects();
    let open = |call| (call, CallOutcome::Open, true);
    assert_eq!(log.calls(), [open(asked), open(10)]);
    log.spawn(1, "main");
    let failed = |call| (call, CallOutcome::Failed, true);
    assert_eq!(log.calls(), [failed(asked), failed(10)]);
    let entry = log.history.entries().last().unwrap();
    let HistoryEvent::Call(call) = &entry.event else {
        panic!("{entry:?}");
    };
    assert_eq!((entry.run, call.code, &call.message), (1, None, &None));
    assert_eq!(call.changes, [Op::Delete]);
    assert_eq!(call.needs.len(), 1);
    let report = log.history.report(&HistoryFilter::default());
    let counted: Vec<_> = report
        .calls
        .iter()
        .map(|one| (one.outcome, one.calls))
        .collect();
    assert_eq!(counted, [(CallOutcome::Failed, 2)]);
}

#[test]
fn effect_with_recorded_end_has_that_outcome() {
    let (mut log, asked) = log_of_two_effects();
    for call in [asked, 10] {
        log.applied(call);
        log.finished(call, None);
    }
    log.spawn(1, "main");
    assert_eq!(log.calls(), [(10, CallOutcome::Applied, false)]);
    let first = log.history.entries().next().unwrap();
    let HistoryEvent::Question(question) = &first.event else {
        panic!("{first:?}");
    };
    assert_eq!(question.applied, 1);

    let (mut log, asked) = log_of_two_effects();
    for call in [asked, 10] {
        log.failed(call);
        log.finished(call, Some(Code::Deadline));
    }
    let failed = |call| (call, CallOutcome::Failed, true);
    assert_eq!(log.calls(), [failed(asked), failed(10)]);
    // The effect of the second ends although its caller did not wait for it.
    log.applied(10);
    log.spawn(1, "main");
    let late = (10, CallOutcome::Applied, true);
    assert_eq!(log.calls(), [failed(asked), late]);
}

#[test]
fn remote_change_without_recorded_end_is_marked_as_begun() {
    let mut log = Log::default();
    log.spawn(1, "main");
    let need = "write:mcp:git:push";
    for call in [10, 11, 12, 13] {
        log.judged(call, need, Verdict::Allow);
    }
    log.judged(14, "read:mcp:git:log", Verdict::Allow);
    log.sent(10, false);
    log.sent(11, false);
    log.finished(11, None);
    log.sent(12, true);
    log.sent(13, false);
    log.sent(14, false);
    // The server of this call did nothing but ask for more, and nobody allowed that.
    log.judged(13, need, Verdict::Ask);
    log.spawn(1, "main");
    assert_eq!(
        log.calls(),
        [
            (10, CallOutcome::Failed, true),
            (11, CallOutcome::Answered, false),
        ]
    );
}
