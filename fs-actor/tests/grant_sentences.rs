//! What a person reads at a prompt is what they grant: calls that run without a question do only what a sentence of an
//! earlier answer describes, and calls that such a sentence describes are not asked about again.
//!
//! The oracle reads the sentences as text, and knows of a call only its arguments and what it changed on disk.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests create the directories around the roots"
)]

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bailiwick::permission::{Answer, Lifetime, Question};
use bailiwick::{Policy, Runtime, Scripted, Worker, WorkerSpec};
use bailiwick_test_support::cases;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Paths that calls use: in the root, a protected name, and outside.
const PATHS: [&str; 9] = [
    "/repo/a",
    "/repo/a/f",
    "/repo/a/b",
    "/repo/a/b/f",
    "/repo/a/.mcp.json",
    "/repo/c/f",
    "/repo/c/new/deep",
    "OUT/sub/f",
    "OUT/sub/g",
];

#[derive(Clone, Debug)]
enum Act {
    Read(usize),
    Write(usize, bool),
    Delete(usize),
    MakeDirectory(usize),
    Move(usize, usize),
    Copy(usize, usize),
}

#[derive(Clone, Debug)]
struct Step {
    worker: usize,
    act: Act,
    /// The answer, if there is a question: which choice, if it is allowed.
    choice: Option<usize>,
    lifetime: Lifetime,
    descendants: bool,
}

fn act() -> impl Strategy<Value = Act> {
    let path = 0..PATHS.len();
    prop_oneof![
        3 => path.clone().prop_map(Act::Read),
        4 => (path.clone(), any::<bool>()).prop_map(|(at, overwrite)| Act::Write(at, overwrite)),
        1 => path.clone().prop_map(Act::Delete),
        1 => path.clone().prop_map(Act::MakeDirectory),
        1 => (path.clone(), path.clone()).prop_map(|(from, to)| Act::Move(from, to)),
        2 => (path.clone(), path).prop_map(|(from, to)| Act::Copy(from, to)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let lifetime = prop_oneof![
        1 => Just(Lifetime::Once),
        1 => Just(Lifetime::Uses(USES)),
        1 => Just(Lifetime::For(Duration::from_secs(3600))),
        4 => Just(Lifetime::Session),
        2 => Just(Lifetime::Agent),
    ];
    let choice = prop_oneof![1 => Just(None), 8 => (0..4_usize).prop_map(Some)];
    let worker = prop_oneof![4 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    (worker, act(), choice, lifetime, any::<bool>()).prop_map(
        |(worker, act, choice, lifetime, descendants)| Step {
            worker,
            act,
            choice,
            lifetime,
            descendants,
        },
    )
}

/// One clause of a sentence: the operations and the path that it names.
#[derive(Clone, Debug)]
struct Clause {
    operations: Vec<String>,
    path: String,
    beneath: bool,
}

impl Clause {
    fn describes(&self, effect: &Effect) -> bool {
        let beneath = || {
            let rest = effect
                .path
                .strip_prefix(&self.path)
                .and_then(|rest| rest.strip_prefix('/'));
            rest.is_some_and(|rest| {
                // "sensitive files still ask"
                let closed =
                    effect.operation != "read" && rest.split('/').any(|name| name == ".mcp.json");
                self.beneath && !closed
            })
        };
        self.operations.contains(&effect.operation) && (effect.path == self.path || beneath())
    }
}

/// Parses a sentence such as `create or change /repo/a and everything in it; read /repo/c/f (outside your project)`.
fn parse(sentence: &str) -> Vec<Clause> {
    let clauses = sentence
        .split("; ")
        .filter(|clause| !clause.ends_with("sensitive files still ask"));
    let parsed = clauses.map(|clause| {
        let clause = clause
            .strip_suffix(" (outside your project)")
            .unwrap_or(clause);
        let all = clause.strip_suffix(" and everything in it");
        let (operations, path) = all.unwrap_or(clause).rsplit_once(' ').unwrap();
        assert!(path.starts_with('/'), "{sentence}");
        let operations = operations.replace(" or ", ", ");
        Clause {
            operations: operations.split(", ").map(ToOwned::to_owned).collect(),
            path: path.to_owned(),
            beneath: all.is_some(),
        }
    });
    parsed.collect()
}

/// Something that a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Effect {
    operation: String,
    path: String,
}

fn effect(operation: &str, path: &str) -> Effect {
    Effect {
        operation: operation.to_owned(),
        path: path.to_owned(),
    }
}

/// Every path beneath `at`, with the content of files.
fn tree(at: &Path, name: &str, into: &mut BTreeMap<String, Option<Vec<u8>>>) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            into.insert(name.clone(), None);
            tree(&entry.path(), &name, into);
        } else {
            into.insert(name, Some(fs::read(entry.path()).unwrap()));
        }
    }
}

type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// A standing answer of a person.
#[derive(Clone, Debug)]
struct Standing {
    clauses: Vec<Clause>,
    /// The worker that asked.
    worker: usize,
    lifetime: Lifetime,
    descendants: bool,
}

