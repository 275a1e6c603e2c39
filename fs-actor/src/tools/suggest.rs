//! A path at which there is nothing in, the same refusal with the nearest names beside it out.

use bailiwick::{CallError, Code, Interrupt, VirtualPath};
use similar::TextDiff;

use crate::lens::Lens;
use crate::walk::{self, Onward};

/// How many names beside the missing one are compared.
const MAX_COMPARED: usize = 2000;
/// How many are suggested.
const MAX_SUGGESTED: usize = 3;
/// How alike a name must be.
const ALIKE: f32 = 0.6;

/// Adds to `error` the names in the same directory that `path` may have meant, of those that may be shown.
pub(crate) fn instead(lens: &dyn Lens, path: &VirtualPath, error: CallError) -> CallError {
    let near = nearest(lens, path);
    if near.is_empty() {
        return error;
    }
    let listed: Vec<String> = near
        .iter()
        .map(|path| format!("`{}`", bailiwick::escape(path)))
        .collect();
    let message = format!("{}; did you mean {}?", error.message(), listed.join(" or "));
    CallError::new(error.code(), message).with("did_you_mean", near)
}

/// The same for a tool that stopped: only "there is nothing" becomes a suggestion.
pub(crate) fn halted(lens: &dyn Lens, path: &VirtualPath, halt: Interrupt) -> Interrupt {
    match halt {
        Interrupt::Failed(error) if error.code() == Code::NotFound => {
            instead(lens, path, error).into()
        }
        halt => halt,
    }
}

fn nearest(lens: &dyn Lens, path: &VirtualPath) -> Vec<String> {
    let (Some(above), Some(wanted)) = (path.parent(), path.name()) else {
        return Vec::new();
    };
    if !lens.shows(&above) {
        return Vec::new();
    }
    let Ok((dir, at)) = walk::start(lens, &above) else {
        return Vec::new();
    };
    let mut near: Vec<(f32, String)> = Vec::new();
    let mut compared = 0;
    let walked = walk::walk(lens, dir, &at, None, &mut |found| {
        compared += 1;
        if compared > MAX_COMPARED {
            return Ok(Onward::Stop);
        }
        // A link that leads nowhere stands at the path itself.
        let name = found.path.name();
        let name = name.filter(|name| found.raw.is_none() && *name != wanted);
        let likeness = name.map_or(0.0, |name| likeness(wanted, name));
        if likeness >= ALIKE {
            near.push((likeness, found.path.to_string()));
        }
        Ok(Onward::Pass)
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

fn likeness(wanted: &str, name: &str) -> f32 {
    // Far too long or short cannot be alike enough, and comparing is quadratic.
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
    fn a_link_that_leads_nowhere_is_not_offered_in_place_of_itself() {
        let world = World::new(&["link root/here nowhere", "file root/there x"]);
        assert_eq!(nearest(&world.lens(), &path("/r/here")), ["/r/there"]);
        assert_eq!(
            nearest(&world.lens(), &path("/r/her")),
            ["/r/here", "/r/there"]
        );
    }

    #[test]
    fn near_names_are_suggested_and_hidden_ones_are_not() {
        let world = World::new(&[
            "file root/main.rs x",
            "file root/mein.rs.secret x",
            "file root/other x",
            "dir root/secrets",
        ]);
        let suggest = |asked: &str| nearest(&world.lens(), &path(asked));
        assert_eq!(suggest("/r/Mian.rs"), ["/r/main.rs"]);
        assert_eq!(suggest("/r/secret"), Vec::<String>::new());
        assert_eq!(suggest("/r/others"), ["/r/other"]);
        let error = instead(
            &world.lens(),
            &path("/r/others"),
            CallError::not_found(&path("/r/others")),
        );
        assert!(error.message().ends_with("did you mean `/r/other`?"));
        assert_eq!(
            error.details()["did_you_mean"],
            serde_json::json!(["/r/other"])
        );
    }
}
