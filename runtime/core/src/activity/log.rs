//! The record of recent calls: bounded in rows, in bytes of contents and in the length of each text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::{
    AfterApproval, AllowedBy, CallContent, CancelCause, EndedQuestion, KeepCalls, RecentCall,
};
use crate::effect::{Change, Content, Entry, Reply, ResourceChange};
use crate::error::CallError;
use crate::id::{CallId, QuestionId, ToolName, WorkerId};
use crate::permission::{DecidedBy, Decision, GrantView, Lifetime};
use crate::scope::{Scope, ScopePattern};
use crate::worker::CallState;

/// Maximum number of ended questions that are kept.
const MAX_QUESTIONS: usize = 200;
/// Maximum number of characters of an intent.
const MAX_INTENT: usize = 1000;
/// Maximum bytes of arguments.
const MAX_ARGUMENTS: usize = 16 << 10;
/// Maximum bytes of output.
const MAX_OUTPUT: usize = 4 << 10;
/// Maximum number of needs, and of bytes of their text.
const MAX_NEEDS: usize = 20;
const MAX_NEED_BYTES: usize = 8 << 10;
/// Maximum number of entries of what allowed a call.
const MAX_ALLOWED_BY: usize = 20;
/// The part of the bytes that one call may use.
const SHARE: usize = 8;

/// A call as it was received.
pub(crate) struct Received<'a> {
    pub(crate) row: RecentCall,
    /// `None` if they cannot be shown.
    pub(crate) arguments: Option<&'a Value>,
}

/// What happened to a question.
#[derive(Debug)]
pub(crate) enum QuestionEvent {
    /// A call waits for it.
    Asked { question: QuestionId, call: CallId },
    /// It ended.
    Ended(Box<QuestionEnd>),
}

/// The end of a question.
#[derive(Debug)]
pub(crate) struct QuestionEnd {
    pub(crate) question: QuestionId,
    pub(crate) worker: WorkerId,
    pub(crate) agent: Arc<str>,
    pub(crate) call: CallId,
    pub(crate) tool: ToolName,
    pub(crate) decision: Decision,
    pub(crate) by: DecidedBy,
    pub(crate) lifetime: Option<Lifetime>,
}

/// The recent calls of all workers of a runtime.
#[derive(Debug)]
pub(crate) struct CallLog {
    limits: KeepCalls,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<CallId, Row>,
    /// Ended calls, in the order in which they ended.
    ended: VecDeque<CallId>,
    /// Calls with contents.
    with_content: BTreeSet<CallId>,
    /// Approximate size of all contents.
    bytes: usize,
    /// Ended questions, the oldest first, with the lifetime of the answer.
    questions: VecDeque<(EndedQuestion, Option<Lifetime>)>,
}

#[derive(Debug)]
struct Row {
    call: Arc<RecentCall>,
    /// Approximate size of its content.
    bytes: usize,
}

impl Row {
    fn edit(&mut self) -> &mut RecentCall {
        // Copies the row only if a reader holds it. Contents are shared.
        Arc::make_mut(&mut self.call)
    }
}

impl CallLog {
    pub(crate) fn new(limits: KeepCalls) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// The calls, the newest first.
    pub(crate) fn calls(&self) -> Vec<Arc<RecentCall>> {
        let state = self.state.lock();
        let calls = state.rows.values().rev();
        calls.map(|row| Arc::clone(&row.call)).collect()
    }

    pub(crate) fn call(&self, call: CallId) -> Option<Arc<RecentCall>> {
        let state = self.state.lock();
        state.rows.get(&call).map(|row| Arc::clone(&row.call))
    }

    /// Ended questions, the newest first.
    pub(crate) fn questions(&self) -> Vec<EndedQuestion> {
        let state = self.state.lock();
        let questions = state.questions.iter().rev();
        questions.map(|(question, _)| question.clone()).collect()
    }

