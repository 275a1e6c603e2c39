//! Expands `{a,b}` in globs.

/// Maximum number of globs that one glob expands to.
const MAX_EXPANDED: usize = 64;

/// Expands all brace groups, so that each alternative is a separate glob.
pub(super) fn expand(glob: &str) -> Result<Vec<String>, String> {
    if !glob.contains('{') {
        return Ok(vec![glob.to_owned()]);
    }
    let mut open = vec![glob.to_owned()];
    let mut done = Vec::new();
    while let Some(glob) = open.pop() {
        match first_group(&glob) {
            Some((before, alternatives, after)) => open.extend(
                alternatives
                    .iter()
                    .map(|alternative| format!("{before}{alternative}{after}")),
            ),
            None => done.push(glob),
        }
        if open.len() + done.len() > MAX_EXPANDED {
            return Err(format!("expands to more than {MAX_EXPANDED} globs"));
        }
    }
    Ok(done)
}

/// The text before the first brace group, its alternatives, and the text after it.
fn first_group(glob: &str) -> Option<(&str, Vec<&str>, &str)> {
    let mut start = None;
    let mut cuts = Vec::new();
    let mut depth = 0_usize;
    let mut class = Class::default();
    let mut escaped = false;
    for (at, c) in glob.char_indices() {
        if std::mem::take(&mut escaped) || class.holds(c) {
            continue;
        }
        match c {
            '\\' => escaped = true,
            '{' => {
                depth += 1;
                start = start.or(Some(at));
            }
            ',' if depth == 1 => cuts.push(at),
            '}' if depth == 1 => return split(glob, start?, &cuts, at),
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn split<'g>(
    glob: &'g str,
    start: usize,
    cuts: &[usize],
    end: usize,
) -> Option<(&'g str, Vec<&'g str>, &'g str)> {
    let starts = std::iter::once(start).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(end));
    let alternatives = starts
        .zip(ends)
        .map(|(start, end)| glob.get(start + 1..end))
        .collect::<Option<_>>()?;
    Some((glob.get(..start)?, alternatives, glob.get(end + 1..)?))
}

/// Whether a class such as `[a-z]` contains a multi-byte character, of which globset would match a part.
pub(super) fn has_wide_class(glob: &str) -> bool {
    classes(glob).any(|class| !class.is_ascii())
}

/// Whether a class contains one like `[:alpha:]`, which globset interprets.
pub(super) fn has_named_class(glob: &str) -> bool {
    classes(glob).any(|class| class.contains("[:"))
}

/// The characters in each class, with its closing bracket.
fn classes(glob: &str) -> impl Iterator<Item = &str> {
    let mut rest = glob;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_at_checked(class_start(rest)? + 1)?;
        let mut class = Class { seen: Some(0) };
        let mut ends = after.char_indices();
        let end = ends.find(|(_, c)| class.holds(*c) && class.seen.is_none());
        let (members, left) = after.split_at(end.map_or(after.len(), |(at, _)| at + 1));
        rest = left;
        Some(members)
    })
}

/// Where the first class begins.
fn class_start(glob: &str) -> Option<usize> {
    let mut escaped = false;
    let mut chars = glob.char_indices();
    let start = chars.find(|(_, c)| {
        let begins = *c == '[' && !escaped;
        escaped = *c == '\\' && !escaped;
        begins
    });
    Some(start?.0)
}

/// Whether a character is inside `[...]`, where braces are literal.
#[derive(Default)]
struct Class {
    /// How many characters of the class were seen, `!` not counted.
    seen: Option<usize>,
}

impl Class {
    fn holds(&mut self, c: char) -> bool {
        match (self.seen, c) {
            (None, '[') => self.seen = Some(0),
            (None, _) => return false,
            (Some(0), '!' | '^') => {}
            // A `]` in the first position is a member of the class.
            (Some(1..), ']') => self.seen = None,
            (Some(seen), _) => self.seen = Some(seen + 1),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(glob: &str, expected: &[&str]) {
        let mut expanded = expand(glob).unwrap();
        expanded.sort_unstable();
        assert_eq!(expanded, expected);
    }

    #[test]
    fn braces_expand_to_one_glob_per_alternative() {
        check("a", &["a"]);
        check("{a/**,b}", &["a/**", "b"]);
        check("x{a,b{c,d}}y", &["xay", "xbcy", "xbdy"]);
        check("{a,b}/{c,d}", &["a/c", "a/d", "b/c", "b/d"]);
    }

    #[test]
    fn braces_in_classes_and_escapes_are_literal() {
        check("[{]a,b[}]", &["[{]a,b[}]"]);
        check("[]{]x", &["[]{]x"]);
        check("\\{a,b\\}", &["\\{a,b\\}"]);
        check("{a\\,b,c}", &["a\\,b", "c"]);
    }

    #[test]
    fn expansion_to_more_than_64_globs_is_rejected() {
        let eight = "{a,b,c,d,e,f,g,h}";
        assert_eq!(expand(&eight.repeat(2)).unwrap().len(), 64);
        assert!(expand(&eight.repeat(3)).is_err());
    }
}
