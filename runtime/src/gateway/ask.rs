//! A call that a person must allow in, the question put to the person behind the client out; and their answer back.
//!
//! Only a connection of trust [`Host`](super::Trust::Host) is asked this way: behind an agent's own client stands the
//! agent. Clients with a handshake are sent `elicitation/create`; stateless ones get the question as their result, with
//! a sealed note of what was asked, and send the call again with the answer.

use std::time::Duration;

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationAction, ElicitationSchema, ErrorData,
    InputRequest, InputRequests, InputRequiredResult, InputResponses, RequestStateCodec,
    SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::effect::ContentHash;
use crate::pipeline::canonical;
use crate::scope::{Scope, ScopePattern};

/// The key of the one question in an input-required result.
const KEY: &str = "permission";
/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a question was about; it comes back sealed, so that an answer counts for this call alone.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Asked {
    worker: String,
    preview: bool,
    tool: String,
    arguments: ContentHash,
    scopes: Vec<String>,
}

/// The call that a question is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    /// Names the worker among those of all runtimes of this process.
    pub(super) worker: &'a str,
    /// Whether the call only shows what it would do.
    pub(super) preview: bool,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
}

impl Subject<'_> {
    fn asked(self, scopes: Vec<String>) -> Asked {
        Asked {
            worker: self.worker.to_owned(),
            preview: self.preview,
            tool: self.tool.to_owned(),
            arguments: ContentHash::of(canonical(self.arguments).to_string().as_bytes()),
            scopes,
        }
    }
}

/// What a client with a handshake answers to the question; none if it says no, nothing, or cannot be asked.
pub(super) async fn elicited(
    context: &RequestContext<RoleServer>,
    subject: Subject<'_>,
    needs: &[Scope],
) -> Option<Vec<ScopePattern>> {
    let params = question(subject, needs)?;
    let asked = context.peer.create_elicitation(params);
    let answer = tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()?;
    let content = answer.content.unwrap_or_default();
    allowed(&answer.action, &content).then(|| needs.iter().map(ScopePattern::of).collect())
}

/// The question as the result of a stateless call.
pub(super) fn required(
    codec: &RequestStateCodec,
    subject: Subject<'_>,
    needs: &[Scope],
) -> Option<InputRequiredResult> {
    let request = InputRequest::Elicitation(ElicitRequest::new(question(subject, needs)?));
    let asked = subject.asked(needs.iter().map(ToString::to_string).collect());
    let seal = SealOptions::new().ttl(PATIENCE);
    let state = codec.seal_json_with(&asked, &seal).ok()?;
    let requests = InputRequests::from([(KEY.to_owned(), request)]);
    Some(InputRequiredResult::new(Some(requests), Some(state)))
}

/// What a stateless client's answer allows: the scopes that were asked for, or nothing after a no.
///
/// An answer to another question, one that was tampered with and one that comes too late are errors.
pub(super) fn answered(
    codec: &RequestStateCodec,
    subject: Subject<'_>,
    state: &str,
    responses: Option<&InputResponses>,
) -> Result<Option<Vec<ScopePattern>>, ErrorData> {
    let foreign = || {
        let reason = "requestState is not that of a question about this call, or it is too old";
        ErrorData::invalid_params(reason, Some(json!({"field": "/requestState"})))
    };
    let asked: Asked = codec.open_json(state).map_err(|_| foreign())?;
    if asked != subject.asked(asked.scopes.clone()) {
        return Err(foreign());
    }
    let Some(answer) = responses.and_then(|responses| responses.get(KEY)) else {
        let reason = format!("inputResponses lacks the answer to `{KEY}`");
        return Err(ErrorData::invalid_params(reason, None));
    };
    let action = answer.get("action").cloned().unwrap_or_default();
    let action: ElicitationAction = serde_json::from_value(action)
        .map_err(|_| ErrorData::invalid_params("the answer has no valid `action`", None))?;
    let content = answer.get("content").cloned().unwrap_or_default();
    if !allowed(&action, &content) {
        return Ok(None);
    }
    let scopes = asked.scopes.iter().map(|scope| scope.parse());
    scopes
        .collect::<Result<_, _>>()
        .map(Some)
        .map_err(|_| foreign())
}

fn allowed(action: &ElicitationAction, content: &Value) -> bool {
    *action == ElicitationAction::Accept && content.get("decision") == Some(&json!("allow"))
}

fn question(subject: Subject<'_>, needs: &[Scope]) -> Option<ElicitRequestParams> {
    let needs: Vec<String> = needs
        .iter()
        .map(|need| crate::escape(&need.to_string()).into_owned())
        .collect();
    let message = format!(
        "`{}` asks for {}. The arguments are {}",
        crate::escape(subject.tool),
        needs.join(", "),
        crate::escape(&shortened(&canonical(subject.arguments).to_string())),
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Allow this call?",
                "description": "`allow` holds for this one call.",
                "enum": ["allow", "deny"],
            },
        },
        "required": ["decision"],
    });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    })
}

fn shortened(text: &str) -> String {
    const MOST: usize = 2000;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> RequestStateCodec {
        RequestStateCodec::try_new([7; 32]).unwrap()
    }

    fn answer(decision: &str) -> InputResponses {
        let answer = json!({"action": "accept", "content": {"decision": decision}});
        InputResponses::from([(KEY.to_owned(), answer)])
    }

    #[test]
    fn an_answer_counts_for_the_call_it_was_asked_about_and_no_other() {
        let arguments = json!({"path": "/r/a", "content": "x"});
        let subject = Subject {
            worker: "a/w1",
            preview: false,
            tool: "write_file",
            arguments: &arguments,
        };
        let needs: Vec<Scope> = vec!["write:file:/r/a".parse().unwrap()];
        let state = required(&codec(), subject, &needs)
            .unwrap()
            .request_state
            .unwrap();
        let yes = answered(&codec(), subject, &state, Some(&answer("allow"))).unwrap();
        assert_eq!(yes, Some(vec!["write:file:/r/a".parse().unwrap()]));
        let no = answered(&codec(), subject, &state, Some(&answer("deny"))).unwrap();
        assert_eq!(no, None);
        let reordered = json!({"content": "x", "path": "/r/a"});
        let same = Subject {
            arguments: &reordered,
            ..subject
        };
        assert!(
            answered(&codec(), same, &state, Some(&answer("allow")))
                .unwrap()
                .is_some()
        );
        let changed = json!({"path": "/r/a", "content": "y"});
        for other in [
            Subject {
                arguments: &changed,
                ..subject
            },
            Subject {
                preview: true,
                ..subject
            },
            Subject {
                tool: "delete",
                ..subject
            },
            Subject {
                worker: "a/w2",
                ..subject
            },
        ] {
            assert!(answered(&codec(), other, &state, Some(&answer("allow"))).is_err());
        }
        let forged = RequestStateCodec::try_new([8; 32]).unwrap();
        assert!(answered(&forged, subject, &state, Some(&answer("allow"))).is_err());
        assert!(
            answered(
                &codec(),
                subject,
                &format!("{state}0"),
                Some(&answer("allow"))
            )
            .is_err()
        );
        assert!(answered(&codec(), subject, &state, None).is_err());
    }
}
