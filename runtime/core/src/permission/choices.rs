//! Choices of scope that a person has at a prompt, each with a sentence that describes the grant.

use serde::{Deserialize, Serialize};

use super::{Lifetime, Request};
use crate::path::VirtualPath;
use crate::scope::{Coverage, Detail, Operation, Reach, Resource, Scope, ScopePattern, Verb};
use crate::tool::{GET_PROMPT, READ_RESOURCE};

/// Maximum number of patterns that an answer can grant beyond the call, and in the sentence of a choice: a person must be
/// able to read what is granted.
pub(super) const MAX_PATTERNS: usize = 20;

/// Breadth of a choice. Each is for the requested operations, and covers everything that the one before it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Breadth {
    /// Exactly the requested paths.
    Asked,
    /// The folders that contain the files; all tools of the server.
    Folder,
    /// The served roots that contain the files.
    Project,
}

/// One choice at a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// Its breadth.
    pub breadth: Breadth,
    /// What it would grant; covers all needs.
    pub patterns: Vec<Coverage>,
    /// Whether some of it is outside the served roots.
    pub outside: bool,
}

impl Choice {
    /// Returns whether a person has to confirm it: it is permanent, allows deleting in a folder, covers a whole project or
    /// server, or outlives the call outside the roots.
    #[must_use]
    pub fn needs_confirmation(&self, lifetime: Lifetime) -> bool {
        let lasts = lifetime.waiting_calls().is_none();
        let asked = self.breadth == Breadth::Asked;
        lifetime == Lifetime::Agent || ((lasts || !asked) && self.is_broad())
    }

    /// Returns whether it can be allowed beyond the call: its sentence names everything that it grants.
    #[must_use]
    pub fn may_last(&self) -> bool {
        self.patterns.len() <= MAX_PATTERNS
    }

    /// Returns whether it has to be confirmed for lifetimes beyond the call.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        let removes = |one: &Coverage| {
            one.reach() == Reach::Beneath
                && one.pattern().verb() != Some(Verb::Read)
                && one
                    .operations()
                    .iter()
                    .any(|operation| matches!(operation, Operation::Delete | Operation::Move))
        };
        let is_server = |one: &Coverage| one.pattern().mcp().is_some_and(|it| !it.contains(':'));
        let is_broad = |one: &Coverage| removes(one) || is_server(one);
        self.outside || self.breadth == Breadth::Project || self.patterns.iter().any(is_broad)
    }

    /// Returns what it would grant, as a sentence for people.
    #[must_use]
    pub fn sentence(&self, roots: &[VirtualPath]) -> String {
        sentence(&self.patterns, roots)
    }

    /// What it allows if it is only for the call, as a sentence for people.
    pub(super) fn sentence_of_call(&self, roots: &[VirtualPath]) -> String {
        joined(&self.patterns, roots, Coverage::sentence_of_call)
    }

    /// Returns what it is about in a few words, such as `this file` or `its folder`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let is_one = self.patterns.len() == 1;
        let mut paths: Vec<_> = self.patterns.iter().map(Coverage::path).collect();
        paths.dedup();
        let is_of_files = paths.iter().all(Option::is_some);
        let is_tree = |one: &Coverage| one.reach() == Reach::Beneath;
        let resource = |one: &Coverage| Some(one.pattern().resource()?.as_str().to_owned());
        let only = self.patterns.first().filter(|_| is_one).and_then(resource);
        match (self.breadth, only.as_deref()) {
            (Breadth::Project, _) => "the whole project",
            (Breadth::Folder, _) if is_of_files && is_one => "its folder",
            (Breadth::Folder, _) if is_of_files => "their folders",
            (Breadth::Folder, Some("mcp")) => match self.part_of_server() {
                None => "everything of this server",
                Some(part) if is_of(part, READ_RESOURCE) => "every resource of this server",
                Some(part) if is_of(part, GET_PROMPT) => "every prompt of this server",
                Some(_) => "everything of this kind",
            },
            (Breadth::Folder, Some("network")) => "every port of this host",
            (Breadth::Folder, _) => "everything of this kind",
            (Breadth::Asked, _) if is_of_files => match (
                paths.len(),
                self.patterns.iter().any(is_tree),
                self.patterns.iter().all(is_tree),
            ) {
                (1, false, _) => "this file",
                (_, false, _) => "these files",
                (1, true, _) => "this folder",
                (_, true, true) => "these folders",
                (_, true, false) => "these files and folders",
            },
            (Breadth::Asked, Some("mcp")) => match self.part_of_server() {
                None => "everything of this server",
                Some(part) if is_of(part, READ_RESOURCE) => "this resource",
                Some(part) if is_of(part, GET_PROMPT) => "this prompt",
                Some(part) if !part.contains(':') => "this tool",
                Some(_) => "exactly this",
            },
            (Breadth::Asked, Some("command")) => "this program",
            (Breadth::Asked, Some("network")) => "this host",
            (Breadth::Asked, _) => "exactly this",
        }
    }

    /// The segments after the server in the first pattern; `None` if it names a whole server.
    fn part_of_server(&self) -> Option<&str> {
        let segments = self.patterns.first()?.pattern().mcp()?;
        segments.split_once(':').map(|(_, part)| part)
    }

    /// Returns the label and the sentence, for lists of choices.
    #[must_use]
    pub fn title(&self, roots: &[VirtualPath]) -> String {
        format!("{}: {}", self.label(), self.sentence(roots))
    }
}

