//! Boolean keys of a policy. Flags that allow something merge by `and`, flags that restrict by `or`.

use std::collections::BTreeMap;

use super::error::PolicyError;
use super::need::Need;
use super::verdict::{Rule, Ruling, Verdict};
use crate::scope::{Verb, words};

words! {
    /// A boolean key of a policy.
    pub enum Flag {
        /// A policy may set it to true only if the configuration does. If a configuration or policy sets it to false, paths
        /// outside all roots are denied, even if granted.
        AllowEscape = "allow_escape",
        /// Links are followed.
        FollowSymlinks = "follow_symlinks",
        /// Scopes of the resource `network` may be used.
        Network = "network",
        /// All changes are denied.
        ReadOnly = "read_only",
        /// Files with several hard links are rejected.
        StrictHardlinks = "strict_hardlinks",
        /// A change must have been previewed.
        RequirePreview = "require_preview",
        /// Every change requires approval; [`Authority::judge`](super::Authority::judge) returns `Ask` for it.
        RequireApproval = "require_approval",
    }
}

/// The flags that a policy sets; the others do not restrict.
pub(crate) type FlagFields = BTreeMap<Flag, bool>;

/// The flags that restrict, of one layer or of all layers together, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flag {
    /// The value that restricts.
    const fn restricting(self) -> bool {
        !matches!(
            self,
            Self::AllowEscape | Self::FollowSymlinks | Self::Network
        )
    }
}

impl Flags {
    pub(crate) fn compile(fields: &FlagFields) -> Self {
        let fields = fields.iter();
        fields.fold(Self::default(), |flags, (flag, value)| {
            flags.with(*flag, *value)
        })
    }

    /// These flags with `flag` set to `value`.
    #[must_use]
    pub(crate) fn with(self, flag: Flag, value: bool) -> Self {
        let bit = 1 << flag as u8;
        if value == flag.restricting() {
            Self(self.0 | bit)
        } else {
            Self(self.0 & !bit)
        }
    }

    /// The value of `flag`.
    pub(crate) fn get(self, flag: Flag) -> bool {
        let restricts = self.0 & (1 << flag as u8) != 0;
        restricts == flag.restricting()
    }

    #[must_use]
    pub(crate) fn tighter(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn judge(self, need: &Need<'_>) -> Ruling {
        let networked = need.scope().resource().is_network();
        let approval = if need.verb() != Verb::Read && self.get(Flag::RequireApproval) {
            Ruling::new(Verdict::Ask, Rule::Approval)
        } else {
            Ruling::OPEN
        };
        let network = networked && !self.get(Flag::Network);
        approval.tighter(Ruling::deny_if(network, Rule::Network))
    }
}

/// What turns the network on, for errors about the key `network`.
const NETWORK_OFF: &str = "is off in what the issuer holds; the host turns it on with `RuntimeBuilder::allow` of a scope of \
                           `network` or the configuration key `network`";

/// Rejects flags that allow what the issuer denies.
pub(crate) fn admit(fields: &FlagFields, held: Flags) -> Result<(), PolicyError> {
    let opens = |flag: Flag, value| value != flag.restricting() && value != held.get(flag);
    match fields.iter().find(|(flag, value)| opens(**flag, **value)) {
        Some((flag, value)) => Err(PolicyError::expansion(
            format!("/{}", flag.as_str()),
            match flag {
                Flag::Network => NETWORK_OFF,
                _ => "would undo what the issuer has set",
            },
            *value,
            !value,
        )),
        None => Ok(()),
    }
}
