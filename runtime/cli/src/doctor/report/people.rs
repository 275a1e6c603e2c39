//! Checks of how people are asked.

use super::super::facts::Facts;
use super::Check;

pub(super) fn checks(facts: &Facts) -> [Check; 2] {
    [terminal(facts.terminal), browser(facts.opener.as_deref())]
}

fn terminal(terminal: bool) -> Check {
    let name = "terminal";
    if terminal {
        Check::ok(
            name,
            "standard error is a terminal, on which `serve` prints the address of the approval page",
        )
    } else {
        Check::limited(
            name,
            "standard error is not a terminal, so `serve` has an approval page only with `--ask page`, and stores its address \
             in a file",
            "start `serve` on a terminal, or open the page from that file",
        )
    }
}

fn browser(opener: Option<&str>) -> Check {
    let name = "browser";
    match opener {
        Some(opener) => Check::ok(name, format!("`{opener}` can open the approval page")),
        None => Check::limited(
            name,
            "neither BROWSER nor a display with `xdg-open` was found, so nobody can open the approval page here",
            "forward its port to a machine with a browser, such as with `ssh -L`",
        ),
    }
}
