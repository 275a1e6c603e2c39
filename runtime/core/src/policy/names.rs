//! Matches deny globs without a regular expression, if they have plain names and at most one wildcard.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::path::beneath;

/// The globs of a list that are matched by comparing names, and a filter for all other globs.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// `a/b`: the names that must follow the first name of a path, keyed by that name.
    anchored: HashMap<Box<str>, Vec<Box<str>>, RandomState>,
    /// Globs about paths with a name anywhere, or at their beginning if a wildcard follows.
    floating: HashMap<Box<str>, Floating, RandomState>,
    /// `**/a*b`
    wildcards: Vec<Wildcard>,
    /// Whether one of the other globs does not begin with a plain name.
    unbound: bool,
}

/// What globs say about paths with a name.
#[derive(Debug, Default)]
struct Floating {
    /// `**/a/b`: the names that must follow it.
    follows: Vec<Box<str>>,
    /// `**/a/b/**/c`, `**/a/b*`
    wildcards: Vec<Follow>,
    /// `**/a/*` or `a/*`: one of the other globs may cover the path.
    is_unclear: bool,
}

impl Floating {
    /// Whether a glob covers the names `after` its first name.
    fn covers(&self, after: &str) -> bool {
        covers(&self.follows, after) || self.wildcards.iter().any(|it| it.covers(after))
    }
}

/// What must follow a name.
#[derive(Debug)]
struct Follow {
    /// The names right after it.
    names: Box<str>,
    then: Then,
}

/// What must follow plain names.
#[derive(Debug)]
enum Then {
    /// `**/a/b`: these names, at any depth.
    AtAnyDepth(Box<str>),
    /// `a*b`: one name.
    Wildcard(Wildcard),
}

impl Follow {
    /// Parses the names of a glob, without the first one.
    fn parse(first: &str, names: &str) -> Option<Self> {
        let (plain, then) = match names.split_once("/**/") {
            Some((plain, tail)) if is_plain(tail) => (plain, Then::AtAnyDepth(tail.into())),
            _ => {
                let (plain, last) = names.rsplit_once('/')?;
                (plain, Then::Wildcard(Wildcard::parse(last)?))
            }
        };
        let after = beneath(plain, first).filter(|_| is_plain(plain))?;
        Some(Self {
            names: after.into(),
            then,
        })
    }

    fn covers(&self, after: &str) -> bool {
        let rest = if self.names.is_empty() {
            Some(after)
        } else {
            beneath(after, &self.names)
        };
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return false;
        };
        match &self.then {
            Then::Wildcard(name) => steps(rest).next().is_some_and(|(it, _)| name.matches(it)),
            Then::AtAnyDepth(tail) => {
                let deeper = steps(rest).map(|(_, after)| after);
                let mut places = std::iter::once(rest).chain(deeper);
                places.any(|place| beneath(place, tail).is_some())
            }
        }
    }
}

/// A name with one `*`.
#[derive(Debug)]
struct Wildcard {
    begin: Box<str>,
    end: Box<str>,
}

impl Wildcard {
    fn parse(name: &str) -> Option<Self> {
        let (begin, end) = name.split_once('*')?;
        (is_plain(begin) && is_plain(end) && begin.len() + end.len() > 0).then(|| Self {
            begin: begin.into(),
            end: end.into(),
        })
    }

    /// Compares byte by byte, since nearly all names differ in the first byte that is compared, and calling `memcmp` takes
    /// longer.
    fn matches(&self, name: &str) -> bool {
        let same = |(one, other): (u8, u8)| one == other;
        name.len() >= self.begin.len() + self.end.len()
            && name.bytes().rev().zip(self.end.bytes().rev()).all(same)
            && name.bytes().zip(self.begin.bytes()).all(same)
    }
}

/// Result of comparing the names of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameMatch {
    Covered,
    Clear,
    /// The other globs must be matched.
    Unclear,
}

