//! A question in, a prompt on a terminal and the line typed there read, an answer out.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _, Write};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};

use super::record::NOBODY;
use super::{Answer, Approver, Deciding, Lifetime, Question, Request, listed};
use crate::effect::{Change, LeftOut, Preview};
use crate::escape::escape;
use crate::scope::ScopePattern;

/// The most characters shown of one text that an agent or file has a say in.
const MOST_CHARS: usize = 300;
/// The most lines shown of a diff.
const MOST_LINES: usize = 120;
/// The longest line read from a person.
const MOST_TYPED: u64 = 1024;

/// Asks on a terminal, one question at a time. Whatever is not a clear yes is a no. So is the end of the input and a
/// terminal that fails, but nobody said that: it is told as the host's, with a note.
///
/// The prompt is made by the runtime: texts of agents and files stand in it quoted, escaped and cut to length,
/// and the scopes stand last, next to the choice.
#[derive(Clone)]
pub struct Terminal {
    console: Arc<Mutex<Console>>,
}

struct Console {
    input: Box<dyn BufRead + Send>,
    output: Box<dyn Write + Send>,
    coloured: bool,
}

impl Terminal {
    /// Asks on the terminal that controls this process, apart from its standard input and output.
    ///
    /// # Errors
    /// The system's, if there is none.
    #[cfg(unix)]
    pub fn tty() -> io::Result<Self> {
        let tty = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")?;
        Ok(Self::new(BufReader::new(tty.try_clone()?), tty, true))
    }

    /// Asks on standard error and reads answers from standard input.
    #[must_use]
    pub fn stdio() -> Self {
        let coloured = io::stderr().is_terminal();
        Self::new(BufReader::new(io::stdin()), io::stderr(), coloured)
    }

    /// Asks on `output` and reads answers from `input`; a diff is coloured if `coloured`.
    #[must_use]
    pub fn new(
        input: impl BufRead + Send + 'static,
        output: impl Write + Send + 'static,
        coloured: bool,
    ) -> Self {
        Self {
            console: Arc::new(Mutex::new(Console {
                input: Box::new(input),
                output: Box::new(output),
                coloured,
            })),
        }
    }
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}

impl Approver for Terminal {
    fn is_person(&self, answer: &Answer) -> bool {
        // A person has no way to type a note here.
        !matches!(answer, Answer::Deny { note: Some(_) })
    }

    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
        Box::pin(async move {
            let mut console = Arc::clone(&self.console).lock_owned().await;
            let (tell, told) = oneshot::channel();
            let question = question.clone();
            // A thread of its own: a person may take longer than the runtime lives.
            let asking = std::thread::Builder::new()
                .name("bailiwick-terminal".to_owned())
                .spawn(move || {
                    let answer = console.ask(&question).unwrap_or_else(|_| nobody());
                    // The question may have ended meanwhile.
                    let _ = tell.send(answer);
                });
            match asking {
                Ok(_) => told.await.unwrap_or_else(|_| nobody()),
                Err(_) => nobody(),
            }
        })
    }
}

/// The no where there was no person to say one.
fn nobody() -> Answer {
    Answer::Deny {
        note: Some(NOBODY.to_owned()),
    }
}

/// What a person reads who said no, or nothing clear.
const REFUSED: &str = "Refused: the agent is told PERMISSION_DENIED. To allow it, say yes when it is asked again, or \
    unblock the worker.\n";

impl Console {
    fn ask(&mut self, question: &Question) -> io::Result<Answer> {
        let answer = self.choice(question)?;
        if answer == Answer::DENY {
            // The person said no, whether or not they can be told what follows.
            let told = self.output.write_all(REFUSED.as_bytes());
            let _ = told.and_then(|()| self.output.flush());
        }
        Ok(answer)
    }

