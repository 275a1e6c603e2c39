//! Approver that asks on a terminal.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _, Write};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::record::NOBODY;
use super::{
    Answer, Approver, Choice, DangerLevel, Deciding, DeniedCalls, Lifetime, Question, Request,
};
use crate::effect::{Change, ExcludedChange, Op, Preview};
use crate::scope::Coverage;
use crate::text::escape;

/// Maximum length of a text that an agent or file controls, in characters.
const MAX_CHARS: usize = 300;
/// Maximum number of displayed directory entries.
const MAX_ENTRIES: usize = 20;
/// Maximum number of displayed lines of a diff.
const MAX_LINES: usize = 120;
/// Lines that a change leaves for each later one.
const RESERVED_LINES: usize = 10;
/// Maximum length of an input line.
const MAX_TYPED: u64 = 1024;

/// Asks on a terminal, one question at a time. Everything except a clear approval is a denial. The end of the input or a
/// terminal error is a denial by the host, with a note.
///
/// The runtime generates the prompt: texts of agents and files are quoted, escaped and cut, and the scopes come last,
/// next to the choices.
#[derive(Clone)]
pub struct Terminal {
    console: Arc<Mutex<Console>>,
    /// Only the call itself can be allowed.
    once: bool,
}

/// How long a question is displayed before input counts. Earlier input was meant for what was displayed before.
const CALM: Duration = Duration::from_millis(700);

/// State for terminals, where a person may type before they have seen the question.
struct Keyboard {
    /// Drops pending input.
    drop_typed: Box<dyn Fn() + Send>,
    calm: Duration,
}

type Input = Box<dyn BufRead + Send>;
/// A line, and when it was read.
type Line = io::Result<(Instant, String)>;

struct Console {
    input: Arc<parking_lot::Mutex<Input>>,
    output: Output,
    coloured: bool,
    /// Only set for a terminal. Other input is read in order.
    keyboard: Option<Keyboard>,
    /// The line being read. It stays if its question is withdrawn, since reading cannot be interrupted.
    reading: Option<oneshot::Receiver<Line>>,
}

impl Terminal {
    /// Asks on the controlling terminal of this process instead of standard input and output. Input before a question is
    /// dropped.
    ///
    /// # Errors
    /// The I/O error, if there is no controlling terminal.
    #[cfg(unix)]
    pub fn tty() -> io::Result<Self> {
        let tty = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")?;
        let keyboard = Keyboard::of(tty.try_clone()?);
        let input = BufReader::new(tty.try_clone()?);
        Ok(Self::with(input, tty, true, Some(keyboard)))
    }

    /// Asks on standard error and reads answers from standard input. If that is a terminal, input before a question is dropped.
    #[must_use]
    pub fn stdio() -> Self {
        let coloured = io::stderr().is_terminal();
        let keyboard = io::stdin().is_terminal().then(|| Keyboard::of(io::stdin()));
        let input = BufReader::new(io::stdin());
        Self::with(input, io::stderr(), coloured, keyboard)
    }

    /// Asks on `output` and reads answers from `input`, in their order; a diff is coloured if `coloured`. The line that is
    /// being read when its question is withdrawn or expires is dropped.
    #[must_use]
    pub fn new(
        input: impl BufRead + Send + 'static,
        output: impl Write + Send + 'static,
        coloured: bool,
    ) -> Self {
        Self::with(input, output, coloured, None)
    }

    fn with(
        input: impl BufRead + Send + 'static,
        output: impl Write + Send + 'static,
        coloured: bool,
        keyboard: Option<Keyboard>,
    ) -> Self {
        Self {
            console: Arc::new(Mutex::new(Console {
                input: Arc::new(parking_lot::Mutex::new(Box::new(input))),
                output: Output::new(output),
                coloured,
                keyboard,
                reading: None,
            })),
            once: false,
        }
    }

    /// Offers only to allow the call once or to deny it, for a program that asks no second question.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }
}

impl Keyboard {
    fn of(terminal: impl AsFd + Send + 'static) -> Self {
        let drop_typed = move || {
            // A closed terminal has no input, and reading from it fails.
            let _ = tcflush(&terminal, QueueSelector::IFlush);
        };
        Self {
            drop_typed: Box::new(drop_typed),
            calm: CALM,
        }
    }
}

/// Writes on a thread of its own, since a terminal may block.
struct Output(mpsc::Sender<Text>);

/// A text to write, and the sender to notify once it is written.
type Text = (String, oneshot::Sender<io::Result<()>>);

impl Output {
    fn new(mut writer: impl Write + Send + 'static) -> Self {
        let (texts, written) = mpsc::channel::<Text>();
        let run = move || {
            for (text, done) in written {
                let wrote = writer.write_all(text.as_bytes());
                let _ = done.send(wrote.and_then(|()| writer.flush()));
            }
        };
        // Without a thread the channel is closed, and every write fails.
        let _ = thread().spawn(run);
        Self(texts)
    }

    /// Queues a text. The receiver is notified once it is written.
    fn write(&self, text: String) -> oneshot::Receiver<io::Result<()>> {
        let (done, wait) = oneshot::channel();
        // A thread that has ended drops `done`, which notifies the receiver.
        let _ = self.0.send((text, done));
        wait
    }
}

