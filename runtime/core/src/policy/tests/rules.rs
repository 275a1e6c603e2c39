//! Tests of protected names, roots, globs and whole resources.

use serde_json::json;

use super::{admitted, check, configured, expands, host, path, under};
use crate::call::Origin;
use crate::config::{Config, RootConfig};
use crate::policy::{Authority, Policy, PolicyErrorKind, PolicyRoot, Verdict};
use crate::scope::ScopePattern;

use Verdict::{Allow, Ask, Deny};

#[test]
fn protected_file_requires_a_grant_that_names_it() {
    for name in [
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/hooks",
        ".git/modules/a/b/config",
        ".gitmodules",
        ".vscode/tasks.json",
        ".vscode",
        ".cursor/mcp.json",
        "AGENTS.md",
        "agents.MD",
        "d/e/.mcp.json",
        ".github/workflows/ci.yml",
        ".cargo/config.toml",
        ".bashrc",
        ".ssh/id",
        ".CL\u{200b}AUDE/x",
        "sub/.git",
    ] {
        let need = format!("write:file:/r/{name}");
        check(&host(), &need, &[], Ask);
        check(&host(), &need, &["*"], Ask);
        check(&host(), &need, &["write:file"], Ask);
        check(&host(), &need, &["write:file:/r"], Ask);
        check(&host(), &need, &[&format!("read:file:/r/{name}")], Ask);
        check(&host(), &need, &[&need], Allow);
        check(&host(), &format!("read:file:/r/{name}"), &[], Allow);
    }
    check(
        &host(),
        "write:file:/r/.git/hooks/pre-commit",
        &["write:file:/r/.git/hooks"],
        Ask,
    );
    check(&host(), "write:file:/new/.envrc", &["write:file:/new"], Ask);
    check(
        &host(),
        "write:file:/new/.envrc",
        &["write:file:/new/.envrc"],
        Allow,
    );
}

/// Protected names, with a word of the reason for people.
const PROTECTED: &[(&str, &[&str])] = &[
    (
        "Git",
        &[
            ".git",
            "a/.git",
            ".git/config",
            ".git/worktrees/w/config.worktree",
            ".git/worktrees/w/commondir",
            ".git/info/attributes",
            ".git/hooks/pre-commit",
            ".git/modules/m/config",
            ".git/rebase-apply/x",
            ".git/rebase-merge/git-rebase-todo",
            ".git/sequencer/todo",
            ".gitmodules",
            ".gitattributes",
            ".gitconfig",
            ".config/git/config",
            ".hg/hgrc",
            ".husky/pre-push",
            "lefthook.yml",
            ".lefthook.yaml",
            "lefthook-local.toml",
            ".lefthook/pre-commit/x.sh",
            ".pre-commit-config.yaml",
        ],
    ),
    (
        "build servers",
        &[
            ".github/workflows/ci.yml",
            ".github/actions/a/action.yml",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
        ],
    ),
    (
        "agents",
        &[
            "AGENTS.md",
            "a/CLAUDE.md",
            "AGENTS.override.md",
            "a/AGENT.md",
            "CLAUDE.local.md",
            "GEMINI.md",
            "QWEN.md",
            ".cursorrules",
            ".windsurfrules",
            ".clinerules",
            ".clinerules/a.md",
            ".roomodes",
            ".roorules",
            ".roorules-code",
            ".rules",
            ".aider.conf.yml",
            ".augment-guidelines",
            ".github/copilot-instructions.md",
            ".github/agents/a.md",
            ".github/chatmodes/a.md",
            ".github/hooks/a.json",
            ".github/prompts/a.prompt.md",
            ".github/skills/a/SKILL.md",
            ".github/instructions/a.md",
            ".mcp.json",
            "opencode.json",
            "opencode.jsonc",
            ".agents/x",
            ".amp/settings.json",
            ".augment/rules/a.md",
            ".claude/settings.json",
            ".codex/config.toml",
            ".continue/config.yaml",
            ".cursor/mcp.json",
            ".gemini/settings.json",
            ".junie/guidelines.md",
            ".kiro/hooks/h",
            ".kiro/settings/mcp.json",
            ".kiro/steering/a.md",
            ".opencode/agent/a.md",
            ".qwen/settings.json",
            ".roo/mcp.json",
            ".trae/rules/a.md",
            ".windsurf/rules/a.md",
        ],
    ),
    (
        "editors",
        &[
            ".devcontainer/devcontainer.json",
            ".devcontainer.json",
            ".idea/workspace.xml",
            ".vscode/tasks.json",
            ".zed/tasks.json",
            "a/My.Code-Workspace",
            ".exrc",
            ".nvimrc",
            ".vimrc",
            ".vim/plugin/a.vim",
            ".config/nvim/init.lua",
            ".gdbinit",
            ".gdbearlyinit",
            ".lldbinit",
        ],
    ),
    (
        "shells",
        &[
            ".bash_aliases",
            ".bash_login",
            ".bash_logout",
            ".bash_profile",
            ".bashrc",
            ".cshrc",
            ".direnvrc",
            ".envrc",
            ".inputrc",
            ".kshrc",
            ".login",
            ".profile",
            ".tcshrc",
            ".xinitrc",
            ".xprofile",
            ".zlogin",
            ".zlogout",
            ".zprofile",
            ".zshenv",
            ".zshrc",
            ".tmux.conf",
            ".config/direnv/direnvrc",
            ".config/fish/config.fish",
        ],
    ),
    (
        "package managers",
        &[
            ".cargo/config.toml",
            ".npmrc",
            ".pnpmfile.cjs",
            ".pnpmfile.mjs",
            ".yarnrc.yml",
            "a/.yarnrc",
            ".yarn/plugins/a.cjs",
            ".yarn/releases/yarn-1.22.cjs",
            ".config/mise/config.toml",
            ".config/mise.toml",
            ".mise/tasks/a",
            ".mise.toml",
            "mise.toml",
            "mise.local.toml",
            ".mise.production.toml",
        ],
    ),
    ("can sign in", &[".netrc", ".ssh/config"]),
    ("settings protect", &["policy/a"]),
];