/// Whether the segments after a server are of `method`.
fn is_of(part: &str, method: &str) -> bool {
    let rest = part.strip_prefix(method);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// A choice as pages and chats show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OfferedChoice {
    /// Its breadth.
    pub breadth: Breadth,
    /// What it is about in a few words, such as `this file`.
    pub label: String,
    /// What it would grant, as a sentence. Escape it before it is shown.
    pub covers: String,
    /// The patterns as text.
    pub patterns: Vec<String>,
    /// What an answer sends as its patterns to select this choice.
    pub grants: Vec<Coverage>,
    /// Whether some of it is outside the served roots.
    pub outside: bool,
    /// Whether a person has to confirm it for lifetimes beyond the call.
    pub confirm: bool,
    /// Whether it can be allowed beyond the call, as [`Choice::may_last`] says.
    pub may_last: bool,
}

impl Request {
    /// Returns the choices as they are shown, the narrowest first. Every prompt offers the same.
    #[must_use]
    pub fn offered(&self) -> Vec<OfferedChoice> {
        let offered = |choice: &Choice| OfferedChoice {
            breadth: choice.breadth,
            label: choice.label().to_owned(),
            covers: choice.sentence(&self.roots),
            patterns: choice
                .patterns
                .iter()
                .map(|one| one.pattern().to_string())
                .collect(),
            grants: choice.patterns.clone(),
            outside: choice.outside,
            confirm: choice.is_broad(),
            may_last: choice.may_last(),
        };
        self.choices.iter().map(offered).collect()
    }
}

/// What `patterns` allow, as a sentence for people. Escape it before it is shown.
pub(crate) fn sentence(patterns: &[Coverage], roots: &[VirtualPath]) -> String {
    joined(patterns, roots, Coverage::sentence)
}

fn joined(
    patterns: &[Coverage],
    roots: &[VirtualPath],
    sentence: fn(&Coverage) -> String,
) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(patterns.len());
    for one in patterns {
        let outside = one
            .path()
            .is_some_and(|path| root_of(path, roots).is_none());
        let text = sentence(one)
            + if outside {
                " (outside your project)"
            } else {
                ""
            };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let changes = |one: &Coverage| one.pattern().verb().is_none_or(|verb| verb == Verb::Write);
    let of_files = |one: &Coverage| {
        let resource = one.pattern().resource();
        resource.is_none_or(|resource| *resource == Resource::File)
    };
    let changed = patterns.iter().filter(|one| changes(one) && of_files(one));
    let (beneath, named) = changed.partition::<Vec<_>, _>(|one| one.reach() == Reach::Beneath);
    let kept = match (&*beneath, &*named) {
        ([], _) => "",
        (_, []) => "; sensitive files still ask",
        // A file that the sentence names may be sensitive.
        _ => "; other sensitive files still ask",
    };
    let more = texts.len().saturating_sub(MAX_PATTERNS);
    texts.truncate(MAX_PATTERNS);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ") + kept
}

