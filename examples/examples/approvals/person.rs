//! A question in, what a person on a terminal or a file of answers says to it out.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use bailiwick::{Answer, Approver as _, Lifetime, Question, Scope, Terminal, escape, listed};
use bailiwick_examples::{coloured, diff};
use serde::Deserialize;

use super::Failure;

/// Whoever answers.
pub(crate) enum Person {
    Terminal(Terminal),
    File {
        /// The lines that nobody asked for yet.
        lines: Vec<Line>,
        /// It is the sample, which shows everything.
        sample: bool,
    },
}

/// One line of a file of answers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    agent: String,
    needs: Vec<Scope>,
    answer: Answer,
}

impl Person {
    /// The file that is named, else whoever sits at the terminal, else the sample.
    pub(crate) fn find(named: Option<PathBuf>) -> Result<Self, Failure> {
        let sample = named.is_none();
        if sample && io::stdin().is_terminal() && io::stdout().is_terminal() {
            return Ok(Self::Terminal(Terminal::stdio()));
        }
        let file = named.unwrap_or_else(|| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/approvals/answers.jsonl")
        });
        let lines = lines(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self::File { lines, sample })
    }

    /// What is said to `question`.
    pub(crate) async fn decide(&mut self, question: &Question) -> Result<Answer, Failure> {
        match self {
            Self::Terminal(terminal) => Ok(terminal.decide(question).await),
            Self::File { lines, .. } => {
                show(question);
                let answer = take(lines, question)?;
                println!("    the file answers: {}", in_words(&answer));
                Ok(answer)
            }
        }
    }

    /// Whether the answers may be others than those that the story is about.
    pub(crate) fn is_free(&self) -> bool {
        !matches!(self, Self::File { sample: true, .. })
    }

    /// How many answers of the file are left.
    pub(crate) fn left(&self) -> usize {
        match self {
            Self::Terminal(_) => 0,
            Self::File { lines, .. } => lines.len(),
        }
    }
}

fn lines(file: &Path) -> Result<Vec<Line>, Failure> {
    let text = fs::read_to_string(file)?;
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1).into())
        })
        .collect()
}

/// Takes the first line that is for `question`.
fn take(lines: &mut Vec<Line>, question: &Question) -> Result<Answer, Failure> {
    let request = &question.request;
    let agent = request.agent_path.join("/");
    let place = lines.iter().position(|line| {
        line.agent == agent && listed(&line.needs, ", ") == listed(&request.needs, ", ")
    });
    match place {
        Some(place) => Ok(lines.remove(place).answer),
        None => {
            let needs = listed(&request.needs, ", ");
            Err(format!("no answer is left for {agent}, which needs {needs}").into())
        }
    }
}

/// Shows a question, as a host without a terminal may.
fn show(question: &Question) {
    let request = &question.request;
    let agent = request.agent_path.join("/");
    println!("    {} asks: {}", agent, escape(&request.intent));
    println!("    it needs {}", listed(&request.needs, ", "));
    let changes = request.preview.iter().flat_map(|shown| &shown.changes);
    for change in changes {
        let lines = diff(std::slice::from_ref(change), coloured());
        lines.iter().for_each(|line| println!("    | {line}"));
    }
}

fn in_words(answer: &Answer) -> String {
    match answer {
        Answer::Deny { note: None, .. } => "no".to_owned(),
        Answer::Deny {
            note: Some(note), ..
        } => format!("no: \"{}\"", escape(note)),
        Answer::Allow {
            patterns,
            lifetime,
            left_out,
            ..
        } => {
            let mut words = format!("yes, {}", how_long(*lifetime));
            if !patterns.is_empty() {
                words += &format!(", all of {}", listed(patterns, ", "));
            }
            for part in left_out {
                let hunks = part.hunks.iter().map(|hunk| (hunk + 1).to_string());
                let hunks = hunks.collect::<Vec<_>>().join(", ");
                words += &format!(", without hunk {hunks} of {}", part.path);
            }
            words
        }
    }
}

fn how_long(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Once => "once".to_owned(),
        Lifetime::Waiting(calls) => format!("for {calls} waiting calls"),
        Lifetime::Uses(uses) => format!("{uses} times"),
        Lifetime::For(time) => format!("for {time:?}"),
        Lifetime::Session => "for this session".to_owned(),
        Lifetime::Agent => "for this agent".to_owned(),
    }
}
