//! The host: runs the agents' calls and forwards their questions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bailiwick::permission::GrantStore;
use bailiwick::text::escape;
use bailiwick::worker::CallProgress;
use bailiwick::{
    Answer, Call, CallError, Code, Deferred, GrantAuthority, JsonLines, Outcome, PendingCall,
    Policy, Runtime, Worker, WorkerSpec,
};
use serde_json::json;

use super::answers::AnswerSource;
use super::{BoxError, ensure};

/// The two sub-agents.
pub(crate) struct Team {
    pub(crate) editor: Worker,
    pub(crate) tester: Worker,
}

/// A runtime, and the source of answers to its questions.
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    pub(crate) grants: GrantAuthority,
    pub(crate) answers: AnswerSource,
    /// How many questions were allowed and denied.
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    temp: PathBuf,
    /// The audit log of each runtime so far.
    logs: Vec<PathBuf>,
}

/// The result of a call, and the answers to its questions.
pub(crate) struct CallResult {
    pub(crate) result: Result<Outcome, CallError>,
    pub(crate) answers: Vec<Answer>,
}

/// A call that writes `content` to `path`.
pub(crate) fn write(path: &str, content: &str) -> Call {
    let arguments = json!({ "path": path, "content": content, "mode": "overwrite" });
    Call::new("write_file", arguments)
}

impl Host {
    /// Starts a runtime in the directory `temp`.
    pub(crate) async fn start(temp: &Path, answers: AnswerSource) -> Result<Self, BoxError> {
        let log = temp.join("audit-1.jsonl");
        let (runtime, grants) = runtime(temp, &log).await?;
        Ok(Self {
            runtime,
            grants,
            answers,
            allowed: 0,
            denied: 0,
            temp: temp.to_owned(),
            logs: vec![log],
        })
    }

    /// Shuts the runtime down and starts another in the same directory.
    pub(crate) async fn restart(&mut self) -> Result<(), BoxError> {
        self.shutdown().await?;
        let log = self
            .temp
            .join(format!("audit-{}.jsonl", self.logs.len() + 1));
        (self.runtime, self.grants) = runtime(&self.temp, &log).await?;
        self.logs.push(log);
        Ok(())
    }

    /// Shuts the runtime down, which completes its audit log.
    pub(crate) async fn shutdown(&self) -> Result<(), BoxError> {
        let shutdown = self.runtime.shutdown().await;
        ensure(shutdown.unfinished == 0, "effects ran past the shutdown")
    }

    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.logs
    }

    pub(crate) async fn spawn_team(&self) -> Result<Team, BoxError> {
        let policy = || {
            Policy::nothing()
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

    /// Runs a call and answers its questions.
    pub(crate) async fn call(
        &mut self,
        worker: &Worker,
        call: Call,
    ) -> Result<CallResult, BoxError> {
        let path = call.arguments.get("path").cloned().unwrap_or_default();
        println!("  {}: {} {path}", worker.agent(), call.tool);
        let mut answers = Vec::new();
        let mut begun = worker.begin(call).await;
        let result = loop {
            match begun {
                Ok(CallProgress::Ended(outcome)) => break Ok(*outcome),
                Ok(CallProgress::Pending(pending)) => {
                    let question = pending.question();
                    let answer = self.answers.answer(question).await?;
                    self.count(&answer);
                    self.grants.answer(question.id, answer.clone()).await?;
                    answers.push(answer);
                    begun = pending.resume().await;
                }
                Err(error) => break Err(error),
            }
        };
        let result = CallResult { result, answers };
        result.print();
        Ok(result)
    }

    /// Counts an answer, to compare with the history.
    pub(crate) fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Allow { .. } => self.allowed += 1,
            Answer::Deny { .. } => self.denied += 1,
        }
    }

    /// Skips a scenario because of different answers. Fails for the default answers, which cover all scenarios.
    pub(crate) fn skip(&self, scenario: &str) -> Result<(), BoxError> {
        ensure(
            !self.answers.is_default(),
            &format!("the default answers do not show {scenario}"),
        )?;
        println!("  Skipped because of the answers: {scenario}.");
        Ok(())
    }

    pub(crate) fn read(&self, path: &str) -> Result<Option<String>, BoxError> {
        let path = path.strip_prefix("/repo/").unwrap_or(path);
        match fs::read_to_string(self.temp.join("repo").join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn grant_store(&self) -> PathBuf {
        self.temp.join("grants")
    }
}

async fn runtime(temp: &Path, log: &Path) -> Result<(Runtime, GrantAuthority), BoxError> {
    let builder = Runtime::builder()
        .root("repo", temp.join("repo"))
        .tools(bailiwick_fs::tools())
        // Questions wait until the host answers them, so that it can show several at once.
        .approver(Deferred)
        .grant_store(GrantStore::open(temp.join("grants"))?)
        .audit(JsonLines::create(log)?);
    Ok(builder.build().await?)
}

/// Resumes a call whose question was answered.
pub(crate) async fn resume(pending: PendingCall, answer: Answer) -> Result<CallResult, BoxError> {
    let result = match pending.resume().await {
        Ok(CallProgress::Ended(outcome)) => Ok(*outcome),
        Ok(CallProgress::Pending(_)) => return Err("the call asked again".into()),
        Err(error) => Err(error),
    };
    let answers = vec![answer];
    Ok(CallResult { result, answers })
}

impl CallResult {
    /// Prints the reply to the agent.
    pub(crate) fn print(&self) {
        match &self.result {
            Ok(outcome) => println!("    reply: {}", escape(&outcome.text())),
            Err(error) => {
                println!("    error: {} {}", error.code(), escape(error.message()));
            }
        }
    }

    /// Checks that the result follows from the last answer, and that a denial contains its note.
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        match (&self.result, self.answers.last()) {
            (Ok(_), None | Some(Answer::Allow { .. })) => Ok(()),
            (Err(error), Some(Answer::Deny { note, .. })) => {
                let has_note = note
                    .as_deref()
                    .is_none_or(|note| error.message().contains(&*escape(note)));
                ensure(
                    error.code() == Code::PermissionDenied && has_note,
                    "the denial lacks its code or note",
                )
            }
            (Ok(_), Some(Answer::Deny { .. })) => Err("a denied call succeeded".into()),
            (Err(_), Some(Answer::Allow { .. })) => Err("an allowed call failed".into()),
            (Err(_), None) => Err("a call failed without a question".into()),
        }
    }
}
