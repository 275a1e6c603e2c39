//! Checks the sources against the map in ARCHITECTURE.md.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources must fail"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "it reads the repository, not a root"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What a file may touch.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Pure logic: no clock, files, threads or actors.
    Pure,
    /// Actors, threads and locks.
    Actor,
    /// Does I/O.
    Io,
}
use Kind::{Actor, Io, Pure};

/// The layers of the runtime, lowest first. A file uses only files of its own module and of earlier rows; a file without
/// a row has that of its folder.
const LAYERS: &[(&str, Kind)] = &[
    ("escape", Pure),
    ("json", Pure),
    ("intent", Pure),
    ("id", Pure),
    ("path", Pure),
    ("scope", Pure),
    ("error", Pure),
    ("effect", Pure),
    ("call", Pure),
    ("budget", Pure),
    ("rate", Actor),
    ("capability/meter", Pure),
    ("config", Pure),
    ("policy", Pure),
    ("root", Io),
    ("capability/gate", Actor),
    ("capability", Pure),
    ("tool", Pure),
    ("tool/acting", Actor),
    ("describe", Pure),
    ("artifact/render", Pure),
    ("artifact/review", Pure),
    ("artifact", Actor),
    ("permission/choices", Pure),
    ("permission/options", Pure),
    ("permission/grants", Pure),
    ("permission/ledger", Pure),
    ("permission/settings", Pure),
    ("permission/decided", Pure),
    ("permission", Pure),
    ("audit/chain", Pure),
    ("audit/verify", Pure),
    ("audit/past", Pure),
    ("audit/segments", Io),
    ("audit/sink", Io),
    ("audit/recorder", Io),
    ("audit", Pure),
    ("tool/remote", Pure),
    ("inotify", Io),
    ("private_file", Io),
    ("permission/store/format", Pure),
    ("permission/store", Io),
    ("permission/record", Pure),
    ("permission/template", Pure),
    ("permission/batch", Pure),
    ("permission/history", Pure),
    ("permission/suggest", Pure),
    ("permission/broker_state", Actor),
    ("permission/approver", Io),
    ("permission/terminal", Io),
    ("permission/authority", Actor),
    ("permission/broker", Actor),
    ("permission/manage", Actor),
    ("permission/block", Actor),
    ("pipeline", Pure),
    ("worker/lock_queue", Pure),
    ("worker", Actor),
    ("supervisor/tree", Pure),
    ("supervisor/restart", Pure),
    ("supervisor", Actor),
    ("upstream/spec", Pure),
    ("upstream/failure", Pure),
    ("upstream/pins", Pure),
    ("upstream/pin_store", Io),
    ("upstream/schema_cost", Pure),
    ("upstream/schema", Actor),
    ("upstream/classify", Pure),
    ("upstream/servers_file", Pure),
    ("upstream/scopes", Pure),
    ("upstream/tool_result", Actor),
    ("upstream/elicitation", Pure),
    ("upstream/backoff", Pure),
    ("upstream/log_limiter", Actor),
    ("upstream/line_reader", Actor),
    ("upstream/requests", Actor),
    ("upstream/connection_state", Actor),
    ("upstream/session", Actor),
    ("upstream/auth/authorization_response", Pure),
    ("upstream/auth/credentials", Actor),
    ("upstream/auth/sign_in_audit", Actor),
    ("upstream/auth/flow", Actor),
    ("upstream/auth/account", Actor),
    ("upstream/auth/authenticated_client", Actor),
    ("upstream/server", Actor),
    ("upstream/client", Actor),
    ("upstream/discovery", Actor),
    ("upstream/transport", Actor),
    ("upstream/cancel_on_drop", Actor),
    ("upstream/tool_call", Actor),
    ("upstream/catalog", Actor),
    ("upstream/registry", Actor),
    ("upstream/pagination", Actor),
    ("upstream/reading", Actor),
    ("upstream/connection", Actor),
    ("upstream", Io),
    ("host", Io),
    ("gateway/meta", Pure),
    ("gateway/decorate", Pure),
    ("gateway/uri", Pure),
    ("gateway/message", Pure),
    ("gateway/pagination", Pure),
    ("gateway/prompts", Pure),
    ("gateway/apps", Pure),
    ("gateway/convert", Pure),
    ("gateway/form", Pure),
    ("gateway/elicit", Io),
    ("gateway/http/guard", Pure),
    ("gateway", Io),
    ("view/wire", Pure),
    ("view/host", Pure),
    ("view/request", Pure),
    ("view/list_refresh", Pure),
    ("view/app", Pure),
    ("view/protocol", Pure),
    ("view/spec", Pure),
    ("view", Actor),
    ("console/error", Pure),
    ("console/request", Pure),
    ("console/response", Pure),
    ("console", Io),
    ("guide", Pure),
    ("recipes", Pure),
    ("lib", Pure),
];

