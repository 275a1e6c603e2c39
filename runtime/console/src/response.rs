//! Response bodies of the console's HTTP API.

use std::sync::Arc;

use serde::Serialize;

use crate::activity::{AgentView, OutcomeView};
use bailiwick::VirtualPath;
use bailiwick::effect::{Change, ResourceChange};
use bailiwick::permission::{
    AffectedFile, Danger, GrantAuthority, GrantHolder, GrantId, GrantView, OfferedChoice,
    PermissionBlock, Question, Request, Run, ServerCard, Silenced, SilencedId, Template,
};
use bailiwick::scope::{Coverage, Scope};

/// All open questions, grants and denials.
#[derive(Debug, Default, Serialize)]
pub(super) struct StateResponse {
    pub(super) version: u64,
    /// Current time, in milliseconds since 1970.
    pub(super) now: u64,
    pub(super) sources: Vec<SourceView>,
    pub(super) agents: BoundedList<AgentView, { 256 << 10 }>,
    pub(super) questions: BoundedList<QuestionView, { 256 << 10 }>,
    /// Ended questions, the newest first.
    pub(super) outcomes: BoundedList<OutcomeView, { 256 << 10 }>,
    pub(super) grants: BoundedList<GrantEntry, { 256 << 10 }>,
    pub(super) refusals: BoundedList<DenialView, { 64 << 10 }>,
    /// The numbers of items that did not fit into the lists.
    pub(super) omitted: Omitted,
}

/// Number of items omitted from the lists of a [`StateResponse`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Omitted {
    pub(super) agents: usize,
    pub(super) questions: usize,
    pub(super) grants: usize,
    pub(super) refusals: usize,
}

/// The first items whose JSON has at most `MOST` bytes in total; at least one item.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct BoundedList<T, const MOST: usize> {
    items: Vec<T>,
    #[serde(skip)]
    bytes: usize,
    #[serde(skip)]
    omitted: usize,
}

impl<T, const MOST: usize> Default for BoundedList<T, MOST> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            omitted: 0,
        }
    }
}

impl<T: Serialize, const MOST: usize> BoundedList<T, MOST> {
    /// Adds items until one does not fit; later items are omitted to keep the order.
    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        for item in items {
            let bytes = serde_json::to_vec(&item).map_or(MOST, |json| json.len());
            let fits = self.items.is_empty() || self.bytes.saturating_add(bytes) <= MOST;
            if self.omitted == 0 && fits {
                self.bytes = self.bytes.saturating_add(bytes);
                self.items.push(item);
            } else {
                self.omitted += 1;
            }
        }
    }

    pub(super) fn omitted(&self) -> usize {
        self.omitted
    }
}

/// One runtime.
#[derive(Debug, Serialize)]
pub(super) struct SourceView {
    pub(super) run: String,
    pub(super) server: String,
    pub(super) roots: Vec<VirtualPath>,
    pub(super) templates: Vec<TemplateView>,
    /// Whether there is an audit log to show.
    pub(super) recorded: bool,
    /// Whether permanent grants outlast the server.
    pub(super) stores_grants: bool,
    /// Whether there are agents and calls to show.
    pub(super) activity: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct TemplateView {
    name: String,
    about: String,
}

/// A question: its permission block, and details for the console.
#[derive(Debug, Serialize)]
pub(super) struct QuestionView {
    #[serde(flatten)]
    block: PermissionBlock,
    bailiwick: QuestionDetails,
}

#[derive(Debug, Serialize)]
struct QuestionDetails {
    run: String,
    session: Arc<str>,
    worker: String,
    agent: Vec<String>,
    intent: String,
    needs: Vec<Scope>,
    asked_because: Vec<String>,
    trust: Trust,
    sentence: String,
    sensitive: bool,
    dangers: Vec<Danger>,
    /// Whether the changes can be undone, as a sentence.
    undo: Option<String>,
    /// The first files.
    files: Vec<AffectedFile>,
    files_total: u64,
    bytes_total: Option<u64>,
    choices: Vec<OfferedChoice>,
    divisible: bool,
    preview: Option<Summary>,
    /// Whether a permanent grant outlasts the server.
    stores_grants: bool,
    /// Whether it may be allowed together with other questions.
    batchable: bool,
    /// Length of the arguments if the block has only their beginning; the page requests the rest.
    arguments_bytes: Option<usize>,
    asked_at: u64,
    expires_at: u64,
    /// Number of equal calls that wait for the answer.
    waiting: usize,
}

/// Maximum bytes of arguments in a block.
const MAX_PARAMS: usize = 4 << 10;

/// How the host knows the server of a tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Trust {
    Own,
    Known,
    Unknown,
}

