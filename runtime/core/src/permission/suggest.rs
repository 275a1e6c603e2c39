//! Suggests rules that would have prevented questions to a person, from a history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::{Decision, History, HistoryEntry, HistoryEvent, Lifetime};
use crate::effect::Op;
use crate::error::Code;
use crate::path::VirtualPath;
use crate::policy::Authority;
use crate::scope::{Coverage, Operation, Scope, ScopePattern, Verb};

/// Minimum number of similar calls that a person allowed before a rule is suggested.
const OFTEN: usize = 3;
/// Minimum number of names in the path of a rule: whole roots are never suggested.
const DEEP: usize = 2;

/// A suggested rule. It is not granted automatically.
///
/// [`Coverage::sentence`] says what it would allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Suggestion {
    /// The agent that asked.
    pub agent: Arc<str>,
    /// The folder that contains everything that was allowed, or the file. For writes it covers creating and changing.
    #[serde(flatten)]
    pub pattern: Coverage,
    /// `Session` if one worker asked all questions, which then holds the rule; otherwise `Agent`.
    pub lifetime: Lifetime,
    /// How many of the questions in this history it would have prevented.
    pub spares: usize,
}

/// One question that a person allowed and that a rule could have answered.
struct Allowed<'h> {
    /// The run and worker that asked.
    by: (u64, Option<crate::id::WorkerId>),
    paths: Vec<&'h VirtualPath>,
}

/// Returns rules for what people allowed an agent at least three times. A rule covers the deepest folder that contains
/// all of it, if the path of the folder has at least two names, or else the file.
///
/// Only two kinds of calls count: reads, and changes that were allowed completely and whose plans create or modify
/// files. Calls about sensitive files do not count, and no rule is at, above or beneath anything that was denied to any
/// agent. Equal histories result in equal suggestions, regardless of the order of their entries.
#[must_use]
pub fn suggest(history: &History, authority: &Authority) -> Vec<Suggestion> {
    let mut refused: Vec<&Scope> = Vec::new();
    let mut allowed: BTreeMap<(&Arc<str>, Verb), Vec<Allowed<'_>>> = BTreeMap::new();
    for entry in history.entries() {
        match entry.decision {
            Some(Decision::Denied) if is_refusal(entry) => refused.extend(entry.event.needs()),
            Some(Decision::Granted) => {
                if let Some((verb, paths)) = plain(entry, authority) {
                    let by = (entry.run, entry.worker);
                    let of = allowed.entry((&entry.agent, verb)).or_default();
                    of.push(Allowed { by, paths });
                }
            }
            Some(_) | None => {}
        }
    }
    let mut suggestions: Vec<Suggestion> = allowed
        .into_iter()
        .flat_map(|((agent, verb), questions)| rules(agent, verb, questions, &refused))
        .collect();
    let order = |one: &Suggestion| {
        let spares = std::cmp::Reverse(one.spares);
        (spares, Arc::clone(&one.agent), one.pattern.clone())
    };
    suggestions.sort_by_cached_key(order);
    suggestions
}

/// Whether it was denied because of its needs, not because nobody was asked or too many questions were asked.
fn is_refusal(entry: &HistoryEntry) -> bool {
    match &entry.event {
        HistoryEvent::Call(call) => call.code.is_none_or(|code| code == Code::PermissionDenied),
        _ => true,
    }
}

/// The verb and paths of a question that a rule could answer; `None` if people should still be asked.
fn plain<'h>(
    entry: &'h HistoryEntry,
    authority: &Authority,
) -> Option<(Verb, Vec<&'h VirtualPath>)> {
    let (needs, changes) = match &entry.event {
        // A rule would allow all of it, but the person allowed only a part.
        HistoryEvent::Question(question) if question.left_out.is_empty() => {
            (&question.needs, &question.changes)
        }
        // The host asked a person, and its client sent the grant.
        HistoryEvent::Call(call) if !call.brought.is_empty() => (&call.needs, &call.changes),
        _ => return None,
    };
    let verb = needs.first()?.verb();
    let may = match verb {
        Verb::Read => true,
        Verb::Write => removes_nothing(changes),
        Verb::Execute => false,
    };
    // Protected files are sensitive for reading, too.
    let is_protected = |need: &Scope| authority.protects(&need.with_verb(Verb::Write));
    let fits = |need: &&Scope| need.verb() == verb && !is_protected(need);
    let paths = needs.iter().map(|need| need.path().filter(|_| fits(&need)));
    let paths: Vec<&VirtualPath> = paths.collect::<Option<_>>()?;
    (may && !entry.agent.is_empty()).then_some((verb, paths))
}

