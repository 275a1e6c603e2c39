//! Cursor pagination of lists.

use rmcp::ErrorData;
use rmcp::model::PaginatedRequestParams;

/// Items per page.
pub(super) const PAGE: usize = 100;

/// The page that a client requests.
///
/// A cursor is an index; if the list changes between two pages, an item may be repeated or missing, as MCP allows.
pub(super) fn page<T>(
    items: Vec<T>,
    request: Option<&PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let cursor = request.and_then(|request| request.cursor.as_deref());
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let at = cursor.strip_prefix("at-").and_then(|at| at.parse().ok());
            at.filter(|at| *at > 0 && *at <= items.len())
                .ok_or_else(|| ErrorData::invalid_params("there is no such cursor", None))?
        }
    };
    let end = start.saturating_add(PAGE);
    let next = (end < items.len()).then(|| format!("at-{end}"));
    Ok((items.into_iter().skip(start).take(PAGE).collect(), next))
}

/// The MCP list result `$result` with the requested page of `$items`, marked as private and not cacheable.
macro_rules! listed {
    ($result:ident, $items:expr, $request:expr) => {{
        let (items, next) = $crate::gateway::pagination::page($items, $request)?;
        let mut result = $result::with_all_items(items)
            .with_ttl_ms(0)
            .with_cache_scope(rmcp::model::CacheScope::Private);
        result.next_cursor = next;
        result
    }};
}
pub(super) use listed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_concatenate_and_bad_cursors_are_errors() {
        let all: Vec<usize> = (0..250).collect();
        let (mut collected, mut cursor) = (Vec::new(), None);
        loop {
            let request = PaginatedRequestParams::default().with_cursor(cursor);
            let (items, next) = page(all.clone(), Some(&request)).unwrap();
            collected.extend(items);
            match next {
                None => break,
                next => cursor = next,
            }
        }
        assert_eq!(collected, all);
        for bad in ["", "x", "at-0", "at-251", "at--1", "100"] {
            let request = PaginatedRequestParams::default().with_cursor(Some(bad.into()));
            assert!(page(all.clone(), Some(&request)).is_err(), "{bad}");
        }
    }
}