    /// Adds a call.
    pub(crate) fn begin(&self, received: Received<'_>) {
        let Received { mut row, arguments } = received;
        row.intent = short(&row.intent);
        let content = CallContent {
            arguments: arguments.map(beginning_of_json).unwrap_or_default(),
            ..CallContent::default()
        };
        let id = row.call;
        let mut state = self.state.lock();
        let row = Row {
            call: Arc::new(row),
            bytes: 0,
        };
        state.rows.insert(id, row);
        state.set_content(id, content, self.limits.bytes);
        while state.rows.len() > self.limits.calls {
            let first = state.rows.keys().next().copied();
            // A call that has not ended is removed only if no other is left.
            let Some(oldest) = state.ended.pop_front().or(first) else {
                break;
            };
            state.drop_content(oldest);
            state.rows.remove(&oldest);
        }
    }

    /// Sets the needs of a call that was judged, and the sentence that describes them.
    pub(crate) fn judged(&self, call: CallId, needs: &[Scope], intent: &str, allowed: bool) {
        self.edit(call, |row| {
            row.needs = first_needs(needs);
            row.needs_omitted = needs.len().saturating_sub(row.needs.len());
            if row.question.is_none() {
                row.intent = short(intent);
            }
            if allowed && row.allowed_by.is_empty() {
                row.allowed_by.push(AllowedBy::Policy);
            }
        });
    }

    /// Records the grants that a call uses.
    pub(crate) fn granted(&self, call: CallId, grants: &[GrantView], sent: &[ScopePattern]) {
        self.edit(call, |row| {
            let left = MAX_ALLOWED_BY.saturating_sub(row.allowed_by.len());
            let grants = grants.iter().cloned().map(Box::new).map(AllowedBy::Grant);
            row.allowed_by.extend(grants.take(left));
            let fits = row.allowed_by.len() < MAX_ALLOWED_BY;
            if !sent.is_empty() && fits {
                let sent = sent.iter().take(MAX_ALLOWED_BY).cloned().collect();
                row.allowed_by.push(AllowedBy::Sent(sent));
            }
        });
    }

    /// Records that the question of a call was answered, and that the call continues; `remaining` is the sentence about what
    /// remains of it if the answer excludes something.
    pub(crate) fn approved(&self, call: CallId, remaining: Option<&str>) {
        let mut state = self.state.lock();
        let State {
            rows, questions, ..
        } = &mut *state;
        let Some(row) = rows.get_mut(&call) else {
            return;
        };
        let mut newest = questions.iter_mut().rev();
        let mut answer = newest.find(|(ended, _)| Some(ended.question) == row.call.question);
        if let Some(sentence) = remaining.map(short) {
            if let Some((ended, _)) = &mut answer {
                ended.intent.clone_from(&sentence);
            }
            row.edit().intent = sentence;
        }
        if let Some((ended, Some(lifetime))) = answer
            && row.call.allowed_by.len() < MAX_ALLOWED_BY
        {
            row.edit().allowed_by.push(AllowedBy::Answer {
                question: ended.question,
                by: ended.by,
                lifetime: *lifetime,
            });
        }
    }

    pub(crate) fn enter(&self, call: CallId, entered: CallState, now: u64) {
        self.edit(call, |row| {
            if row.state != entered {
                (row.state, row.since) = (entered, now);
            }
        });
    }

    /// Records that people are asked about `needs`, by a sentence, and what the call would change; nothing has changed yet.
    pub(crate) fn asking(
        &self,
        call: CallId,
        sentence: &str,
        needs: &[Scope],
        (changes, resources): (&[Change], &[ResourceChange]),
    ) {
        self.with_changes(call, changes, resources, |row, _| {
            row.intent = short(sentence);
            let fresh = needs.iter().filter(|need| !row.asked.contains(need));
            let fresh: Vec<Scope> = fresh.cloned().collect();
            row.asked.extend(fresh);
            let all = row.asked.len();
            row.asked = first_needs(&row.asked);
            row.asked_omitted += all.saturating_sub(row.asked.len());
        });
    }

