//! The needs of a call in, wider and wider patterns for a person to choose from out.

use crate::scope::{Detail, Resource, Scope, ScopePattern, Verb};

/// Returns at most five rungs: exactly the needs, their folders, the tops of their trees, their resources, their verbs.
///
/// Each rung covers every need; none reaches above `ceiling`. A sensitive call has no choice but the first.
/// The first rung is there even where the ceiling does not reach: whether it may be granted is the judge's word.
pub(crate) fn ladder(
    needs: &[Scope],
    ceiling: &[ScopePattern],
    sensitive: bool,
) -> Vec<Vec<ScopePattern>> {
    let exact = rung(needs, &ScopePattern::of);
    let mut rungs = vec![exact];
    if sensitive {
        return rungs;
    }
    for widen in [folder, tree, resource, verb] {
        let wider = rung(needs, &widen);
        let allowed = wider
            .iter()
            .all(|pattern| ceiling.iter().any(|top| top.covers_pattern(pattern)));
        if !allowed {
            break;
        }
        if rungs.last() != Some(&wider) {
            rungs.push(wider);
        }
    }
    rungs
}

/// What `patterns` cover beside `needs`, in words for people. Paths stand in it as they are.
pub(crate) fn covers(needs: &[Scope], patterns: &[ScopePattern]) -> String {
    let wider = patterns
        .iter()
        .filter(|pattern| !needs.iter().any(|need| ScopePattern::of(need) == **pattern));
    let mut texts: Vec<String> = wider.map(meaning).collect();
    texts.dedup();
    if texts.is_empty() {
        return "exactly what is asked".to_owned();
    }
    format!("{}; protected names stay closed", texts.join(", and "))
}

/// What a pattern allows, in words for people.
pub(crate) fn meaning(pattern: &ScopePattern) -> String {
    let act = match pattern.verb() {
        Some(Verb::Read) => "read",
        // The verb covers removing, and a person may not think of that.
        Some(Verb::Write) => "change or remove",
        Some(Verb::Execute) => "run",
        None => "do",
    };
    let text = pattern.to_string();
    let detail = text.splitn(3, ':').nth(2);
    match (pattern.resource(), detail) {
        (Some(Resource::File), Some(path)) => {
            format!("{act} everything beneath {path}, now and later")
        }
        (Some(Resource::File), None) => format!("{act} every file that may be granted"),
        (Some(resource), Some(detail)) => {
            format!("{act} all of {} {detail}, now and later", resource.as_str())
        }
        (Some(resource), None) => format!("{act} all of {}", resource.as_str()),
        (None, _) => format!("{act} everything that may be granted"),
    }
}

/// One pattern a need, without those that another of them covers.
fn rung(needs: &[Scope], widen: &dyn Fn(&Scope) -> ScopePattern) -> Vec<ScopePattern> {
    let mut patterns: Vec<ScopePattern> = Vec::with_capacity(needs.len());
    for pattern in needs.iter().map(widen) {
        if patterns.iter().any(|other| other.covers_pattern(&pattern)) {
            continue;
        }
        patterns.retain(|other| !pattern.covers_pattern(other));
        patterns.push(pattern);
    }
    patterns
}

/// The folder that holds the need, or the segments before its last.
fn folder(need: &Scope) -> ScopePattern {
    match need.detail() {
        Detail::Path(path) => match path.parent() {
            Some(parent) if !parent.is_top() => ScopePattern::of(&Scope::file(need.verb(), parent)),
            Some(_) | None => ScopePattern::of(need),
        },
        Detail::Segments(segments) => match segments.rsplit_once(':') {
            Some((stem, _)) => parsed(need, &format!(":{}:{stem}", need.resource().as_str())),
            None => ScopePattern::of(need),
        },
        Detail::None => ScopePattern::of(need),
    }
}

/// The first name of the need's path, or its first segment: a root as a rule, or a server.
fn tree(need: &Scope) -> ScopePattern {
    let resource = need.resource().as_str();
    match need.detail() {
        Detail::Path(path) if path.depth() > 1 => match path.names().next() {
            Some(first) => parsed(need, &format!(":{resource}:/{first}")),
            None => ScopePattern::of(need),
        },
        Detail::Segments(segments) => match segments.split_once(':') {
            Some((first, _)) => parsed(need, &format!(":{resource}:{first}")),
            None => ScopePattern::of(need),
        },
        Detail::Path(_) | Detail::None => ScopePattern::of(need),
    }
}

