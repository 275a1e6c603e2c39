//! Marks that pin scope patterns to the current form of third-party servers and tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ScopePattern;

/// The marks of third-party servers and their tools.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
pub struct Marks {
    /// Each server, as `SERVER~MARK`.
    #[doc(hidden)]
    pub servers: Vec<Arc<str>>,
    /// The mark of each listed tool, by `SERVER~MARK:TOOL`; withheld tools have none.
    #[doc(hidden)]
    pub tools: BTreeMap<String, Option<String>>,
}

impl Marks {
    /// Adds the current marks of the server and tool to `pattern`. Names that are not tools of the server are scopes
    /// that the server requests, which have no marks.
    ///
    /// # Errors
    /// The unknown name.
    pub(crate) fn marked(&self, pattern: &ScopePattern) -> Result<ScopePattern, String> {
        let Some(segments) = pattern.mcp() else {
            return Ok(pattern.clone());
        };
        let (server, rest) = segments.split_once(':').unwrap_or((segments, ""));
        let named = |label: &&Arc<str>| {
            label
                .split_once('~')
                .is_some_and(|(name, _)| name == server)
        };
        let label = match self.servers.iter().find(named) {
            Some(label) => label,
            None if server.contains('~') => server,
            None => return Err(server.to_owned()),
        };
        if rest.is_empty() {
            return Ok(pattern.with_segments(label));
        }
        let (tool, more) = rest.split_once(':').unwrap_or((rest, ""));
        let whole = format!("{label}:{tool}");
        let mut whole = match self.tools.get(&whole) {
            Some(Some(mark)) => format!("{whole}~{mark}"),
            Some(None) => return Err(format!("{server}:{tool}")),
            None => whole,
        };
        if !more.is_empty() {
            whole = format!("{whole}:{more}");
        }
        Ok(pattern.with_segments(&whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks {
            servers: vec!["disk~1".into(), "hub~2".into()],
            tools: BTreeMap::from([
                ("disk~1:edit".to_owned(), Some("7".to_owned())),
                ("disk~1:gone".to_owned(), None),
            ]),
        }
    }

    #[track_caller]
    fn check(pattern: &str, expected: Result<&str, &str>) {
        let marked = marks().marked(&pattern.parse().unwrap());
        let marked = marked.map(|pattern| pattern.to_string());
        assert_eq!(
            marked.as_deref().map_err(String::as_str),
            expected,
            "{pattern}"
        );
    }

    #[test]
    fn names_get_the_current_marks() {
        check("write:mcp:disk", Ok("write:mcp:disk~1"));
        check("*:mcp:hub", Ok("*:mcp:hub~2"));
        check("write:mcp:disk:edit", Ok("write:mcp:disk~1:edit~7"));
        check("write:mcp:disk~1:edit", Ok("write:mcp:disk~1:edit~7"));
        check("write:mcp:disk:file:a", Ok("write:mcp:disk~1:file:a"));
    }

    #[test]
    fn patterns_without_server_or_with_marks_are_unchanged() {
        for pattern in [
            "write",
            "write:mcp",
            "write:file:/disk",
            "write:clock:disk",
            "write:mcp:disk~1:edit~7",
            "write:mcp:disk~9",
            "write:mcp:disk~9:edit",
        ] {
            check(pattern, Ok(pattern));
        }
        let none = Marks::default().marked(&"write:mcp:disk".parse().unwrap());
        assert_eq!(none, Err("disk".to_owned()), "there is no server at all");
    }

    #[test]
    fn unknown_server_or_tool_is_rejected_by_name() {
        check("write:mcp:dis", Err("dis"));
        check("write:mcp:other:edit", Err("other"));
        check("write:mcp:disk:gone", Err("disk:gone"));
    }
}
