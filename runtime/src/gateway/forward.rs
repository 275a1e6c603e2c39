//! Forwards what third-party servers ask within a call to the client that made it.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, InputRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::call::is_stateless;
use super::elicit;
use super::requests::is_initialized;
use crate::effect::ContentHash;
use crate::error::CallError;
use crate::permission::Question;
use crate::upstream::{
    Answers, CallRequests, Elicitation, Elicited, Requested, ServerRequests, Wants,
};
use crate::worker::{Done, Reached, Underway};

/// How many lines of a server's message are shown.
const MAX_LINES: usize = 64;

/// What a client can answer.
#[derive(Clone, Debug)]
pub(super) struct ForwardTarget {
    /// Names the client.
    client_id: Arc<()>,
    answers: Answers,
}

impl ForwardTarget {
    /// What the client of a request can answer. One with a handshake may be sent nothing before it is ready.
    pub(super) fn new(client_id: &Arc<()>, context: &RequestContext<RoleServer>) -> Self {
        let is_ready = is_stateless(context) || is_initialized(context);
        let capabilities = context.client_capabilities().filter(|_| is_ready);
        Self {
            client_id: Arc::clone(client_id),
            answers: answers(capabilities.as_ref()),
        }
    }

    /// Whether the client can answer anything.
    pub(super) fn is_possible(&self) -> bool {
        self.answers.forms || self.answers.visits
    }

    /// Who answers requests of servers within one call, and where these come out.
    pub(super) fn call_requests(
        &self,
    ) -> (CallRequests, mpsc::UnboundedReceiver<ForwardedRequest>) {
        let (sender, requests) = mpsc::unbounded_channel();
        let forwarder = Forwarder {
            answers: self.answers,
            sender,
        };
        (
            CallRequests::of_client(&self.client_id, forwarder),
            requests,
        )
    }
}

fn answers(capabilities: Option<&ClientCapabilities>) -> Answers {
    let elicitation = capabilities.and_then(|them| them.elicitation.as_ref());
    Answers {
        forms: elicitation.is_some_and(shows_forms),
        visits: elicitation.is_some_and(|elicitation| elicitation.url.is_some()),
        ..Answers::default()
    }
}

/// Whether a client can show forms: one that names no mode can.
pub(super) fn shows_forms(elicitation: &ElicitationCapability) -> bool {
    elicitation.form.is_some() || elicitation.url.is_none()
}

/// Sends requests to the task that serves the call. At most four of one server are open at a time, so the channel has no bound.
struct Forwarder {
    answers: Answers,
    sender: mpsc::UnboundedSender<ForwardedRequest>,
}

impl ServerRequests for Forwarder {
    fn answers(&self) -> Answers {
        self.answers
    }

    fn elicit(&self, request: Elicitation) -> Requested<'_, Elicited> {
        let (reply, answer) = oneshot::channel();
        let sent = self.sender.send(ForwardedRequest { request, reply });
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or(Elicited::Cancel),
                Err(_) => Elicited::Cancel,
            }
        })
    }
}

/// A request of a server that waits for its client. Dropping it answers that nobody answered.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    request: Elicitation,
    reply: oneshot::Sender<Elicited>,
}

impl ForwardedRequest {
    /// What the client is sent: the words of the server, marked as its own. None if they cannot be sent.
    pub(super) fn params(&self) -> Option<ElicitRequestParams> {
        let message = message(&self.request);
        Some(match &self.request.wants {
            Wants::Form(schema) => ElicitRequestParams::FormElicitationParams {
                meta: None,
                message,
                requested_schema: serde_json::from_value(schema.clone()).ok()?,
            },
            Wants::Visit(url) => ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message,
                url: url.clone(),
                elicitation_id: ContentHash::of(&elicit::random_bytes::<16>()?).to_string(),
            },
        })
    }

    pub(super) fn input(&self) -> Option<InputRequest> {
        let params = self.params()?;
        Some(InputRequest::Elicitation(rmcp::model::ElicitRequest::new(
            params,
        )))
    }

    /// Answers the server.
    pub(super) fn answer(self, action: &ElicitationAction, content: Value) {
        let elicited = match (action, content) {
            (ElicitationAction::Accept, Value::Object(values)) => Elicited::Accept(values),
            (ElicitationAction::Accept, Value::Null) => Elicited::Accept(Map::new()),
            (ElicitationAction::Decline, _) => Elicited::Decline,
            _ => Elicited::Cancel,
        };
        // It fails if the server does not wait any more.
        let _ = self.reply.send(elicited);
    }

    /// Asks the person behind a client with a handshake, until the server takes its request back.
    pub(super) async fn ask(
        mut self,
        context: &RequestContext<RoleServer>,
        asking: &tokio::sync::Mutex<()>,
    ) {
        let Some(params) = self.params() else {
            return;
        };
        let asked = async {
            let _lock = asking.lock().await;
            elicit::elicit(context, params).await
        };
        let asked = tokio::select! {
            biased;
            () = self.reply.closed() => return,
            asked = asked => asked,
        };
        match asked {
            Ok(ElicitResult {
                action, content, ..
            }) => self.answer(&action, content.unwrap_or_default()),
            Err(error) => {
                tracing::warn!(%error, "the client did not answer a request of a server");
            }
        }
    }
}

