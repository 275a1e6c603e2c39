//! Checks of the sources that neither crate boundaries nor clippy make.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot read the sources must fail"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "it reads the repository, not a root"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// Modules that decide: they use no clock, file, thread or async function.
const PURE: &[&str] = &[
    "activity",
    "artifact/render",
    "artifact/review",
    "audit/chain",
    "audit/verify",
    "capability/meter",
    "journal/format",
    "journal/index",
    "journal/view",
    "permission/batch",
    "permission/choices",
    "permission/decided",
    "permission/grants",
    "permission/history",
    "permission/ledger",
    "permission/options",
    "permission/record",
    "permission/settings",
    "permission/store/format",
    "permission/suggest",
    "permission/template",
    "supervisor/restart",
    "supervisor/tree",
    "worker/lock_queue",
    "budget",
    "call",
    "config",
    "describe",
    "effect",
    "error",
    "id",
    "intent",
    "json",
    "path",
    "pipeline",
    "policy",
    "scope",
    "text",
];

const IMPURE: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "Instant::now",
    "SystemTime",
    "tokio::",
    "ractor::",
    "async fn",
    ".await",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The lines of code of a file before its tests; none in a file of tests.
fn production(path: &Path) -> Vec<String> {
    let is_test = |part: &str| part == "tests" || part == "testing" || part == "fixtures";
    if path
        .with_extension("")
        .iter()
        .any(|part| is_test(part.to_str().unwrap()))
    {
        return Vec::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("mod tests {"));
    let lines = lines
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//"));
    lines.map(str::to_owned).collect()
}

#[test]
fn deciding_modules_do_no_io() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut breaches = Vec::new();
    for module in PURE {
        let folder = src.join(module);
        let mut files = if folder.is_dir() {
            sources(&folder)
        } else {
            Vec::new()
        };
        files.push(folder.with_extension("rs"));
        for file in files {
            let lines = production(&file).into_iter();
            let impure = lines.filter(|line| IMPURE.iter().any(|word| line.contains(word)));
            breaches.extend(impure.map(|line| format!("{}: {line}", file.display())));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn ambient_authority_is_used_in_one_file() {
    let top = repository();
    let crates = [
        "runtime/core",
        "runtime/http",
        "runtime/mcp",
        "runtime/console",
        "runtime/cli",
        "fs-actor",
    ];
    let files = crates
        .iter()
        .flat_map(|name| sources(&top.join(name).join("src")));
    let taking = files.filter(|path| production(path).concat().contains("ambient_authority"));
    let taking: Vec<PathBuf> = taking.collect();
    assert_eq!(taking.len(), 1, "{taking:#?}");
    assert!(
        taking
            .iter()
            .all(|path| path.ends_with("runtime/core/src/root.rs")),
        "{taking:#?}"
    );
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn npm_lock_files_have_hashes_and_no_addresses() {
    let folders = [
        "ui-assets/web",
        "runtime/test-support/sample-servers",
        "runtime/cli/tests/interop/node",
    ];
    for folder in folders {
        let file = repository().join(folder).join("package-lock.json");
        let lock = serde_json::from_slice::<serde_json::Value>(&fs::read(file).unwrap()).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        assert!(packages.len() > 1);
        // The package itself has an empty name.
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(package["integrity"].is_string(), "{name}");
            assert!(package.get("resolved").is_none(), "{name}");
        }
    }
}

#[test]
fn each_fuzz_target_has_a_corpus_and_is_documented() {
    let folder = repository().join("runtime/fuzz");
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    let targets = sources(&folder.join("fuzz_targets"));
    assert!(!targets.is_empty());
    for target in targets {
        let name = target.file_stem().unwrap().to_str().unwrap();
        assert!(
            !sources(&folder.join("corpus").join(name)).is_empty(),
            "{name}"
        );
        assert!(readme.contains(&format!("| `{name}` |")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
