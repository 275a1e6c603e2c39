//! Elicitation requests of the fixtures.

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, InputRequests, InputRequiredResult, InputResponses, RequestStateCodec,
};
use serde_json::{Value, json};

/// What a fixture asks its client before it answers.
struct Questions {
    /// Each round's requests by key.
    rounds: Vec<Value>,
    /// An answer counts only along with the state that was handed out with its question.
    sealed: bool,
}

fn elicit(message: &str, name: &str, kind: &str) -> Value {
    let schema =
        json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    json!({
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    })
}

fn sample(text: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

fn questions(fixture: &str) -> Option<Questions> {
    let name = || elicit("What is your name?", "name", "string");
    let confirm = || json!({"confirm": elicit("Please confirm", "ok", "boolean")});
    let (sealed, rounds) = match fixture.strip_prefix("test_input_required_result_")? {
        "elicitation" => (false, vec![json!({"user_name": name()})]),
        "sampling" => (
            false,
            vec![json!({"capital_question": sample("What is the capital of France?")})],
        ),
        "list_roots" => (
            false,
            vec![json!({"client_roots": {"method": "roots/list"}})],
        ),
        "capabilities" => (
            false,
            vec![json!({"user_name": name(), "greeting": sample("Generate a greeting")})],
        ),
        "prompt" => (
            false,
            vec![json!({"user_context": elicit("Which context?", "context", "string")})],
        ),
        "request_state" | "tampered_state" => (true, vec![confirm()]),
        "multiple_inputs" => (
            true,
            vec![json!({
                "user_name": name(),
                "greeting": sample("Generate a greeting"),
                "client_roots": {"method": "roots/list"},
            })],
        ),
        "multi_round" => (
            true,
            vec![
                json!({"step1": elicit("Step 1: What is your name?", "name", "string")}),
                json!({"step2": elicit("Step 2: What is your colour?", "color", "string")}),
            ],
        ),
        _ => return None,
    };
    Some(Questions { rounds, sealed })
}

/// Whether a fixture asks its client before it answers.
pub(super) fn asks(fixture: &str) -> bool {
    questions(fixture).is_some()
}

/// What the client is asked next; none if it answered everything.
pub(super) fn next(
    codec: &RequestStateCodec,
    fixture: &str,
    responses: Option<&InputResponses>,
    state: Option<&str>,
    client: Option<&ClientCapabilities>,
) -> Result<Option<InputRequiredResult>, ErrorData> {
    let Some(Questions { rounds, sealed }) = questions(fixture) else {
        return Ok(None);
    };
    let round = match (sealed, state) {
        (true, Some(state)) => codec
            .open_json::<usize>(state)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?,
        _ => 0,
    };
    let answered = responses.is_some_and(|responses| {
        let keys = rounds[round].as_object().unwrap().keys();
        let mut given = keys.map(|key| responses.get(key).is_some_and(Value::is_object));
        given.all(|given| given)
    });
    let round = if answered && (!sealed || state.is_some()) {
        round + 1
    } else {
        round
    };
    let Some(requests) = rounds.get(round) else {
        return Ok(None);
    };
    let mut requests: InputRequests = serde_json::from_value(requests.clone()).unwrap();
    if fixture.ends_with("_capabilities") {
        requests.retain(|_, request| can_answer(client, &serde_json::to_value(request).unwrap()));
    }
    let state = sealed.then(|| codec.seal_json(&round).unwrap());
    Ok(Some(InputRequiredResult::new(Some(requests), state)))
}

fn can_answer(client: Option<&ClientCapabilities>, request: &Value) -> bool {
    let client = serde_json::to_value(client).unwrap();
    let needed = match request["method"].as_str().unwrap() {
        "elicitation/create" => "elicitation",
        "sampling/createMessage" => "sampling",
        _ => "roots",
    };
    client.get(needed).is_some()
}
