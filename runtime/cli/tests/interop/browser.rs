//! Tests of the file browser in a real browser.

use std::path::Path;

use crate::playwright;

#[test]
fn file_browser_works_in_a_browser() {
    let shown = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    let variables = [
        (
            "BAILIWICK_PROGRAM",
            env!("CARGO_BIN_EXE_bailiwick").as_ref(),
        ),
        ("BAILIWICK_BROWSER_OUTPUT", shown.as_os_str()),
    ];
    playwright::run(&["real/"], &variables);
}
