//! Documentation of the file server for agents.

use bailiwick::describe::{Alternatives, Description, Install, ServerDoc, Troubleshooting};
use bailiwick::policy::Access;

/// The documentation of a server with [the file tools](bailiwick_fs::tools).
#[must_use]
pub const fn server_doc() -> ServerDoc {
    ServerDoc {
        summary: "Reads, searches and changes files in the directories that a person chose, and shows what a change would do before it is made.",
        when: &[
            "read, list or look at files and directories",
            "find files by name or search in their content",
            "create or edit files",
            "move, copy or delete files and directories",
            "see what a change would do before it is made",
        ],
        not_for: &[
            "running commands or tests (use a shell, if one was given to you)",
            "fetching pages or anything else from a network (use a web tool)",
            "the history of a repository (use a Git tool)",
            "files outside the directories that `list_roots` names (ask the person to add one)",
        ],
        install: &[Install {
            by: "cargo",
            package: concat!("--git ", env!("CARGO_PKG_REPOSITORY"), " bailiwick-cli"),
            command: concat!(
                "cargo install --git ",
                env!("CARGO_PKG_REPOSITORY"),
                " bailiwick-cli"
            ),
        }],
        launch: &["bailiwick", "serve", "/path/to/project"],
        authentication: "No key and no account: the server works for whoever starts it, on the directories named when \
                         it is started. What a call may do is decided by the policy, and where that says so by a person.",
        environment: &[],
        alternatives: Alternatives {
            cli: None,
            api: None,
            web: None,
            notes: &[
                "`bailiwick --ai-help` prints this help on a command line; `--skill` prints a `SKILL.md`.",
                "For people: `bailiwick history AUDIT` shows what was allowed and denied, and `bailiwick verify AUDIT` checks the audit log.",
                "In a checkout of the repository, `cargo install --path runtime/cli` installs the same program.",
                "Rust programs link the crates `bailiwick` and `bailiwick-fs` and need no server.",
                "For some tools there is a shell command with the same effect; the tool reference names it.",
            ],
        },
        best_practices: &[
            "Begin with `list_roots` if you do not know the paths; it also returns the base of relative paths.",
            "Search with `grep` and `find` before you read, and read parts of long files with `offset` and `limit`.",
            "Change files with `edit_file`; write a file as a whole only if it is new or short.",
            "Pass the `hash` of your last read as `expected_hash`, so that nobody's change is lost.",
            "Read several files in one call with `paths`.",
        ],
        troubleshooting: TROUBLESHOOTING,
        categories: &["files", "developer-tools", "search"],
        homepage: None,
        repository: Some(env!("CARGO_PKG_REPOSITORY")),
        content_version: env!("CARGO_PKG_VERSION"),
        last_updated: None,
    }
}

/// The documentation of a server that also has the tool [`run_command`](bailiwick_exec::Commands).
#[must_use]
pub const fn server_doc_with_commands() -> ServerDoc {
    let mut doc = server_doc();
    // The first item says that commands need another tool.
    if let Some((_, others)) = doc.not_for.split_first() {
        doc.not_for = others;
    }
    doc
}

const TROUBLESHOOTING: &[Troubleshooting] = &[
    Troubleshooting {
        sign: "`PERMISSION_DENIED` for a file that exists",
        cause: "The policy denies its directory, its name or this operation.",
        solution: "Tell the person what you need and why. No other path and no link gives access.",
    },
    Troubleshooting {
        sign: "`SCOPE_REQUIRED`",
        cause: "A person has to allow the call first.",
        solution: "Have the person grant the scopes in `_meta.requested_scopes`, and send the same call again.",
    },
    Troubleshooting {
        sign: "`NO_MATCH` from `edit_file`",
        cause: "The old text is not in the file as it is now.",
        solution: "Read the lines again and copy the text from there.",
    },
    Troubleshooting {
        sign: "`STALE_PREVIEW`",
        cause: "The files changed between the preview and the call.",
        solution: "Preview again, and apply the new preview.",
    },
    Troubleshooting {
        sign: "The server does not start, or nothing can be changed",
        cause: "The machine lacks something that the server uses, or a directory cannot be served.",
        solution: "Have the person run `bailiwick doctor /path/to/project`, which says what is missing and what to do.",
    },
];

/// The description of a server with all [file tools](bailiwick_fs::tools) and write access.
///
/// ```
/// let help = bailiwick_cli::description();
/// assert!(help.markdown(None)?.contains("### read_file"));
/// assert!(help.markdown(Some("quick-reference"))?.contains("`read_file`"));
/// assert!(help.json(Some("none")).is_err());
/// # Ok::<(), bailiwick::describe::UnknownSection>(())
/// ```
#[must_use]
pub fn description() -> Description {
    Description::new(server_doc(), "bailiwick", env!("CARGO_PKG_VERSION"))
        .title("Bailiwick file server")
        .tools(bailiwick_fs::tools().infos())
        .access(Access::Interact)
}
