//! Parts of an artifact set, stored or rendered on demand.

#[cfg(feature = "ui")]
use std::sync::Arc;

use bytes::Bytes;

#[cfg(feature = "ui")]
use super::review::{OldTexts, Review, RowRange};
use super::store::Kind;
use crate::error::CallError;
#[cfg(feature = "ui")]
use crate::error::Code;

/// The by-products of one call.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) kept: Vec<(Kind, Bytes)>,
    /// What a page is made of when somebody reads it.
    #[cfg(feature = "ui")]
    pub(crate) review: Option<(Arc<Review>, OldTexts)>,
}

impl Parts {
    /// How many bytes they hold, and how many of them are old texts.
    pub(super) fn size(&self) -> (usize, usize) {
        let kept = self.kept.iter().map(|(_, bytes)| bytes.len()).sum();
        #[cfg(feature = "ui")]
        if let Some((review, around)) = &self.review {
            let old = around.iter().flatten().map(Bytes::len).sum();
            return (kept + review.size() + old, old);
        }
        (kept, 0)
    }

    pub(super) fn forget_old_texts(&mut self) {
        #[cfg(feature = "ui")]
        if let Some((_, around)) = &mut self.review {
            *around = OldTexts::default();
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        #[cfg(feature = "ui")]
        let review = self.review.as_ref().map(|_| Kind::Review);
        #[cfg(not(feature = "ui"))]
        let review = None;
        review
            .into_iter()
            .chain(self.kept.iter().map(|(kind, _)| *kind))
    }

    /// The by-product of that kind.
    pub(super) fn part(&self, kind: Kind) -> Option<Part> {
        #[cfg(feature = "ui")]
        if let (Kind::Review | Kind::Rows, Some((review, around))) = (kind, &self.review) {
            return Some(Part::Review(Arc::clone(review), Arc::clone(around)));
        }
        let mut kept = self.kept.iter();
        let (_, bytes) = kept.find(|(part, _)| *part == kind)?;
        Some(Part::Kept(bytes.clone()))
    }
}

/// One by-product as it is kept.
pub(super) enum Part {
    Kept(Bytes),
    #[cfg(feature = "ui")]
    Review(Arc<Review>, OldTexts),
}

impl Part {
    /// The bytes, which stand at `uri`; none where there are no such rows.
    ///
    /// # Errors
    /// `INTERNAL` if it cannot be written as JSON, which is a fault of this library.
    pub(super) fn bytes(self, at: &At<'_>) -> Result<Option<Bytes>, CallError> {
        match self {
            Self::Kept(bytes) => Ok(at.query.is_none().then_some(bytes)),
            #[cfg(feature = "ui")]
            Self::Review(review, around) => at.made(&review, &around),
        }
    }
}

/// What of a by-product is read.
pub(super) struct At<'u> {
    #[cfg_attr(
        not(feature = "ui"),
        expect(dead_code, reason = "only pages differ by it")
    )]
    pub(super) kind: Kind,
    /// What follows the `?` of the address.
    pub(super) query: Option<&'u str>,
    /// Where the call's page stands.
    #[cfg_attr(not(feature = "ui"), expect(dead_code, reason = "only pages name it"))]
    pub(super) page: String,
}

#[cfg(feature = "ui")]
impl At<'_> {
    fn made(&self, review: &Review, around: &OldTexts) -> Result<Option<Bytes>, CallError> {
        let made = match (self.kind, self.query) {
            (Kind::Rows, None) => review
                .data(&self.page, around)
                .map(|data| Some(data.into())),
            (Kind::Rows, Some(query)) => {
                let rows = RowRange::parse(query).and_then(|wanted| review.rows(wanted, around));
                rows.transpose().map(|rows| rows.map(Bytes::from))
            }
            _ => review.page(&self.page, around).map(Some),
        };
        let fault = |error| format!("the review is no JSON: {error}");
        made.map_err(|error| CallError::new(Code::Internal, fault(error)))
    }
}
