//! Builds the pages from their sources, and opens them in Chromium.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

#[path = "support/person.rs"]
mod person;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a program of the installed packages; what it says is shown if it fails.
#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(person::web())
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
    run("npx", &["tsc", "--noEmit"]);
}

/// The pages that are committed, and those of the examples.
fn committed() -> [PathBuf; 2] {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = here.join("../examples/mcp/examples/hr_dashboard");
    [here.join("dist"), example]
}

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let mut pages = files(folder);
    pages.retain(|name, _| !name.ends_with(".rs") && !name.ends_with(".json"));
    pages
}

/// The build refuses what is larger than `sizes.mjs` allows.
#[test]
fn what_is_committed_is_what_the_sources_make() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (dist, examples) = (made.join("dist"), made.join("examples"));
    let folders = [&dist, &examples].map(|folder| folder.to_str().unwrap());
    run("node", &["build.mjs", folders[0], folders[1]]);
    let made = [dist, examples.join("hr_dashboard")];
    for (committed, made) in committed().iter().zip(&made) {
        let (committed, made) = (pages(committed), pages(made));
        assert_eq!(
            committed.keys().collect::<Vec<_>>(),
            made.keys().collect::<Vec<_>>()
        );
        for (name, text) in &made {
            assert!(
                committed.get(name) == Some(text),
                "{name} is not what the sources make; run `npm ci && npm run build` in ui-assets/web"
            );
        }
    }
}

#[test]
fn pages_do_what_people_expect_in_a_browser() {
    person::does(&[], &[]);
}
