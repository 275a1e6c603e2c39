//! Checks that the committed pages match their sources, and tests them in Chromium and Firefox.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads the pages"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bailiwick_test_support::{chromium, firefox, playwright};

/// Runs a program of the installed packages.
#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(playwright::web())
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
fn sources_pass_the_type_check() {
    run("npx", &["tsc", "--noEmit"]);
}

/// The directories with committed pages.
fn committed() -> [PathBuf; 2] {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    ["ui-assets/dist", "examples/mcp/examples/hr_dashboard"].map(|dir| workspace.join(dir))
}

fn pages(folder: &Path) -> BTreeMap<String, String> {
    let mut pages = files(folder);
    pages.retain(|name, _| !name.ends_with(".rs") && !name.ends_with(".json"));
    pages
}

/// The build fails if a page is larger than `sizes.mjs` allows.
#[test]
fn committed_pages_match_their_sources() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (dist, examples) = (out.join("dist"), out.join("examples"));
    let folders = [&dist, &examples].map(|folder| folder.to_str().unwrap());
    run("node", &["build.mjs", folders[0], folders[1]]);
    let built = [dist, examples.join("hr_dashboard")];
    for (committed, built) in committed().iter().zip(&built) {
        let (committed, built) = (pages(committed), pages(built));
        assert_eq!(
            committed.keys().collect::<Vec<_>>(),
            built.keys().collect::<Vec<_>>()
        );
        for (name, text) in &built {
            assert!(
                committed.get(name) == Some(text),
                "{name} is outdated; run `npm ci && npm run build` in ui-assets/web"
            );
        }
    }
}

#[test]
fn pages_pass_the_browser_tests() {
    let chromium = chromium::find_headless();
    playwright::run(&[], &[(chromium::VARIABLE, chromium.as_os_str())]);
}

#[test]
fn pages_pass_the_tests_in_firefox() {
    let config = ["--config", "playwright.firefox.config.ts"];
    let firefox = firefox::find();
    let variables = [
        ("BAILIWICK_FIREFOX", firefox.as_os_str()),
        (
            "BAILIWICK_PROGRAM",
            env!("CARGO_BIN_EXE_bailiwick").as_ref(),
        ),
    ];
    playwright::run(&config, &variables);
}