impl Standing {
    /// Whether `worker` may use it: 0 and 1 are the agent `coder` in two sessions, 2 is a sub-agent of 0.
    fn is_for(&self, worker: usize) -> bool {
        let of_agent = self.lifetime == Lifetime::Agent;
        match (self.worker, worker) {
            (of, worker) if of == worker => true,
            (0 | 1, 0 | 1) => of_agent,
            (0, 2) => self.descendants,
            (1, 2) => of_agent && self.descendants,
            _ => false,
        }
    }

    fn is_limited(&self) -> bool {
        matches!(self.lifetime, Lifetime::Uses(_))
    }
}

/// Uses of `Lifetime::Uses` in this test, with the call that asked.
const USES: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The needs of a question as clauses, and those of the sentence of its answer if it allowed them.
type Asked = (Vec<Clause>, Option<Vec<Clause>>);

/// What the approver does next, and what it was asked.
#[derive(Debug, Default)]
struct Prompt {
    choice: Option<usize>,
    lifetime: Option<Lifetime>,
    descendants: bool,
    asked: Vec<Asked>,
}

fn answer(prompt: &Mutex<Prompt>, question: &Question) -> Answer {
    let mut prompt = prompt.lock().unwrap();
    let request = &question.request;
    let needs = parse(&request.covers(&[]));
    let Some(choice) = prompt.choice else {
        prompt.asked.push((needs, None));
        return Answer::DENY;
    };
    let choice = request
        .choices
        .get(choice)
        .unwrap_or_else(|| request.choices.first().unwrap());
    let sentence = choice.sentence(&request.roots);
    assert_eq!(sentence, request.covers(&choice.patterns));
    prompt.asked.push((needs, Some(parse(&sentence))));
    Answer::Allow {
        patterns: choice.patterns.clone(),
        lifetime: prompt.lifetime.unwrap(),
        descendants: prompt.descendants,
        left_out: Vec::new(),
    }
}

struct World {
    dir: tempfile::TempDir,
    out: String,
    prompt: Arc<Mutex<Prompt>>,
    workers: Vec<Worker>,
    standing: Vec<Standing>,
    /// Calls without a question that only an answer with a number of uses describes.
    limited_calls: u32,
    _runtime: Runtime,
}

impl World {
    async fn new(reads_allowed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for file in ["repo/a/f", "repo/a/b/f", "repo/c/f", "out/sub/f"] {
            fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs::write(base.join(file), file).unwrap();
        }
        let prompt = Arc::new(Mutex::new(Prompt::default()));
        let asked = Arc::clone(&prompt);
        let (runtime, _) = Runtime::builder()
            .root("repo", base.join("repo"))
            .grantable("*")
            .approver(Scripted::new().rule(move |question| Some(answer(&asked, question))))
            .tools(bailiwick_fs::tools())
            .build()
            .await
            .unwrap();
        let mut workers = Vec::new();
        for session in ["one", "two"] {
            let spec = WorkerSpec::new("coder").session(session);
            let policy = Policy::new().ask("write:file").ask("read:file");
            let spec = if reads_allowed {
                spec.policy(policy.allow("read:file"))
            } else {
                spec
            };
            workers.push(runtime.spawn(spec).await.unwrap());
        }
        let helper = WorkerSpec::new("helper").policy(Policy::inherit());
        workers.push(workers[0].spawn(helper).await.unwrap());
        Self {
            out: base.join("out").to_str().unwrap().to_owned(),
            dir,
            prompt,
            workers,
            standing: Vec::new(),
            limited_calls: 0,
            _runtime: runtime,
        }
    }

    fn tree(&self) -> Tree {
        let mut all = Tree::new();
        let base = self.dir.path();
        tree(&base.join("repo"), "/repo", &mut all);
        tree(&base.join("out"), &self.out, &mut all);
        all
    }

    fn path(&self, at: usize) -> String {
        PATHS[at].replace("OUT", &self.out)
    }

    fn call(&self, act: &Act, round: usize) -> (&'static str, Value) {
        let path = |at: &usize| self.path(*at);
        let transfer = |from: &usize, to: &usize| json!({ "from": path(from), "to": path(to), "overwrite": true, "create_parents": true });
        match act {
            Act::Read(at) => ("read_file", json!({ "path": path(at) })),
            Act::Write(at, overwrite) => {
                let mode = if *overwrite { "overwrite" } else { "create" };
                let content = format!("round {round}");
                let arguments = json!({ "path": path(at), "content": content, "mode": mode, "create_parents": true });
                ("write_file", arguments)
            }
            Act::Delete(at) => ("delete", json!({ "path": path(at), "recursive": true })),
            Act::MakeDirectory(at) => {
                let arguments = json!({ "path": path(at), "create_parents": true });
                ("make_directory", arguments)
            }
            Act::Move(from, to) => ("move", transfer(from, to)),
            Act::Copy(from, to) => ("copy", transfer(from, to)),
        }
    }