    /// Records that the effect of a call was made after the call had been answered.
    pub(crate) fn applied_late(
        &self,
        call: CallId,
        changes: &[Change],
        resources: &[ResourceChange],
    ) {
        let changed = !changes.is_empty() || !resources.is_empty();
        self.with_changes(call, changes, resources, |row, _| row.applied = changed);
        self.state.lock().report_result(call);
    }

    /// Records the result of a call. `applied` is true if it made the changes.
    pub(crate) fn succeeded(
        &self,
        call: CallId,
        (changes, resources): (&[Change], &[ResourceChange]),
        reply: &Reply,
        applied: bool,
        now: u64,
    ) {
        self.with_changes(call, changes, resources, |row, content| {
            (row.state, row.since) = (CallState::Ended(None), now);
            row.applied = applied;
            content.output = Some(beginning_of_output(reply));
        });
        self.end(call);
    }

    /// Records that a call was denied or failed.
    pub(crate) fn failed(
        &self,
        call: CallId,
        error: &CallError,
        cancelled_by: Option<CancelCause>,
        now: u64,
    ) {
        self.edit(call, |row| {
            (row.state, row.since) = (CallState::Ended(Some(error.code())), now);
            row.message = Some(error.message().to_owned());
            row.cancelled_by = cancelled_by;
            if error.code().is_denial() {
                row.denied_by = Some(DecidedBy::of_denial(error));
                // What allowed a part of it did not allow the call.
                row.allowed_by.clear();
            }
        });
        self.end(call);
    }

    pub(crate) fn has(&self, call: CallId) -> bool {
        self.state.lock().rows.contains_key(&call)
    }

    /// Records what happened to a question.
    pub(crate) fn question(&self, event: QuestionEvent, now: u64) {
        match event {
            QuestionEvent::Asked { question, call } => {
                self.edit(call, |row| row.question = Some(question));
            }
            QuestionEvent::Ended(end) => self.state.lock().end_question(*end, now),
        }
    }

    fn edit(&self, call: CallId, edit: impl FnOnce(&mut RecentCall)) {
        if let Some(row) = self.state.lock().rows.get_mut(&call) {
            edit(row.edit());
        }
    }

    /// Records changes, unless there are none, and edits the call.
    fn with_changes(
        &self,
        call: CallId,
        changes: &[Change],
        resources: &[ResourceChange],
        edit: impl FnOnce(&mut RecentCall, &mut CallContent),
    ) {
        let changed = !changes.is_empty() || !resources.is_empty();
        // Diffs are copied before the lock is taken.
        let kept = kept_changes(changes, resources, self.limits.bytes / SHARE);
        let mut state = self.state.lock();
        let Some(row) = state.rows.get_mut(&call) else {
            return;
        };
        let row = row.edit();
        let known = row.content.take();
        let mut content = known.map_or_else(CallContent::default, Arc::unwrap_or_clone);
        if changed {
            row.files = changes.len();
            row.added = changes.iter().map(|change| change.diff.added).sum();
            row.removed = changes.iter().map(|change| change.diff.removed).sum();
            content.changes_left_out = kept.is_none();
            (content.changes, content.resources) = kept.unwrap_or_default();
        }
        edit(row, &mut content);
        state.set_content(call, content, self.limits.bytes);
    }

    fn end(&self, call: CallId) {
        let mut state = self.state.lock();
        if state.rows.contains_key(&call) {
            state.ended.push_back(call);
        }
        state.report_result(call);
    }
}

impl State {
    /// Copies the result of a call to the question that allowed it.
    fn report_result(&mut self, call: CallId) {
        let Self {
            rows, questions, ..
        } = self;
        let Some(row) = rows.get(&call) else {
            return;
        };
        if row.call.question.is_some() {
            for (question, _) in questions.iter_mut().filter(|(one, _)| one.call == call) {
                if let Some(result) = &mut question.result {
                    *result = after_approval(&row.call);
                }
            }
        }
    }

