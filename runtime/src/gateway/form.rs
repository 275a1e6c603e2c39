//! A question in, a form for the person behind a client out; and what they filled in, as their answer.

use std::num::NonZeroU32;
use std::time::Duration;

use rmcp::model::{ElicitRequestParams, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value, json};

use crate::call::Origin;
use crate::effect::Change;
use crate::permission::{Answer, Lifetime, Question, listed};
use crate::scope::ScopePattern;

/// How much of the arguments is shown, in characters. What is not shown whole is not allowed for longer than the call.
const MOST_ARGUMENTS: usize = 2000;
/// After the number of waiting calls that an answer lets through.
const WAITING: &str = " waiting calls";
/// The longest note to the agent, in characters.
const MOST_NOTE: usize = 500;

/// What an answer may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The one call: its worker serves others, too.
    Call,
    /// The worker of one connection, for longer.
    Connection,
}

/// What a filled-in form means; nothing for one that was sent away. Else whatever is not a clear yes is a no.
pub(super) fn read(
    question: &Question,
    reach: Reach,
    action: &ElicitationAction,
    content: &Value,
) -> Option<Answer> {
    if *action == ElicitationAction::Cancel {
        return None;
    }
    Some(answer(question, reach, action, content))
}

fn answer(
    question: &Question,
    reach: Reach,
    action: &ElicitationAction,
    content: &Value,
) -> Answer {
    let text = |key: &str| content.get(key).and_then(Value::as_str);
    let denied = || Answer::Deny {
        note: text("note")
            .filter(|note| !note.trim().is_empty())
            .map(|note| shortened(note, MOST_NOTE)),
    };
    if *action != ElicitationAction::Accept || text("decision") != Some("allow") {
        return denied();
    }
    if reach == Reach::Call || !is_whole(question) {
        return Answer::ONCE;
    }
    let chosen = match content.get("breadth") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(chosen)) => rungs(question)
            .find(|(text, _)| text == chosen)
            .map(|(_, rung)| rung.clone()),
        Some(_) => None,
    };
    let lifetime = match content.get("lifetime") {
        None | Some(Value::Null) => Some(Lifetime::Once),
        Some(Value::String(chosen)) => lifetimes()
            .find(|(name, _)| name == chosen)
            .map(|(_, lifetime)| lifetime)
            .or_else(|| waiting(chosen)),
        Some(_) => None,
    };
    match (chosen, lifetime) {
        (Some(patterns), Some(lifetime)) => Answer::Allow {
            patterns,
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        },
        _ => denied(),
    }
}

/// The rungs that a form offers, each as the text that chooses it.
fn rungs(question: &Question) -> impl Iterator<Item = (String, &Vec<ScopePattern>)> {
    question.rungs().map(|rung| (listed(rung, ", "), rung))
}

/// How long an answer may hold, each by the name that chooses it.
fn lifetimes() -> impl Iterator<Item = (&'static str, Lifetime)> {
    const TEN: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
    [
        ("once", Lifetime::Once),
        ("ten uses", Lifetime::Uses(TEN)),
        ("one hour", Lifetime::For(Duration::from_secs(3600))),
        ("session", Lifetime::Session),
    ]
    .into_iter()
}

/// What lets all the equal calls through that wait now.
fn all_waiting(question: &Question) -> Option<String> {
    let calls = question.all_waiting()?;
    Some(format!("{calls}{WAITING}"))
}

/// How many waiting calls such a text lets through; their number may have changed since it was shown.
fn waiting(chosen: &str) -> Option<Lifetime> {
    let calls = chosen.strip_suffix(WAITING)?;
    calls.parse().ok().map(Lifetime::Waiting)
}

/// The form that puts a question.
pub(super) fn form(question: &Question, reach: Reach) -> Option<ElicitRequestParams> {
    let mut properties = properties(question);
    if reach == Reach::Call || !is_whole(question) {
        properties.retain(|key, _| !matches!(key.as_str(), "breadth" | "lifetime"));
    }
    let schema = json!({"type": "object", "properties": properties, "required": ["decision"]});
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(question),
        requested_schema,
    })
}

fn message(question: &Question) -> String {
    let request = &question.request;
    let needs: Vec<String> = request
        .needs
        .iter()
        .map(|need| crate::escape(&need.to_string()).into_owned())
        .collect();
    let changes = request
        .preview
        .as_ref()
        .map_or_else(String::new, |preview| {
            let shown: Vec<String> = preview.changes.iter().take(5).map(told).collect();
            let more = preview.changes.len().saturating_sub(5);
            let more = if more == 0 {
                String::new()
            } else {
                format!(" and {more} more")
            };
            format!("Changes: {}{more}\n", shown.join(", "))
        });
    let care = if request.sensitive {
        let why = request.protected_because.join("; ");
        let why = if why.is_empty() {
            why
        } else {
            format!(" ({why})")
        };
        format!("CAREFUL: this changes what agents or tools may do{why}.\n")
    } else {
        String::new()
    };
    let from = if request.origin == Origin::View {
        "A page that the agent's client shows asks for this.\n"
    } else {
        ""
    };
    let waiting = question.all_waiting().map_or_else(String::new, |calls| {
        format!("{calls} equal calls wait; `once` lets one of them through.\n")
    });
    // A line break of an agent's text is escaped, so none of it begins a line.
    format!(
        "{care}{from}{waiting}Agent: {}\nTool: {}\nNeeds: {}\n{changes}Intent: {}\nArguments: {}",
        crate::escape(&request.agent_path.join(" > ")),
        crate::escape(request.tool.as_str()),
        needs.join(", "),
        crate::escape(&shortened(&request.intent, 300)),
        crate::escape(&shortened(&request.arguments.to_string(), MOST_ARGUMENTS)),
    )
}

