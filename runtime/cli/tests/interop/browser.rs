//! Real browser on the file browser that the program serves.

use std::path::Path;

use crate::playwright;

#[test]
fn people_browse_what_the_program_serves() {
    let shown = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    let told = [
        (
            "BAILIWICK_PROGRAM",
            env!("CARGO_BIN_EXE_bailiwick").as_ref(),
        ),
        ("BAILIWICK_BROWSER_OUTPUT", shown.as_os_str()),
    ];
    playwright::run(&["real/"], &told);
}
