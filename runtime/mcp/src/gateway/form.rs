//! Elicitation forms for permission questions.

use std::num::NonZeroU32;
use std::time::Duration;

use rmcp::model::{ElicitRequestParams, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value, json};

use bailiwick::call::Origin;
use bailiwick::permission::{Answer, Choice, DeniedCalls, Lifetime, Question, Request};
use bailiwick::scope::{Coverage, Verb};

/// Maximum characters of the arguments. If they are cut, only the call itself can be allowed.
const MAX_ARGUMENTS: usize = 2000;
/// The decision that denies all calls of this kind until the session ends.
const DENY_KIND: &str = "deny all of this kind";
/// What a plain denial does.
const DENY_ABOUT: &str =
    "`deny` refuses this call and equal ones that wait with it; later ones ask again.";
/// Title of the tick that broad choices require.
const CONFIRM: &str = "I understand that this allows more than this call";
/// Suffix after the number of waiting calls in a lifetime choice.
const WAITING_CALLS: &str = " waiting calls";
/// Maximum characters of the intent.
const MAX_INTENT: usize = 300;
/// Maximum numbers of changes and of directory entries, and characters of a path.
const MAX_CHANGES: usize = 5;
const MAX_ENTRIES: usize = 10;
const MAX_PATH: usize = 200;
/// Maximum bytes of a choice; longer ones are not offered, since people could not read what they cover.
const MAX_CHOICE: usize = 1000;
/// Maximum number of needs; there are more only if a plan lists its changes.
const MAX_NEEDS: usize = 20;
/// Maximum characters of a note to the agent.
const MAX_NOTE: usize = 500;

/// What a form may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormKind {
    /// The one call, since its worker also serves other clients.
    Call,
    /// Also later calls of the connection's worker.
    Connection,
}

/// A client's response to a form.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FormResponse {
    /// The user's answer.
    Answer(Answer),
    /// The form was dismissed or could not be shown.
    Dismissed,
    /// Not a valid response to the form. This is the client's error, not a denial.
    Unusable,
}

/// Parses the response to a form.
pub(super) fn read(
    question: &Question,
    kind: FormKind,
    action: &ElicitationAction,
    content: &Value,
) -> FormResponse {
    let text = |key: &str| content.get(key).and_then(Value::as_str);
    let denied = |rest_of_session| {
        let note = text("note").filter(|note| !note.trim().is_empty());
        FormResponse::Answer(Answer::Deny {
            note: note.map(|note| truncated(note, MAX_NOTE)),
            rest_of_session,
        })
    };
    match (action, text("decision")) {
        (ElicitationAction::Cancel, _) => FormResponse::Dismissed,
        (ElicitationAction::Decline, _) | (ElicitationAction::Accept, Some("deny")) => denied(None),
        (ElicitationAction::Accept, Some(DENY_KIND)) if kind == FormKind::Connection => {
            denied(Some(DeniedCalls::Kind))
        }
        (ElicitationAction::Accept, Some("allow")) => allow_answer(question, kind, content)
            .map_or(FormResponse::Unusable, FormResponse::Answer),
        _ => FormResponse::Unusable,
    }
}

/// The answer that allows the call; `None` if it was not offered.
fn allow_answer(question: &Question, kind: FormKind, content: &Value) -> Option<Answer> {
    if kind == FormKind::Call || !is_whole(question) {
        return Some(Answer::ONCE);
    }
    let (patterns, choice) = match content.get("breadth") {
        None | Some(Value::Null) => (Vec::new(), question.request.choices.first()?),
        Some(Value::String(chosen)) => {
            let (_, choice) = choices(question).find(|(text, _)| text == chosen)?;
            (choice.patterns.clone(), choice)
        }
        Some(_) => return None,
    };
    let lifetime = match content.get("lifetime") {
        None | Some(Value::Null) => Lifetime::Once,
        Some(Value::String(chosen)) => lifetimes()
            .find(|(name, _)| name == chosen)
            .map(|(_, lifetime)| lifetime)
            .or_else(|| waiting_calls(chosen))?,
        Some(_) => return None,
    };
    let confirmed = content.get("confirm") == Some(&Value::Bool(true));
    if choice.needs_confirmation(lifetime) && !confirmed {
        return None;
    }
    if lifetime.waiting_calls().is_none() && !choice.may_last() {
        return None;
    }
    Some(Answer::Allow {
        patterns,
        lifetime,
        descendants: false,
        left_out: Vec::new(),
    })
}