/// Modules that depend on each other: a configuration contains a policy and is its outermost layer; a worker holds the
/// shared core, which holds the workers.
const CYCLES: &[(&str, &str)] = &[("config", "policy"), ("worker", "supervisor")];

/// Forbidden in pure files.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "Instant::now",
    "SystemTime",
    "tokio::",
    "ractor::",
    "async fn",
    ".await",
    "std::io::stdin",
    "println!",
];

/// Forbidden except in files that do I/O.
const AMBIENT: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "ambient_authority",
    "Command::new",
];

fn crates() -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    ["runtime", "fs-actor", "ui-assets", "benches", "examples"]
        .iter()
        .map(|name| top.join(name))
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().unwrap() != "target" {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Whether a file contains only tests.
fn is_test(path: &Path) -> bool {
    let parts = path.with_extension("");
    parts
        .iter()
        .any(|part| part == "tests" || part == "testing" || part == "cases")
}

/// The text of a file without test items. It relies on rustfmt: an item ends on its first line, or on the first line that
/// closes it at its own indentation.
fn production(path: &Path) -> String {
    without_tests(&fs::read_to_string(path).unwrap())
}

fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let (indent, _) = line.split_at(line.len() - line.trim_start().len());
        let ends = |line: &str| {
            let rest = line.strip_prefix(indent);
            rest.is_some_and(|rest| rest.starts_with(['}', ')', ']']))
        };
        while let Some(line) = lines.next() {
            let code = line.trim();
            if code.starts_with("#[") {
                if !code.ends_with(']') {
                    lines.by_ref().find(|line| ends(line));
                }
                continue;
            }
            if !code.ends_with([';', '}', ',']) {
                lines.by_ref().find(|line| ends(line));
            }
            break;
        }
    }
    kept
}

/// The lines of code, without comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//"))
}

fn runtime_files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&folder, &mut found);
    let name = |path: &Path| {
        path.strip_prefix(&folder)
            .unwrap()
            .with_extension("")
            .to_str()
            .unwrap()
            .to_owned()
    };
    found
        .iter()
        .filter(|path| !is_test(path))
        .map(|path| (name(path), production(path)))
        .collect()
}

/// The row of a file: its own, or that of the nearest folder.
fn row(file: &str) -> Option<usize> {
    let own = LAYERS.iter().position(|(name, _)| *name == file);
    own.or_else(|| row(file.rsplit_once('/')?.0))
}

#[track_caller]
fn none(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn every_file_of_the_runtime_has_a_layer_and_every_layer_a_file() {
    let files = runtime_files();
    let homeless = files
        .keys()
        .filter(|file| row(file).is_none())
        .map(|file| format!("{file} is in no layer"));
    let empty = LAYERS.iter().filter(|(name, _)| !files.contains_key(*name));
    none(
        &homeless
            .chain(empty.map(|(name, _)| format!("{name} has no file")))
            .collect::<Vec<_>>(),
    );
}

/// The file of a path such as `crate::policy::base::Base` or `super::Layer` in `file`.
fn target(files: &BTreeMap<String, String>, file: &str, path: &str) -> String {
    let mut at: Vec<&str> = file.split('/').collect();
    let mut found = "lib".to_owned();
    for name in path.split("::") {
        match name {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            name => at.push(name),
        }
        let here = at.join("/");
        if files.contains_key(&here) {
            found = here;
        } else if !matches!(name, "crate" | "super") {
            break;
        }
    }
    found
}

/// The paths from `crate` or `super` in a text, also in braces: `super::{a::B, c}` contains `super::a::B`.
fn paths(text: &str) -> Vec<String> {
    let code: String = code(text)
        .filter(|line| !line.starts_with("pub use"))
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let (before, after) = code.split_at(at);
            let before = before.chars().next_back();
            // A later `super` belongs to the previous path.
            if !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':')) {
                tree("", after, &mut found);
            }
        }
    }
    found
}

/// Parses one path of a `use` with its braces; returns the rest.
fn tree<'t>(prefix: &str, text: &'t str, found: &mut Vec<String>) -> &'t str {
    let end = text.find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
    let (path, mut rest) = text.split_at(end.unwrap_or(text.len()));
    let whole = format!("{prefix}{path}");
    let Some(inner) = rest.strip_prefix('{').filter(|_| path.ends_with("::")) else {
        found.push(whole);
        return rest;
    };
    rest = inner.trim_start();
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = tree(&whole, rest, found);
        // A comma or an alias follows.
        rest = rest.trim_start_matches(|c: char| c != ',' && c != '}');
        rest = rest.trim_start_matches([',', ' ', '\n']);
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

