//! What a server's refusal asks for in, the same as needs of this runtime out.
//!
//! What a server asks for is asked in its own name, so that a grant for one server is none for another, nor for the tools
//! of this runtime: its `write:file:/a/b` is `write:mcp:SERVER:file:a:b` here. The names of a path are segments, so that
//! policies and grants of a folder cover what is in it; `%`, `:` and `*` in a name are `%25`, `%3A` and `%2A`.

use rmcp::model::MetaObject;

use super::classify::meta_value;
use crate::scope::{Detail, Scope};

/// The most scopes that one answer may ask for, and the longest, in bytes.
const MAX_SCOPES: usize = 64;
const MAX_SCOPE_BYTES: usize = 4096;

/// What a refusal with `meta` asks for, in the server's words and as needs; none if there is nothing that can be asked.
/// What `is_tool` names could be read as a tool's.
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
        let theirs: Scope = text.parse().ok()?;
        if is_tool(theirs.resource().as_str()) {
            return None;
        }
        read.push((text.to_owned(), local_scope(&theirs, label)?));
    }
    Some(read.into_iter().unzip())
}

/// What a scope of `server` is called here.
fn local_scope(theirs: &Scope, server: &str) -> Option<Scope> {
    let (verb, resource) = (theirs.verb(), theirs.resource().as_str());
    let mut text = format!("{verb}:mcp:{server}:{resource}");
    match theirs.detail() {
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
    use crate::scope::ScopePattern;

    #[track_caller]
    fn check(meta: &Value, expected: Option<&[&str]>) {
        let meta: MetaObject = serde_json::from_value(meta.clone()).unwrap();
        let ours = requested_scopes(&meta, "disk", |name| name == "edit").map(|(_, needs)| needs);
        let ours = ours.map(|needs| needs.iter().map(ToString::to_string).collect::<Vec<_>>());
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(ours, expected, "{meta:?}");
    }

    #[test]
    fn what_a_server_asks_for_is_asked_in_its_name() {
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
    fn a_folder_of_a_server_covers_what_is_in_it_and_nothing_else() {
        let folder: ScopePattern = "write:mcp:disk:file:etc".parse().unwrap();
        let covers = |path: &str| {
            let theirs: Scope = format!("write:file:{path}").parse().unwrap();
            folder.covers(&local_scope(&theirs, "disk").unwrap())
        };
        assert!(covers("/etc") && covers("/etc/passwd") && covers("//etc/./passwd"));
        assert!(!covers("/etc2") && !covers("/etc:passwd") && !covers("/x/etc"));
    }

    #[test]
    fn what_cannot_be_read_is_not_asked_for() {
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
