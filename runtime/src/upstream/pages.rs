//! A list that comes in pages, each with the cursor of the next, in; all of it out, or that it is too much.

use std::io;

use rmcp::model::PaginatedRequestParams;
use serde::Serialize;

/// The most pages of a list that are asked for.
const MOST_PAGES: usize = 64;

/// How much a list may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) items: usize,
    /// As JSON, all pages together.
    pub(super) bytes: usize,
}

/// Why there is no list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unpaged<E> {
    /// A page was not answered.
    Page(E),
    /// It holds more, or comes in more pages, than it may.
    TooMuch,
}

/// All items, one page after the other. A list that was cut would look like one that is whole.
pub(super) async fn paged<T: Serialize, E, F>(
    most: Most,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, Unpaged<E>>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), E>>,
{
    let mut all = Vec::new();
    let mut weight = Weight::up_to(most.bytes);
    let mut next = PaginatedRequestParams::default();
    for _ in 0..MOST_PAGES {
        let (items, cursor) = page(next.clone()).await.map_err(Unpaged::Page)?;
        let fits = all.len() + items.len() <= most.items;
        if !fits || !items.iter().all(|item| weight.takes(item)) {
            return Err(Unpaged::TooMuch);
        }
        all.extend(items);
        next.cursor = cursor;
        if next.cursor.is_none() {
            return Ok(all);
        }
    }
    Err(Unpaged::TooMuch)
}

/// Takes so many bytes and no more, and keeps none.
pub(crate) struct Weight {
    left: usize,
}

impl Weight {
    pub(crate) fn up_to(most: usize) -> Self {
        Self { left: most }
    }

    /// Whether there was room for it, as JSON.
    pub(crate) fn takes(&mut self, item: &impl Serialize) -> bool {
        serde_json::to_writer(self, item).is_ok()
    }
}

impl io::Write for Weight {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
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
    async fn listed(pages: usize, items: usize, bytes: usize) -> Result<usize, Unpaged<()>> {
        let most = Most { items, bytes };
        let all = paged(most, |page: PaginatedRequestParams| async move {
            let at: usize = page.cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let cursor = (at + 1 < pages).then(|| (at + 1).to_string());
            Ok((vec!["ab", "cd"], cursor))
        });
        all.await.map(|all| all.len())
    }

    #[tokio::test]
    async fn a_list_is_whole_or_refused() {
        assert_eq!(listed(3, 6, 24).await, Ok(6));
        assert_eq!(listed(3, 5, 24).await, Err(Unpaged::TooMuch));
        assert_eq!(listed(3, 6, 23).await, Err(Unpaged::TooMuch));
    }

    #[tokio::test]
    async fn a_list_without_end_is_refused() {
        assert_eq!(listed(MOST_PAGES, 999, 9999).await, Ok(MOST_PAGES * 2));
        assert_eq!(
            listed(MOST_PAGES + 1, 999, 9999).await,
            Err(Unpaged::TooMuch)
        );
    }
}
