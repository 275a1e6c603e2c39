//! Values for the tests of this crate and, with the feature `fixtures`, of the crates around it.
#![expect(clippy::unwrap_used, reason = "only tests use these values")]

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::audit::{Audit, MemoryAudit};
use crate::call::Origin;
use crate::config::Config;
use crate::effect::{
    Change, ContainedEntry, ContentHash, DirectoryContents, Entry, EntryKind, FileDiff, Op,
    PreviewToken,
};
use crate::id::{CallId, QuestionId, ToolName, WorkerId};
use crate::path::VirtualPath;
use crate::permission::{
    AffectedFiles, AskOutcome, Broker, BrokerConfig, DecidedBy, Deferred, GrantAuthority, Question,
    Request, Requester, Run, WaitingCalls, choices,
};
use crate::policy::Authority;
use crate::scope::{Operation, Scope, ScopePattern};

/// Returns a request of `worker`, with arguments that contain `argument`.
#[must_use]
pub fn request(worker: u64, argument: u64, needs: &[&str]) -> Request {
    let needs: Vec<Scope> = needs.iter().map(|need| need.parse().unwrap()).collect();
    let max_grantable = vec![ScopePattern::ANY];
    let roots = vec![VirtualPath::parse("/r", None).unwrap()];
    let arguments = serde_json::json!({ "argument": argument });
    let mut request = Request {
        worker: WorkerId(worker),
        call: CallId(argument),
        origin: Origin::Model,
        agent_path: vec!["main".to_owned(), format!("agent{worker}")],
        session: "session".into(),
        tool: ToolName::new("edit_file"),
        arguments_hash: ContentHash::of(arguments.to_string().as_bytes()),
        arguments,
        intent: "Edit a file".to_owned(),
        server_says: None,
        sentence: String::new(),
        dangers: Vec::new(),
        files: AffectedFiles::default(),
        preview: None,
        choices: choices(&needs, &max_grantable, &roots, false),
        roots,
        needs,
        asked_because: Vec::new(),
        max_grantable,
        sensitive: false,
        protected: Vec::new(),
        before: None,
        divisible: false,
        server: None,
        alone: false,
    };
    request.describe();
    request
}

/// Returns the request, changed so that it only changes the content of files.
#[must_use]
pub fn changing(mut request: Request) -> Request {
    let change = Operation::Change.into();
    let needs = request.needs.into_iter();
    request.needs = needs.map(|need| need.only(change)).collect();
    let Request {
        needs,
        max_grantable,
        roots,
        sensitive,
        ..
    } = &request;
    request.choices = choices(needs, max_grantable, roots, *sensitive);
    request.describe();
    request
}

/// Returns the request with a preview.
#[must_use]
pub fn shown(mut request: Request) -> Request {
    request.preview = Some(crate::effect::Preview {
        base: VirtualPath::top(),
        intent: request.intent.clone(),
        changes: Vec::new(),
        resources: Vec::new(),
        reply: crate::effect::Reply::text("", ()),
        token: PreviewToken(ContentHash::of(b"")),
        artifacts: Vec::new(),
        undoable: false,
        call: None,
    });
    request.describe();
    request
}

/// Returns the question of a request.
#[must_use]
pub fn question(request: Request) -> Question {
    Question {
        id: QuestionId(1),
        run: Run::default(),
        asked_at: Duration::ZERO,
        expires_at: Duration::from_secs(600),
        request: Arc::new(request),
        calls: WaitingCalls::default(),
    }
}