/// The choices with the sentences that select them.
fn choices(question: &Question) -> impl Iterator<Item = (String, &Choice)> {
    let roots = &question.request.roots;
    let all = question.request.choices.iter().enumerate();
    let all = all.map(|(number, choice)| {
        let title = bailiwick::text::escape(&choice.title(roots)).into_owned();
        if number == 0 && title.len() > MAX_CHOICE {
            return ("exactly the needs above".to_owned(), choice);
        }
        (title, choice)
    });
    all.filter(|(text, _)| text.len() <= MAX_CHOICE)
}

/// The lifetimes with the names that select them.
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

/// The lifetime choice that allows all equal waiting calls.
fn all_waiting(question: &Question) -> Option<String> {
    let calls = question.allowed_together()?;
    Some(format!("{calls}{WAITING_CALLS}"))
}

/// Parses such a choice; the number may have changed since it was shown.
fn waiting_calls(chosen: &str) -> Option<Lifetime> {
    let calls = chosen.strip_suffix(WAITING_CALLS)?;
    calls.parse().ok().map(Lifetime::Waiting)
}

/// The form of a question.
pub(super) fn form(question: &Question, kind: FormKind) -> Option<ElicitRequestParams> {
    let properties = properties(question, kind);
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
    let mut text = String::new();
    // Line breaks in text of an agent are escaped, so it cannot forge a line.
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    let escaped = |text: &str, max| truncated(&bailiwick::text::escape(text), max);
    if request.sentence != request.intent {
        line(format!(
            "Effect: {}",
            bailiwick::text::escape(&request.sentence)
        ));
    }
    for danger in &request.dangers {
        line(format!(
            "{}: {}",
            danger.level.word(),
            bailiwick::text::escape(&danger.text)
        ));
    }
    if let Some(notice) = request.undo_notice("afterwards") {
        line(notice);
    }
    if let Some(warning) = request.page_warning() {
        line(warning.to_owned());
    } else if request.origin == Origin::View {
        // Only the client knows whether the page or the agent made the call.
        let from = "The agent's client asks for this, for a page that it shows or for the agent.";
        line(from.to_owned());
    }
    if let Some(calls) = question.all_waiting() {
        line(format!(
            "{calls} equal calls wait; `once` lets one of them through."
        ));
    }
    let agents = request.agent_path.join(" > ");
    line(format!("Agent: {}", escaped(&agents, MAX_INTENT)));
    line(format!(
        "Tool: {}",
        bailiwick::text::escape(request.tool.as_str())
    ));
    show_needs(request, &mut line);
    if request.preview.is_none() && request.needs.iter().any(|need| need.verb() != Verb::Read) {
        line("No preview: what would change is not known before it is allowed.".to_owned());
    }
    let changes = request.preview.iter().flat_map(|preview| &preview.changes);
    let count = changes.clone().count();
    if count > 0 {
        line("Changes:".to_owned());
    }
    for change in changes.take(MAX_CHANGES) {
        line(format!("  {}", change.summary(MAX_PATH)));
        for entry in change.listing(MAX_ENTRIES, MAX_PATH) {
            line(format!("    {entry}"));
        }
    }
    if count > MAX_CHANGES {
        line(format!("  ... and {} more", count - MAX_CHANGES));
    }
    show_resources(request, &mut line);
    line(format!("Intent: {}", escaped(&request.intent, MAX_INTENT)));
    let arguments = request.arguments.to_string();
    let arguments = escaped(&arguments, MAX_ARGUMENTS);
    text.push_str(&format!("Arguments: {arguments}"));
    text
}

/// Whether the form shows all arguments.
fn is_whole(question: &Question) -> bool {
    let arguments = question.request.arguments.to_string();
    bailiwick::text::escape(&arguments).chars().count() <= MAX_ARGUMENTS
}

fn properties(question: &Question, kind: FormKind) -> Map<String, Value> {
    let mut properties = Map::new();
    let title = "Allow this call?";
    // Other clients share the worker.
    let decision = if kind == FormKind::Call {
        json!({"type": "string", "title": title, "description": DENY_ABOUT, "enum": ["allow", "deny"]})
    } else {
        let kinds = truncated(
            &bailiwick::text::escape(&question.request.kinds()),
            MAX_INTENT,
        );
        let about = format!(
            "{DENY_ABOUT} `{DENY_KIND}` denies this agent, until the session ends and without asking, to {kinds}."
        );
        json!({
            "type": "string", "title": title, "description": about,
            "enum": ["allow", "deny", DENY_KIND],
        })
    };
    properties.insert("decision".into(), decision);
    if kind == FormKind::Connection && is_whole(question) {
        add_choices(question, &mut properties);
    }
    let note = json!({
        "type": "string", "title": "Note", "description": "If denied: a note for the agent.",
        "maxLength": MAX_NOTE,
    });
    properties.insert("note".into(), note);
    properties
}

