//! Entry points of the fuzz targets to private modules.

use crate::edit::{self, Edit, Occurrences};
use crate::text::Text;

/// Text to replace.
#[derive(Clone, Copy, Debug)]
pub struct EditInput<'t> {
    /// The old text.
    pub old: &'t str,
    /// Its replacement.
    pub new: &'t str,
    /// Which occurrences: `*` for all, `=3` for all if there are three, `3` for the third, otherwise the only one.
    pub occurrence: &'t str,
}

/// Applies edits as `edit_file` does.
///
/// # Errors
/// Why no edit was applied.
pub fn apply_edits(text: &str, edits: &[EditInput<'_>], limit: usize) -> Result<String, String> {
    let edits = edits.iter().map(|edit| Edit {
        old: edit.old.to_owned(),
        new: edit.new.to_owned(),
        occurrences: occurrences(edit.occurrence),
    });
    let edits: Vec<Edit> = edits.collect();
    edit::apply(&Text::of(text), &edits, limit, || Ok(()))
        .map(|edited| edited.text)
        .map_err(|error| error.to_string())
}

fn occurrences(text: &str) -> Occurrences {
    let number = |digits: &str| digits.parse().ok();
    let exactly = |digits| number(digits).map(Occurrences::Exactly);
    match text {
        "*" => Occurrences::All,
        text => text
            .strip_prefix('=')
            .map_or_else(|| number(text).map(Occurrences::Nth), exactly)
            .unwrap_or_default(),
    }
}

/// Applies a unified patch as `edit_file` does.
///
/// # Errors
/// Why it was not applied.
pub fn apply_patch(text: &str, patch: &str, limit: usize) -> Result<String, String> {
    edit::apply_patch(&Text::of(text), patch, limit, || Ok(()))
        .map(|edited| edited.text)
        .map_err(|error| error.to_string())
}