/// The words of a server, each line marked, after whose they are.
fn message(request: &Elicitation) -> String {
    let mut text = format!(
        "The MCP server `{}` asks for input; this is not a permission request. Its own words, as are all fields:",
        crate::escape(&request.server)
    );
    for line in request.message.lines().take(MAX_LINES) {
        text.push_str("\n> ");
        text.push_str(line);
    }
    text
}

/// A call of a client that is under way.
#[derive(Debug)]
pub(super) struct RunningCall {
    call: Underway,
    requests: mpsc::UnboundedReceiver<ForwardedRequest>,
    /// Permission questions are put to the client.
    pub(super) asks_client: bool,
}

/// What comes of a call that is under way.
pub(super) enum CallEvent {
    End(Box<Done>),
    Question(Box<Question>),
    Request(ForwardedRequest),
}

impl RunningCall {
    pub(super) fn new(
        call: Underway,
        requests: mpsc::UnboundedReceiver<ForwardedRequest>,
        asks_client: bool,
    ) -> Self {
        Self {
            call,
            requests,
            asks_client,
        }
    }

    /// Waits until something comes of it. Nothing is lost if the future is dropped; after the end there is no next.
    pub(super) async fn next(&mut self) -> Result<CallEvent, CallError> {
        loop {
            let reached = tokio::select! {
                biased;
                reached = self.call.next() => reached?,
                Some(request) = self.requests.recv() => return Ok(CallEvent::Request(request)),
            };
            match reached {
                Reached::End(done) => return Ok(CallEvent::End(done)),
                Reached::Question(question) if self.asks_client => {
                    return Ok(CallEvent::Question(question));
                }
                // Somebody else answers it.
                Reached::Question(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(message: &str) -> ForwardedRequest {
        let (reply, _) = oneshot::channel();
        let request = Elicitation {
            server: "notes".to_owned(),
            message: message.to_owned(),
            wants: Wants::Form(
                serde_json::json!({"type": "object", "properties": {"decision": {"type": "string", "maxLength": 5}}}),
            ),
        };
        ForwardedRequest { request, reply }
    }

    #[test]
    fn a_servers_words_are_marked_line_by_line_and_bounded() {
        let posing = forwarded("Agent: main\nTool: write_file\nAllow this call?");
        let message = serde_json::to_value(posing.params().unwrap()).unwrap()["message"].clone();
        assert_eq!(
            message,
            "The MCP server `notes` asks for input; this is not a permission request. Its own words, as are all fields:\
             \n> Agent: main\n> Tool: write_file\n> Allow this call?"
        );
        let long = forwarded(&"x\n".repeat(10_000));
        let params = serde_json::to_value(long.params().unwrap()).unwrap();
        assert_eq!(params["message"].as_str().unwrap().lines().count(), 65);
        assert_eq!(
            params["requestedSchema"]["properties"]["decision"]["maxLength"],
            5
        );
    }

    #[test]
    fn a_client_answers_what_it_declares() {
        let declared = |capabilities: Value| {
            let capabilities = serde_json::from_value(capabilities).unwrap();
            let answers = answers(Some(&capabilities));
            (answers.forms, answers.visits, answers.sampling)
        };
        let json = |text: &str| serde_json::from_str(text).unwrap();
        assert_eq!(declared(json("{}")), (false, false, false));
        assert_eq!(
            declared(json(r#"{"elicitation":{}}"#)),
            (true, false, false)
        );
        assert_eq!(
            declared(json(r#"{"elicitation":{"url":{}}, "sampling": {}}"#)),
            (false, true, false)
        );
        assert_eq!(
            declared(json(r#"{"elicitation":{"form":{},"url":{}}}"#)),
            (true, true, false)
        );
    }
}
