//! A list and a cursor in, one page and where it goes on out.

use rmcp::ErrorData;
use rmcp::model::PaginatedRequestParams;

/// How many items one page holds.
pub(super) const PAGE: usize = 100;

/// The page that a client asks for.
///
/// A cursor is a position; a list that grows or shrinks between two pages may show an item twice or not at all, as
/// MCP allows.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_concatenate_to_the_whole_and_a_bad_cursor_is_an_error() {
        let all: Vec<usize> = (0..250).collect();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let request = PaginatedRequestParams::default().with_cursor(cursor);
            let (items, next) = page(all.clone(), Some(&request)).unwrap();
            seen.extend(items);
            match next {
                None => break,
                next => cursor = next,
            }
        }
        assert_eq!(seen, all);
        for bad in ["", "x", "at-0", "at-251", "at--1", "100"] {
            let request = PaginatedRequestParams::default().with_cursor(Some(bad.into()));
            assert!(page(all.clone(), Some(&request)).is_err(), "{bad}");
        }
    }
}
