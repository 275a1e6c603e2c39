//! Tests of the file browser in a real browser.

use bailiwick_test_support::playwright;
use bailiwick_test_support::target_tmp;

use crate::installed::{node, package};

#[test]
fn file_browser_works_in_a_browser() {
    let shown = target_tmp().join("browser");
    let inspector = package("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let node = node();
    let variables = [
        ("BAILIWICK_PROGRAM", crate::PROGRAM.as_ref()),
        ("BAILIWICK_INSPECTOR", inspector.as_os_str()),
        ("BAILIWICK_NODE", node.as_os_str()),
        ("BAILIWICK_BROWSER_OUTPUT", shown.as_os_str()),
    ];
    playwright::run(&["real/"], &variables);
}
