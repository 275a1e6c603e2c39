//! Finds the lines most similar to a text that does not occur, in linear time.

use similar::{Algorithm, ChangeTag, TextDiff};

use crate::text::Text;

/// Maximum bytes of the text that are searched.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number and width of compared lines.
const MAX_LINES: usize = 200;
const MAX_WIDTH: usize = 200;
/// Maximum number of lines in the excerpt.
const SHOWN_LINES: usize = 12;
/// Less similar text, in percent, is not suggested.
const MIN_SIMILARITY: u8 = 40;
/// Number of classes for counting pairs of adjacent bytes.
const CLASSES: usize = 1024;

/// The most similar lines.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Nearest {
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
    /// In percent.
    pub(crate) similarity: u8,
    /// Lines of the edit with `-`, of the file with `+`.
    pub(crate) excerpt: String,
}

/// The sentence about the nearest text in an error.
pub(super) fn sentence(nearest: Option<&Nearest>) -> String {
    let Some(nearest) = nearest else {
        return "; no similar text was found, read the file again".to_owned();
    };
    let Nearest {
        first_line,
        last_line,
        similarity,
        excerpt,
    } = nearest;
    format!(
        "; lines {first_line} to {last_line} are {similarity} % similar (`-` requested, `+` in the file):\n{excerpt}"
    )
}

/// Finds the lines of `text` most similar to `old`.
pub(super) fn find(text: &Text<'_>, old: &str) -> Option<Nearest> {
    let old: Vec<&str> = old.lines().take(MAX_LINES).map(cut).collect();
    let known = text.lines().iter();
    let near = known.take_while(|line| line.end <= MAX_BYTES);
    let lines: Vec<&str> = near.map(|line| cut(text.content(*line))).collect();
    // The longest line selects candidates; then all lines are compared.
    let (anchor, _) = old
        .iter()
        .enumerate()
        .max_by_key(|(_, line)| line.trim().len())?;
    let mut profile = Profile::of(&[old.get(anchor)?]);
    let similarities = lines.iter().map(|line| profile.similarity(line));
    let mut best: Vec<(usize, usize)> = similarities
        .enumerate()
        .map(|(at, similarity)| (similarity, at))
        .collect();
    best.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut whole = Profile::of(&old);
    let window = |at: usize| {
        let first = at.saturating_sub(anchor);
        let last = (first + old.len()).min(lines.len());
        (first, lines.get(first..last).unwrap_or_default())
    };
    let candidates = best.iter().take(8).map(|(_, at)| window(*at));
    let scored = candidates.map(|(first, actual)| (whole.similarity_to(actual), first, actual));
    let (similarity, first, actual) =
        scored.max_by_key(|(similarity, first, _)| (*similarity, usize::MAX - first))?;
    let similarity = u8::try_from(similarity / 10).unwrap_or(100);
    (similarity >= MIN_SIMILARITY).then(|| Nearest {
        first_line: first + 1,
        last_line: first + actual.len(),
        similarity,
        excerpt: excerpt(&old, actual),
    })
}

/// The first [`MAX_WIDTH`] bytes of `line`.
fn cut(line: &str) -> &str {
    let end = (0..=MAX_WIDTH.min(line.len()))
        .rev()
        .find(|at| line.is_char_boundary(*at));
    line.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn excerpt(old: &[&str], actual: &[&str]) -> String {
    let shown = |lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().take(SHOWN_LINES);
        lines
            .map(|line| bailiwick::text::escape(line).into_owned())
            .collect()
    };
    let (old, actual) = (shown(old), shown(actual));
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    let actual: Vec<&str> = actual.iter().map(String::as_str).collect();
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .diff_slices(&old, &actual);
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

/// Counts of adjacent byte pairs.
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

    /// Dice similarity to `lines`, in thousandths.
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

/// The classes of the pairs in `line` without blanks at its ends.
fn classes(line: &str) -> impl Iterator<Item = usize> {
    let bytes = line.trim().as_bytes();
    let pairs = bytes.windows(2).filter_map(|pair| match pair {
        [a, b] => Some(usize::from(*a) * 31 + usize::from(*b)),
        _ => None,
    });
    let single = (bytes.len() == 1).then(|| bytes.iter().map(|b| usize::from(*b)).sum());
    pairs.chain(single).map(|pair| pair % CLASSES)
}