/// Adds how much and for how long the user may allow.
fn add_choices(question: &Question, properties: &mut Map<String, Value>) {
    let offered: Vec<String> = choices(question).map(|(text, _)| text).collect();
    if offered.len() > 1 {
        let narrowest = offered.first().cloned();
        let breadth = json!({
            "type": "string", "title": "What may it do without asking?",
            "description": "The first is exactly what this call needs.",
            "enum": offered, "default": narrowest,
        });
        properties.insert("breadth".into(), breadth);
    }
    let names = lifetimes().map(|(name, _)| name.to_owned());
    let names: Vec<String> = names.chain(all_waiting(question)).collect();
    let mut about = "`once` is only this call. The others also allow further calls of this connection without asking; they \
         end with it at the latest."
        .to_owned();
    if question
        .request
        .choices
        .first()
        .is_some_and(|choice| !choice.may_last())
    {
        about += " Exactly what the call needs is too much to allow for longer.";
    }
    let lifetime = json!({
        "type": "string", "title": "For how long?", "description": about,
        "enum": names, "default": "once",
    });
    properties.insert("lifetime".into(), lifetime);
    let broad: Vec<String> = choices(question)
        .filter(|(_, choice)| choice.is_broad())
        .map(|(text, _)| format!("\"{text}\""))
        .collect();
    if !broad.is_empty() {
        let about = format!(
            "Required to allow {}, except for `once` of what the call needs.",
            broad.join(" or ")
        );
        let confirm = json!({
            "type": "boolean", "title": CONFIRM, "description": about, "default": false,
        });
        properties.insert("confirm".into(), confirm);
    }
}

fn truncated(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let more = text.chars().count() - max;
    let kept: String = text.chars().take(max).collect();
    format!("{kept}… ({more} more characters are not shown)")
}

/// Adds the first needs, each in full, and how many more there are.
fn show_needs(request: &Request, mut line: impl FnMut(String)) {
    line("Needs:".to_owned());
    for need in request.needs.iter().take(MAX_NEEDS) {
        let sentence = Coverage::of(need).sentence();
        line(format!("  {}", bailiwick::text::escape(&sentence)));
    }
    let more = request.needs.len().saturating_sub(MAX_NEEDS);
    if more > 0 {
        line(format!("  ... and {more} more"));
    }
}

