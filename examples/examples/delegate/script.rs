//! Scripted models: the steps of each agent, and how each step must end.

use bailiwick::text::{escape, escape_lines};
use bailiwick::{
    Call, CallError, Code, Origin, Outcome, Policy, SpawnError, Verdict, Worker, WorkerSpec,
};
use bailiwick_examples::{format_diff, use_color};
use serde_json::{Value, json};

use super::workspace::{MARK, NOTES, Workspace};
use super::{BoxError, ensure};

/// One step of a model: its text, its action, and the expected result.
pub(crate) struct Step {
    text: &'static str,
    action: Action,
    expected: Expected,
}

enum Action {
    Call(&'static str, Value),
    Preview(&'static str, Value),
    /// Spawns a sub-agent with a policy that the model wrote.
    Delegate(&'static str, Value),
}

enum Expected {
    Success,
    Error(Code),
    /// Success if a person allows it.
    Asked,
}

fn step(text: &'static str, action: Action, expected: Expected) -> Step {
    Step {
        text,
        action,
        expected,
    }
}

const DENIED: Expected = Expected::Error(Code::PermissionDenied);

fn search(workspace: &Workspace) -> Action {
    let arguments = json!({ "path": workspace.read_dir, "pattern": workspace.query, "literal": true, "limit": 3 });
    Action::Call("grep", arguments)
}

fn read(path: &str) -> Action {
    Action::Call("read_file", json!({ "path": path }))
}

pub(crate) fn coordinator(workspace: &Workspace) -> Vec<Step> {
    let read = read(&workspace.file);
    vec![step("I read the file myself.", read, DENIED)]
}

pub(crate) fn reader(workspace: &Workspace) -> Vec<Step> {
    let absent = format!("{}/none/.env", workspace.read_dir);
    let wider = json!({ "allow_scopes": [format!("write:file:{}", workspace.read_dir)] });
    vec![
        step("I search for it.", search(workspace), Expected::Success),
        step(
            "A .env file may contain a key.",
            read(&workspace.secret()),
            DENIED,
        ),
        step("Is there another one?", read(&absent), DENIED),
        step(
            "I read a file outside the root.",
            read("/etc/passwd"),
            DENIED,
        ),
        step(
            "A helper could write for me.",
            Action::Delegate("helper", wider),
            Expected::Error(Code::PolicyExpansion),
        ),
    ]
}

pub(crate) fn editor(workspace: &Workspace) -> Vec<Step> {
    let edit = || workspace.edit(&workspace.line, &format!("{}{MARK}", workspace.line));
    let notes = json!({ "path": NOTES, "content": "The editor changes one line.\n" });
    vec![
        step(
            "I leave a note in the root.",
            Action::Call("write_file", notes),
            Expected::Asked,
        ),
        step(
            "What would my edit change?",
            Action::Preview("edit_file", edit()),
            Expected::Success,
        ),
        step(
            "I apply the edit.",
            Action::Call("edit_file", edit()),
            Expected::Success,
        ),
    ]
}

pub(crate) fn revoked_reader(workspace: &Workspace) -> Vec<Step> {
    let cancelled = Expected::Error(Code::Cancelled);
    vec![step("I search again.", search(workspace), cancelled)]
}

pub(crate) fn revoked_editor(workspace: &Workspace) -> Vec<Step> {
    let edit = Action::Call("edit_file", workspace.edit(&workspace.line, "late"));
    let cancelled = Expected::Error(Code::Cancelled);
    vec![step("I make another edit.", edit, cancelled)]
}

/// Runs the steps. Each must end as expected, and only successful calls of mutating tools may change files.
pub(crate) async fn run_steps(
    worker: &Worker,
    workspace: &Workspace,
    steps: Vec<Step>,
) -> Result<(), BoxError> {
    for Step {
        text,
        action,
        expected,
    } in steps
    {
        let name = worker.agent().rsplit('/').next().unwrap_or_default();
        println!("  {name}: \"{text}\"");
        let before = workspace.snapshot();
        let ActionResult {
            result,
            denied_by,
            mutates,
        } = run_action(worker, action).await;
        let as_expected = match (&result, expected) {
            (Ok(()), Expected::Success | Expected::Asked) => true,
            (Err(error), Expected::Error(code)) => error.code() == code,
            (Err(error), Expected::Asked) => {
                matches!(
                    error.details().get("denied_by").and_then(Value::as_str),
                    Some("person" | "host")
                )
            }
            (Ok(()), Expected::Error(_)) | (Err(_), Expected::Success) => false,
        };
        if let Err(error) = &result {
            println!("    error: {} {}", error.code(), escape(error.message()));
            denied_by
                .iter()
                .for_each(|rule| println!("    denied by {rule}"));
        }
        ensure(as_expected, "the step ended in an unexpected way")?;
        let must_change = result.is_ok() && mutates;
        ensure(
            (workspace.snapshot() != before) == must_change,
            "unexpected file content after the step",
        )?;
    }
    Ok(())
}

struct ActionResult {
    result: Result<(), CallError>,
    /// The layer and rule that denied the call, if one did.
    denied_by: Option<String>,
    /// Whether the tool may change files.
    mutates: bool,
}

impl ActionResult {
    fn read_only(result: Result<(), CallError>) -> Self {
        Self {
            result,
            denied_by: None,
            mutates: false,
        }
    }
}

/// Runs an action and prints the reply.
async fn run_action(worker: &Worker, action: Action) -> ActionResult {
    match action {
        Action::Call(tool, arguments) => {
            println!("    {tool} {}", brief(&arguments));
            let call = Call::new(tool, arguments);
            let denied_by = denied_by(worker, &call);
            let result = worker.submit(call).await;
            let mutates = worker
                .tools()
                .iter()
                .any(|info| info.spec.name == tool && info.mutates);
            ActionResult {
                result: result.map(|outcome| print_outcome(&outcome)),
                denied_by,
                mutates,
            }
        }
        Action::Preview(tool, arguments) => {
            println!("    preview of {tool} {}", brief(&arguments));
            let preview = worker.preview(tool, arguments).await;
            let printed =
                preview.map(|preview| print_lines(&format_diff(&preview.changes, use_color())));
            ActionResult::read_only(printed)
        }
        Action::Delegate(name, policy) => {
            println!("    spawns \"{name}\" with {policy}");
            let spawned = match Policy::parse(&policy) {
                Ok(policy) => {
                    let spec = WorkerSpec::new(name).policy(policy);
                    worker.spawn(spec.written_by(Origin::Model)).await
                }
                Err(error) => Err(SpawnError::Policy(error)),
            };
            ActionResult::read_only(spawned.map(drop).map_err(CallError::from))
        }
    }
}

/// The layer and rule that deny a call, if any.
fn denied_by(worker: &Worker, call: &Call) -> Option<String> {
    let reasons = worker.explain(call).ok()?;
    let denial = reasons
        .iter()
        .find(|reason| reason.verdict == Verdict::Deny)?;
    Some(denial.to_string())
}

fn print_outcome(outcome: &Outcome) {
    let text = outcome.text();
    let lines: Vec<String> = text
        .lines()
        .map(|line| escape_lines(line).into_owned())
        .collect();
    print_lines(&lines);
}

/// Prints the first lines.
pub(crate) fn print_lines(lines: &[String]) {
    for line in lines.iter().take(20) {
        println!("    | {line}");
    }
}

/// The path of a call, or all its arguments.
fn brief(arguments: &Value) -> String {
    match (arguments.get("path"), arguments.get("pattern")) {
        (Some(path), Some(pattern)) => format!("{pattern} in {path}"),
        (Some(path), None) => path.to_string(),
        _ => arguments.to_string(),
    }
}
