//! Approvers, which answer questions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::{Answer, Lifetime, Question};
use crate::scope::ScopePattern;

/// A future answer.
pub type Deciding<'q> = Pin<Box<dyn Future<Output = Answer> + Send + 'q>>;

/// Answers questions. Implemented by [`DenyAll`], [`Scripted`], [`Terminal`](super::Terminal), [`Deferred`] and hosts
/// with a user interface of their own.
///
/// Each question is decided on its own task, so a slow answer does not delay others. The future is dropped if the
/// question ends without it, for example because it expires.
///
/// The call is denied, as the host's decision and with the reason as the note, if `decide` panics or the answer cannot be
/// used: it must cover all needs ([`Request::needs`](super::Request::needs)), cover no more than
/// [`Request::max_grantable`](super::Request::max_grantable), last longer than no time, grant at most 20 patterns beyond the
/// call, and exclude only parts that [`Request::check_excluded`](super::Request::check_excluded) accepts.
///
/// ```
/// use bailiwick::permission::Deciding;
/// use bailiwick::{Answer, Approver, Question};
///
/// /// Allows calls of one agent once, and denies all others.
/// struct Trusts {
///     agent: String,
/// }
///
/// impl Approver for Trusts {
///     fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
///         Box::pin(async move {
///             let trusted = question.request.agent_path.last() == Some(&self.agent);
///             if trusted { Answer::ONCE } else { Answer::DENY }
///         })
///     }
///
///     fn is_person(&self, _: &Answer) -> bool {
///         false // a program decides
///     }
/// }
///
/// let builder = bailiwick::Runtime::builder().approver(Trusts { agent: "editor".to_owned() });
/// # let _ = builder;
/// ```
pub trait Approver: Send + Sync + 'static {
    /// Decides on `question`. The answer is ignored if the question has ended meanwhile.
    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q>;

    /// Returns whether a person gave `answer`, which this approver returned. This determines whether the audit and the
    /// agent are told that a person decided, or that the host did.
    fn is_person(&self, answer: &Answer) -> bool;

    /// Returns whether this approver leaves all answers to the holder of the [`GrantAuthority`](super::GrantAuthority).
    /// Once the authority is dropped, its questions are denied at once.
    fn needs_authority(&self) -> bool {
        false
    }
}

/// Denies everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenyAll;

impl Approver for DenyAll {
    fn is_person(&self, _: &Answer) -> bool {
        false
    }

    fn decide<'q>(&'q self, _: &'q Question) -> Deciding<'q> {
        Box::pin(std::future::ready(Answer::DENY))
    }
}

/// Leaves questions open until the holder of the [`GrantAuthority`](super::GrantAuthority) answers them. Once the
/// authority is dropped, they are denied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deferred;

impl Approver for Deferred {
    fn is_person(&self, _: &Answer) -> bool {
        false
    }

    fn decide<'q>(&'q self, _: &'q Question) -> Deciding<'q> {
        Box::pin(std::future::pending())
    }

    fn needs_authority(&self) -> bool {
        true
    }
}

type Rule = Box<dyn Fn(&Question) -> Option<Answer> + Send + Sync>;

/// Answers by rules, for tests and for hosts without a person. The first matching rule decides; if none matches, the
/// answer is a denial.
///
/// ```
/// use bailiwick::permission::Lifetime;
/// use bailiwick::Scripted;
/// let docs_may_change = Scripted::new().allow("write:file:/repo/docs".parse()?, Lifetime::Session);
/// # Ok::<(), bailiwick::scope::ScopeError>(())
/// ```
#[derive(Default)]
pub struct Scripted {
    rules: Vec<Rule>,
}

impl Scripted {
    /// Creates an approver without rules, which denies everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule that allows exactly what is asked, for `lifetime`, if `pattern` covers all of it.
    #[must_use]
    pub fn allow(self, pattern: ScopePattern, lifetime: Lifetime) -> Self {
        self.rule(move |question| {
            let mut needs = question.request.needs.iter();
            let covered = needs.all(|need| pattern.covers(need));
            covered.then(|| Answer::allow(lifetime))
        })
    }

    /// Adds a rule that returns an answer, or `None` to try the next one.
    #[must_use]
    pub fn rule(
        mut self,
        rule: impl Fn(&Question) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push(Box::new(rule));
        self
    }
}

impl Approver for Scripted {
    fn is_person(&self, _: &Answer) -> bool {
        false
    }

    fn decide<'q>(&'q self, question: &'q Question) -> Deciding<'q> {
        Box::pin(async move {
            self.rules
                .iter()
                .find_map(|rule| rule(question))
                .unwrap_or(Answer::DENY)
        })
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("rules", &self.rules.len())
            .finish()
    }
}