/// Adds the changes of resources that are not files.
fn show_resources(request: &Request, mut line: impl FnMut(String)) {
    let resources = request.preview.iter();
    let resources = resources.flat_map(|preview| &preview.resources);
    for change in resources.clone().take(MAX_CHANGES) {
        line(format!("Changes {}", change.title(MAX_PATH)));
        for (op, text) in change.lines().take(MAX_ENTRIES) {
            let text = truncated(&bailiwick::text::escape(text), MAX_PATH);
            line(format!("    {op}{text}"));
        }
    }
    let more = resources.count().saturating_sub(MAX_CHANGES);
    if more > 0 {
        line(format!("... and {more} more changes"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use bailiwick::VirtualPath;
    use bailiwick::fixtures::{changing, request};
    use bailiwick::scope::{Operation, Scope};

    const FOLDER: &str = "its folder: change /r/a and everything in it; sensitive files still ask";

    fn question() -> Question {
        bailiwick::fixtures::question(changing(request(1, 1, &["write:file:/r/a/x"])))
    }

    #[track_caller]
    fn check(action: &str, content: &Value, expected: &Answer) {
        let action: ElicitationAction = serde_json::from_value(json!(action)).unwrap();
        let answer = read(&question(), FormKind::Connection, &action, content);
        assert_eq!(answer, FormResponse::Answer(expected.clone()), "{content}");
    }

    #[test]
    fn resource_change_is_shown_and_cannot_forge_lines() {
        let mut question = question();
        question.request =
            bailiwick::fixtures::shown(Arc::unwrap_or_clone(question.request)).into();
        let order =
            bailiwick::effect::ResourceChange::new("stock:tea", "order\nNeeds:").after("12");
        Arc::make_mut(&mut question.request)
            .preview
            .as_mut()
            .unwrap()
            .resources = vec![order];
        let text = message(&question);
        assert!(
            text.contains("\nChanges stock:tea: order\\u{a}Needs:\n    +12\n"),
            "{text}"
        );
        assert_eq!(text.matches("\nNeeds:").count(), 1);
    }

    #[test]
    fn form_defaults_to_the_narrowest_choice_once() {
        check("accept", &json!({"decision": "allow"}), &Answer::ONCE);
        let wider = json!({"decision": "allow", "breadth": FOLDER, "lifetime": "session"});
        let patterns = question().request.choices[1].patterns.clone();
        let expected = Answer::Allow {
            patterns,
            lifetime: Lifetime::Session,
            descendants: false,
            left_out: Vec::new(),
        };
        check("accept", &wider, &expected);
        let note = json!({"decision": "deny", "note": "use /r/b"});
        check("accept", &note, &Answer::deny(Some("use /r/b".to_owned())));
        let kind = json!({"decision": DENY_KIND, "note": "no changes"});
        let expected_denial = Answer::Deny {
            note: Some("no changes".to_owned()),
            rest_of_session: Some(DeniedCalls::Kind),
        };
        check("accept", &kind, &expected_denial);
    }

    #[test]
    fn form_can_allow_all_waiting_calls() {
        let question = question();
        question.calls.set(64);
        let form = serde_json::to_value(form(&question, FormKind::Connection)).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("64 equal calls wait"), "{message}");
        let offered = &form["requestedSchema"]["properties"]["lifetime"]["enum"];
        assert_eq!(offered[4], "64 waiting calls");
        let all = json!({"decision": "allow", "lifetime": "64 waiting calls"});
        let answer = read(
            &question,
            FormKind::Connection,
            &ElicitationAction::Accept,
            &all,
        );
        let FormResponse::Answer(Answer::Allow { lifetime, .. }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(lifetime.waiting_calls().unwrap().get(), 64);
    }

    #[test]
    fn form_does_not_offer_equal_changes_of_files_together() {
        let mut question = question();
        question.calls.set(3);
        let mut request = bailiwick::fixtures::shown((*question.request).clone());
        let change = bailiwick::fixtures::deleted_directory("/r/old", 0, 0);
        request.preview.as_mut().unwrap().changes = vec![change];
        question.request = request.into();
        let form = serde_json::to_value(form(&question, FormKind::Connection)).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("3 equal calls wait"), "{message}");
        let offered = &form["requestedSchema"]["properties"]["lifetime"]["enum"];
        assert_eq!(offered, &json!(["once", "ten uses", "one hour", "session"]));
    }

    #[test]
    fn each_need_is_on_its_own_line() {
        let mut question = question();
        let forged = "read:file:/r/a, read:file:/r/b";
        let path = |path| VirtualPath::parse(path, None).unwrap();
        Arc::make_mut(&mut question.request).needs = vec![
            Scope::doing(Operation::Change, path("/r/a")),
            Scope::doing(Operation::Delete, path("/r/dir")).beneath(),
            forged.parse().unwrap(),
        ];
        let message = message(&question);
        let needs: Vec<&str> = message
            .lines()
            .skip_while(|line| *line != "Needs:")
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .collect();
        let expected = [
            "  change /r/a",
            "  delete /r/dir and everything in it",
            "  read \"/r/a, read:file:/r/b\"",
        ];
        assert_eq!(needs, expected);
    }

    #[test]
    fn form_is_bounded_and_shows_every_need_in_full() {
        let mut question = question();
        let path = format!("{0}/{0}", "d".repeat(190));
        let needs = (0..20).map(|n| format!("read:file:/{n}/{path}/secret{n}"));
        let needs: Vec<String> = needs.collect();
        let request = Arc::make_mut(&mut question.request);
        request.needs = needs.iter().map(|need| need.parse().unwrap()).collect();
        let ceiling = [bailiwick::scope::ScopePattern::ANY];
        request.choices = bailiwick::permission::choices(&request.needs, &ceiling, &[], false);
        request.intent = "i".repeat(1024);
        request.arguments = json!({ "path": "\u{202e}".repeat(1 << 20) });
        let mut shown = bailiwick::fixtures::shown(request.clone());
        let preview = shown.preview.as_mut().unwrap();
        let folder = format!("/r{}", format!("/{}", "d".repeat(200)).repeat(15));
        preview.changes = vec![bailiwick::fixtures::deleted_directory(&folder, 99, 50); 100];
        question.request = shown.into();
        let form = serde_json::to_string(&form(&question, FormKind::Connection).unwrap()).unwrap();
        assert!(form.len() < 24 << 10, "{}", form.len());
        let message = message(&question);
        for need in &needs {
            let path = need.strip_prefix("read:file:").unwrap();
            assert!(message.contains(&format!("\n  read {path}\n")), "{need}");
        }
        assert!(message.contains("... and 95 more\n"), "{message}");
    }

    #[test]
    fn form_counts_the_needs_of_a_large_plan() {
        let mut question = question();
        let needs = (0..1000).map(|n| format!("write:file:/r/{n}").parse().unwrap());
        let request = Arc::make_mut(&mut question.request);
        request.needs = needs.collect();
        let ceiling = [bailiwick::scope::ScopePattern::ANY];
        request.choices = bailiwick::permission::choices(&request.needs, &ceiling, &[], false);
        let form = serde_json::to_string(&form(&question, FormKind::Connection).unwrap()).unwrap();
        assert!(form.len() < 24 << 10, "{}", form.len());
        let message = message(&question);
        assert!(message.contains("/r/19\n  ... and 980 more\n"), "{message}");
    }

    /// A question whose preview deletes a directory with 12 files.
    fn question_about_deleted_directory() -> Question {
        let mut question = question();
        let mut request = bailiwick::fixtures::shown(Arc::unwrap_or_clone(question.request));
        let preview = request.preview.as_mut().unwrap();
        preview.changes = vec![bailiwick::fixtures::deleted_directory("/r/old", 12, 12)];
        question.request = request.into();
        question
    }

    #[test]
    fn form_lists_the_contents_of_a_deleted_directory() {
        let message = message(&question_about_deleted_directory());
        let expected = "Changes:\n  delete directory /r/old with everything in it: 12 files, 0 directories, 12 bytes\n    \
            f0 (1 byte)\n";
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("    ... and 2 more\n"), "{message}");
    }

    #[test]
    fn broad_choices_require_the_tick() {
        let mut question = question();
        question.request = changing(request(1, 1, &["write:file:/tmp/a/b/x"])).into();
        let form = serde_json::to_value(form(&question, FormKind::Connection)).unwrap();
        let offered = &form["requestedSchema"]["properties"];
        assert_eq!(offered["confirm"]["type"], "boolean");
        let broad = "its folder: change /tmp/a/b and everything in it (outside your project); sensitive files still ask";
        let asked = "this file: change /tmp/a/b/x (outside your project)";
        assert_eq!(offered["breadth"]["enum"], json!([asked, broad]));
        let accept = ElicitationAction::Accept;
        let parsed = |breadth: &str, lifetime: &str, confirm: Value| {
            let content = json!({
                "decision": "allow", "breadth": breadth, "lifetime": lifetime, "confirm": confirm,
            });
            read(&question, FormKind::Connection, &accept, &content)
        };
        let allows = |response| matches!(response, FormResponse::Answer(Answer::Allow { .. }));
        assert!(allows(parsed(asked, "once", Value::Null)));
        assert!(allows(parsed(asked, "session", json!(true))));
        assert!(allows(parsed(broad, "session", json!(true))));
        for unconfirmed in [json!(false), Value::Null, json!("true")] {
            for (breadth, lifetime) in [(asked, "session"), (broad, "once")] {
                let read = parsed(breadth, lifetime, unconfirmed.clone());
                assert_eq!(read, FormResponse::Unusable, "{breadth} {lifetime}");
            }
        }
    }

    #[test]
    fn form_offers_the_same_choices_as_every_other_prompt() {
        for (question, expected) in bailiwick::fixtures::offered_choices() {
            let form = serde_json::to_value(form(&question, FormKind::Connection)).unwrap();
            let offered = &form["requestedSchema"]["properties"]["breadth"]["enum"];
            let titles = expected.iter();
            let titles = titles.map(|(label, covers, _)| format!("{label}: {covers}"));
            let covers: Vec<String> = titles.collect();
            // A form with a single choice has no field for it.
            let texts = if covers.len() > 1 {
                json!(covers)
            } else {
                Value::Null
            };
            assert_eq!(*offered, texts);
            for (covers, (.., confirm)) in covers.into_iter().zip(expected) {
                let breadth = if texts.is_null() {
                    Value::Null
                } else {
                    json!(covers)
                };
                let mut content =
                    json!({"decision": "allow", "breadth": breadth, "lifetime": "session"});
                let accept = ElicitationAction::Accept;
                let unconfirmed = read(&question, FormKind::Connection, &accept, &content);
                assert_eq!(unconfirmed == FormResponse::Unusable, confirm, "{covers}");
                content["confirm"] = json!(true);
                let confirmed = read(&question, FormKind::Connection, &accept, &content);
                assert!(
                    matches!(confirmed, FormResponse::Answer(Answer::Allow { .. })),
                    "{covers}"
                );
            }
        }
    }

    #[test]
    fn form_shows_the_sentence_and_dangers() {
        let mut question = question_about_deleted_directory();
        question.request =
            bailiwick::fixtures::changing(Arc::unwrap_or_clone(question.request)).into();
        let message = message(&question);
        let expected = "Effect: Delete the folder old/ and the 12 files in it (12 bytes)\n\
            Careful: Deletes the folder old/ and the 12 files in it (12 bytes)\n\
            Careful: Deletes everything in old/\n\
            This cannot be undone.\n";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn response_that_was_not_offered_is_unusable() {
        let accept = ElicitationAction::Accept;
        for content in [
            json!({}),
            json!({"decision": true}),
            json!({"decision": "yes"}),
            json!({"decision": "allow", "breadth": "write"}),
            json!({"decision": "allow", "breadth": 1}),
            json!({"decision": "allow", "lifetime": "agent"}),
            json!({"decision": "allow", "lifetime": []}),
            json!({"decision": "allow", "lifetime": "0 waiting calls"}),
            json!("allow"),
            Value::Null,
        ] {
            let read = read(&question(), FormKind::Connection, &accept, &content);
            assert_eq!(read, FormResponse::Unusable, "{content}");
        }
        check("decline", &json!({"decision": "allow"}), &Answer::DENY);
        check("decline", &Value::Null, &Answer::DENY);
        check("accept", &json!({"decision": "deny"}), &Answer::DENY);
    }

    #[test]
    fn form_for_one_call_allows_once() {
        let wide = json!({"decision": "allow", "breadth": FOLDER, "lifetime": "session"});
        let accept = ElicitationAction::Accept;
        let answer = read(&question(), FormKind::Call, &accept, &wide);
        assert_eq!(answer, FormResponse::Answer(Answer::ONCE));
        let cancel = ElicitationAction::Cancel;
        let read = read(&question(), FormKind::Call, &cancel, &wide);
        assert_eq!(read, FormResponse::Dismissed);
        let form = form(&question(), FormKind::Call).unwrap();
        let form = serde_json::to_value(form).unwrap();
        let offered = form["requestedSchema"]["properties"].as_object().unwrap();
        assert!(offered.keys().eq(["decision", "note"]), "{form}");
        assert_eq!(offered["decision"]["enum"], json!(["allow", "deny"]));
        let kind = json!({"decision": DENY_KIND});
        let read = super::read(&question(), FormKind::Call, &accept, &kind);
        assert_eq!(read, FormResponse::Unusable);
    }

    #[test]
    fn form_offers_every_choice() {
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = form(&question(), FormKind::Connection).unwrap()
        else {
            panic!("no form");
        };
        assert!(message.contains("Needs:\n  change /r/a/x\n"), "{message}");
        let schema = serde_json::to_value(requested_schema).unwrap();
        let decision = &schema["properties"]["decision"];
        assert_eq!(decision["enum"], json!(["allow", "deny", DENY_KIND]));
        let expected_denial = decision["description"].as_str().unwrap();
        assert!(
            expected_denial.ends_with("to create, change, delete or move any file."),
            "{expected_denial}"
        );
        assert_eq!(
            schema["properties"]["breadth"]["enum"],
            json!([
                "this file: change /r/a/x",
                FOLDER,
                "the whole project: change /r and everything in it; sensitive files still ask",
            ])
        );
        let confirm = &schema["properties"]["confirm"]["description"];
        let confirm = confirm.as_str().unwrap();
        assert!(confirm.contains("change /r and") && !confirm.contains("/r/a and"));
        assert_eq!(
            schema["properties"]["lifetime"]["enum"],
            json!(["once", "ten uses", "one hour", "session"])
        );
    }
}
