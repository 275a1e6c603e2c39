//! Lines and a sequence of lines in, where the sequence stands, indentation and trailing blanks left out, out.

use std::collections::HashMap;

use super::indent::trimmed;

/// Where the lines of `old`, trimmed, stand one after the other in `lines`, trimmed (Knuth, Morris and Pratt).
pub(super) fn positions(lines: &[&str], old: &[&str]) -> Vec<usize> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut wanted = Vec::with_capacity(old.len());
    for line in old {
        let next = numbers.len();
        wanted.push(*numbers.entry(trimmed(line)).or_insert(next));
    }
    let mut fall_back: Vec<usize> = vec![0];
    let step = |mut matched: usize, number: Option<usize>, fall_back: &[usize]| loop {
        if number.is_some() && wanted.get(matched).copied() == number {
            return matched + 1;
        }
        if matched == 0 {
            return 0;
        }
        matched = fall_back.get(matched - 1).copied().unwrap_or(0);
    };
    let mut matched = 0;
    for number in wanted.iter().skip(1) {
        matched = step(matched, Some(*number), &fall_back);
        fall_back.push(matched);
    }
    let mut matched = 0;
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        matched = step(matched, numbers.get(trimmed(line)).copied(), &fall_back);
        if matched == wanted.len() {
            found.push(index + 1 - matched);
            matched = fall_back.get(matched - 1).copied().unwrap_or(0);
        }
    }
    found
}