/// Returns the choices of scope for a question, the narrowest first.
///
/// Each choice covers all needs, and none exceeds `max_grantable`, except the first. The first is always offered, since
/// the verdict decides whether it is grantable. A sensitive call has only the first.
#[doc(hidden)]
pub fn choices(
    needs: &[Scope],
    max_grantable: &[ScopePattern],
    roots: &[VirtualPath],
    sensitive: bool,
) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for breadth in [Breadth::Asked, Breadth::Folder, Breadth::Project] {
        let wide = needs.iter().map(|need| widened(need, breadth, roots));
        let Some(patterns) = wide.collect::<Option<Vec<_>>>() else {
            continue;
        };
        // Needs name each path, since a protected name requires a grant of its own.
        let patterns = if breadth == Breadth::Asked {
            patterns
        } else {
            merged(patterns)
        };
        let granted = |one: &Coverage| {
            max_grantable
                .iter()
                .any(|top| top.covers_pattern(one.pattern()))
        };
        let allowed = breadth == Breadth::Asked || (!sensitive && patterns.iter().all(granted));
        if !allowed || choices.iter().any(|choice| choice.patterns == patterns) {
            continue;
        }
        let outside = patterns.iter().filter_map(Coverage::path);
        choices.push(Choice {
            breadth,
            outside: outside
                .into_iter()
                .any(|path| root_of(path, roots).is_none()),
            patterns,
        });
    }
    choices
}

/// Removes patterns that another one includes.
fn merged(all: Vec<Coverage>) -> Vec<Coverage> {
    let mut kept: Vec<Coverage> = Vec::with_capacity(all.len());
    for one in all {
        if kept.iter().any(|other| other.includes(&one)) {
            continue;
        }
        kept.retain(|other| !one.includes(other));
        kept.push(one);
    }
    kept
}

/// The need widened to that breadth; `None` if it is not offered that wide.
fn widened(need: &Scope, breadth: Breadth, roots: &[VirtualPath]) -> Option<Coverage> {
    let asked = Coverage::of(need);
    match (breadth, need.detail()) {
        (Breadth::Asked, _) => Some(asked),
        (Breadth::Folder, Detail::Path(path)) => {
            let folder = path.parent().filter(|folder| may_be_offered(folder, roots));
            folder.map(|folder| beneath(need, folder))
        }
        (Breadth::Project, Detail::Path(path)) => {
            root_of(path, roots).map(|root| beneath(need, root.clone()))
        }
        (Breadth::Folder | Breadth::Project, Detail::Segments(segments)) => {
            match segments.rsplit_once(':') {
                Some((stem, _)) => {
                    let stem = ScopePattern::of(need).with_segments(stem);
                    Coverage::new(stem, Reach::Beneath, need.operations())
                }
                None => Some(asked),
            }
        }
        (Breadth::Folder | Breadth::Project, Detail::None) => Some(asked),
    }
}

fn beneath(need: &Scope, folder: VirtualPath) -> Coverage {
    Coverage::of(&need.at(folder).beneath())
}

/// The innermost served root that contains `path`.
fn root_of<'r>(path: &VirtualPath, roots: &'r [VirtualPath]) -> Option<&'r VirtualPath> {
    let holds = roots.iter().filter(|root| path.starts_with(root));
    holds.max_by_key(|root| root.depth())
}

