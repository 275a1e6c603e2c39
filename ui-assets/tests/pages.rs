//! The sources of the pages in, the committed pages out; and a real browser in, what people meet in it out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "support/chromium.rs"]
mod chromium;
#[path = "support/node.rs"]
mod node;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("web")
}

/// Runs a program of the installed packages; what it says is shown if it fails.
#[track_caller]
fn run(program: &str, arguments: &[&str], environment: &[(&str, &Path)]) {
    node::install(&web());
    let output = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(web())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("`{program}` cannot be run: {error}"));
    assert!(
        output.status.success(),
        "`{program} {}` failed:\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), read(entry.path())))
        .collect()
}

#[test]
fn the_sources_are_well_typed() {
    run("npx", &["tsc", "--noEmit"], &[]);
}

/// The build refuses what is larger than `sizes.mjs` allows.
#[test]
fn what_is_committed_is_what_the_sources_make() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dist");
    run("node", &["build.mjs", made.to_str().unwrap()], &[]);
    let committed = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("dist"));
    let made = files(&made);
    assert_eq!(
        committed.keys().collect::<Vec<_>>(),
        made.keys().collect::<Vec<_>>()
    );
    for (name, text) in &made {
        assert!(
            committed.get(name) == Some(text),
            "dist/{name} is not what the sources make; run `npm ci && npm run build` in ui-assets/web"
        );
    }
}

#[test]
fn no_page_makes_code_or_markup_of_text() {
    for (name, text) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("dist")) {
        for way in [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "setTimeout(\"",
        ] {
            assert!(!text.contains(way), "dist/{name} has `{way}`");
        }
    }
}

#[test]
fn pages_do_what_people_expect_in_a_browser() {
    let chromium = chromium::place();
    run(
        "npx",
        &["playwright", "test"],
        &[("BAILIWICK_CHROMIUM", &chromium)],
    );
}