#[derive(Debug, Serialize)]
struct Summary {
    files: usize,
    added: usize,
    removed: usize,
}

/// The complete arguments of a question's call, as JSON text.
#[derive(Debug, Serialize)]
pub(super) struct Arguments {
    question: String,
    arguments: String,
}

pub(super) fn arguments(question: &Question) -> Arguments {
    Arguments {
        question: question.handle(),
        arguments: question.request.arguments.to_string(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct GrantEntry {
    grant: String,
    run: String,
    #[serde(flatten)]
    pattern: Coverage,
    /// Description of what it allows.
    covers: String,
    verb: Option<String>,
    resource: Option<String>,
    holder: GrantHolder,
    /// The path of the agent that holds it.
    agent: Arc<str>,
    /// How long it lasts, in words without times.
    lifetime: String,
    given_at: u64,
    /// Agent, session and server, as filter values.
    whose: Vec<String>,
    descendants: bool,
    uses_left: Option<u32>,
    expires_at: Option<u64>,
    used: u64,
    used_at: Option<u64>,
}

/// A denial for the rest of a session.
#[derive(Debug, Serialize)]
pub(super) struct DenialView {
    run: String,
    refusal: SilencedId,
    agent: String,
    session: Arc<str>,
    /// Description of what is denied.
    refused: String,
}

pub(super) fn denial_view(run: Run, silenced: &Silenced) -> DenialView {
    DenialView {
        run: run_name(run),
        refusal: silenced.id,
        agent: silenced.agent.clone(),
        session: Arc::clone(&silenced.session),
        refused: silenced.sentence(),
    }
}

/// The planned changes of a call.
#[derive(Debug, Serialize)]
pub(super) struct Review {
    question: String,
    changes: Vec<Change>,
    resources: Vec<ResourceChange>,
    divisible: bool,
}

/// The name of a run in the API.
pub(super) fn run_name(run: Run) -> String {
    format!("{:016x}", run.nonce)
}

/// The name of a worker, call or question in the API.
pub(super) fn name_in_run(run: Run, number: u64) -> String {
    format!("{:016x}-{number}", run.nonce)
}

/// The name of a grant in the API.
pub(super) fn grant_name(run: Run, grant: GrantId) -> String {
    format!("{:016x}-{}", run.nonce, grant.0)
}

pub(super) fn question_view(
    question: &Question,
    own: &ServerCard,
    known: &[ServerCard],
    stores_grants: bool,
) -> QuestionView {
    let request = &question.request;
    let server = request.server.as_deref();
    let card = server.and_then(|name| known.iter().find(|card| card.name == name));
    let trust = match (server, card) {
        (None, _) => Trust::Own,
        (Some(_), Some(_)) => Trust::Known,
        (Some(_), None) => Trust::Unknown,
    };
    // The host's statements about its own tools do not apply to tools of another server.
    let other = ServerCard::default();
    let shown = match server {
        None => own,
        Some(_) => card.unwrap_or(&other),
    };
    let mut block = PermissionBlock::of(question, shown);
    let params = &mut block.tool_call.params;
    let arguments_bytes = (params.len() > MAX_PARAMS).then_some(params.len());
    if arguments_bytes.is_some() {
        let end = (0..=MAX_PARAMS).rev();
        let end = end.into_iter().find(|end| params.is_char_boundary(*end));
        params.truncate(end.unwrap_or_default());
        params.shrink_to_fit();
    }
    // The block omits what the page shows separately.
    block.content.clone_from(&request.intent);
    block.extra.choices.clear();
    QuestionView {
        block,
        bailiwick: QuestionDetails {
            run: run_name(question.run),
            session: Arc::clone(&request.session),
            worker: name_in_run(question.run, request.worker.0),
            agent: request.agent_path.clone(),
            intent: request.intent.clone(),
            needs: request.needs.clone(),
            asked_because: request.asked_because.clone(),
            trust,
            sentence: request.sentence.clone(),
            sensitive: request.sensitive,
            dangers: request.dangers.clone(),
            undo: undo_notice(request),
            files: request.files.first.clone(),
            files_total: request.files.total,
            bytes_total: request.files.bytes,
            choices: request.offered(),
            divisible: request.divisible,
            preview: summary(request),
            stores_grants,
            batchable: request.not_batchable().is_none(),
            arguments_bytes,
            asked_at: question.asked_at_ms(),
            expires_at: question.run.at_ms(question.expires_at),
            waiting: question.waiting(),
        },
    }
}

/// What a call does, without what a person has excluded from it.
#[derive(Debug, Serialize)]
pub(super) struct Remaining {
    sentence: String,
    dangers: Vec<Danger>,
    undo: Option<String>,
}

pub(super) fn remaining(rest: &Request) -> Remaining {
    Remaining {
        sentence: rest.sentence.clone(),
        dangers: rest.dangers.clone(),
        undo: undo_notice(rest),
    }
}

/// Whether the changes can be undone, as a sentence.
fn undo_notice(request: &Request) -> Option<String> {
    request.undo_notice("in Activity")
}

fn summary(request: &Request) -> Option<Summary> {
    let changes = &request.preview.as_ref()?.changes;
    // A change of a file that a move or copy replaces is shown as part of the move or copy, which follows it.
    let is_part = |pair: &&[Change]| matches!(pair, [one, next] if one.is_replaced_by(next));
    Some(Summary {
        files: changes.len() - changes.windows(2).filter(is_part).count(),
        added: changes.iter().map(|change| change.diff.added).sum(),
        removed: changes.iter().map(|change| change.diff.removed).sum(),
    })
}

pub(super) fn grant_entry(
    grants: &GrantAuthority,
    grant: &GrantView,
    used_at: Option<u64>,
) -> GrantEntry {
    let run = grants.run();
    // A worker that has just ended; its grants end with it.
    let ended = || "an agent that has ended".into();
    GrantEntry {
        grant: grant_name(run, grant.id),
        run: run_name(run),
        pattern: grant.pattern.clone(),
        covers: grants.covers(&grant.pattern),
        verb: grant.pattern.pattern().verb().map(|verb| verb.to_string()),
        resource: grant
            .pattern
            .pattern()
            .resource()
            .map(|resource| resource.as_str().to_owned()),
        holder: grant.holder.clone(),
        agent: grants.agent(&grant.holder).unwrap_or_else(ended),
        lifetime: lifetime_text(grant, grants.stores_grants()),
        given_at: grant.given_at_ms,
        whose: owners(grant),
        descendants: grant.descendants,
        uses_left: grant.uses_left,
        expires_at: grant.expires_at.map(|end| run.at_ms(end)),
        used: grant.used,
        used_at,
    }
}

/// How long a grant lasts, in words without times. Permanent grants outlast the server if it `stores` them.
pub(super) fn lifetime_text(grant: &GrantView, stores: bool) -> String {
    let uses = grant.uses_left.map(|left| match left {
        1 => "1 use left".to_owned(),
        left => format!("{left} uses left"),
    });
    let time = grant.expires_at.map(|_| "for a limited time".to_owned());
    let limits: Vec<String> = time.into_iter().chain(uses).collect();
    if !limits.is_empty() {
        return limits.join(", ");
    }
    let until = match grant.holder {
        GrantHolder::Agent(_) if stores => "until you revoke it",
        GrantHolder::Agent(_) => "until you revoke it or the server stops",
        GrantHolder::Session { .. } => "until the agent or its session ends",
        GrantHolder::Worker(_) => "until the agent ends",
    };
    until.to_owned()
}

fn owners(grant: &GrantView) -> Vec<String> {
    let holder = match &grant.holder {
        GrantHolder::Agent(agent) => Some(format!("agent {agent}")),
        GrantHolder::Session { session, .. } => Some(format!("session {session}")),
        GrantHolder::Worker(_) => None,
    };
    let pattern = grant.pattern.pattern().to_string();
    let mut parts = pattern.split(':').skip(1);
    let of_server = parts.next() == Some("mcp");
    let server = parts.next().filter(|_| of_server);
    let server = server.map(|server| format!("server {server}"));
    holder.into_iter().chain(server).collect()
}

pub(super) fn template_view(template: &Template) -> TemplateView {
    TemplateView {
        name: template.name().to_owned(),
        about: template.about().to_owned(),
    }
}

/// The planned changes of a question's call; `None` if it has no preview.
pub(super) fn review(question: &Question) -> Option<Review> {
    let request = &question.request;
    let preview = request.preview.as_ref()?;
    Some(Review {
        question: question.handle(),
        changes: preview.changes.clone(),
        resources: preview.resources.clone(),
        divisible: request.divisible,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bailiwick::fixtures;
    use serde_json::{Value, json};

    #[test]
    fn page_offers_the_same_choices_as_every_other_prompt() {
        for (question, expected) in fixtures::offered_choices() {
            let view = question_view(&question, &ServerCard::default(), &[], true);
            let view = serde_json::to_value(view).unwrap();
            assert_eq!(view["extra"].get("choices"), None);
            let choices = view["bailiwick"]["choices"].as_array().unwrap().iter();
            let offered = choices.map(|one| json!([one["label"], one["covers"], one["confirm"]]));
            let expected = expected.into_iter().map(|one| json!(one));
            assert_eq!(offered.collect::<Value>(), expected.collect::<Value>());
        }
    }

    #[test]
    fn tool_of_a_server_is_a_danger_whether_the_host_knows_it_or_not() {
        let mut request = fixtures::changing(fixtures::request(1, 1, &["write:mcp:hub:push"]));
        request.server = Some("hub".into());
        let question = fixtures::question(fixtures::shown(request));
        let card = ServerCard {
            name: "hub".to_owned(),
            ..ServerCard::default()
        };
        for known in [&[][..], &[card]] {
            let view = question_view(&question, &ServerCard::default(), known, true);
            let view = serde_json::to_value(view).unwrap();
            let text = "What hub does cannot be checked or undone here";
            assert_eq!(
                view["bailiwick"]["dangers"],
                json!([{ "kind": "third_party", "level": "severe", "text": text }])
            );
        }
    }

    #[test]
    fn review_has_changes_that_are_not_of_files() {
        let mut request = fixtures::shown(fixtures::request(1, 1, &["execute:command:make"]));
        let preview = request.preview.as_mut().unwrap();
        preview.resources =
            vec![ResourceChange::new("`make all`", "run in /r").after("all layers")];
        let review = review(&fixtures::question(request)).unwrap();
        assert_eq!(
            serde_json::to_value(review).unwrap()["resources"],
            json!([{ "resource": "`make all`", "summary": "run in /r", "after": "all layers" }])
        );
    }

    #[test]
    fn bounded_list_keeps_first_items_and_counts_the_rest() {
        let mut list: BoundedList<String, 100> = BoundedList::default();
        list.extend((0..3).map(|_| "x".repeat(40)));
        list.extend(["y".to_owned()]);
        assert_eq!((list.items.len(), list.omitted()), (2, 2));
        let mut list: BoundedList<String, 100> = BoundedList::default();
        list.extend(["x".repeat(1000)]);
        assert_eq!((list.items.len(), list.omitted()), (1, 0));
    }
}