    /// What a successful call did, by its arguments and the files before and after.
    fn effects(&self, act: &Act, before: &Tree, after: &Tree) -> Vec<Effect> {
        let mut effects = Vec::new();
        let gone = if matches!(act, Act::Move(..)) {
            "move"
        } else {
            "delete"
        };
        for (path, content) in before {
            match after.get(path) {
                None => effects.push(effect(gone, path)),
                Some(new) if new != content => effects.push(effect("change", path)),
                Some(_) => {}
            }
        }
        let new = after.keys().filter(|path| !before.contains_key(*path));
        effects.extend(new.map(|path| effect("create", path)));
        if let Act::Read(at) | Act::Copy(at, _) = act {
            let at = self.path(*at);
            let beneath = format!("{at}/");
            let read = before
                .keys()
                .filter(|path| **path == at || path.starts_with(&beneath));
            effects.extend(read.map(|path| effect("read", path)));
        }
        effects
    }

    async fn step(&mut self, step: &Step, round: usize, reads_allowed: bool) {
        {
            let mut prompt = self.prompt.lock().unwrap();
            prompt.choice = step.choice;
            prompt.lifetime = Some(step.lifetime);
            prompt.descendants = step.descendants;
            prompt.asked.clear();
        }
        let before = self.tree();
        let (tool, arguments) = self.call(&step.act, round);
        let context = format!("{tool} {arguments}\n{:?}", self.standing);
        let done = self.workers[step.worker].call(tool, arguments).await;
        let after = self.tree();
        if done.is_err() {
            assert_eq!(before, after, "a call that failed changed files: {context}");
        }
        let mut effects = self.effects(&step.act, &before, &after);
        let free = |one: &Effect| {
            reads_allowed && one.operation == "read" && one.path.starts_with("/repo")
        };
        effects.retain(|one| done.is_ok() && !free(one));
        let asked = std::mem::take(&mut self.prompt.lock().unwrap().asked);
        self.check_effects(step.worker, &effects, &asked, &context);
        self.check_questions(step.worker, &asked, &context);

        let allowed = asked.into_iter().filter_map(|(_, allowed)| allowed);
        let lasting = allowed.filter(|_| step.lifetime.waiting_calls().is_none());
        self.standing.extend(lasting.map(|clauses| Standing {
            clauses,
            worker: step.worker,
            lifetime: step.lifetime,
            descendants: step.descendants,
        }));
    }

    /// The clauses of standing answers that the worker may use, with or without a number of uses.
    fn clauses(&self, worker: usize, limited: bool) -> Vec<Clause> {
        let live = self.standing.iter().filter(|one| one.is_for(worker));
        let live = live.filter(|one| one.is_limited() == limited);
        live.flat_map(|one| one.clauses.clone()).collect()
    }

    /// Every effect is described by an answer to this call or by a standing one, which covers no more calls than it says.
    fn check_effects(&mut self, worker: usize, effects: &[Effect], asked: &[Asked], context: &str) {
        let mut now = self.clauses(worker, false);
        now.extend(
            asked
                .iter()
                .filter_map(|(_, allowed)| allowed.clone())
                .flatten(),
        );
        let limited = self.clauses(worker, true);
        let mut needs_limited = false;
        for effect in effects {
            if now.iter().any(|clause| clause.describes(effect)) {
                continue;
            }
            needs_limited = true;
            let described = limited.iter().any(|clause| clause.describes(effect));
            assert!(
                described,
                "{effect:?} was not described: {context}\n{asked:?}"
            );
        }
        self.limited_calls += u32::from(needs_limited);
        let answers = self.standing.iter().filter(|one| one.is_limited()).count();
        // The call that asked was one of the uses.
        let most = u32::try_from(answers).unwrap() * (USES.get() - 1);
        assert!(
            self.limited_calls <= most,
            "more calls than uses: {context}"
        );
    }

    /// No question is only about what standing answers without a number of uses describe.
    fn check_questions(&self, worker: usize, asked: &[Asked], context: &str) {
        let unlimited = self.clauses(worker, false);
        let covered = |need: &Clause| {
            need.operations.iter().all(|operation| {
                let one = effect(operation, &need.path);
                let whole = |clause: &Clause| clause.beneath || !need.beneath;
                unlimited
                    .iter()
                    .any(|clause| whole(clause) && clause.describes(&one))
            })
        };
        for (needs, _) in asked {
            let again = needs.iter().all(covered);
            assert!(!again, "{needs:?} was asked about again: {context}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn unasked_calls_do_what_the_sentence_of_an_answer_describes(
        steps in prop::collection::vec(step(), 1..24),
        reads_allowed in any::<bool>(),
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let mut world = World::new(reads_allowed).await;
            for (round, step) in steps.iter().enumerate() {
                world.step(step, round, reads_allowed).await;
            }
        });
    }
}
