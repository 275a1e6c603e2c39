//! Forwards requests of third-party servers within a call to the client that made it.

use rmcp::model::{ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::elicit::{self, PendingInput};
use bailiwick::CallError;
use bailiwick::call::Progress;
use bailiwick::effect::ContentHash;
use bailiwick::requests::{
    BoxFuture, Elicitation, ElicitationKind, ElicitationResponse, RequestCapabilities,
    ServerRequests,
};
use bailiwick::worker::{CallEvent, Done, RunningCall};

/// Maximum lines of a server's message.
const MAX_LINES: usize = 64;

/// The requests that a client with these capabilities answers.
pub(super) fn request_capabilities(capabilities: &ClientCapabilities) -> RequestCapabilities {
    let mut answers = RequestCapabilities::default();
    if let Some(elicitation) = &capabilities.elicitation {
        answers.urls = elicitation.url.is_some();
        // Form mode is the default if a client names no mode.
        answers.forms = elicitation.form.is_some() || !answers.urls;
    }
    answers
}

/// Sends requests to the task of the call. At most four requests per server are open, so the channel is unbounded. They are
/// boxed, since each channel reserves memory for 32 messages.
pub(super) struct Forwarder {
    pub(super) request_capabilities: RequestCapabilities,
    pub(super) sender: mpsc::UnboundedSender<Box<ForwardedRequest>>,
}

impl ServerRequests for Forwarder {
    fn capabilities(&self) -> RequestCapabilities {
        self.request_capabilities
    }

    fn elicit(&self, request: Elicitation) -> BoxFuture<'_, ElicitationResponse> {
        let (reply, answer) = oneshot::channel();
        let request = ForwardedRequest { request, reply };
        let sent = self.sender.send(Box::new(request));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or(ElicitationResponse::Cancel),
                Err(_) => ElicitationResponse::Cancel,
            }
        })
    }
}

/// A request of a server that waits for the client. Dropping it cancels the request.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    request: Elicitation,
    reply: oneshot::Sender<ElicitationResponse>,
}

impl ForwardedRequest {
    /// The elicitation request with the server's message quoted; `None` if it is invalid.
    pub(super) fn params(&self) -> Option<ElicitRequestParams> {
        let message = message(&self.request);
        Some(match &self.request.kind {
            ElicitationKind::Form(schema) => ElicitRequestParams::FormElicitationParams {
                meta: None,
                message,
                requested_schema: serde_json::from_value(schema.clone()).ok()?,
            },
            ElicitationKind::Url(url) => ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message,
                url: url.clone(),
                elicitation_id: ContentHash::of(&random_id()?).to_string(),
            },
            _ => return None,
        })
    }

    /// Answers the server.
    pub(super) fn answer(self, action: &ElicitationAction, content: Value) {
        let elicited = match (action, content) {
            (ElicitationAction::Accept, Value::Object(values)) => {
                ElicitationResponse::Accept(values)
            }
            (ElicitationAction::Accept, Value::Null) => ElicitationResponse::Accept(Map::new()),
            (ElicitationAction::Decline, _) => ElicitationResponse::Decline,
            _ => ElicitationResponse::Cancel,
        };
        // The server may no longer wait.
        let _ = self.reply.send(elicited);
    }

    /// Asks the user of a stateful client, unless the server cancels its request.
    pub(super) async fn ask(
        mut self,
        context: &RequestContext<RoleServer>,
        asking: &tokio::sync::Mutex<()>,
    ) {
        let Some(params) = self.params() else {
            return;
        };
        let pending_answer = async {
            let _lock = asking.lock().await;
            elicit::elicit(context, params).await
        };
        let pending_answer = tokio::select! {
            biased;
            () = self.reply.closed() => return,
            pending_answer = pending_answer => pending_answer,
        };
        match pending_answer {
            Ok(ElicitResult {
                action, content, ..
            }) => self.answer(&action, content.unwrap_or_default()),
            Err(error) => {
                tracing::warn!(%error, "the client did not answer a request of a server");
            }
        }
    }
}

fn random_id() -> Option<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).ok()?;
    Some(id)
}

/// The server's message, each line quoted, under a line that names the server.
fn message(request: &Elicitation) -> String {
    let mut text = format!(
        "The MCP server `{}` asks for input; this is not a permission request. Its own words, as are all fields:",
        bailiwick::text::escape(&request.server)
    );
    for line in request.message.lines().take(MAX_LINES) {
        text.push_str("\n> ");
        text.push_str(line);
    }
    text
}

/// A running call of a client.
#[derive(Debug)]
pub(super) struct ClientCall {
    pub(super) call: RunningCall,
    /// Requests of servers within the call, if the client answers any.
    pub(super) requests: Option<mpsc::UnboundedReceiver<Box<ForwardedRequest>>>,
    /// Counts progress if the client sent a progress token with the request that started the call.
    pub(super) progress: Option<Progress>,
}

/// An event of a running call.
pub(super) enum ClientCallEvent {
    End(Box<Done>),
    /// The call waits for the client.
    Input(PendingInput),
}

impl ClientCall {
    /// Waits for the next event. Cancel safe; must not be called after the end.
    pub(super) async fn next(&mut self) -> Result<ClientCallEvent, CallError> {
        let requests = &mut self.requests;
        let request = async { requests.as_mut()?.recv().await };
        let reached = tokio::select! {
            biased;
            reached = self.call.next() => reached?,
            Some(request) = request => {
                return Ok(ClientCallEvent::Input(PendingInput::Request(*request)));
            }
        };
        Ok(match reached {
            CallEvent::End(done) => ClientCallEvent::End(done),
            CallEvent::Question(question) => {
                ClientCallEvent::Input(PendingInput::Question(question))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(message: &str) -> ForwardedRequest {
        let (reply, _) = oneshot::channel();
        let request = Elicitation::new(
            "notes".to_owned(),
            message.to_owned(),
            ElicitationKind::Form(
                serde_json::json!({"type": "object", "properties": {"decision": {"type": "string", "maxLength": 5}}}),
            ),
        );
        ForwardedRequest { request, reply }
    }

    #[test]
    fn server_message_is_quoted_and_bounded() {
        let forged = forwarded("Agent: main\nTool: write_file\nAllow this call?");
        let message = serde_json::to_value(forged.params().unwrap()).unwrap()["message"].clone();
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
    fn answers_follow_declared_capabilities() {
        let declared = |capabilities: Value| {
            let capabilities = serde_json::from_value(capabilities).unwrap();
            let answers = request_capabilities(&capabilities);
            (answers.forms, answers.urls, answers.sampling)
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
