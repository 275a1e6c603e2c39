//! Patches: the unified diff of two texts turns the first into the second, and any patch is applied or rejected with
//! bounded work.
//!
//! An input is a number of repetitions of the first text, two texts and a patch.
#![no_main]

use bailiwick_fs::fuzzing::apply_patch;
use bailiwick_fuzz::parts_of;
use libfuzzer_sys::fuzz_target;
use similar::TextDiff;

const LIMIT: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some([repeat, old, new, patch]) = parts_of(input) else {
        return;
    };
    let repeat = repeat
        .parse()
        .unwrap_or(1)
        .clamp(1, 1 + LIMIT / (1 + old.len()));
    if let Ok(patched) = apply_patch(&old.repeat(repeat), patch, LIMIT) {
        assert!(patched.len() <= LIMIT);
    }
    // A diff counts lines, and this one knows only `\n`.
    if old.contains(['\r', '\0', '\u{feff}'])
        || new.contains(['\r', '\0', '\u{feff}'])
        || old == new
        || old.is_empty()
    {
        return;
    }
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    let patch = unified.context_radius(3).header("a", "b").to_string();
    match apply_patch(old, &patch, LIMIT) {
        Ok(patched) => assert_eq!(patched, new, "{patch}"),
        Err(error) => panic!("{error}: {patch}"),
    }
});
