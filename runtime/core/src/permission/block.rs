//! Permission blocks: questions as chat messages, and the replies to them.
//!
//! The format is that of DeepChat's permission requests: a block of the conversation ([`PermissionBlock`]), the result of
//! a tool call that waits ([`PermissionRequired`]), and the continuation
//! ([`GrantAuthority::continue_with_permission`]). The states `expired` and `cancelled` and the member `choices` are
//! additions.

use serde::{Deserialize, Serialize};

use super::{
    Answer, AuthorityError, Decision, GrantAuthority, OfferedChoice, Question, QuestionState,
    Request,
};
use crate::call::Origin;
use crate::id::QuestionId;
use crate::scope::{Coverage, Scope, Verb};
use crate::text::listed_first;

/// Maximum number of needs in a description.
const MAX_NEEDS: usize = 20;

/// The server of a tool, as a chat shows it, for this runtime's own tools. Questions about third-party tools name their
/// server themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCard {
    /// Its name.
    pub name: String,
    /// Its icon, such as an emoji.
    pub icons: String,
    /// Its description.
    pub description: String,
}

/// Kind of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PermissionType {
    /// To read.
    Read,
    /// To change something, or to run it.
    Write,
    /// Both.
    All,
}

impl PermissionType {
    /// The kind that covers `needs`. Executing counts as writing.
    #[must_use]
    pub fn of(needs: &[Scope]) -> Self {
        let reads = needs.iter().any(|need| need.verb() == Verb::Read);
        let changes = needs.iter().any(|need| need.verb() != Verb::Read);
        match (reads, changes) {
            (true, true) => Self::All,
            (false, true) => Self::Write,
            (_, false) => Self::Read,
        }
    }
}

/// Status of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockStatus {
    /// It waits for an answer.
    Pending,
    /// A person allowed it.
    Granted,
    /// A person denied it.
    Denied,
    /// Nobody answered in time, or before the host ended.
    Expired,
    /// No call waits for the answer any more.
    Cancelled,
}

impl From<QuestionState> for BlockStatus {
    fn from(state: QuestionState) -> Self {
        match state {
            QuestionState::Pending => Self::Pending,
            QuestionState::Settled(Decision::Granted) => Self::Granted,
            QuestionState::Settled(Decision::Denied) => Self::Denied,
            QuestionState::Settled(Decision::Expired) => Self::Expired,
            QuestionState::Settled(Decision::Cancelled) => Self::Cancelled,
        }
    }
}

/// The call of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockCall {
    /// The handle of the question ([`Question::handle`]).
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments as JSON text.
    pub params: String,
    /// The server of the tool.
    pub server_name: String,
    /// The icon of the server.
    pub server_icons: String,
    /// Its description.
    pub server_description: String,
}

/// Further data for displaying a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockExtra {
    /// What kind of permission it is.
    pub permission_type: PermissionType,
    /// The server of the tool.
    pub server_name: String,
    /// The tool.
    pub tool_name: String,
    /// Whether an answer is needed.
    pub needs_user_action: bool,
    /// What was granted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_permissions: Option<Vec<String>>,
    /// The choices of the person, the narrowest first; empty once it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<OfferedChoice>,
}

/// A question as a block of a conversation, which can be stored and shown again, also by another run of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionBlock {
    /// Always `tool_call_permission`.
    #[serde(rename = "type")]
    pub kind: BlockKind,
    /// What is asked, in a sentence. It quotes text of the agent.
    pub content: String,
    /// The status.
    pub status: BlockStatus,
    /// When it was asked, in milliseconds since 1970.
    pub timestamp: u64,
    /// The call.
    pub tool_call: BlockCall,
    /// Further data.
    pub extra: BlockExtra,
}

/// The only kind of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockKind {
    /// A call waits for permission.
    #[serde(rename = "tool_call_permission")]
    ToolCallPermission,
}

impl PermissionBlock {
    /// The block of an open question.
    #[must_use]
    pub fn of(question: &Question, server: &ServerCard) -> Self {
        let request = &question.request;
        let tool = request.tool.as_str().to_owned();
        let name = server_name(question, server);
        Self {
            kind: BlockKind::ToolCallPermission,
            content: description(question),
            status: BlockStatus::Pending,
            timestamp: question.asked_at_ms(),
            tool_call: BlockCall {
                id: question.handle(),
                name: tool.clone(),
                params: request.arguments.to_string(),
                server_name: name.clone(),
                server_icons: server.icons.clone(),
                server_description: server.description.clone(),
            },
            extra: BlockExtra {
                permission_type: PermissionType::of(&request.needs),
                server_name: name,
                tool_name: tool,
                needs_user_action: true,
                granted_permissions: None,
                choices: request.offered(),
            },
        }
    }

