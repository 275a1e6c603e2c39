//! Edits: a result is what a simple implementation gives, and the work is bounded.
//!
//! An input is a number of repetitions, a text, and for each edit the old text, the new text and the occurrences.
#![no_main]

use bailiwick_fs::fuzzing::{EditInput, apply_edits};
use bailiwick_fuzz::parts;
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

/// What edits without carriage returns give whose old text occurs once; `None` if there are others, or two overlap.
fn reference(text: &str, edits: &[EditInput<'_>]) -> Option<String> {
    let mut changes = Vec::new();
    for edit in edits {
        let simple = edit.occurrence.is_empty() && edit.old != edit.new;
        if !simple || edit.old.is_empty() || [text, edit.old, edit.new].concat().contains('\r') {
            return None;
        }
        let occurs = |at: &usize| {
            text.get(*at..)
                .is_some_and(|rest| rest.starts_with(edit.old))
        };
        let found: Vec<usize> = (0..text.len()).filter(occurs).collect();
        let [start] = found[..] else {
            return None;
        };
        changes.push((start, start + edit.old.len(), edit.new));
    }
    changes.sort_unstable();
    let (mut out, mut at) = (String::new(), 0);
    for (start, end, new) in changes {
        out += text.get(at..start)?;
        out += new;
        at = end;
    }
    Some(out + &text[at..])
}

fuzz_target!(|input: &[u8]| {
    let Some(parts) = parts(input) else {
        return;
    };
    let [repeat, text, edits @ ..] = parts.as_slice() else {
        return;
    };
    // Large texts from small inputs: hostile texts are repetitive.
    let repeat = repeat
        .parse()
        .unwrap_or(1)
        .clamp(1, 1 + LIMIT / (1 + text.len()));
    let text = text.repeat(repeat);
    let edits: Vec<EditInput> = edits
        .chunks_exact(3)
        .take(200)
        .filter_map(|edit| match edit {
            [old, new, occurrence] => Some(EditInput {
                old,
                new,
                occurrence,
            }),
            _ => None,
        })
        .collect();
    let edited = apply_edits(&text, &edits, LIMIT);
    if let Ok(edited) = &edited {
        assert!(edited.len() <= LIMIT);
    }
    let longest = edits.iter().map(|edit| edit.new.len()).sum::<usize>() + text.len();
    if text.len() <= 4096
        && longest <= LIMIT
        && let Some(expected) = reference(&text, &edits)
    {
        assert_eq!(edited, Ok(expected));
    }
});