#[test]
fn no_file_uses_a_lower_layer() {
    let files = runtime_files();
    let mut breaches = Vec::new();
    for (file, text) in &files {
        let module = file.split('/').next().unwrap();
        for path in paths(text) {
            let used = target(&files, file, &path);
            let other = used.split('/').next().unwrap();
            let cycle = CYCLES
                .iter()
                .any(|pair| *pair == (module, other) || *pair == (other, module));
            // Public re-exports are defined elsewhere.
            let free = module == other || other == "lib" || cycle;
            if !free && row(&used).unwrap() > row(file).unwrap() {
                breaches.push(format!("{file} uses {used}: {path}"));
            }
        }
    }
    none(&breaches);
}

#[test]
fn code_after_test_items_is_checked() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nuse b;\n#[cfg(test)]\n#[expect(\n    x,\n)]\n\
                pub(crate) mod more {\n    fn f() {\n    }\n}\nfn g() {\n    #[cfg(test)]\n    seen();\n}\n";
    assert_eq!(without_tests(text), "use a;\nuse b;\nfn g() {\n}\n");
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy.rs");
    assert!(production(&policy).contains("fn reaches("));
}

#[test]
fn every_use_path_is_found() {
    let text = "use super::{a::B, c, d::{E as F, g}};\nuse crate::h::I;\nlet x = super::super::j::k(crate::l::M);\n";
    let mut found = paths(text);
    found.sort();
    let expected = [
        "crate::h::I",
        "crate::l::M",
        "super::a::B",
        "super::c",
        "super::d::E",
        "super::d::g",
        "super::super::j::k",
    ];
    assert_eq!(found, expected);
    let files = ["lib", "a", "a/b", "a/c", "d"].map(|name| (name.to_owned(), String::new()));
    let files = BTreeMap::from(files);
    for (file, path, expected) in [
        ("a/b", "super::X", "a"),
        ("a/b", "super::c::X", "a/c"),
        ("a/b", "super::super::d::X", "d"),
        ("a/b", "crate::a::c::X", "a/c"),
        ("a/b", "crate::X", "lib"),
        ("d", "super::a::b", "a/b"),
    ] {
        assert_eq!(target(&files, file, path), expected, "{file} {path}");
    }
}

#[test]
fn pure_files_do_no_io() {
    let mut breaches = Vec::new();
    for (file, text) in runtime_files() {
        let (_, kind) = LAYERS[row(&file).unwrap()];
        let forbidden = match kind {
            Pure => IMPURE,
            Actor => AMBIENT,
            Io => continue,
        };
        for line in code(&text) {
            let words = forbidden.iter().filter(|word| line.contains(**word));
            breaches.extend(words.map(|word| format!("{file} says {word}: {line}")));
        }
    }
    none(&breaches);
}

#[test]
fn ambient_authority_is_taken_in_one_file() {
    let mut breaches = Vec::new();
    for folder in crates()
        .iter()
        .filter(|folder| folder.ends_with("runtime") || folder.ends_with("fs-actor"))
    {
        let mut found = Vec::new();
        sources(&folder.join("src"), &mut found);
        found.retain(|path| !is_test(path));
        let taking = found
            .iter()
            .filter(|path| production(path).contains("ambient_authority"));
        breaches.extend(
            taking
                .filter(|path| !path.ends_with("runtime/src/root.rs"))
                .map(|path| path.display().to_string()),
        );
    }
    none(&breaches);
}

#[test]
fn files_begin_with_a_module_comment() {
    let mut breaches = Vec::new();
    let mut found = Vec::new();
    crates()
        .iter()
        .for_each(|folder| sources(folder, &mut found));
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        if !text.starts_with("//! ") {
            breaches.push(format!(
                "{} does not begin with a module comment",
                path.display()
            ));
        }
    }
    none(&breaches);
}

#[test]
fn sources_have_no_open_tasks() {
    let mut breaches = Vec::new();
    let mut found = Vec::new();
    crates()
        .iter()
        .for_each(|folder| sources(folder, &mut found));
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["allow(dead", "_code)"].concat(),
        ["#[ig", "nore"].concat(),
    ];
    let [.., ignored] = &marks;
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        // The ignored function there is a program that another test runs.
        let child = ["killed.rs", "workers/records.rs"]
            .iter()
            .any(|name| path.ends_with(Path::new("runtime/tests").join(name)));
        breaches.extend(
            marks
                .iter()
                .filter(|mark| text.contains(*mark) && !(child && *mark == ignored))
                .map(|mark| format!("{}: {mark}", path.display())),
        );
    }
    none(&breaches);
}