#[test]
fn protected_names_have_a_reason() {
    for (why, names) in PROTECTED {
        for name in *names {
            let host =
                configured(&json!({ "roots": [{ "path": "/r" }], "protect": ["policy/**"] }));
            let need = format!("write:file:/r/{name}");
            check(&host, &need, &["write:file:/r"], Ask);
            check(&host, &need, &[&need], Allow);
            let reason = host.protection_reason(&need.parse().unwrap());
            assert!(reason.is_some_and(|reason| reason.contains(why)), "{name}");
        }
    }
    let open = "write:file:/r/src/main.rs".parse().unwrap();
    assert_eq!(host().protection_reason(&open), None);
}

#[test]
fn ordinary_names_are_not_protected() {
    for name in [
        "devcontainer/x",
        "x.code-workspaces",
        ".kiro/specs/a.md",
        "a/opencode.jsonl",
        ".config/x",
        ".git/objects/ab",
        ".gitignore",
        "git",
        ".github/x",
        "AGENTS.md.txt",
        "AGENT.md.txt",
        "agents/a.md",
        "prompts/a.md",
        ".github/ISSUE_TEMPLATE/a.md",
        ".yarn/cache/a.zip",
        "yarnrc",
        ".yarnrc.md",
        "mise.md",
        "mise/a.toml",
        "rules",
        "a.rules",
        "roomodes",
        ".roorule",
        "vim/a.vim",
        ".config/nvimx",
        "lefthook.md",
        "src/lefthook.rs",
        "circleci/config.yml",
        "direnvrc",
        "junie/a.md",
        "trae/a.md",
        "augment/a.md",
        "aider.conf.yml",
        "gdbearlyinit",
        "tmux.conf",
        ".cargo/x",
        "x.git",
    ] {
        check(&host(), &format!("write:file:/r/{name}"), &[], Allow);
    }
}

#[test]
fn protected_file_in_ask_scopes_requires_an_exact_grant() {
    let worker = under(&host(), &Policy::new().ask("write"));
    check(&worker, "write:file:/r/AGENTS.md", &["write"], Ask);
    check(
        &worker,
        "write:file:/r/AGENTS.md",
        &["write:file:/r/AGENTS.md"],
        Allow,
    );
    check(&worker, "write:file:/r/a", &["write"], Allow);
}

