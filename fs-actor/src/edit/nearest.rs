//! A text and old text that is not in it in, the stretch most like it out, in time linear in both.

use similar::{Algorithm, ChangeTag, TextDiff};

use crate::text::Text;

/// How much of the text is looked at, so that a miss costs little in any file.
const MAX_BYTES: usize = 1 << 20;
/// How many lines of the old text are compared, and how much of each.
const MAX_LINES: usize = 200;
const MAX_WIDTH: usize = 200;
/// How much is shown.
const SHOWN_LINES: usize = 12;
/// Below this likeness, in percent, a hint would mislead.
const MIN_SIMILARITY: u8 = 40;
/// Pairs of neighbouring bytes are counted in this many classes.
const CLASSES: usize = 1024;

/// The stretch of the text most like what was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nearest {
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
    /// In percent of the pairs of neighbouring characters.
    pub(crate) similarity: u8,
    /// `-` as it was asked for, `+` as the file has it.
    pub(crate) excerpt: String,
}

/// What a refusal says of the nearest text.
pub(super) fn sentence(nearest: Option<&Nearest>) -> String {
    let Some(nearest) = nearest else {
        return "; read the file again, nothing in it is like that".to_owned();
    };
    let Nearest {
        first_line,
        last_line,
        similarity,
        excerpt,
    } = nearest;
    format!(
        "; lines {first_line} to {last_line} are {similarity} % like it (`-` asked for, `+` in the file):\n{excerpt}"
    )
}

/// Finds the lines of `text` most like `old`.
pub(super) fn find(text: &Text<'_>, old: &str) -> Option<Nearest> {
    let old: Vec<&str> = old.lines().take(MAX_LINES).map(cut).collect();
    let known = text.lines().iter();
    let near = known.take_while(|line| line.end <= MAX_BYTES);
    let lines: Vec<&str> = near.map(|line| cut(text.content(*line))).collect();
    // The line that says most decides where to look; the whole of it decides how like it is.
    let (anchor, _) = old
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().len())?;
    let mut profile = Profile::of(&[old.get(anchor)?]);
    let likeness = lines.iter().map(|line| profile.similarity(line));
    let mut best: Vec<(usize, usize)> = likeness.enumerate().map(|(at, like)| (like, at)).collect();
    best.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut whole = Profile::of(&old);
    let window = |at: usize| {
        let first = at.saturating_sub(anchor);
        let last = (first + old.len()).min(lines.len());
        (first, lines.get(first..last).unwrap_or_default())
    };
    let candidates = best.iter().take(8).map(|(_, at)| window(*at));
    let scored = candidates.map(|(first, here)| (whole.similarity_to(here), first, here));
    let (similarity, first, here) =
        scored.max_by_key(|(like, first, _)| (*like, usize::MAX - first))?;
    let similarity = u8::try_from(similarity / 10).unwrap_or(100);
    (similarity >= MIN_SIMILARITY).then(|| Nearest {
        first_line: first + 1,
        last_line: first + here.len(),
        similarity,
        excerpt: excerpt(&old, here),
    })
}

/// At most the first [`MAX_WIDTH`] bytes of `line`.
fn cut(line: &str) -> &str {
    let end = (0..=MAX_WIDTH.min(line.len()))
        .rev()
        .find(|at| line.is_char_boundary(*at));
    line.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn excerpt(old: &[&str], here: &[&str]) -> String {
    let shown = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().take(SHOWN_LINES);
        lines
            .map(|line| bailiwick::escape(line).into_owned())
            .collect()
    };
    let (old, here) = (shown(old), shown(here));
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    let here: Vec<&str> = here.iter().map(String::as_str).collect();
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .diff_slices(&old, &here);
    let lines = diff.iter_all_changes().map(|change| {
        let sign = match change.tag() {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
        };
        format!("{sign}{}", change.value())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Counts the pairs of neighbouring bytes in some lines.
struct Profile {
    counts: Vec<u32>,
    total: usize,
    seen: Vec<u32>,
}

impl Profile {
    fn of(lines: &[&str]) -> Self {
        let mut counts = vec![0; CLASSES];
        let mut total = 0;
        for class in lines.iter().flat_map(|line| classes(line)) {
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
            total += 1;
        }
        Self {
            counts,
            total,
            seen: vec![0; CLASSES],
        }
    }

    fn similarity(&mut self, line: &str) -> usize {
        self.similarity_to(&[line])
    }

    /// How much `lines` have in common with this, in thousandths (the measure of Dice).
    fn similarity_to(&mut self, lines: &[&str]) -> usize {
        let (mut common, mut total) = (0, 0);
        for class in lines.iter().flat_map(|line| classes(line)) {
            total += 1;
            if let (Some(seen), Some(count)) = (self.seen.get_mut(class), self.counts.get(class)) {
                common += usize::from(*seen < *count);
                *seen += 1;
            }
        }
        for class in lines.iter().flat_map(|line| classes(line)) {
            if let Some(seen) = self.seen.get_mut(class) {
                *seen = 0;
            }
        }
        (2_000 * common)
            .checked_div(total + self.total)
            .unwrap_or(0)
    }
}

/// The classes of the pairs in `line`, blanks at its ends left out.
fn classes(line: &str) -> impl Iterator<Item = usize> {
    let bytes = line.trim().as_bytes();
    let pairs = bytes.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(usize::from(*a) * 31 + usize::from(*b)),
        _ => None,
    });
    let single = (bytes.len() == 1).then(|| bytes.iter().map(|b| usize::from(*b)).sum());
    pairs.chain(single).map(|pair| pair % CLASSES)
}
