//! Suggests similar names for a path that does not exist.

use bailiwick::tool::Interrupt;
use bailiwick::{CallError, Code, VirtualPath};
use similar::TextDiff;

use crate::read_view::ReadView;
use crate::walk::{self, WalkControl};

/// Maximum number of names to compare.
const MAX_COMPARED: usize = 2000;
/// Maximum number of suggestions.
const MAX_SUGGESTED: usize = 3;
/// Minimum similarity of a suggestion.
const MIN_SIMILARITY: f32 = 0.6;

/// Adds similar names in the same directory to `error`, if they may be shown.
fn with_suggestions(view: &dyn ReadView, path: &VirtualPath, error: CallError) -> CallError {
    let near = nearest(view, path);
    if near.is_empty() {
        return error;
    }
    let listed: Vec<String> = near
        .iter()
        .map(|path| format!("`{}`", bailiwick::text::escape(path)))
        .collect();
    let message = format!("{}; did you mean {}?", error.message(), listed.join(" or "));
    CallError::new(error.code(), message).with("did_you_mean", near)
}

/// The error for a missing entry, with similar names.
pub(crate) fn not_found(view: &dyn ReadView, path: &VirtualPath) -> CallError {
    with_suggestions(view, path, CallError::not_found(path))
}

/// Like [`with_suggestions`] for a [`Interrupt`]; only `NOT_FOUND` gets suggestions.
pub(crate) fn on_interrupt(
    view: &dyn ReadView,
    path: &VirtualPath,
    interrupt: Interrupt,
) -> Interrupt {
    match interrupt {
        Interrupt::Failed(error) if error.code() == Code::NotFound => {
            with_suggestions(view, path, error).into()
        }
        interrupt => interrupt,
    }
}

fn nearest(view: &dyn ReadView, path: &VirtualPath) -> Vec<String> {
    let (Some(above), Some(wanted)) = (path.parent(), path.name()) else {
        return Vec::new();
    };
    if !view.shows(&above) {
        return Vec::new();
    }
    let Ok((dir, at)) = walk::start(view, &above) else {
        return Vec::new();
    };
    let mut near: Vec<(f32, String)> = Vec::new();
    let mut compared = 0;
    let walked = walk::walk(view, dir, &at, None, &mut |found| {
        compared += 1;
        if compared > MAX_COMPARED {
            return Ok(WalkControl::Stop);
        }
        // A dangling link has the requested name itself.
        let name = found.name().filter(|name| *name != wanted);
        let ratio = name.map_or(0.0, |name| similarity(wanted, name));
        if ratio >= MIN_SIMILARITY {
            near.push((ratio, found.path().to_string()));
        }
        Ok(WalkControl::Skip)
    });
    if walked.is_err() {
        return Vec::new();
    }
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    near.into_iter()
        .take(MAX_SUGGESTED)
        .map(|(_, path)| path)
        .collect()
}

fn similarity(wanted: &str, name: &str) -> f32 {
    // Much longer or shorter names cannot be similar; comparing takes quadratic time.
    if wanted.len().abs_diff(name.len()) > wanted.len().min(16) {
        return 0.0;
    }
    TextDiff::from_chars(wanted.to_lowercase(), name.to_lowercase()).ratio()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, path};

    #[test]
    fn dangling_link_is_not_suggested_for_itself() {
        let world = World::new(&["link root/here nowhere", "file root/there x"]);
        assert_eq!(nearest(&world.view(), &path("/r/here")), ["/r/there"]);
        assert_eq!(
            nearest(&world.view(), &path("/r/her")),
            ["/r/here", "/r/there"]
        );
    }

    #[test]
    fn similar_names_are_suggested_except_hidden_ones() {
        let world = World::new(&[
            "file root/main.rs x",
            "file root/mein.rs.secret x",
            "file root/other x",
            "dir root/secrets",
        ]);
        let suggest = |requested: &str| nearest(&world.view(), &path(requested));
        assert_eq!(suggest("/r/Mian.rs"), ["/r/main.rs"]);
        assert_eq!(suggest("/r/secret"), Vec::<String>::new());
        assert_eq!(suggest("/r/others"), ["/r/other"]);
        let error = not_found(&world.view(), &path("/r/others"));
        assert!(error.message().ends_with("did you mean `/r/other`?"));
        assert_eq!(
            error.details()["did_you_mean"],
            serde_json::json!(["/r/other"])
        );
    }
}
