//! Answers to questions, from a terminal or a file.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use bailiwick::permission::Lifetime;
use bailiwick::text::{escape, listed};
use bailiwick::{Answer, Approver as _, Question, Scope, Terminal};
use bailiwick_examples::{format_diff, use_color};
use serde::Deserialize;

use super::BoxError;

/// Where answers come from.
pub(crate) enum AnswerSource {
    Terminal(Terminal),
    File {
        /// The lines that are not used yet.
        lines: Vec<AnswerLine>,
        /// Whether this is the default file.
        is_default: bool,
    },
}

/// One line of an answers file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerLine {
    agent: String,
    needs: Vec<Scope>,
    answer: Answer,
}

impl AnswerSource {
    /// Opens `file`, or the terminal if there is one, or the default file.
    pub(crate) fn open(file: Option<PathBuf>) -> Result<Self, BoxError> {
        let is_default = file.is_none();
        if is_default && io::stdin().is_terminal() && io::stdout().is_terminal() {
            return Ok(Self::Terminal(Terminal::stdio()));
        }
        let file = file.unwrap_or_else(|| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/approvals/answers.jsonl")
        });
        let lines = read_lines(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self::File { lines, is_default })
    }

    /// Answers `question`.
    pub(crate) async fn answer(&mut self, question: &Question) -> Result<Answer, BoxError> {
        match self {
            Self::Terminal(terminal) => Ok(terminal.decide(question).await),
            Self::File { lines, .. } => {
                print_question(question);
                let answer = take_answer(lines, question)?;
                println!("    answer (from the file): {}", describe(&answer));
                Ok(answer)
            }
        }
    }

    /// Whether answers come from the default file.
    pub(crate) fn is_default(&self) -> bool {
        matches!(
            self,
            Self::File {
                is_default: true,
                ..
            }
        )
    }

    /// How many answers of the file are unused.
    pub(crate) fn unused(&self) -> usize {
        match self {
            Self::Terminal(_) => 0,
            Self::File { lines, .. } => lines.len(),
        }
    }
}

fn read_lines(file: &Path) -> Result<Vec<AnswerLine>, BoxError> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1).into())
        })
        .collect()
}

/// Removes the first line that answers `question`.
fn take_answer(lines: &mut Vec<AnswerLine>, question: &Question) -> Result<Answer, BoxError> {
    let request = &question.request;
    let agent = request.agent_path.join("/");
    let index = lines.iter().position(|line| {
        line.agent == agent && listed(&line.needs, ", ") == listed(&request.needs, ", ")
    });
    match index {
        Some(index) => Ok(lines.remove(index).answer),
        None => {
            let needs = listed(&request.needs, ", ");
            Err(format!("no answer for {agent}, which needs {needs}").into())
        }
    }
}

/// Prints a question and the previewed changes.
fn print_question(question: &Question) {
    let request = &question.request;
    let agent = request.agent_path.join("/");
    println!("    question of {}: {}", agent, escape(&request.intent));
    println!("    needs: {}", listed(&request.needs, ", "));
    let changes = request.preview.iter().flat_map(|preview| &preview.changes);
    for change in changes {
        let lines = format_diff(std::slice::from_ref(change), use_color());
        lines.iter().for_each(|line| println!("    | {line}"));
    }
}

fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Deny { note: None, .. } => "deny".to_owned(),
        Answer::Deny {
            note: Some(note), ..
        } => format!("deny: \"{}\"", escape(note)),
        Answer::Allow {
            patterns,
            lifetime,
            left_out,
            ..
        } => {
            let mut text = format!("allow {}", describe_lifetime(*lifetime));
            if !patterns.is_empty() {
                text += &format!(", everything in {}", listed(patterns, ", "));
            }
            for part in left_out {
                text += &match &part.hunks {
                    Some(hunks) => {
                        let hunks = hunks.iter().map(|hunk| (hunk + 1).to_string());
                        let hunks = hunks.collect::<Vec<_>>().join(", ");
                        format!(", without hunk {hunks} of {}", part.path)
                    }
                    None => format!(", without the change of {}", part.path),
                };
            }
            text
        }
    }
}

fn describe_lifetime(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Once => "once".to_owned(),
        Lifetime::Waiting(calls) => format!("for {calls} waiting calls"),
        Lifetime::Uses(uses) => format!("{uses} times"),
        Lifetime::For(time) => format!("for {time:?}"),
        Lifetime::Session => "for this session".to_owned(),
        Lifetime::Agent => "for this agent".to_owned(),
    }
}
