//! Parts of an artifact set, stored or rendered on demand.

use std::sync::Arc;

use bytes::Bytes;

use super::review::{OldTexts, Review, RowRange};
use super::store::Kind;
use crate::error::CallError;
use crate::error::Code;

/// The artifacts of one call.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) kept: Vec<(Kind, Bytes)>,
    /// Data that pages are rendered from.
    pub(crate) review: Option<(Arc<Review>, OldTexts)>,
}

impl Parts {
    /// Their size in bytes, and the part of it that old texts take.
    pub(super) fn size(&self) -> (usize, usize) {
        let kept = self.kept.iter().map(|(_, bytes)| bytes.len()).sum();
        if let Some((review, around)) = &self.review {
            let old = around.iter().flatten().map(Bytes::len).sum();
            return (kept + review.size() + old, old);
        }
        (kept, 0)
    }

    pub(super) fn forget_old_texts(&mut self) {
        if let Some((_, around)) = &mut self.review {
            *around = OldTexts::default();
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let review = self.review.as_ref().map(|_| Kind::Review);
        review
            .into_iter()
            .chain(self.kept.iter().map(|(kind, _)| *kind))
    }

    /// The artifact of that kind.
    pub(super) fn part(&self, kind: Kind) -> Option<Part> {
        if let (Kind::Review | Kind::Rows, Some((review, around))) = (kind, &self.review) {
            return Some(Part::Review(Arc::clone(review), Arc::clone(around)));
        }
        let mut kept = self.kept.iter();
        let (_, bytes) = kept.find(|(part, _)| *part == kind)?;
        Some(Part::Kept(bytes.clone()))
    }
}

/// One stored artifact.
pub(super) enum Part {
    Kept(Bytes),
    Review(Arc<Review>, OldTexts),
}

impl Part {
    /// The content at `uri`; `None` if there are no such rows.
    ///
    /// # Errors
    /// `INTERNAL` if it cannot be serialised, which is a bug of this library.
    pub(super) fn bytes(self, at: &At<'_>) -> Result<Option<Bytes>, CallError> {
        match self {
            Self::Kept(bytes) => Ok(at.query.is_none().then_some(bytes)),
            Self::Review(review, around) => at.made(&review, &around),
        }
    }
}

/// Selects the part of an artifact to read.
pub(super) struct At<'u> {
    pub(super) kind: Kind,
    /// The query of the URI.
    pub(super) query: Option<&'u str>,
    /// URI of the call's review.
    pub(super) page: String,
}

impl At<'_> {
    fn made(&self, review: &Review, around: &OldTexts) -> Result<Option<Bytes>, CallError> {
        let made = match (self.kind, self.query) {
            (Kind::Rows, Some(query)) => {
                let rows = RowRange::parse(query).and_then(|wanted| review.rows(wanted, around));
                rows.transpose().map(|rows| rows.map(Bytes::from))
            }
            _ => review
                .data(&self.page, around)
                .map(|data| Some(data.into())),
        };
        let fault = |error| format!("the review is no JSON: {error}");
        made.map_err(|error| CallError::new(Code::Internal, fault(error)))
    }
}
