//! What an authority allows, in plain words.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::authority::Authority;
use super::base::Base;
use super::explain::{Explanation, LayerName};
use super::fold::fold;
use super::globs::{DenyGlobs, Globs};
use super::need::{MountPoint, Need};
use super::roots::{AllowList, Subtree};
use super::verdict::Verdict;
use crate::id::GrantId;
use crate::path::{VirtualPath, beneath};
use crate::permission::GrantView;
use crate::scope::{
    Coverage, Detail, Operations, Reach, Resource, Scope, ScopePattern, Verb, quoted,
};

/// Maximum number of globs in a text.
const MAX_GLOBS: usize = 5;
/// A name that no rule names.
const FRESH: &str = "any-other-name";

/// What happens to calls that a [`Statement`] is about, from the least to the most strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StatementVerdict {
    /// They run.
    Allowed,
    /// A person is asked.
    Asks,
    /// A person is asked, and only a grant that names the file itself allows them.
    Protected,
    /// They are denied.
    Denied,
}

impl From<Verdict> for StatementVerdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Allow => Self::Allowed,
            Verdict::Ask => Self::Asks,
            Verdict::Deny => Self::Denied,
        }
    }
}

/// Kind of a [`StatementSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourceKind {
    /// The configuration of the runtime.
    Configuration,
    /// The policy of a worker above this one.
    Parent,
    /// The policy that the worker was started with.
    Spawn,
    /// The policy of the client's session.
    Client,
    /// A grant of a person.
    Grant,
    /// A rule that cannot be configured.
    BuiltIn,
}

/// Where the rule of a [`Statement`] comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct StatementSource {
    /// Its kind.
    pub kind: SourceKind,
    /// The rule as a sentence for people. Escape it before it is shown.
    pub text: String,
}

/// One sentence on what an authority allows, asks about or denies.
///
/// Several statements may cover a need. These rules say which one holds:
///
/// 1. Of the statements about a folder and everything in it, the one about the deepest folder is the most specific. In the same
///    folder, one about names, such as files that match `*.rs`, is more specific than one about everything.
/// 2. Statements that deny or protect names apply in addition: the strictest verdict holds.
/// 3. Of the statements about a resource that is not a file, the one with the longest detail is the most specific. For a need of
///    a resource as a whole, there must be a statement about all of it, and the strictest one about any part of it holds.
/// 4. A statement of a grant holds where the others ask a person. Where they protect a name, it holds only if it names that
///    path itself.
/// 5. What no statement covers is denied.
///
/// They are exact for paths and details that are written as in the policy. For another spelling of a path, such as another
/// case, and for a need of a resource as a whole, they may be stricter than the verdict, but never less strict. Which tools
/// may be called and how files may be written is not part of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statement {
    /// What happens.
    pub verdict: StatementVerdict,
    /// What it is about, such as `read everything in /repo`. Escape it before it is shown.
    pub text: String,
    /// The operations that it is about.
    pub operations: Operations,
    /// The folder or file that it is about, if it is about one.
    pub path: Option<VirtualPath>,
    /// Where the rule comes from.
    pub source: StatementSource,
    /// The grant, if it is one.
    pub grant: Option<GrantId>,
    /// When the grant expires, since the runtime began.
    pub expires_at: Option<Duration>,
    /// How many uses of the grant are left.
    pub uses_left: Option<u32>,
    subject: Subject,
}

/// What a statement is about.
#[derive(Clone, Debug)]
enum Subject {
    /// Everything in a folder. If there are lists, only names that all of them allow; an entry of a list allows a name if
    /// one of its globs does.
    Folder(VirtualPath, Arc<[AllowList]>),
    /// Names that are denied or protected.
    Names(Names),
    /// The part of a resource with this pattern.
    Resource(ScopePattern),
    /// What no other statement of a resource covers.
    OtherResources(Arc<[Resource]>),
    /// What a grant covers.
    Grant(Coverage),
}

/// Denied or protected names.
#[derive(Clone, Debug)]
enum Names {
    /// Relative to a root.
    Root(MountPoint, Arc<Globs>),
    /// In every root.
    Everywhere(Arc<Base>, Arc<Globs>),
    /// Protected names.
    Protected(Arc<Base>),
    /// Paths that no grant covers.
    Ungrantable(Arc<Base>),
}

