//! Forwards what third-party servers ask within a call to the client that made it.

use std::sync::Arc;

use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, InputRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::ask;
use super::call::is_stateless;
use super::requests::had_handshake;
use crate::effect::ContentHash;
use crate::error::CallError;
use crate::permission::Question;
use crate::upstream::{
    Answers, CallRequests, Elicitation, Elicited, Requested, ServerRequests, Wants,
};
use crate::worker::{CallEvent, Done, RunningCall};

/// How many lines of a server's message are shown.
const MAX_LINES: usize = 64;

/// What a client can answer.
#[derive(Clone, Debug)]
pub(super) struct Forwarding {
    /// Names the client.
    client: Arc<()>,
    answers: Answers,
}

impl Forwarding {
    /// What the client of a request can answer. One with a handshake may be sent nothing before it is ready.
    pub(super) fn to(client: &Arc<()>, context: &RequestContext<RoleServer>) -> Self {
        let is_ready = is_stateless(context) || had_handshake(context);
        let capabilities = context.client_capabilities().filter(|_| is_ready);
        Self {
            client: Arc::clone(client),
            answers: answers(capabilities.as_ref()),
        }
    }

    /// Whether the client can answer anything.
    pub(super) fn is_possible(&self) -> bool {
        self.answers.forms || self.answers.visits
    }

    /// Who answers requests of servers within one call, and where these come out.
    pub(super) fn of_call(&self) -> (CallRequests, mpsc::UnboundedReceiver<Forwarded>) {
        let (to, requests) = mpsc::unbounded_channel();
        let forwarder = Forwarder {
            answers: self.answers,
            to,
        };
        (CallRequests::of_client(&self.client, forwarder), requests)
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
    to: mpsc::UnboundedSender<Forwarded>,
}

impl ServerRequests for Forwarder {
    fn answers(&self) -> Answers {
        self.answers
    }

    fn elicit(&self, request: Elicitation) -> Requested<'_, Elicited> {
        let (reply, answer) = oneshot::channel();
        let sent = self.to.send(Forwarded { request, reply });
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
pub(super) struct Forwarded {
    request: Elicitation,
    reply: oneshot::Sender<Elicited>,
}

impl Forwarded {
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
                elicitation_id: ContentHash::of(&ask::random::<16>()?).to_string(),
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
        turn: &tokio::sync::Mutex<()>,
    ) {
        let Some(params) = self.params() else {
            return;
        };
        let asked = async {
            let _turn = turn.lock().await;
            ask::elicit(context, params).await
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
pub(super) struct Running {
    underway: RunningCall,
    requests: mpsc::UnboundedReceiver<Forwarded>,
    /// Permission questions are put to the client.
    pub(super) asks_client: bool,
}

/// What comes of a call that is under way.
pub(super) enum Event {
    End(Box<Done>),
    Question(Box<Question>),
    Request(Forwarded),
}

impl Running {
    pub(super) fn new(
        underway: RunningCall,
        requests: mpsc::UnboundedReceiver<Forwarded>,
        asks_client: bool,
    ) -> Self {
        Self {
            underway,
            requests,
            asks_client,
        }
    }

    /// Waits until something comes of it. Nothing is lost if the future is dropped; after the end there is no next.
    pub(super) async fn next(&mut self) -> Result<Event, CallError> {
        loop {
            let reached = tokio::select! {
                biased;
                reached = self.underway.next() => reached?,
                Some(request) = self.requests.recv() => return Ok(Event::Request(request)),
            };
            match reached {
                CallEvent::End(done) => return Ok(Event::End(done)),
                CallEvent::Question(question) if self.asks_client => {
                    return Ok(Event::Question(question));
                }
                // Somebody else answers it.
                CallEvent::Question(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(message: &str) -> Forwarded {
        let (reply, _) = oneshot::channel();
        let request = Elicitation {
            server: "notes".to_owned(),
            message: message.to_owned(),
            wants: Wants::Form(
                serde_json::json!({"type": "object", "properties": {"decision": {"type": "string", "maxLength": 5}}}),
            ),
        };
        Forwarded { request, reply }
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