/// Whether the form shows all of the call.
fn is_whole(question: &Question) -> bool {
    question.request.arguments.to_string().chars().count() <= MOST_ARGUMENTS
}

fn properties(question: &Question) -> Map<String, Value> {
    let mut properties = Map::new();
    properties.insert(
        "decision".into(),
        json!({"type": "string", "title": "Allow this call?", "enum": ["allow", "deny"]}),
    );
    let offered: Vec<String> = rungs(question).map(|(text, _)| text).collect();
    if offered.len() > 1 {
        let narrowest = offered.first().cloned();
        properties.insert(
            "breadth".into(),
            json!({
                "type": "string", "title": "How much?",
                "description": "What is allowed; the first is exactly what the call needs.",
                "enum": offered, "default": narrowest,
            }),
        );
    }
    let names = lifetimes().map(|(name, _)| name.to_owned());
    let names: Vec<String> = names.chain(all_waiting(question)).collect();
    properties.insert(
        "lifetime".into(),
        json!({
            "type": "string", "title": "For how long?",
            "description": "`once` is this call alone; the others hold for this connection's worker.",
            "enum": names, "default": "once",
        }),
    );
    properties.insert(
        "note".into(),
        json!({
            "type": "string", "title": "Note", "description": "If denied: what the agent is told.",
            "maxLength": MOST_NOTE,
        }),
    );
    properties
}

fn told(change: &Change) -> String {
    let path = crate::escape(change.path.as_str());
    format!("{path} (+{} -{})", change.diff.added, change.diff.removed)
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let more = text.chars().count() - most;
    let kept: String = text.chars().take(most).collect();
    format!("{kept}… ({more} more characters are not shown)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            id: crate::id::QuestionId(1),
            run: crate::permission::Run::default(),
            asked_at: Duration::ZERO,
            expires_at: Duration::from_secs(600),
            request: crate::permission::tests::request(1, 1, &["write:file:/r/a/x"]),
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    #[track_caller]
    fn check(action: &str, content: &Value, expected: &Answer) {
        let action: ElicitationAction = serde_json::from_value(json!(action)).unwrap();
        let answer = read(&question(), Reach::Connection, &action, content);
        assert_eq!(answer.as_ref(), Some(expected), "{content}");
    }

    #[test]
    fn a_form_says_how_much_and_how_long_and_defaults_to_the_least() {
        check("accept", &json!({"decision": "allow"}), &Answer::ONCE);
        let wider =
            json!({"decision": "allow", "breadth": "write:file:/r/a", "lifetime": "session"});
        let patterns = vec!["write:file:/r/a".parse().unwrap()];
        let expected = Answer::Allow {
            patterns,
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        };
        check("accept", &wider, &expected);
        let note = json!({"decision": "deny", "note": "use /r/b"});
        let told = Answer::Deny {
            note: Some("use /r/b".to_owned()),
        };
        check("accept", &note, &told);
    }

    #[test]
    fn a_form_counts_the_calls_that_wait_and_lets_as_many_through_as_a_person_says() {
        let question = question();
        question.calls.set(64);
        let form = serde_json::to_value(form(&question, Reach::Connection)).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("64 equal calls wait"), "{message}");
        let offered = &form["requestedSchema"]["properties"]["lifetime"]["enum"];
        assert_eq!(offered[4], "64 waiting calls");
        let all = json!({"decision": "allow", "lifetime": "64 waiting calls"});
        let answer = read(
            &question,
            Reach::Connection,
            &ElicitationAction::Accept,
            &all,
        );
        let Some(Answer::Allow { lifetime, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(lifetime.waiting_calls().unwrap().get(), 64);
    }

    #[test]
    fn whatever_is_not_a_clear_yes_is_a_no() {
        for (action, content) in [
            ("decline", json!({"decision": "allow"})),
            ("accept", json!({})),
            ("accept", json!({"decision": true})),
            ("accept", json!({"decision": "allow", "breadth": "write"})),
            ("accept", json!({"decision": "allow", "breadth": 1})),
            ("accept", json!({"decision": "allow", "lifetime": "agent"})),
            ("accept", json!({"decision": "allow", "lifetime": []})),
            ("accept", json!("allow")),
            ("accept", Value::Null),
        ] {
            check(action, &content, &Answer::DENY);
        }
    }

    #[test]
    fn what_reaches_one_call_is_allowed_for_that_call() {
        let wide = json!({"decision": "allow", "breadth": "write:file:/r", "lifetime": "session"});
        let accept = ElicitationAction::Accept;
        let answer = read(&question(), Reach::Call, &accept, &wide);
        assert_eq!(answer, Some(Answer::ONCE));
        let cancel = ElicitationAction::Cancel;
        assert_eq!(read(&question(), Reach::Call, &cancel, &wide), None);
        let form = form(&question(), Reach::Call).unwrap();
        let form = serde_json::to_value(form).unwrap();
        let offered = form["requestedSchema"]["properties"].as_object().unwrap();
        assert!(offered.keys().eq(["decision", "note"]), "{form}");
    }

    #[test]
    fn a_form_offers_three_rungs_and_every_lifetime_but_the_longest() {
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = form(&question(), Reach::Connection).unwrap()
        else {
            panic!("no form");
        };
        assert!(message.contains("write:file:/r/a/x"), "{message}");
        let schema = serde_json::to_value(requested_schema).unwrap();
        assert_eq!(
            schema["properties"]["breadth"]["enum"],
            json!(["write:file:/r/a/x", "write:file:/r/a", "write:file:/r"])
        );
        assert_eq!(
            schema["properties"]["lifetime"]["enum"],
            json!(["once", "ten uses", "one hour", "session"])
        );
    }
}