impl Names {
    fn covers(&self, need: &Need<'_>) -> bool {
        match self {
            Self::Root(mount, globs) => need.beneath(mount).is_some_and(|path| globs.denies(path)),
            Self::Everywhere(base, globs) => {
                need.any_beneath(base.mounts(), |path| globs.denies(path))
            }
            Self::Protected(base) => base.protects(need.scope()),
            Self::Ungrantable(base) => need.path().is_some_and(|path| {
                base.is_outside(path) && base.is_ungrantable(need.verb(), path)
            }),
        }
    }
}

impl Statement {
    /// Returns whether it is about `need`.
    #[must_use]
    pub fn covers(&self, need: &Scope) -> bool {
        let operations = self
            .operations
            .intersection(Operations::of(Some(need.verb())));
        if operations.is_empty() {
            return false;
        }
        match &self.subject {
            Subject::Folder(folder, lists) => {
                let Some(path) = need.path() else {
                    return false;
                };
                let here = path.starts_with(folder) || self.covers_spelling(folder, path);
                here && lists.iter().all(|list| allows(list, need))
            }
            Subject::Names(names) => names.covers(&Need::new(need)),
            Subject::Resource(pattern) => {
                let whole = *need.detail() == Detail::None;
                pattern.covers(need) || whole && pattern.resource() == Some(need.resource())
            }
            Subject::OtherResources(named) => {
                *need.resource() != Resource::File && !named.contains(need.resource())
            }
            Subject::Grant(coverage) => coverage.covers(need),
        }
    }

    /// Whether it is about a folder.
    #[cfg(test)]
    pub(crate) fn is_of_folder(&self) -> bool {
        matches!(self.subject, Subject::Folder(..))
    }

    /// Whether it is about names in a folder.
    #[cfg(test)]
    pub(crate) fn is_of_names(&self) -> bool {
        matches!(&self.subject, Subject::Folder(_, lists) if !lists.is_empty())
    }

    /// Whether it is about all of a resource.
    #[cfg(test)]
    pub(crate) fn is_of_whole_resource(&self) -> bool {
        match &self.subject {
            Subject::Resource(pattern) => pattern.to_string().split(':').count() == 2,
            Subject::OtherResources(_) => true,
            _ => false,
        }
    }

    /// The length of the detail of a resource.
    #[cfg(test)]
    pub(crate) fn detail_len(&self) -> usize {
        match &self.subject {
            Subject::Resource(pattern) => pattern.to_string().len(),
            _ => 0,
        }
    }

    /// Whether a statement that restricts covers another spelling of a path in its folder.
    fn covers_spelling(&self, folder: &VirtualPath, path: &VirtualPath) -> bool {
        self.verdict != StatementVerdict::Allowed
            && beneath(&fold(path.as_str()), &fold(folder.as_str())).is_some()
    }

    pub(crate) fn of_grant(grant: &GrantView) -> Self {
        let GrantView {
            id,
            pattern,
            uses_left,
            expires_at,
            ..
        } = grant;
        Self {
            verdict: StatementVerdict::Allowed,
            text: pattern.sentence(),
            operations: pattern.operations(),
            path: pattern.path().cloned(),
            source: StatementSource {
                kind: SourceKind::Grant,
                text: "a person allowed it".to_owned(),
            },
            grant: Some(*id),
            expires_at: *expires_at,
            uses_left: *uses_left,
            subject: Subject::Grant(pattern.clone()),
        }
    }

    fn new(
        verdict: StatementVerdict,
        verbs: &[Verb],
        object: &str,
        source: Source,
        subject: Subject,
    ) -> Self {
        let path = match &subject {
            Subject::Folder(path, _) => Some(path.clone()),
            Subject::Names(Names::Root(mount, _)) => Some(mount.path.clone()),
            _ => None,
        };
        let operations = verbs
            .iter()
            .flat_map(|verb| Operations::of(Some(*verb)).iter());
        let operations: Operations = operations.collect();
        let (kind, text) = source;
        Self {
            verdict,
            text: format!("{operations} {object}"),
            operations,
            path,
            source: StatementSource { kind, text },
            grant: None,
            expires_at: None,
            uses_left: None,
            subject,
        }
    }
}