fn resource(need: &Scope) -> ScopePattern {
    parsed(need, &format!(":{}", need.resource().as_str()))
}

fn verb(need: &Scope) -> ScopePattern {
    parsed(need, "")
}

/// The pattern of the need's verb and `rest`; the need itself, which is narrower, should that be no pattern.
fn parsed(need: &Scope, rest: &str) -> ScopePattern {
    format!("{}{rest}", need.verb())
        .parse()
        .unwrap_or_else(|_| ScopePattern::of(need))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(needs: &[&str], ceiling: &[&str], expected: &[&[&str]]) {
        let needs: Vec<Scope> = needs.iter().map(|text| text.parse().unwrap()).collect();
        let ceiling: Vec<ScopePattern> = ceiling.iter().map(|text| text.parse().unwrap()).collect();
        let rungs: Vec<Vec<String>> = ladder(&needs, &ceiling, false)
            .iter()
            .map(|rung| rung.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(rungs, expected);
    }

    #[test]
    fn what_a_rung_covers_is_said_in_words() {
        let needs: Vec<Scope> = ["write:file:/r/a/x", "execute:mcp:hub:push"]
            .iter()
            .map(|need| need.parse().unwrap())
            .collect();
        for (rung, expected) in [
            (
                &["write:file:/r/a/x", "execute:mcp:hub:push"][..],
                "exactly what is asked",
            ),
            (
                &["write:file:/r/a", "execute:mcp:hub"],
                "change or remove everything beneath /r/a, now and later, and run all of mcp hub, now and later; protected names stay closed",
            ),
            (
                &["write:file", "execute"],
                "change or remove every file that may be granted, and run everything that may be granted; protected names stay closed",
            ),
        ] {
            let rung: Vec<ScopePattern> = rung.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(covers(&needs, &rung), expected);
        }
    }

    #[test]
    fn a_file_widens_to_its_folder_its_root_all_files_and_the_verb() {
        check(
            &["write:file:/repo/src/a/x.rs"],
            &["*"],
            &[
                &["write:file:/repo/src/a/x.rs"],
                &["write:file:/repo/src/a"],
                &["write:file:/repo"],
                &["write:file"],
                &["write"],
            ],
        );
    }

    #[test]
    fn the_ladder_ends_below_the_ceiling() {
        check(
            &["write:file:/repo/src/a/x.rs"],
            &["write:file:/repo/src"],
            &[
                &["write:file:/repo/src/a/x.rs"],
                &["write:file:/repo/src/a"],
            ],
        );
        check(&["write:file:/r/x"], &[], &[&["write:file:/r/x"]]);
    }

    #[test]
    fn every_rung_covers_every_need_and_repeats_none() {
        check(
            &["read:file:/r/a/x", "write:file:/r/b/y", "write:file:/r/b/z"],
            &["*"],
            &[
                &["read:file:/r/a/x", "write:file:/r/b/y", "write:file:/r/b/z"],
                &["read:file:/r/a", "write:file:/r/b"],
                &["read:file:/r", "write:file:/r"],
                &["read:file", "write:file"],
                &["read", "write"],
            ],
        );
    }

    #[test]
    fn segments_widen_from_the_right() {
        check(
            &["execute:mcp:github:issues:create"],
            &["execute"],
            &[
                &["execute:mcp:github:issues:create"],
                &["execute:mcp:github:issues"],
                &["execute:mcp:github"],
                &["execute:mcp"],
                &["execute"],
            ],
        );
        check(&["read:clock"], &["*"], &[&["read:clock"], &["read"]]);
    }

    #[test]
    fn a_sensitive_call_has_one_rung_and_an_ordinary_one_more() {
        let need: Scope = "write:file:/r/.mcp.json".parse().unwrap();
        let needs = std::slice::from_ref(&need);
        let exact = vec![ScopePattern::of(&need)];
        assert_eq!(
            ladder(needs, &[ScopePattern::ANY], true),
            std::slice::from_ref(&exact)
        );
        assert_eq!(
            ladder(needs, &[ScopePattern::ANY], false).first(),
            Some(&exact)
        );
        assert!(ladder(needs, &[ScopePattern::ANY], false).len() > 1);
    }
}
