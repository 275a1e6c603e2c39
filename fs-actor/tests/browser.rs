//! The program over a directory in, what people see of it in a browser out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, in its helpers too, and installs what it needs"
)]

#[path = "../../ui-assets/tests/support/chromium.rs"]
mod chromium;
#[path = "../../ui-assets/tests/support/node.rs"]
mod node;

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn people_browse_what_the_program_serves() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-assets/web");
    node::install(&web);
    let shown = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    let output = Command::new("npx")
        .args(["playwright", "test", "real/"])
        .env("BAILIWICK_FS", env!("CARGO_BIN_EXE_bailiwick-fs"))
        .env("BAILIWICK_CHROMIUM", chromium::place())
        .env("BAILIWICK_BROWSER_OUTPUT", shown)
        .current_dir(web)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