#[test]
fn protect_adds_protected_names() {
    let host = configured(&json!({ "roots": [{ "path": "/r" }], "protect": ["policy/**"] }));
    check(
        &host,
        "write:file:/r/policy/a",
        &["write:file:/r/policy"],
        Ask,
    );
    check(&host, "write:file:/r/POLICY/a", &[], Ask);
    check(&host, "write:file:/r/policies", &[], Allow);
    check(&host, "write:file:/r/AGENTS.md", &[], Ask);
}

#[test]
fn worker_without_a_policy_asks_for_everything() {
    let worker = under(&host(), &Policy::ask_for_everything());
    check(&worker, "read:file:/r/a", &[], Ask);
    check(&worker, "read:file:/r/a", &["read:file:/r"], Allow);
    check(&worker, "write:file:/x/y", &[], Ask);
    check(&worker, "execute:cli:ls", &["*"], Deny);
}

#[test]
fn write_in_a_read_only_root_asks_only_if_grantable() {
    let config = |grantable| {
        let root = RootConfig::read_only(path("/r"));
        let config = Config {
            grantable,
            ..Config::new().root(root)
        };
        Authority::configured(&config).unwrap()
    };
    check(&config(vec![]), "read:file:/r/a", &[], Allow);
    check(&config(vec![]), "write:file:/r/a", &["*"], Deny);
    check(
        &config(vec!["write:file:/r".parse().unwrap()]),
        "write:file:/r/a",
        &[],
        Ask,
    );
    check(&config(vec![]), "execute:file:/r/a", &["*"], Deny);
    check(
        &config(vec!["execute:file:/r".parse().unwrap()]),
        "execute:file:/r/a",
        &[],
        Ask,
    );
}

#[test]
fn files_outside_configured_allow_globs_cannot_be_granted() {
    let root = RootConfig {
        allow: vec!["src/**".to_owned()],
        ..RootConfig::new(path("/r"))
    };
    let config = Config::new().root(root).grantable(ScopePattern::ANY);
    let host = Authority::configured(&config).unwrap();
    check(&host, "read:file:/r/src/a", &[], Allow);
    check(&host, "read:file:/r/b", &["*"], Deny);
    check(&host, "read:file:/x", &["*"], Allow);
    let wider = Authority::configured(&config.root(RootConfig::new(path("/r/b")))).unwrap();
    check(&wider, "read:file:/r/b", &[], Allow);
    check(&wider, "read:file:/r/c", &["*"], Deny);
}

#[test]
fn blocked_root_denies_everything() {
    let blocked = RootConfig {
        blocked: true,
        ..RootConfig::new(path("/r/s"))
    };
    let config = Config::new()
        .root(RootConfig::new(path("/r")))
        .root(blocked);
    let host = Authority::configured(&config.grantable(ScopePattern::ANY)).unwrap();
    check(&host, "read:file:/r/s/a", &["*"], Deny);
    check(&host, "read:file:/r/a", &[], Allow);
    assert!(!host.reaches(&path("/r/s")));
    assert!(host.reaches(&path("/r")));
    let open = json!({ "roots": [{ "path": "/r/s", "blocked": false }] });
    expands(&host, &Policy::parse(&open).unwrap(), "/roots/0/blocked");
    admitted(
        &host,
        &Policy::parse(&json!({ "roots": [{ "path": "/r/a", "blocked": false }] })).unwrap(),
    );
    admitted(&host, &Policy::new().block("/r/s"));
    let child = under(&host, &Policy::new().block("/r/t"));
    expands(
        &child,
        &Policy::parse(&json!({ "roots": [{ "path": "/r/t/u", "blocked": false }] })).unwrap(),
        "/roots/0/blocked",
    );
}

#[test]
fn globs_of_overlapping_roots_are_united() {
    let outer = RootConfig {
        deny: vec!["in/x".to_owned()],
        ..RootConfig::new(path("/r"))
    };
    let inner = RootConfig {
        deny: vec!["y".to_owned()],
        ..RootConfig::new(path("/r/in"))
    };
    let host = Authority::configured(&Config::new().root(outer).root(inner)).unwrap();
    check(&host, "read:file:/r/in/x", &[], Deny);
    check(&host, "read:file:/r/in/y", &[], Deny);
    check(&host, "read:file:/r/y", &[], Allow);
}

