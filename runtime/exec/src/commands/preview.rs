//! What people see of a command before it runs.

use bailiwick::effect::ResourceChange;
use bailiwick::scope::Verb;
use bailiwick::text::abbreviated;
use bailiwick::tool::Rights;
use bailiwick::worker::LayerState;
use serde_json::Value;

use super::Commands;
use super::record::first;
use super::tool::Command;
use crate::view::Changes;

/// Maximum length of a command or name in a sentence, in characters. Prompts shorten a line of 200 characters again, and
/// would then count only what they leave out themselves.
const MAX_COMMAND: usize = 176;
/// Maximum length of the directory of a command.
const MAX_DIRECTORY: usize = 80;
/// Maximum number of folders or hosts in a sentence.
const MAX_NAMED: usize = 4;

/// The sentence about a call with these arguments, such as ``Run `cargo test` in /repo``.
pub(super) fn sentence(arguments: &Value) -> Option<String> {
    let argv = arguments.get("argv")?.as_array()?.iter();
    let argv: Option<Vec<String>> = argv.map(|word| word.as_str().map(str::to_owned)).collect();
    let command = command(&argv?);
    Some(match arguments.get("cwd").and_then(Value::as_str) {
        Some(cwd) => format!(
            "Run {command} in {}",
            abbreviated(&quoted(cwd), MAX_DIRECTORY)
        ),
        None => format!("Run {command}"),
    })
}

/// The arguments as a line for a shell in backticks. A long line is cut in its middle.
pub(super) fn command(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
    // It cannot end the quotation.
    let line = words.join(" ").replace('`', "\\u{60}");
    format!("`{}`", abbreviated(&line, MAX_COMMAND))
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// What a command may read, change and connect to: what it declares, and what its worker may without a question.
pub(super) fn rights(
    commands: &Commands,
    job: &Command,
    changes: Changes,
    rights: &Rights<'_>,
) -> [ResourceChange; 3] {
    let is_sandboxed = commands.is_sandboxed();
    let with = |declared: &[String], allowed: Vec<String>| {
        let mut all: Vec<String> = declared
            .iter()
            .map(|name| abbreviated(&quoted(name), MAX_COMMAND).into_owned())
            .collect();
        all.extend(allowed.into_iter().filter(|name| !declared.contains(name)));
        all
    };
    let line = |name: &str, summary: String, confined: bool| {
        let line = ResourceChange::new(name, summary);
        if confined && is_sandboxed {
            line.confined()
        } else {
            line
        }
    };
    let system = "the programs and libraries of this computer";
    let read = match listed(with(&job.reads, rights.allowed_files(Verb::Read))) {
        Some(files) => format!("{files}; also {system}"),
        None => format!("only {system}"),
    };
    let writable = listed(with(&job.writes, rights.allowed_files(Verb::Write)));
    let (change, is_confined) = match (changes, writable) {
        (Changes::Apart, _) => {
            let how = match commands.copies_files() {
                true => "; all files are copied before it starts, since overlayfs is missing",
                false => "",
            };
            let copy =
                "only a copy: your files stay as they are until another call applies its changes";
            (format!("{copy}{how}"), true)
        }
        (Changes::Live, Some(files)) => (format!("{files}; this cannot be undone"), false),
        (Changes::Live, None) => ("nothing".to_owned(), true),
    };
    let hosts = match rights.allowed_hosts() {
        Some(allowed) => listed(with(&job.network, allowed)),
        None => Some("every host".to_owned()),
    };
    let is_offline = hosts.is_none();
    [
        line("Can read", read, true),
        line("Can change", change, is_confined),
        line(
            "Can connect to",
            hosts.unwrap_or_else(|| "nothing: it has no network".to_owned()),
            is_offline,
        ),
    ]
}

/// The first names, and how many more there are; `None` if there are none.
fn listed(mut names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(MAX_NAMED);
    names.truncate(MAX_NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let last = names.pop()?;
    Some(if names.is_empty() {
        last
    } else {
        format!("{} and {last}", names.join(", "))
    })
}

/// The details of a command, one per line.
pub(super) fn details(commands: &Commands, job: &Command) -> String {
    let mut lines = Vec::new();
    let shown = first(job.argv.iter());
    lines.push(format!("arguments: {shown:?}"));
    lines.extend(omitted(&job.argv, &shown));
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
    let shown = first(job.scopes.iter());
    lines.push(format!("scopes: {}", shown.join(", ")));
    lines.extend(omitted(&job.scopes, &shown));
    lines.push(format!("sandbox: {}", layers(commands)));
    // The names and arguments may contain line breaks.
    let lines: Vec<String> = lines
        .iter()
        .map(|line| line.replace(['\n', '\r'], " "))
        .collect();
    lines.join("\n")
}

/// The line about what is not shown.
fn omitted(all: &[String], shown: &[String]) -> Option<String> {
    let more = all.len() - shown.len();
    (more > 0).then(|| format!("and {more} more"))
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
    fn long_command_keeps_its_start_and_end() {
        let script = format!("echo {}; rm -rf all", "harmless ".repeat(60));
        let argv = ["sh", "-c", script.as_str()].map(str::to_owned);
        let text = command(&argv);
        assert!(text.starts_with("`sh -c 'echo harmless "), "{text}");
        assert!(text.contains("[389 characters]"), "{text}");
        assert!(text.ends_with("; rm -rf all'`"), "{text}");
        assert!(text.chars().count() <= 200, "{text}");
        let directory = format!("/{}", "d".repeat(1_000));
        let text = sentence(&json!({ "argv": argv, "cwd": directory })).unwrap();
        assert!(text.chars().count() <= 300, "{text}");
    }

    #[test]
    fn argument_cannot_end_the_quotation_of_a_command() {
        let text = command(&["echo".to_owned(), "` in /other".to_owned()]);
        assert_eq!(text, r"`echo '\u{60} in /other'`");
    }
}
