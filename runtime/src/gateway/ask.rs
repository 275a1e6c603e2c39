//! A question of a call in, put to the person behind the client; their answer out.
//!
//! Only a connection of trust [`Host`](super::Trust::Host) is asked this way: behind an agent's own client stands the
//! agent. Clients with a handshake are sent `elicitation/create`; stateless ones get the form as their result, with a
//! sealed note of which call it is about, and send the call again with the answer. The question itself is the broker's:
//! equal ones are joined, limits and refusals count, and it is answered once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rmcp::model::{
    ElicitRequest, ElicitationAction, ErrorData, InputRequest, InputRequests, InputRequiredResult,
    InputResponses, RequestStateCodec, SealOptions,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::form::{Filled, Reach, form, read};
use super::meta::Extras;
use crate::effect::ContentHash;
use crate::permission::Question;
use crate::pipeline::canonical;
use crate::worker::Underway;

/// The key of the one question in an input-required result.
const KEY: &str = "permission";
/// How many calls are kept at once.
const MOST_KEPT: usize = 256;

/// The call that a question is about, in all that its answer counts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    /// Names the worker among those of all runtimes of this process.
    pub(super) worker: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Value,
    /// What else came with it: a policy, a token, whether it only shows what it would do.
    pub(super) extras: &'a Extras,
}

impl Subject<'_> {
    fn digest(self) -> ContentHash {
        let Extras {
            preview,
            policy,
            origin,
            token,
            confirm,
            // A call that brings grants asks nobody.
            granted: _,
            ignored_grants: _,
        } = self.extras;
        let whole = json!([
            self.worker,
            self.tool,
            canonical(self.arguments),
            preview,
            policy.as_ref().map(canonical),
            origin,
            token,
            confirm,
        ]);
        ContentHash::of(whole.to_string().as_bytes())
    }
}

/// What a stateless client gets to bring back, sealed.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    kept: u64,
    subject: ContentHash,
}

/// A call that waits for its client to come back.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) question: Box<Question>,
    pub(super) underway: Underway,
    /// When its question has ended.
    until: Instant,
}

/// Puts questions to the people behind clients.
#[derive(Debug)]
pub(super) struct Asker {
    codec: RequestStateCodec,
    kept: Mutex<HashMap<u64, Kept>>,
}

impl Asker {
    pub(super) fn new(codec: RequestStateCodec) -> Self {
        Self {
            codec,
            kept: Mutex::default(),
        }
    }

    /// Keeps a call and makes its question the result; none if too many are kept.
    pub(super) fn keep(
        &self,
        subject: Subject<'_>,
        question: Box<Question>,
        underway: Underway,
    ) -> Option<InputRequiredResult> {
        let asked = form(&question, Reach::Call)?;
        let form = InputRequest::Elicitation(ElicitRequest::new(asked));
        let id = u64::from_le_bytes(random()?);
        let note = Note {
            kept: id,
            subject: subject.digest(),
        };
        let patience = question.expires_at.saturating_sub(question.asked_at);
        let seal = SealOptions::new().ttl(patience);
        let state = self.codec.seal_json_with(&note, &seal).ok()?;
        let mut kept = self.kept();
        let now = Instant::now();
        kept.retain(|_, call| now < call.until);
        if kept.len() >= MOST_KEPT {
            return None;
        }
        let call = Kept {
            question,
            underway,
            until: now.checked_add(patience)?,
        };
        kept.insert(id, call);
        let requests = InputRequests::from([(KEY.to_owned(), form)]);
        Some(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// The call that a stateless client comes back to, and the answer it brings. It can come back once.
    ///
    /// An answer to another question, one that was tampered with and one that comes too late are errors.
    pub(super) fn resumed(
        &self,
        subject: Subject<'_>,
        state: &str,
        responses: Option<&InputResponses>,
    ) -> Result<(Kept, Filled), ErrorData> {
        let foreign = || {
            let reason = "requestState is not that of an open question about this call; make the call without it";
            ErrorData::invalid_params(reason, Some(json!({"field": "/requestState"})))
        };
        let note: Note = self.codec.open_json(state).map_err(|_| foreign())?;
        if note.subject != subject.digest() {
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
        let call = self.kept().remove(&note.kept).ok_or_else(foreign)?;
        let answer = read(&call.question, Reach::Call, &action, &content);
        Ok((call, answer))
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// What the person behind a client with a handshake answers; nothing if they cannot be asked, or send the form away.
pub(super) async fn elicited(context: &RequestContext<RoleServer>, question: &Question) -> Filled {
    let Some(form) = form(question, Reach::Connection) else {
        return Filled::Dismissed;
    };
    match context.peer.create_elicitation(form).await {
        Ok(answer) => read(
            question,
            Reach::Connection,
            &answer.action,
            &answer.content.unwrap_or_default(),
        ),
        Err(error) => {
            tracing::warn!(%error, "the person behind a client could not be asked");
            Filled::Dismissed
        }
    }
}