#[test]
fn global_globs_apply_in_each_root_and_at_any_depth_outside() {
    let worker = under(
        &host(),
        &Policy::new()
            .deny_glob("secret")
            .deny_glob("top/**")
            .immutable_glob("k/*"),
    );
    check(&worker, "read:file:/r/secret/a", &[], Deny);
    check(&worker, "read:file:/r/a/secret", &[], Deny);
    check(&worker, "read:file:/r/a/secrets", &[], Allow);
    check(&worker, "read:file:/r/top", &[], Deny);
    check(&worker, "read:file:/r/a/top", &[], Allow);
    check(&worker, "write:file:/r/k/a", &[], Deny);
    check(&worker, "write:file:/r/k/a/b", &[], Deny);
    check(&worker, "write:file:/r/k", &[], Allow);
    check(&worker, "read:file:/r/k/a", &[], Allow);
    check(&worker, "read:file:/new/secret", &["*"], Deny);
    check(&worker, "read:file:/new/a/secret/b", &["*"], Deny);
    check(&worker, "write:file:/new/k/a", &["*"], Deny);
    check(&worker, "read:file:/new/k/a", &["*"], Allow);
}

#[test]
fn deny_globs_cover_every_spelling() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "**/.git/**",
            &[".git", ".git/x", "a/.git", "a/.GIT/b/c"],
            &["git", ".gitx", "a"],
        ),
        ("{a/**,b}", &["a", "a/x", "b", "b/y"], &["c", "aa"]),
        ("a/**/**", &["a", "a/b"], &["b"]),
        ("?", &["a", "A/b"], &["ab"]),
        ("\\[\u{e9}", &["[\u{e9}", "[E\u{301}"], &["\u{e9}"]),
        ("STRASSE", &["stra\u{df}e", "Strasse"], &["strase"]),
        ("e\u{301}", &["\u{e9}", "\u{c9}/x"], &["e"]),
        ("[!a]", &["b", "\u{e9}", "\u{c9}"], &["a", "bc"]),
        (
            "?.k",
            &["\u{e9}.k", "E\u{301}.k", "\u{1f511}.k/x"],
            &["\u{e9}\u{e9}.k", ".k"],
        ),
        ("[a^]?", &["a\u{e9}", "^b"], &["b\u{e9}", "a"]),
        ("x{,y}", &["x", "xy"], &["xz"]),
        ("**/*.d/x", &["a.d/x", "b/a.d/x/y"], &["a.d", "x"]),
        (
            "**/a/*.c",
            &["a/x.c", "b/a/x.c/y"],
            &["a", "x.c", "a/b/x.c"],
        ),
        ("a/b", &["a/b", "a/b/c"], &["a", "b", "a/bc", "c/a/b"]),
        ("**/a/b", &["a/b", "c/a/b/d"], &["a", "b/a", "a/bc"]),
        ("**", &["", "a", "a/b"], &[]),
    ];
    for (glob, denied, open) in cases {
        let worker = under(&host(), &Policy::new().deny_glob(glob));
        for name in *denied {
            check(&worker, &format!("read:file:/r/{name}"), &["*"], Deny);
        }
        for name in *open {
            check(&worker, &format!("read:file:/r/{name}"), &[], Allow);
        }
    }
}

#[test]
fn question_mark_and_negated_class_of_allow_globs_match_one_character() {
    let allowing = PolicyRoot {
        allow: Some(vec!["?.rs".to_owned(), "[!a].md".to_owned()]),
        ..PolicyRoot::new(path("/r"))
    };
    let worker = under(&host(), &Policy::new().subtree(allowing));
    for name in ["a.rs", "\u{e9}.rs", "b.md", "\u{1f511}.md"] {
        check(&worker, &format!("read:file:/r/{name}"), &[], Allow);
    }
    for name in ["\u{e9}\u{e9}.rs", "a.md", "bb.md"] {
        check(&worker, &format!("read:file:/r/{name}"), &["*"], Deny);
    }
}

