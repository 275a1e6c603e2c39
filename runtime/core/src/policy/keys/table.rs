//! Table of all keys of configuration and policy.

use super::EnumKind::{Access, Verbs, Verdicts, WriteModes};
use super::ValueKind::{
    Count, Flag, Globs, ListOf, Names, Object, Objects, OneOf, Path, Patterns, Policy,
};
use super::{Audience, Key, KeyScope, Merge};

/// Rows of `"key": KIND, MERGE, SCOPE, AUDIENCE, "about", "example as JSON";`.
macro_rules! keys {
    ($($key:literal: $kind:expr, $merge:ident, $scope:ident, $audience:ident, $about:literal, $example:literal;)*) => {
        /// All keys, in the order of the documentation.
        pub const KEYS: &[Key] = &[$(Key {
            key: $key,
            kind: $kind,
            scope: KeyScope::$scope,
            audience: Audience::$audience,
            merge: Merge::$merge,
            about: $about,
            example: $example,
        }),*];
    };
}

keys! {
    "roots": Objects, Roots, Any, Any,
        "The directories that may be used",
        r#"[{"path": "/home/me/repo"}]"#;
    "roots/path": Path, Roots, Any, Any,
        "The absolute path of the directory; in a policy, of a subtree",
        r#""/home/me/repo""#;
    "roots/default": Flag, Identity, Configuration, Any,
        "Relative paths are resolved against this root; if no root is the default, against the only root",
        "true";
    "roots/optional": Flag, Identity, Configuration, Any,
        "Skip this root if it cannot be opened",
        "true";
    "roots/access": OneOf(Access), Min, Configuration, Any,
        "`read` for reading only; other levels also allow changes",
        r#""read""#;
    "roots/blocked": Flag, Or, Any, Any,
        "Deny the whole subtree",
        "true";
    "roots/allow": Globs, Intersection, Any, Any,
        "Globs of the files that may be used; all files if absent",
        r#"["src/**"]"#;
    "roots/deny": Globs, Union, Any, Any,
        "Globs of files that are always denied, even if granted",
        r#"[".env"]"#;
    "roots/immutable": Globs, Union, Any, Any,
        "Globs of files that can never be changed, even if granted",
        r#"["*.lock"]"#;
    "deny": Globs, Union, Any, Any,
        "Globs of files that are denied in every root, even if granted; one without `/` matches names at any depth",
        r#"[".env", "*.{key,pem}"]"#;
    "immutable": Globs, Union, Any, Any,
        "Globs of files that cannot be changed in any root, even if granted",
        r#"["*.lock"]"#;
    "allow_scopes": Patterns, Intersection, Any, Any,
        "The only scopes that are allowed without approval; scopes in no list are denied unless `otherwise` is set",
        r#"["read:file", "write:file:/home/me/repo/src"]"#;
    "ask_scopes": Patterns, Intersection, Any, Any,
        "Scopes that need approval",
        r#"["write:file"]"#;
    "deny_scopes": Patterns, Union, Any, Any,
        "Scopes that are denied",
        r#"["execute"]"#;
    "delegate_only": Patterns, Intersection, Any, Any,
        "Scopes that children may use and the worker itself may not",
        r#"["write:file:/home/me/repo"]"#;
    "otherwise": OneOf(Verdicts), Max, Any, Any,
        "The verdict on scopes in no list; by default `deny` if there is a list that allows or asks, else `allow`",
        r#""ask""#;
    "tools": Names, Intersection, Any, Any,
        "The tools that may be called; all if absent",
        r#"["grep", "read_file"]"#;
    "verbs": ListOf(Verbs), Intersection, Any, Any,
        "The verbs that may be used",
        r#"["read"]"#;
    "write_modes": ListOf(WriteModes), Intersection, Any, Any,
        "The modes in which files may be written",
        r#"["create", "append"]"#;
    "access": OneOf(Access), Min, Any, Any,
        "The access level: `read`, `interact` (also change) or `full` (also execute)",
        r#""interact""#;
    "allow_escape": Flag, And, Any, Any,
        "If false, paths outside all roots are denied, even if granted; a policy may set true only if the configuration does",
        "false";
    "follow_symlinks": Flag, And, Any, Any,
        "Whether symbolic links are followed",
        "false";
    "network": Flag, And, Any, Any,
        "Whether scopes of the resource `network` may be used; MCP servers are governed by scopes of `mcp`",
        "true";
    "read_only": Flag, Or, Any, Any,
        "Deny all changes",
        "true";
    "strict_hardlinks": Flag, Or, Any, Any,
        "Refuse to read or copy files with several hard links",
        "true";
    "require_preview": Flag, Or, Any, Any,
        "Require a preview before each change",
        "true";
    "require_approval": Flag, Or, Any, Human,
        "Require approval of every change",
        "true";
    "read_max_bytes": Count, Min, Any, Any,
        "Maximum size of a returned file or part of a file, in bytes; 0 is unlimited",
        "65536";
    "write_max_bytes": Count, Min, Any, Any,
        "Maximum size of a written file, in bytes; 0 is unlimited",
        "1048576";
    "max_results": Count, Min, Any, Any,
        "Maximum number of entries in one result; 0 is unlimited",
        "100";
    "max_calls": Count, Min, Any, Any,
        "Maximum number of calls of a worker; 0 is unlimited",
        "500";
    "ttl_ms": Count, Min, Any, Any,
        "Lifetime of a worker, in milliseconds; 0 is unlimited",
        "600000";
    "min_interval_ms": Count, Max, Any, Any,
        "Minimum time between two calls, in milliseconds",
        "50";
    "budget": Object, Min, Any, Any,
        "Budget of a worker and its descendants; an absent member is unlimited",
        r#"{"calls": 1000, "files_touched": 50}"#;
    "budget/calls": Count, Min, Any, Any,
        "Tool calls",
        "1000";
    "budget/bytes_written": Count, Min, Any, Any,
        "Bytes written",
        "10485760";
    "budget/files_touched": Count, Min, Any, Any,
        "Files and directories changed",
        "50";
    "budget/children": Count, Min, Any, Any,
        "Child workers, at any depth",
        "4";
    "budget/cpu_ms": Count, Min, Any, Any,
        "CPU time of commands, in milliseconds",
        "600000";
    "budget/wall_ms": Count, Min, Any, Any,
        "Time for which commands run, in milliseconds",
        "1800000";
    "budget/output_bytes": Count, Min, Any, Any,
        "Bytes that commands print",
        "10485760";
    "budget/processes": Count, Min, Any, Any,
        "Processes and threads of commands at the same time",
        "512";
    "budget/memory_bytes": Count, Min, Any, Any,
        "Memory of commands at the same time, in bytes",
        "2147483648";
    "grantable": Patterns, Identity, Configuration, Any,
        "Scopes that a person may grant outside the roots",
        r#"["read:file:/home/me/other"]"#;
    "allow": Patterns, Identity, Configuration, Any,
        "Allowed scopes of resources other than files; others need approval if they are grantable, else they are denied",
        r#"["read:mcp:notes"]"#;
    "protect": Globs, Union, Configuration, Any,
        "Globs of protected files; changing one requires a grant that names it",
        r#"["deploy.toml"]"#;
    "strict": Flag, Or, Configuration, Any,
        "Reject policies whose allow globs cover more than those that already apply",
        "true";
    "restrictions": Objects, Union, Configuration, Any,
        "Restrictions on this configuration, such as those of an earlier source",
        r#"[{"roots": [{"path": "/home/me/repo", "access": "read"}]}]"#;
    "restrictions/roots": Objects, Roots, Configuration, Any,
        "Roots that grant nothing; inside each of them, its access and globs apply",
        r#"[{"path": "/home/me/repo", "access": "read"}]"#;
    "restrictions/policy": Policy, Intersection, Configuration, Any,
        "A policy that applies in addition",
        r#"{"allow_scopes": ["read:file"]}"#;
}
