//! Protected names: files whose change would run code later, or change what an agent is told or may do.

use super::globs::{Globs, Reading};
use super::need::{MountPoint, Need};
use super::patterns::PatternBudget;

/// Names that are protected for the same reason.
pub(crate) struct Group {
    /// Why, as a sentence for people.
    pub(crate) reason: &'static str,
    globs: &'static [&'static str],
    /// File names that are protected, while what is beneath them is not.
    names: &'static [&'static str],
}

const fn group(reason: &'static str, globs: &'static [&'static str]) -> Group {
    Group {
        reason,
        globs,
        names: &[],
    }
}

/// Why the files of a Git repository are protected, also if it is recognised only by its structure.
pub(crate) const GIT: &str = "Git runs programs that its configuration and hooks name";
/// Reason for protected names of the configuration.
const CONFIGURED: &str = "the configuration protects it";

/// The protected names: in every root, at any depth, in any spelling, and before they exist.
const GROUPS: &[Group] = &[
    Group {
        reason: GIT,
        names: &[".git"],
        globs: &[
            "**/.git/config",
            "**/.git/**/config.worktree",
            "**/.git/**/commondir",
            "**/.git/**/info/attributes",
            "**/.git/hooks/**",
            "**/.git/modules/**/config",
            "**/.git/modules/**/hooks/**",
            "**/.git/rebase-apply/**",
            "**/.git/rebase-merge/**",
            "**/.git/sequencer/**",
            "**/.gitmodules",
            "**/.gitattributes",
            "**/.gitconfig",
            "**/.config/git/**",
            "**/.hg/hgrc",
            "**/.husky/**",
            "**/.lefthook/**",
            "**/.lefthook-local/**",
            "**/{lefthook,.lefthook,lefthook-local,.lefthook-local}.{yml,yaml,toml,json}",
            "**/.pre-commit-config.yaml",
        ],
    },
    group(
        "automation runs what it says, often with the project's credentials",
        &[
            "**/.github/workflows/**",
            "**/.github/actions/**",
            "**/.gitlab-ci.yml",
            "**/.circleci/**",
        ],
    ),
    group(
        "agents follow it as instructions, or start the servers and hooks that it names",
        &[
            "**/AGENTS.md",
            "**/AGENTS.override.md",
            "**/AGENT.md",
            "**/CLAUDE.md",
            "**/CLAUDE.local.md",
            "**/GEMINI.md",
            "**/QWEN.md",
            "**/.cursorrules",
            "**/.windsurfrules",
            "**/.clinerules",
            "**/.roomodes",
            "**/.roorules",
            "**/.roorules-*",
            "**/.rules",
            "**/.aider.conf.yml",
            "**/.augment-guidelines",
            "**/.github/copilot-instructions.md",
            "**/.github/agents/**",
            "**/.github/chatmodes/**",
            "**/.github/hooks/**",
            "**/.github/instructions/**",
            "**/.github/prompts/**",
            "**/.github/skills/**",
            "**/.mcp.json",
            "**/opencode.json",
            "**/opencode.jsonc",
            "**/.agents/**",
            "**/.amp/**",
            "**/.augment/**",
            "**/.claude/**",
            "**/.codex/**",
            "**/.continue/**",
            "**/.cursor/**",
            "**/.gemini/**",
            "**/.junie/**",
            "**/.kiro/hooks/**",
            "**/.kiro/settings/**",
            "**/.kiro/steering/**",
            "**/.opencode/**",
            "**/.qwen/**",
            "**/.roo/**",
            "**/.trae/**",
            "**/.windsurf/**",
        ],
    ),
    group(
        "editors and debuggers run tasks and commands that it names",
        &[
            "**/.devcontainer/**",
            "**/.devcontainer.json",
            "**/.idea/**",
            "**/.vscode/**",
            "**/.zed/**",
            "**/*.code-workspace",
            "**/.exrc",
            "**/.nvimrc",
            "**/.vimrc",
            "**/.vim/**",
            "**/.config/nvim/**",
            "**/.gdbinit",
            "**/.gdbearlyinit",
            "**/.lldbinit",
        ],
    ),
    group(
        "shells and terminal programs run or obey it when they start",
        &[
            "**/.bash_aliases",
            "**/.bash_login",
            "**/.bash_logout",
            "**/.bash_profile",
            "**/.bashrc",
            "**/.cshrc",
            "**/.direnvrc",
            "**/.envrc",
            "**/.inputrc",
            "**/.kshrc",
            "**/.login",
            "**/.profile",
            "**/.tcshrc",
            "**/.xinitrc",
            "**/.xprofile",
            "**/.zlogin",
            "**/.zlogout",
            "**/.zprofile",
            "**/.zshenv",
            "**/.zshrc",
            "**/.tmux.conf",
            "**/.config/direnv/**",
            "**/.config/fish/**",
        ],
    ),
    group(
        "package managers and build tools run programs that it names",
        &[
            "**/.cargo/config*",
            "**/.npmrc",
            "**/.pnpmfile.cjs",
            "**/.pnpmfile.mjs",
            "**/.yarnrc.yml",
            "**/.yarnrc",
            "**/.yarn/plugins/**",
            "**/.yarn/releases/**",
            "**/.config/mise/**",
            "**/.config/mise.toml",
            "**/.mise/**",
            "**/.mise.toml",
            "**/mise.toml",
            "**/.mise.*.toml",
            "**/mise.*.toml",
        ],
    ),
    group(
        "it decides who may sign in where",
        &["**/.netrc", "**/.ssh/**"],
    ),
];

/// The globs of all groups.
pub(crate) fn globs() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.globs.iter().copied())
}

/// Whether the last name of a folded path is protected by itself.
pub(crate) fn is_protected_name(last: &str) -> bool {
    GROUPS.iter().any(|group| group.names.contains(&last))
}

/// Why `need`, which is protected, is protected.
pub(crate) fn reason(need: &Need<'_>, mounts: &[MountPoint]) -> &'static str {
    let last = need.folded().rsplit('/').next().unwrap_or_default();
    let covers = |group: &&Group| {
        let texts: Vec<String> = group.globs.iter().map(|glob| (*glob).to_owned()).collect();
        let globs = Globs::intern(
            Reading::Deny,
            &texts,
            "/protect",
            &mut PatternBudget::configuration(),
        );
        group.names.contains(&last)
            || matches!(globs, Ok(Some(globs)) if need.any_beneath(mounts, |path| globs.denies(path)))
    };
    GROUPS
        .iter()
        .find(covers)
        .map_or(CONFIGURED, |group| group.reason)
}