#[test]
fn ask_and_delegate_only_restrict_other_spellings() {
    let asking = under(
        &host(),
        &Policy::new().ask("write:file:/r/a").otherwise(Allow),
    );
    check(&asking, "write:file:/r/A/x", &[], Ask);
    check(&asking, "write:file:/r/b/x", &[], Allow);
    let closed = under(&host(), &Policy::new().ask("write:file:/r/a"));
    check(&closed, "write:file:/r/a/x", &[], Ask);
    check(&closed, "write:file:/r/A/x", &["*"], Deny);
    let handing = Policy::new()
        .delegate_only("write:file:/r/a")
        .otherwise(Allow);
    let handing = under(&host(), &handing);
    check(&handing, "write:file:/r/A/x", &["*"], Deny);
    check(&handing, "read:file:/r/A/x", &[], Allow);
    check(
        &under(&handing, &Policy::new()),
        "write:file:/r/A/x",
        &[],
        Allow,
    );
}

#[test]
fn expensive_or_useless_globs_are_rejected() {
    let refused = |glob: &str| {
        let error = host()
            .admit(&Policy::new().deny_glob(glob), Origin::Human)
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.field()),
            (PolicyErrorKind::PolicyInvalid, "/deny/0"),
            "{glob}"
        );
    };
    let long = "a".repeat(513);
    for glob in [
        "",
        "/a",
        "a/",
        "./a",
        "a/../b",
        "a//b",
        "a\nb",
        "{a",
        "[z-a]",
        "x[\u{df}]",
        "{a,b}{c,d}{e,f}{g,h}{i,j}",
        &long,
    ] {
        refused(glob);
    }
    refused("{a,b,c,d,e,f,g,h,i}{a,b,c,d,e,f,g,h,i}");
    admitted(
        &host(),
        &Policy::new()
            .deny_glob(&"a".repeat(512))
            .deny_glob("{a,b}{c,d}{e,f}{g,h}"),
    );
    let list = Policy::parse(&json!({ "deny": vec!["a"; 1025] }));
    assert_eq!(list.unwrap_err().field(), "/deny");
}

#[test]
fn need_for_files_without_a_path_is_denied() {
    check(&host(), "read:file", &["*"], Deny);
    let open = configured(&json!({ "allow": ["read:mcp"], "grantable": ["write:mcp"] }));
    check(&open, "read:mcp", &[], Allow);
    check(&open, "write:mcp", &[], Ask);
    check(&open, "execute:mcp", &["*"], Deny);
    check(
        &under(&open, &Policy::new().deny("read:mcp:evil")),
        "read:mcp",
        &[],
        Deny,
    );
    check(
        &under(&open, &Policy::new().deny("read:mcp:evil")),
        "read:mcp:good",
        &[],
        Allow,
    );
    check(
        &under(&open, &Policy::new().deny("write:mcp:evil")),
        "read:mcp",
        &[],
        Allow,
    );
    check(
        &under(&open, &Policy::new().deny("read:cli:evil")),
        "read:mcp",
        &[],
        Allow,
    );
}

#[test]
fn need_for_a_whole_resource_includes_its_denied_parts() {
    let open = configured(&json!({ "allow": ["read:mcp"] }));
    let worker = under(&open, &Policy::new().deny("*:mcp:evil"));
    check(&worker, "read:mcp", &["*"], Deny);
    check(&worker, "read:mcp:good", &[], Allow);
}

#[test]
fn roots_and_path_denies_do_not_apply_to_other_resources() {
    let open = configured(&json!({ "roots": [{ "path": "/r" }], "allow": ["read:mcp"] }));
    let worker = under(&open, &Policy::new().root("/r").deny("*:file:/r"));
    check(&worker, "read:mcp:x", &[], Allow);
    check(&worker, "read:file:/r/a", &[], Deny);
}