    /// Updates the status; a block that has ended does not change.
    pub fn update(&mut self, state: QuestionState, granted: &[Coverage]) {
        if self.status != BlockStatus::Pending {
            return;
        }
        self.status = state.into();
        self.extra.needs_user_action = self.status == BlockStatus::Pending;
        if self.status != BlockStatus::Pending {
            self.extra.choices.clear();
        }
        if self.status == BlockStatus::Granted {
            let granted = granted.iter().map(ToString::to_string).collect();
            self.extra.granted_permissions = Some(granted);
        }
    }
}

/// The request in a [`PermissionRequired`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionRequest {
    /// The tool.
    pub tool_name: String,
    /// Its server.
    pub server_name: String,
    /// What kind of permission it is.
    pub permission_type: PermissionType,
    /// What is asked, in a sentence.
    pub description: String,
}

/// Result of a tool call that waits for a person; the agent loop pauses on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionRequired {
    /// The handle of the question ([`Question::handle`]).
    pub tool_call_id: String,
    /// What is asked, in a sentence.
    pub content: String,
    /// Always false: the call did not fail.
    pub is_error: bool,
    /// Always true.
    pub requires_permission: bool,
    /// What is asked.
    pub permission_request: PermissionRequest,
}

impl PermissionRequired {
    /// Creates the result of a call that waits for `question`, for example one from [`Worker::begin`](crate::Worker::begin).
    #[must_use]
    pub fn of(question: &Question, server: &ServerCard) -> Self {
        let description = description(question);
        Self {
            tool_call_id: question.handle(),
            content: description.clone(),
            is_error: false,
            requires_permission: true,
            permission_request: PermissionRequest {
                tool_name: question.request.tool.as_str().to_owned(),
                server_name: server_name(question, server),
                permission_type: PermissionType::of(&question.request.needs),
                description,
            },
        }
    }
}

/// The server of the question, or that of this runtime's tools.
fn server_name(question: &Question, server: &ServerCard) -> String {
    let own = question.request.server.as_deref();
    own.unwrap_or(&server.name).to_owned()
}

fn description(question: &Question) -> String {
    let needs = listed_first(&question.request.needs, ", ", MAX_NEEDS);
    let sentence = crate::text::escape(&question.request.sentence);
    let careful = question.request.warning();
    let waiting = question
        .all_waiting()
        .map_or_else(String::new, |calls| format!("; {calls} equal calls wait"));
    let warning = question.request.page_warning();
    let warning = warning.map_or_else(String::new, |warning| format!(". {warning}"));
    format!("{sentence} (needs {needs}{waiting}){careful}{warning}")
}

impl Request {
    /// Warning about pages of third-party servers, which can send what they read over the network.
    #[doc(hidden)]
    #[must_use]
    pub fn page_warning(&self) -> Option<&'static str> {
        let is_page = self.origin == Origin::View && self.server.is_some();
        is_page.then_some(
            "A page of another server asks for this. It can send what it reads to other machines: browsers do not block WebRTC.",
        )
    }
}

impl GrantAuthority {
    /// Answers the question of a block in the conversation `session`, and returns its status and what was granted. Repeated
    /// answers have no effect; the last 1,024 ended questions are remembered. A handle of another run is that of an expired
    /// question.
    ///
    /// # Errors
    /// [`AuthorityError::NoQuestion`] if it does not exist or belongs to another conversation; the others as from
    /// [`GrantAuthority::answer`].
    pub async fn continue_with_permission(
        &self,
        session: &str,
        tool_call_id: &str,
        answer: Answer,
    ) -> Result<(QuestionState, Vec<Coverage>), AuthorityError> {
        let (nonce, id) = parse(tool_call_id).ok_or(AuthorityError::NoQuestion)?;
        if nonce != self.broker().run().nonce {
            return Ok((QuestionState::Settled(Decision::Expired), Vec::new()));
        }
        let status = || async {
            let status = self.broker().question_status(id).await;
            let own = status.filter(|status| *status.session == *session);
            let own = own.map(|status| (status.state, status.granted));
            own.ok_or(AuthorityError::NoQuestion)
        };
        let (state, granted) = status().await?;
        if let QuestionState::Settled(_) = state {
            return Ok((state, granted));
        }
        match self.answer(id, answer).await {
            Ok(()) | Err(AuthorityError::Ended(_)) => status().await,
            Err(error) => Err(error),
        }
    }
}

