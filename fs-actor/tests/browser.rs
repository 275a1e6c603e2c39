//! The program over a directory in, what people see of it in a browser out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in its helpers too, and installs what it needs"
)]

#[path = "../../ui-assets/tests/support/person.rs"]
mod person;

use std::path::Path;

#[test]
fn people_browse_what_the_program_serves() {
    let shown = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    let told = [
        ("BAILIWICK_FS", env!("CARGO_BIN_EXE_bailiwick-fs").as_ref()),
        ("BAILIWICK_BROWSER_OUTPUT", shown.as_os_str()),
    ];
    person::does(&["real/"], &told);
}