fn allows(list: &AllowList, need: &Scope) -> bool {
    let need = Need::new(need);
    let mut entries = list.iter();
    entries.any(|(mount, globs)| {
        let path = need.beneath(mount);
        path.is_some_and(|path| globs.allows(path.as_written()))
    })
}

type Source = (SourceKind, String);

/// Adds a verb to the others for which the same holds.
fn group<T: PartialEq>(groups: &mut Vec<(Vec<Verb>, T)>, verb: Verb, holds: T) {
    match groups.iter_mut().find(|(_, other)| *other == holds) {
        Some((verbs, _)) => verbs.push(verb),
        None => groups.push((vec![verb], holds)),
    }
}

/// What holds at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    verdict: Verdict,
    source: Source,
    /// The entries of the allow lists, with their folders.
    lists: Vec<Vec<String>>,
}

impl Authority {
    /// Returns statements on everything that this authority allows, asks about or denies, without grants. See
    /// [`Statement`] for which of them holds for a need. Running programs and connecting to the network are always stated.
    ///
    /// ```
    /// use bailiwick::config::RootConfig;
    /// use bailiwick::policy::Authority;
    /// use bailiwick::{Config, Origin, Policy, VirtualPath};
    /// let config = Config::new().root(RootConfig::new(VirtualPath::parse("/repo", None)?));
    /// let host = Authority::configured(&config)?;
    /// let policy = Policy::new().allow("read:file").ask("write:file:/repo/src").deny_glob("**/*.key");
    /// let worker = host.narrow(&host.admit(&policy, Origin::Human)?);
    /// let lines = worker.statements();
    /// let lines: Vec<_> = lines.iter().map(|line| (format!("{:?}", line.verdict), line.text.as_str())).collect();
    /// assert_eq!(lines[0], ("Allowed".to_owned(), "read everything in /repo"));
    /// assert_eq!(lines[1], ("Asks".to_owned(), "create, change, delete or move everything in /repo/src"));
    /// let keys = "read, create, change, delete, move or execute files that match `**/*.key` in every folder";
    /// assert_eq!(lines[2], ("Denied".to_owned(), keys));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn statements(&self) -> Vec<Statement> {
        let mut statements = self.folder_statements();
        if !statements.is_empty() {
            statements.extend(self.name_statements());
        }
        statements.extend(self.resource_statements());
        statements
    }

    /// The folders and files in which `verb` is allowed, apart from rules about names and from folders in them with rules
    /// of their own. Each is a path, or names files in one.
    pub(crate) fn allowed_files(&self, verb: Verb) -> Vec<String> {
        let mut whole: Vec<VirtualPath> = Vec::new();
        let mut named = Vec::new();
        for statement in self.folder_statements() {
            let Subject::Folder(path, lists) = &statement.subject else {
                continue;
            };
            let of_verb = statement
                .operations
                .intersection(Operations::of(Some(verb)));
            let is_listed = whole.iter().any(|above| path.starts_with(above));
            if statement.verdict != StatementVerdict::Allowed
                || of_verb.is_empty()
                || path.is_top()
                || is_listed
            {
                continue;
            }
            if lists.is_empty() {
                named.push(quoted(path.as_str()));
                whole.push(path.clone());
            } else {
                let operations = statement.operations.to_string();
                let object = statement.text.strip_prefix(&operations);
                named.push(object.unwrap_or(&statement.text).trim_start().to_owned());
            }
        }
        named
    }

    /// The hosts to which connections are allowed; `None` for every host, except those that are denied.
    pub(crate) fn allowed_hosts(&self) -> Option<Vec<String>> {
        let mut hosts = Vec::new();
        for statement in self.resource_statements() {
            let executes = statement
                .operations
                .intersection(Operations::of(Some(Verb::Execute)));
            let Subject::Resource(pattern) = &statement.subject else {
                continue;
            };
            let is_network = pattern.resource().is_some_and(Resource::is_network);
            if statement.verdict != StatementVerdict::Allowed || executes.is_empty() || !is_network
            {
                continue;
            }
            let text = pattern.to_string();
            hosts.push(text.splitn(3, ':').nth(2)?.to_owned());
        }
        Some(hosts)
    }

    /// Statements on folders, from the top down.
    fn folder_statements(&self) -> Vec<Statement> {
        let folders = self.without_names();
        let mut paths = self.boundaries();
        paths.extend(self.base().grantable_folders());
        paths.push(VirtualPath::top());
        paths.sort_unstable();
        paths.dedup();
        let mut statements = Vec::new();
        for path in &paths {
            let above = paths
                .iter()
                .filter(|above| *above != path && path.starts_with(above));
            let above = above.max_by_key(|above| above.depth());
            let mut groups = Vec::new();
            for verb in Verb::ALL {
                let place = self.place(&folders, verb, path);
                let above = above.map(|above| self.place(&folders, verb, above));
                let same = above.as_ref().is_some_and(|above| {
                    (above.verdict, &above.lists) == (place.verdict, &place.lists)
                });
                let closed = above.is_none_or(|above| above.verdict == Verdict::Deny);
                if !(same || closed && place.verdict == Verdict::Deny) {
                    group(&mut groups, verb, place);
                }
            }
            for (verbs, place) in groups {
                statements.extend(self.of_folder(path, &verbs, place));
            }
        }
        statements
    }

    /// The statements on one folder.
    fn of_folder(&self, path: &VirtualPath, verbs: &[Verb], place: Place) -> Vec<Statement> {
        let folder = quoted(path.as_str());
        let lists = if place.lists.is_empty() {
            Vec::new()
        } else {
            self.allow_lists(path)
        };
        let globs = lists.iter().map(|list| {
            let globs = list.iter().flat_map(|(_, globs)| globs.texts());
            matching(&globs.cloned().collect::<Vec<_>>())
        });
        let globs = globs.collect::<Vec<_>>().join(" and also ");
        let object = match (globs.is_empty(), path.is_top()) {
            (true, true) => "everything outside the served folders".to_owned(),
            (true, false) => format!("everything in {folder}"),
            (false, _) => format!("files that match {globs} in {folder}"),
        };
        let kind = place.source.0;
        let subject = Subject::Folder(path.clone(), lists.into());
        let verdict = place.verdict.into();
        let mut statements = vec![Statement::new(
            verdict,
            verbs,
            &object,
            place.source,
            subject,
        )];
        if !globs.is_empty() {
            let object = format!("all other files in {folder}");
            let source = (kind, "no allow glob of its root matches it".to_owned());
            let subject = Subject::Folder(path.clone(), [].into());
            let denied = StatementVerdict::Denied;
            statements.push(Statement::new(denied, verbs, &object, source, subject));
        }
        statements
    }

    /// What holds in the folder at `path`, apart from rules about names and from deeper folders; `folders` is this authority
    /// without names.
    fn place(&self, folders: &Self, verb: Verb, path: &VirtualPath) -> Place {
        // Below the top, a path of two names is neither the top nor an entry of it.
        let inside = [FRESH, FRESH]
            .into_iter()
            .try_fold(path.clone(), |path, name| path.join(name));
        let need = Scope::file(verb, inside.unwrap_or_else(|_| path.clone()));
        let explained = folders.explain(&need, &[]);
        let mut lists = self.allow_lists(path);
        if explained.verdict == Verdict::Deny {
            lists.clear();
        }
        let texts = lists.iter().map(|list| {
            let entries = list.iter();
            let texts = entries.flat_map(|(mount, globs)| {
                globs
                    .texts()
                    .iter()
                    .map(|glob| format!("{} {glob}", mount.path))
            });
            texts.collect()
        });
        Place {
            verdict: explained.verdict,
            source: self.source(&explained),
            lists: texts.collect(),
        }
    }

    /// The allow globs that apply in the folder at `path`.
    fn allow_lists(&self, path: &VirtualPath) -> Vec<AllowList> {
        let mut lists = self.base().allow_lists(path);
        for held in self.layers() {
            lists.extend(held.layer.roots().allow_lists(path));
        }
        lists
    }

    /// Statements on denied and protected names.
    fn name_statements(&self) -> Vec<Statement> {
        let mut statements = Vec::new();
        let mut of_root = |root: &Subtree, source| {
            let folder = quoted(root.mount.path.as_str());
            let names = |globs| Names::Root(root.mount.clone(), globs);
            statements.extend(of_globs(root.denied(), source, &folder, names));
        };
        for root in self.base().entries() {
            of_root(root, SourceKind::Configuration);
        }
        for held in self.layers() {
            for root in held.layer.roots().entries() {
                of_root(root, self.kind(held.name));
            }
        }
        let base = self.shared_base();
        for held in self.layers() {
            let names = |globs| Names::Everywhere(Arc::clone(&base), globs);
            let globs = held.layer.everywhere();
            statements.extend(of_globs(globs, self.kind(held.name), "every folder", names));
        }
        let mut built_in = |verdict, verbs: &[Verb], object, rule: &str, names| {
            let source = (SourceKind::BuiltIn, rule.to_owned());
            let subject = Subject::Names(names);
            statements.push(Statement::new(verdict, verbs, object, source, subject));
        };
        built_in(
            StatementVerdict::Protected,
            &[Verb::Write],
            "sensitive files, such as .git/hooks, AGENTS.md and .vscode",
            "such files decide what tools or agents do, so only a grant that names the file allows the change",
            Names::Protected(Arc::clone(&base)),
        );
        if self.base().grantable_folders().next().is_some() {
            built_in(
                StatementVerdict::Denied,
                &Verb::ALL,
                "the whole disk, a whole home folder, system files in /proc, /sys and /dev, and files of the program that runs \
                 the agents, such as its audit log",
                "no grant opens them",
                Names::Ungrantable(base),
            );
        }
        statements
    }

    /// Statements on resources that are not files.
    fn resource_statements(&self) -> Vec<Statement> {
        let mut patterns: Vec<&ScopePattern> = self.base().patterns().collect();
        for held in self.layers() {
            patterns.extend(held.layer.scopes().patterns());
        }
        let resources = patterns.iter().filter_map(|pattern| pattern.resource());
        let always = ["command", "network"].map(|name| Resource::Other(name.into()));
        let named: BTreeSet<&Resource> = resources
            .filter(|resource| **resource != Resource::File)
            .chain(&always)
            .collect();
        let named: Arc<[Resource]> = named.into_iter().cloned().collect();
        let mut statements = Vec::new();
        for resource in &*named {
            let of_resource = patterns
                .iter()
                .filter(|one| one.resource() == Some(resource));
            let mut details: Vec<ScopePattern> = of_resource
                .map(|pattern| pattern.of_any_verb())
                .chain([ScopePattern::of_resource(resource.clone())])
                .collect();
            details.sort_unstable();
            details.dedup();
            for pattern in &details {
                let above = details
                    .iter()
                    .filter(|above| *above != pattern && above.covers_pattern(pattern));
                let above = above.max_by_key(|above| above.to_string().len());
                let subject = Subject::Resource(pattern.clone());
                let object = object_of(pattern);
                statements.extend(self.of_resource(pattern, above, &object, &subject));
            }
        }
        let other = ScopePattern::of_resource(Resource::Other(FRESH.into()));
        let subject = Subject::OtherResources(named);
        let object = "everything else that is not a file";
        statements.extend(self.of_resource(&other, None, object, &subject));
        statements
    }

    /// The statements on what `pattern` covers, if they differ from those on `above`. Whether programs run and connect to
    /// the network is always stated.
    fn of_resource(
        &self,
        pattern: &ScopePattern,
        above: Option<&ScopePattern>,
        object: &str,
        subject: &Subject,
    ) -> Vec<Statement> {
        let runs = pattern
            .resource()
            .is_some_and(|resource| resource.is_command() || resource.is_network());
        let mut groups = Vec::new();
        for verb in Verb::ALL {
            let explained = self.explain(&pattern.need_beneath(verb, FRESH), &[]);
            let above = above.map(|above| self.judge(&above.need_beneath(verb, FRESH), &[]));
            let runs = runs && verb == Verb::Execute;
            if runs && above.is_none() || above.unwrap_or(Verdict::Deny) != explained.verdict {
                let holds = (explained.verdict, self.source(&explained), runs);
                group(&mut groups, verb, holds);
            }
        }
        let statements = groups.into_iter().map(|(verbs, (verdict, source, runs))| {
            let subject = subject.clone();
            let mut statement = Statement::new(verdict.into(), &verbs, object, source, subject);
            if let Some(text) = runs.then(|| running(pattern)).flatten() {
                statement.text = text;
            }
            statement
        });
        statements.collect()
    }

    fn source(&self, explained: &Explanation) -> Source {
        let kind = match explained.key {
            "grantable" => SourceKind::BuiltIn,
            _ => self.kind(explained.layer),
        };
        let text = match &explained.pattern {
            // Without a rule against it, a file is allowed because of its root.
            None if explained.key.is_empty() => {
                "a root of the configuration contains it".to_owned()
            }
            Some(pattern) => format!("{} ({}: `{pattern}`)", explained.rule, explained.key),
            None => explained.rule.to_owned(),
        };
        (kind, text)
    }

    fn kind(&self, layer: LayerName) -> SourceKind {
        let agents = self.layers().iter().map(|held| held.name);
        let own = agents
            .filter(|name| matches!(name, LayerName::Agent(_)))
            .max();
        match layer {
            LayerName::Configuration => SourceKind::Configuration,
            LayerName::Session => SourceKind::Client,
            LayerName::Agent(_) if Some(layer) != own => SourceKind::Parent,
            LayerName::Agent(_) | LayerName::Call => SourceKind::Spawn,
        }
    }
}

