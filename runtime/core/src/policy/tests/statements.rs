//! Tests that statements say what the verdict is.

use proptest::prelude::*;
use serde_json::json;

use super::laws::{NEEDS, chain, configuration, grants, layer, need};
use super::{cases, configured, few_cases, under};
use crate::permission::{GrantHolder, GrantView};
use crate::policy::{Authority, Policy, SourceKind, Statement, StatementVerdict, Verdict, fold};
use crate::scope::{Coverage, Detail, Scope};
use crate::{WorkerId, id::GrantId};

use StatementVerdict::{Allowed, Asks, Denied, Protected};

/// The verdict that the statements give, by the rules in the documentation of [`Statement`].
fn stated(statements: &[Statement], need: &Scope) -> StatementVerdict {
    let covering = || statements.iter().filter(|one| one.covers(need));
    let strictest = |all: &mut dyn Iterator<Item = &Statement>| all.map(|one| one.verdict).max();
    let of_policy = || covering().filter(|one| one.grant.is_none());
    let mut verdict = match need.path() {
        Some(path) => {
            let folders = || of_policy().filter(|one| one.is_of_folder());
            let exact =
                folders().filter(|one| one.path.as_ref().is_some_and(|at| path.starts_with(at)));
            let depth = |one: &Statement| one.path.as_ref().map_or(0, |path| path.depth());
            let exact = exact.max_by_key(|one| (depth(one), one.is_of_names()));
            let deepest = exact.map(depth);
            let spelt = folders().filter(|one| Some(depth(one)) > deepest);
            let spelt =
                spelt.filter(|one| one.path.as_ref().is_none_or(|at| !path.starts_with(at)));
            let names = of_policy().filter(|one| !one.is_of_folder());
            let found = exact.map_or(Denied, |one| one.verdict);
            strictest(&mut spelt.chain(names)).map_or(found, |other| found.max(other))
        }
        None if *need.detail() == Detail::None => {
            let whole = of_policy().any(Statement::is_of_whole_resource);
            strictest(&mut of_policy())
                .filter(|_| whole)
                .unwrap_or(Denied)
        }
        None => {
            let most = of_policy().max_by_key(|one| one.detail_len());
            most.map_or(Denied, |one| one.verdict)
        }
    };
    for grant in covering().filter(|one| one.grant.is_some()) {
        let names = grant.path.is_some() && grant.path.as_ref() == need.path();
        if verdict == Asks || verdict == Protected && names {
            verdict = Allowed;
        }
    }
    verdict
}

fn given(grants: &[Coverage]) -> impl Iterator<Item = Statement> {
    let views = grants.iter().map(|pattern| GrantView {
        id: GrantId(1),
        pattern: pattern.clone(),
        holder: GrantHolder::Worker(WorkerId(1)),
        descendants: false,
        uses_left: None,
        expires_at: None,
        used: 0,
        given_at_ms: 0,
    });
    views.map(|view| Statement::of_grant(&view))
}