    fn end_question(&mut self, end: QuestionEnd, now: u64) {
        let row = self.rows.get(&end.call).map(|row| &row.call);
        let result = (end.decision == Decision::Granted).then(|| match row {
            Some(row) => after_approval(row),
            None => AfterApproval {
                state: CallState::Running,
                message: None,
                files: 0,
                applied: false,
            },
        });
        let intent = row.map_or_else(|| end.tool.to_string(), |row| row.intent.clone());
        let ended = EndedQuestion {
            question: end.question,
            worker: end.worker,
            agent: end.agent,
            call: end.call,
            intent,
            decision: end.decision,
            by: end.by,
            at: now,
            result,
        };
        if self.questions.len() >= MAX_QUESTIONS {
            self.questions.pop_front();
        }
        self.questions.push_back((ended, end.lifetime));
    }

    /// Replaces the content of a call; older calls lose theirs if there are too many bytes.
    fn set_content(&mut self, call: CallId, content: CallContent, most: usize) {
        self.drop_content(call);
        let Some(row) = self.rows.get_mut(&call) else {
            return;
        };
        let bytes = content_bytes(&content);
        row.edit().content = Some(Arc::new(content));
        row.bytes = bytes;
        self.bytes += bytes;
        self.with_content.insert(call);
        while self.bytes > most
            && let Some(oldest) = self.with_content.first().copied()
        {
            self.drop_content(oldest);
        }
    }

    fn drop_content(&mut self, call: CallId) {
        if self.with_content.remove(&call)
            && let Some(row) = self.rows.get_mut(&call)
        {
            self.bytes -= std::mem::take(&mut row.bytes);
            row.edit().content = None;
        }
    }
}

fn after_approval(row: &RecentCall) -> AfterApproval {
    AfterApproval {
        // The answer is recorded before the call continues.
        state: match row.state {
            CallState::Asking => CallState::Running,
            state => state,
        },
        message: row.message.clone(),
        files: row.files,
        applied: row.applied,
    }
}

fn short(intent: &str) -> String {
    crate::text::abbreviated(intent, MAX_INTENT).into_owned()
}

fn first_needs(needs: &[Scope]) -> Vec<Scope> {
    let mut bytes = 0;
    let fits = |need: &&Scope| {
        bytes += need.to_string().len();
        bytes <= MAX_NEED_BYTES
    };
    let first = needs.iter().take(MAX_NEEDS).take_while(fits);
    first.cloned().collect()
}

/// A text that takes no more than a number of bytes.
struct Beginning {
    bytes: Vec<u8>,
    most: usize,
}

impl io::Write for Beginning {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let left = self.most - self.bytes.len();
        let taken = more.get(..left).unwrap_or(more);
        self.bytes.extend_from_slice(taken);
        if taken.is_empty() && !more.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Beginning {
    fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
        }
    }

    /// The text, without a character that was cut.
    fn into_text(self) -> String {
        String::from_utf8(self.bytes).unwrap_or_else(|error| {
            let end = error.utf8_error().valid_up_to();
            let bytes = error.as_bytes().get(..end).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        })
    }
}

fn beginning_of_json(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let mut text = Beginning::new(MAX_ARGUMENTS);
    // It fails once the text is full, so that long arguments are not rendered completely.
    let _ = serde_json::to_writer(&mut text, value);
    text.into_text()
}

fn beginning_of_output(reply: &Reply) -> String {
    let mut text = Beginning::new(MAX_OUTPUT);
    for content in &reply.content {
        let part = match content {
            Content::Text(part) => part.as_str(),
            Content::Link { uri, .. } => uri.as_str(),
            Content::Image { .. } | Content::Audio { .. } | Content::Blob { .. } => continue,
        };
        let between = if text.bytes.is_empty() { "" } else { "\n" };
        let write = |text: &mut Beginning, part: &str| io::Write::write_all(text, part.as_bytes());
        if write(&mut text, between).is_err() || write(&mut text, part).is_err() {
            break;
        }
    }
    text.into_text()
}

