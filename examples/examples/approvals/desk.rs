//! Calls of agents in, a person's word on those that must ask and how each ended out: the host's part.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bailiwick::{
    Answer, Call, CallError, CallProgress, Code, Deferred, GrantAuthority, GrantStore, JsonLines,
    Outcome, PendingCall, Policy, Runtime, Worker, WorkerSpec, escape,
};
use serde_json::json;

use super::person::Person;
use super::{Failure, ensure};

/// The two sub-agents.
pub(crate) struct Team {
    pub(crate) editor: Worker,
    pub(crate) tester: Worker,
}

/// A runtime, and the person who speaks for its host.
pub(crate) struct Desk {
    pub(crate) runtime: Runtime,
    pub(crate) people: GrantAuthority,
    pub(crate) person: Person,
    /// How many questions were allowed, and refused.
    pub(crate) granted: u64,
    pub(crate) denied: u64,
    temp: PathBuf,
    /// A record for each runtime that there was, this one's last.
    logs: Vec<PathBuf>,
}

/// How a call ended, and what a person said on its way.
pub(crate) struct Told {
    pub(crate) ended: Result<Outcome, CallError>,
    pub(crate) answers: Vec<Answer>,
}

/// A call that writes `content` into `path`.
pub(crate) fn write(path: &str, content: &str) -> Call {
    let arguments = json!({ "path": path, "content": content, "mode": "overwrite" });
    Call::new("write_file", arguments)
}

impl Desk {
    /// Opens a runtime on the folder `temp`.
    pub(crate) async fn open(temp: &Path, person: Person) -> Result<Self, Failure> {
        let log = temp.join("audit-1.jsonl");
        let (runtime, people) = runtime(temp, &log).await?;
        Ok(Self {
            runtime,
            people,
            person,
            granted: 0,
            denied: 0,
            temp: temp.to_owned(),
            logs: vec![log],
        })
    }

    /// Shuts the runtime down, and opens another on the same folder.
    pub(crate) async fn reopen(&mut self) -> Result<(), Failure> {
        self.close().await?;
        let log = self
            .temp
            .join(format!("audit-{}.jsonl", self.logs.len() + 1));
        (self.runtime, self.people) = runtime(&self.temp, &log).await?;
        self.logs.push(log);
        Ok(())
    }

    /// Shuts the runtime down; its record is whole then.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let ended = self.runtime.shutdown().await;
        ensure(ended.unfinished == 0, "an effect outlived the runtime")
    }

    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.logs
    }

    pub(crate) async fn team(&self) -> Result<Team, Failure> {
        let policy = || {
            Policy::new()
                .allow("read:file:/repo")
                .ask("write:file:/repo")
        };
        let spec = |name| WorkerSpec::new(name).policy(policy());
        let team = self.runtime.spawn(spec("team")).await?;
        Ok(Team {
            editor: team.spawn(spec("editor")).await?,
            tester: team.spawn(spec("tester")).await?,
        })
    }

    /// Carries out a call of `worker`; the person answers what it asks.
    pub(crate) async fn call(&mut self, worker: &Worker, call: Call) -> Result<Told, Failure> {
        let path = call.arguments.get("path").cloned().unwrap_or_default();
        println!("  {}: {} {path}", worker.agent(), call.tool);
        let mut answers = Vec::new();
        let mut begun = worker.begin(call).await;
        let ended = loop {
            match begun {
                Ok(CallProgress::Ended(outcome)) => break Ok(*outcome),
                Ok(CallProgress::Pending(pending)) => {
                    let question = pending.question();
                    let answer = self.person.decide(question).await?;
                    self.count(&answer);
                    self.people.answer(question.id, answer.clone()).await?;
                    answers.push(answer);
                    begun = pending.resume().await;
                }
                Err(error) => break Err(error),
            }
        };
        let told = Told { ended, answers };
        told.show();
        Ok(told)
    }

    /// Counts an answer, to compare with what the record will say.
    pub(crate) fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Allow { .. } => self.granted += 1,
            Answer::Deny { .. } => self.denied += 1,
        }
    }

    /// Where the answers were others than those that the story is about, says so; those of the sample must not be.
    pub(crate) fn not_shown(&self, what: &str) -> Result<(), Failure> {
        ensure(
            self.person.is_free(),
            &format!("the sample of answers does not show {what}"),
        )?;
        println!("  The answers were others, so this is left out: {what}.");
        Ok(())
    }

    pub(crate) fn on_disk(&self, path: &str) -> Result<Option<String>, Failure> {
        let path = path.strip_prefix("/repo/").unwrap_or(path);
        match fs::read_to_string(self.temp.join("tree").join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn grant_store(&self) -> PathBuf {
        self.temp.join("grants")
    }
}

async fn runtime(temp: &Path, log: &Path) -> Result<(Runtime, GrantAuthority), Failure> {
    let builder = Runtime::builder()
        .root("repo", temp.join("tree"))
        .tools(bailiwick_fs::tools())
        // Questions wait until the desk answers them, so that it can show several together.
        .approver(Deferred)
        .grant_store(GrantStore::open(temp.join("grants"))?)
        .audit(JsonLines::create(log)?);
    Ok(builder.build().await?)
}

/// Goes on with a call whose question was answered by `answer`.
pub(crate) async fn go_on(pending: PendingCall, answer: Answer) -> Result<Told, Failure> {
    let ended = match pending.resume().await {
        Ok(CallProgress::Ended(outcome)) => Ok(*outcome),
        Ok(CallProgress::Pending(_)) => return Err("a call asked for what it had been told".into()),
        Err(error) => Err(error),
    };
    let answers = vec![answer];
    Ok(Told { ended, answers })
}

impl Told {
    /// What the agent reads.
    pub(crate) fn show(&self) {
        match &self.ended {
            Ok(outcome) => println!("    it is told: {}", escape(&outcome.text())),
            Err(refused) => {
                println!(
                    "    it is told: {} {}",
                    refused.code(),
                    escape(refused.message())
                );
            }
        }
    }

    /// Holds the end of a call to what a person said last: a yes is done, and a no is told with its note.
    pub(crate) fn is_as_said(&self) -> Result<(), Failure> {
        match (&self.ended, self.answers.last()) {
            (Ok(_), None | Some(Answer::Allow { .. })) => Ok(()),
            (Err(refused), Some(Answer::Deny { note, .. })) => {
                let told = note
                    .as_deref()
                    .is_none_or(|note| refused.message().contains(&*escape(note)));
                ensure(
                    refused.code() == Code::PermissionDenied && told,
                    "the agent was not told of a no as it was said",
                )
            }
            (Ok(_), Some(Answer::Deny { .. })) => Err("what a person refused was done".into()),
            (Err(_), Some(Answer::Allow { .. })) => {
                Err("what a person allowed was not done".into())
            }
            (Err(_), None) => Err("what nobody was asked about was refused".into()),
        }
    }
}
