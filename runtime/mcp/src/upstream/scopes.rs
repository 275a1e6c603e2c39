//! Translates scopes that a server requests into scopes of this runtime.
//!
//! Requested scopes are prefixed with the server's name, so a grant for one server covers neither another server nor
//! the tools of this runtime: `write:file:/a/b` becomes `write:mcp:SERVER:file:a:b`. Path components become segments,
//! so that policies and grants for a folder cover its content; `%`, `:` and `*` in a name are escaped as `%25`, `%3A`
//! and `%2A`.

use rmcp::model::MetaObject;

use super::classify::meta_value;
use bailiwick::scope::{Detail, Scope};

/// The largest number of requested scopes, and the longest, in bytes.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 4096;

/// The scopes that a result with `meta` requests, as written by the server and translated; `None` if there are none or
/// one is invalid. Resources for which `is_tool` is true are rejected, because their scopes could be read as scopes of
/// a tool.
pub(super) fn requested_scopes(
    meta: &MetaObject,
    label: &str,
    is_tool: impl Fn(&str) -> bool,
) -> Option<(Vec<String>, Vec<Scope>)> {
    let scopes = meta_value(meta, "requested_scopes")?.as_array()?;
    if scopes.is_empty() || scopes.len() > MAX_SCOPES {
        return None;
    }
    let mut read = Vec::with_capacity(scopes.len());
    for scope in scopes {
        let text = scope
            .as_str()
            .filter(|text| text.len() <= MAX_SCOPE_BYTES)?;
        let server_scope: Scope = text.parse().ok()?;
        if is_tool(server_scope.resource().as_str()) {
            return None;
        }
        read.push((text.to_owned(), local_scope(&server_scope, label)?));
    }
    Some(read.into_iter().unzip())
}

/// Translates a scope of `server`.
fn local_scope(server_scope: &Scope, server: &str) -> Option<Scope> {
    let (verb, resource) = (server_scope.verb(), server_scope.resource().as_str());
    let mut text = format!("{verb}:mcp:{server}:{resource}");
    match server_scope.detail() {
        Detail::None => {}
        Detail::Path(path) => {
            for name in path.names() {
                let name = name.replace('%', "%25").replace(':', "%3A");
                text.push(':');
                text.push_str(&name.replace('*', "%2A"));
            }
        }
        Detail::Segments(segments) => {
            text.push(':');
            text.push_str(segments);
        }
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use bailiwick::scope::ScopePattern;

    #[track_caller]
    fn check(meta: &Value, expected: Option<&[&str]>) {
        let meta: MetaObject = serde_json::from_value(meta.clone()).unwrap();
        let needs = requested_scopes(&meta, "disk", |name| name == "edit").map(|(_, needs)| needs);
        let needs = needs.map(|needs| needs.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(needs, expected, "{meta:?}");
    }

    #[test]
    fn requested_scopes_are_prefixed_with_the_server() {
        check(
            &json!({"requested_scopes": ["write:file:/a/b", "execute:cli:git:push"]}),
            Some(&["write:mcp:disk:file:a:b", "execute:mcp:disk:cli:git:push"]),
        );
        check(
            &json!({"requested_scopes": ["write:file:/a//./b", "read:file:/50%/a:b/c*d", "read:file:/"]}),
            Some(&[
                "write:mcp:disk:file:a:b",
                "read:mcp:disk:file:50%25:a%3Ab:c%2Ad",
                "read:mcp:disk:file",
            ]),
        );
        check(
            &json!({"dev.bailiwick/requested_scopes": ["read:clock"]}),
            Some(&["read:mcp:disk:clock"]),
        );
    }

    #[test]
    fn folder_scope_covers_only_its_content() {
        let folder: ScopePattern = "write:mcp:disk:file:etc".parse().unwrap();
        let covers = |path: &str| {
            let server_scope: Scope = format!("write:file:{path}").parse().unwrap();
            folder.covers(&local_scope(&server_scope, "disk").unwrap())
        };
        assert!(covers("/etc") && covers("/etc/passwd") && covers("//etc/./passwd"));
        assert!(!covers("/etc2") && !covers("/etc:passwd") && !covers("/x/etc"));
    }

    #[test]
    fn unreadable_scopes_are_not_requested() {
        for wrong in [
            json!({}),
            json!({"requested_scopes": []}),
            json!({"requested_scopes": "write:file:/a"}),
            json!({"requested_scopes": [1]}),
            json!({"requested_scopes": ["write:file:/a", "*"]}),
            json!({"requested_scopes": ["write"]}),
            json!({"requested_scopes": ["write:file:/a/../b"]}),
            json!({"requested_scopes": ["write:edit:x"]}),
            json!({"requested_scopes": vec!["read:clock"; 65]}),
        ] {
            check(&wrong, None);
        }
    }
}