/// Asks about a request in a runtime that can have `max_grants` grants. Returns the authority that answers the
/// question, the question, and a future of the result: who denied it, or `None` if it was allowed.
pub async fn asked(
    max_grants: usize,
) -> (
    GrantAuthority,
    Question,
    impl Future<Output = Option<DecidedBy>>,
) {
    let audit = Audit::start(MemoryAudit::new(100), 100).unwrap();
    let config = BrokerConfig {
        max_grants,
        ..BrokerConfig::default()
    };
    let broker = Broker::start(config, audit, Arc::new(Deferred))
        .await
        .unwrap();
    let authority = Authority::configured(&Config::new()).unwrap();
    let grants = GrantAuthority::new(broker.clone(), authority, Arc::default(), Weak::new());
    let request = request(1, 1, &["write:file:/r/x"]);
    let requester = Requester {
        worker: request.worker,
        ancestors: [].into(),
        session: Arc::clone(&request.session),
        agent: "main".into(),
    };
    let (reported, mut questions) = tokio::sync::mpsc::unbounded_channel();
    let asking = tokio::spawn(async move { broker.ask(request, requester, Some(reported)).await });
    let question = *questions.recv().await.unwrap();
    let denied_by = async move {
        match asking.await.unwrap().unwrap() {
            AskOutcome::Refused { by, .. } => Some(by),
            AskOutcome::Allowed(..) => None,
        }
    };
    (grants, question, denied_by)
}

/// Returns the deletion of a directory with `files` files of one byte, of which `first` are listed.
#[must_use]
pub fn deleted_directory(path: &str, files: u64, first: u64) -> Change {
    let listed = (0..first).map(|n| ContainedEntry {
        path: format!("f{n}"),
        kind: EntryKind::File,
        bytes: 1,
    });
    let contents = DirectoryContents {
        files,
        directories: 0,
        others: 0,
        bytes: files,
        hash: ContentHash::of(b""),
        first: listed.collect(),
    };
    Change {
        path: VirtualPath::parse(path, None).unwrap(),
        op: Op::Delete,
        to: None,
        before: Entry::Directory { entries: files },
        after: Entry::Absent,
        diff: FileDiff {
            contents: Some(contents),
            ..FileDiff::default()
        },
    }
}

/// The label and sentence of a choice, and whether it needs a confirmation.
pub type ExpectedChoice = (&'static str, &'static str, bool);

/// Returns questions that differ in their choices, each with the choices that every prompt offers.
#[must_use]
pub fn offered_choices() -> Vec<(Question, Vec<ExpectedChoice>)> {
    let asked = |needs: &[&str]| question(changing(request(1, 1, needs)));
    let mut tree = request(1, 1, &["write:file:/r/pkg/old"]);
    let deletes = |need: Scope| need.only(Operation::Delete.into()).beneath();
    tree.needs = tree.needs.into_iter().map(deletes).collect();
    tree.choices = choices(&tree.needs, &tree.max_grantable, &tree.roots, false);
    let mut sensitive = changing(request(1, 1, &["write:file:/r/.mcp.json"]));
    sensitive.sensitive = true;
    sensitive.choices = choices(
        &sensitive.needs,
        &sensitive.max_grantable,
        &sensitive.roots,
        true,
    );
    vec![
        (
            asked(&["write:file:/r/a/x"]),
            vec![
                ("this file", "change /r/a/x", false),
                (
                    "its folder",
                    "change /r/a and everything in it; sensitive files still ask",
                    false,
                ),
                (
                    "the whole project",
                    "change /r and everything in it; sensitive files still ask",
                    true,
                ),
            ],
        ),
        (
            question(tree),
            vec![
                (
                    "this folder",
                    "delete /r/pkg/old and everything in it; sensitive files still ask",
                    true,
                ),
                (
                    "its folder",
                    "delete /r/pkg and everything in it; sensitive files still ask",
                    true,
                ),
                (
                    "the whole project",
                    "delete /r and everything in it; sensitive files still ask",
                    true,
                ),
            ],
        ),
        (
            asked(&["write:file:/tmp/x"]),
            vec![("this file", "change /tmp/x (outside your project)", true)],
        ),
        (
            question(sensitive),
            vec![("this file", "change /r/.mcp.json", false)],
        ),
    ]
}