/// Whether a folder may be offered as such: a folder inside a root, or a folder outside that is neither a top-level
/// directory nor a home directory. A root is offered as the project, which has to be confirmed.
fn may_be_offered(folder: &VirtualPath, roots: &[VirtualPath]) -> bool {
    if let Some(root) = root_of(folder, roots) {
        return root != folder;
    }
    let home = matches!(folder.names().next(), Some("home" | "Users"));
    // An ancestor of a root covers more than the root.
    let holds_root = roots.iter().any(|root| root.starts_with(folder));
    folder.depth() > 1 + usize::from(home) && !holds_root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        let (operations, text) = text.split_once(' ').unwrap_or(("", text));
        let named = Operation::ALL
            .into_iter()
            .filter(|operation| operations.split('+').any(|name| name == operation.as_str()));
        let scope: Scope = text.parse().unwrap();
        let scope = scope.only(named.collect());
        if operations.ends_with("+tree") {
            scope.beneath()
        } else {
            scope
        }
    }

    fn path(text: &str) -> VirtualPath {
        VirtualPath::parse(text, None).unwrap()
    }

    /// The breadth and sentence of each choice.
    fn offered(
        needs: &[&str],
        max_grantable: &[&str],
        roots: &[&str],
    ) -> Vec<(Breadth, String, bool)> {
        let needs: Vec<Scope> = needs.iter().map(|text| scope(text)).collect();
        let max_grantable: Vec<ScopePattern> = max_grantable
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let roots: Vec<VirtualPath> = roots.iter().map(|text| path(text)).collect();
        let choices = choices(&needs, &max_grantable, &roots, false);
        let described = choices.iter().map(|choice| {
            assert!(
                needs
                    .iter()
                    .all(|need| choice.patterns.iter().any(|one| one.covers(need)))
            );
            let confirm = choice.needs_confirmation(Lifetime::Session);
            (choice.breadth, choice.sentence(&roots), confirm)
        });
        described.collect()
    }

    #[track_caller]
    fn check(needs: &[&str], max_grantable: &[&str], expected: &[(Breadth, &str, bool)]) {
        let offered = offered(needs, max_grantable, &["/home/me/repo", "/r"]);
        let offered: Vec<(Breadth, &str, bool)> = offered
            .iter()
            .map(|(breadth, text, confirm)| (*breadth, text.as_str(), *confirm))
            .collect();
        assert_eq!(offered, expected);
    }

    #[test]
    fn file_in_a_root_widens_to_file_folder_and_root() {
        check(
            &["change write:file:/home/me/repo/src/x.rs"],
            &["*"],
            &[
                (Breadth::Asked, "change /home/me/repo/src/x.rs", false),
                (
                    Breadth::Folder,
                    "change /home/me/repo/src and everything in it; sensitive files still ask",
                    false,
                ),
                (
                    Breadth::Project,
                    "change /home/me/repo and everything in it; sensitive files still ask",
                    true,
                ),
            ],
        );
        check(
            &["read read:file:/r/x"],
            &["*"],
            &[
                (Breadth::Asked, "read /r/x", false),
                (Breadth::Project, "read /r and everything in it", true),
            ],
        );
    }

    #[test]
    fn top_level_home_and_parents_of_roots_are_not_offered() {
        let said = "change /tmp/x (outside your project)";
        check(
            &["change write:file:/tmp/x"],
            &["*"],
            &[(Breadth::Asked, said, true)],
        );
        for outside in ["/home/you/x", "/home/me/x", "/x"] {
            let offered = offered(
                &[&format!("read read:file:{outside}")],
                &["*"],
                &["/home/me/repo", "/r"],
            );
            assert_eq!(offered.len(), 1, "{offered:?}");
        }
        check(
            &["read read:file:/etc/apt/sources.list"],
            &["*"],
            &[
                (
                    Breadth::Asked,
                    "read /etc/apt/sources.list (outside your project)",
                    true,
                ),
                (
                    Breadth::Folder,
                    "read /etc/apt and everything in it (outside your project)",
                    true,
                ),
            ],
        );
        // With one need outside, the whole project is not offered.
        let both = offered(
            &["read read:file:/etc/apt/x", "change write:file:/r/a/x"],
            &["*"],
            &["/r"],
        );
        assert!(
            both.iter()
                .all(|(breadth, ..)| *breadth != Breadth::Project)
        );
    }

    #[test]
    fn recursive_delete_needs_confirmation() {
        check(
            &["delete+tree write:file:/r/pkg/old"],
            &["*"],
            &[
                (
                    Breadth::Asked,
                    "delete /r/pkg/old and everything in it; sensitive files still ask",
                    true,
                ),
                (
                    Breadth::Folder,
                    "delete /r/pkg and everything in it; sensitive files still ask",
                    true,
                ),
                (
                    Breadth::Project,
                    "delete /r and everything in it; sensitive files still ask",
                    true,
                ),
            ],
        );
    }

    #[test]
    fn protected_name_in_a_tree_is_named_in_the_choices() {
        let needs = [
            scope("delete+tree write:file:/r/pkg"),
            scope("delete write:file:/r/pkg/.mcp.json"),
        ];
        let all = choices(&needs, &[ScopePattern::ANY], &[path("/r")], true);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].patterns, needs.map(|need| Coverage::of(&need)));
        assert_eq!(
            all[0].sentence(&[path("/r")]),
            "delete /r/pkg and everything in it; delete /r/pkg/.mcp.json; other sensitive files still ask"
        );
    }

    #[test]
    fn created_parent_directories_are_named_individually() {
        let offered = offered(
            &[
                "create write:file:/r/pkg",
                "create write:file:/r/pkg/sub",
                "create write:file:/r/pkg/sub/one.txt",
            ],
            &["*"],
            &["/r"],
        );
        assert_eq!(
            offered.first().unwrap().1,
            "create /r/pkg; create /r/pkg/sub; create /r/pkg/sub/one.txt"
        );
    }

    #[test]
    fn choices_stay_within_max_grantable_and_sensitive_calls_have_one() {
        let need = "change write:file:/r/a/x";
        let breadths = |max_grantable: &[&str]| -> Vec<Breadth> {
            let offered = offered(&[need], max_grantable, &["/r"]);
            offered.iter().map(|(breadth, ..)| *breadth).collect()
        };
        assert_eq!(
            breadths(&["write:file:/r/a"]),
            [Breadth::Asked, Breadth::Folder]
        );
        assert_eq!(breadths(&[]), [Breadth::Asked]);
        let sensitive = choices(&[scope(need)], &[ScopePattern::ANY], &[path("/r")], true);
        assert_eq!(sensitive.len(), 1);
    }

    #[test]
    fn tool_widens_only_to_its_server() {
        check(
            &["write:mcp:hub~1:push~2"],
            &["*"],
            &[
                (
                    Breadth::Asked,
                    "create, change, delete or move things with push of hub, whatever it is given",
                    false,
                ),
                (
                    Breadth::Folder,
                    "create, change, delete or move things with every tool, resource and prompt of hub, whatever it is given, and with what it asks for",
                    true,
                ),
            ],
        );
    }

    #[test]
    fn permanent_grants_need_confirmation_and_once_does_not() {
        let asked = choices(
            &[scope("change write:file:/tmp/x")],
            &[ScopePattern::ANY],
            &[path("/r")],
            false,
        );
        let first = asked.first().unwrap();
        assert!(!first.needs_confirmation(Lifetime::Once));
        assert!(first.needs_confirmation(Lifetime::Session));
        assert!(first.needs_confirmation(Lifetime::Agent));
        let inside = choices(
            &[scope("change write:file:/r/a/x")],
            &[ScopePattern::ANY],
            &[path("/r")],
            false,
        );
        let project = inside.last().unwrap();
        assert!(project.needs_confirmation(Lifetime::Once));
    }

    #[test]
    fn each_choice_covers_the_one_before_it_with_the_same_operations() {
        for needs in [
            &["change write:file:/r/a/x"][..],
            &["delete+tree write:file:/r/a/old"],
            &["create write:file:/r/a/x", "read read:file:/r/b/y"],
            &["write:mcp:hub~1:push~2"],
            &["execute:network:crates.io:443"],
        ] {
            let needs: Vec<Scope> = needs.iter().map(|text| scope(text)).collect();
            let all = choices(&needs, &[ScopePattern::ANY], &[path("/r")], false);
            assert!(all.len() > 1, "{needs:?}");
            for (narrow, wide) in all.iter().zip(all.iter().skip(1)) {
                assert!(narrow.patterns.iter().all(|one| {
                    let mut wider = wide.patterns.iter();
                    wider.any(|other| other.includes(one) && other.operations() == one.operations())
                }));
            }
        }
    }

    #[test]
    fn labels_of_choices_say_what_they_are_about() {
        for (needs, expected) in [
            (
                &["change write:file:/r/a/x"][..],
                &["this file", "its folder", "the whole project"][..],
            ),
            (
                &["create write:file:/r/a/x", "change write:file:/r/b/y"],
                &["these files", "their folders", "the whole project"],
            ),
            (
                &["create+change write:file:/r/a/x"],
                &["this file", "its folder", "the whole project"],
            ),
            (
                &["delete+tree write:file:/r/a/old"],
                &["this folder", "its folder", "the whole project"],
            ),
            (
                &[
                    "delete+tree write:file:/r/a/old",
                    "delete write:file:/r/a/old/x",
                ],
                &["these files and folders", "its folder", "the whole project"],
            ),
            (
                &["write:mcp:hub~1:push~2"],
                &["this tool", "everything of this server"],
            ),
            (
                &["read:mcp:hub~1:resources/read:doc%3A//guide"],
                &["this resource", "every resource of this server"],
            ),
            (
                &["read:mcp:hub~1:prompts/get:review"],
                &["this prompt", "every prompt of this server"],
            ),
            (
                &["write:mcp:hub~1:file:a:b"],
                &["exactly this", "everything of this kind"],
            ),
            (&["execute:command:git"], &["this program"]),
            (
                &["execute:network:crates.io:443"],
                &["this host", "every port of this host"],
            ),
            (
                &["execute:command:git", "read read:file:/tmp/x"],
                &["exactly this"],
            ),
        ] {
            let needs: Vec<Scope> = needs.iter().map(|text| scope(text)).collect();
            let all = choices(&needs, &[ScopePattern::ANY], &[path("/r")], false);
            let labels: Vec<&str> = all.iter().map(Choice::label).collect();
            assert_eq!(labels, expected, "{needs:?}");
        }
    }
}
