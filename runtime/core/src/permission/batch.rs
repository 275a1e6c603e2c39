//! Batches of open questions that can be answered together.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::choices::may_be_offered;
use super::{Lifetime, Question, Request};
use crate::id::{QuestionId, ToolName};
use crate::path::VirtualPath;
use crate::scope::{Coverage, Operations, Resource, Scope, Verb};

/// Open questions of one session with the same verb and kind of resource. Each can still be answered by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Batch {
    /// The session.
    pub session: Arc<str>,
    /// The verb of all needs.
    pub verb: Verb,
    /// The kind of resource of all needs, such as `file`.
    pub resource: String,
    /// The deepest folder that contains all files, if the needs are about files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<VirtualPath>,
    /// The widest offered pattern: the verb for everything beneath that folder. `None` if it is not grantable for any
    /// item, or the needs are not about files.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<Coverage>,
    /// The questions, in the order in which they were asked.
    pub items: Vec<BatchItem>,
}

/// One question of a batch, with the information that a person needs to select it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchItem {
    /// The question.
    pub question: QuestionId,
    /// The path of the agent that asks.
    pub agent: String,
    /// The tool.
    pub tool: ToolName,
    /// One sentence on the call.
    pub intent: String,
    /// The scopes that require approval.
    pub needs: Vec<Scope>,
    /// Whether [`Batch::pattern`] may be granted for this one.
    pub covered: bool,
    /// How many equal calls wait for its answer; [`Lifetime::Once`] allows one of them.
    pub waiting: usize,
}

/// One answer to the selected questions of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BatchAnswer {
    /// Allow the calls.
    Allow {
        /// What is allowed, such as [`Batch::pattern`]; `None` for exactly what each question asks.
        #[serde(default)]
        pattern: Option<Coverage>,
        /// How long it is allowed. [`Lifetime::Uses`] counts separately for each question: ten uses for three questions
        /// are thirty uses, and a later call may use those that remain of any question.
        lifetime: Lifetime,
        /// Whether descendants of the workers that ask may use it, too.
        #[serde(default)]
        descendants: bool,
    },
    /// Deny the calls.
    Deny {
        /// A note for the agents.
        #[serde(default)]
        note: Option<String>,
    },
}

/// Why a question must be answered by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotBatchable {
    /// It asks to change something protected.
    #[error("it affects a protected file")]
    Sensitive,
    /// The tool is provided by a third-party server, so a person has to see the server and the arguments.
    #[error("it calls a third-party server")]
    Server,
    /// It has no preview.
    #[error("it has no preview")]
    Unshown,
    /// It belongs to another session than the others.
    #[error("it belongs to another session")]
    Session,
}

/// Returns the questions that can be answered together, in groups of two or more. Questions that are [`NotBatchable`] or
/// ask for several kinds of scopes are in no group.
#[must_use]
pub fn batches(questions: &[Question]) -> Vec<Batch> {
    let mut groups: BTreeMap<(&Arc<str>, Verb, &Resource), Vec<&Question>> = BTreeMap::new();
    for question in questions {
        let request = &question.request;
        if let Some((verb, resource)) = kind(request) {
            let group = groups.entry((&request.session, verb, resource));
            group.or_default().push(question);
        }
    }
    let several = groups.into_iter().filter(|(_, group)| group.len() > 1);
    let mut batches: Vec<Batch> = several
        .map(|((session, verb, resource), mut group)| {
            group.sort_by_key(|question| question.id);
            let folder = folder(&group);
            let pattern = folder
                .as_ref()
                .and_then(|folder| pattern(verb, folder, &group));
            let items = group.into_iter();
            let items: Vec<BatchItem> = items.map(|one| item(one, pattern.as_ref())).collect();
            Batch {
                session: Arc::clone(session),
                verb,
                resource: resource.as_str().to_owned(),
                folder,
                pattern: pattern.filter(|_| items.iter().any(|item| item.covered)),
                items,
            }
        })
        .collect();
    batches.sort_by_key(|batch| batch.items.first().map(|item| item.question));
    batches
}

/// Why a question can be in no batch.
#[doc(hidden)]
#[must_use]
pub fn not_batchable(request: &Request) -> Option<NotBatchable> {
    if request.sensitive {
        Some(NotBatchable::Sensitive)
    } else if request.server.is_some() {
        Some(NotBatchable::Server)
    } else {
        request.preview.is_none().then_some(NotBatchable::Unshown)
    }
}

/// The verb and resource of all needs; `None` if there are several, or the question cannot be in a batch.
fn kind(request: &Request) -> Option<(Verb, &Resource)> {
    let mut kinds = request.needs.iter().map(kind_of);
    let first = kinds.next()?;
    (kinds.all(|kind| kind == first) && not_batchable(request).is_none()).then_some(first)
}

fn kind_of(need: &Scope) -> (Verb, &Resource) {
    (need.verb(), need.resource())
}

/// Everything beneath a folder, for the requested operations; `None` if the folder is not offered as a whole.
fn pattern(verb: Verb, folder: &VirtualPath, group: &[&Question]) -> Option<Coverage> {
    let roots = &group.first()?.request.roots;
    let needs = group.iter().flat_map(|question| &question.request.needs);
    let operations = needs.flat_map(|need| need.operations().iter());
    let operations: Operations = operations.collect();
    let all = || {
        let need = Scope::file(verb, folder.clone());
        Coverage::of(&need.only(operations).beneath())
    };
    may_be_offered(folder, roots).then(all)
}

fn item(question: &Question, pattern: Option<&Coverage>) -> BatchItem {
    let request = &question.request;
    BatchItem {
        question: question.id,
        agent: request.agent_path.join("/"),
        tool: request.tool.clone(),
        intent: request.intent.clone(),
        needs: request.needs.clone(),
        covered: pattern.is_some_and(|pattern| request.fits(std::slice::from_ref(pattern))),
        waiting: question.waiting(),
    }
}

