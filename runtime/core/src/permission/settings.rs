//! Filters and narrowing of grants.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grants::GrantView;
use super::{GrantHolder, as_millis, is_at_or_beneath, millis};
use crate::id::WorkerId;
use crate::scope::{Coverage, Operations, Reach, Scope, ScopePattern, Verb};

/// Selects grants that match all fields that are set. An empty filter selects all grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantFilter {
    /// Held by the agent with this path or by a descendant. Grants that end with a session or a worker name no agent.
    pub agent: Option<Arc<str>>,
    /// Ends with this session.
    pub session: Option<Arc<str>>,
    /// Ends with this worker.
    pub worker: Option<WorkerId>,
    /// Allows this verb, alone or among others.
    pub verb: Option<Verb>,
    /// Overlaps this pattern.
    pub touches: Option<ScopePattern>,
}

impl GrantFilter {
    /// Returns whether the grant matches.
    #[must_use]
    pub fn admits(&self, grant: &GrantView) -> bool {
        let Self {
            agent,
            session,
            worker,
            verb,
            touches,
        } = self;
        let (held, of, by) = match &grant.holder {
            GrantHolder::Agent(held) => (Some(held), None, None),
            GrantHolder::Session { session, worker } => (None, Some(session), Some(*worker)),
            GrantHolder::Worker(worker) => (None, None, Some(*worker)),
        };
        agent
            .as_ref()
            .is_none_or(|agent| held.is_some_and(|held| is_at_or_beneath(held, agent)))
            && session.as_ref().is_none_or(|session| of == Some(session))
            && worker.is_none_or(|worker| by == Some(worker))
            && verb.is_none_or(|verb| grant.pattern.pattern().verb().is_none_or(|of| of == verb))
            && touches
                .as_ref()
                .is_none_or(|touches| touches.overlaps(grant.pattern.pattern()))
    }
}

/// Change of a grant, which can only narrow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Narrowing {
    /// The new pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<ScopePattern>,
    /// The new reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
    /// The new operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Operations>,
    /// The new number of remaining uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<NonZeroU32>,
    /// The new lifetime, from now on.
    #[serde(rename = "for_ms", with = "maybe_millis")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
    /// Whether the holder's descendants lose it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holder_only: bool,
}

impl Narrowing {
    /// Whether the change would leave `grant` no wider than it is at `now`.
    pub(crate) fn narrows(&self, grant: &GrantView, now: Duration) -> bool {
        let Self {
            pattern: _,
            reach: _,
            operations: _,
            uses,
            time,
            holder_only: _,
        } = self;
        self.left_of(&grant.pattern).is_some()
            && uses.is_none_or(|uses| grant.uses_left.is_none_or(|left| uses.get() <= left))
            && time.is_none_or(|time| {
                grant
                    .expires_at
                    .is_none_or(|end| now.saturating_add(time) <= end)
            })
    }

    /// What a grant of `held` would cover after the change; `None` if that is nothing, or wider than `held`.
    pub(crate) fn left_of(&self, held: &Coverage) -> Option<Coverage> {
        let pattern = self.pattern.as_ref().unwrap_or(held.pattern());
        let reach = self.reach.unwrap_or(held.reach());
        let operations = self.operations.unwrap_or(held.operations());
        let left = Coverage::new(pattern.clone(), reach, operations)?;
        held.includes(&left).then_some(left)
    }

    /// Whether the change names a protected file that a grant of `held` does not name: a grant of a folder does not cover
    /// the protected files in it.
    pub(crate) fn uncovers(&self, held: &Coverage, protects: impl FnOnce(&Scope) -> bool) -> bool {
        let named = self.pattern.as_ref().and_then(ScopePattern::path);
        named.is_some_and(|path| {
            held.path() != Some(path) && protects(&Scope::file(Verb::Write, path.clone()))
        })
    }

    /// Whether calls that already use `grant` may exceed it after the change.
    pub(crate) fn cuts(&self, grant: &GrantView) -> bool {
        let other = self.left_of(&grant.pattern).as_ref() != Some(&grant.pattern);
        other || (self.holder_only && grant.descendants)
    }
}