/// The statements on the deny and immutable globs of a root or a policy; `names` are the names that a list covers.
fn of_globs(
    globs: &DenyGlobs,
    kind: SourceKind,
    place: &str,
    names: impl Fn(Arc<Globs>) -> Names,
) -> Vec<Statement> {
    let (deny, immutable) = globs.lists();
    let rules = [
        (deny, &Verb::ALL[..], "a deny glob covers it"),
        (immutable, &[Verb::Write], "an immutable glob covers it"),
    ];
    let statement = |(list, verbs, rule): (Option<&Arc<Globs>>, &[Verb], &str)| {
        let list = list?;
        let object = format!("files that match {} in {place}", matching(list.texts()));
        let subject = Subject::Names(names(Arc::clone(list)));
        let source = (kind, rule.to_owned());
        Some(Statement::new(
            StatementVerdict::Denied,
            verbs,
            &object,
            source,
            subject,
        ))
    };
    rules.into_iter().filter_map(statement).collect()
}

/// The globs, in words.
fn matching(globs: &[String]) -> String {
    let mut texts: Vec<String> = globs
        .iter()
        .take(MAX_GLOBS)
        .map(|glob| format!("`{glob}`"))
        .collect();
    let more = globs.len().saturating_sub(MAX_GLOBS);
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    texts.join(" or ")
}

