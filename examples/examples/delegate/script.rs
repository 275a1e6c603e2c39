//! Two lists of what a model emits in, each turn carried out by its worker and held to its end out.

use bailiwick::{Call, CallError, Code, Outcome, Policy, SpawnError, Verdict, Worker, WorkerSpec};
use bailiwick::{escape, escape_lines};
use bailiwick_examples::{coloured, diff};
use serde_json::{Value, json};

use super::place::{MARK, NOTES, Place};
use super::{Failure, ensure};

/// One turn of a model: what it says, what it then does, and how that must end here.
pub(crate) struct Turn {
    says: &'static str,
    does: Does,
    ends: Ends,
}

enum Does {
    Call(&'static str, Value),
    Preview(&'static str, Value),
    /// Starts a sub-agent with a policy that the model wrote.
    Delegate(&'static str, Value),
}

enum Ends {
    Done,
    Refused(Code),
    AsPeopleSay,
}

fn turn(says: &'static str, does: Does, ends: Ends) -> Turn {
    Turn { says, does, ends }
}

const DENIED: Ends = Ends::Refused(Code::PermissionDenied);

fn search(place: &Place) -> Does {
    let arguments =
        json!({ "path": place.reads, "pattern": place.query, "literal": true, "limit": 3 });
    Does::Call("grep", arguments)
}

fn read(path: &str) -> Does {
    Does::Call("read_file", json!({ "path": path }))
}

/// What the model of the coordinator emits.
pub(crate) fn coordinator(place: &Place) -> Vec<Turn> {
    vec![turn("I look myself.", read(&place.file), DENIED)]
}

/// What the model of the reader emits.
pub(crate) fn reader(place: &Place) -> Vec<Turn> {
    let absent = format!("{}/none/.env", place.reads);
    let wider = json!({ "allow_scopes": [format!("write:file:{}", place.reads)] });
    vec![
        turn("I search for it.", search(place), Ends::Done),
        turn("A .env may hold a key.", read(&place.secret()), DENIED),
        turn("Is there another one?", read(&absent), DENIED),
        turn("What is outside?", read("/etc/passwd"), DENIED),
        turn(
            "A helper could write for me.",
            Does::Delegate("helper", wider),
            Ends::Refused(Code::PolicyExpansion),
        ),
    ]
}

/// What the model of the editor emits.
pub(crate) fn editor(place: &Place) -> Vec<Turn> {
    let edit = || place.edit(&place.line, &format!("{}{MARK}", place.line));
    let notes = json!({ "path": NOTES, "content": "The editor changes one line.\n" });
    vec![
        turn(
            "I leave a note at the top.",
            Does::Call("write_file", notes),
            Ends::AsPeopleSay,
        ),
        turn(
            "What would my edit do?",
            Does::Preview("edit_file", edit()),
            Ends::Done,
        ),
        turn(
            "Good. I make it.",
            Does::Call("edit_file", edit()),
            Ends::Done,
        ),
    ]
}

/// What the reader tries once its authority is gone.
pub(crate) fn late_reader(place: &Place) -> Vec<Turn> {
    let gone = Ends::Refused(Code::Cancelled);
    vec![turn("I search again.", search(place), gone)]
}

/// What the editor tries once its authority is gone.
pub(crate) fn late_editor(place: &Place) -> Vec<Turn> {
    let edit = Does::Call("edit_file", place.edit(&place.line, "late"));
    vec![turn("One more edit.", edit, Ends::Refused(Code::Cancelled))]
}

/// Plays a model's turns. Each must end as its script says, and only what was done may have changed anything.
pub(crate) async fn play(worker: &Worker, place: &Place, turns: Vec<Turn>) -> Result<(), Failure> {
    for Turn { says, does, ends } in turns {
        let name = worker.agent().rsplit('/').next().unwrap_or_default();
        println!("  {name}: \"{says}\"");
        let was = place.state();
        let Acted {
            ended,
            why,
            may_change,
        } = act(worker, does).await;
        let ended_well = match (&ended, ends) {
            (Ok(()), Ends::Done | Ends::AsPeopleSay) => true,
            (Err(refused), Ends::Refused(code)) => refused.code() == code,
            (Err(refused), Ends::AsPeopleSay) => {
                matches!(
                    refused.details().get("denied_by").and_then(Value::as_str),
                    Some("person" | "host")
                )
            }
            (Ok(()), Ends::Refused(_)) | (Err(_), Ends::Done) => false,
        };
        if let Err(refused) = &ended {
            println!(
                "    refused: {} {}",
                refused.code(),
                escape(refused.message())
            );
            why.iter().for_each(|why| println!("    decided by {why}"));
        }
        ensure(ended_well, "that turn did not end as it should")?;
        let must_change = ended.is_ok() && may_change;
        ensure(
            (place.state() != was) == must_change,
            "the files are not what that turn should have left",
        )?;
    }
    Ok(())
}

/// What came of a turn.
struct Acted {
    ended: Result<(), CallError>,
    /// The layer and rule that denied it, if one did.
    why: Option<String>,
    /// It was of a kind that changes files.
    may_change: bool,
}

impl Acted {
    fn unchanging(ended: Result<(), CallError>) -> Self {
        Self {
            ended,
            why: None,
            may_change: false,
        }
    }
}

/// Does what a turn says, and shows the answer.
async fn act(worker: &Worker, does: Does) -> Acted {
    match does {
        Does::Call(tool, arguments) => {
            println!("    {tool} {}", brief(&arguments));
            let call = Call::new(tool, arguments);
            let why = denied_by(worker, &call);
            let ended = worker.submit(call).await;
            let mutates = worker
                .tools()
                .iter()
                .any(|info| info.spec.name == tool && info.mutates);
            Acted {
                ended: ended.map(|outcome| show(&outcome)),
                why,
                may_change: mutates,
            }
        }
        Does::Preview(tool, arguments) => {
            println!("    preview of {tool} {}", brief(&arguments));
            let preview = worker.preview(tool, arguments).await;
            let shown = preview.map(|preview| print_lines(&diff(&preview.changes, coloured())));
            Acted::unchanging(shown)
        }
        Does::Delegate(name, policy) => {
            println!("    starts \"{name}\" with {policy}");
            let spawned = match Policy::parse(&policy) {
                Ok(policy) => worker.spawn(WorkerSpec::new(name).policy(policy)).await,
                Err(error) => Err(SpawnError::Policy(error)),
            };
            Acted::unchanging(spawned.map(drop).map_err(CallError::from))
        }
    }
}

/// Which layer and rule denies a call, if one does.
fn denied_by(worker: &Worker, call: &Call) -> Option<String> {
    let reasons = worker.explain(call).ok()?;
    let denial = reasons
        .iter()
        .find(|reason| reason.verdict == Verdict::Deny)?;
    Some(denial.to_string())
}

fn show(outcome: &Outcome) {
    let text = outcome.text();
    let lines: Vec<String> = text
        .lines()
        .map(|line| escape_lines(line).into_owned())
        .collect();
    print_lines(&lines);
}

/// Shows what came back, the first lines of it.
pub(crate) fn print_lines(lines: &[String]) {
    for line in lines.iter().take(20) {
        println!("    | {line}");
    }
}

/// The path of a call, or all its arguments on one line.
fn brief(arguments: &Value) -> String {
    match (arguments.get("path"), arguments.get("pattern")) {
        (Some(path), Some(pattern)) => format!("{pattern} in {path}"),
        (Some(path), None) => path.to_string(),
        _ => arguments.to_string(),
    }
}
