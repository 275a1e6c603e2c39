//! A list that comes in pages, each with the cursor of the next, in; all of it out, or that it is too much.

use std::io;

use rmcp::model::PaginatedRequestParams;
use serde::Serialize;

/// The most pages of a list that are asked for.
const MAX_PAGES: usize = 64;

/// How much a list may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLimit {
    pub(super) items: usize,
    /// As JSON, all pages together.
    pub(super) bytes: usize,
}

/// Why there is no list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListError<E> {
    /// A page was not answered.
    Page(E),
    /// It holds more, or comes in more pages, than it may.
    TooMuch,
}

/// All items, one page after the other. A list that was cut would look like one that is whole.
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

/// Takes so many bytes and no more, and keeps none.
pub(crate) struct SizeCounter {
    remaining: usize,
}

impl SizeCounter {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { remaining: limit }
    }

    /// Whether there was room for it, as JSON.
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
    async fn a_list_is_whole_or_refused() {
        assert_eq!(listed(3, 6, 24).await, Ok(6));
        assert_eq!(listed(3, 5, 24).await, Err(ListError::TooMuch));
        assert_eq!(listed(3, 6, 23).await, Err(ListError::TooMuch));
    }

    #[tokio::test]
    async fn a_list_without_end_is_refused() {
        assert_eq!(listed(MAX_PAGES, 999, 9999).await, Ok(MAX_PAGES * 2));
        assert_eq!(
            listed(MAX_PAGES + 1, 999, 9999).await,
            Err(ListError::TooMuch)
        );
    }
}