/// Whether the call is known to have deleted and moved nothing.
fn removes_nothing(changes: &[Op]) -> bool {
    let keeps = |op: &Op| match op {
        Op::Create | Op::Modify | Op::MakeDirectory | Op::Copy => true,
        Op::Delete | Op::Move => false,
    };
    !changes.is_empty() && changes.iter().all(keeps)
}

/// The rules for one agent and verb, the deepest first; each question is counted for one of them.
fn rules(
    agent: &Arc<str>,
    verb: Verb,
    mut questions: Vec<Allowed<'_>>,
    refused: &[&Scope],
) -> Vec<Suggestion> {
    let paths_above: BTreeSet<VirtualPath> = questions
        .iter()
        .flat_map(|question| &question.paths)
        .flat_map(|path| std::iter::successors(Some((*path).clone()), VirtualPath::parent))
        .filter(|folder| folder.depth() >= DEEP)
        .collect();
    let mut paths_above: Vec<VirtualPath> = paths_above.into_iter().collect();
    paths_above.sort_by_key(|folder| std::cmp::Reverse(folder.depth()));
    let mut rules = Vec::new();
    for folder in paths_above {
        let beneath = |question: &Allowed<'_>| {
            let mut paths = question.paths.iter();
            paths.all(|path| path.starts_with(&folder))
        };
        let (held, rest): (Vec<_>, Vec<_>) = questions.into_iter().partition(beneath);
        let need = match verb {
            // Nothing else was allowed.
            Verb::Write => Scope::doing(Operation::Create, folder.clone()).or(Operation::Change),
            Verb::Read | Verb::Execute => Scope::file(verb, folder.clone()),
        };
        let mut paths = held.iter().flat_map(|question| &question.paths);
        let is_one_file = paths.all(|path| **path == folder);
        let pattern = Coverage::of(&if is_one_file { need } else { need.beneath() });
        let good = held.len() >= OFTEN
            && deepest(&held).as_ref() == Some(&folder)
            && !refused.iter().any(|need| is_like(need, pattern.pattern()));
        questions = rest;
        if good {
            rules.push(Suggestion {
                agent: Arc::clone(agent),
                pattern,
                lifetime: lifetime(&held),
                spares: held.len(),
            });
        } else {
            questions.extend(held);
        }
    }
    rules
}

/// Whether one of them contains the other, whatever their verbs.
fn is_like(refused: &Scope, pattern: &ScopePattern) -> bool {
    let [one, other] = [&ScopePattern::of(refused), pattern].map(ScopePattern::of_any_verb);
    one.covers_pattern(&other) || other.covers_pattern(&one)
}

