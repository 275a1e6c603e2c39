//! A directory in; a coordinator and two sub-agents at work in it, what each was refused, and the record of it out.
//!
//! `cargo run -p bailiwick-examples --example delegate [DIR]` plays on a scratch copy of this repository's sources,
//! or on DIR, where every change is taken back at the end. It exits with 0 only if all it says did happen.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows what happens"
)]

use std::error::Error;
use std::fs;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bailiwick::{
    Answer, Call, CallError, Code, JsonLines, Outcome, Policy, Runtime, RuntimeBuilder, Scripted,
    SpawnError, Terminal, Verdict, Worker, WorkerSpec, escape, escape_lines, verify,
};
use bailiwick_examples::{coloured, diff};
use bailiwick_fs::Matches;
use serde_json::{Value, json};

type Failure = Box<dyn Error + Send + Sync>;

/// The file that the editor asks for, outside its folder.
const NOTES: &str = "/repo/BAILIWICK-NOTES.md";
/// What the editor adds to a line.
const MARK: &str = " (seen by the editor)";

#[tokio::main]
async fn main() -> ExitCode {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    match run(given).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("FAILED: {failure}");
            let mut cause = failure.source();
            while let Some(inner) = cause {
                eprintln!("   because: {inner}");
                cause = inner.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(given: Option<PathBuf>) -> Result<(), Failure> {
    let temp = tempfile::tempdir()?;
    let scratch = given.is_none();
    let host = match given {
        Some(dir) => dir
            .canonicalize()
            .map_err(|error| format!("{}: {error}", dir.display()))?,
        None => scratch_copy(&temp.path().join("scratch"))?,
    };
    let log = temp.path().canonicalize()?.join("audit.jsonl");
    ensure(
        !log.starts_with(&host),
        "DIR holds the folder for temporary files; choose a smaller one",
    )?;
    let builder = Runtime::builder()
        .root("repo", &host)
        .policy(Policy::new().deny_glob("**/.env"))
        .tools(bailiwick_fs::tools())
        .audit(JsonLines::create(&log)?);
    let (runtime, _grants) = with_somebody_to_ask(builder).build().await?;
    let place = Place::survey(&runtime, host, scratch).await?;
    println!(
        "The place   {}, which agents see as /repo",
        place.host.display()
    );
    match scratch {
        true => {
            println!("            a scratch copy of this repository's sources, with a .env in it")
        }
        false => println!("            yours: what is changed in it is taken back at the end"),
    }
    println!("The record  {}, out of their reach", log.display());

    let story = story(&runtime, &place).await;
    let undone = if scratch {
        Ok(())
    } else {
        place.take_back(&runtime).await
    };
    let ended = runtime.shutdown().await;
    story?;
    undone?;
    ensure(ended.unfinished == 0, "an effect outlived the runtime")?;
    audit(&log)
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// A person where there is a terminal; elsewhere a script that allows one thing, once.
fn with_somebody_to_ask(builder: RuntimeBuilder) -> RuntimeBuilder {
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        let input = BufReader::new(io::stdin());
        return builder.approver(Terminal::new(input, io::stdout(), coloured()));
    }
    builder.approver(Scripted::new().rule(|question| {
        let request = &question.request;
        let needs: Vec<String> = request.needs.iter().map(ToString::to_string).collect();
        let expected = format!("write:file:{NOTES}");
        let answer = (needs == [expected]).then_some(Answer::ONCE);
        let said = if answer.is_some() {
            "yes, this once"
        } else {
            "no"
        };
        println!(
            "    asked: may {} do {}?",
            request.agent_path.join(" > "),
            needs.join(", ")
        );
        println!("    no terminal, so a script answers for you: {said}");
        answer
    }))
}

/// Copies this repository's sources, and puts a secret among them.
fn scratch_copy(to: &Path) -> Result<PathBuf, Failure> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in ["runtime", "fs-actor"] {
        copy_tree(&repository.join(part), &to.join(part))?;
    }
    fs::write(to.join("runtime/.env"), "API_KEY=not-for-agents\n")?;
    Ok(to.canonicalize()?)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        } else if entry.file_type()?.is_dir() && entry.file_name() != "target" {
            copy_tree(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Where the story plays.
struct Place {
    host: PathBuf,
    /// The folder of the reader, and what it looks for there.
    reads: String,
    query: String,
    /// The folder of the editor, and the file and line that it changes there.
    edits: String,
    file: String,
    line: String,
    /// That file as it was.
    before: Vec<u8>,
}

impl Place {
    /// Chooses the first two folders with a line of plain text, looking through a worker that may only read.
    async fn survey(runtime: &Runtime, host: PathBuf, scratch: bool) -> Result<Self, Failure> {
        let policy = Policy::new().allow("read:file:/repo").tools(["grep"]);
        let surveyor = runtime
            .spawn(WorkerSpec::new("survey").policy(policy))
            .await?;
        let mut names: Vec<String> = fs::read_dir(&host)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| host.join(name).is_dir() && !name.starts_with('.'))
            .collect();
        names.sort();
        if scratch {
            names.reverse();
        }
        let mut found = Vec::new();
        for name in names {
            if found.len() < 2
                && let Some((file, line)) = first_line(&surveyor, &format!("/repo/{name}")).await?
            {
                found.push((format!("/repo/{name}"), file, line));
            }
        }
        surveyor.revoke().await;
        let none = "DIR has no folder that holds a text file";
        let (reads, _, query) = found.first().cloned().ok_or(none)?;
        let (edits, file, line) = found.pop().ok_or(none)?;
        let beneath = file.strip_prefix("/repo/").unwrap_or_default();
        let before = fs::read(host.join(beneath))?;
        let query = if scratch { "fn mint".to_owned() } else { query };
        Ok(Self {
            host,
            reads,
            query,
            edits,
            file,
            line,
            before,
        })
    }

    fn on_disk(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(
            self.host
                .join(path.strip_prefix("/repo/").unwrap_or_default()),
        )
    }

    /// The two files that the story may change, as they are.
    fn state(&self) -> [Option<Vec<u8>>; 2] {
        [&self.file, NOTES].map(|path| self.on_disk(path).ok())
    }

    fn edit(&self, from: &str, to: &str) -> Value {
        json!({ "path": self.file, "edits": [{ "old_text": from, "new_text": to, "occurrence": 1 }] })
    }

    /// Restores what the story changed, by a worker that may change those two files and nothing else.
    async fn take_back(&self, runtime: &Runtime) -> Result<(), Failure> {
        let policy = Policy::new()
            .allow("read:file:/repo")
            .allow(&format!("write:file:{}", self.file))
            .allow(&format!("write:file:{NOTES}"));
        let undo = runtime
            .spawn(WorkerSpec::new("undo").policy(policy))
            .await?;
        if self.on_disk(&self.file)? != self.before {
            let edit = self.edit(&format!("{}{MARK}", self.line), &self.line);
            undo.call("edit_file", edit).await?;
        }
        if self.on_disk(NOTES).is_ok() {
            undo.call("delete", json!({ "path": NOTES })).await?;
        }
        ensure(
            self.on_disk(&self.file)? == self.before,
            "the edit was not taken back",
        )?;
        ensure(
            self.on_disk(NOTES).is_err(),
            "the notes were not taken back",
        )?;
        println!("\nYour directory is as it was: the edit and the notes are taken back.");
        Ok(())
    }
}

async fn first_line(worker: &Worker, folder: &str) -> Result<Option<(String, String)>, Failure> {
    let pattern = "^[[:print:]]{3,80}\r?$";
    let search = json!({ "path": folder, "pattern": pattern, "limit": 1 });
    let outcome = worker.call("grep", search).await?;
    let file = outcome
        .output::<Matches>()
        .and_then(|found| found.files.first());
    let text = outcome.text();
    let line = text.lines().nth(1).and_then(|line| line.split_once(':'));
    Ok(file
        .zip(line)
        .map(|(file, (_, line))| (file.path.clone(), line.to_owned())))
}

/// One turn of a model: what it says, what it then does, and how that must end here.
struct Turn {
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
use Does::{Call as Calls, Delegate, Preview as Previews};
use Ends::{AsPeopleSay, Done, Refused};

fn turn(says: &'static str, does: Does, ends: Ends) -> Turn {
    Turn { says, does, ends }
}

/// What the model of the reader emits.
fn reader_script(place: &Place) -> Vec<Turn> {
    let search =
        json!({ "path": place.reads, "pattern": place.query, "literal": true, "limit": 3 });
    let read = |path: String| Calls("read_file", json!({ "path": path }));
    let wider = json!({ "allow_scopes": [format!("write:file:{}", place.reads)] });
    vec![
        turn("I search for it.", Calls("grep", search), Done),
        turn(
            "A .env may hold a key.",
            read(format!("{}/.env", place.reads)),
            Refused(Code::PermissionDenied),
        ),
        turn(
            "Is there one here?",
            read(format!("{}/none/.env", place.reads)),
            Refused(Code::PermissionDenied),
        ),
        turn(
            "What is out there?",
            read("/etc/passwd".to_owned()),
            Refused(Code::PermissionDenied),
        ),
        turn(
            "A helper could write for me.",
            Delegate("helper", wider),
            Refused(Code::PolicyExpansion),
        ),
    ]
}

/// What the model of the editor emits.
fn editor_script(place: &Place) -> Vec<Turn> {
    let edit = || place.edit(&place.line, &format!("{}{MARK}", place.line));
    let notes = json!({ "path": NOTES, "content": "One line was changed.\n" });
    vec![
        turn(
            "What would my edit do?",
            Previews("edit_file", edit()),
            Done,
        ),
        turn("Good. I make it.", Calls("edit_file", edit()), Done),
        turn(
            "I leave a note at the top.",
            Calls("write_file", notes),
            AsPeopleSay,
        ),
    ]
}

async fn story(runtime: &Runtime, place: &Place) -> Result<(), Failure> {
    let hands_on = Policy::new()
        .delegate_only("read:file:/repo")
        .delegate_only("write:file:/repo");
    let coordinator = runtime
        .spawn(WorkerSpec::new("coordinator").policy(hands_on))
        .await?;
    println!(
        "\nThe coordinator may do nothing itself; it may hand on reading and writing in /repo."
    );
    let itself = Calls("read_file", json!({ "path": place.file }));
    play(
        &coordinator,
        place,
        vec![turn(
            "I look myself.",
            itself,
            Refused(Code::PermissionDenied),
        )],
    )
    .await?;

    let reading = Policy::new().allow(&format!("read:file:{}", place.reads));
    let reader = coordinator
        .spawn(WorkerSpec::new("reader").policy(reading))
        .await?;
    println!("\nThe reader may read {}, and nothing else.", place.reads);
    play(&reader, place, reader_script(place)).await?;
    let secret = place.on_disk(&format!("{}/.env", place.reads)).is_ok();
    println!(
        "  (The first .env is {}, the second is not. The answer is the same.)",
        if secret { "there" } else { "not there" }
    );

    let editing = Policy::new()
        .allow("read:file:/repo")
        .allow(&format!("write:file:{}", place.edits))
        .ask("write:file:/repo");
    let editor = coordinator
        .spawn(WorkerSpec::new("editor").policy(editing))
        .await?;
    println!(
        "\nThe editor may read /repo, change {}, and must ask to write elsewhere.",
        place.edits
    );
    play(&editor, place, editor_script(place)).await?;

    let revoked = coordinator.revoke().await;
    println!(
        "\nYou revoke the coordinator: {} workers lose their authority at once.",
        revoked.workers
    );
    ensure(
        revoked.workers == 3 && revoked.unfinished == 0,
        "the revocation left somebody out",
    )?;
    let search = json!({ "path": place.reads, "pattern": place.query, "literal": true });
    play(
        &reader,
        place,
        vec![turn(
            "I search again.",
            Calls("grep", search),
            Refused(Code::Cancelled),
        )],
    )
    .await?;
    let edit = place.edit(&place.line, "late");
    play(
        &editor,
        place,
        vec![turn(
            "One more edit.",
            Calls("edit_file", edit),
            Refused(Code::Cancelled),
        )],
    )
    .await
}

/// Plays a model's turns. Each must end as its script says, and only what was done may have changed anything.
async fn play(worker: &Worker, place: &Place, turns: Vec<Turn>) -> Result<(), Failure> {
    for Turn { says, does, ends } in turns {
        let name = worker.agent().rsplit('/').next().unwrap_or_default();
        println!("  {name}: \"{says}\"");
        let was = place.state();
        let (ended, may_change) = act(worker, does).await;
        let ended_well = match (&ended, ends) {
            (Ok(()), Done) => true,
            (Err(refused), Refused(code)) => refused.code() == code,
            (Ok(()), AsPeopleSay) => true,
            (Err(refused), AsPeopleSay) => {
                refused.details().get("denied_by") == Some(&json!("person"))
            }
            (Ok(()), Refused(_)) | (Err(_), Done) => false,
        };
        if let Err(refused) = &ended {
            println!(
                "    refused: {} {}",
                refused.code(),
                escape(refused.message())
            );
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

/// Does what a turn says, shows what came of it, and tells whether it was of a kind that changes files.
async fn act(worker: &Worker, does: Does) -> (Result<(), CallError>, bool) {
    match does {
        Does::Call(tool, arguments) => {
            println!("    {tool} {}", brief(&arguments));
            let call = Call::new(tool, arguments);
            let why = denied_by(worker, &call);
            let ended = worker.submit(call).await;
            if let (Err(_), Some(why)) = (&ended, why) {
                println!("    decided by {why}");
            }
            let mutates = worker
                .tools()
                .iter()
                .any(|info| info.spec.name == tool && info.mutates);
            (ended.map(|outcome| show(&outcome)), mutates)
        }
        Does::Preview(tool, arguments) => {
            println!("    preview of {tool} {}", brief(&arguments));
            let preview = worker.preview(tool, arguments).await;
            let shown = preview.map(|preview| print_lines(&diff(&preview.changes, coloured())));
            (shown, false)
        }
        Does::Delegate(name, policy) => {
            println!("    starts \"{name}\" with {policy}");
            let spawned = match Policy::parse(&policy) {
                Ok(policy) => worker.spawn(WorkerSpec::new(name).policy(policy)).await,
                Err(error) => Err(SpawnError::Policy(error)),
            };
            (spawned.map(drop).map_err(CallError::from), false)
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

fn print_lines(lines: &[String]) {
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

/// Follows the record from its beginning to its end.
fn audit(log: &Path) -> Result<(), Failure> {
    let verified = verify(BufReader::new(fs::File::open(log)?))?;
    let text = fs::read_to_string(log)?;
    let count = |step: &str| {
        text.lines()
            .filter(|line| line.contains(&format!("\"step\":\"{step}\"")))
            .count()
    };
    println!(
        "\nThe record has {} entries and no break.",
        verified.records
    );
    println!(
        "  {} refusals, {} questions to people, {} effects",
        count("refused"),
        count("asked"),
        count("applied")
    );
    println!("  head {}", verified.head.hash);
    ensure(
        text.lines().count() as u64 == verified.records,
        "the record has lines that were not verified",
    )?;
    ensure(
        count("refused") >= 4 && count("asked") == 1,
        "the record does not tell all that happened",
    )?;
    ensure(
        count("applied") >= 1,
        "the record does not tell of the edit",
    )
}