#[test]
fn paths_outside_roots_ask_unless_allow_escape_is_false() {
    let host = configured(&json!({
        "roots": [{ "path": "/r" }, { "path": "/s", "access": "read" }],
        "grantable": ["*:file"],
        "allow_escape": true,
    }));
    let configured_as = |allow: Option<bool>| {
        let mut config = json!({ "roots": [{ "path": "/r" }, { "path": "/s", "access": "read" }], "grantable": ["*:file"] });
        config["allow_escape"] = json!(allow);
        configured(&config)
    };
    let (silent, closed) = (configured_as(None), configured_as(Some(false)));
    let beneath_closed = under(&closed, &Policy::new());
    let inside = under(&host, &Policy::new().allow_escape(false));
    let beneath = under(&inside, &Policy::new());
    let open = under(&host, &Policy::new().allow_escape(true));
    for (worker, outside) in [
        (&host, Ask),
        (&silent, Ask),
        (&closed, Deny),
        (&beneath_closed, Deny),
        (&open, Ask),
        (&inside, Deny),
        (&beneath, Deny),
    ] {
        check(worker, "read:file:/etc/hosts", &[], outside);
        check(worker, "read:file:/rr", &[], outside);
        check(worker, "write:file:/s/x", &[], Ask);
        check(worker, "read:file:/r/x", &[], Allow);
    }
    check(&open, "read:file:/etc/hosts", &["read:file:/etc"], Allow);
    check(&silent, "read:file:/etc/hosts", &["read:file:/etc"], Allow);
    for closed in [&inside, &closed] {
        check(closed, "read:file:/etc/hosts", &["read:file:/etc"], Deny);
        check(closed, "write:file:/s/x", &["write:file:/s"], Allow);
    }
    let why = inside.explain(&"read:file:/etc/hosts".parse().unwrap(), &[]);
    assert_eq!((why.key, why.grant), ("allow_escape", None));
}

#[test]
fn ungrantable_paths_are_denied() {
    let config = Config::parse(&json!({ "roots": [{ "path": "/r" }], "grantable": ["*:file"] }));
    let kept = vec![path("/home/me"), path("/var/log/audit")];
    let host = Authority::with_ungrantable(&config.unwrap(), kept).unwrap();
    for need in [
        "read:file:/",
        "read:file:/home",
        "write:file:/home/me",
        "read:file:/var/log",
        "read:file:/var/log/audit",
        "read:file:/var/log/audit.00000001",
        "read:file:/var/log/audit.00000001.corrupt-1",
        "read:file:/var/log/audit.corrupt",
        "read:file:/var/log/audit.torn-12-0",
        "write:file:/var/log/audit.lock",
        "write:file:/var/log/audit.new",
        "read:file:/proc/self/environ",
        "read:file:/sys",
        "write:file:/dev/sda",
        "write:file:/opt",
    ] {
        check(&host, need, &["*"], Deny);
    }
    for need in [
        "read:file:/opt",
        "write:file:/opt/x",
        "write:file:/home/me/x",
        "read:file:/home/mean",
        "read:file:/var/log/other",
        "read:file:/var/log/audit.bak",
        "read:file:/var/log/audit.corrupt-x",
        "read:file:/var/log/audit.lock/x",
        "read:file:/process",
    ] {
        check(&host, need, &[], Ask);
        check(&host, need, &["*"], Allow);
    }
    check(&host, "write:file:/r", &[], Allow);
    let root = configured(&json!({ "roots": [{ "path": "/dev" }] }));
    check(&root, "read:file:/dev/x", &[], Allow);
}

#[test]
fn grant_without_grantable_part_is_rejected() {
    let host = configured(&json!({
        "roots": [{ "path": "/r", "access": "read" }, { "path": "/r/out" }],
        "grantable": ["write:file:/tmp/x", "read:mcp:hub"],
        "allow": ["execute:cli:ls"],
    }));
    let may = |pattern: &str| host.is_grantable(&pattern.parse().unwrap());
    for pattern in [
        "*",
        "write",
        "read:file:/r/a",
        "write:file:/r/out/a",
        "write:file:/r",
        "write:file:/tmp",
    ] {
        assert!(may(pattern), "{pattern}");
    }
    for pattern in ["read:mcp:hub:list", "execute:cli", "execute:cli:ls"] {
        assert!(may(pattern), "{pattern}");
    }
    for pattern in [
        "write:file:/r/a",
        "read:file:/tmp/x",
        "write:file:/tmp/y",
        "write:mcp:hub",
        "execute:file",
        "execute:cli:rm",
    ] {
        assert!(!may(pattern), "{pattern}");
    }
}
