//! Index of trimmed lines, for searches that ignore indentation and trailing blanks.

use std::collections::HashMap;

use super::indent::trimmed;

/// Index of lines that are equal except for blanks at their ends, shared by all searches in a text.
#[derive(Debug)]
pub(super) struct LineIndex<'t> {
    /// Number of each distinct trimmed line.
    numbers: HashMap<&'t str, usize>,
    /// Number of each line of the text.
    lines: Vec<usize>,
    /// Line indices, grouped by number.
    by_number: Vec<usize>,
    /// Where each group begins, and the end.
    begins: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub(super) fn of(lines: impl Iterator<Item = &'t str>) -> Self {
        let mut numbers = HashMap::new();
        let lines: Vec<usize> = lines
            .map(|line| {
                let next = numbers.len();
                *numbers.entry(trimmed(line)).or_insert(next)
            })
            .collect();
        let mut by_number: Vec<usize> = (0..lines.len()).collect();
        by_number.sort_by_key(|line| lines.get(*line).copied());
        let number_at = |at: &usize| lines.get(*at).copied().unwrap_or_default();
        let begins = (0..=numbers.len())
            .map(|number| by_number.partition_point(|line| number_at(line) < number))
            .collect();
        Self {
            numbers,
            lines,
            by_number,
            begins,
        }
    }

    /// All positions where the trimmed lines of `old` occur consecutively, in order. `spend` is called with the number
    /// of lines to compare.
    ///
    /// # Errors
    /// Errors of `spend`.
    pub(super) fn positions<E>(
        &self,
        old: &[&str],
        mut spend: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Vec<usize>, E> {
        spend(old.len())?;
        let wanted: Option<Vec<usize>> = old
            .iter()
            .map(|line| self.numbers.get(trimmed(line)).copied())
            .collect();
        let Some(wanted) = wanted else {
            return Ok(Vec::new());
        };
        // Only positions of the rarest line are candidates.
        let rarest = wanted
            .iter()
            .enumerate()
            .min_by_key(|(_, number)| self.with_number(**number).len());
        let Some((offset, rarest)) = rarest else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for line in self.with_number(*rarest) {
            let candidate = line
                .checked_sub(offset)
                .and_then(|first| Some((first, self.lines.get(first..first + wanted.len())?)));
            let Some((first, candidate)) = candidate else {
                spend(1)?;
                continue;
            };
            let same = candidate
                .iter()
                .zip(&wanted)
                .take_while(|(a, b)| a == b)
                .count();
            spend(same + 1)?;
            if same == wanted.len() {
                found.push(first);
            }
        }
        Ok(found)
    }

    fn with_number(&self, number: usize) -> &[usize] {
        let begin = self.begins.get(number).copied().unwrap_or_default();
        let end = self.begins.get(number + 1).copied().unwrap_or_default();
        self.by_number.get(begin..end).unwrap_or_default()
    }
}