impl Names {
    /// Adds a glob, which also covers everything beneath. Returns false if it cannot be matched by names.
    pub(super) fn take(&mut self, glob: &str) -> bool {
        let floating = glob.strip_prefix("**/");
        let rest = floating.unwrap_or(glob);
        let (name, after) = rest.split_once('/').unwrap_or((rest, ""));
        if is_plain(rest) {
            let follows = match floating {
                Some(_) => &mut self.floating.entry(name.into()).or_default().follows,
                None => self.anchored.entry(name.into()).or_default(),
            };
            follows.push(after.into());
            return true;
        }
        if is_plain(name) {
            let follow = floating.and_then(|_| Follow::parse(name, rest));
            let floating = self.floating.entry(name.into()).or_default();
            floating.is_unclear |= follow.is_none();
            let taken = follow.is_some();
            floating.wildcards.extend(follow);
            return taken;
        }
        if floating.is_some()
            && !rest.contains('/')
            && let Some(wildcard) = Wildcard::parse(name)
        {
            self.wildcards.push(wildcard);
            return true;
        }
        self.unbound = true;
        false
    }

    /// Whether an entry of that name may be treated differently from others in its directory, because of its name alone.
    pub(super) fn mentions(&self, name: &str) -> bool {
        self.floating.contains_key(name) || self.has_wildcard(name)
    }

    fn has_wildcard(&self, name: &str) -> bool {
        self.wildcards.iter().any(|it| it.matches(name))
    }

    /// Adds the names of entries in `dir` that globs from the root, or with several names, may treat differently from
    /// others. Returns false if the other globs must be matched for each entry.
    pub(super) fn names_in(&self, dir: &str, special: &mut Vec<String>) -> bool {
        let mut add = |follows: &[Box<str>], after: &str| {
            for stem in follows {
                let rest = if after.is_empty() {
                    Some(&**stem)
                } else {
                    beneath(stem, after)
                };
                let name = rest.and_then(|rest| rest.split('/').next());
                special.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
            }
        };
        let mut steps = steps(dir).peekable();
        if let Some((name, after)) = steps.peek()
            && let Some(follows) = self.anchored.get(*name)
        {
            add(follows, after);
        }
        for (name, after) in steps {
            if let Some(floating) = self.floating.get(name) {
                if floating.is_unclear || !floating.wildcards.is_empty() {
                    return false;
                }
                add(&floating.follows, after);
            }
        }
        if dir.is_empty() {
            special.extend(self.anchored.keys().map(|name| name.to_string()));
        }
        !self.unbound
    }

    pub(super) fn check(&self, path: &str) -> NameMatch {
        let mut steps = steps(path).peekable();
        if let Some((name, after)) = steps.peek()
            && let Some(follows) = self.anchored.get(*name)
            && covers(follows, after)
        {
            return NameMatch::Covered;
        }
        let mut unclear = self.unbound;
        for (name, after) in steps {
            if let Some(floating) = self.floating.get(name) {
                if floating.covers(after) {
                    return NameMatch::Covered;
                }
                unclear |= floating.is_unclear;
            }
            if self.has_wildcard(name) {
                return NameMatch::Covered;
            }
        }
        if unclear {
            NameMatch::Unclear
        } else {
            NameMatch::Clear
        }
    }
}

/// Whether one of the lists of names stands at the beginning of the names `after`.
fn covers(follows: &[Box<str>], after: &str) -> bool {
    let mut follows = follows.iter();
    follows.any(|stem| stem.is_empty() || beneath(after, stem).is_some())
}

/// Each name of a path, with the names after it.
fn steps(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = Some(path).filter(|path| !path.is_empty());
    std::iter::from_fn(move || {
        let names = rest.take()?;
        let Some((name, after)) = names.split_once('/') else {
            return Some((names, ""));
        };
        rest = Some(after);
        Some((name, after))
    })
}

/// Whether a glob is a path without a wildcard.
pub(super) fn is_plain(text: &str) -> bool {
    !text.contains(['*', '?', '[', ']', '{', '}', '\\'])
}
