//! Parts of an artifact set, stored or rendered on demand.

use std::sync::Arc;

use bytes::Bytes;

use super::review::{OldTexts, Review, RowRange};
use super::store::Kind;
use crate::error::{CallError, Code};

/// The artifacts of one call.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) kept: Vec<(Kind, Bytes)>,
    /// Data that pages are rendered from.
    pub(crate) review: Option<(Arc<Review>, OldTexts)>,
}

impl Parts {
    /// Their size in bytes.
    pub(super) fn size(&self) -> usize {
        let kept: usize = self.kept.iter().map(|(_, bytes)| bytes.len()).sum();
        let review = self.review.as_ref().map_or(0, |(review, _)| review.size());
        kept + review + self.old_size()
    }

    /// The part of their size that old texts take.
    pub(super) fn old_size(&self) -> usize {
        let old = self.review.iter().flat_map(|(_, around)| around.iter());
        old.flatten().map(Bytes::len).sum()
    }

    /// Drops the old texts. Returns their size.
    pub(super) fn forget_old_texts(&mut self) -> usize {
        let freed = self.old_size();
        if let Some((_, around)) = &mut self.review {
            *around = OldTexts::default();
        }
        freed
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let review = self.review.iter().flat_map(|(review, _)| review.kinds());
        review
            .copied()
            .chain(self.kept.iter().map(|(kind, _)| *kind))
    }

    /// The artifact of that kind.
    pub(super) fn part(&self, kind: Kind) -> Option<Part> {
        if let Some((review, around)) = &self.review {
            let of_page = matches!(kind, Kind::Review | Kind::Rows);
            let listed = if of_page { Kind::Review } else { kind };
            if review.kinds().contains(&listed) {
                return Some(Part::Made(kind, Arc::clone(review), Arc::clone(around)));
            }
        }
        let mut kept = self.kept.iter();
        let (_, bytes) = kept.find(|(part, _)| *part == kind)?;
        Some(Part::Kept(bytes.clone()))
    }
}

/// One stored artifact.
pub(super) enum Part {
    Kept(Bytes),
    /// Rendered from the review.
    Made(Kind, Arc<Review>, OldTexts),
}

impl Part {
    /// The content; with a `query`, only the rows that it selects, or `None` if it selects none. `page` is the URI of the
    /// call's review.
    ///
    /// # Errors
    /// `INTERNAL` if it cannot be serialised, which is a bug of this library.
    pub(super) fn bytes(self, query: Option<&str>, page: &str) -> Result<Option<Bytes>, CallError> {
        let made = match (self, query) {
            (Self::Kept(bytes), None) => return Ok(Some(bytes)),
            (Self::Kept(_), Some(_)) => return Ok(None),
            (Self::Made(Kind::Diff, review, _), None) => Ok(Some(review.diff())),
            (Self::Made(Kind::Json, review, _), None) => review.json().map(Some),
            (Self::Made(_, review, around), None) => review.data(page, &around).map(Some),
            (Self::Made(_, review, around), Some(query)) => RowRange::parse(query)
                .and_then(|wanted| review.rows(wanted, &around))
                .transpose(),
        };
        let fault = |error| format!("cannot write the changes as JSON: {error}");
        let made = made.map_err(|error| CallError::new(Code::Internal, fault(error)))?;
        Ok(made.map(Bytes::from))
    }
}