fn check(authority: &Authority, need: &Scope, grants: &[Coverage]) -> Result<(), TestCaseError> {
    let mut statements = authority.statements();
    statements.extend(given(grants));
    let verdict = authority.judge(need, grants);
    let found = stated(&statements, need);
    let texts: Vec<_> = statements
        .iter()
        .map(|one| (one.verdict, &one.text))
        .collect();
    let real = StatementVerdict::from(verdict);
    let said = if found == Protected { Asks } else { found };
    let spelt = need
        .path()
        .is_some_and(|path| fold(path.as_str()) != path.as_str());
    if spelt || *need.detail() == Detail::None {
        prop_assert!(
            real <= said,
            "{} is {:?}, not {:?}: {:#?}",
            need,
            real,
            said,
            texts
        );
    } else {
        prop_assert_eq!(real, said, "{}: {:#?}", need, texts);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn most_specific_statement_has_the_verdict(
        authority in chain(true), need in need(), grants in grants(),
    ) {
        check(&authority, &need, &grants)?;
    }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn statements_hold_for_every_configuration(
        config in configuration(), layer in layer(true), session in any::<bool>(), grants in grants(),
    ) {
        if let Ok(host) = Authority::configured(&config) {
            let authority = if session { host.session(&layer) } else { host.narrow(&layer) };
            for need in NEEDS.iter() {
                check(&authority, need, &grants)?;
            }
        }
    }
}

fn lines(authority: &Authority) -> Vec<(StatementVerdict, String, SourceKind)> {
    let statements = authority.statements().into_iter();
    statements
        .map(|one| (one.verdict, one.text, one.source.kind))
        .collect()
}

#[test]
fn statements_name_rules_and_where_they_come_from() {
    let host = configured(&json!({
        "roots": [{ "path": "/r", "immutable": ["*.lock"] }, { "path": "/s", "access": "read" }],
        "allow": ["execute:cli:git"],
    }));
    let parent = under(&host, &Policy::inherit().deny_glob("**/*.key"));
    let worker = under(
        &parent,
        &Policy::new().allow("*:file").ask("write:file:/r/src"),
    );
    let text = |verdict, text: &str, kind| (verdict, text.to_owned(), kind);
    let protected =
        "create, change, delete or move sensitive files, such as .git/hooks, AGENTS.md and .vscode";
    use SourceKind::{BuiltIn, Configuration, Parent, Spawn};
    assert_eq!(
        lines(&worker),
        [
            text(
                Allowed,
                "read, create, change, delete or move everything in /r",
                Configuration
            ),
            text(
                Asks,
                "create, change, delete or move everything in /r/src",
                Spawn
            ),
            text(Allowed, "read everything in /s", Configuration),
            text(
                Denied,
                "create, change, delete or move files that match `*.lock` in /r",
                Configuration
            ),
            text(
                Denied,
                "read, create, change, delete, move or execute files that match `**/*.key` in every folder",
                Parent
            ),
            text(Protected, protected, BuiltIn),
            text(Denied, "run programs", Configuration),
            text(Denied, "connect to the network", Configuration),
        ]
    );
    assert_eq!(
        worker.judge(&"execute:cli:git".parse().unwrap(), &[]),
        Verdict::Deny
    );
    let git = text(Allowed, "execute cli git", Configuration);
    assert!(lines(&host).contains(&git) && lines(&parent).contains(&git));
}

#[test]
fn allow_globs_are_named_with_what_they_leave_out() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }] }));
    let policy = json!({ "roots": [{ "path": "/r/a", "allow": ["*.rs", "docs/**"] }] });
    let worker = under(&host, &Policy::parse(&policy).unwrap());
    let found = lines(&worker);
    assert_eq!(
        found[0].1,
        "read, create, change, delete or move files that match `*.rs` or `docs/**` in /r/a"
    );
    assert_eq!((found[0].0, found[1].0), (Allowed, Denied));
    assert_eq!(
        found[1].1,
        "read, create, change, delete or move all other files in /r/a"
    );
}

#[test]
fn allow_globs_of_another_spelling_of_the_folder_are_named() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }] }));
    let policy =
        json!({ "roots": [{ "path": "/r/out" }, { "path": "/r/OUT", "allow": ["*.md"] }] });
    let worker = under(&host, &Policy::parse(&policy).unwrap());
    let everywhere = "files that match `*.md` in /r/out";
    let found = lines(&worker);
    assert!(
        found.iter().any(|(_, text, _)| text.ends_with(everywhere)),
        "{found:?}"
    );
    assert!(
        !found
            .iter()
            .any(|(_, text, _)| text.ends_with("everything in /r/out"))
    );
    for file in ["/r/out/x.rs", "/r/out/x.md"] {
        check(&worker, &format!("read:file:{file}").parse().unwrap(), &[]).unwrap();
    }
}

#[test]
fn authority_without_rights_states_only_that_programs_and_network_are_denied() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }] }));
    let found = lines(&under(&host, &Policy::nothing()));
    let found: Vec<_> = found
        .iter()
        .map(|(verdict, text, _)| (*verdict, text.as_str()))
        .collect();
    let expected = [(Denied, "run programs"), (Denied, "connect to the network")];
    assert_eq!(found, expected);
}

#[test]
fn running_programs_and_the_network_are_always_stated() {
    let of = |configuration: &serde_json::Value| {
        let found = lines(&configured(configuration)).into_iter();
        let found =
            found.filter(|(_, text, _)| text.starts_with("run") || text.starts_with("connect"));
        let found: Vec<_> = found.map(|(verdict, text, _)| (verdict, text)).collect();
        found
    };
    let text = |verdict, text: &str| (verdict, text.to_owned());
    assert_eq!(
        of(&json!({})),
        [
            text(Denied, "run programs"),
            text(Denied, "connect to the network")
        ]
    );
    let some = json!({
        "allow": ["execute:command:git", "execute:network:crates.io"],
        "network": true,
    });
    assert_eq!(
        of(&some),
        [
            text(Denied, "run programs"),
            text(Allowed, "run git and its subcommands with any arguments"),
            text(Denied, "connect to the network"),
            text(Allowed, "connect to crates.io on every port"),
        ]
    );
    let asks = json!({ "ask_scopes": ["execute:command"], "grantable": ["execute:command"] });
    assert_eq!(
        of(&asks),
        [
            text(Asks, "run programs"),
            text(Denied, "connect to the network")
        ]
    );
    let all = json!({ "allow": ["execute:command", "execute:network"], "network": true });
    assert_eq!(
        of(&all),
        [
            text(Allowed, "run programs"),
            text(Allowed, "connect to the network")
        ]
    );
}