/// What programs may run, or to which hosts they may connect, in words.
fn running(pattern: &ScopePattern) -> Option<String> {
    match pattern.to_string().as_str() {
        "*:command" => Some("run programs".to_owned()),
        "*:network" => Some("connect to the network".to_owned()),
        _ => {
            let execute = Operations::of(Some(Verb::Execute));
            let coverage = Coverage::new(pattern.clone(), Reach::Beneath, execute);
            coverage.map(|coverage| coverage.sentence())
        }
    }
}

/// The resource of a pattern, in words.
fn object_of(pattern: &ScopePattern) -> String {
    let resource = pattern.resource().map_or("", Resource::as_str);
    let text = pattern.to_string();
    let detail = text.splitn(3, ':').nth(2);
    if resource == "mcp" {
        let unmarked = |name: &str| quoted(name.split('~').next().unwrap_or(name));
        return match detail.map(|detail| detail.split_once(':').unwrap_or((detail, ""))) {
            None => "things with tools of other servers".to_owned(),
            Some((server, "")) => {
                format!(
                    "things with every tool, resource and prompt of {}",
                    unmarked(server)
                )
            }
            Some((server, tool)) => {
                format!("things with {} of {}", unmarked(tool), unmarked(server))
            }
        };
    }
    match detail {
        Some(detail) => format!("{resource} {}", quoted(detail)),
        None => resource.to_owned(),
    }
}
