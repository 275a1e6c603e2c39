//! Table of all keys of configuration and policy.

use super::{Audience, EnumKind, Key, KeyScope, Merge, ValueKind};

const fn any(
    key: &'static str,
    kind: ValueKind,
    merge: Merge,
    about: &'static str,
    example: &'static str,
) -> Key {
    Key {
        key,
        kind,
        scope: KeyScope::Any,
        audience: Audience::Any,
        merge,
        about,
        example,
    }
}

const fn configuration(field: Key) -> Key {
    Key {
        scope: KeyScope::Configuration,
        ..field
    }
}

const fn human(field: Key) -> Key {
    Key {
        audience: Audience::Human,
        ..field
    }
}

/// All keys, in the order of the documentation.
pub const KEYS: &[Key] = &[
    any(
        "roots",
        ValueKind::Objects,
        Merge::Roots,
        "The directories that may be used",
        r#"[{"path": "/home/me/repo"}]"#,
    ),
    any(
        "roots/path",
        ValueKind::Path,
        Merge::Roots,
        "The absolute path of the directory; in a policy, of a subtree",
        r#""/home/me/repo""#,
    ),
    configuration(any(
        "roots/default",
        ValueKind::Flag,
        Merge::Identity,
        "Relative paths begin here; without one they begin in the only root",
        "true",
    )),
    configuration(any(
        "roots/optional",
        ValueKind::Flag,
        Merge::Identity,
        "The other roots are served without this one if it cannot be opened",
        "true",
    )),
    configuration(any(
        "roots/access",
        ValueKind::OneOf(EnumKind::Access),
        Merge::Min,
        "`read` to look only, else files may be changed",
        r#""read""#,
    )),
    any(
        "roots/blocked",
        ValueKind::Flag,
        Merge::Or,
        "The subtree is closed",
        "true",
    ),
    any(
        "roots/allow",
        ValueKind::Globs,
        Merge::Intersection,
        "Globs of what is open in it; all of it if absent",
        r#"["src/**"]"#,
    ),
    any(
        "roots/deny",
        ValueKind::Globs,
        Merge::Union,
        "Globs of what nobody may touch in it",
        r#"[".env"]"#,
    ),
    any(
        "roots/immutable",
        ValueKind::Globs,
        Merge::Union,
        "Globs of what nobody may change in it",
        r#"["*.lock"]"#,
    ),
    any(
        "deny",
        ValueKind::Globs,
        Merge::Union,
        "Globs of what nobody may touch in any root; one without `/` is for names at any depth",
        r#"[".env", "*.{key,pem}"]"#,
    ),
    any(
        "immutable",
        ValueKind::Globs,
        Merge::Union,
        "Globs of what nobody may change in any root",
        r#"["*.lock"]"#,
    ),
    any(
        "allow_scopes",
        ValueKind::Patterns,
        Merge::Intersection,
        "Scopes that are allowed; what no scope list names is then denied",
        r#"["read:file", "write:file:/home/me/repo/src"]"#,
    ),
    any(
        "ask_scopes",
        ValueKind::Patterns,
        Merge::Intersection,
        "Scopes that a person is asked about",
        r#"["write:file"]"#,
    ),
    any(
        "deny_scopes",
        ValueKind::Patterns,
        Merge::Union,
        "Scopes that are denied",
        r#"["execute"]"#,
    ),
    any(
        "delegate_only",
        ValueKind::Patterns,
        Merge::Intersection,
        "Scopes that may be handed to children and not used",
        r#"["write:file:/home/me/repo"]"#,
    ),
    any(
        "otherwise",
        ValueKind::OneOf(EnumKind::Verdicts),
        Merge::Max,
        "The verdict on what no scope list names; if absent `deny` where there is a list that allows or asks, else `allow`",
        r#""ask""#,
    ),
    any(
        "tools",
        ValueKind::Names,
        Merge::Intersection,
        "The tools that may be called; all if absent",
        r#"["grep", "read_file"]"#,
    ),
    any(
        "verbs",
        ValueKind::ListOf(EnumKind::Verbs),
        Merge::Intersection,
        "The verbs that may be used",
        r#"["read"]"#,
    ),
    any(
        "write_modes",
        ValueKind::ListOf(EnumKind::WriteModes),
        Merge::Intersection,
        "The ways in which files may be written",
        r#"["create", "append"]"#,
    ),
    any(
        "access",
        ValueKind::OneOf(EnumKind::Access),
        Merge::Min,
        "How far a worker may go: `read`, `interact` or `full`",
        r#""interact""#,
    ),
    any(
        "allow_escape",
        ValueKind::Flag,
        Merge::And,
        "False denies what lies outside every root, even if granted; a policy may say true only where the configuration does",
        "false",
    ),
    any(
        "follow_symlinks",
        ValueKind::Flag,
        Merge::And,
        "Links are followed",
        "false",
    ),
    any(
        "network",
        ValueKind::Flag,
        Merge::And,
        "Scopes of the resource `network` may be used; MCP servers are governed by scopes of `mcp` alone",
        "true",
    ),
    any(
        "read_only",
        ValueKind::Flag,
        Merge::Or,
        "Nothing may be changed",
        "true",
    ),
    any(
        "strict_hardlinks",
        ValueKind::Flag,
        Merge::Or,
        "Files with more than one name (hard links) are neither read nor copied",
        "true",
    ),
    any(
        "require_preview",
        ValueKind::Flag,
        Merge::Or,
        "A change must have been previewed",
        "true",
    ),
    human(any(
        "require_approval",
        ValueKind::Flag,
        Merge::Or,
        "Every change needs a person",
        "true",
    )),
    any(
        "read_max_bytes",
        ValueKind::Count,
        Merge::Min,
        "The largest file or piece of a file returned; 0 is without limit",
        "65536",
    ),
    any(
        "write_max_bytes",
        ValueKind::Count,
        Merge::Min,
        "The largest file written; 0 is without limit",
        "1048576",
    ),
    any(
        "max_results",
        ValueKind::Count,
        Merge::Min,
        "The most entries in one answer; 0 is without limit",
        "100",
    ),
    any(
        "max_calls",
        ValueKind::Count,
        Merge::Min,
        "The most calls of a worker; 0 is without limit",
        "500",
    ),
    any(
        "ttl_ms",
        ValueKind::Count,
        Merge::Min,
        "How long a worker may live; 0 is without limit",
        "600000",
    ),
    any(
        "min_interval_ms",
        ValueKind::Count,
        Merge::Max,
        "The least time between two calls",
        "50",
    ),
    any(
        "budget",
        ValueKind::Object,
        Merge::Min,
        "What a worker and all beneath it may spend; a figure that is absent is without limit",
        r#"{"calls": 1000, "files_touched": 50}"#,
    ),
    any(
        "budget/calls",
        ValueKind::Count,
        Merge::Min,
        "Tool calls",
        "1000",
    ),
    any(
        "budget/bytes_written",
        ValueKind::Count,
        Merge::Min,
        "Bytes written",
        "10485760",
    ),
    any(
        "budget/files_touched",
        ValueKind::Count,
        Merge::Min,
        "Files and directories changed",
        "50",
    ),
    any(
        "budget/children",
        ValueKind::Count,
        Merge::Min,
        "Child workers, at any depth",
        "4",
    ),
    configuration(any(
        "grantable",
        ValueKind::Patterns,
        Merge::Identity,
        "Scopes that a person may grant beyond the roots",
        r#"["read:file:/home/me/other"]"#,
    )),
    configuration(any(
        "allow",
        ValueKind::Patterns,
        Merge::Identity,
        "Scopes other than of files that are allowed",
        r#"["read:mcp:notes"]"#,
    )),
    configuration(any(
        "protect",
        ValueKind::Globs,
        Merge::Union,
        "Globs of files that only a grant naming them lets change",
        r#"["deploy.toml"]"#,
    )),
    configuration(any(
        "strict",
        ValueKind::Flag,
        Merge::Or,
        "Refuse policies whose allow globs name more than their issuer's",
        "true",
    )),
    configuration(any(
        "restrictions",
        ValueKind::Objects,
        Merge::Union,
        "What is taken away from the rest of the configuration, as by an earlier source of it",
        r#"[{"roots": [{"path": "/home/me/repo", "access": "read"}]}]"#,
    )),
    configuration(any(
        "restrictions/roots",
        ValueKind::Objects,
        Merge::Roots,
        "Roots that open nothing; within each of them, its access and globs hold",
        r#"[{"path": "/home/me/repo", "access": "read"}]"#,
    )),
    configuration(any(
        "restrictions/policy",
        ValueKind::Policy,
        Merge::Intersection,
        "A policy that holds, too",
        r#"{"allow_scopes": ["read:file"]}"#,
    )),
];