/// A thread that the runtime does not wait for, since reading and writing may block longer than the runtime lives.
fn thread() -> std::thread::Builder {
    std::thread::Builder::new().name("bailiwick-terminal".to_owned())
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminal").finish_non_exhaustive()
    }
}

impl Approver for Terminal {
    fn is_person(&self, answer: &Answer) -> bool {
        // Notes cannot be typed here.
        !matches!(answer, Answer::Deny { note: Some(_), .. })
    }

    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
        Box::pin(async move {
            let mut asking = Asking {
                console: self.console.lock().await,
                open: true,
            };
            let answer = if self.once {
                asking.console.ask_once(question).await
            } else {
                asking.console.ask(question).await
            };
            asking.open = false;
            answer.unwrap_or_else(|_| nobody())
        })
    }
}

/// A displayed question. Dropping it while it is open displays that no answer is needed.
struct Asking<'c> {
    console: MutexGuard<'c, Console>,
    open: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.open {
            drop(self.console.output.write(WITHDRAWN.to_owned()));
        }
    }
}

/// The denial if no person answered.
fn nobody() -> Answer {
    Answer::deny(Some(NOBODY.to_owned()))
}

/// Reply to a denial or an unclear answer.
const REFUSED: &str =
    "Denied: the agent gets PERMISSION_DENIED. If it asks again, you can allow it.\n";

/// Reply to a denial of all calls of the kind.
const STOPPED: &str =
    "Denied until the session ends: the agent gets PERMISSION_DENIED without a question.\n";

/// Input that allows exactly what is asked, for one call.
const YES: &str = "yes";

/// Input that denies all calls of the kind until the session ends.
const STOP: &str = "stop";
/// The answer of [`STOP`].
const STOPS: Answer = Answer::deny_rest_of_session(DeniedCalls::Kind);

/// Reply to a line that came too soon.
const EARLY: &str = "Too early: the request had just appeared. Enter it again: ";

/// Reply to a line that was being read for an earlier question.
const EARLIER: &str = "The last input was for an earlier request. Enter the answer to this one: ";

/// Reply to an answer beyond the call that would grant more than a person can read.
const TOO_MANY: &str = "Too many permissions to allow beyond this call. The call was denied.\n";

/// Reply if the answer is not needed any more.
const WITHDRAWN: &str = "\nThis request was withdrawn; it needs no answer.\n";

impl Console {
    async fn ask(&mut self, question: &Question) -> io::Result<Answer> {
        let answer = self.choice(question).await?;
        // The denial counts even if the reply cannot be displayed.
        if answer == Answer::DENY {
            let _ = self.show(REFUSED.to_owned()).await;
        } else if answer == STOPS {
            let _ = self.show(STOPPED.to_owned()).await;
        }
        Ok(answer)
    }

    /// Asks about this call alone.
    async fn ask_once(&mut self, question: &Question) -> io::Result<Answer> {
        let parts = if question.request.divisible {
            "; `1 without 2 3` allows it without the parts [2] and [3]"
        } else {
            ""
        };
        let prompt = call_text(question, self.coloured);
        let ask = format!("\nType `{YES}` to allow this{parts}. Press Enter to deny: ");
        self.show(prompt + &ask).await?;
        let typed = self.read_first().await?;
        let typed = if typed == YES { "1" } else { &typed };
        let chosen = choose(typed, &question.request);
        let first = question.request.choices.first();
        let chosen = chosen.filter(|(choice, _)| first.is_some_and(|first| *choice == first));
        let Some((choice, left_out)) = chosen else {
            return Ok(Answer::DENY);
        };
        if let Err(error) = question.request.check_excluded(&left_out) {
            let reason = format!("This cannot be left out: {error}.\n");
            self.show(reason).await?;
            return Ok(Answer::DENY);
        }
        Ok(Answer::Allow {
            patterns: choice.patterns.clone(),
            lifetime: Lifetime::Once,
            descendants: false,
            left_out,
        })
    }

    async fn choice(&mut self, question: &Question) -> io::Result<Answer> {
        let prompt = prompt(question, self.coloured);
        let parts = if question.request.divisible {
            "; `1 without 2 3` leaves out parts [2] and [3]; name the parts that depend on them, too"
        } else {
            ""
        };
        let kinds = cut(&question.request.kinds());
        let ask = format!(
            "\nType `{YES}` to allow only this call, the number of a choice to allow more than this call, or press Enter to \
             deny{parts}; `{STOP}` denies this for the agent until the session ends: {kinds}: "
        );
        self.show(prompt + &ask).await?;
        let choice = self.read_first().await?;
        if choice == YES
            && let Some(exact) = question.request.choices.first()
        {
            return Ok(Answer::allow_choice(exact, Lifetime::Once));
        }
        if choice == STOP {
            return Ok(STOPS);
        }
        let Some((choice, left_out)) = choose(&choice, &question.request) else {
            return Ok(Answer::DENY);
        };
        if let Err(error) = question.request.check_excluded(&left_out) {
            self.show(format!("This cannot be left out: {error}.\n"))
                .await?;
            return Ok(Answer::DENY);
        }
        // More equal calls may have come since the question was shown.
        let waiting = question.allowed_together();
        let several = waiting.map_or_else(String::new, |calls| {
            format!(", 5 only the {calls} equal calls that wait")
        });
        self.show(format!(
            "How long? 1 only this call{several}; or without asking again, at most until this agent or its session \
             ends: 2 ten calls, 3 one hour, 4 until then. Enter to deny: ",
        ))
        .await?;
        let time = self.read().await?.1;
        let Some(lifetime) = lifetime(&time, waiting) else {
            return Ok(Answer::DENY);
        };
        if lifetime.waiting_calls().is_none() && !choice.may_last() {
            self.show(TOO_MANY.to_owned()).await?;
            return Ok(Answer::DENY);
        }
        if choice.needs_confirmation(lifetime) {
            let sentence = choice.sentence(&question.request.roots);
            self.show(format!(
                "This grants more than this call: {}. Type `{YES}` to allow it, or press Enter to deny: ",
                escape(&sentence)
            ))
            .await?;
            if self.read().await?.1 != YES {
                return Ok(Answer::DENY);
            }
        }
        Ok(Answer::Allow {
            patterns: choice.patterns.clone(),
            lifetime,
            descendants: false,
            left_out,
        })
    }

