//! The sources in, every breach of the map in ARCHITECTURE.md out.
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
    /// Decides: no clock, no file, no thread, no actor.
    Pure,
    /// Moves messages, or holds threads and locks.
    Actor,
    /// Touches the world.
    Io,
}
use Kind::{Actor, Io, Pure};

/// The files of the runtime from the bottom up. A file uses only what stands above it in this table; one that is not
/// named stands where its folder does.
const LAYERS: &[(&str, Kind)] = &[
    ("escape", Pure),
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
    ("describe", Pure),
    ("artifact/render", Pure),
    ("artifact/review", Pure),
    ("artifact", Actor),
    ("permission/ladder", Pure),
    ("permission/options", Pure),
    ("permission/grants", Pure),
    ("permission/ledger", Pure),
    ("permission/settings", Pure),
    ("permission/decided", Pure),
    ("permission", Pure),
    ("audit/chain", Pure),
    ("audit/verify", Pure),
    ("audit/past", Pure),
    ("audit/sink", Io),
    ("audit/recorder", Io),
    ("audit", Pure),
    ("permission/store/format", Pure),
    ("permission/store", Io),
    ("permission/record", Pure),
    ("permission/template", Pure),
    ("permission/batch", Pure),
    ("permission/history", Pure),
    ("permission/suggest", Pure),
    ("permission/desk", Actor),
    ("permission/approver", Io),
    ("permission/terminal", Io),
    ("permission/authority", Actor),
    ("permission/broker", Actor),
    ("permission/manage", Actor),
    ("permission/block", Actor),
    ("pipeline", Pure),
    ("worker/locks", Pure),
    ("worker", Actor),
    ("supervisor/tree", Pure),
    ("supervisor/restart", Pure),
    ("supervisor", Actor),
    ("upstream/spec", Pure),
    ("upstream/pins", Pure),
    ("upstream/places", Pure),
    ("upstream/shape", Actor),
    ("upstream/classify", Pure),
    ("upstream/servers", Pure),
    ("upstream/scopes", Pure),
    ("upstream/answer", Actor),
    ("upstream/elicit", Pure),
    ("upstream/backoff", Pure),
    ("upstream/quiet", Actor),
    ("upstream/lines", Actor),
    ("upstream/requests", Actor),
    ("upstream/line", Actor),
    ("upstream/session", Actor),
    ("upstream/auth/sent", Pure),
    ("upstream/auth/vault", Actor),
    ("upstream/auth/ledger", Actor),
    ("upstream/auth/desk", Actor),
    ("upstream/auth/account", Actor),
    ("upstream/auth/signed", Actor),
    ("upstream/server", Actor),
    ("upstream/client", Actor),
    ("upstream/bounded", Actor),
    ("upstream/sent", Actor),
    ("upstream/job", Actor),
    ("upstream/house", Actor),
    ("upstream/pages", Actor),
    ("upstream/reading", Actor),
    ("upstream/keeper", Actor),
    ("upstream", Io),
    ("host", Io),
    ("gateway/meta", Pure),
    ("gateway/decorate", Pure),
    ("gateway/uri", Pure),
    ("gateway/unique", Pure),
    ("gateway/pages", Pure),
    ("gateway/prompts", Pure),
    ("gateway/apps", Pure),
    ("gateway/convert", Pure),
    ("gateway/form", Pure),
    ("gateway/ask", Io),
    ("gateway/http/callers", Pure),
    ("gateway", Io),
    ("view/wire", Pure),
    ("view/host", Pure),
    ("view/asks", Pure),
    ("view/lists", Pure),
    ("view/guest", Pure),
    ("view/talk", Pure),
    ("view/spec", Pure),
    ("view", Actor),
    ("console/faults", Pure),
    ("console/wire", Pure),
    ("console/refusals", Pure),
    ("console/show", Pure),
    ("console", Io),
    ("recipes", Pure),
    ("lib", Pure),
];

/// Pairs that name each other: a configuration is a policy and a policy's outermost layer; a worker holds what all
/// workers share, and that holds the workers.
const CYCLES: &[(&str, &str)] = &[("config", "policy"), ("worker", "supervisor")];

/// What no pure file says.
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

/// What only files that touch the world say.
const AMBIENT: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "ambient_authority",
    "Command::new",
];

const MOST_LINES: usize = 400;

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

/// Whether a file holds tests alone.
fn is_test(path: &Path) -> bool {
    let parts = path.with_extension("");
    parts
        .iter()
        .any(|part| part == "tests" || part == "testing" || part == "cases")
}

/// The text of a file up to its tests.
fn production(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap().to_owned()
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

/// The row of the table that a file belongs to: its own, or the nearest folder's.
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

#[test]
fn no_file_uses_what_stands_below_it() {
    let mut breaches = Vec::new();
    for (file, text) in runtime_files() {
        for line in code(&text).filter(|line| !line.starts_with("pub use")) {
            for used in line.split("crate::").skip(1) {
                let module = used
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap();
                let top = file.split('/').next().unwrap();
                let cycle = CYCLES
                    .iter()
                    .any(|pair| *pair == (top, module) || *pair == (module, top));
                if module != top
                    && !cycle
                    && row(module).is_some_and(|used| used > row(&file).unwrap())
                {
                    breaches.push(format!("{file} uses {module}: {line}"));
                }
            }
        }
    }
    none(&breaches);
}

#[test]
fn what_decides_touches_nothing() {
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
fn files_are_short_and_say_first_what_they_do() {
    let mut breaches = Vec::new();
    let mut found = Vec::new();
    crates()
        .iter()
        .for_each(|folder| sources(folder, &mut found));
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        let lines = production(&path).lines().count();
        if lines > MOST_LINES && !is_test(&path) {
            breaches.push(format!(
                "{} has {lines} lines before its tests",
                path.display()
            ));
        }
        if !text.starts_with("//! ") {
            breaches.push(format!(
                "{} does not begin with what it does",
                path.display()
            ));
        }
    }
    none(&breaches);
}

#[test]
fn nothing_is_left_undone_in_the_sources() {
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
        // What is passed over there is no test but the program that the test beside it runs.
        let child = path.ends_with("runtime/tests/killed.rs");
        breaches.extend(
            marks
                .iter()
                .filter(|mark| text.contains(*mark) && !(child && *mark == ignored))
                .map(|mark| format!("{}: {mark}", path.display())),
        );
    }
    none(&breaches);
}