/// (De)serialises a duration, if there is one, in milliseconds.
mod maybe_millis {
    use super::{Duration, as_millis, millis};
    use serde::{Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(millis).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        as_millis::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::GrantId;

    const NOW: Duration = Duration::from_secs(100);

    fn grant(pattern: &str, holder: GrantHolder) -> GrantView {
        GrantView {
            id: GrantId(1),
            pattern: pattern.parse().unwrap(),
            holder,
            descendants: true,
            uses_left: Some(3),
            expires_at: Some(NOW + Duration::from_secs(10)),
            used: 0,
            given_at_ms: 0,
        }
    }

    #[test]
    fn every_condition_of_a_filter_must_hold() {
        let worker = GrantHolder::Worker(WorkerId(1));
        let session = GrantHolder::Session {
            session: "s".into(),
            worker: WorkerId(1),
        };
        let agent = GrantHolder::Agent("main/tests".into());
        let check = |filter: &GrantFilter, expected: [bool; 3]| {
            let got = [&worker, &session, &agent]
                .map(|holder| filter.admits(&grant("write:file:/r/a", holder.clone())));
            assert_eq!(got, expected, "{filter:?}");
        };
        let all = GrantFilter::default;
        check(&all(), [true; 3]);
        let of_agent = |path: &str| GrantFilter {
            agent: Some(path.into()),
            ..all()
        };
        check(&of_agent("main/tests"), [false, false, true]);
        check(&of_agent("main"), [false, false, true]);
        check(&of_agent("main/test"), [false; 3]);
        check(&of_agent("main/tests/unit"), [false; 3]);
        let of_session = |name: &str| GrantFilter {
            session: Some(name.into()),
            ..all()
        };
        check(&of_session("s"), [false, true, false]);
        check(&of_session("t"), [false; 3]);
        let of_worker = |id| GrantFilter {
            worker: Some(WorkerId(id)),
            ..all()
        };
        check(&of_worker(1), [true, true, false]);
        check(&of_worker(2), [false; 3]);
        let of_verb = |verb| GrantFilter {
            verb: Some(verb),
            ..of_worker(1)
        };
        check(&of_verb(Verb::Write), [true, true, false]);
        check(&of_verb(Verb::Read), [false; 3]);
        let touches = |pattern: &str| GrantFilter {
            touches: Some(pattern.parse().unwrap()),
            ..all()
        };
        check(&touches("*:file:/r"), [true; 3]);
        check(&touches("write:file:/r/a/b"), [true; 3]);
        check(&touches("write:file:/r/b"), [false; 3]);
    }

    #[test]
    fn narrowing_closes_gates_of_calls_with_wider_grants() {
        let admits = |filter: &GrantFilter, pattern: &str| {
            filter.admits(&grant(pattern, GrantHolder::Worker(WorkerId(1))))
        };
        let writing = GrantFilter {
            verb: Some(Verb::Write),
            ..GrantFilter::default()
        };
        for (pattern, expected) in [
            ("write:file:/r", true),
            ("*:file:/r", true),
            ("*", true),
            ("read:file:/r", false),
        ] {
            assert_eq!(admits(&writing, pattern), expected, "{pattern}");
        }
        let folder = GrantFilter {
            touches: Some("write:file:/r/a".parse().unwrap()),
            ..GrantFilter::default()
        };
        for (pattern, expected) in [
            ("write:file:/r/a/b", true),
            ("*:file:/r", true),
            ("write", true),
            ("write:file:/r/ab", false),
            ("read:file:/r/a", false),
            ("write:mcp:a", false),
        ] {
            assert_eq!(admits(&folder, pattern), expected, "{pattern}");
        }
    }

    #[track_caller]
    fn check(change: &Narrowing, narrows: bool) {
        let grant = grant("write:file:/r/a", GrantHolder::Worker(WorkerId(1)));
        assert_eq!(change.narrows(&grant, NOW), narrows, "{change:?}");
    }

    #[test]
    fn narrowing_never_widens_a_grant() {
        let none = Narrowing::default;
        check(&none(), true);
        let pattern = |text: &str| Narrowing {
            pattern: Some(text.parse().unwrap()),
            ..none()
        };
        check(&pattern("write:file:/r/a/b"), true);
        check(&pattern("write:file:/r/a"), true);
        check(&pattern("write:file:/r"), false);
        check(&pattern("*:file:/r/a"), false);
        check(&pattern("read:file:/r/a"), false);
        let uses = |count| Narrowing {
            uses: NonZeroU32::new(count),
            ..none()
        };
        check(&uses(3), true);
        check(&uses(4), false);
        let time = |seconds| Narrowing {
            time: Some(Duration::from_secs(seconds)),
            ..none()
        };
        check(&time(10), true);
        check(&time(11), false);
        check(
            &Narrowing {
                uses: NonZeroU32::new(4),
                ..pattern("write:file:/r/a/b")
            },
            false,
        );
    }

    #[test]
    fn narrowing_round_trips_through_json() {
        let change = Narrowing {
            pattern: Some("read:file:/r".parse().unwrap()),
            reach: Some(Reach::Exact),
            operations: Some(Operations::of(Some(Verb::Read))),
            uses: NonZeroU32::new(2),
            time: Some(Duration::from_secs(1)),
            holder_only: true,
        };
        let text = r#"{"pattern":"read:file:/r","reach":"exact","operations":["read"],"uses":2,"for_ms":1000,"holder_only":true}"#;
        assert_eq!(serde_json::to_string(&change).unwrap(), text);
        assert_eq!(serde_json::from_str::<Narrowing>(text).unwrap(), change);
        assert_eq!(
            serde_json::from_str::<Narrowing>("{}").unwrap(),
            Narrowing::default()
        );
    }
}