/// The deepest common ancestor, or the path itself.
fn deepest(questions: &[Allowed<'_>]) -> Option<VirtualPath> {
    let mut paths = questions.iter().flat_map(|question| &question.paths);
    let first = (*paths.next()?).clone();
    let common = |folder: Option<VirtualPath>, path: &&VirtualPath| {
        std::iter::successors(folder, VirtualPath::parent).find(|folder| path.starts_with(folder))
    };
    paths.fold(Some(first), common)
}

fn lifetime(questions: &[Allowed<'_>]) -> Lifetime {
    let askers: BTreeSet<_> = questions.iter().map(|question| question.by).collect();
    if askers.len() == 1 {
        Lifetime::Session
    } else {
        Lifetime::Agent
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::Log;
    use super::*;
    use crate::cases::cases;
    use crate::config::{Config, RootConfig};
    use proptest::prelude::*;

    fn authority() -> Authority {
        let root = VirtualPath::parse("/r", None).unwrap();
        Authority::configured(&Config::new().root(RootConfig::new(root))).unwrap()
    }

    /// The suggestions after one agent asked for each of these; an approval changes the file by the given operation.
    fn suggested(asked: &[(&[&str], Decision, Option<Op>)]) -> Vec<Suggestion> {
        let mut log = Log::default();
        log.spawn(1, "main");
        for (question, (needs, decision, op)) in (1..).zip(asked) {
            log.asked("main", question, needs, *decision, *op);
        }
        suggest(&log.history, &authority())
    }

    #[track_caller]
    fn check(asked: &[(&[&str], Decision, Option<Op>)], expected: &[(&str, usize)]) {
        let suggestions = suggested(asked);
        let got: Vec<(String, usize)> = suggestions
            .iter()
            .map(|one| (one.pattern.pattern().to_string(), one.spares))
            .collect();
        let expected: Vec<(String, usize)> = expected
            .iter()
            .map(|(pattern, spares)| ((*pattern).to_owned(), *spares))
            .collect();
        assert_eq!(got, expected);
    }

    const YES: Decision = Decision::Granted;
    const EDIT: Option<Op> = Some(Op::Modify);

    fn writes(
        paths: [&'static str; 3],
        op: Op,
    ) -> [(&'static [&'static str], Decision, Option<Op>); 3] {
        paths.map(|path| {
            let need: &'static [&'static str] = Vec::leak(vec![path]);
            (need, YES, Some(op))
        })
    }

    const SRC: [&str; 3] = [
        "write:file:/r/src/a",
        "write:file:/r/src/b",
        "write:file:/r/src/c/d",
    ];

    #[test]
    fn three_similar_approvals_suggest_their_folder() {
        let three = writes(SRC, Op::Modify);
        check(&three, &[("write:file:/r/src", 3)]);
        check(&three[..2], &[]);
        assert_eq!(suggested(&three)[0].lifetime, Lifetime::Session);
        let reads: &[&str] = &["read:file:/r/src/a"];
        check(&[(reads, YES, None); 3], &[("read:file:/r/src/a", 3)]);
    }

    #[test]
    fn narrower_rule_is_suggested_first() {
        let mut asked = writes(["write:file:/r/src/a"; 3], Op::Modify).to_vec();
        asked.extend(writes(SRC, Op::Create));
        check(&asked, &[("write:file:/r/src/a", 4)]);
        asked.push((&["write:file:/r/src/e"], YES, EDIT));
        check(
            &asked,
            &[("write:file:/r/src/a", 4), ("write:file:/r/src", 3)],
        );
    }

    #[test]
    fn whole_roots_are_not_suggested() {
        let wide = [
            "write:file:/r/a/x",
            "write:file:/r/b/x",
            "write:file:/r/c/x",
        ];
        check(&writes(wide, Op::Modify), &[]);
        let root = ["write:file:/r"; 3];
        check(&writes(root, Op::MakeDirectory), &[]);
    }

    #[test]
    fn deletes_moves_and_unknown_plans_do_not_count() {
        for op in [Op::Delete, Op::Move] {
            check(&writes(SRC, op), &[]);
        }
        let unknown = writes(SRC, Op::Modify).map(|(needs, yes, _)| (needs, yes, None));
        check(&unknown, &[]);
        check(&writes(SRC, Op::Copy), &[("write:file:/r/src", 3)]);
    }

    #[test]
    fn partially_allowed_changes_do_not_count() {
        let mut log = Log::default();
        log.spawn(1, "main");
        log.asked("main", 1, &SRC[..1], YES, EDIT);
        log.asked("main", 2, &SRC[1..2], YES, EDIT);
        log.allowed_in_part("main", 3, &SRC[2..]);
        assert_eq!(suggest(&log.history, &authority()), []);
        log.asked("main", 4, &SRC[2..], YES, EDIT);
        assert_eq!(suggest(&log.history, &authority())[0].spares, 3);
    }

    #[test]
    fn sensitive_needs_do_not_count() {
        let protected: &[&str] = &["write:file:/r/a/.mcp.json"];
        check(&[(protected, YES, EDIT); 3], &[]);
        let mixed: &[&str] = &["write:file:/r/a/x", "read:file:/r/a/x"];
        check(&[(mixed, YES, EDIT); 3], &[]);
        let run: &[&str] = &["execute:cli:git:status"];
        check(&[(run, YES, None); 3], &[]);
        let other: &[&str] = &["read:mcp:a:b"];
        check(&[(other, YES, None); 3], &[]);
        let plain: &[&str] = &["write:file:/r/a/mcp.json"];
        check(&[(plain, YES, EDIT); 3], &[("write:file:/r/a/mcp.json", 3)]);
    }

    #[test]
    fn suggestion_covers_nothing_that_was_denied() {
        let refused: &[&str] = &["write:file:/r/src/c/secret"];
        let mut asked = writes(SRC, Op::Modify).to_vec();
        asked.push((refused, Decision::Denied, None));
        check(&asked, &[]);
        asked.pop();
        let above: &[&str] = &["write:file:/r"];
        asked.push((above, Decision::Denied, None));
        check(&asked, &[]);
        asked.pop();
        let read: &[&str] = &["read:file:/r/src/c/secret"];
        asked.push((read, Decision::Denied, None));
        check(&asked, &[]);
        asked.pop();
        let elsewhere: &[&str] = &["write:file:/r/doc/x"];
        asked.push((elsewhere, Decision::Denied, None));
        check(&asked, &[("write:file:/r/src", 3)]);
        let mut log = Log::default();
        log.spawn(1, "main");
        for (question, need) in (1..).zip(SRC) {
            log.asked("main", question, &[need], YES, EDIT);
        }
        assert_eq!(suggest(&log.history, &authority()).len(), 1);
        log.ruled("another", "write:file:/r/src/.env");
        assert_eq!(suggest(&log.history, &authority()), []);
    }

    #[test]
    fn suggestions_are_per_agent_and_several_runs_suggest_an_agent_rule() {
        let mut log = Log::default();
        log.spawn(1, "main");
        for (question, agent) in (1..).zip(["main", "main", "other"]) {
            log.asked(agent, question, &["write:file:/r/src/a"], YES, EDIT);
        }
        assert_eq!(suggest(&log.history, &authority()), []);
        log.spawn(1, "main");
        log.asked("main", 1, &["write:file:/r/src/a"], YES, EDIT);
        let suggestions = suggest(&log.history, &authority());
        assert_eq!(suggestions[0].lifetime, Lifetime::Agent);
        assert_eq!(&*suggestions[0].agent, "main");
    }

    fn need() -> impl Strategy<Value = String> {
        let verb = prop_oneof![Just("read"), Just("write")];
        let path =
            proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just(".envrc")], 0..3);
        (verb, path).prop_map(|(verb, path)| format!("{verb}:file:/r/{}", path.join("/")))
    }

    type Asked = (Vec<String>, bool, bool);

    fn log_and_suggestions(asked: &[Asked]) -> (Log, Vec<Suggestion>) {
        let mut log = Log::default();
        log.spawn(1, "main");
        for (question, (needs, allowed, mild)) in (1..).zip(asked) {
            let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
            let decision = if *allowed { YES } else { Decision::Denied };
            let op = if *mild { Op::Modify } else { Op::Delete };
            log.asked("main", question, &needs, decision, Some(op));
        }
        let suggestions = suggest(&log.history, &authority());
        (log, suggestions)
    }

    proptest! {
        #![proptest_config(cases(256))]
        #[test]
        fn suggestion_covers_what_it_counts_and_nothing_denied(
            asked in proptest::collection::vec(
                (proptest::collection::vec(need(), 1..3), proptest::bool::weighted(0.9), proptest::bool::weighted(0.9)),
                0..24,
            ),
            seed in any::<u64>(),
        ) {
            let (log, suggestions) = log_and_suggestions(&asked);
            for one in &suggestions {
                let covered = |entry: &&HistoryEntry| {
                    entry.event.needs().iter().all(|need| one.pattern.pattern().covers(need))
                };
                let allowed = log.history.entries().filter(|entry| entry.decision == Some(YES));
                let counted: Vec<_> = allowed.filter(covered).collect();
                prop_assert!(one.spares >= OFTEN && counted.len() >= one.spares);
                let needs = || counted.iter().flat_map(|entry| entry.event.needs());
                prop_assert!(one.pattern.path().is_some_and(|path| path.depth() >= DEEP));
                // No narrower pattern covers the same.
                let narrower = |name: &str| one.pattern.path().and_then(|path| path.join(name).ok());
                for name in ["a", "b"] {
                    let inner = narrower(name).unwrap();
                    prop_assert!(!needs().all(|need| need.path().is_some_and(|path| path.starts_with(&inner))));
                }
                let refused = log.history.entries().filter(|entry| entry.decision == Some(Decision::Denied));
                for need in refused.flat_map(|entry| entry.event.needs()) {
                    prop_assert!(!one.pattern.pattern().covers(need), "{} covers {}", one.pattern.pattern(), need);
                }
            }
            let mut shuffled = asked;
            let length = shuffled.len();
            for place in (1..length).rev() {
                let other = usize::try_from(seed.rotate_left(u32::try_from(place).unwrap()) % (place as u64 + 1)).unwrap();
                shuffled.swap(place, other);
            }
            prop_assert_eq!(log_and_suggestions(&shuffled).1, suggestions);
        }
    }
}