    fn choice(&mut self, question: &Question) -> io::Result<Answer> {
        let prompt = prompt(question, self.coloured);
        self.output.write_all(prompt.as_bytes())?;
        let parts = if question.request.divisible {
            "; `1 without 2 3` leaves out parts [2] and [3]"
        } else {
            ""
        };
        let ask = format!("\nAllow which? Its number, or Enter to refuse{parts}: ");
        let choice = self.read(&ask)?;
        let Some((patterns, left_out)) = choose(&choice, &question.request) else {
            return Ok(Answer::DENY);
        };
        // More equal calls may have come since the question was shown.
        let waiting = question.all_waiting();
        let several = waiting.map_or_else(String::new, |calls| {
            format!(", 5 all {calls} equal calls that wait")
        });
        let time = self.read(&format!(
            "For how long? 1 once, 2 ten uses, 3 one hour, 4 this session{several}, or Enter to refuse: ",
        ))?;
        Ok(
            lifetime(&time, waiting).map_or(Answer::DENY, |lifetime| Answer::Allow {
                patterns,
                lifetime,
                descendants: false,
                left_out,
            }),
        )
    }

    /// Shows `prompt` and reads one line; empty if the line is too long. The end of the input is an error.
    fn read(&mut self, prompt: &str) -> io::Result<String> {
        self.output.write_all(prompt.as_bytes())?;
        self.output.flush()?;
        let mut line = Vec::new();
        let read = (&mut self.input)
            .take(MOST_TYPED)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.len() as u64 == MOST_TYPED && !line.ends_with(b"\n") {
            // What is left of it must not answer the next question.
            self.input.skip_until(b'\n')?;
            return Ok(String::new());
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }
}

/// The rung and the parts to leave out that a line names; none if it is not wholly clear.
fn choose(choice: &str, request: &Request) -> Option<(Vec<ScopePattern>, Vec<LeftOut>)> {
    let (rung, parts) = match choice.split_once("without") {
        Some((rung, parts)) => (rung, parts),
        None => (choice, ""),
    };
    let number: usize = rung.trim().parse().ok()?;
    let rung = request.ladder.get(number.checked_sub(1)?)?;
    let parts = parts
        .split([' ', ','])
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect::<Option<BTreeSet<usize>>>()?;
    if parts.is_empty() && choice.contains("without") {
        return None;
    }
    let left_out = left_out(request, &parts)?;
    request
        .can_leave_out(&left_out)
        .then(|| (rung.clone(), left_out))
}

/// The parts by the numbers that the prompt shows them with; none if one is not there.
fn left_out(request: &Request, numbers: &BTreeSet<usize>) -> Option<Vec<LeftOut>> {
    let changes = request.preview.iter().flat_map(|preview| &preview.changes);
    let mut left_out: Vec<LeftOut> = Vec::new();
    let (mut number, mut found) = (0, 0);
    for change in changes {
        for hunk in 0..change.diff.hunks.len() {
            number += 1;
            if !numbers.contains(&number) {
                continue;
            }
            found += 1;
            match left_out.last_mut().filter(|part| part.path == change.path) {
                Some(part) => part.hunks.push(hunk),
                None => left_out.push(LeftOut {
                    path: change.path.clone(),
                    hunks: vec![hunk],
                }),
            }
        }
    }
    (found == numbers.len()).then_some(left_out)
}

fn lifetime(choice: &str, waiting: Option<NonZeroU32>) -> Option<Lifetime> {
    match choice {
        "5" => waiting.map(Lifetime::Waiting),
        "1" => Some(Lifetime::Once),
        "2" => NonZeroU32::new(10).map(Lifetime::Uses),
        "3" => Some(Lifetime::For(Duration::from_secs(3600))),
        "4" => Some(Lifetime::Session),
        _ => None,
    }
}

/// The whole question as text. Its line breaks, and its colours if any, are the runtime's own.
fn prompt(question: &Question, coloured: bool) -> String {
    let request = &question.request;
    let agents: Vec<String> = request.agent_path.iter().map(|name| cut(name)).collect();
    let mut out = format!(
        "\n-- permission {} --\nagent:  \"{}\"\ntool:   {}\nintent: \"{}\"\n",
        question.id,
        agents.join("\" > \""),
        cut(request.tool.as_str()),
        cut(&request.intent),
    );
    match &request.preview {
        Some(preview) => show_preview(&mut out, preview, request.divisible, coloured),
        None => out.push_str("no preview: what would change is not known\n"),
    }
    if request.sensitive {
        out.push_str("CAREFUL: this changes what decides what agents or tools may do:\n");
        for need in &request.protected {
            out.push_str(&format!("  {}\n", escape(&need.to_string())));
        }
        for reason in &request.protected_because {
            out.push_str(&format!("  ({reason})\n"));
        }
    }
    if let Some(calls) = question.all_waiting() {
        out.push_str(&format!(
            "{calls} equal calls wait; \"once\" lets one of them through\n"
        ));
    }
    out.push_str("it needs:\n");
    for need in &request.needs {
        out.push_str(&format!("  {}\n", escape(&need.to_string())));
    }
    out.push_str("you may allow:\n");
    for (index, rung) in request.ladder.iter().enumerate() {
        let patterns = listed(rung, "  ");
        let covers = escape(&request.covers(rung)).into_owned();
        out.push_str(&format!("  {}) {patterns}\n     {covers}\n", index + 1,));
    }
    out
}

/// Shows the changes; parts that can be left out are numbered.
fn show_preview(out: &mut String, preview: &Preview, numbered: bool, coloured: bool) {
    let (mut left, mut number) = (MOST_LINES, numbered.then_some(0));
    for change in &preview.changes {
        show_change(out, change, &mut number, coloured, &mut left);
    }
    let all: usize = preview.changes.iter().map(|change| lines(change) + 1).sum();
    if all > MOST_LINES {
        out.push_str(&format!(
            "... {} more lines are not shown\n",
            all - MOST_LINES
        ));
    }
}

fn lines(change: &Change) -> usize {
    change
        .diff
        .hunks
        .iter()
        .map(|hunk| hunk.lines.len() + 1)
        .sum()
}

fn show_change(
    out: &mut String,
    change: &Change,
    number: &mut Option<usize>,
    coloured: bool,
    left: &mut usize,
) {
    let to = change
        .to
        .as_ref()
        .map_or_else(String::new, |to| format!(" to {}", escape(to.as_str())));
    let note = if change.diff.large {
        " (too large to be shown)"
    } else if change.diff.binary {
        " (binary)"
    } else if change.diff.hidden {
        " (its present content is not shown)"
    } else {
        ""
    };
    let title = format!("{:?} {}{to}{note}", change.op, escape(change.path.as_str()));
    show_line(out, left, None, &title);
    for hunk in &change.diff.hunks {
        let part = number.as_mut().map_or_else(String::new, |number| {
            *number += 1;
            format!("[{number}] ")
        });
        let at = format!(
            "{part}@@ -{},{} +{},{} @@",
            hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines
        );
        show_line(out, left, coloured.then_some("36"), &at);
        for line in &hunk.lines {
            let colour = match line.op {
                '+' => Some("32"),
                '-' => Some("31"),
                _ => None,
            };
            let text = line.text.strip_suffix('\n').unwrap_or(&line.text);
            let text = format!("{}{}", line.op, cut(text));
            show_line(out, left, colour.filter(|_| coloured), &text);
        }
    }
}

/// Adds one line that is inert already, while lines are left.
fn show_line(out: &mut String, left: &mut usize, colour: Option<&str>, text: &str) {
    let Some(fewer) = left.checked_sub(1) else {
        return;
    };
    *left = fewer;
    match colour {
        Some(colour) => out.push_str(&format!("  \u{1b}[{colour}m{text}\u{1b}[0m\n")),
        None => out.push_str(&format!("  {text}\n")),
    }
}

/// The text on one line, inert and not too long.
fn cut(text: &str) -> String {
    let kept: String = text.chars().take(MOST_CHARS).collect();
    let more = text.chars().count().saturating_sub(MOST_CHARS);
    let inert = escape(&kept);
    if more == 0 {
        inert.into_owned()
    } else {
        format!("{inert}... ({more} more characters)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{
        Content, ContentHash, Entry, FileDiff, Hunk, HunkLine, Op, PreviewToken, Reply,
    };
    use crate::escape::is_deceptive;
    use crate::id::{QuestionId, ToolName};
    use crate::path::VirtualPath;
    use crate::permission::tests::request;
    use std::sync::Mutex as Lock;

    #[derive(Clone, Default)]
    struct Screen(Arc<Lock<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn question(request: Request) -> Question {
        Question {
            id: QuestionId(1),
            run: crate::permission::Run::default(),
            asked_at: Duration::ZERO,
            expires_at: Duration::from_secs(600),
            request,
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    async fn typed(input: &'static str) -> Answer {
        let terminal = Terminal::new(input.as_bytes(), Screen::default(), false);
        terminal
            .decide(&question(request(1, 1, &["write:file:/r/a/x"])))
            .await
    }

    fn allow(pattern: &str, lifetime: Lifetime) -> Answer {
        Answer::Allow {
            patterns: vec![pattern.parse().unwrap()],
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_number_and_a_time_are_a_yes() {
        let ten = Lifetime::Uses(NonZeroU32::new(10).unwrap());
        let hour = Lifetime::For(Duration::from_secs(3600));
        assert_eq!(
            typed("1\n1\n").await,
            allow("write:file:/r/a/x", Lifetime::Once)
        );
        assert_eq!(typed("2\n2\n").await, allow("write:file:/r/a", ten));
        assert_eq!(typed(" 3 \r\n3\n").await, allow("write:file:/r", hour));
        assert_eq!(
            typed("1\n4").await,
            allow("write:file:/r/a/x", Lifetime::Session)
        );
    }

    #[tokio::test]
    async fn who_refuses_is_told_what_follows_and_who_allows_is_not() {
        for (input, told) in [("1\n1\n", false), ("\n", true), ("1\n\n", true)] {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            let question = question(request(1, 1, &["write:file:/r/a/x"]));
            terminal.decide(&question).await;
            let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
            assert_eq!(shown.ends_with(REFUSED), told, "{shown}");
        }
    }

    #[tokio::test]
    async fn everything_else_is_a_no() {
        for input in [
            "\n", "n\n1\n", "0\n1\n", "6\n1\n", "-1\n1\n", "y\n", "1\n\n", "1\n5\n", "1 1\n1\n",
        ] {
            assert_eq!(typed(input).await, Answer::DENY, "{input:?}");
        }
        for ended in ["", "1\n"] {
            assert_eq!(typed(ended).await, nobody(), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn the_rest_of_an_overlong_line_answers_nothing() {
        let overlong = format!("{}1\n1\n1\n", " ".repeat(1024));
        let terminal = Terminal::new(io::Cursor::new(overlong), Screen::default(), false);
        let question = question(request(1, 1, &["write:file:/r/a/x"]));
        assert_eq!(terminal.decide(&question).await, Answer::DENY);
        assert_eq!(
            terminal.decide(&question).await,
            allow("write:file:/r/a/x", Lifetime::Once)
        );
    }

    /// A request in which everything that an agent or file has a say in holds `text`.
    fn hostile(text: &str) -> Request {
        let hunk = Hunk {
            old_start: 1,
            old_lines: 1,
            new_start: 1,
            new_lines: 1,
            lines: vec![HunkLine {
                op: '+',
                text: format!("{text}\n"),
            }],
        };
        let path = VirtualPath::top().join(&format!("f{text}"));
        let change = Change {
            path: path.unwrap_or_else(|_| VirtualPath::top()),
            op: Op::Modify,
            to: None,
            before: Entry::Absent,
            after: Entry::Absent,
            diff: FileDiff {
                hunks: vec![hunk],
                ..FileDiff::default()
            },
        };
        let mut request = request(1, 1, &["write:file:/r/a/x"]);
        request.agent_path = vec![text.to_owned(), "main".to_owned()];
        request.intent = text.to_owned();
        request.tool = ToolName::new(text);
        request.preview = Some(Preview {
            base: VirtualPath::top(),
            intent: text.to_owned(),
            changes: vec![change],
            reply: Reply {
                content: Vec::<Content>::new(),
                output: Arc::new(()),
            },
            token: PreviewToken(ContentHash::of(b"")),
            artifacts: Vec::new(),
        });
        request
    }

    #[track_caller]
    /// Three parts in one file, each numbered in the prompt.
    fn divisible() -> Question {
        let mut request = hostile("");
        request.divisible = true;
        if let Some(change) = request
            .preview
            .as_mut()
            .and_then(|it| it.changes.first_mut())
        {
            let hunk = change.diff.hunks.first().cloned().unwrap();
            change.diff.hunks = vec![hunk.clone(), hunk.clone(), hunk];
        }
        question(request)
    }

    #[tokio::test]
    async fn parts_are_left_out_by_the_numbers_they_are_shown_with() {
        let answer = |input: &'static str| async move {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            let answer = terminal.decide(&divisible()).await;
            let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
            assert!(
                shown.contains("[1] @@") && shown.contains("[3] @@"),
                "{shown}"
            );
            answer
        };
        for (input, parts) in [
            ("1\n1\n", &[][..]),
            ("1 without 2\n1\n", &[1]),
            ("1 without 3, 1\n1\n", &[0, 2]),
        ] {
            let Answer::Allow { left_out, .. } = answer(input).await else {
                panic!("{input:?}");
            };
            let hunks: Vec<usize> = left_out.into_iter().flat_map(|part| part.hunks).collect();
            assert_eq!(hunks, parts, "{input:?}");
        }
        for input in [
            "1 without\n1\n",
            "1 without 4\n1\n",
            "1 without x\n1\n",
            "1 without 1 2 3\n1\n",
        ] {
            assert_eq!(answer(input).await, Answer::DENY, "{input:?}");
        }
        assert_eq!(typed("1 without 1\n1\n").await, Answer::DENY);
    }

    fn check_inert(text: &str) {
        let lines = prompt(&question(hostile("plain")), false).lines().count();
        let shown = prompt(&question(hostile(text)), false);
        assert!(
            !shown.chars().any(|c| is_deceptive(c) && c != '\n'),
            "{shown:?}"
        );
        assert_eq!(shown.lines().count(), lines, "{shown}");
    }

    #[test]
    fn no_character_of_an_agent_or_file_acts_on_the_terminal() {
        let controls = (0..0xa0).filter_map(char::from_u32);
        let marks = "\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2061}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{fff9}\u{fe0f}\u{e0001}\u{e007f}";
        for c in controls.chain(marks.chars()) {
            check_inert(&format!("a{c}b"));
        }
    }

    #[test]
    fn no_text_of_an_agent_makes_a_line_of_the_prompt() {
        check_inert("ok\"\nit needs:\n  read:file:/harmless\n");
        check_inert("\u{1b}[2J\u{1b}[H-- permission q1 --\r\n");
        check_inert("<script>alert(1)</script>\u{9b}31m");
    }

    #[test]
    fn long_texts_are_cut_so_that_the_scopes_stay_in_view() {
        let shown = prompt(&question(hostile(&"x".repeat(10_000))), false);
        assert!(shown.len() < 3_000, "{}", shown.len());
        assert!(shown.contains("(9700 more characters)"));
        let mut long = hostile("x");
        let hunk = &mut long.preview.as_mut().unwrap().changes[0].diff.hunks[0];
        hunk.lines = vec![hunk.lines[0].clone(); 500];
        let shown = prompt(&question(long), false);
        assert!(
            shown.contains("... 382 more lines are not shown"),
            "{shown}"
        );
        assert!(shown.contains("\n  5) write\n"), "{shown}");
    }

    #[test]
    fn only_a_terminal_that_wants_colours_gets_them() {
        let request = hostile("x");
        let [plain, coloured] =
            [false, true].map(|coloured| prompt(&question(request.clone()), coloured));
        assert!(!plain.contains('\u{1b}'));
        assert!(coloured.contains("\u{1b}[32m+x\u{1b}[0m\n"), "{coloured}");
    }

    #[tokio::test]
    async fn questions_wait_for_one_another() {
        let screen = Screen::default();
        let terminal = Terminal::new("1\n1\n\n".as_bytes(), screen.clone(), false);
        let question = question(request(1, 1, &["write:file:/r/a/x"]));
        let (first, second) = tokio::join!(terminal.decide(&question), terminal.decide(&question));
        let yes = allow("write:file:/r/a/x", Lifetime::Once);
        assert_eq!((first, second), (yes, Answer::DENY));
        let shown = String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        assert_eq!(shown.matches("-- permission").count(), 2);
    }
}
