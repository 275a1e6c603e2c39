//! What people see of a command before it runs.

use bailiwick::effect::ResourceChange;
use bailiwick::worker::LayerState;
use serde_json::Value;

use super::Commands;
use super::record::first;
use super::tool::Command;
use crate::view::Changes;

/// Maximum length of a command in a sentence, in characters.
const MAX_COMMAND: usize = 256;

/// The sentence about a call with these arguments, such as ``Run `cargo test` in /repo``.
pub(super) fn sentence(arguments: &Value) -> Option<String> {
    let argv = arguments.get("argv")?.as_array()?.iter();
    let argv: Option<Vec<String>> = argv.map(|word| word.as_str().map(str::to_owned)).collect();
    let command = command(&argv?);
    Some(match arguments.get("cwd").and_then(Value::as_str) {
        Some(cwd) => format!("Run {command} in {}", cut(quoted(cwd))),
        None => format!("Run {command}"),
    })
}

/// The arguments as a line for a shell in backticks. A long line is cut.
pub(super) fn command(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    // It cannot end the quotation.
    let line = words.join(" ").replace('`', "\\u{60}");
    format!("`{}`", cut(line))
}

/// A text of at most [`MAX_COMMAND`] characters and an ellipsis.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_COMMAND) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What a command may read, change and reach.
pub(super) fn rights(commands: &Commands, job: &Command, changes: Changes) -> [ResourceChange; 3] {
    let with = |declared: &[String], more: &str| {
        let names = first(declared.iter());
        let omitted = declared.len() - names.len();
        let omitted = (omitted > 0).then(|| format!("{omitted} more"));
        let mut all: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        all.extend(omitted);
        all.push(more.to_owned());
        all.join(", ")
    };
    let read = with(
        &job.reads,
        "files that the agent may read, and the programs and libraries of this computer",
    );
    let change = match changes {
        Changes::Apart => {
            let how = match commands.copies_files() {
                true => "; all files are copied before it starts, since overlayfs is missing",
                false => "",
            };
            format!(
                "only a copy: your files stay as they are until another call applies its changes, which can be undone{how}"
            )
        }
        Changes::Live => with(
            &job.writes,
            "files that the agent may change without asking; this cannot be undone",
        ),
    };
    let reach = with(
        &job.network,
        "hosts that the agent may connect to without asking",
    );
    [
        ResourceChange::new("Can read", read),
        ResourceChange::new("Can change", change),
        ResourceChange::new("Can reach", reach),
    ]
}

/// The details of a command, one per line.
pub(super) fn details(commands: &Commands, job: &Command) -> String {
    let mut lines = Vec::new();
    let shown = first(job.argv.iter());
    let omitted = job.argv.len() - shown.len();
    lines.push(format!("arguments: {shown:?}"));
    if omitted > 0 {
        lines.push(format!("and {omitted} more"));
    }
    lines.push(format!("program: {}", job.program.path()));
    if let Some(sha256) = job.previewed {
        lines.push(format!("sha256 of the program: {sha256}"));
    }
    lines.push(format!("working directory: {}", job.cwd));
    let names = commands.variables(job);
    lines.push(format!("environment: {}", first(names.keys()).join(", ")));
    if !job.stdin.is_empty() {
        lines.push(format!("input: {} bytes", job.stdin.len()));
    }
    lines.push(format!("time limit: {} s", job.timeout.as_secs_f64()));
    lines.push(format!("sandbox: {}", layers(commands)));
    // The names and arguments may contain line breaks.
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.replace(['\n', '\r'], " "))
        .collect();
    lines.join("\n")
}

/// The layers that the self-test found.
fn layers(commands: &Commands) -> String {
    let Some(tested) = &commands.tested else {
        return "not tested".to_owned();
    };
    let states = tested.layers.iter().map(|(layer, state)| match state {
        LayerState::Enforced => layer.to_string(),
        LayerState::Missing(_) => format!("no {layer}"),
        LayerState::Broken(_) => format!("broken: {layer}"),
        LayerState::NotTested => format!("untested: {layer}"),
    });
    states.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sentence_names_the_command_and_its_directory() {
        let of = |arguments: Value| sentence(&arguments).unwrap();
        assert_eq!(
            of(json!({ "argv": ["cargo", "test"], "cwd": "/repo" })),
            "Run `cargo test` in /repo"
        );
        assert_eq!(
            of(json!({ "argv": ["ls"], "cwd": "/a (allowed)" })),
            "Run `ls` in '/a (allowed)'"
        );
        assert_eq!(
            of(json!({ "argv": ["sh", "-c", "a; it's", ""] })),
            r"Run `sh -c 'a; it'\''s' ''`"
        );
        assert_eq!(sentence(&json!("typed")), None);
    }

    #[test]
    fn argument_cannot_end_the_quotation_of_a_command() {
        let text = command(&["echo".to_owned(), "` in /other".to_owned()]);
        assert_eq!(text, r"`echo '\u{60} in /other'`");
        let long = command(&["x".repeat(10_000)]);
        assert!(long.ends_with("…`") && long.chars().count() < 300);
    }
}
