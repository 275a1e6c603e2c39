//! Matches deny globs by comparing names: plain paths, and globs at any depth (`**/`) with one `*` in the last name or one
//! `**` between names.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::path::beneath;

/// The globs of a list that are matched by comparing names, and a filter for all other globs.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// `a/b`: the names that must follow the first name of a path, keyed by that name.
    anchored: HashMap<Box<str>, Vec<Box<str>>, RandomState>,
    /// Globs about paths with a name anywhere, or at their beginning if a wildcard follows.
    floating: HashMap<Box<str>, Tails, RandomState>,
    /// `**/a*b`
    wildcards: Vec<Wildcard>,
    /// The number of globs like `**/a/**/b`.
    nested: u32,
    /// Whether one of the other globs does not begin with a plain name.
    always_needs_matcher: bool,
}

/// Maximum number of globs like `**/a/**/b` that are matched by names, and bits of a [`Seen`].
const MAX_NESTED: u32 = 64;

/// The globs like `**/a/**/b` whose names before `**` were found in a path. What follows a later occurrence of these names
/// also follows the first one, so the names after `**` are searched for only once.
#[derive(Clone, Copy, Debug, Default)]
struct Seen(u64);

impl Seen {
    /// Adds a number. Returns false if it was added before.
    fn add(&mut self, number: u32) -> bool {
        let bit = 1 << number;
        let is_new = self.0 & bit == 0;
        self.0 |= bit;
        is_new
    }
}

/// What must follow a name for a glob to cover the path.
#[derive(Debug, Default)]
struct Tails {
    /// `**/a/b`: the names that must follow `a`.
    plain: Vec<Box<str>>,
    /// `**/a/b/**/c`, `**/a/b*`
    with_wildcard: Vec<WildcardTail>,
    /// `**/a/*` or `a/*`: one of the other globs may cover the path.
    needs_matcher: bool,
}

impl Tails {
    /// Whether a glob covers the names `after` its first name.
    fn covers(&self, after: &str, seen: &mut Seen) -> bool {
        let mut tails = self.with_wildcard.iter();
        covers(&self.plain, after) || tails.any(|it| it.covers(after, seen))
    }
}

/// Plain names, then a wildcard.
#[derive(Debug)]
struct WildcardTail {
    /// The plain names; may be empty.
    names: Box<str>,
    end: TailEnd,
}

/// What must follow the plain names.
#[derive(Debug)]
enum TailEnd {
    /// `b/**/c`: `c`, at any depth; with the number of the glob.
    AtAnyDepth(Box<str>, u32),
    /// `b/c*`: one name.
    Wildcard(Wildcard),
}

impl WildcardTail {
    /// Parses the names of a glob (`a/b*`, `a/b/**/c`) that begins with the plain name `first`. `number` is that of the next
    /// glob with `**`.
    fn parse(first: &str, names: &str, number: u32) -> Option<Self> {
        let (plain, end) = match names.split_once("/**/") {
            Some((plain, tail)) if is_plain(tail) && number < MAX_NESTED => {
                (plain, TailEnd::AtAnyDepth(tail.into(), number))
            }
            _ => {
                let (plain, last) = names.rsplit_once('/')?;
                (plain, TailEnd::Wildcard(Wildcard::parse(last)?))
            }
        };
        let after = beneath(plain, first).filter(|_| is_plain(plain))?;
        Some(Self {
            names: after.into(),
            end,
        })
    }

    fn covers(&self, after: &str, seen: &mut Seen) -> bool {
        let rest = if self.names.is_empty() {
            Some(after)
        } else {
            beneath(after, &self.names)
        };
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return false;
        };
        match &self.end {
            TailEnd::Wildcard(name) => steps(rest).next().is_some_and(|(it, _)| name.matches(it)),
            TailEnd::AtAnyDepth(tail, number) => {
                if !seen.add(*number) {
                    return false;
                }
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
    NotCovered,
    /// The other globs must be matched.
    Unknown,
}

impl Names {
    /// Adds a glob, which also covers everything beneath. Returns false if it cannot be matched by names.
    pub(super) fn try_add(&mut self, glob: &str) -> bool {
        let floating = glob.strip_prefix("**/");
        let rest = floating.unwrap_or(glob);
        let (name, after) = rest.split_once('/').unwrap_or((rest, ""));
        if is_plain(rest) {
            let follows = match floating {
                Some(_) => &mut self.floating.entry(name.into()).or_default().plain,
                None => self.anchored.entry(name.into()).or_default(),
            };
            follows.push(after.into());
            return true;
        }
        if is_plain(name) {
            let tail = floating.and_then(|_| WildcardTail::parse(name, rest, self.nested));
            let taken = tail.is_some();
            if let Some(TailEnd::AtAnyDepth(..)) = tail.as_ref().map(|tail| &tail.end) {
                self.nested += 1;
            }
            let tails = self.floating.entry(name.into()).or_default();
            tails.needs_matcher |= !taken;
            tails.with_wildcard.extend(tail);
            return taken;
        }
        if floating.is_some()
            && !rest.contains('/')
            && let Some(wildcard) = Wildcard::parse(name)
        {
            self.wildcards.push(wildcard);
            return true;
        }
        self.always_needs_matcher = true;
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
    /// others. Returns false if these names do not suffice, so that each entry must be judged.
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
            if let Some(tails) = self.floating.get(name) {
                if tails.needs_matcher || !tails.with_wildcard.is_empty() {
                    return false;
                }
                add(&tails.plain, after);
            }
        }
        if dir.is_empty() {
            special.extend(self.anchored.keys().map(|name| name.to_string()));
        }
        !self.always_needs_matcher
    }

    pub(super) fn check(&self, path: &str) -> NameMatch {
        let mut steps = steps(path).peekable();
        if let Some((name, after)) = steps.peek()
            && let Some(follows) = self.anchored.get(*name)
            && covers(follows, after)
        {
            return NameMatch::Covered;
        }
        let (mut needs_matcher, mut seen) = (self.always_needs_matcher, Seen::default());
        for (name, after) in steps {
            if let Some(tails) = self.floating.get(name) {
                if tails.covers(after, &mut seen) {
                    return NameMatch::Covered;
                }
                needs_matcher |= tails.needs_matcher;
            }
            if self.has_wildcard(name) {
                return NameMatch::Covered;
            }
        }
        if needs_matcher {
            NameMatch::Unknown
        } else {
            NameMatch::NotCovered
        }
    }
}

/// Whether one of the lists of names stands at the beginning of the names `after`.
fn covers(lists: &[Box<str>], after: &str) -> bool {
    let mut lists = lists.iter();
    lists.any(|stem| stem.is_empty() || beneath(after, stem).is_some())
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
