//! Boolean fields of a policy; those that open merge by `and`, those that close by `or`.

use serde::Serialize;

use super::error::PolicyError;
use super::need::Need;
use super::verdict::{Rule, Ruling, Verdict};
use crate::scope::{Resource, Verb};

/// The flags of a policy; absent flags do not restrict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FlagFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_escape: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) follow_symlinks: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) strict_hardlinks: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) require_preview: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) require_approval: Option<bool>,
}

/// The flags of one layer, or of all layers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub(crate) struct Flags {
    pub(crate) allow_escape: bool,
    pub(crate) follow_symlinks: bool,
    pub(crate) network: bool,
    pub(crate) read_only: bool,
    pub(crate) strict_hardlinks: bool,
    pub(crate) require_preview: bool,
    pub(crate) require_approval: bool,
}

impl FlagFields {
    /// The defaults of a configuration.
    pub(crate) fn configured(self) -> Self {
        Self {
            network: self.network.or(Some(false)),
            ..self
        }
    }

    pub(crate) fn compile(self) -> Flags {
        let Self {
            allow_escape,
            follow_symlinks,
            network,
            read_only,
            strict_hardlinks,
            require_preview,
            require_approval,
        } = self;
        Flags {
            allow_escape: allow_escape.unwrap_or(true),
            follow_symlinks: follow_symlinks.unwrap_or(true),
            network: network.unwrap_or(true),
            read_only: read_only.unwrap_or(false),
            strict_hardlinks: strict_hardlinks.unwrap_or(false),
            require_preview: require_preview.unwrap_or(false),
            require_approval: require_approval.unwrap_or(false),
        }
    }

    /// Rejects flags that open what the issuer has closed.
    pub(crate) fn admit(self, held: &Flags) -> Result<(), PolicyError> {
        let Self {
            allow_escape,
            follow_symlinks,
            network,
            read_only,
            strict_hardlinks,
            require_preview,
            require_approval,
        } = self;
        let opening = [
            ("allow_escape", allow_escape, held.allow_escape),
            ("follow_symlinks", follow_symlinks, held.follow_symlinks),
            ("network", network, held.network),
        ];
        let closing = [
            ("read_only", read_only, held.read_only),
            ("strict_hardlinks", strict_hardlinks, held.strict_hardlinks),
            ("require_preview", require_preview, held.require_preview),
            ("require_approval", require_approval, held.require_approval),
        ];
        let open = opening
            .into_iter()
            .find(|(_, wanted, held)| *wanted == Some(true) && !held);
        let close = closing
            .into_iter()
            .find(|(_, wanted, held)| *wanted == Some(false) && *held);
        match open.or(close) {
            Some((key, wanted, held)) => Err(PolicyError::expansion(
                format!("/{key}"),
                "would undo what the issuer has set",
                wanted,
                held,
            )),
            None => Ok(()),
        }
    }
}

impl Flags {
    #[must_use]
    pub(crate) fn tighter(self, other: Self) -> Self {
        let Self {
            allow_escape,
            follow_symlinks,
            network,
            read_only,
            strict_hardlinks,
            require_preview,
            require_approval,
        } = self;
        Self {
            allow_escape: allow_escape && other.allow_escape,
            follow_symlinks: follow_symlinks && other.follow_symlinks,
            network: network && other.network,
            read_only: read_only || other.read_only,
            strict_hardlinks: strict_hardlinks || other.strict_hardlinks,
            require_preview: require_preview || other.require_preview,
            require_approval: require_approval || other.require_approval,
        }
    }

    pub(crate) fn judge(self, need: &Need<'_>) -> Ruling {
        let changes = need.verb() != Verb::Read;
        let networked =
            matches!(need.scope().resource(), Resource::Other(name) if &**name == "network");
        let approval = if changes && self.require_approval {
            Ruling::new(Verdict::Ask, Rule::Approval)
        } else {
            Ruling::OPEN
        };
        approval
            .tighter(Ruling::deny_if(changes && self.read_only, Rule::ReadOnly))
            .tighter(Ruling::deny_if(networked && !self.network, Rule::Network))
    }
}

impl FlagFields {
    /// Each key, and whether the policy sets it.
    pub(crate) fn present(&self) -> [(&'static str, bool); 7] {
        let Self {
            allow_escape,
            follow_symlinks,
            network,
            read_only,
            strict_hardlinks,
            require_preview,
            require_approval,
        } = self;
        [
            ("allow_escape", allow_escape.is_some()),
            ("follow_symlinks", follow_symlinks.is_some()),
            ("network", network.is_some()),
            ("read_only", read_only.is_some()),
            ("strict_hardlinks", strict_hardlinks.is_some()),
            ("require_preview", require_preview.is_some()),
            ("require_approval", require_approval.is_some()),
        ]
    }
}
