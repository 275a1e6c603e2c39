//! Protected names: files whose change would run code later, or change an agent's instructions or permissions.

use super::globs::{Globs, Reading};
use super::need::{MountPoint, Need};
use super::patterns::PatternBudget;

/// Why the files of a Git repository are protected. It also applies to repositories that are recognised only by their
/// structure.
pub(crate) const GIT: &str = "Git can run commands from it, such as at every commit";
/// Reason for protected names of the configuration.
const CONFIGURED: &str = "your settings protect it";

/// A file name that is protected, while the entries beneath it are not.
const GIT_FILE: &str = ".git";

/// The protected names, in groups with their reason as a sentence for people. They apply in every root, at any depth,
/// in any spelling, and before the files exist.
const GROUPS: &[(&str, &[&str])] = &[
    (
        GIT,
        &[
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
    ),
    (
        "build servers run commands from it, often with the project's passwords and keys",
        &[
            "**/.github/workflows/**",
            "**/.github/actions/**",
            "**/.gitlab-ci.yml",
            "**/.circleci/**",
        ],
    ),
    (
        "AI agents follow it as instructions, or start the programs that it names",
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
    (
        "editors and debuggers can run commands from it, such as when you open the project",
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
    (
        "shells and terminals run commands from it whenever they start",
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
    (
        "package managers and build tools can run commands from it, such as at the next build",
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
    (
        "it decides who can sign in to which computer",
        &["**/.netrc", "**/.ssh/**"],
    ),
];

/// The globs of all groups.
pub(crate) fn globs() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, globs)| globs.iter().copied())
}

/// Whether the last name of the path itself is protected.
pub(crate) fn is_protected_name(need: &Need<'_>) -> bool {
    need.folded().rsplit('/').next() == Some(GIT_FILE)
}

/// Why the protected `need` is protected.
pub(crate) fn reason(need: &Need<'_>, mounts: &[MountPoint]) -> &'static str {
    if is_protected_name(need) {
        return GIT;
    }
    let covers = |globs: &[&str]| {
        let texts: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let mut budget = PatternBudget::configuration();
        let globs = Globs::intern(Reading::Deny, &texts, "/protect", &mut budget);
        matches!(globs, Ok(Some(globs)) if need.any_beneath(mounts, |path| globs.denies(path)))
    };
    let group = GROUPS.iter().find(|(_, globs)| covers(globs));
    group.map_or(CONFIGURED, |(reason, _)| reason)
}