fn parse(handle: &str) -> Option<(u64, QuestionId)> {
    let (nonce, id) = handle.split_once('-')?;
    let nonce = u64::from_str_radix(nonce, 16).ok()?;
    Some((nonce, QuestionId(id.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::fixtures::request;
    use crate::permission::Run;

    fn question(needs: &[&str]) -> Question {
        Question {
            id: QuestionId(7),
            run: Run {
                nonce: 0xabc,
                began_ms: 1_700_000_000_000,
            },
            asked_at: Duration::from_millis(5),
            expires_at: Duration::from_secs(600),
            request: request(1, 1, needs).into(),
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    fn card() -> ServerCard {
        ServerCard {
            name: "files".into(),
            icons: "F".into(),
            description: "Reads and changes files".into(),
        }
    }

    #[test]
    fn block_has_exactly_the_proposed_keys() {
        let mut block = PermissionBlock::of(&question(&["write:file:/r/x"]), &card());
        let expected = json!({
            "type": "tool_call_permission",
            "content": "Edit a file (needs write:file:/r/x). Careful: May delete x; If this file exists already, its old content is replaced and may be lost",
            "status": "pending",
            "timestamp": 1_700_000_000_005_u64,
            "tool_call": {
                "id": "0000000000000abc-7",
                "name": "edit_file",
                "params": "{\"argument\":1}",
                "server_name": "files",
                "server_icons": "F",
                "server_description": "Reads and changes files",
            },
            "extra": {
                "permissionType": "write",
                "serverName": "files",
                "toolName": "edit_file",
                "needsUserAction": true,
            },
        });
        let mut shown = serde_json::to_value(&block).unwrap();
        let choices = shown["extra"].as_object_mut().unwrap().remove("choices");
        assert_eq!(shown, expected);
        let offered = serde_json::to_value(question(&["write:file:/r/x"]).request.offered());
        assert_eq!(choices, Some(offered.unwrap()));
        let granted = QuestionState::Settled(Decision::Granted);
        block.update(granted, &["write:file:/r".parse().unwrap()]);
        let shown = serde_json::to_value(&block).unwrap();
        assert_eq!(shown["status"], "granted");
        assert_eq!(shown["extra"]["needsUserAction"], false);
        assert_eq!(
            shown["extra"]["grantedPermissions"],
            json!(["write:file:/r"])
        );
        block.update(QuestionState::Settled(Decision::Denied), &[]);
        assert_eq!(serde_json::to_value(&block).unwrap(), shown);
        let back: PermissionBlock = serde_json::from_value(shown).unwrap();
        assert_eq!(back, block);
    }

    #[test]
    fn result_of_waiting_call_has_exactly_the_proposed_keys() {
        let waits = PermissionRequired::of(&question(&["read:file:/r/x"]), &card());
        let expected = json!({
            "toolCallId": "0000000000000abc-7",
            "content": "Edit a file (needs read:file:/r/x)",
            "isError": false,
            "requiresPermission": true,
            "permissionRequest": {
                "toolName": "edit_file",
                "serverName": "files",
                "permissionType": "read",
                "description": "Edit a file (needs read:file:/r/x)",
            },
        });
        assert_eq!(serde_json::to_value(waits).unwrap(), expected);
    }

    #[test]
    fn description_quotes_paths_with_commas() {
        let one = description(&question(&["read:file:/r/a, write:file:/r/b"]));
        assert_eq!(
            one,
            r#"Edit a file (needs "read:file:/r/a, write:file:/r/b")"#
        );
        let two = description(&question(&["read:file:/r/a", "read:file:/r/b"]));
        assert_eq!(
            two,
            r#"Edit a file (needs "read:file:/r/a", "read:file:/r/b")"#
        );
    }

    #[test]
    fn read_and_write_needs_have_type_all() {
        for (needs, expected) in [
            (&["read:file:/r/x"][..], PermissionType::Read),
            (&["write:file:/r/x"], PermissionType::Write),
            (&["execute:shell"], PermissionType::Write),
            (&["read:file:/r/x", "write:file:/r/x"], PermissionType::All),
        ] {
            assert_eq!(PermissionType::of(&question(needs).request.needs), expected);
        }
    }

    #[test]
    fn only_question_handles_are_parsed() {
        assert_eq!(parse(&question(&[]).handle()), Some((0xabc, QuestionId(7))));
        for wrong in ["", "-", "q7", "abc-", "-7", "xyz-7", "abc-q7", "abc--7"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