    /// Waits until the text is written.
    async fn show(&mut self, text: String) -> io::Result<()> {
        let written = self.output.write(text).await;
        written.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Reads the first line after a question was displayed. On a terminal, earlier input does not count. Other input may
    /// contain answers in advance, but a line whose reading began for an earlier question was meant for that one.
    async fn read_first(&mut self) -> io::Result<String> {
        let Some(keyboard) = &self.keyboard else {
            if self.reading.is_some() {
                self.read().await?;
                self.show(EARLIER.to_owned()).await?;
            }
            return Ok(self.read().await?.1);
        };
        (keyboard.drop_typed)();
        let shown = Instant::now();
        let counts = shown + keyboard.calm;
        loop {
            let (read_at, line) = self.read().await?;
            if read_at > counts {
                return Ok(line);
            }
            if read_at > shown {
                self.show(EARLY.to_owned()).await?;
            }
        }
    }

    /// Reads one line and the time when it was read; empty if the line is too long. The end of the input is an error.
    async fn read(&mut self) -> Line {
        let reading = match &mut self.reading {
            Some(reading) => reading,
            None => self.reading.insert(start_reading(&self.input)?),
        };
        let line = reading.await;
        self.reading = None;
        line.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

fn start_reading(input: &Arc<parking_lot::Mutex<Input>>) -> io::Result<oneshot::Receiver<Line>> {
    let (line_tx, line_rx) = oneshot::channel();
    let input = Arc::clone(input);
    thread().spawn(move || {
        let line = read_line(&mut **input.lock()).map(|line| (Instant::now(), line));
        // The console may be dropped.
        let _ = line_tx.send(line);
    })?;
    Ok(line_rx)
}

fn read_line(input: &mut dyn BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    let read = (&mut *input).take(MAX_TYPED).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.len() as u64 == MAX_TYPED && !line.ends_with(b"\n") {
        // What is left of it must not answer the next question.
        input.skip_until(b'\n')?;
        return Ok(String::new());
    }
    Ok(String::from_utf8_lossy(&line).trim().to_owned())
}

/// The choice and the excluded parts that a line names; `None` if it is unclear.
fn choose<'r>(typed: &str, request: &'r Request) -> Option<(&'r Choice, Vec<ExcludedChange>)> {
    let (number, parts) = match typed.split_once("without") {
        Some((number, parts)) => (number, parts),
        None => (typed, ""),
    };
    let number: usize = number.trim().parse().ok()?;
    let choice = request.choices.get(number.checked_sub(1)?)?;
    let parts = parts
        .split([' ', ','])
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect::<Option<BTreeSet<usize>>>()?;
    if parts.is_empty() && typed.contains("without") {
        return None;
    }
    Some((choice, left_out(request, &parts)?))
}

/// The parts with these numbers in the prompt; `None` if one does not exist.
fn left_out(request: &Request, numbers: &BTreeSet<usize>) -> Option<Vec<ExcludedChange>> {
    let changes = request.preview.as_ref();
    let changes = changes.map_or(&[][..], |preview| &preview.changes);
    let parts = changes.iter().flat_map(|change| {
        let hunks = numbered_hunks(change, changes).map(|hunk| ExcludedChange {
            path: change.path.clone(),
            hunks: Some(vec![hunk]),
        });
        let whole = is_numbered(changes).then(|| ExcludedChange::whole(change.path.clone()));
        whole.into_iter().chain(hunks)
    });
    let parts = (1..).zip(parts);
    let left_out: Vec<ExcludedChange> = parts
        .filter_map(|(number, part)| numbers.contains(&number).then_some(part))
        .collect();
    (left_out.len() == numbers.len()).then(|| ExcludedChange::joined(&left_out, &[]))
}

/// Whether whole changes have numbers: one that is alone cannot be left out.
fn is_numbered(changes: &[Change]) -> bool {
    changes.len() > 1
}

/// The hunks of a change that have numbers of their own.
fn numbered_hunks(change: &Change, changes: &[Change]) -> Range<usize> {
    let hunks = change.diff.hunks.len();
    let divisible = change.op == Op::Modify && (hunks > 1 || !is_numbered(changes));
    0..if divisible { hunks } else { 0 }
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

/// The whole question as text, with all choices.
fn prompt(question: &Question, coloured: bool) -> String {
    let request = &question.request;
    let mut out = call_text(question, coloured);
    out.push_str("you may allow:\n");
    for (index, choice) in request.choices.iter().enumerate() {
        let title = choice.title(&request.roots);
        out.push_str(&format!("  {}) {}\n", index + 1, escape(&title)));
    }
    out
}

/// What the question is about. Only the runtime adds line breaks and colours.
fn call_text(question: &Question, coloured: bool) -> String {
    let request = &question.request;
    let agents: Vec<String> = request.agent_path.iter().map(|name| cut(name)).collect();
    let mut out = format!(
        "\n-- permission {} --\nagent:  \"{}\"\ntool:   {}\nintent: \"{}\"\n",
        question.id,
        agents.join("\" > \""),
        cut(request.tool.as_str()),
        cut(&request.intent),
    );
    if request.sentence != request.intent {
        out.push_str(&format!("effect: {}\n", escape(&request.sentence)));
    }
    for danger in &request.dangers {
        let text = format!("{}: {}", danger.level.word(), escape(&danger.text));
        // Bold, and red or yellow.
        let colour = if danger.level == DangerLevel::Severe {
            31
        } else {
            33
        };
        out.push_str(&if coloured {
            format!("\u{1b}[1;{colour}m{text}\u{1b}[0m\n")
        } else {
            format!("{text}\n")
        });
    }
    if let Some(warning) = request.page_warning() {
        out.push_str(&format!("{warning}\n"));
    }
    match &request.preview {
        Some(preview) => show_preview(&mut out, preview, request.divisible, coloured),
        None => out.push_str("no preview: what would change is not known\n"),
    }
    if let Some(notice) = request.undo_notice("afterwards") {
        out.push_str(&format!("{notice}\n"));
    }
    if let Some(calls) = question.all_waiting() {
        out.push_str(&format!(
            "{calls} equal calls wait; \"once\" lets one of them through\n"
        ));
    }
    out.push_str("it needs:\n");
    for need in &request.needs {
        out.push_str(&format!("  {}\n", escape(&Coverage::of(need).sentence())));
    }
    out
}

/// The lines of a preview, up to a maximum number for each change.
struct PreviewLines<'o> {
    out: &'o mut String,
    coloured: bool,
    /// Number of lines, including those that are not shown.
    count: usize,
    /// Number of lines that are shown.
    shown: usize,
    /// Maximum of `shown` for the current change.
    most: usize,
}

/// Writes the changes; parts that can be excluded are numbered.
fn show_preview(out: &mut String, preview: &Preview, numbered: bool, coloured: bool) {
    let mut lines = PreviewLines {
        out,
        coloured,
        count: 0,
        shown: 0,
        most: 0,
    };
    // Some lines are left for each later change, so that a long one hides no other.
    let mut later = preview.changes.len() + preview.resources.len();
    let reserve = (MAX_LINES / later.max(1)).min(RESERVED_LINES);
    let mut most = |shown: usize| {
        later -= 1;
        (shown + 1).max(MAX_LINES.saturating_sub(reserve * later))
    };
    let mut last = 0;
    let mut number = |counts: bool| {
        if !(numbered && counts) {
            return String::new();
        }
        last += 1;
        format!("[{last}] ")
    };
    for change in &preview.changes {
        lines.most = most(lines.shown);
        let part = number(is_numbered(&preview.changes));
        lines.push(None, &(part + &change.summary(MAX_CHARS)));
        for entry in change.listing(MAX_ENTRIES, MAX_CHARS) {
            lines.push(None, &format!("  {entry}"));
        }
        let hunks = numbered_hunks(change, &preview.changes);
        for (index, hunk) in change.diff.hunks.iter().enumerate() {
            let part = number(hunks.contains(&index));
            let at = format!(
                "{part}@@ -{},{} +{},{} @@",
                hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines
            );
            lines.push(Some("36"), &at);
            for line in &hunk.lines {
                let text = line.text.strip_suffix('\n').unwrap_or(&line.text);
                lines.push_changed(line.op, text);
            }
        }
    }
    for change in &preview.resources {
        lines.most = most(lines.shown);
        lines.push(None, &change.title(MAX_CHARS));
        for (op, text) in change.lines() {
            lines.push_changed(op, text);
        }
    }
    let more = lines.count - lines.shown;
    if more > 0 {
        out.push_str(&format!("... {more} more lines are not shown\n"));
    }
}

impl PreviewLines<'_> {
    /// Adds one escaped line.
    fn push(&mut self, colour: Option<&str>, text: &str) {
        self.count += 1;
        if self.shown >= self.most {
            return;
        }
        self.shown += 1;
        match colour.filter(|_| self.coloured) {
            Some(colour) => {
                let line = format!("  \u{1b}[{colour}m{text}\u{1b}[0m\n");
                self.out.push_str(&line);
            }
            None => self.out.push_str(&format!("  {text}\n")),
        }
    }

    /// Adds a kept, removed or added line of a change.
    fn push_changed(&mut self, op: char, text: &str) {
        let colour = match op {
            '+' => Some("32"),
            '-' => Some("31"),
            _ => None,
        };
        self.push(colour, &format!("{op}{}", cut(text)));
    }
}

/// The text on one line, escaped and cut.
fn cut(text: &str) -> String {
    let kept: String = text.chars().take(MAX_CHARS).collect();
    let more = text.chars().count().saturating_sub(MAX_CHARS);
    let inert = escape(&kept);
    if more == 0 {
        inert.into_owned()
    } else {
        format!("{inert}... ({more} more characters)")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use tokio::sync::watch;

    use super::*;
    use crate::effect::{
        Change, Content, ContentHash, Entry, FileDiff, Hunk, HunkLine, Op, PreviewToken, Reply,
        ResourceChange,
    };
    use crate::fixtures::{changing, request};
    use crate::id::{QuestionId, ToolName};
    use crate::path::VirtualPath;
    use crate::text::is_deceptive;

    #[derive(Clone, Default)]
    struct Screen(Arc<watch::Sender<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send_modify(|shown| shown.extend_from_slice(bytes));
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
            request: request.into(),
            calls: crate::permission::WaitingCalls::default(),
        }
    }

    #[test]
    fn prompt_warns_that_the_page_of_another_server_reaches_the_network() {
        for (origin, server, warned) in [
            (crate::call::Origin::View, Some("weather"), true),
            (crate::call::Origin::View, None, false),
            (crate::call::Origin::Model, Some("weather"), false),
        ] {
            let request = Request {
                origin,
                server: server.map(Into::into),
                ..request(1, 1, &["read:mcp:weather:look"])
            };
            let text = prompt(&question(request), false);
            assert_eq!(text.contains("WebRTC"), warned, "{text}");
        }
    }

    async fn typed(input: &'static str) -> Answer {
        let terminal = Terminal::new(input.as_bytes(), Screen::default(), false);
        terminal.decide(&question(asked())).await
    }

    fn asked() -> Request {
        changing(request(1, 1, &["write:file:/r/a/x"]))
    }

    fn allow(choice: usize, lifetime: Lifetime) -> Answer {
        Answer::Allow {
            patterns: asked().choices[choice - 1].patterns.clone(),
            lifetime,
            descendants: false,
            left_out: Vec::new(),
        }
    }

    #[tokio::test]
    async fn choice_and_lifetime_approve() {
        let ten = Lifetime::Uses(NonZeroU32::new(10).unwrap());
        let hour = Lifetime::For(Duration::from_secs(3600));
        assert_eq!(typed("1\n1\n").await, allow(1, Lifetime::Once));
        assert_eq!(typed("2\n2\n").await, allow(2, ten));
        assert_eq!(typed(" 2 \r\n3\n").await, allow(2, hour));
        assert_eq!(typed("1\n4").await, allow(1, Lifetime::Session));
    }

    #[tokio::test]
    async fn broad_choice_is_described_and_confirmed() {
        const BROAD: usize = 3;
        let typed = async |sure: &str| {
            let screen = Screen::default();
            let input = io::Cursor::new(format!("{BROAD}\n4\n{sure}\n"));
            let answer = Terminal::new(input, screen.clone(), false)
                .decide(&question(asked()))
                .await;
            let shown = screen.0.borrow().clone();
            (answer, String::from_utf8(shown).unwrap())
        };
        let (answer, shown) = typed("yes").await;
        assert_eq!(answer, allow(BROAD, Lifetime::Session));
        let sentence = asked().choices[BROAD - 1].sentence(&asked().roots);
        assert_eq!(shown.matches(&sentence).count(), 2, "{shown}");
        for unsure in ["", "y", "Yes"] {
            assert_eq!(typed(unsure).await.0, Answer::DENY);
        }
    }

    #[tokio::test]
    async fn denial_gets_a_reply_and_approval_does_not() {
        for (input, told) in [("1\n1\n", false), ("\n", true), ("1\n\n", true)] {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            let question = question(asked());
            terminal.decide(&question).await;
            let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
            assert_eq!(shown.ends_with(REFUSED), told, "{shown}");
        }
    }

    #[tokio::test]
    async fn stop_denies_every_call_of_the_kind() {
        for (input, expected) in [("stop\n", STOPS), ("Stop\n", Answer::DENY)] {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            assert_eq!(terminal.decide(&question(asked())).await, expected);
            let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
            assert!(
                shown.contains("until the session ends: create, change, delete or move any file: "),
                "{shown}"
            );
            let told = if expected == Answer::DENY {
                REFUSED
            } else {
                STOPPED
            };
            assert!(shown.ends_with(told), "{shown}");
        }
    }

    #[tokio::test]
    async fn any_other_input_denies() {
        for input in [
            "\n", "n\n1\n", "0\n1\n", "6\n1\n", "-1\n1\n", "y\n", "Yes\n", "1\n\n", "1\n5\n",
            "1 1\n1\n",
        ] {
            assert_eq!(typed(input).await, Answer::DENY, "{input:?}");
        }
        for ended in ["", "1\n"] {
            assert_eq!(typed(ended).await, nobody(), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn terminal_that_asks_once_offers_nothing_beyond_the_call() {
        for (input, expected) in [
            ("yes\n", allow(1, Lifetime::Once)),
            ("1\n", allow(1, Lifetime::Once)),
            ("2\n", Answer::DENY),
            ("stop\n", Answer::DENY),
            ("\n", Answer::DENY),
        ] {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false).once();
            let answer = terminal.decide(&question(asked())).await;
            assert_eq!(answer, expected, "{input:?}");
            let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
            for wider in ["you may allow", "stop", "session", "If it asks again"] {
                assert!(!shown.contains(wider), "{shown}");
            }
        }
    }

    #[tokio::test]
    async fn yes_allows_exactly_what_is_asked_for_one_call() {
        assert_eq!(typed("yes\n").await, allow(1, Lifetime::Once));
    }

    #[tokio::test]
    async fn rest_of_an_overlong_line_is_ignored() {
        let overlong = format!("{}1\n1\n1\n", " ".repeat(1024));
        let terminal = Terminal::new(io::Cursor::new(overlong), Screen::default(), false);
        let question = question(asked());
        assert_eq!(terminal.decide(&question).await, Answer::DENY);
        assert_eq!(terminal.decide(&question).await, allow(1, Lifetime::Once));
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
                hunks: [hunk].into(),
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
            resources: vec![ResourceChange::new(text, text)],
            reply: Reply {
                content: Vec::<Content>::new(),
                output: Arc::new(()),
            },
            token: PreviewToken(ContentHash::of(b"")),
            artifacts: Vec::new(),
            undoable: false,
            call: None,
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
            change.diff.hunks = [hunk.clone(), hunk.clone(), hunk].into();
        }
        question(request)
    }

    #[tokio::test]
    async fn hunks_are_excluded_by_their_displayed_numbers() {
        let answer = |input: &'static str| async move {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            let answer = terminal.decide(&divisible()).await;
            let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
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
            let hunks: Vec<usize> = left_out
                .into_iter()
                .filter_map(|part| part.hunks)
                .flatten()
                .collect();
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

    #[tokio::test]
    async fn changes_are_excluded_by_their_displayed_numbers() {
        let several = || {
            let mut request = Request::clone(&divisible().request);
            let changes = &mut request.preview.as_mut().unwrap().changes;
            let edited = changes.first().cloned().unwrap();
            let at = |name: &str, op, diff| Change {
                path: VirtualPath::parse(name, None).unwrap(),
                op,
                diff,
                ..edited.clone()
            };
            let one_hunk = FileDiff {
                hunks: edited.diff.hunks.iter().take(1).cloned().collect(),
                ..FileDiff::default()
            };
            *changes = vec![
                at("/d", Op::MakeDirectory, FileDiff::default()),
                at("/d/new", Op::Create, one_hunk),
                edited,
            ];
            question(request)
        };
        let answer = |input: &'static str| async move {
            let screen = Screen::default();
            let terminal = Terminal::new(input.as_bytes(), screen.clone(), false);
            let answer = terminal.decide(&several()).await;
            let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
            for part in ["[1] create", "[2] create", "[3] ", "[4] @@", "[6] @@"] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
            assert!(!shown.contains("[7]"), "{shown}");
            (answer, shown)
        };
        let part = |path: &str, hunks| ExcludedChange {
            path: VirtualPath::parse(path, None).unwrap(),
            hunks,
        };
        for (input, parts) in [
            ("1 without 2\n1\n", vec![part("/d/new", None)]),
            (
                "1 without 1 2 5\n1\n",
                vec![
                    part("/d", None),
                    part("/d/new", None),
                    part("/f", Some(vec![1])),
                ],
            ),
            ("1 without 3 5\n1\n", vec![part("/f", None)]),
        ] {
            match answer(input).await.0 {
                Answer::Allow { left_out, .. } => assert_eq!(left_out, parts, "{input:?}"),
                Answer::Deny { .. } => panic!("{input:?}"),
            }
        }
        let (denied, shown) = answer("1 without 1\n1\n").await;
        assert_eq!(denied, Answer::DENY);
        let reason = "the change of `/d/new` depends on that of `/d`; exclude both or neither";
        assert!(shown.contains(reason), "{shown}");
        assert_eq!(answer("1 without 1 2 3\n1\n").await.0, Answer::DENY);
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
    fn control_characters_of_agents_and_files_are_escaped() {
        let controls = (0..0xa0).filter_map(char::from_u32);
        let marks = "\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2061}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{fff9}\u{fe0f}\u{e0001}\u{e007f}";
        for c in controls.chain(marks.chars()) {
            check_inert(&format!("a{c}b"));
        }
    }

    #[test]
    fn text_of_an_agent_cannot_forge_a_prompt_line() {
        check_inert("ok\"\nit needs:\n  read:file:/harmless\n");
        check_inert("\u{1b}[2J\u{1b}[H-- permission q1 --\r\n");
        check_inert("<script>alert(1)</script>\u{9b}31m");
    }

    #[test]
    fn prompt_offers_the_same_choices_as_every_other() {
        for (question, expected) in crate::fixtures::offered_choices() {
            let shown = prompt(&question, false);
            let (_, shown) = shown.split_once("you may allow:\n").unwrap();
            let expected = expected.iter().zip(1..);
            let expected = expected
                .map(|((label, covers, _), number)| format!("  {number}) {label}: {covers}\n"));
            assert_eq!(shown, expected.collect::<String>());
        }
    }

    #[tokio::test]
    async fn broad_choices_are_confirmed_as_in_every_other_prompt() {
        for (question, expected) in crate::fixtures::offered_choices() {
            for ((_, _, confirm), number) in expected.into_iter().zip(1..) {
                let input = format!("{number}\n4\n\n");
                let terminal = Terminal::new(io::Cursor::new(input), Screen::default(), false);
                let answer = terminal.decide(&question).await;
                assert_eq!(answer == Answer::DENY, confirm, "{number}: {answer:?}");
            }
        }
    }

    #[test]
    fn sentence_and_dangers_are_shown_and_red_only_if_coloured() {
        let mut request = crate::fixtures::shown(hostile(""));
        let change = crate::fixtures::deleted_directory("/r/old", 12, 12);
        request.preview.as_mut().unwrap().changes = vec![change];
        request.describe();
        let question = question(request);
        let shown = prompt(&question, false);
        let expected = "\neffect: Delete the folder old/ and the 12 files in it (12 bytes)\n\
            Careful: Deletes the folder old/ and the 12 files in it (12 bytes)\n\
            Careful: Deletes everything in old/\n";
        assert!(
            shown.contains(expected) && !shown.contains('\u{1b}'),
            "{shown}"
        );
        assert!(
            shown.contains("\nThis cannot be undone.\nit needs:"),
            "{shown}"
        );
        let coloured = prompt(&question, true);
        let red = "\u{1b}[1;31mCareful: Deletes everything in old/\u{1b}[0m\n";
        assert!(coloured.contains(red), "{coloured}");
    }

    /// Gives the first hunk of `change` 500 lines.
    fn lengthen(change: &mut Change) {
        let hunk = &mut Arc::make_mut(&mut change.diff.hunks)[0];
        hunk.lines = vec![hunk.lines[0].clone(); 500];
    }

    #[test]
    fn long_change_hides_no_other_change() {
        let mut long = hostile("x");
        let changes = &mut long.preview.as_mut().unwrap().changes;
        lengthen(&mut changes[0]);
        let mut other = changes[0].clone();
        other.path = VirtualPath::parse("/r/other", None).unwrap();
        changes.push(other);
        let shown = prompt(&question(long), false);
        assert!(shown.contains("change /r/other"), "{shown}");
        assert!(shown.contains("more lines are not shown"), "{shown}");
    }

    #[test]
    fn long_texts_are_cut_and_the_scopes_are_shown() {
        let shown = prompt(&question(hostile(&"x".repeat(10_000))), false);
        assert!(shown.len() < 3_000, "{}", shown.len());
        assert!(shown.contains("(9700 more characters)"));
        let mut long = hostile("x");
        lengthen(&mut long.preview.as_mut().unwrap().changes[0]);
        let shown = prompt(&question(long), false);
        assert!(
            shown.contains("... 392 more lines are not shown"),
            "{shown}"
        );
        assert!(shown.ends_with("sensitive files still ask\n"), "{shown}");
    }

    #[test]
    fn diff_is_coloured_only_if_requested() {
        let request = hostile("x");
        let [plain, coloured] =
            [false, true].map(|coloured| prompt(&question(request.clone()), coloured));
        assert!(!plain.contains('\u{1b}'));
        assert!(coloured.contains("\u{1b}[32m+x\u{1b}[0m\n"), "{coloured}");
    }

    /// A keyboard without a terminal: what is typed waits until it is read or dropped.
    #[derive(Clone, Default)]
    struct Keys(Arc<Typed>);

    /// What was typed, and how many questions were shown.
    type Typed = (Lock<(Vec<u8>, usize)>, std::sync::Condvar);

    impl Keys {
        fn press(&self, keys: &str) {
            self.0.0.lock().unwrap().0.extend(keys.as_bytes());
            self.0.1.notify_all();
        }

        fn drop_typed(&self) {
            let mut state = self.0.0.lock().unwrap();
            state.0.clear();
            state.1 += 1;
            self.0.1.notify_all();
        }

        /// Returns once `count` questions were shown.
        async fn shown(&self, count: usize) {
            let keyboard = self.clone();
            let wait = move || {
                let state = keyboard.0.0.lock().unwrap();
                let shown = keyboard.0.1.wait_while(state, |(_, shown)| *shown < count);
                drop(shown.unwrap());
            };
            tokio::task::spawn_blocking(wait).await.unwrap();
        }
    }

    impl io::Read for Keys {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let state = self.0.0.lock().unwrap();
            let mut state = self
                .0
                .1
                .wait_while(state, |(keys, _)| keys.is_empty())
                .unwrap();
            let end = state.0.iter().position(|key| *key == b'\n').unwrap() + 1;
            let line: Vec<u8> = state.0.drain(..end).collect();
            into[..end].copy_from_slice(&line);
            Ok(end)
        }
    }

    fn with_keyboard(calm: Duration) -> (Terminal, Keys, Screen) {
        let (keys, screen) = (Keys::default(), Screen::default());
        let typed = keys.clone();
        let keyboard = Keyboard {
            drop_typed: Box::new(move || typed.drop_typed()),
            calm,
        };
        let input = BufReader::new(keys.clone());
        let terminal = Terminal::with(input, screen.clone(), false, Some(keyboard));
        (terminal, keys, screen)
    }

    #[tokio::test]
    async fn input_before_a_question_is_ignored() {
        let (terminal, keyboard, _) = with_keyboard(Duration::ZERO);
        let question = question(asked());
        keyboard.press("1\n1\n");
        let answer = async {
            keyboard.shown(1).await;
            keyboard.press("\n");
        };
        let (decided, ()) = tokio::join!(terminal.decide(&question), answer);
        assert_eq!(decided, Answer::DENY);
        let answer = async {
            keyboard.shown(2).await;
            keyboard.press("1\n1\n");
        };
        let (decided, ()) = tokio::join!(terminal.decide(&question), answer);
        assert_eq!(decided, allow(1, Lifetime::Once));
    }

    #[tokio::test]
    async fn line_too_soon_after_its_question_must_be_entered_again() {
        let (terminal, keyboard, screen) = with_keyboard(Duration::from_secs(3600));
        let question = question(asked());
        let said_early = async {
            keyboard.shown(1).await;
            keyboard.press("1\n1\n");
            let both = |shown: &Vec<u8>| String::from_utf8_lossy(shown).matches(EARLY).count() == 2;
            screen.0.subscribe().wait_for(both).await.unwrap();
        };
        tokio::select! {
            answer = terminal.decide(&question) => panic!("{answer:?}"),
            () = said_early => {}
        }
    }

    #[tokio::test]
    async fn withdrawn_question_is_reported_and_the_next_is_asked() {
        let (terminal, keyboard, screen) = with_keyboard(Duration::ZERO);
        let question = question(asked());
        for round in 1..=2 {
            let mut withdrawn = terminal.decide(&question);
            tokio::select! {
                answer = &mut withdrawn => panic!("{answer:?}"),
                () = keyboard.shown(round) => {}
            }
        }
        let answer = async {
            keyboard.shown(3).await;
            keyboard.press("1\n1\n");
        };
        let (decided, ()) = tokio::join!(terminal.decide(&question), answer);
        assert_eq!(decided, allow(1, Lifetime::Once));
        let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
        let (first, rest) = shown.split_once(WITHDRAWN).unwrap();
        assert_eq!(first.matches("-- permission").count(), 1);
        assert_eq!(rest.matches("-- permission").count(), 2);
        assert_eq!(rest.matches(WITHDRAWN).count(), 1);
    }

    /// Input that reports each time that it is read, and blocks until it gets a line.
    struct Pipe {
        reads: Arc<watch::Sender<usize>>,
        lines: mpsc::Receiver<&'static str>,
    }

    impl io::Read for Pipe {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.reads.send_modify(|reads| *reads += 1);
            let mut line = self.lines.recv().unwrap_or_default().as_bytes();
            io::Read::read(&mut line, into)
        }
    }

    #[tokio::test]
    async fn piped_answer_to_a_withdrawn_question_does_not_answer_the_next() {
        let reads = Arc::new(watch::Sender::new(0));
        let (line_tx, lines) = mpsc::channel();
        let pipe = Pipe {
            reads: Arc::clone(&reads),
            lines,
        };
        let terminal = Terminal::new(BufReader::new(pipe), Screen::default(), false);
        let question = question(asked());
        let mut reads = reads.subscribe();
        let mut withdrawn = terminal.decide(&question);
        tokio::select! {
            answer = &mut withdrawn => panic!("{answer:?}"),
            read = reads.wait_for(|reads| *reads == 1) => assert!(read.is_ok()),
        }
        drop(withdrawn);
        line_tx.send("yes\n").unwrap();
        line_tx.send("\n").unwrap();
        assert_eq!(terminal.decide(&question).await, Answer::DENY);
        line_tx.send("yes\n").unwrap();
        assert_eq!(terminal.decide(&question).await, allow(1, Lifetime::Once));
    }

    #[test]
    fn deleted_directory_is_shown_with_its_entries() {
        let mut request = hostile("x");
        let change = crate::fixtures::deleted_directory("/r/old", 30, 30);
        request.preview.as_mut().unwrap().changes = vec![change];
        let shown = prompt(&question(request), false);
        let expected = "  delete directory /r/old with everything in it: 30 files, 0 directories, 30 bytes\n    \
            f0 (1 byte)\n";
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("    ... and 10 more\n"), "{shown}");
    }

    #[tokio::test]
    async fn questions_are_asked_one_at_a_time() {
        let screen = Screen::default();
        let terminal = Terminal::new("1\n1\n\n".as_bytes(), screen.clone(), false);
        let question = question(asked());
        let (first, second) = tokio::join!(terminal.decide(&question), terminal.decide(&question));
        let yes = allow(1, Lifetime::Once);
        assert_eq!((first, second), (yes, Answer::DENY));
        let shown = String::from_utf8(screen.0.borrow().clone()).unwrap();
        assert_eq!(shown.matches("-- permission").count(), 2);
    }
}