fn folder(group: &[&Question]) -> Option<VirtualPath> {
    let needs = group.iter().flat_map(|question| &question.request.needs);
    let folders: Vec<VirtualPath> = needs
        .map(|need| need.path().and_then(VirtualPath::parent))
        .collect::<Option<_>>()?;
    let (first, rest) = folders.split_first()?;
    std::iter::successors(Some(first.clone()), VirtualPath::parent)
        .find(|top| rest.iter().all(|folder| folder.starts_with(top)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::{request, shown};

    fn question(id: u64, worker: u64, needs: &[&str]) -> Question {
        Question {
            id: QuestionId(id),
            run: crate::permission::Run::default(),
            asked_at: Duration::ZERO,
            expires_at: Duration::from_secs(600),
            request: shown(request(worker, id, needs)),
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    /// The folder and the questions of each batch.
    fn grouped(questions: &[Question]) -> Vec<(Option<String>, Vec<u64>)> {
        let ids = |batch: &Batch| batch.items.iter().map(|item| item.question.0).collect();
        batches(questions)
            .iter()
            .map(|batch| (batch.folder.as_ref().map(ToString::to_string), ids(batch)))
            .collect()
    }

    fn at(folder: &str) -> Option<String> {
        Some(folder.to_owned())
    }

    #[test]
    fn similar_questions_are_grouped_with_their_common_folder() {
        let questions = [
            question(3, 2, &["write:file:/r/a/b/x"]),
            question(1, 1, &["write:file:/r/a/c/y", "write:file:/r/a/z"]),
            question(2, 1, &["read:file:/r/a/b/x"]),
            question(4, 3, &["read:file:/r/a/b/y"]),
            question(5, 3, &["execute:mcp:git:a"]),
            question(6, 3, &["execute:mcp:git:b"]),
        ];
        assert_eq!(
            grouped(&questions),
            [
                (at("/r/a"), vec![1, 3]),
                (at("/r/a/b"), vec![2, 4]),
                (None, vec![5, 6]),
            ]
        );
        let batch = batches(&questions).swap_remove(0);
        assert_eq!((batch.verb, batch.resource.as_str()), (Verb::Write, "file"));
        let item = &batch.items[1];
        assert_eq!(
            (
                item.agent.as_str(),
                item.tool.as_str(),
                item.intent.as_str()
            ),
            ("main/agent2", "edit_file", "Edit a file")
        );
        assert_eq!(item.needs, questions[0].request.needs);
    }

    /// The pattern of the only batch, and the items for which it is grantable.
    fn offered(questions: &[Question]) -> (Option<String>, Vec<bool>) {
        let batch = batches(questions).swap_remove(0);
        let covered = batch.items.iter().map(|item| item.covered).collect();
        (batch.pattern.map(|pattern| pattern.to_string()), covered)
    }

    #[test]
    fn widest_offer_is_the_common_folder_if_grantable() {
        let mut questions = [
            question(1, 1, &["write:file:/r/a/x"]),
            question(2, 1, &["write:file:/r/a/b/y"]),
        ];
        let folder = || Some("write:file:/r/a".to_owned());
        assert_eq!(offered(&questions), (folder(), vec![true, true]));
        questions[0].request.max_grantable = vec!["write:file:/r".parse().unwrap()];
        questions[1].request.max_grantable = vec!["write:file:/r/a/b".parse().unwrap()];
        assert_eq!(offered(&questions), (folder(), vec![true, false]));
        questions[0].request.max_grantable.clear();
        assert_eq!(offered(&questions), (None, vec![false, false]));
        let everywhere = [
            question(1, 1, &["write:file:/r/x"]),
            question(2, 1, &["write:file:/s/y"]),
        ];
        assert_eq!(offered(&everywhere), (None, vec![false, false]));
        let tools = [
            question(1, 1, &["execute:mcp:git:a"]),
            question(2, 1, &["execute:mcp:git:b"]),
        ];
        assert_eq!(offered(&tools), (None, vec![false, false]));
    }

    #[test]
    fn answer_with_unknown_member_is_rejected() {
        let read = |more: &str| {
            let text = format!(r#"{{"allow":{{"lifetime":"once"{more}}}}}"#);
            serde_json::from_str::<BatchAnswer>(&text).is_ok()
        };
        assert!(read("") && read(r#","descendants":true"#));
        assert!(!read(r#","descendant":true"#));
    }

    #[test]
    fn single_mixed_and_unbatchable_questions_are_not_grouped() {
        let pair = || {
            [
                question(1, 1, &["write:file:/r/a"]),
                question(2, 1, &["write:file:/r/b"]),
            ]
        };
        assert_eq!(grouped(&pair()), [(at("/r"), vec![1, 2])]);
        let [first, mut second] = pair();
        assert_eq!(grouped(std::slice::from_ref(&first)), []);
        second.request.sensitive = true;
        assert_eq!(grouped(&[first.clone(), second]), []);
        let [_, mut second] = pair();
        second.request.server = Some("hub".into());
        assert_eq!(grouped(&[first.clone(), second]), []);
        let [_, mut second] = pair();
        second.request.preview = None;
        assert_eq!(grouped(&[first.clone(), second]), []);
        let [_, mut second] = pair();
        second.request.session = "another".into();
        assert_eq!(grouped(&[first.clone(), second]), []);
        let both = question(2, 1, &["write:file:/r/b", "read:file:/r/b"]);
        assert_eq!(grouped(&[first.clone(), both]), []);
        let none = question(2, 1, &[]);
        assert_eq!(grouped(&[first, none]), []);
    }
}
