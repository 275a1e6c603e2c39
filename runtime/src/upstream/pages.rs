//! A list that comes in pages, each with the cursor of the next, in; its first items out.

use rmcp::model::PaginatedRequestParams;

/// The first `most` items, of `pages` pages at most.
pub(super) async fn paged<T, E, F>(
    most: usize,
    pages: usize,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), E>>,
{
    let mut all = Vec::new();
    let mut next = PaginatedRequestParams::default();
    for _ in 0..pages {
        let (items, cursor) = page(next.clone()).await?;
        all.extend(items);
        next.cursor = cursor;
        if next.cursor.is_none() || all.len() >= most {
            break;
        }
    }
    all.truncate(most);
    Ok(all)
}
