//! Reads paginated lists of servers within limits.

use std::io;

use rmcp::model::PaginatedRequestParams;
use serde::Serialize;

/// The largest number of pages.
const MAX_PAGES: usize = 64;

/// The limits of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLimit {
    pub(super) items: usize,
    /// The size of all pages as JSON.
    pub(super) bytes: usize,
}

/// Why a list cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListError<E> {
    /// The request of a page failed.
    Page(E),
    /// The list exceeds a limit.
    TooMuch,
}

/// Returns all items of all pages. A list that exceeds the limits is an error, because a truncated list would look
/// complete.
pub(super) async fn list_all<T: Serialize, E, F>(
    limit: ListLimit,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, ListError<E>>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), E>>,
{
    let mut all = Vec::new();
    let mut size = SizeCounter::with_limit(limit.bytes);
    let mut next = PaginatedRequestParams::default();
    for _ in 0..MAX_PAGES {
        let (items, cursor) = page(next.clone()).await.map_err(ListError::Page)?;
        let fits = all.len() + items.len() <= limit.items;
        if !fits || !items.iter().all(|item| size.add(item)) {
            return Err(ListError::TooMuch);
        }
        all.extend(items);
        next.cursor = cursor;
        if next.cursor.is_none() {
            return Ok(all);
        }
    }
    Err(ListError::TooMuch)
}

/// A writer that counts bytes up to a limit and discards them.
pub(crate) struct SizeCounter {
    remaining: usize,
}

impl SizeCounter {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { remaining: limit }
    }

    /// Adds the size of `item` as JSON; false if it exceeds the limit.
    pub(crate) fn add(&mut self, item: &impl Serialize) -> bool {
        serde_json::to_writer(self, item).is_ok()
    }
}

impl io::Write for SizeCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let remaining = self.remaining.checked_sub(bytes.len());
        self.remaining = remaining.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of `pages` pages, each of two items of four bytes.
    async fn listed(pages: usize, items: usize, bytes: usize) -> Result<usize, ListError<()>> {
        let limit = ListLimit { items, bytes };
        let all = list_all(limit, |page: PaginatedRequestParams| async move {
            let at: usize = page.cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let cursor = (at + 1 < pages).then(|| (at + 1).to_string());
            Ok((vec!["ab", "cd"], cursor))
        });
        all.await.map(|all| all.len())
    }

    #[tokio::test]
    async fn list_is_complete_or_rejected() {
        assert_eq!(listed(3, 6, 24).await, Ok(6));
        assert_eq!(listed(3, 5, 24).await, Err(ListError::TooMuch));
        assert_eq!(listed(3, 6, 23).await, Err(ListError::TooMuch));
    }

    #[tokio::test]
    async fn endless_list_is_rejected() {
        assert_eq!(listed(MAX_PAGES, 999, 9999).await, Ok(MAX_PAGES * 2));
        assert_eq!(
            listed(MAX_PAGES + 1, 999, 9999).await,
            Err(ListError::TooMuch)
        );
    }
}