/// Copies of the changes; `None` if they have more than `most` bytes.
fn kept_changes(
    changes: &[Change],
    resources: &[ResourceChange],
    most: usize,
) -> Option<(Vec<Change>, Vec<ResourceChange>)> {
    let bytes = changes.iter().map(change_bytes).sum::<usize>();
    let bytes = bytes + resources.iter().map(ResourceChange::size).sum::<usize>();
    let copied = || {
        let changes = changes.iter().map(without_old_text).collect();
        (changes, resources.to_vec())
    };
    (bytes <= most).then(copied)
}

fn without_old_text(change: &Change) -> Change {
    let mut change = change.clone();
    change.diff.old = None;
    change
}

fn content_bytes(content: &CallContent) -> usize {
    let texts = content.arguments.len() + content.output.as_ref().map_or(0, String::len);
    let changes = content.changes.iter().map(change_bytes).sum::<usize>();
    let resources = content.resources.iter().map(ResourceChange::size);
    texts + changes + resources.sum::<usize>()
}

/// Approximate size of a change in memory, without its old text.
fn change_bytes(change: &Change) -> usize {
    let Change { path, to, diff, .. } = change;
    let paths = path.as_str().len() + to.as_ref().map_or(0, |to| to.as_str().len());
    let lines = diff.hunks.iter().flat_map(|hunk| &hunk.lines);
    let lines = lines.map(|line| line.text.capacity() + 32).sum::<usize>();
    let first = diff.contents.iter().flat_map(|contents| &contents.first);
    let first = first.map(|entry| entry.path.len() + 40).sum::<usize>();
    size_of::<Change>() + size_of::<Entry>() + paths + lines + first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Origin;
    use crate::effect::{FileDiff, Op};
    use crate::error::Code;
    use crate::path::VirtualPath;

    const CALL: CallId = CallId(1);

    /// A record with one call, which was cancelled.
    fn cancelled() -> CallLog {
        let log = CallLog::new(KeepCalls::default());
        let row = RecentCall {
            call: CALL,
            worker: WorkerId(1),
            agent: "main".into(),
            session: "s".into(),
            tool: ToolName::new("post"),
            server: None,
            origin: Origin::Model,
            preview: false,
            mutates: true,
            intent: "Post".to_owned(),
            at: 1,
            state: CallState::Running,
            since: 1,
            message: None,
            denied_by: None,
            cancelled_by: None,
            needs: Vec::new(),
            needs_omitted: 0,
            asked: Vec::new(),
            asked_omitted: 0,
            question: None,
            allowed_by: Vec::new(),
            files: 0,
            added: 0,
            removed: 0,
            applied: false,
            content: None,
        };
        let arguments = None;
        log.begin(Received { row, arguments });
        let error = CallError::new(Code::Cancelled, "stopped");
        log.failed(CALL, &error, Some(CancelCause::Caller), 2);
        log
    }

    #[test]
    fn late_result_is_an_effect_only_if_it_changed_something() {
        let change = Change {
            path: VirtualPath::parse("/r/a", None).unwrap(),
            op: Op::Create,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
            diff: FileDiff::default(),
        };
        for (changes, applied) in [(&[][..], false), (&[change][..], true)] {
            let log = cancelled();
            log.applied_late(CALL, changes, &[]);
            let call = log.call(CALL).unwrap();
            assert_eq!((call.applied, call.files), (applied, changes.len()));
            assert_eq!(call.code(), Some(Code::Cancelled));
        }
    }

    #[test]
    fn arguments_and_output_are_cut_at_a_character() {
        let text = "é".repeat(MAX_ARGUMENTS);
        let arguments = beginning_of_json(&Value::from(text.as_str()));
        assert_eq!(arguments.len(), MAX_ARGUMENTS - 1);
        let output = beginning_of_output(&Reply::text(format!("x{text}"), ()));
        assert_eq!(output.len(), MAX_OUTPUT - 1);
        assert_eq!(beginning_of_json(&Value::Null), "");
    }
}
